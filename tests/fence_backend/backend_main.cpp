// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// backend_main <scenario>: one process for each thing that may be different about a process. Exit status: 0 passed,
// 1 failed, 77 when this machine has no restartable sequences and the scenario is about them.

#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <curfew/admission_fence.hpp>

#include "exercise.hpp"

#if CURFEW_HAS_RSEQ
#include <sys/rseq.h>
#endif

namespace {

using namespace std::chrono_literals;
using fence_backend::counted_fence;
using fence_backend::counted_sync;
using fence_backend::exercise;
using fence_backend::has_sequences;

constexpr int skipped = 77;
constexpr auto moment = 150ms;

// From here on these system calls fail with EPERM, in this thread and those that it starts.
void refuse(std::initializer_list<long> calls) {
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::puts("no system call filter can be installed here");
    std::_Exit(skipped);
  }
}

// What f writes to stderr.
template <class F>
std::string said_by(F f) {
  int ends[2];
  DEMAND(::pipe(ends) == 0);
  const int before = ::dup(2);
  ::dup2(ends[1], 2);
  ::close(ends[1]);
  f();
  ::dup2(before, 2);
  ::close(before);
  std::string said(4096, '\0');
  const auto got = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  said.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return said;
}

// Whatever this process has, it works, and it is what is expected.
int works(bool sequences) {
  if (sequences && !has_sequences()) return skipped;
  DEMAND(has_sequences() == sequences);
  exercise run(moment);
  DEMAND((counted_sync::added.load() != 0) == sequences);
  return 0;
}

// A filter that was there before the first fence: portable, and nobody has to be told.
int filter_before() {
  refuse({SYS_membarrier});
  DEMAND(said_by([] { DEMAND(works(false) == 0); }).empty());
  return 0;
}

// A filter that comes later: the fence that is in use is closed by a walk over the CPUs, which is announced once, and
// from then on fences are portable.
int filter_after() {
  if (!has_sequences()) return skipped;
  counted_fence fence("early"), other("early too");
  auto pass = fence.try_enter();
  for (int i = 0; i < 2; ++i) {
    DEMAND(fence.try_enter());
    DEMAND(other.try_enter());
  }
  const auto before = counted_sync::added.load();
  DEMAND(before != 0);
  refuse({SYS_membarrier});
  const std::string said = said_by([&] {
    DEMAND(fence.close());
    DEMAND(!fence.try_enter() && fence.inside() == 1);
    DEMAND(other.close() && other.is_drained());
  });
  DEMAND(said.find("membarrier is refused") != std::string::npos);
  DEMAND(said.find("membarrier is refused") == said.rfind("membarrier is refused"));
  pass.release();
  DEMAND(fence.is_drained() && fence.reopen());
  DEMAND(!has_sequences());
  counted_sync::added.store(0);
  for (int i = 0; i < 3; ++i) DEMAND(fence.try_enter());
  DEMAND(counted_sync::added.load() == 0);
  return works(false);
}

// The walk really interrupts: a fence is closed with it over and over while others use it. It becomes portable with the
// first reopening, so each cycle has a fence of its own, made before the filter came.
int filter_after_busy() {
  if (!has_sequences()) return skipped;
  constexpr unsigned count = 100;
  const auto fences = std::make_unique<counted_fence[]>(count);
  std::atomic<int> inside[count] = {};
  for (unsigned i = 0; i < count; ++i) DEMAND(fences[i].try_enter());
  std::atomic<unsigned> current{0};
  const auto work = [&] {
    for (unsigned i; (i = current.load(std::memory_order_relaxed)) < count;) {
      if (auto pass = fences[i].try_enter()) {
        inside[i].fetch_add(1, std::memory_order_relaxed);
        inside[i].fetch_sub(1, std::memory_order_relaxed);
      }
    }
  };
  std::thread workers[] = {std::thread(work), std::thread(work), std::thread(work)};
  std::thread([&] {  // the filter and the walk are this thread's alone
    refuse({SYS_membarrier});
    for (unsigned i = 0; i < count; ++i) {
      DEMAND(fences[i].drain_for(10s));
      DEMAND(inside[i].load(std::memory_order_relaxed) == 0 && fences[i].inside() == 0);
      current.store(i + 1, std::memory_order_relaxed);
    }
  })
      .join();
  for (auto& each : workers) each.join();
  std::printf("%llu by sequences\n", static_cast<unsigned long long>(counted_sync::added.load()));
  return 0;
}

// One sequence: it adds to the lane with the number of the CPU, if there is one and the gate is above that number.
int numbered() {
  using cells = curfew::detail::cpu_cells<curfew::std_sync>;
  const std::int64_t index = curfew::std_sync::restartable<cells>();
  if (index == 0) return skipped;
  for (unsigned cpu = 0; cpu < 2; ++cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return skipped;
    for (const int gate : {-3, -1, 0, 1, 2, cells::lane_count}) {
      cells counted;
      DEMAND(!curfew::std_sync::add_on_cpu<1>(counted));  // it does not know yet where to look
      counted.index.store(index);
      counted.gate.store(gate);
      bool added = false;
      for (int i = 0; i < 100 && !added; ++i) added = curfew::std_sync::add_on_cpu<1>(counted);  // may be interrupted
      DEMAND(added == (gate > static_cast<int>(cpu)));
      DEMAND(counted.gate.load() == gate);
      for (unsigned lane = 0; lane < cells::lane_count; ++lane) {
        DEMAND(counted.lanes[lane].local.load() == (added && lane == cpu ? 1u : 0u));
        DEMAND(counted.lanes[lane].shared.load() == 0);
      }
    }
  }
  return 0;
}

// What it is made of: whoever runs on some CPU is interrupted there. The kernel shows that by forgetting the sequence
// that a thread has announced and is not in.
int walk() {
#if CURFEW_HAS_RSEQ
  if (!has_sequences()) return skipped;
  static const unsigned signature[2] = {RSEQ_SIG, 0};
  struct alignas(32) sequence {
    unsigned version = 0, flags = 0;
    std::uint64_t start = reinterpret_cast<std::uintptr_t>(&signature[0]), length = 1;
    std::uint64_t abort = reinterpret_cast<std::uintptr_t>(&signature[1]);
  };
  static const sequence elsewhere;
  std::atomic<unsigned> round{0}, announced{0};
  const auto spin = [&](unsigned cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) std::_Exit(skipped);
    auto* const area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
    auto& current = *reinterpret_cast<std::atomic<std::uint64_t>*>(area + curfew::detail::rseq_cs);
    for (unsigned i = 1; i <= 20; ++i) {
      current.store(reinterpret_cast<std::uintptr_t>(&elsewhere));
      announced.fetch_add(1);
      while (round.load() < i) curfew::std_sync::pause();
      DEMAND(current.load() == 0);
    }
  };
  std::thread spinners[] = {std::thread(spin, 0), std::thread(spin, 1)};
  cpu_set_t before, after;
  ::sched_getaffinity(0, sizeof before, &before);
  for (unsigned i = 1; i <= 20; ++i) {
    while (announced.load() != 2 * i) std::this_thread::yield();
    DEMAND(curfew::detail::rseq_visit_all_cpus());
    round.store(i);
  }
  ::sched_getaffinity(0, sizeof after, &after);
  DEMAND(CPU_EQUAL(&before, &after));
  for (auto& each : spinners) each.join();
  return 0;
#else
  return skipped;
#endif
}

// A filter that leaves no way to close: the process ends with a message instead of going on with a wrong count.
int filter_all() {
  if (!has_sequences()) return skipped;
  int status = 0;
  const std::string said = said_by([&] {
    const pid_t child = ::fork();
    if (child == 0) {
      counted_fence fence("early");
      DEMAND(fence.try_enter());
      refuse({SYS_membarrier, SYS_sched_setaffinity});
      fence.close();
      ::_exit(0);
    }
    ::waitpid(child, &status, 0);
  });
  DEMAND(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  DEMAND(said.find("refuses membarrier and sched_setaffinity") != std::string::npos);
  return 0;
}

// The child has its own memory and its own numbers of CPUs, and inherits what libc and the kernel have registered.
int forked() {
  if (!has_sequences()) return skipped;
  counted_fence fence("inherited");
  auto held = fence.try_enter();
  auto others = fence.try_enter();
  DEMAND(fence.try_enter());
  const pid_t child = ::fork();
  if (child == 0) {
    fence.reset_after_fork_in_child(1);
    DEMAND(fence.inside() == 1);
    counted_sync::added.store(0);
    for (int i = 0; i < 3; ++i) DEMAND(fence.try_enter());
    DEMAND(counted_sync::added.load() != 0);
    DEMAND(fence.close() && fence.inside() == 1);
    held.release();
    DEMAND(fence.is_drained() && fence.reopen());
    ::_exit(works(true));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  DEMAND(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  DEMAND(fence.close() && fence.inside() == 2);
  held.release();
  others.release();
  DEMAND(fence.is_drained());
  return works(true);
}

#if CURFEW_HAS_RSEQ
// A thread that libc has not registered, or that somebody has unregistered, counts by the stripes.
int unregistered() {
  if (!has_sequences()) return skipped;
  counted_fence fence("entered from outside");
  DEMAND(fence.try_enter());
  auto held = fence.try_enter();
  std::thread([&] {
    auto* const area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
    constexpr unsigned original_size = 32, unregister = 1;
    if (::syscall(SYS_rseq, area, original_size, unregister, RSEQ_SIG) != 0) std::_Exit(skipped);
    counted_sync::added.store(0);
    for (int i = 0; i < 1000; ++i) DEMAND(fence.try_enter());
    held.release();
    auto own = fence.try_enter();
    DEMAND(counted_sync::added.load() == 0);
    DEMAND(fence.inside() == 1);
  }).join();
  DEMAND(fence.inside() == 0);
  DEMAND(fence.close() && fence.is_drained());
  return 0;
}
#else
int unregistered() {
  return skipped;
}
#endif

// Under a debugger that goes on by single steps every sequence is interrupted, and none is tried again for ever.
int stepped() {
  if (!has_sequences()) return skipped;
  static counted_fence fence("stepped");
  DEMAND(fence.try_enter());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(skipped);
    ::raise(SIGSTOP);
    counted_sync::added.store(0);
    for (int i = 0; i < 10; ++i) DEMAND(fence.try_enter());
    ::_exit(counted_sync::added.load() == 0 ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  unsigned steps = 0;
  while (WIFSTOPPED(status)) {
    DEMAND(++steps < 100'000);
    if (::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) break;
    ::waitpid(child, &status, 0);
  }
  std::printf("%u steps, status %#x\n", steps, static_cast<unsigned>(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == skipped ? skipped
         : WIFEXITED(status) && WEXITSTATUS(status) == 0     ? 0
                                                             : 1;
}

// A sequence that was interrupted, or just ended, in a shared object that is unloaded then: nothing of the thread
// points there any more when the kernel looks next.
int unloaded(const char* plugin) {
  if (!has_sequences()) return skipped;
  static curfew::admission_fence fence("used by plugins");
  DEMAND(fence.try_enter());
  const itimerval every{{0, 100}, {0, 100}};
  struct sigaction how {};
  static std::atomic<unsigned> alarms{0};
  how.sa_handler = [](int) { ++alarms; };
  how.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &how, nullptr);
  ::setitimer(ITIMER_REAL, &every, nullptr);
  for (int i = 0; i < 100; ++i) {
    void* const handle = ::dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    DEMAND(handle != nullptr);
    const auto use = reinterpret_cast<bool (*)(curfew::admission_fence&, unsigned)>(::dlsym(handle, "use_fence"));
    DEMAND(use != nullptr);
    std::thread([&] { DEMAND(use(fence, 2000)); }).join();
    DEMAND(use(fence, 2000));  // the last thing before the object goes
    DEMAND(::dlclose(handle) == 0);
    DEMAND(::dlopen(plugin, RTLD_NOW | RTLD_NOLOAD) == nullptr);  // it is really gone
    const unsigned before = alarms;
    while (alarms == before) curfew::std_sync::pause();  // interrupted now, at the latest
  }
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  DEMAND(fence.inside() == 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view scenario = argc > 1 ? argv[1] : "";
  if (scenario == "sequences") return works(true);
  if (scenario == "portable") return works(false);
  if (scenario == "filter_before") return filter_before();
  if (scenario == "filter_after") return filter_after();
  if (scenario == "filter_after_busy") return filter_after_busy();
  if (scenario == "numbered") return numbered();
  if (scenario == "walk") return walk();
  if (scenario == "filter_all") return filter_all();
  if (scenario == "forked") return forked();
  if (scenario == "unregistered") return unregistered();
  if (scenario == "stepped") return stepped();
  if (scenario == "unloaded" && argc > 2) return unloaded(argv[2]);
  std::fprintf(stderr, "usage: see the top of backend_main.cpp\n");
  return 2;
}
