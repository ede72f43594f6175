// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What only a process of its own can show: real signals, dispositions, masks, forks, exit codes. The parent has one
// thread and waits for its children; what a child finds wrong it says by its exit code.

#include <curfew/ordered_lifespan.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/lifespan_probe.hpp"
#include "support/park.hpp"

// The sanitizers of clang bring an allocator that cannot be replaced.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CURFEW_TEST_CANNOT_STARVE
#endif
#endif

#ifndef CURFEW_TEST_CANNOT_STARVE
// Runs out of memory at will: the n-th allocation from when it is armed fails, and every later one if so wished.
namespace starvation {
inline std::atomic<long> left{-1};
inline std::atomic<bool> for_ever{false};
inline std::atomic<bool> happened{false};
inline bool strikes() noexcept {
  if (left.load(std::memory_order_relaxed) < 0) return false;
  const long now = left.fetch_sub(1);
  const bool now_or_later = now == 0 || (now < 0 && for_ever.load());
  if (now == 0 && for_ever.load()) left.store(0);
  if (now_or_later) happened.store(true);
  return now_or_later;
}
}  // namespace starvation

// Not inlined: compilers compare what they see of the one with what they see of the other.
__attribute__((noinline)) void* operator new(std::size_t size) {
  if (starvation::strikes()) throw std::bad_alloc();
  if (void* memory = std::malloc(size != 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

#endif

namespace {

using namespace curfew_test;
using curfew::exit_code_policy;
using curfew::lifespan_event;
using curfew::lifespan_event_kind;
using curfew::ordered_lifespan;
using curfew::ownership_conflict;
using curfew::shutdown_owned;

/// In a child: leaves with the line at which something was wrong, which the parent prints.
#define CHILD_CHECK(condition)                                                                \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: not so in a child: %s\n", __FILE__, __LINE__, #condition); \
      ::_exit(99);                                                                            \
    }                                                                                         \
  } while (false)

lifespan_options owning() {
  auto options = quiet();
  options.owned_signals = {SIGTERM, SIGINT};
  return options;
}

struct sigaction disposition(int signo) {
  struct sigaction now {};
  ::sigaction(signo, nullptr, &now);
  return now;
}
bool same(const struct sigaction& a, const struct sigaction& b) {
  for (int signo = 1; signo < 65; ++signo) {
    if (sigismember(&a.sa_mask, signo) != sigismember(&b.sa_mask, signo)) return false;
  }
  return a.sa_flags == b.sa_flags &&
         ((a.sa_flags & SA_SIGINFO) != 0 ? a.sa_sigaction == b.sa_sigaction : a.sa_handler == b.sa_handler);
}

// --- delivery

TEST(OrderedLifespanProcess, T43_SigtermDrainsAndStopsAndTheCodeIsZero) {
  channel up;
  channel log;
  const pid_t child = spawn_child([&] {
    ordered_lifespan life(owning());
    curfew::admission_fence runs("runs");
    gate finish;
    auto pass = std::make_optional(runs.enter());
    std::thread run([&] {
      static_cast<void>(finish.wait());
      log.tell('r');
      pass.reset();
    });
    life.add("pool").stop([&] { log.tell('p'); });
    life.add("runs").after("pool").fence(runs).drain([&] { finish.open(); });
    life.add("http").after("runs").start([] {}).close([&] { log.tell('h'); });
    when_running(life, [&] { up.tell('u'); });
    const int code = life.run();
    run.join();
    return code;
  });
  EXPECT_EQ(up.hear(), 'u');
  ::kill(child, SIGTERM);
  EXPECT_EQ(log.hear(), 'h');
  EXPECT_EQ(log.hear(), 'r');
  EXPECT_EQ(log.hear(), 'p');
  EXPECT_EQ(reap(child), 0);
}

TEST(OrderedLifespanProcess, T19_CodesByPolicyWithARealSignal) {
  const std::pair<exit_code_policy, int> table[] = {{exit_code_policy::zero_when_clean, 0},
                                                    {exit_code_policy::conventional_128, 128 + SIGINT},
                                                    {exit_code_policy::reraise, 128 + SIGINT}};
  for (const auto& [policy, expected] : table) {
    channel stopped;
    const int status = in_child([&, chosen = policy] {
      auto options = owning();
      options.exit = chosen;
      ordered_lifespan life(options);
      life.add("a").start(send_and_await(SIGINT)).stop([&] { stopped.tell('s'); });
      life.add("b").after("a").start([] {});
      return life.run();
    });
    EXPECT_EQ(shell_code(status), expected);
    EXPECT_EQ(WIFSIGNALED(status), policy == exit_code_policy::reraise);
    EXPECT_EQ(stopped.hear(), 's');
  }
}

TEST(OrderedLifespanProcess, Rule11_ReraiseWithoutRunComesFromTheDestructorAndOnlyAfterACleanStop) {
  for (const bool clean : {true, false}) {
    const int status = in_child([&] {
      auto options = owning();
      options.exit = exit_code_policy::reraise;
      {
        ordered_lifespan life(options);
        life.add("a").stop([&] {
          if (!clean) throw 1;
        });
        CHILD_CHECK(life.start());
        ::raise(SIGTERM);
        CHILD_CHECK(life.wait() == stop_cause::signal);
        CHILD_CHECK(life.stop().exit_code == (clean ? 128 + SIGTERM : 1));
      }
      return 5;
    });
    EXPECT_EQ(WIFSIGNALED(status), clean);
    EXPECT_EQ(shell_code(status), clean ? 128 + SIGTERM : 5);
  }
}

TEST(OrderedLifespanProcess, T18_OnlyTheOutermostLifespanRaisesAgain) {
  channel log;
  const int status = in_child([&] {
    auto options = owning();
    options.exit = exit_code_policy::reraise;
    ordered_lifespan outer(options);
    auto inner_options = quiet();
    inner_options.exit = exit_code_policy::reraise;
    ordered_lifespan inner(inner_options);
    outer.add("pool").stop([&] { log.tell('p'); });
    inner.add("server").stop([&] { log.tell('s'); });
    outer.add_child("inner", inner).after("pool");
    outer.add("last").after("inner").start([] { ::raise(SIGTERM); });
    return outer.run();
  });
  EXPECT_EQ(log.hear(), 's');
  EXPECT_EQ(log.hear(), 'p');
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(shell_code(status), 128 + SIGTERM);
}

TEST(OrderedLifespanProcess, T41_Rule11_AnAbandonedHookEndsTheProcessWith124PastItsStaticDestructors) {
  channel destructors;
  channel out;
  const pid_t child = spawn_child([&]() -> int {
    static channel* telling = &destructors;
    struct teller {
      ~teller() { telling->tell('d'); }
    };
    static teller told;
    ::dup2(out.reader() + 1, STDOUT_FILENO);
    std::printf("f");  // stays in the buffer until somebody flushes it
    ordered_lifespan life(owning());
    life.add("fine").stop([&] { destructors.tell('s'); });
    life.add("stuck").stop([] { std::this_thread::sleep_for(patience); }).budget(lifespan_phase::stop, 50ms);
    life.add("asks").start([] { ::raise(SIGTERM); });
    life.add("waits").start([](const stage_context& context) { context.sleep_or_stop(patience); });
    std::exit(life.run());
  });
  EXPECT_EQ(reap(child), 124);
  EXPECT_EQ(destructors.hear(), 's');
  EXPECT_EQ(destructors.hear(), 0);
  EXPECT_EQ(out.hear(), 'f');
}

TEST(OrderedLifespanProcess, T41_Rule11_SoDoesOneOfAChildThatDidNotStartOrStoppedBeforeItsParent) {
  for (const bool in_start : {true, false}) {
    channel log;
    const int status = in_child([&]() -> int {
      static channel* telling = &log;
      struct teller {
        ~teller() { telling->tell('d'); }
      };
      static teller told;
      const auto stuck = [] { std::this_thread::sleep_for(patience); };
      ordered_lifespan inner(quiet());
      ordered_lifespan outer(owning());
      auto& stage = inner.add("stuck").budget(lifespan_phase::start, 50ms).budget(lifespan_phase::stop, 50ms);
      if (in_start) {
        stage.start(stuck);
      } else {
        stage.stop(stuck);
      }
      outer.add_child("inner", inner);
      outer.add("asks").after("inner").start([&] {
        inner.stop();
        outer.request_stop();
      });
      std::exit(outer.run());
    });
    EXPECT_EQ(shell_code(status), in_start ? 1 : 124);
    EXPECT_EQ(log.hear(), 0);
  }
}

TEST(OrderedLifespanProcess, T41_AHookThatHoldsAStreamDoesNotHoldUpTheExit) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(owning());
              life.add("stuck")
                  .stop([] {
                    ::flockfile(stdout);
                    std::this_thread::sleep_for(2 * patience);
                  })
                  .budget(lifespan_phase::stop, 50ms);
              life.add("asks").start([&] { life.request_stop(); });
              return life.run();
            })),
            124);
}

TEST(OrderedLifespanProcess, Rule11_AnAbandonedStartIsAStartFailure) {
  EXPECT_EQ(
      shell_code(in_child([] {
        ordered_lifespan life(owning());
        life.add("stuck").start([] { std::this_thread::sleep_for(patience); }).budget(lifespan_phase::start, 50ms);
        return life.run();
      })),
      1);
}

TEST(OrderedLifespanProcess, T16_G6_TheThirdSignalEndsTheProcessWhateverItDoes) {
  for (const bool here : {false, true}) {
    channel progress;
    const pid_t child = spawn_child([&] {
      auto options = owning();
      options.escalation_guard = 0ms;
      options.hurried_budget = patience;
      ordered_lifespan life(options);
      auto& stage = life.add("spins").stop([&](const stage_context& context) {
        progress.tell('1');
        while (!context.token.stop_requested()) spin();
        progress.tell('2');
        for (;;) spin();
      });
      if (here) stage.on_controller();
      when_running(life, [&] { progress.tell('u'); });
      return life.run();
    });
    EXPECT_EQ(progress.hear(), 'u');
    ::kill(child, SIGTERM);
    EXPECT_EQ(progress.hear(), '1');
    ::kill(child, SIGTERM);
    EXPECT_EQ(progress.hear(), '2');
    ::kill(child, SIGINT);
    if (thread_sanitizer) {  // the thread that fired the token may be ending, see send_and_await()
      siginfo_t info{};
      while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
        ::kill(child, SIGINT);
        std::this_thread::yield();
      }
    }
    EXPECT_EQ(reap(child), 128 + SIGINT);
  }
}

TEST(OrderedLifespanProcess, Rule8_TheLastRungWorksWithNobodyAttending) {
  channel progress;
  const pid_t child = spawn_child([&] {
    auto options = owning();
    options.escalation_guard = 0ms;
    ordered_lifespan life(options);
    progress.tell('u');
    for (;;) ::pause();
    return 0;
  });
  EXPECT_EQ(progress.hear(), 'u');
  // One after the other, since the kernel merges those that are pending together.
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
    ::kill(child, SIGTERM);
    std::this_thread::yield();
  }
  EXPECT_EQ(reap(child), 128 + SIGTERM);
}

TEST(OrderedLifespanProcess, Rule8_EscalateEndsTheProcessOnItsThirdCall) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(quiet());
              life.escalate();
              life.escalate();
              life.escalate();
              return 0;
            })),
            128 + SIGTERM);
  EXPECT_EQ(shell_code(in_child([] {
              auto options = quiet();
              options.escalation_guard = 0ms;
              ordered_lifespan life(options);
              life.simulate_signal(SIGUSR1, 3);
              return 0;
            })),
            128 + SIGUSR1);
}

TEST(OrderedLifespanProcess, X12_ASecondSignalDuringTheTeardownDoesNotCutItShort) {
  channel log;
  const pid_t child = spawn_child([&] {
    auto options = owning();
    options.escalation_guard = 0ms;
    ordered_lifespan life(options);
    for (char name : {'a', 'b', 'c'}) life.add(std::string(1, name)).stop([&log, name] { log.tell(name); });
    life.add("asks").stop([&] {
      log.tell('k');
      std::this_thread::sleep_for(30ms);  // the parent's second signal comes about here; any moment will do
    });
    when_running(life, [&] { log.tell('u'); });
    return life.run();
  });
  EXPECT_EQ(log.hear(), 'u');
  ::kill(child, SIGTERM);
  EXPECT_EQ(log.hear(), 'k');
  ::kill(child, SIGTERM);
  EXPECT_EQ(log.hear(), 'c');
  EXPECT_EQ(log.hear(), 'b');
  EXPECT_EQ(log.hear(), 'a');
  EXPECT_EQ(reap(child), 0);
}

TEST(OrderedLifespanProcess, X11_ASignalInsideALockOnlyLatches) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(owning());
              std::mutex lock;
              int stopped = 0;
              life.add("provider").stop([&] {
                const std::lock_guard held(lock);
                ++stopped;
              });
              CHILD_CHECK(life.start());
              {
                const std::lock_guard held(lock);
                ::raise(SIGTERM);  // its handler runs right here
                CHILD_CHECK(stopped == 0);
              }
              CHILD_CHECK(life.wait() == stop_cause::signal);
              life.stop();
              return stopped == 1 ? 0 : 1;
            })),
            0);
}

TEST(OrderedLifespanProcess, T28_G8_ASignalAtAnyMomentFromConstructorToExitGivesThePolicysCode) {
  for (int round = 0; round != 60; ++round) {
    channel up;
    const pid_t child = spawn_child([&]() -> int {
      auto options = owning();
      options.escalation_guard = std::chrono::hours(1);
      options.exit = exit_code_policy::conventional_128;
      static std::optional<ordered_lifespan> life;
      life.emplace(options);
      up.tell('u');
      for (int i = 0; i != 4; ++i) life->add(std::to_string(i)).start([] {}).stop([] {});
      const int code = life->run();
      ::_exit(code);  // with the handlers still there, as main's lifespan would be until the very end
    });
    EXPECT_EQ(up.hear(), 'u');
    const auto gone = [&] {
      siginfo_t info{};
      return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
    };
    while (!gone()) {
      ::kill(child, SIGTERM);
      std::this_thread::sleep_for(std::chrono::microseconds(50 * (round % 20)));
    }
    EXPECT_EQ(reap(child), 128 + SIGTERM) << "round " << round;
  }
}

TEST(OrderedLifespanProcess, T29_ASignalAtEachNamedPointIsNotLost) {
  for (const char* point : {"lifespan.state.changed", "wakeup.wait.before_poll", "lifespan.hook.ended",
                            "lifespan.stop.finished", "lifespan.stop.claimed"}) {
    EXPECT_EQ(shell_code(in_child([&] {
                auto options = owning();
                options.escalation_guard = std::chrono::hours(1);
                curfew::basic_ordered_lifespan<park_sync> life(options);
                life.add("a").start([] {}).stop([] {});
                park at(point);
                const pthread_t controller = ::pthread_self();
                std::thread sender([&] {
                  CHILD_CHECK(at.wait_arrived());
                  ::pthread_kill(controller, SIGTERM);
                  at.open();
                });
                const bool later = std::strstr(point, "stop") != nullptr;
                if (life.start()) {
                  if (!later) CHILD_CHECK(life.wait() == stop_cause::signal);
                }
                const auto& report = life.stop();
                sender.join();
                life.stop();
                CHILD_CHECK(later || report.signals.at(SIGTERM) == 1);
                return 0;
              })),
              0)
        << point;
  }
}

TEST(OrderedLifespanProcess, T30_SignalsDoNotOverwriteEachOther) {
  EXPECT_EQ(shell_code(in_child([] {
              auto options = owning();
              int reloads = 0;
              options.on_hangup = [&] { ++reloads; };
              ordered_lifespan life(options);
              CHILD_CHECK(life.start());
              ::raise(SIGTERM);
              ::raise(SIGHUP);
              CHILD_CHECK(life.wait() == stop_cause::signal);
              const auto& report = life.stop();
              CHILD_CHECK(report.signal == SIGTERM && reloads == 0);
              CHILD_CHECK((report.signals == std::map<int, unsigned>{{SIGTERM, 1}, {SIGHUP, 1}}));
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, T32_SighupKeepsItsDefaultUnlessAReloadIsSet) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(owning());
              CHILD_CHECK(!shutdown_owned(SIGHUP));
              ::raise(SIGHUP);
              return 0;
            })),
            128 + SIGHUP);
  EXPECT_EQ(shell_code(in_child([] {
              auto options = owning();
              options.on_hangup = [] {};
              ordered_lifespan life(options);
              CHILD_CHECK(shutdown_owned(SIGHUP));
              ::raise(SIGHUP);
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, T35_TheHandlerKeepsErrno) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(owning());
              const std::uint64_t full = ~std::uint64_t{1};  // as often as it can be rung: the handler's write fails
              CHILD_CHECK(::write(life.native_handle(), &full, sizeof full) == sizeof full);
              errno = ENOTTY;
              ::raise(SIGTERM);
              CHILD_CHECK(errno == ENOTTY);
              CHILD_CHECK(life.wait() == stop_cause::signal);  // and nothing is lost
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, T34_G13_TheHandlerMakesOneSystemCallAndThatIsAWrite) {
  if (::access("/usr/bin/strace", X_OK) != 0) GTEST_SKIP() << "no strace here";
  char trace[] = "/tmp/curfew_strace_XXXXXX";
  const int file = ::mkstemp(trace);
  ASSERT_GE(file, 0);
  ::close(file);
  const auto program = own_path();
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/usr/bin/strace", "strace", "-o", trace, program.c_str(), "--raise-once", nullptr);
    ::_exit(77);
  }
  const int code = reap(child);
  std::ifstream in(trace);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ::unlink(trace);
  const auto begin = text.rfind("--- SIGTERM");
  if (code != 0 || begin == std::string::npos) GTEST_SKIP() << "strace may not trace here, it ended with " << code;
  const auto end = text.find("rt_sigreturn", begin);
  ASSERT_NE(end, std::string::npos);
  const auto inside = text.substr(text.find('\n', begin) + 1, end - text.find('\n', begin) - 1);
  EXPECT_EQ(std::count(inside.begin(), inside.end(), '\n'), 1) << inside;
  EXPECT_EQ(inside.rfind("write(", 0), 0u) << inside;
}

TEST(OrderedLifespanProcess, G3_ARunningLifespanHasNoThreadAndOneDescriptor) {
  const int status = in_child([] {
    const auto entries = [](const char* directory) {
      int count = 0;
      for (const auto& entry : std::filesystem::directory_iterator(directory)) count += entry.path().empty() ? 0 : 1;
      return count;
    };
    std::thread([] {}).join();  // a sanitizer makes one of its own with the first
    const int threads = entries("/proc/self/task");
    const int descriptors = entries("/proc/self/fd");
    auto options = owning();
    options.on_hangup = [] {};
    ordered_lifespan life(options);
    for (int i = 0; i != 8; ++i) life.add(std::to_string(i)).start([] {}).stop([] {}).budget(lifespan_phase::stop, 1s);
    CHILD_CHECK(life.start());
    CHILD_CHECK(eventually([&] { return entries("/proc/self/task") <= threads; }));  // one that was joined may linger
    CHILD_CHECK(entries("/proc/self/fd") == descriptors + 1);
    std::printf("G3: no extra thread, one extra descriptor\n");
    return life.stop().exit_code;
  });
  EXPECT_EQ(shell_code(status), 0);
}

// --- dispositions and masks

void siginfo_handler(int, siginfo_t*, void*) {}

TEST(OrderedLifespanProcess, T25_T26_T27_G10_DispositionsAndMasksAreGivenBackBitForBit) {
  EXPECT_EQ(shell_code(in_child([] {
              struct sigaction before[3]{};
              before[0].sa_sigaction = &siginfo_handler;
              before[0].sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
              sigaddset(&before[0].sa_mask, SIGUSR1);
              sigaddset(&before[0].sa_mask, SIGALRM);
              before[1].sa_handler = SIG_IGN;
              before[2].sa_handler = SIG_DFL;
              for (const auto& action : before) {
                for (const int signo : {SIGTERM, SIGINT, SIGUSR2}) {
                  ::sigaction(signo, &action, nullptr);
                  const auto was = disposition(signo);
                  sigset_t blocked;
                  sigemptyset(&blocked);
                  sigaddset(&blocked, SIGTERM);
                  sigaddset(&blocked, SIGUSR1);
                  ::pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
                  {
                    auto options = owning();
                    options.owned_signals = {SIGTERM, SIGINT, SIGUSR2};
                    ordered_lifespan life(options);
                    life.add("a");
                    const bool ignored = action.sa_handler == SIG_IGN && signo == SIGINT;
                    CHILD_CHECK(same(disposition(signo), was) == ignored);
                    CHILD_CHECK(life.start());
                    sigset_t now;
                    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
                    CHILD_CHECK(sigismember(&now, SIGTERM) == 0 && sigismember(&now, SIGUSR1) == 1);
                    life.stop();
                    CHILD_CHECK(same(disposition(signo), was) == ignored);
                  }
                  CHILD_CHECK(same(disposition(signo), was));
                  sigset_t now;
                  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
                  for (int s = 1; s < 65; ++s) CHILD_CHECK(sigismember(&now, s) == sigismember(&blocked, s));
                  CHILD_CHECK(!shutdown_owned(signo) && std::getenv("CURFEW_SHUTDOWN_OWNER") == nullptr);
                }
              }
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, T26_AnIgnoredInterruptStaysIgnoredAndAnIgnoredTerminateDoesNot) {
  EXPECT_EQ(shell_code(in_child([] {
              ::signal(SIGINT, SIG_IGN);
              ::signal(SIGTERM, SIG_IGN);
              ::signal(SIGHUP, SIG_IGN);
              auto options = owning();
              options.on_hangup = [] {};
              ordered_lifespan life(options);
              CHILD_CHECK(disposition(SIGINT).sa_handler == SIG_IGN && disposition(SIGHUP).sa_handler == SIG_IGN);
              CHILD_CHECK(shutdown_owned(SIGINT) && shutdown_owned(SIGTERM) && shutdown_owned(SIGHUP));
              CHILD_CHECK(life.start());
              ::raise(SIGINT);
              ::raise(SIGTERM);
              CHILD_CHECK(life.wait() == stop_cause::signal);
              const auto& report = life.stop();
              CHILD_CHECK(report.signal == SIGTERM && report.displaced_handlers.empty());
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, T23_ADisplacedHandlerIsReportedWithTheStageThatDidIt) {
  for (const bool later : {false, true}) {
    EXPECT_EQ(shell_code(in_child([&] {
                std::vector<std::string> told;
                {
                  ordered_lifespan life(owning());
                  life.observe([&](const lifespan_event& event) {
                    if (event.kind != lifespan_event_kind::handler_displaced) return;
                    CHILD_CHECK(event.signal == SIGTERM);
                    told.push_back(event.stage);
                  });
                  life.add("innocent").start([] {});
                  life.add("thief").start([&] {
                    if (!later) ::signal(SIGTERM, SIG_IGN);
                  });
                  life.add("other").start([] {});
                  CHILD_CHECK(life.start());
                  if (later) ::signal(SIGTERM, SIG_IGN);
                  const auto& report = life.stop();
                  CHILD_CHECK(report.displaced_handlers.size() == 1 && told.size() == 1);
                  CHILD_CHECK(report.displaced_handlers[0].find("thief") != std::string::npos);
                  CHILD_CHECK(report.displaced_handlers[0].find("SIGTERM") != std::string::npos);
                  CHILD_CHECK(later || told[0] == "thief");
                  CHILD_CHECK(later || report.displaced_handlers[0].find("innocent") == std::string::npos);
                }
                CHILD_CHECK(disposition(SIGTERM).sa_handler == SIG_IGN);  // not ours any more: left alone
                return 0;
              })),
              0);
  }
}

TEST(OrderedLifespanProcess, ASecondOwnerConflictsAlsoOnOtherSignals) {
  EXPECT_EQ(shell_code(in_child([] {
              auto options = owning();
              options.name = "first";
              std::optional<ordered_lifespan> life(options);
              const auto was = disposition(SIGUSR1);
              options.name = "second";
              options.owned_signals = {SIGUSR1};
              try {
                ordered_lifespan second(options);
                return 1;
              } catch (const ownership_conflict& e) {
                CHILD_CHECK(std::strstr(e.what(), "second") != nullptr && std::strstr(e.what(), "SIGUSR1") != nullptr);
              }
              CHILD_CHECK(same(disposition(SIGUSR1), was) && shutdown_owned(SIGTERM) && !shutdown_owned(SIGUSR1));
              try {
                options.owned_signals = {};
                ordered_lifespan child(options);  // owning nothing is no conflict
              } catch (const ownership_conflict&) {
                return 2;
              }
              CHILD_CHECK(shutdown_owned(SIGTERM));
              life.reset();
              options.owned_signals = {SIGUSR1};
              ordered_lifespan third(options);
              CHILD_CHECK(shutdown_owned(SIGUSR1));
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, AnUncatchableSignalIsRefusedAndNothingIsTaken) {
  EXPECT_EQ(shell_code(in_child([] {
              const auto was = disposition(SIGTERM);
              auto options = owning();
              options.owned_signals = {SIGTERM, SIGKILL};
              try {
                ordered_lifespan life(options);
                return 1;
              } catch (const std::invalid_argument& e) {
                CHILD_CHECK(std::strstr(e.what(), "signal 9") != nullptr);
              }
              CHILD_CHECK(same(disposition(SIGTERM), was) && !shutdown_owned(SIGTERM));
              ordered_lifespan next(owning());
              return shutdown_owned(SIGTERM) ? 0 : 2;
            })),
            0);
}

// --- fork and exec

TEST(OrderedLifespanProcess, T36_G11_AnExecutedChildHasACleanMaskAndNoIgnoredSignals) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(owning());
              std::string status;
              life.add("spawns").start([&] {
                int ends[2];
                CHILD_CHECK(::pipe(ends) == 0);
                const pid_t child = ::fork();
                if (child == 0) {
                  ::dup2(ends[1], STDOUT_FILENO);
                  ::execl("/bin/grep", "grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status", nullptr);
                  ::_exit(1);
                }
                ::close(ends[1]);
                char text[256];
                for (ssize_t got = 0; (got = ::read(ends[0], text, sizeof text)) > 0;) {
                  status.append(text, static_cast<std::size_t>(got));
                }
                CHILD_CHECK(reap(child) == 0);
              });
              CHILD_CHECK(life.start());
              std::fprintf(stderr, "%s", status.c_str());
              CHILD_CHECK(status.find("SigBlk:\t0000000000000000") != std::string::npos);
              CHILD_CHECK(status.find("SigIgn:\t0000000000000000") != std::string::npos);
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, Rule15_T37_ASignalToAForkedChildIsItsOwnAffair) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(owning());
              life.add("a").start([] {});
              CHILD_CHECK(life.start());
              const pid_t child = ::fork();
              if (child == 0) {
                for (;;) ::pause();
              }
              ::kill(child, SIGTERM);
              CHILD_CHECK(reap(child) == 128 + SIGTERM);
              CHILD_CHECK(life.ready());
              pollfd entry{life.native_handle(), POLLIN, 0};
              life.poll_signals();
              CHILD_CHECK(::poll(&entry, 1, 0) == 0);
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, AHandlerThatFindsItsOwnerGoneAndTheNextOneThereLeavesTheSignalToThatOne) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life(owning());  // the next one; the handler has looked for an owner just before
              curfew::detail::step_aside(SIGTERM, &curfew::detail::on_owned_signal<curfew::std_sync>);
              CHILD_CHECK(life.wait() == stop_cause::signal);
              CHILD_CHECK(life.stop().signal == SIGTERM);
              return 0;
            })),
            0);
}

TEST(OrderedLifespanProcess, Rule15_AForkedChildIsInert) {
  EXPECT_EQ(shell_code(in_child([] {
              channel log;
              auto life = std::make_unique<ordered_lifespan>(owning());
              life->add("a").stop([&] { log.tell('x'); });
              CHILD_CHECK(life->start());
              const int status = in_child([&] {
                CHILD_CHECK(!shutdown_owned(SIGTERM));
                CHILD_CHECK(!life->request_stop() && !life->escalate() && !life->start());
                life->simulate_signal(SIGTERM);
                life->poll_signals();
                life->stop();
                CHILD_CHECK(!life->reset());
                life.reset();
                CHILD_CHECK(disposition(SIGTERM).sa_handler != SIG_DFL);  // releases nothing
                ordered_lifespan own(owning());                           // but may own its own
                CHILD_CHECK(shutdown_owned(SIGTERM));
                CHILD_CHECK(own.start());
                ::raise(SIGTERM);
                CHILD_CHECK(own.wait() == stop_cause::signal);
                return own.stop().exit_code;
              });
              CHILD_CHECK(shell_code(status) == 0);
              CHILD_CHECK(shutdown_owned(SIGTERM) && life->ready());
              life.reset();
              CHILD_CHECK(log.hear() == 'x' && log.hear() == 0);
              return 0;
            })),
            0);
}

/// Threads of this process other than the caller that are not asleep in the kernel.
int threads_awake() {
  int awake = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (entry.path().filename() == std::to_string(::getpid()) || !std::getline(file, text)) continue;
    if (text.compare(text.rfind(')') + 1, 2, " S") != 0) ++awake;
  }
  return awake;
}

TEST(OrderedLifespanProcess, Rule15_AForkedChildMayDestroyAndExitWhatThreadsOfItsParentWaitOn) {
  for (const bool exits : {false, true}) {
    EXPECT_EQ(shell_code(in_child([&] {
                static std::optional<ordered_lifespan> life;  // an exit destroys it
                life.emplace(owning());
                life->add("a").stop([] {});
                CHILD_CHECK(life->start());
                std::atomic<int> waiting{0};
                std::vector<std::thread> waiters;
                for (int i = 0; i != 4; ++i) {  // one at the bell, the others at a condition variable
                  waiters.emplace_back([&] {
                    ++waiting;
                    life->wait();
                  });
                }
                // Asleep, so that no allocator's lock is held when it forks.
                CHILD_CHECK(eventually([&] { return waiting == 4 && threads_awake() == 0; }));
                const int code = shell_code(in_child([&]() -> int {
                  ::alarm(10);
                  if (exits) std::exit(7);
                  life.reset();
                  return 7;
                }));
                life->request_stop();
                for (auto& one : waiters) one.join();
                life.reset();
                return code;
              })),
              7);
  }
}

TEST(OrderedLifespanProcess, T21_ExitInsideAHookDoesNotDeadlock) {
  channel log;
  const int status = in_child([&] {
    ordered_lifespan life(owning());
    life.add("a").stop([&] { log.tell('a'); });
    life.add("leaves").start([] { std::exit(9); });
    return life.run();
  });
  EXPECT_EQ(shell_code(status), 9);
}

TEST(OrderedLifespanProcess, Rule13_DestructionByAHookTerminatesWithTheStagesName) {
  channel out;
  const int status = in_child([&] {
    ::dup2(out.reader() + 1, STDERR_FILENO);
    auto* life = new ordered_lifespan(quiet());
    life->add("suicidal").start([&] { delete life; });
    life->start();
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  std::string text;
  while (const char c = out.hear()) text += c;
  EXPECT_NE(text.find("suicidal"), std::string::npos) << text;
}

TEST(OrderedLifespanProcess, T47_ProcessOneLeavesToo) {
  const auto program = own_path();
  const int status = in_child([&] {
    ::execlp("unshare", "unshare", "-rpf", "--kill-child", program.c_str(), "--reraise", nullptr);
    return 77;
  });
  const int direct = shell_code(in_child([&] {
    ::execl(program.c_str(), "self", "--reraise", nullptr);
    return 77;
  }));
  EXPECT_EQ(direct, 128 + SIGTERM);
  if (shell_code(status) == 77 || shell_code(status) == 1) GTEST_SKIP() << "no process namespaces here";
  EXPECT_EQ(shell_code(status), 128 + SIGTERM);
}

TEST(OrderedLifespanProcess, BlockedSignalsAreUnblockedWhereSomebodyWaits) {
  EXPECT_EQ(shell_code(in_child([] {
              sigset_t all;
              sigfillset(&all);
              ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
              ordered_lifespan life(owning());
              ::kill(::getpid(), SIGTERM);
              life.add("a").start([] { return; });
              CHILD_CHECK(!life.start());
              return life.report().signal == SIGTERM ? 0 : 1;
            })),
            0);
}

// --- what cannot be had

TEST(OrderedLifespanProcess, WithoutADescriptorTheConstructorThrowsAndTakesNothing) {
  EXPECT_EQ(shell_code(in_child([] {
              const auto was = disposition(SIGTERM);
              // A sanitizer looks at types through descriptors, the first time it meets them.
              { ordered_lifespan warm(owning()); }
              CHILD_CHECK(std::system_error(EMFILE, std::generic_category()).code().message() != "");
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              const auto full = limit;
              limit.rlim_cur = 3;
              ::setrlimit(RLIMIT_NOFILE, &limit);
              try {
                ordered_lifespan life(owning());
                return 1;
              } catch (const std::system_error& e) {
                ::setrlimit(RLIMIT_NOFILE, &full);
                CHILD_CHECK(e.code().value() == EMFILE);
              }
              CHILD_CHECK(same(disposition(SIGTERM), was) && !shutdown_owned(SIGTERM));
              ordered_lifespan life(owning());
              return shutdown_owned(SIGTERM) ? 0 : 2;
            })),
            0);
}

#ifndef CURFEW_TEST_CANNOT_STARVE
/// One whole life in which the n-th allocation after a chosen moment fails. 0: it held what it promises.
int starved_life(long nth, bool from_there_on, int moment) {
  const auto was = disposition(SIGTERM);
  std::atomic<unsigned> started{0};
  std::atomic<unsigned> stopped{0};
  curfew::admission_fence fence("f");
  starvation::for_ever = from_there_on;
  const auto arm = [&](int now) {
    if (now == moment) starvation::left = nth;
  };
  try {
    auto options = owning();
    options.name = "a name that is too long for the small string optimisation";
    arm(0);
    ordered_lifespan life(std::move(options));
    arm(1);
    life.observe([](const lifespan_event&) {});
    for (unsigned i = 0; i != 3; ++i) {
      auto& stage = life.add("a stage with a rather long name, number " + std::to_string(i));
      stage.start([&started, i] { started |= 1u << i; }).stop([&stopped, i] { stopped |= 1u << i; });
      if (i == 1) stage.fence(fence);
    }
    arm(2);
    const bool up = life.start();
    arm(3);
    if (up) {
      ::raise(SIGTERM);
      if (life.wait() != stop_cause::signal) return 10;
    }
    arm(4);
    life.stop();
    starvation::left = -1;
    if (life.state() != lifespan_state::stopped) return 11;
    if (up && started.load() != 7) return 12;
    if (started.load() != stopped.load()) return 13;
  } catch (const std::bad_alloc&) {
    starvation::left = -1;
    if (started.load() != stopped.load()) return 14;
  } catch (const std::system_error&) {
    starvation::left = -1;
    return 15;
  }
  starvation::left = -1;
  if (!same(disposition(SIGTERM), was) || shutdown_owned(SIGTERM)) return 16;
  return starvation::happened.exchange(false) ? 0 : 100;
}

TEST(OrderedLifespanProcess, MemoryMayRunOutAtAnyAllocation) {
  for (const bool for_ever : {false, true}) {
    for (int moment = 0; moment != 5; ++moment) {
      const int code = shell_code(in_child([&] {
        for (long nth = 0; nth != 400; ++nth) {
          const int result = starved_life(nth, for_ever, moment);
          if (result == 100) return nth >= (moment == 3 ? 0 : 1) ? 0 : 101;  // no n-th allocation: all were tried
          if (result != 0) {
            std::fprintf(stderr, "moment %d, allocation %ld: %d\n", moment, nth, result);
            return result;
          }
        }
        return 102;
      }));
      EXPECT_EQ(code, 0) << "moment " << moment << (for_ever ? ", for ever" : ", once");
    }
  }
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--raise-once") == 0) {
    ordered_lifespan life(owning());
    ::raise(SIGTERM);
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--reraise") == 0) {
    auto options = owning();
    options.exit = exit_code_policy::reraise;
    ::poll(nullptr, 0, 0);  // ThreadSanitizer may lose a signal to a thread that blocks for the first time
    ordered_lifespan life(options);
    life.add("asks").start(send_and_await(SIGTERM));
    return life.run();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
