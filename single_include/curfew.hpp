// curfew 0.1.0, as one file. Generated from include/curfew by cmake/amalgamate.cmake: edit there, not here.
//
// MIT License
//
// Copyright (c) 2026 the curfew authors
//
// Permission is hereby granted, free of charge, to any person obtaining a copy
// of this software and associated documentation files (the "Software"), to deal
// in the Software without restriction, including without limitation the rights
// to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
// copies of the Software, and to permit persons to whom the Software is
// furnished to do so, subject to the following conditions:
//
// The above copyright notice and this permission notice shall be included in all
// copies or substantial portions of the Software.
//
// THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
// IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
// FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
// AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
// LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
// OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
// SOFTWARE.

// clang-format off
// ---- begin curfew/curfew.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The whole kit in one include. Costs the compile time of all of it: include the one header you need where that
/// counts.

#ifndef CURFEW_HPP
#define CURFEW_HPP

// ---- begin curfew/version.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The version of the kit, and the only place that says it: CMake and the package files read it from here.

#ifndef CURFEW_VERSION_HPP
#define CURFEW_VERSION_HPP

#define CURFEW_VERSION_MAJOR 0
#define CURFEW_VERSION_MINOR 1
#define CURFEW_VERSION_PATCH 0

#endif  // CURFEW_VERSION_HPP

// Outside the guard, so that it is seen each time. Two copies of the kit (a module header and the single header, say)
// may meet in one translation unit, but only as the same version: the guards would drop half of the second in silence.
#if CURFEW_VERSION_MAJOR != 0 || CURFEW_VERSION_MINOR != 1 || CURFEW_VERSION_PATCH != 0
#error "curfew: two different versions of the kit meet in one translation unit"
#endif
// ---- end curfew/version.hpp

// ---- begin curfew/admission_fence.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `admission_fence` answers two questions about a piece of work that many threads may be doing: may I still come in,
/// and is everybody out? Entering is one atomic verdict, closing refuses all who come later, draining waits for those
/// who came before. `compact_admission_fence` is the same in 16 bytes, `traced_admission_fence` the same with a list of
/// who is inside. Protocols: docs/design/admission_fence.md.

#ifndef CURFEW_ADMISSION_FENCE_HPP
#define CURFEW_ADMISSION_FENCE_HPP

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

// ---- begin curfew/detail/compact_core.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The fence protocol in one word, for one fence per object and millions of objects. Threads that enter share that
/// word's cache line. The lot is touched only when somebody waits.

#ifndef CURFEW_DETAIL_COMPACT_CORE_HPP
#define CURFEW_DETAIL_COMPACT_CORE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

// ---- begin curfew/detail/config.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Feature probes, the ABI namespace and the one way out for misuse that cannot be reported. Standard headers only.

#ifndef CURFEW_DETAIL_CONFIG_HPP
#define CURFEW_DETAIL_CONFIG_HPP

#include <cstddef>
#include <cstdio>
#include <exception>

// curfew/version.hpp: above

#if defined(__cplusplus) && __cplusplus < 202002L && (!defined(_MSVC_LANG) || _MSVC_LANG < 202002L)
#error "curfew needs C++20: compile with -std=c++20 or later"
#endif

#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define CURFEW_EXCEPTIONS 1
#else
#define CURFEW_EXCEPTIONS 0
#endif

// The inline namespace is an ABI epoch: bumped when a layout or a protocol changes, and not otherwise, so that two
// objects of one program that were built against different epochs do not merge each other's inline functions. Nor may
// those that throw be merged with those that terminate instead, so code without exceptions has a name of its own.
#if CURFEW_EXCEPTIONS
#define CURFEW_ABI abi1
#else
#define CURFEW_ABI abi1_no_exceptions
#endif
#define CURFEW_BEGIN_NAMESPACE \
  namespace curfew {           \
  inline namespace CURFEW_ABI {
#define CURFEW_END_NAMESPACE \
  }                          \
  }

// Process-wide state carries default visibility, so that shared objects built with -fvisibility=hidden still share it.
#if defined(__GNUC__) || defined(__clang__)
#define CURFEW_VISIBLE __attribute__((visibility("default")))
#define CURFEW_NOINLINE __attribute__((noinline))
#define CURFEW_ALWAYS_INLINE __attribute__((always_inline)) inline
#define CURFEW_COLD __attribute__((cold, noinline))
#else
#define CURFEW_VISIBLE
#define CURFEW_NOINLINE
#define CURFEW_ALWAYS_INLINE inline
#define CURFEW_COLD
#endif

// For clang's -Wthread-safety: that the caller must not hold the lock. Has no effect on locks that are not annotated.
#if defined(__clang__)
#define CURFEW_EXCLUDES(...) __attribute__((locks_excluded(__VA_ARGS__)))
#else
#define CURFEW_EXCLUDES(...)
#endif

#if defined(__unix__) || defined(__APPLE__)
#define CURFEW_POSIX 1
#else
#define CURFEW_POSIX 0
#endif

// What returns a type of the kit, and variables of one, do not say so in their symbols; here they do, so that a unit
// without exceptions is not linked to those of a unit with them. Said once, where the namespace is first opened.
#if !CURFEW_EXCEPTIONS && (defined(__GNUC__) || defined(__clang__)) && !defined(_MSC_VER)
namespace curfew {
inline namespace CURFEW_ABI __attribute__((abi_tag("curfew_no_exceptions"))) {}
}  // namespace curfew
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Bytes between two objects that different cores write. Fixed rather than taken from the compiler, because it is part
/// of the layout and std::hardware_destructive_interference_size may change with a tuning flag.
#if defined(__APPLE__) && defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// Ends the process after a precondition was broken in a way that would corrupt memory if the program went on.
/// Prints `curfew: <what> <name>` to stderr first; \p name may be empty.
[[noreturn]] CURFEW_COLD inline void fail(const char* what, const char* name = "") noexcept {
  std::fprintf(stderr, "curfew: %s%s%s\n", what, *name != '\0' ? " " : "", name);
  std::terminate();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_CONFIG_HPP
// ---- end curfew/detail/config.hpp

// ---- begin curfew/detail/drain.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the fence kinds share about being drained: the result of a wait, the hook, and the critical section in which
/// waits are ended. The protocols themselves are in striped_core.hpp and compact_core.hpp.

#ifndef CURFEW_DETAIL_DRAIN_HPP
#define CURFEW_DETAIL_DRAIN_HPP

#include <cstdint>
#include <cstdio>
#include <exception>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/lot.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The waiting place. A fixed table of buckets, hashed by address, each one a mutex, a condition variable and a list of
/// nodes. Nodes live in the waiter's stack frame or in the waiter's own object, so waiting allocates nothing; the table
/// lives as long as the process, so that whoever ends a wait never touches the memory of the object that was waited
/// for, and can notify after it has unlocked.

#ifndef CURFEW_DETAIL_LOT_HPP
#define CURFEW_DETAIL_LOT_HPP

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <ratio>
#include <type_traits>
#include <utility>

// ---- begin curfew/detail/cancel_shield.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Keeps pthread_cancel out of a wait. A cancelled condition wait unwinds, and the waits of the kit are in functions
/// that promise not to throw; the request stays pending and is acted on at the caller's next cancellation point.

#ifndef CURFEW_DETAIL_CANCEL_SHIELD_HPP
#define CURFEW_DETAIL_CANCEL_SHIELD_HPP

// curfew/detail/config.hpp: above

#if CURFEW_POSIX
#include <pthread.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

class cancel_shield {
 public:
#if CURFEW_POSIX && defined(PTHREAD_CANCEL_DISABLE)
  cancel_shield() noexcept {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~cancel_shield() {
    pthread_setcancelstate(before_, nullptr);
  }
#else
  cancel_shield() noexcept {}
  ~cancel_shield() {}
#endif
  cancel_shield(const cancel_shield&) = delete;
  cancel_shield& operator=(const cancel_shield&) = delete;

 private:
  [[maybe_unused]] int before_ = 0;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_CANCEL_SHIELD_HPP
// ---- end curfew/detail/cancel_shield.hpp

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/process_id.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The number of this process, by which what a fork has copied is told from what is one's own.

#ifndef CURFEW_DETAIL_PROCESS_ID_HPP
#define CURFEW_DETAIL_PROCESS_ID_HPP

// curfew/detail/config.hpp: above

#if CURFEW_POSIX
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Not cached: a cached number would need a hook at fork, and would be wrong in a child made past that hook.
inline long process_id() noexcept {
#if CURFEW_POSIX
  return static_cast<long>(::getpid());
#else
  return 0;  // no fork, so one number for ever is right
#endif
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_PROCESS_ID_HPP
// ---- end curfew/detail/process_id.hpp

// ---- begin curfew/detail/sync.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The seam: the only header that names std::atomic, std::mutex, threads and clocks. Every primitive takes them from a
/// policy, its last and defaulted template parameter, so that the same code also runs under seeded delays, under named
/// park points in the tests, and under a model checker. Users never spell the policy.

#ifndef CURFEW_DETAIL_SYNC_HPP
#define CURFEW_DETAIL_SYNC_HPP

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/rseq.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Restartable sequences of Linux on x86-64: a few instructions that either all run on one CPU without interruption or
/// are started over by the kernel. This header is the machine part: the one sequence that the kit needs, the system
/// call that restarts every sequence of the process, and what can be done when that is refused. It keeps no state; the
/// policy (detail/sync.hpp) decides once whether a process may use it.

#ifndef CURFEW_DETAIL_RSEQ_HPP
#define CURFEW_DETAIL_RSEQ_HPP

#include <cstddef>
#include <cstdint>

// curfew/detail/config.hpp: above

// Whether this compiler can write the sequence at all, and whether this translation unit may choose it. Sanitizers do
// not see what it does. A unit that may not choose it still works with one that does: it uses the shared words, and
// close() restarts the sequences of the others.
#if defined(__linux__) && defined(__x86_64__) && defined(__LP64__) && defined(__GNUC__)
#if __has_include(<sys/rseq.h>)
#define CURFEW_HAS_RSEQ 1
#endif
#endif
#ifndef CURFEW_HAS_RSEQ
#define CURFEW_HAS_RSEQ 0
#endif
#if !CURFEW_HAS_RSEQ || defined(CURFEW_FORCE_PORTABLE) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CURFEW_MAY_USE_RSEQ 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define CURFEW_MAY_USE_RSEQ 0
#else
#define CURFEW_MAY_USE_RSEQ 1
#endif
#else
#define CURFEW_MAY_USE_RSEQ 1
#endif

#include <cerrno>
#include <cstdlib>
#include <cstring>

#if defined(__linux__) && CURFEW_HAS_RSEQ
#include <sys/auxv.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

#if CURFEW_HAS_RSEQ

/// Fields of struct rseq. They are ABI of the kernel; a libc's header may be older and lack the last.
inline constexpr int rseq_cpu_id = 4;  // below zero in a thread that is not registered
inline constexpr int rseq_cs = 8;
inline constexpr int rseq_mm_cid = 24;

/// The sequence: if the gate is above this CPU's number, add Delta to `local` of the lane with that number.
/// False, and nothing added, if it is not, if the thread is not registered, or if the sequence was interrupted.
///
/// The addition is one instruction and the last access to \p cells. An interrupted sequence is not tried again: there
/// is always another way to count, so the call takes a bounded number of steps, and a debugger that steps through it,
/// and thereby interrupts it every time, gets out. Afterwards `rseq_cs` is cleared, because what it points to is
/// unloaded with the shared object whose code this is.
///
/// The sections are those in which debuggers look for sequences to step over. They are in the group (`?`) of the
/// function's own section, so that the linker drops both or none.
///
/// \p index is where the thread's CPU is numbered, from the thread pointer. `struct rseq` itself is where libc says: a
/// constant of the process, which is loaded in good time, and once for a whole loop. Kept in an object it would be
/// known only after that, and what follows waits for the address of the first store.
template <int Delta, class Cells>
CURFEW_ALWAYS_INLINE bool rseq_add(Cells& cells, std::int64_t index) noexcept {
  static_assert(sizeof(cells.lanes[0]) == 64 && sizeof(cells.gate) == 4 && sizeof(cells.lanes[0].local) == 8);
  const std::int64_t area = __rseq_offset;
  constexpr std::size_t gate = offsetof(Cells, gate);
  constexpr std::size_t local = offsetof(Cells, lanes) + offsetof(typename Cells::lane, local);
  // Armed by the store to rseq_cs. From 1 to 2 is the sequence; its last instruction commits. At 4, behind the
  // signature that the kernel demands there (an instruction that traps), an interrupted one goes on. The first test
  // turns away threads that are not registered, whose other fields mean nothing, the second those who find the gate
  // shut or have no lane. The address is computed first because a store is forwarded to the next load faster when there
  // is no index register in it.
  asm inline volatile goto(
      ".pushsection __rseq_cs, \"aw?\"\n\t"
      ".balign 32\n"
      "3:\n\t"
      ".long 0, 0\n\t"
      ".quad 1f, 2f - 1f, 4f\n\t"
      ".popsection\n\t"
      ".pushsection __rseq_cs_ptr_array, \"aw?\"\n\t"
      ".quad 3b\n\t"
      ".popsection\n\t"
      ".pushsection __rseq_exit_point_array, \"aw?\"\n\t"
      ".quad 1f, %l[elsewhere]\n\t"
      ".popsection\n\t"
      ".pushsection __rseq_failure, \"ax?\"\n\t"
      ".byte 0x0f, 0xb9, 0x3d\n\t"
      ".long %c[signature]\n"
      "4:\n\t"
      "jmp %l[elsewhere]\n\t"
      ".popsection\n\t"
      "leaq 3b(%%rip), %%rax\n\t"
      "movq %%rax, %%fs:%c[cs](%[area])\n"
      "1:\n\t"
      "cmpl $0, %%fs:%c[cpu](%[area])\n\t"
      "js %l[elsewhere]\n\t"
      "movl %%fs:(%[index]), %%ecx\n\t"
      "cmpl %%ecx, %c[gate](%[cells])\n\t"
      "jle %l[elsewhere]\n\t"
      "shll $6, %%ecx\n\t"
      "addq %[cells], %%rcx\n\t"
      "addq %[delta], %c[local](%%rcx)\n"
      "2:\n\t"
      "movq $0, %%fs:%c[cs](%[area])"
      :
      : [cells] "r"(&cells), [area] "r"(area), [index] "r"(index), [gate] "i"(gate), [local] "i"(local),
        [cpu] "i"(rseq_cpu_id), [cs] "i"(rseq_cs), [delta] "i"(Delta), [signature] "i"(RSEQ_SIG)
      : "rax", "rcx", "cc", "memory"
      : elsewhere);
  return true;
elsewhere:
  asm inline volatile("movq $0, %%fs:%c[cs](%[area])" : : [area] "r"(area), [cs] "i"(rseq_cs) : "memory");
  return false;
}

inline long membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0);
}

inline constexpr int membarrier_query = 0;
inline constexpr int membarrier_rseq = 1 << 7;  // expedited, this process only, restarts sequences
inline constexpr int membarrier_register_rseq = 1 << 8;

/// Leaves errno alone: the first entry of a program may be in a signal handler.
class errno_saver {
 public:
  errno_saver() noexcept = default;
  errno_saver(const errno_saver&) = delete;
  errno_saver& operator=(const errno_saver&) = delete;
  ~errno_saver() { errno = saved_; }

 private:
  int saved_ = errno;
};

/// Where this process numbers the CPU of a thread, from its thread pointer; zero when sequences are not to be used.
/// Costs a few system calls. CURFEW_FENCE_BACKEND=portable says no; =cpu_id numbers CPUs as
/// the machine does even where the kernel offers dense numbers (mm_cid: below the number of threads and of CPUs that
/// the process may use, so that few lanes suffice on a large machine).
inline std::int64_t rseq_probe() noexcept {
  const errno_saver saved;
  const char* wanted = std::getenv("CURFEW_FENCE_BACKEND");
  if (wanted == nullptr) wanted = "";
  if (std::strcmp(wanted, "portable") == 0) return 0;
  if (__rseq_size == 0) return 0;  // libc has not registered its threads, by a tunable or because it could not
  constexpr long needed = membarrier_rseq | membarrier_register_rseq;
  const long offered = membarrier(membarrier_query);
  if (offered < 0 || (offered & needed) != needed) return 0;
  if (membarrier(membarrier_register_rseq) != 0) return 0;
  constexpr unsigned long at_rseq_feature_size = 27;
  const bool dense = ::getauxval(at_rseq_feature_size) >= rseq_mm_cid + sizeof(std::uint32_t);
  return __rseq_offset + (dense && std::strcmp(wanted, "cpu_id") != 0 ? rseq_mm_cid : rseq_cpu_id);
}

/// Every sequence that any thread of the process had begun has committed, visibly to the caller, or will start over and
/// see what the caller had stored before. False when the kernel refuses, which a filter of system calls can make it do
/// at any time.
inline bool rseq_restart_all() noexcept {
  const errno_saver saved;
  if (membarrier(membarrier_rseq) == 0) return true;
  return errno == EPERM && membarrier(membarrier_register_rseq) == 0 && membarrier(membarrier_rseq) == 0;
}

/// The same by brute force: runs on each CPU in turn, which interrupts whatever ran there. CPUs that the caller must
/// not use are left out: they must be closed to the other threads of the process as well. False when the kernel
/// refuses.
inline bool rseq_visit_all_cpus() noexcept {
  const errno_saver saved;
  constexpr std::size_t words = 128;
  constexpr std::size_t bits = 8 * sizeof(unsigned long);
  unsigned long before[words] = {};
  const long size = ::syscall(SYS_sched_getaffinity, 0, sizeof before, before);
  if (size <= 0) return false;
  bool all = true;
  for (std::size_t cpu = 0; all && cpu < 8 * static_cast<std::size_t>(size); ++cpu) {
    unsigned long only[words] = {};
    only[cpu / bits] = 1ul << cpu % bits;
    // The call returns on that CPU.
    all = ::syscall(SYS_sched_setaffinity, 0, size, only) == 0 || errno == EINVAL;
  }
  return ::syscall(SYS_sched_setaffinity, 0, size, before) == 0 && all;
}

#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_RSEQ_HPP
// ---- end curfew/detail/rseq.hpp

// ---- begin curfew/detail/sync_windows.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A mutex and a condition variable that are constant-initialised and need no destructor, which those of the standard
/// libraries on Windows are not: the kit's process-wide tables must exist before every static constructor and after
/// every static destructor. Empty elsewhere.

#ifndef CURFEW_DETAIL_SYNC_WINDOWS_HPP
#define CURFEW_DETAIL_SYNC_WINDOWS_HPP

#include <chrono>
#include <condition_variable>
#include <mutex>

// curfew/detail/config.hpp: above

#if defined(_WIN32)

// What windows.h declares, without its macros. The tags are those of its types, so that both may be seen.
struct _RTL_SRWLOCK;
struct _RTL_CONDITION_VARIABLE;
extern "C" {
__declspec(dllimport) void __stdcall AcquireSRWLockExclusive(_RTL_SRWLOCK*);
__declspec(dllimport) void __stdcall ReleaseSRWLockExclusive(_RTL_SRWLOCK*);
__declspec(dllimport) unsigned char __stdcall TryAcquireSRWLockExclusive(_RTL_SRWLOCK*);
__declspec(dllimport) int __stdcall SleepConditionVariableSRW(_RTL_CONDITION_VARIABLE*, _RTL_SRWLOCK*, unsigned long,
                                                              unsigned long);
__declspec(dllimport) void __stdcall WakeConditionVariable(_RTL_CONDITION_VARIABLE*);
__declspec(dllimport) void __stdcall WakeAllConditionVariable(_RTL_CONDITION_VARIABLE*);
}

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A slim lock: one pointer, zero when free.
class slim_mutex {
 public:
  constexpr slim_mutex() noexcept = default;
  slim_mutex(const slim_mutex&) = delete;
  slim_mutex& operator=(const slim_mutex&) = delete;

  void lock() noexcept { ::AcquireSRWLockExclusive(handle()); }
  bool try_lock() noexcept { return ::TryAcquireSRWLockExclusive(handle()) != 0; }
  void unlock() noexcept { ::ReleaseSRWLockExclusive(handle()); }
  _RTL_SRWLOCK* handle() noexcept { return reinterpret_cast<_RTL_SRWLOCK*>(&word_); }

 private:
  void* word_ = nullptr;
};

class slim_condition_variable {
 public:
  constexpr slim_condition_variable() noexcept = default;
  slim_condition_variable(const slim_condition_variable&) = delete;
  slim_condition_variable& operator=(const slim_condition_variable&) = delete;

  void notify_one() noexcept { ::WakeConditionVariable(handle()); }
  void notify_all() noexcept { ::WakeAllConditionVariable(handle()); }

  void wait(std::unique_lock<slim_mutex>& lock) noexcept { sleep(lock, forever); }
  template <class Condition>
  void wait(std::unique_lock<slim_mutex>& lock, Condition condition) {
    while (!condition()) wait(lock);
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(std::unique_lock<slim_mutex>& lock, std::chrono::time_point<Clock, Duration> deadline) {
    const auto left = deadline - Clock::now();
    if (left <= left.zero()) return std::cv_status::timeout;
    const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    sleep(lock, whole < longest ? static_cast<unsigned long>(whole) : longest);
    return Clock::now() >= deadline ? std::cv_status::timeout : std::cv_status::no_timeout;
  }
  template <class Clock, class Duration, class Condition>
  bool wait_until(std::unique_lock<slim_mutex>& lock, std::chrono::time_point<Clock, Duration> deadline,
                  Condition condition) {
    while (!condition()) {
      if (wait_until(lock, deadline) == std::cv_status::timeout) return condition();
    }
    return true;
  }

 private:
  static constexpr unsigned long forever = 0xFFFF'FFFF;
  static constexpr unsigned long longest = 0x7FFF'FFFF;  // then it looks again

  void sleep(std::unique_lock<slim_mutex>& lock, unsigned long milliseconds) noexcept {
    ::SleepConditionVariableSRW(handle(), lock.mutex()->handle(), milliseconds, 0);
  }
  _RTL_CONDITION_VARIABLE* handle() noexcept { return reinterpret_cast<_RTL_CONDITION_VARIABLE*>(&word_); }

  void* word_ = nullptr;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif

#endif  // CURFEW_DETAIL_SYNC_WINDOWS_HPP
// ---- end curfew/detail/sync_windows.hpp

CURFEW_BEGIN_NAMESPACE

/// The policy of production code: aliases of the standard library, nothing added.
///
/// A policy of one's own derives from this one and hides what it changes. What each member must do:
/// - `atomic`, `mutex`, `condition_variable`, `thread`: the standard meaning.
/// - `lasting_condition_variable`: constant-initialised and never destroyed. To be notified only after
///   somebody has waited on it; a policy that hides `mutex` hides this one too.
/// - `plain<T>`: data that is not atomic and that the protocol itself must protect; a checker may watch it for races.
/// - `clock`: monotonic. `self()`: names the calling thread. `yield()`, `pause()`: give way, as a hint only.
/// - `sleep_for(d)`: at least that long. `name_thread(name)`: names the calling thread for debuggers, as a hint only.
/// - `stripe()`: a small number that stays the same for the life of the calling thread and differs between threads as
///   far as possible. Spreads contention; correctness never depends on it.
/// - `local<Tag, T>()`: one zero-initialised T per thread and Tag; T is trivially destructible, so that it can be
///   reached from the destructors of other thread_local objects. No dynamic initialiser runs on any access.
/// - `at_thread_exit(fn, arg)`: calls fn(arg) when the calling thread ends, after the destructors of those of its
///   thread_local objects that were made later. At most one per thread.
/// - `number_of(address)`: spreads objects over a table. Here the address; a checker whose runs must be alike gives
///   each object a number of its own instead.
/// - `restartable<Cells>()`: not zero where threads of this process may call the next two on a detail::cpu_cells of
///   this policy: what its `index` has to be then. May be asked again at any time, from any thread, also in a signal
///   handler.
/// - `add_on_cpu<Delta>(cells)`: one restartable sequence that adds to the cell of this CPU unless the gate is shut
/// (see
///   detail::cpu_cells). False when nothing was added, be it shut or not: there must always be another way. What the
///   calling thread did before is visible to whoever sees the addition.
/// - `restart_all()`: every sequence begun before has either committed, visibly to the caller with all that preceded
/// it,
///   or starts over and sees what the caller did before.
/// - `here(tag)`: a named point inside a protocol. Does nothing here; tests park threads there.
struct CURFEW_VISIBLE std_sync {
  template <class T>
  using atomic = std::atomic<T>;
  template <class T>
  using plain = T;
#if defined(_WIN32)
  using mutex = detail::slim_mutex;
  using condition_variable = detail::slim_condition_variable;
#else
  using mutex = std::mutex;
  using condition_variable = std::condition_variable;
#endif
  class lasting_condition_variable;
  using thread = std::thread;
  using thread_id = std::thread::id;
  using clock = std::chrono::steady_clock;

  static thread_id self() noexcept {
    return std::this_thread::get_id();
  }
  static void yield() noexcept {
    std::this_thread::yield();
  }
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static void sleep_for(std::chrono::nanoseconds d) {
    std::this_thread::sleep_for(d);
  }
  static void name_thread([[maybe_unused]] const char* name) noexcept {
#if defined(__linux__)
    char cut[16] = {};  // what the kernel keeps of it
    for (std::size_t i = 0; i + 1 < sizeof cut && name[i] != '\0'; ++i) cut[i] = name[i];
    static_cast<void>(pthread_setname_np(pthread_self(), cut));
#endif
  }

  static unsigned stripe() noexcept {
    const unsigned mine = stripe_;
    return mine != 0 ? mine : assign_stripe();
  }

  template <class Tag, class T>
  static T& local() noexcept {
    static_assert(std::is_trivially_destructible_v<T>, "curfew: a thread-local slot must not need a destructor");
    static constinit thread_local T value{};
    return value;
  }

  static void at_thread_exit(void (*fn)(void*) noexcept, void* arg) noexcept {
    struct bell {
      void (*fn)(void*) noexcept = nullptr;
      void* arg = nullptr;
      ~bell() {
        if (fn != nullptr) fn(arg);
      }
    };
    thread_local bell rings;
    rings.fn = fn;
    rings.arg = arg;
  }

  static std::uintptr_t number_of(const void* address) noexcept {
    return reinterpret_cast<std::uintptr_t>(address);
  }
  static constexpr void here(const char*) noexcept {}

  template <class Cells>
  static std::int64_t restartable() noexcept {
    if constexpr (CURFEW_MAY_USE_RSEQ != 0 && is_raw<Cells>) {
      // order(none, relaxed): the word is the whole message, and everybody would write the same
      const std::int64_t found = cpu_number_.load(std::memory_order_relaxed);
      return found == unknown ? find_cpu_number() : found;
    } else {
      return 0;
    }
  }

  template <int Delta, class Cells>
  CURFEW_ALWAYS_INLINE static bool add_on_cpu([[maybe_unused]] Cells& cells) noexcept {
#if CURFEW_MAY_USE_RSEQ
    if constexpr (is_raw<Cells>) {
      // order(none, relaxed): the word is the whole message
      const std::int64_t index = cells.index.load(std::memory_order_relaxed);
      // Who leaves has most likely come in this way, who comes in may well find it shut.
      if (Delta < 0 ? __builtin_expect(index == 0, 0) : index == 0) return false;
      return detail::rseq_add<Delta>(cells, index);
    }
#endif
    return false;
  }

  static void restart_all() noexcept {
#if CURFEW_HAS_RSEQ
    if (!detail::rseq_restart_all()) [[unlikely]]
      restart_refused();
#endif
  }

 private:
  // The sequence is written for these; a policy with atomics of its own brings its own, or does without.
  template <class Cells>
  static constexpr bool is_raw = std::is_same_v<decltype(Cells::gate), std::atomic<int>>;

#if CURFEW_HAS_RSEQ
  CURFEW_COLD static std::int64_t find_cpu_number() noexcept {
    const std::int64_t found = detail::rseq_probe();
    // order(none, relaxed): see restartable()
    cpu_number_.store(found, std::memory_order_relaxed);
    return found;
  }

  // The system call worked once, or there would be no sequences to restart: a filter was installed since. What comes
  // now is slower by orders of magnitude, so that nothing new is to depend on it, and it is not to go unnoticed.
  CURFEW_COLD static void restart_refused() noexcept {
    // order(none, relaxed): see restartable()
    if (cpu_number_.exchange(0, std::memory_order_relaxed) != 0) {
      std::fputs("curfew: membarrier is refused; fences opened from now on use the portable backend\n", stderr);
    }
    if (!detail::rseq_visit_all_cpus()) {
      detail::fail("a fence cannot be closed: the system refuses membarrier and sched_setaffinity");
    }
  }

#else
  static std::int64_t find_cpu_number() noexcept {
    return 0;
  }
#endif
  static constexpr std::int64_t unknown = -1;  // fields are aligned, so no offset
  static inline constinit std::atomic<std::int64_t> cpu_number_{unknown};

  CURFEW_COLD static unsigned assign_stripe() noexcept {
    // order(none, relaxed): hands out distinct numbers, guards nothing
    unsigned next = next_stripe_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (next == 0) next = 1;  // 0 means unassigned
    return stripe_ = next;
  }

  static inline constinit thread_local unsigned stripe_ = 0;
  static inline constinit std::atomic<unsigned> next_stripe_{0};
};

/// The standard one can neither be constant-initialised nor go without its destructor. This one is made by the first
/// wait, under the mutex that all who wait hold; whoever notifies has held it after that.
class std_sync::lasting_condition_variable {
 public:
  constexpr lasting_condition_variable() noexcept = default;
  lasting_condition_variable(const lasting_condition_variable&) = delete;
  lasting_condition_variable& operator=(const lasting_condition_variable&) = delete;

  void wait(std::unique_lock<mutex>& lock) { made().wait(lock); }
  void wait_until(std::unique_lock<mutex>& lock, clock::time_point deadline) { made().wait_until(lock, deadline); }
  void notify_all() noexcept { self()->notify_all(); }

 private:
  condition_variable& made() {
    if (!made_) ::new (static_cast<void*>(place_)) condition_variable;
    made_ = true;
    return *self();
  }
  condition_variable* self() noexcept { return std::launder(reinterpret_cast<condition_variable*>(place_)); }

  alignas(condition_variable) unsigned char place_[sizeof(condition_variable)]{};
  bool made_ = false;
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SYNC_HPP
// ---- end curfew/detail/sync.hpp

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// What a node waits for. Two protocols that use one address as their key do not see each other's nodes.
enum class lot_kind : unsigned char { sleeper, drainer, hook };

struct lot_list;

/// Intrusive and doubly linked. Every field is guarded by the mutex of the bucket that the key belongs to.
struct lot_node {
  lot_node* next = nullptr;
  lot_node* prev = nullptr;
  lot_list* home = nullptr;         // the list this node is on; null when on none
  const void* key = nullptr;        // what it waits for
  const unsigned* forks = nullptr;  // the lot's fork counter, and
  unsigned forks_seen = 0;          // its value when the node was enlisted
  lot_kind kind = lot_kind::sleeper;

  /// Whether a list still points here. A forked child that has recreated the lot has dropped all its parent's nodes.
  bool enlisted() const noexcept { return home != nullptr && *forks == forks_seen; }

  /// Whether it was taken off for good, by drop() or by a fork. To be asked under the lock.
  bool dropped() const noexcept { return home != nullptr ? *forks != forks_seen : key == nullptr; }
};

/// First in, first out. All zero when empty, so that the table of a process costs no relocations.
struct lot_list {
  lot_node* head = nullptr;
  lot_node* tail = nullptr;
  unsigned forks = 0;  // of a list that outlives a section: the lot's fork counter when it was filled

  void push_back(lot_node& node) noexcept {
    node.home = this;
    node.next = nullptr;
    node.prev = tail;
    (tail != nullptr ? tail->next : head) = &node;
    tail = &node;
  }
  void erase(lot_node& node) noexcept {
    (node.prev != nullptr ? node.prev->next : head) = node.next;
    (node.next != nullptr ? node.next->prev : tail) = node.prev;
    node.home = nullptr;
  }
  void drop(lot_node& node) noexcept {
    erase(node);
    node.key = nullptr;
  }
};

/// `now + span`, with `time_point::max()` for "no deadline" where that would overflow and `time_point::min()` for a
/// span that is not positive (or not a number).
template <class Clock, class Rep, class Period>
typename Clock::time_point deadline_after(std::chrono::duration<Rep, Period> span) noexcept {
  using time_point = typename Clock::time_point;
  constexpr double forever = 1.5e9;  // half a century in seconds: waits of 32-bit systems hold no more than 68 years
  const double seconds = std::chrono::duration_cast<std::chrono::duration<double>>(span).count();
  if (!(span > span.zero())) return time_point::min();
  if (seconds >= forever) return time_point::max();
  using clock_span = typename Clock::duration;
  if constexpr (std::is_integral_v<Rep> && std::ratio_divide<Period, typename Clock::period>::den == 1) {
    return Clock::now() + std::chrono::duration_cast<clock_span>(span);  // exact, and cannot overflow below that
  } else {
    const double ticks = std::ceil(std::chrono::duration<double, typename Clock::period>(span).count());
    return Clock::now() + clock_span(static_cast<typename clock_span::rep>(ticks));
  }
}

/// The table. Threads park on an address until a predicate holds; protocols that need more open a `visit`.
///
/// Locking: at most one bucket is ever held by a thread, nothing is called back under it except predicates of the kit,
/// and it is never held across a fork on purpose (see recreate_in_child()).
template <class Sync>
class lot {
  struct alignas(cache_line) bucket {
    typename Sync::mutex mutex;
    typename Sync::lasting_condition_variable wake;  // for all who sleep here, whatever their key
    lot_list nodes;
  };

 public:
  using time_point = typename Sync::clock::time_point;

  /// A thread that waits. `verdict` is 0 while it does.
  struct sleeper : lot_node {
    unsigned verdict = 0;
    std::uint64_t count = 0;
  };

  /// One critical section on the bucket of one key. It refers to the table alone: the object that the key points to may
  /// be gone by the time it ends.
  class visit {
   public:
    visit(lot& where, const void* key) noexcept
        : lot_(where), bucket_(where.bucket_of(key)), key_(key), lock_(bucket_.mutex) {}
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;
    ~visit() {
      if (lock_.owns_lock()) unlock();
    }

    /// Changes in a child that has made the lot anew, and so has dropped what was on any list.
    unsigned forks() const noexcept { return lot_.forks_; }

    void lock() noexcept { lock_.lock(); }

    /// Notifies whom wake() has told, and only now: a thread that is notified under the lock runs into it, and has to
    /// be woken a second time. By now those threads, their nodes and the object may be gone; the bucket never is.
    void unlock() noexcept {
      lock_.unlock();
      if (std::exchange(told_, false)) bucket_.wake.notify_all();
    }

    void enlist(lot_node& node, lot_kind kind) noexcept {
      node.key = key_;
      node.kind = kind;
      node.forks = &lot_.forks_;
      node.forks_seen = lot_.forks_;
      bucket_.nodes.push_back(node);
    }

    /// Takes the node off the list it is on, be it the bucket's or one that move_to() filled. False when it was on
    /// none.
    bool dismiss(lot_node& node) noexcept {
      if (!node.enlisted() || node.key != key_) return false;
      node.home->erase(node);
      return true;
    }

    bool any(lot_kind kind) const noexcept {
      for (const lot_node* node = bucket_.nodes.head; node != nullptr; node = node->next) {
        if (node->key == key_ && node->kind == kind) return true;
      }
      return false;
    }

    /// Moves every node of this key and kind to \p out, in order.
    void move_to(lot_list& out, lot_kind kind) noexcept {
      for (lot_node *node = bucket_.nodes.head, *next; node != nullptr; node = next) {
        next = node->next;
        if (node->key != key_ || node->kind != kind) continue;
        bucket_.nodes.erase(*node);
        out.push_back(*node);
      }
    }

    /// Ends the wait of every thread of this key and kind. Their nodes are not touched again.
    void wake(lot_kind kind, unsigned verdict, std::uint64_t count) noexcept {
      for (lot_node *node = bucket_.nodes.head, *next; node != nullptr; node = next) {
        next = node->next;
        if (node->key != key_ || node->kind != kind) continue;
        bucket_.nodes.erase(*node);
        auto& thread = static_cast<sleeper&>(*node);
        thread.verdict = verdict;
        thread.count = count;
        told_ = true;
      }
    }

    /// Waits, with the lock released, until somebody has called wake(). False when the deadline came first; the node is
    /// on no list in either case. A deadline that has passed already means: look once, do not wait. Not for a section
    /// that has called wake() itself, whose notification it would delay.
    bool sleep_until(sleeper& self, time_point deadline) noexcept {
      const cancel_shield uncancelled;
      while (self.verdict == 0) {
        if (deadline == time_point::max()) {
          bucket_.wake.wait(lock_);
        } else if (deadline == time_point::min() || Sync::clock::now() >= deadline) {
          bucket_.nodes.erase(self);
          return false;
        } else {
          bucket_.wake.wait_until(lock_, deadline);
        }
      }
      return true;
    }

   private:
    lot& lot_;
    bucket& bucket_;
    const void* key_;
    bool told_ = false;  // somebody's wait was ended, and the notification is owed
    std::unique_lock<typename Sync::mutex> lock_;
  };

  constexpr lot() noexcept = default;
  lot(const lot&) = delete;
  lot& operator=(const lot&) = delete;

  /// Blocks until \p holds() is true or the deadline has passed; returns what \p holds() said last. It is called with
  /// the bucket locked, so it must be short and must not come back here. Whoever makes it true calls unpark_all()
  /// after.
  template <class Predicate>
  bool park(const void* key, Predicate holds, time_point deadline = time_point::max()) noexcept {
    visit section(*this, key);
    while (!holds()) {
      sleeper self;
      section.enlist(self, lot_kind::sleeper);
      Sync::here("lot.park.enlisted");
      if (!section.sleep_until(self, deadline)) return holds();
    }
    return true;
  }

  /// Lets every thread parked on \p key look at its predicate again. Touches nothing behind \p key.
  void unpark_all(const void* key) noexcept { visit(*this, key).wake(lot_kind::sleeper, 1, 0); }

  /// For the single thread of a forked child: mutexes that vanished threads held are made anew, their nodes forgotten.
  void recreate() noexcept {
    for (bucket& each : buckets_) ::new (static_cast<void*>(&each)) bucket;
    ++forks_;
  }

  /// The same, once in each child however many fences and singletons ask for it: what has been registered in the child
  /// since the first call must not be forgotten by the next one. \p surely: where the number of the process does not
  /// tell.
  void recreate_in_child(bool surely = false) noexcept {
    if (const long self = process_id(); surely || recreated_in_ != self) {
      recreated_in_ = self;
      recreate();
    }
  }

 private:
  static constexpr unsigned bucket_bits = 7;

  bucket& bucket_of(const void* key) noexcept {
    const std::uint64_t address = Sync::number_of(key);
    return buckets_[((address >> 4) * 0x9E37'79B9'7F4A'7C15u) >> (64 - bucket_bits)];
  }

  bucket buckets_[std::size_t{1} << bucket_bits];
  // Both change only in a child that has a single thread.
  unsigned forks_ = 0;
  long recreated_in_ = 0;
};

static_assert(std::is_trivially_destructible_v<lot<std_sync>>, "curfew: the lot must outlive every static destructor");

/// One table for each policy and process.
template <class Sync>
CURFEW_VISIBLE inline constinit lot<Sync> process_lot{};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LOT_HPP
// ---- end curfew/detail/lot.hpp

CURFEW_BEGIN_NAMESPACE

namespace detail {
template <class Sync>
class drain_visit;
}  // namespace detail

/// How a wait for a fence, or for instances of a singleton, ended.
enum class drain_status : unsigned char {
  drained,    ///< closed, and nobody is inside
  timed_out,  ///< the deadline passed first
  reopened    ///< cancel_close() admitted again while somebody was still inside
};

/// How a wait ended. True when the fence was drained.
struct drain_result {
  drain_status status;
  std::uint64_t remaining;  ///< passes still out; a release that has not quite finished counts as one
  explicit operator bool() const noexcept { return status == drain_status::drained; }
};

/// A function to be called once, when a fence is closed and empty: on the thread of the last leaver, or of whoever
/// closed an empty fence, with no lock held and after the fence's last access. It may destroy the fence and the hook.
///
/// Intrusive: it must stay where it is from on_drained() until it has run, or until cancel() has returned true.
/// Destroying it earlier ends the process with a message. After it has run it may be registered again.
struct drain_hook : private detail::lot_node {
  explicit drain_hook(void (*fn)(void*) noexcept, void* arg) noexcept : fn_(fn), arg_(arg) {
    if (fn == nullptr) detail::fail("drain_hook without a function");
  }
  drain_hook(const drain_hook&) = delete;
  drain_hook& operator=(const drain_hook&) = delete;
  ~drain_hook() {
    if (enlisted()) detail::fail("drain_hook destroyed while it is registered");
  }

 private:
  template <class Sync>
  friend class detail::drain_visit;

  void (*fn_)(void*) noexcept;
  void* arg_;
};

namespace detail {

/// A critical section of a fence: the lot's bucket is locked from construction on. When it ends it unlocks first and
/// then runs the hooks that came due, which must therefore be the last thing a member function of a fence does.
template <class Sync>
class drain_visit {
 public:
  using time_point = typename Sync::clock::time_point;

  drain_visit(lot<Sync>& where, const void* fence) noexcept : visit_(where, fence) { own_due_.forks = visit_.forks(); }
  drain_visit(const drain_visit&) = delete;
  drain_visit& operator=(const drain_visit&) = delete;

  /// Hooks are unlinked one at a time, under the lock, so that one hook may still cancel the next. One that forks comes
  /// back in the child as well, which has forgotten those that are left (and may have freed them), if it has reset its
  /// fences.
  ~drain_visit() {
    while (!deferred_ && due_->head != nullptr && due_->forks == visit_.forks()) {
      auto& hook = static_cast<drain_hook&>(*due_->head);
      due_->erase(hook);
      visit_.unlock();
      Sync::here("drain.visit.due");
      call(hook);
      visit_.lock();
    }
  }

  static void call(drain_hook& hook) noexcept { hook.fn_(hook.arg_); }

  /// Every thread that waits is told; every hook comes due.
  void complete_drained() noexcept {
    visit_.wake(lot_kind::drainer, told(drain_status::drained), 0);
    visit_.move_to(*due_, lot_kind::hook);
  }

  /// Hooks that come due go to \p list, which serve() runs from a later section on the same fence; or on its address,
  /// for the fence may be gone by then.
  void defer(lot_list& list) noexcept {
    due_ = &list;
    list.forks = visit_.forks();
    deferred_ = true;
  }
  void serve(lot_list& list) noexcept { due_ = &list; }

  /// Every thread that waits is told; hooks stay and are served when the fence is next closed and empty.
  void complete_reopened(std::uint64_t remaining) noexcept {
    visit_.wake(lot_kind::drainer, told(drain_status::reopened), remaining);
  }

  /// Sleeps until one of the two above, or the deadline. \p remaining is asked, under the lock, only in that last case,
  /// in which the fence is certainly alive: it was not drained yet.
  template <class Count>
  drain_result await(time_point deadline, Count remaining) noexcept {
    typename lot<Sync>::sleeper self;
    visit_.enlist(self, lot_kind::drainer);
    Sync::here("drain.await.enlisted");
    if (!visit_.sleep_until(self, deadline)) return {drain_status::timed_out, remaining()};
    return {static_cast<drain_status>(self.verdict - 1), self.count};
  }

  /// Sleeps until somebody calls tell_harvested().
  void await_harvest() noexcept {
    typename lot<Sync>::sleeper self;
    visit_.enlist(self, lot_kind::sleeper);
    Sync::here("drain.harvest.awaited");
    visit_.sleep_until(self, time_point::max());
  }
  void tell_harvested() noexcept { visit_.wake(lot_kind::sleeper, 1, 0); }

  /// Registers the hook, unless it is \p due already. Returns whether it was registered.
  bool add(drain_hook& hook, bool due, const char* fence) noexcept {
    if (hook.enlisted()) {
      visit_.unlock();
      fail("drain_hook registered twice, now with", *fence != '\0' ? fence : "a fence without a name");
    }
    if (!due) visit_.enlist(hook, lot_kind::hook);
    return !due;
  }

  bool remove(drain_hook& hook) noexcept { return visit_.dismiss(hook); }

  /// For a hook whose owner is going. False when it has come due and its call is still to come, here or in another
  /// thread; what the fence or a fork has dropped is no longer anybody's.
  bool retire(drain_hook& hook) noexcept { return visit_.dismiss(hook) || hook.dropped(); }

  bool has_hooks() const noexcept { return visit_.any(lot_kind::hook); }

  /// The fence is about to go: its hooks will never run.
  void drop_hooks() noexcept {
    lot_list dropped;
    visit_.move_to(dropped, lot_kind::hook);
    while (dropped.head != nullptr) dropped.drop(*dropped.head);
  }

  void unlock() noexcept { visit_.unlock(); }

 private:
  static constexpr unsigned told(drain_status status) noexcept { return static_cast<unsigned>(status) + 1; }

  typename lot<Sync>::visit visit_;
  lot_list own_due_;
  lot_list* due_ = &own_due_;
  bool deferred_ = false;
};

CURFEW_COLD inline void report_occupied(const char* kind, const char* name, std::uint64_t count) noexcept {
  std::fprintf(stderr, "curfew: %s destroyed with %llu inside: %s\n", kind, static_cast<unsigned long long>(count),
               *name != '\0' ? name : "(no name)");
}

[[noreturn]] CURFEW_COLD inline void fail_occupied(const char* kind, const char* name, std::uint64_t count) noexcept {
  report_occupied(kind, name, count);
  std::terminate();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_DRAIN_HPP
// ---- end curfew/detail/drain.hpp

// curfew/detail/lot.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

// word_   bit 0    CLOSED. Entrants are refused.
//         bit 1    WAITERS. Threads or hooks may be registered in the lot. Set only under the lot lock; may stay set
//                  after the last of them has gone, must not be clear while one is there.
//         bits 2.. passes out.
//
// 0                 -> CLOSED|...         close(), drain_*(): one RMW
// CLOSED, n > 0     -> CLOSED             the last leaver, nobody waits: drained by this very subtraction
// CLOSED|WAITERS, n -> CLOSED|WAITERS, 0  the last leaver, or a close() of an empty fence: now it is the signaller
// CLOSED|WAITERS, 0 -> CLOSED             the signaller, under the lot lock, as its last access: drained
// CLOSED            -> 0                  reopen()
// CLOSED, n > 0     -> n                  cancel_close(), under the lot lock
//
// So CLOSED|WAITERS with nobody inside means exactly that a signaller is on its way to the lot lock. It owns the fence
// until it has cleared WAITERS; who comes to wait in between registers and is served by it.
template <class Sync>
class compact_core {
 public:
  using sync = Sync;
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  static constexpr const char* kind = "compact_admission_fence";

  constexpr explicit compact_core(const char* name) noexcept : name_(name != nullptr ? name : "") {}
  compact_core(const compact_core&) = delete;
  compact_core& operator=(const compact_core&) = delete;

  ~compact_core() {
    const std::uint64_t word = look();
    if (count_in(word) != 0) fail_occupied(kind, name_, count_in(word));
    if ((word & waiters) == 0) return;
    drain_visit<Sync> section(process_lot<Sync>, this);
    // Empty, but the last leaver has not been here yet: it still needs the fence.
    if (look() == (closed | waiters)) section.await(time_point::max(), [] { return std::uint64_t{0}; });
    section.drop_hooks();
  }

  bool try_enter() noexcept {
    std::uint64_t word = look();
    do {
      if ((word & closed) != 0) return false;
      Sync::here("compact.enter.checked");
      // order(compact.word, acquire): what preceded the opening, or the closing; pairs with reopen(), close()
    } while (!word_.compare_exchange_weak(word, word + one, std::memory_order_acquire, std::memory_order_acquire));
    return true;
  }

  void clone() noexcept {
    // order(none, relaxed): the pass that is cloned keeps the count above zero, and the caller hands the clone over
    word_.fetch_add(one, std::memory_order_relaxed);
  }

  void leave() noexcept {
    Sync::here("compact.leave.begin");
    // order(compact.word, release): what the pass protected; pairs with settle_locked(), close(), look()
    if (word_.fetch_sub(one, std::memory_order_release) != (one | waiters | closed)) return;
    Sync::here("compact.leave.zero");
    drain_visit<Sync> section(process_lot<Sync>, this);
    settle_locked(section);
    Sync::here("compact.leave.settled");
  }

  bool close() noexcept {
    // order(compact.word, acq_rel): what the closer did, and what the leavers released; pairs with try_enter(), leave()
    const std::uint64_t before = word_.fetch_or(closed, std::memory_order_acq_rel);
    if ((before & closed) != 0) return false;
    Sync::here("compact.close.flagged");
    if (before == waiters) {
      drain_visit<Sync> section(process_lot<Sync>, this);
      settle_locked(section);
    }
    return true;
  }

  /// close() for \p count fences; hooks run when all of a group are closed, since one of them may wait for another
  /// fence.
  template <class At>
  static void close_group(std::size_t count, At at) noexcept {
    struct member {
      compact_core* fence = nullptr;  // when this thread is its signaller; from settling on a mere address
      lot_list hooks;
    };
    for (std::size_t begin = 0; begin < count; begin += group_size) {
      member group[group_size];
      for (std::size_t i = begin; i < count && i < begin + group_size; ++i) {
        // order(compact.word, acq_rel): what the closer did, and what the leavers released; pairs with try_enter(),
        // leave()
        if (at(i).word_.fetch_or(closed, std::memory_order_acq_rel) == waiters) group[i - begin].fence = &at(i);
      }
      for (member& each : group) {
        if (each.fence == nullptr) continue;
        drain_visit<Sync> section(process_lot<Sync>, each.fence);
        section.defer(each.hooks);
        each.fence->settle_locked(section);
      }
      for (member& each : group) {
        if (each.fence != nullptr) drain_visit<Sync>(process_lot<Sync>, each.fence).serve(each.hooks);
      }
    }
  }

  drain_result wait(time_point deadline, bool closing) noexcept {
    drain_visit<Sync> section(process_lot<Sync>, this);
    if (!announce_waiter(section, closing)) return {drain_status::drained, 0};
    return section.await(deadline, [this] {
      const std::uint64_t word = look();
      return word == (closed | waiters) ? 1 : count_in(word);  // 1: the last release is still under way
    });
  }

  bool reopen() noexcept {
    std::uint64_t word = closed;
    // order(compact.word, acq_rel): what preceded the opening, to whoever enters; pairs with try_enter(), leave()
    return word_.compare_exchange_strong(word, 0, std::memory_order_acq_rel, std::memory_order_acquire);
  }

  bool cancel_close() noexcept {
    drain_visit<Sync> section(process_lot<Sync>, this);
    const std::uint64_t keep = section.has_hooks() ? waiters : 0;
    std::uint64_t word = look();
    for (bool open = false; !open;) {
      if ((word & closed) == 0 || count_in(word) == 0) return false;
      const std::uint64_t next = (word & ~(closed | waiters)) | keep;
      // order(compact.word, acq_rel): what preceded the opening, to whoever enters; pairs with try_enter(), leave()
      open = word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    section.complete_reopened(count_in(word));
    return true;
  }

  bool is_closed() const noexcept { return (look() & closed) != 0; }
  bool is_drained() const noexcept { return look() == closed; }
  std::uint64_t inside() const noexcept { return count_in(look()); }

  /// False when the fence is drained already.
  bool enlist(drain_hook& hook) noexcept {
    drain_visit<Sync> section(process_lot<Sync>, this);
    return section.add(hook, !announce_waiter(section, false), name_);
  }

  bool on_drained(drain_hook& hook) noexcept {
    if (enlist(hook)) return true;
    drain_visit<Sync>::call(hook);
    return false;
  }

  bool cancel(drain_hook& hook) noexcept { return drain_visit<Sync>(process_lot<Sync>, this).remove(hook); }

  void reset_after_fork_in_child(std::uint64_t held) noexcept {
    process_lot<Sync>.recreate_in_child();
    // order(none, relaxed): the forked child has one thread
    word_.store((look() & closed) | (held * one), std::memory_order_relaxed);
  }

  const char* name() const noexcept { return name_; }
  lot<Sync>* where() const noexcept { return &process_lot<Sync>; }

 private:
  static constexpr std::size_t group_size = 64;
  static constexpr std::uint64_t closed = 1;
  static constexpr std::uint64_t waiters = 2;
  static constexpr std::uint64_t one = 4;

  static constexpr std::uint64_t count_in(std::uint64_t word) noexcept { return word / one; }

  std::uint64_t look() const noexcept {
    // order(compact.word, acquire): what leavers, closer, signaller did; pairs with leave(), close(), settle_locked()
    return word_.load(std::memory_order_acquire);
  }

  // Under the lot lock. False when the fence is drained, which closing an empty one makes it; otherwise WAITERS is set
  // and the caller must register. One exchange does both: were CLOSED set first, the last leaver could leave between
  // the two, and somebody who saw the fence drained could destroy it under the second.
  bool announce_waiter(drain_visit<Sync>& section, bool closing) noexcept {
    std::uint64_t word = look();
    std::uint64_t next = 0;
    do {
      if (word == closed) return false;
      next = word | (closing ? closed : waiters);
      if (count_in(word) != 0) next |= waiters;
      if (next == word) return true;
      // order(compact.word, acq_rel): that somebody waits, and what the closer did; pairs with leave(), try_enter()
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_acquire));
    Sync::here("compact.wait.announced");
    if (!closing || count_in(word) != 0) return true;
    if ((word & waiters) != 0) settle_locked(section);  // it was this thread that closed it, and found it empty
    return false;
  }

  void settle_locked(drain_visit<Sync>& section) noexcept {
    section.complete_drained();
    // order(compact.word, acq_rel): all releases, to the hooks; the last access here; pairs with leave(), look()
    word_.fetch_and(~waiters, std::memory_order_acq_rel);
  }

  typename Sync::template atomic<std::uint64_t> word_{0};
  const char* name_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_COMPACT_CORE_HPP
// ---- end curfew/detail/compact_core.hpp

// curfew/detail/config.hpp: above

// curfew/detail/drain.hpp: above

// ---- begin curfew/detail/drain_awaitable.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What `co_await fence.drained()` waits with. It lives in the coroutine's frame and brings its own hook, so waiting
/// allocates nothing; destroying the suspended frame takes the hook off the list again.

#ifndef CURFEW_DETAIL_DRAIN_AWAITABLE_HPP
#define CURFEW_DETAIL_DRAIN_AWAITABLE_HPP

#include <coroutine>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/drain.hpp: above

// curfew/detail/lot.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Resumes where the wait ends: on the thread of the last leaver, or of whoever closed the empty fence.
struct resume_here {
  void operator()(std::coroutine_handle<> coroutine) const noexcept { coroutine.resume(); }
};

template <class Core, class Resume>
class [[nodiscard]] drain_awaitable {
  using sync = typename Core::sync;

 public:
  drain_awaitable(Core& core, Resume resume) noexcept : core_(&core), lot_(core.where()), resume_(std::move(resume)) {}
  drain_awaitable(const drain_awaitable&) = delete;
  drain_awaitable& operator=(const drain_awaitable&) = delete;

  /// Neither the fence nor the lot's list may be relied on here: the fence may have been destroyed while the coroutine
  /// was waiting for it, which takes the hook off as well.
  ~drain_awaitable() {
    if (!waiting_) return;
    drain_visit<sync> section(*lot_, core_);
    if (!section.retire(hook_)) {
      section.unlock();
      fail("a coroutine was destroyed while drained() was resuming it");
    }
  }

  bool await_ready() const noexcept { return core_->is_drained(); }

  /// From the moment the hook is on the list another thread may resume the coroutine, which may destroy itself and the
  /// fence. Not inlined: compilers have put the temporaries of an inlined await_suspend() into the frame.
  CURFEW_NOINLINE bool await_suspend(std::coroutine_handle<> coroutine) noexcept {
    coroutine_ = coroutine;
    waiting_ = true;
    const bool suspended = core_->enlist(hook_);
    sync::here("drain.awaitable.enlisted");
    if (!suspended) waiting_ = false;  // drained meanwhile: nobody else knows of this coroutine
    return suspended;
  }

  void await_resume() const noexcept {}

 private:
  static void come_due(void* arg) noexcept {
    auto& self = *static_cast<drain_awaitable*>(arg);
    self.waiting_ = false;
    const std::coroutine_handle<> coroutine = self.coroutine_;
    Resume resume(std::move(self.resume_));  // the frame may go before resume() has returned
    resume(coroutine);
  }

  Core* core_;
  lot<sync>* lot_;
  std::coroutine_handle<> coroutine_;
  bool waiting_ = false;  // enlisted, and not yet come due
  Resume resume_;
  drain_hook hook_{&come_due, this};
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_DRAIN_AWAITABLE_HPP
// ---- end curfew/detail/drain_awaitable.hpp

// ---- begin curfew/detail/exceptions.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Exceptions where the compiler has them, and the same code where it has not (`-fno-exceptions`): there, what would
/// throw ends the process with a message that names the error, and what would catch is compiled but never runs. The
/// headers of the core say throw, try and catch only through these macros; `cmake/check_layers.cmake` sees to it.

#ifndef CURFEW_DETAIL_EXCEPTIONS_HPP
#define CURFEW_DETAIL_EXCEPTIONS_HPP

// curfew/detail/config.hpp: above

#if CURFEW_EXCEPTIONS

#define CURFEW_THROW(...) throw __VA_ARGS__
#define CURFEW_RETHROW throw
#define CURFEW_TRY try
#define CURFEW_CATCH(type, name) catch (const type& name)
#define CURFEW_CATCH_ALL catch (...)

#else

// `if constexpr`, so that no compiler takes what follows a block that returns for a way out without a result.
#define CURFEW_THROW(...) ::curfew::detail::cannot_throw(#__VA_ARGS__, __VA_ARGS__)
#define CURFEW_RETHROW ::std::terminate()
#define CURFEW_TRY if constexpr (true)
#define CURFEW_CATCH(type, name) else if (const type& name = ::curfew::detail::never_caught<type>(); true)
#define CURFEW_CATCH_ALL else

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// What a throw is without exceptions: prints `curfew: cannot throw <type>: <what>` to stderr and terminates.
/// \p expression is the source text of the thrown expression; its type is what comes before the first bracket.
template <class Error>
[[noreturn]] CURFEW_COLD void cannot_throw(const char* expression, const Error& error) noexcept {
  int length = 0;
  while (expression[length] != '\0' && expression[length] != '(' && expression[length] != '{') ++length;
  std::fprintf(stderr, "curfew: cannot throw %.*s: %s\n", length, expression, error.what());
  std::terminate();
}

/// What a handler that never runs is given to name.
template <class Error>
[[noreturn]] const Error& never_caught() noexcept {
  std::terminate();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_EXCEPTIONS

#endif  // CURFEW_DETAIL_EXCEPTIONS_HPP
// ---- end curfew/detail/exceptions.hpp

// ---- begin curfew/detail/occupants.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Who is inside a fence: nothing for most fences, and for a traced one a record for each pass out. Records lie in
/// blocks that are kept until the fence goes, so a pass holds a plain pointer to its own and a reader can walk them in
/// small steps, without a lock in between and without memory of its own.

#ifndef CURFEW_DETAIL_OCCUPANTS_HPP
#define CURFEW_DETAIL_OCCUPANTS_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <version>
#if defined(__cpp_lib_source_location)
#include <source_location>
#endif

// curfew/detail/config.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

#if defined(__cpp_lib_source_location)
/// std::source_location; where the compiler has none, a class with the same members.
using source_location = std::source_location;
#else
/// Stands in for std::source_location where the compiler has the means and the library has not (clang++ before 16).
class source_location {
 public:
  constexpr source_location() noexcept = default;
  /// As in std::source_location.
  static constexpr source_location current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                           const char* function = __builtin_FUNCTION()) noexcept {
    source_location here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = line;
    return here;
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }
  constexpr std::uint_least32_t line() const noexcept { return line_; }
  constexpr std::uint_least32_t column() const noexcept { return 0; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  std::uint_least32_t line_ = 0;
};
#endif

/// One pass of a traced fence: where it was taken, by which thread, and when. A clone has a record of its own. The
/// thread is the one that entered; whoever holds the pass now, nobody knows.
template <class Sync>
struct basic_fence_occupant {
  source_location where;
  typename Sync::thread_id thread;
  typename Sync::clock::time_point since;
};
/// What for_each_inside() of a traced_admission_fence hands out.
using fence_occupant = basic_fence_occupant<std_sync>;

namespace detail {

/// For fences that only count: no byte and no instruction.
struct untraced {
  struct site {
    static constexpr site current() noexcept { return {}; }
  };
  struct ticket {};
  static constexpr bool lists = false;
};

template <class Sync>
class occupants {
 public:
  using occupant = basic_fence_occupant<Sync>;
  using site = source_location;
  static constexpr bool lists = true;

 private:
  struct stripe;
  struct record {
    occupant who;
    stripe* home = nullptr;
    record* next_free = nullptr;
    bool taken = false;
  };
  struct block {
    block* next = nullptr;
    std::array<record, 84> records;  // just under four KiB
  };
  struct alignas(cache_line) stripe {
    mutable typename Sync::mutex mutex;
    block* blocks = nullptr;  // grows at the head
    record* unused = nullptr;
  };

 public:
  /// What a pass keeps: null when there was no memory for a record. Such a pass is counted and not listed.
  struct ticket {
    record* mine = nullptr;
  };

  constexpr occupants() noexcept = default;
  occupants(const occupants&) = delete;
  occupants& operator=(const occupants&) = delete;
  ~occupants() {
    for (stripe& each : stripes_) {
      for (block* old = each.blocks; old != nullptr;) delete std::exchange(old, old->next);
    }
  }

  void note(ticket& pass, site where) noexcept {
    const occupant who{where, Sync::self(), Sync::clock::now()};
    stripe& home = stripes_[Sync::stripe() % stripes_.size()];
    std::lock_guard lock(home.mutex);
    record* mine = home.unused;
    if (mine == nullptr && (mine = grow(home)) == nullptr) return;
    home.unused = mine->next_free;
    mine->who = who;
    mine->taken = true;
    pass.mine = mine;
  }

  /// To be called while the pass still counts: after that the fence, and this with it, may be gone.
  void forget(ticket& pass) noexcept {
    record* const mine = std::exchange(pass.mine, nullptr);
    if (mine == nullptr) return;
    std::lock_guard lock(mine->home->mutex);
    if (!mine->taken) return;  // given up by a fork
    mine->taken = false;
    mine->next_free = std::exchange(mine->home->unused, mine);
  }

  /// Calls \p f for each, with no lock held.
  template <class F>
  void for_each(F&& f) const {
    for (const stripe& each : stripes_) {
      std::unique_lock lock(each.mutex);
      const block* some = each.blocks;
      lock.unlock();
      for (; some != nullptr; some = some->next) {
        std::array<occupant, 12> seen;
        for (std::size_t next = 0; next < some->records.size();) {
          std::size_t found = 0;
          lock.lock();
          for (; next < some->records.size() && found < seen.size(); ++next) {
            if (some->records[next].taken) seen[found++] = some->records[next].who;
          }
          lock.unlock();
          for (std::size_t i = 0; i < found; ++i) f(static_cast<const occupant&>(seen[i]));
        }
      }
    }
  }

  /// In a forked child: keeps the calling thread's records. Those of the others are neither listed nor used again,
  /// since a pass that lives on may still point there; what a vanished thread was just changing is given up as well.
  void reset_after_fork() noexcept {
    for (stripe& each : stripes_) {
      ::new (static_cast<void*>(&each.mutex)) typename Sync::mutex;
      each.unused = nullptr;
      for (block* some = each.blocks; some != nullptr; some = some->next) {
        for (record& one : some->records) one.taken = one.taken && one.who.thread == Sync::self();
      }
    }
  }

  /// `file:line (function), thread 0x..., for 1.250 s` in \p text, which a short one cuts.
  static void describe(const occupant& one, char* text, std::size_t size) noexcept {
    std::uint64_t thread = 0;  // what debuggers show
    std::memcpy(&thread, &one.thread, sizeof one.thread < sizeof thread ? sizeof one.thread : sizeof thread);
    const std::chrono::duration<double> age = Sync::clock::now() - one.since;
    std::snprintf(text, size, "%s:%u (%s), thread 0x%llx%s, for %.3f s", one.where.file_name(),
                  static_cast<unsigned>(one.where.line()), one.where.function_name(),
                  static_cast<unsigned long long>(thread), one.thread == Sync::self() ? " (this one)" : "",
                  age.count());
  }

 private:
  static record* grow(stripe& home) noexcept {
    auto* const more = new (std::nothrow) block;
    if (more == nullptr) return nullptr;
    for (std::size_t i = more->records.size(); i-- != 0;) {
      more->records[i].home = &home;
      more->records[i].next_free = std::exchange(home.unused, &more->records[i]);
    }
    more->next = std::exchange(home.blocks, more);
    return home.unused;
  }

  std::array<stripe, 16> stripes_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_OCCUPANTS_HPP
// ---- end curfew/detail/occupants.hpp

// ---- begin curfew/detail/striped_core.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The fence protocol for everyday use: a counter in sixteen lanes, each on a cache line of its own, in two backends.
/// Where the system has restartable sequences a thread adds to the cell of its CPU, in a sequence that also tests the
/// state, without any bus lock. Elsewhere, and whenever that does not work out, it adds to a stripe with the CLOSED bit
/// inside, so that one atomic operation is both count and verdict. Once closed, releases are redirected to one exact
/// shared counter. docs/design/admission_fence.md has the argument.

#ifndef CURFEW_DETAIL_STRIPED_CORE_HPP
#define CURFEW_DETAIL_STRIPED_CORE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/cpu_cells.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The words of a counter that each CPU may change without disturbing the others, and that one store can shut.

#ifndef CURFEW_DETAIL_CPU_CELLS_HPP
#define CURFEW_DETAIL_CPU_CELLS_HPP

#include <cstdint>

// curfew/detail/config.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// `Sync::add_on_cpu()` adds to `local` of the lane that has the number of the calling thread's CPU, provided that
/// `gate` is above that number, and tests the gate and adds in one restartable sequence. A gate of zero or less admits
/// nowhere. After storing such a gate and then calling `Sync::restart_all()` no `local` changes any more, and the
/// caller sees all changes. `local` is not a target for anything else: the sequences add to it without a bus lock.
///
/// `shared` is for whoever uses the lanes by ordinary atomic operations instead.
template <class Sync>
struct cpu_cells {
  struct alignas(cache_line) lane {
    typename Sync::template atomic<std::uint64_t> shared{0};
    typename Sync::template atomic<std::uint64_t> local{0};
  };
  static constexpr int lane_count = 16;

  typename Sync::template atomic<int> gate{0};
  // What Sync::restartable() returned: where the number of a CPU is found, the same for all who add. Zero turns the
  // sequence away before it begins; where that has been another value before, this is no more than a saving.
  typename Sync::template atomic<std::int64_t> index{0};
  lane lanes[lane_count];
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_CPU_CELLS_HPP
// ---- end curfew/detail/cpu_cells.hpp

// curfew/detail/drain.hpp: above

// curfew/detail/lot.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

// state         per_cpu    (the number of lanes) may enter, by the cell of the CPU or by a stripe.
// (cells_.gate) undecided  (zero) may enter; the first one to do so chooses between per_cpu and striped.
//               striped    may enter, by a stripe. This and all that follow are below zero.
//               closed     refused; close() may still be harvesting, passes may be out, or the last leaver may be on
//                          its way to the lot lock.
//               grouped    refused; close_group() owns it and has not harvested yet: all the counts are as when open.
//               drained    refused and empty, and nobody but its owner will touch the fence again.
//               Read first by every entrant. Written only under the lot lock, except from undecided to what was chosen.
//
// lanes[i]      local      entered minus left by sequences on CPU i, modulo 2^64. Changes only while the state is
//                          per_cpu: a sequence tests that and adds in one step, and close() restarts the sequences
//                          that had tested it before. One cell may be negative, as a stripe may.
//               shared     the stripe:
//                 bit 0    CLOSED. An entrant whose add finds it set is refused, a leaver whose subtraction finds it
//                          set goes on to remaining_. Set and cleared only under the lot lock.
//                 bits 1.. entered minus left on this stripe, modulo 2^63. Only the sum over all stripes and cells
//                          means anything. While CLOSED it is garbage that the next opening wipes: a refused entrant
//                          MUST NOT take its add back, since it might do so after that.
//
// remaining_    open       bias + passes carried over a cancel_close() and not yet left.
//               closing    the same minus early redirected leaves: the bias keeps it above zero until the harvest is
//                          in.
//               closed     the number of passes out, exactly. Falls by one for each leaver, rises by one for each
//                          clone (whose original keeps it above zero), so it reaches zero exactly once.
//
// undecided -> per_cpu, striped    the first entry
// any of these three, "open"
//           -> closed    close(), drain_*()   under the lot lock: the state; if it was per_cpu, a restart of all
//                                             sequences and the harvest of the cells; the stripes, bit by bit
//           -> grouped   close_group(), which goes on to closed or drained with no way back: the state alone; then,
//                        with no lock held, one restart for all its fences; then the harvest of each, under its lock
// closed    -> drained   close() if the harvest is zero, else the leaver that takes remaining_ from 1 to 0
// drained   -> open      reopen(), which chooses anew
// closed    -> open      cancel_close(), if remaining_ is not zero; the number is carried over
//
// The signaller (who makes remaining_ zero) owns the fence until it has stored `drained` under the lot lock, which is
// its last access. Nobody may take remaining_ == 0 for drained.
template <class Sync>
class striped_core {
 public:
  using sync = Sync;
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  static constexpr const char* kind = "admission_fence";

  constexpr explicit striped_core(const char* name) noexcept : name_(name != nullptr ? name : "") {}
  striped_core(const striped_core&) = delete;
  striped_core& operator=(const striped_core&) = delete;

  ~striped_core() {
    drain_visit<Sync> section(*lot_, this);
    if (const std::uint64_t count = count_locked(); count != 0) {
      section.unlock();
      fail_occupied(kind, name_, count);
    }
    // Empty, but the last leaver has not been here yet: it still needs the fence.
    if (is_ending(state_locked())) section.await(time_point::max(), [] { return std::uint64_t{0}; });
    section.drop_hooks();
  }

  bool try_enter() noexcept {
    if (Sync::template add_on_cpu<1>(cells_)) return true;
    // order(fence.state, acquire): what preceded the closing, if refused, or the opening; pairs with close_locked(),
    // open_locked(), choose()
    const int seen = cells_.gate.load(std::memory_order_acquire);
    return is_open(seen) && enter_elsewhere(seen);
  }

  void clone() noexcept {
    if (Sync::template add_on_cpu<1>(cells_)) [[likely]]
      return;
    // order(none, relaxed): the pass that is cloned keeps the count above zero, and the caller hands the clone over
    if ((own_stripe().fetch_add(one, std::memory_order_relaxed) & closed_bit) == 0) return;
    Sync::here("fence.clone.redirected");
    // order(none, relaxed): as above; the addition only has to be part of the counter's one order of changes
    remaining_.fetch_add(1, std::memory_order_relaxed);
  }

  void leave() noexcept {
    Sync::here("fence.leave.begin");
    if (Sync::template add_on_cpu<-1>(cells_)) [[likely]]
      return;
    leave_stripe();
  }

  bool close() noexcept {
    drain_visit<Sync> section(*lot_, this);
    return close_locked(section);
  }

  /// close() for \p count fences, with one restart for as many of them as group_size instead of one for each. \p at(i)
  /// is the i-th fence.
  template <class At>
  static void close_group(std::size_t count, At at) noexcept {
    for (std::size_t begin = 0; begin < count; begin += group_size) {
      member group[group_size];
      const std::size_t some = count - begin < group_size ? count - begin : group_size;
      bool restart = false;
      for (std::size_t i = 0; i < some; ++i) restart |= at(begin + i).begin_closing(group[i]);
      Sync::here("fence.close_group.flagged");
      if (restart) Sync::restart_all();
      // What is not empty may be gone as soon as it is harvested, and what was closed by somebody else at any time.
      for (member& each : group) {
        if (each.fence != nullptr && !each.fence->end_closing(each)) each.fence = nullptr;
      }
      Sync::here("fence.close_group.harvested");
      for (member& each : group) {
        if (each.fence != nullptr) each.fence->settle_deferring(each.hooks);
      }
      // Last of all, since a hook may wait for another one of the group.
      for (member& each : group) {
        if (each.fence != nullptr) drain_visit<Sync>(*each.where, each.fence).serve(each.hooks);
      }
    }
  }

  drain_result wait(time_point deadline, bool closing) noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (closing) close_locked(section);
    if (state_locked() == drained) return {drain_status::drained, 0};
    return section.await(deadline, [this] {
      const std::uint64_t count = count_locked();
      return count == 0 && is_ending(state_locked()) ? 1 : count;  // the last release is still under way
    });
  }

  bool reopen() noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (state_locked() != drained) return false;
    // order(none, relaxed): zero and at rest: the signaller has been here, under the lock that is held now
    remaining_.store(bias, std::memory_order_relaxed);
    open_locked();
    return true;
  }

  bool cancel_close() noexcept {
    drain_visit<Sync> section(*lot_, this);
    await_harvest_locked(section);
    if (state_locked() != closed) return false;
    // order(none, relaxed): a first guess for the exchange below
    std::int64_t count = remaining_.load(std::memory_order_relaxed);
    for (bool carried = false; !carried;) {
      if (count == 0) return false;  // a signaller is on its way and will make it drained
      const std::int64_t next = count + bias;
      // order(fence.remaining, acq_rel): passes on what the leavers so far released; pairs with leave_closed()
      carried = remaining_.compare_exchange_weak(count, next, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    Sync::here("fence.cancel.carried");
    open_locked();
    section.complete_reopened(static_cast<std::uint64_t>(count));
    return true;
  }

  bool is_closed() const noexcept {
    // order(fence.state, acquire): what preceded the closing; pairs with close_locked()
    return !is_open(cells_.gate.load(std::memory_order_acquire));
  }

  bool is_drained() const noexcept {
    // order(fence.state, acquire): every release and the signaller's last access; pairs with settle_locked()
    return cells_.gate.load(std::memory_order_acquire) == drained;
  }

  std::uint64_t inside() const noexcept {
    if (!is_closed()) {
      Sync::here("fence.inside.open");
      const std::uint64_t count = estimate();
      if (!is_closed()) return count;  // else a closing may have taken what was there to be counted
    }
    drain_visit<Sync> section(*lot_, this);  // waits for a harvest to end
    await_harvest_locked(section);
    return count_locked();
  }

  /// False when the fence is drained already.
  bool enlist(drain_hook& hook) noexcept {
    drain_visit<Sync> section(*lot_, this);
    return section.add(hook, state_locked() == drained, name_);
  }

  bool on_drained(drain_hook& hook) noexcept {
    if (enlist(hook)) return true;
    drain_visit<Sync>::call(hook);
    return false;
  }

  bool cancel(drain_hook& hook) noexcept { return drain_visit<Sync>(*lot_, this).remove(hook); }

  void reset_after_fork_in_child(std::uint64_t held) noexcept {
    lot_->recreate_in_child();
    const bool was_open = is_open(state_locked());
    for (lane& each : cells_.lanes) {
      // order(none, relaxed): the forked child has one thread
      each.local.store(0, std::memory_order_relaxed);
      // order(none, relaxed): as above
      each.shared.store(was_open ? 0 : closed_bit, std::memory_order_relaxed);
    }
    // order(none, relaxed): as above
    remaining_.store(static_cast<std::int64_t>(held) + (was_open ? bias : 0), std::memory_order_relaxed);
    // order(none, relaxed): as above
    cells_.gate.store(was_open ? undecided : held != 0 ? closed : drained, std::memory_order_relaxed);
  }

  const char* name() const noexcept { return name_; }
  lot<Sync>* where() const noexcept { return lot_; }

 private:
  using cells = cpu_cells<Sync>;
  using lane = typename cells::lane;
  using counter = typename Sync::template atomic<std::uint64_t>;

  static constexpr std::size_t group_size = 64;
  static constexpr int per_cpu = cells::lane_count;
  static constexpr int undecided = 0;
  static constexpr int striped = -1;
  static constexpr int closed = -2;
  static constexpr int drained = -3;
  static constexpr int grouped = -4;
  static constexpr bool is_ending(int state) noexcept { return state == closed || state == grouped; }
  static constexpr bool is_open(int state) noexcept { return state > closed; }

  static constexpr std::uint64_t closed_bit = 1;
  static constexpr std::uint64_t one = 2;
  static constexpr std::int64_t bias = std::int64_t{1} << 62;

  // A fence that close_group() is closing; null when it has no business with it (any more). From settling on a mere
  // address.
  struct member {
    striped_core* fence = nullptr;
    lot<Sync>* where = nullptr;
    bool by_cells = false;
    lot_list hooks;
  };

  // True when the sequences must be restarted.
  bool begin_closing(member& self) noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (!is_open(state_locked())) return false;
    // order(fence.state, release): what the closer did before; pairs with try_enter(), is_closed(), choose()
    const int before = cells_.gate.exchange(grouped, std::memory_order_release);
    self = {this, lot_, before == per_cpu, {}};
    return self.by_cells;
  }

  // True for the signaller.
  bool end_closing(const member& self) noexcept {
    drain_visit<Sync> section(*lot_, this);
    const bool is_empty = harvest_locked(self.by_cells);
    // order(fence.state, release): what the closer did before; pairs with is_closed()
    cells_.gate.store(closed, std::memory_order_release);
    section.tell_harvested();
    return is_empty;
  }

  void settle_deferring(lot_list& hooks) noexcept {
    drain_visit<Sync> section(*lot_, this);
    section.defer(hooks);
    settle_locked(section);
  }

  counter& own_stripe() noexcept { return cells_.lanes[Sync::stripe() % cells::lane_count].shared; }

  // The other way in and out. Not inlined: nothing with a bus lock stands beside the sequences, and who is refused
  // jumps over little. Where there are no sequences inlining gains nothing.
  CURFEW_NOINLINE bool enter_elsewhere(int seen) noexcept { return seen == undecided ? choose() : enter_stripe(); }

  bool enter_stripe() noexcept {
    Sync::here("fence.enter.checked");
    // order(fence.stripe, acquire): an admitted thread sees what preceded the opening; pairs with open_locked()
    return (own_stripe().fetch_add(one, std::memory_order_acquire) & closed_bit) == 0;
  }

  CURFEW_NOINLINE void leave_stripe() noexcept {
    // order(fence.stripe, release): what the pass protected; pairs with close_locked()
    if ((own_stripe().fetch_sub(one, std::memory_order_release) & closed_bit) == 0) return;
    leave_closed();
  }

  // The first to enter chooses for all; a close() that comes first wins. Not under the lot lock, since entering never
  // waits for anybody.
  CURFEW_NOINLINE bool choose() noexcept {
    const int chosen = chosen_backend();
    int before = undecided;
    // order(fence.state, acq_rel): where the cells are, and, if refused, what preceded the closing; pairs with
    // try_enter(), close_locked()
    cells_.gate.compare_exchange_strong(before, chosen, std::memory_order_acq_rel, std::memory_order_acquire);
    return is_open(before) && enter_stripe();
  }

  int chosen_backend() noexcept {
    const std::int64_t index = Sync::template restartable<cells>();
    if (index == 0) return striped;
    // order(none, relaxed): the word is the whole message
    cells_.index.store(index, std::memory_order_relaxed);
    return per_cpu;
  }

  CURFEW_NOINLINE void leave_closed() noexcept {
    Sync::here("fence.leave.redirected");
    // order(fence.remaining, acq_rel): what every pass protected; pairs with leave_closed(), close_locked()
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Sync::here("fence.leave.zero");
    drain_visit<Sync> section(*lot_, this);
    settle_locked(section);
    Sync::here("fence.leave.settled");
  }

  bool close_locked(drain_visit<Sync>& section) noexcept {
    if (!is_open(state_locked())) return false;
    // Before the first CLOSED bit, so that a thread refused by a stripe is refused here ever after. An exchange, since
    // the first entry may be choosing the backend right now.
    // order(fence.state, release): what the closer did before; pairs with try_enter(), is_closed(), choose()
    const int before = cells_.gate.exchange(closed, std::memory_order_release);
    Sync::here("fence.close.flagged");
    if (before == per_cpu) Sync::restart_all();
    if (harvest_locked(before == per_cpu)) settle_locked(section);
    return true;
  }

  // The state has just ceased to be open, and if it was per_cpu, all sequences have been restarted since. True for the
  // signaller.
  bool harvest_locked(bool by_cells) noexcept {
    std::int64_t harvest = by_cells ? harvest_cells() : 0;
    for (lane& each : cells_.lanes) {
      // order(fence.stripe, acq_rel): what the leavers so far released; pairs with leave_stripe()
      const std::uint64_t word = each.shared.fetch_or(closed_bit, std::memory_order_acq_rel);
      harvest += static_cast<std::int64_t>(word) >> 1;
    }
    Sync::here("fence.close.harvested");
    // order(fence.remaining, acq_rel): the harvest and what it acquired, to the last leaver; pairs with
    // leave_closed()
    const std::int64_t earlier = remaining_.fetch_add(harvest - bias, std::memory_order_acq_rel);
    Sync::here("fence.close.counted");
    return earlier + (harvest - bias) == 0;
  }

  // Leaves the cells wiped.
  std::int64_t harvest_cells() noexcept {
    // order(none, relaxed): turns away those who come now before they try
    cells_.index.store(0, std::memory_order_relaxed);
    Sync::here("fence.close.restarted");
    std::int64_t harvest = 0;
    for (lane& each : cells_.lanes) {
      // order(fence.stripe, acquire): what those released who left by a sequence; pairs with leave()
      harvest += static_cast<std::int64_t>(each.local.load(std::memory_order_acquire));
      // order(none, relaxed): at rest until the gate is opened again
      each.local.store(0, std::memory_order_relaxed);
    }
    return harvest;
  }

  void await_harvest_locked(drain_visit<Sync>& section) const noexcept {
    while (state_locked() == grouped) section.await_harvest();
  }

  void settle_locked(drain_visit<Sync>& section) noexcept {
    section.complete_drained();
    // order(fence.state, release): every release, and that this is the last access; pairs with is_drained()
    cells_.gate.store(drained, std::memory_order_release);
  }

  void open_locked() noexcept {
    for (lane& each : cells_.lanes) {
      // order(fence.stripe, release): what preceded the opening, to whoever enters; pairs with enter_stripe()
      each.shared.exchange(0, std::memory_order_release);
    }
    Sync::here("fence.open.wiped");
    const int chosen = chosen_backend();
    // order(fence.state, release): the wiped lanes, and where the cells are; pairs with try_enter()
    cells_.gate.store(chosen, std::memory_order_release);
  }

  int state_locked() const noexcept {
    // order(none, relaxed): written only under the lot lock, which the caller holds (or makes a guess); a first entry
    // that chooses makes one open state of another
    return cells_.gate.load(std::memory_order_relaxed);
  }

  std::uint64_t count_locked() const noexcept {
    if (is_open(state_locked()) || state_locked() == grouped) return estimate();
    // order(fence.remaining, acquire): whoever reads zero may rely on what the leavers did; pairs with
    // leave_closed()
    return static_cast<std::uint64_t>(remaining_.load(std::memory_order_acquire));
  }

  // Exact when nobody enters or leaves at the same time.
  std::uint64_t estimate() const noexcept {
    const bool by_cells = state_locked() == per_cpu || state_locked() == grouped;  // at rest they are zero
    // order(fence.remaining, acquire): passes carried over, and what their leavers did; pairs with leave_closed()
    std::int64_t sum = remaining_.load(std::memory_order_acquire) - bias;
    for (const lane& each : cells_.lanes) {
      // order(fence.stripe, acquire): whoever reads zero may rely on what the leavers did; pairs with leave()
      sum += static_cast<std::int64_t>(each.shared.load(std::memory_order_acquire)) >> 1;
      if (!by_cells) continue;
      // order(fence.stripe, acquire): the same for those who left by a sequence; pairs with leave()
      sum += static_cast<std::int64_t>(each.local.load(std::memory_order_acquire));
    }
    return sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
  }

  cells cells_;  // the first line of it is read by all and written only by a closing and an opening
  alignas(cache_line) typename Sync::template atomic<std::int64_t> remaining_{bias};
  const char* name_;
  lot<Sync>* lot_ = &process_lot<Sync>;  // through the object, so that all shared objects of a process use the same one
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_STRIPED_CORE_HPP
// ---- end curfew/detail/striped_core.hpp

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// Thrown by enter() when the fence is closed. what() carries the fence's name.
class CURFEW_VISIBLE admission_refused : public std::runtime_error {
 public:
  explicit admission_refused(const char* fence)
      : std::runtime_error(*fence != '\0' ? std::string("admission refused: \"") + fence + "\" is closed"
                                          : std::string("admission refused: the fence is closed")) {}
};

/// A gate with a counter. Use it through its aliases, such as `admission_fence`.
///
///     constinit curfew::admission_fence requests{"requests"};
///     if (auto pass = requests.try_enter()) serve();          // any thread
///     if (!requests.drain_for(5s)) log("still inside");       // shutdown: refuse newcomers, wait for the others
///
/// *When not to use it.* To make newcomers wait instead of turning them away: use a reader-writer lock. To protect data
/// between the threads inside: it excludes nobody who was admitted. For a number of tasks known in advance: std::latch.
///
/// *Thread safety.* Every member may be called from any thread at any time, also from inside and from hooks, except
/// the constructor, the destructor and reset_after_fork_in_child(). A thread that waits in drain() while it holds a
/// pass itself waits for itself. try_enter(), clone(), closing() and a release that is not the last one after a closing
/// never lock and may be used in signal handlers, except those of a traced fence.
///
/// *Memory ordering.* For a thread X that releases a pass and a thread Y that is told "drained" (by drain*, by
/// wait_drained_*, by a hook, in a coroutine, or by is_drained()): whatever X did before the release is visible to Y.
/// Whatever preceded the construction, reopen() or cancel_close() that opened the fence is visible to every thread it
/// admits, and whatever preceded close() to every thread it refuses.
///
/// *Destruction* is legal as soon as somebody has been told "drained", on the spot and while the call that released the
/// last pass, or the call that closed it, has not returned yet: neither touches the fence again. It is also legal
/// whenever nobody is inside and nobody waits. With somebody inside the destructor prints name and count (of a traced
/// fence also the sites), and terminates. Hooks that are still registered then never run, coroutines that still wait
/// never go on.
///
/// *Exceptions.* enter() throws admission_refused (or std::bad_alloc, for want of memory for its text), run() and
/// for_each_inside() what their function throws, describe_inside() std::bad_alloc; nothing else throws.
///
/// *Cost.* admission_fence: about 1.1 KiB. Where the process has restartable sequences (Linux on x86-64, glibc 2.35,
/// outside sanitizers) a pass costs two plain additions on a cache line of the CPU, and close() one membarrier;
/// elsewhere, or with CURFEW_FORCE_PORTABLE or CURFEW_FENCE_BACKEND=portable in the environment, a pass costs two
/// atomic additions on a line the thread rarely shares. The first entry of a process looks at the environment and asks
/// the kernel. compact_admission_fence: 16 bytes; a pass costs two read-modify-writes on one line that all share;
/// waiting for one that lives in several shared objects which do not share symbols is not supported. No heap, no
/// thread, no registration of threads. An entry that is refused after close() has returned stores nothing.
///
/// *Source.* The kernel's percpu_ref, with restartable sequences and an expedited membarrier in the place of disabled
/// preemption and a grace period; striped run-down protection with the closed bit inside each stripe.
template <class Core, class Trace = detail::untraced>
class basic_fence : Trace {
  static constexpr const char* kind = Trace::lists ? "traced_admission_fence" : Core::kind;

 public:
  /// Deadlines are of this clock: the steady one.
  using time_point = typename Core::time_point;
  using site = typename Trace::site;  // where a pass was taken: a source_location, or nothing
  class [[nodiscard("curfew: the pass is the admission")]] pass;

  /// Without a name. Not explicit, so that `= {}` makes an array of fences, or an aggregate with one among its members.
  constexpr basic_fence() noexcept : core_("") {}

  /// \p name appears in messages; it is not copied and must outlive the fence.
  constexpr explicit basic_fence(const char* name) noexcept : core_(name) {}
  basic_fence(const basic_fence&) = delete;
  basic_fence& operator=(const basic_fence&) = delete;
  ~basic_fence() {
    if constexpr (Trace::lists) {
      if (const std::uint64_t count = core_.inside(); count != 0) fail_listing(count);
    }
  }

  /// An empty pass when closed. Never blocks; a pass already held does not help, see pass::clone().
  [[nodiscard("curfew: the pass is the admission")]] pass try_enter(site where = site::current()) noexcept {
    return pass(core_.try_enter() ? this : nullptr, where);
  }

  /// Throws admission_refused when closed.
  [[nodiscard("curfew: the pass is the admission")]] pass enter(site where = site::current()) {
    if (!core_.try_enter()) refuse();
    return pass(this, where);
  }

  /// Calls \p f inside; false, and no call, when closed. The pass is given back when f returns or throws.
  template <class F>
  bool run(F&& f, site where = site::current()) {
    const pass inside = try_enter(where);
    if (!inside) return false;
    static_cast<void>(std::forward<F>(f)());
    return true;
  }

  /// Refuses every entry that happens after this returned. True for the one call that closed it.
  bool close() noexcept { return core_.close(); }

  /// Closes each as close() does; where that restarts the sequences of all threads, once for up to 64 fences. Hooks
  /// and coroutines that come due run when all of them are closed; of more than 64 fences, those of each 64 before the
  /// next 64 are closed, so that they must not wait for these. The pointers must not be null.
  static void close_all(std::span<basic_fence* const> fences) noexcept {
    for (basic_fence* fence : fences) {
      if (fence == nullptr) detail::fail("close_all: null pointer to a fence");
    }
    Core::close_group(fences.size(), [fences](std::size_t i) noexcept -> Core& { return fences[i]->core_; });
  }

  /// Closes, then waits until nobody is inside. Returns early only if cancel_close() admits again meanwhile; where that
  /// can happen use drain_for(), which tells.
  void drain() noexcept { static_cast<void>(core_.wait(time_point::max(), true)); }

  /// Closes, then waits at most \p span; a span that is not positive closes and looks once. Every one of any number of
  /// callers learns about the closing it saw, even if the fence has been reopened before it gets to run again.
  template <class Rep, class Period>
  drain_result drain_for(std::chrono::duration<Rep, Period> span) noexcept {
    return core_.wait(detail::deadline_after<typename Core::clock>(span), true);
  }
  drain_result drain_until(time_point deadline) noexcept { return core_.wait(deadline, true); }

  /// Waits until the fence is closed and empty, but leaves the closing to somebody else.
  template <class Rep, class Period>
  drain_result wait_drained_for(std::chrono::duration<Rep, Period> span) noexcept {
    return core_.wait(detail::deadline_after<typename Core::clock>(span), false);
  }
  drain_result wait_drained_until(time_point deadline) noexcept { return core_.wait(deadline, false); }

  /// From drained to open, which begins a new epoch. False, and no effect, unless is_drained().
  bool reopen() noexcept { return core_.reopen(); }

  /// From closed to open while somebody is inside; their passes stay counted. Threads that wait for this epoch get
  /// `reopened`, hooks stay. False, and no effect, when open or when the last one has left.
  bool cancel_close() noexcept { return core_.cancel_close(); }

  /// Whether entries are refused now.
  [[nodiscard("curfew: only asks, close() closes")]] bool is_closed() const noexcept { return core_.is_closed(); }

  /// Closed, nobody inside, and the last leaver is done with the fence.
  [[nodiscard("curfew: only asks, drain() waits")]] bool is_drained() const noexcept { return core_.is_drained(); }

  /// Passes out. Exact when closed; an estimate while threads enter and leave.
  std::uint64_t inside() const noexcept { return core_.inside(); }

  /// What the constructor was given.
  const char* name() const noexcept { return core_.name(); }

  /// Calls \p f with the occupant of each pass out, at any time and with no lock held: f may enter and release. Who
  /// stays inside meanwhile is seen once, who comes or goes may be missed; a pass for whose record there was no memory
  /// is not seen. Whatever f throws passes through.
  template <class F>
  requires(Trace::lists) void for_each_inside(F&& f) const { Trace::for_each(f); }

  /// For logs, say when a drain has timed out: name and count, and for a traced fence a line for each pass, with its
  /// site, the thread that took it and its age. May throw std::bad_alloc.
  std::string describe_inside() const {
    std::string text = (*name() != '\0' ? name() : "(no name)") + (": " + std::to_string(inside())) + " inside\n";
    if constexpr (Trace::lists) {
      for_each_inside([&text](const auto& one) {
        char line[512];
        Trace::describe(one, line, sizeof line);
        ((text += "  ") += line) += '\n';
      });
    }
    return text;
  }

  /// Registers \p hook for the next time the fence is closed and empty; it may come before close(). When that is so
  /// already it runs right here and the result is false. Registering one twice terminates.
  bool on_drained(drain_hook& hook) noexcept { return core_.on_drained(hook); }

  /// True when \p hook was registered here and will now never run. False says that it has run, is running or is about
  /// to run (or was never registered): it must then not be destroyed before it has itself told that it has run.
  bool cancel(drain_hook& hook) noexcept { return core_.cancel(hook); }

  /// `co_await fence.drained()` goes on when the fence is next closed and empty, at once if it is now; it closes
  /// nothing. What was said about hooks holds: it may be awaited before close(), stays across a cancel_close(), goes on
  /// even if the fence is reopened before it gets to run, and the coroutine may destroy the fence, and itself, as soon
  /// as it goes on. Destroying the suspended coroutine ends the wait; that must not be done while it may be about to go
  /// on, so by somebody who holds a pass, or before anybody closes. Nothing is allocated.
  ///
  /// It goes on in the release, close() or drain*() that emptied the fence, with no lock held. With \p resume, which is
  /// called there with the coroutine's handle instead and must not throw, it goes on wherever that sends it; as it is
  /// moved from by then, what this returned must not be awaited again.
  [[nodiscard("curfew: nothing waits before it is awaited")]] auto drained() noexcept {
    return drained(detail::resume_here{});
  }
  template <class Resume>
  requires std::is_nothrow_invocable_v<Resume&, std::coroutine_handle<>> && std::is_nothrow_move_constructible_v<Resume>
  [[nodiscard("curfew: nothing waits before it is awaited")]] auto drained(Resume resume) noexcept {
    return detail::drain_awaitable<Core, Resume>(core_, std::move(resume));
  }

  /// To be called in a forked child, for each fence, before anything else is done with fences and before the child has
  /// a second thread: forgets the threads that the child does not have, and every hook. \p held_by_caller is the number
  /// of passes that live on in the forking thread. Without it a child may only `_exit` or exec.
  void reset_after_fork_in_child(std::uint64_t held_by_caller) noexcept {
    if constexpr (Trace::lists) Trace::reset_after_fork();
    core_.reset_after_fork_in_child(held_by_caller);
  }

 private:
  [[noreturn]] CURFEW_COLD void refuse() const { CURFEW_THROW(admission_refused(name())); }

  [[noreturn]] CURFEW_COLD void fail_listing(std::uint64_t count) const noexcept {
    detail::report_occupied(kind, name(), count);
    for_each_inside([](const auto& one) noexcept {
      char line[512];
      Trace::describe(one, line, sizeof line);
      std::fprintf(stderr, "  %s\n", line);
    });
    std::terminate();
  }

  Core core_;
};

/// The right to be inside, given back by the destructor. Movable, from any thread; moved-from is empty. One pass object
/// must not be used by two threads at once. Must not outlive its fence (which sees to it).
template <class Core, class Trace>
class basic_fence<Core, Trace>::pass : Trace::ticket {
  using ticket = typename Trace::ticket;

 public:
  pass() noexcept = default;
  pass(pass&& other) noexcept : ticket(other), fence_(std::exchange(other.fence_, nullptr)) {}
  pass& operator=(pass&& other) noexcept {
    pass taken(std::move(other));  // before the old one goes, for what is assigned to itself
    std::swap(static_cast<ticket&>(*this), static_cast<ticket&>(taken));
    std::swap(fence_, taken.fence_);
    return *this;
  }
  // Not made empty first, as release() does for a hook that looks at the pass while it runs in there: nobody may use,
  // or end again, an object whose destructor has begun, and leaving does not look at it either.
  ~pass() {
    if (fence_ != nullptr) give_back(fence_);
  }

  /// One more for the same fence. Succeeds also when that is closed: it fans out work that was already admitted. An
  /// empty pass makes an empty one.
  pass clone(site where = site::current()) const noexcept {
    if (fence_ != nullptr) fence_->core_.clone();
    return pass(fence_, where);
  }

  /// Gives the pass back; nothing for an empty one. The fence may be gone when this returns, and this pass with it.
  void release() noexcept {
    if (basic_fence* fence = std::exchange(fence_, nullptr); fence != nullptr) give_back(fence);
  }

  /// Whether the fence is closed, so that idle insiders can leave early. False for an empty pass.
  bool closing() const noexcept { return fence_ != nullptr && fence_->core_.is_closed(); }

  explicit operator bool() const noexcept { return fence_ != nullptr; }

 private:
  friend class basic_fence;
  pass(basic_fence* fence, [[maybe_unused]] site where) noexcept : fence_(fence) {
    if constexpr (Trace::lists) {
      Core::sync::here("fence.traced.counted");
      if (fence != nullptr) fence->note(*this, where);
    }
  }

  // The last that is done with this pass.
  void give_back(basic_fence* fence) noexcept {
    if constexpr (Trace::lists) fence->forget(*this);
    fence->core_.leave();
  }

  basic_fence* fence_ = nullptr;
};

/// admission_fence over another seam, for tests.
template <class Sync = std_sync>
using basic_admission_fence = basic_fence<detail::striped_core<Sync>>;

/// compact_admission_fence over another seam.
template <class Sync = std_sync>
using basic_compact_admission_fence = basic_fence<detail::compact_core<Sync>>;

/// traced_admission_fence over another seam.
template <class Sync = std_sync>
using basic_traced_admission_fence = basic_fence<detail::striped_core<Sync>, detail::occupants<Sync>>;

/// For the fences of a program: few, entered often and from many threads.
using admission_fence = basic_admission_fence<>;

/// For one fence per object and millions of objects.
using compact_admission_fence = basic_compact_admission_fence<>;

/// An admission_fence that knows who is inside: for_each_inside(), and the sites in describe_inside() and in the
/// message of a destructor that finds somebody. Costs a lock that few threads share and 48 bytes of heap for each pass,
/// kept until the fence goes; none of it is for signal handlers. For the fence whose drain hangs, not for the one that
/// is hot.
using traced_admission_fence = basic_traced_admission_fence<>;

static_assert(sizeof(compact_admission_fence) == 16 || sizeof(void*) != 8, "curfew: one word and a name");
static_assert(sizeof(admission_fence) <= 1536 || detail::cache_line != 64, "curfew: at most 1.5 KiB");
static_assert(sizeof(traced_admission_fence::pass) == 2 * sizeof(void*));
static_assert(sizeof(admission_fence::pass) == sizeof(void*) && sizeof(compact_admission_fence::pass) == sizeof(void*));

CURFEW_END_NAMESPACE

#endif  // CURFEW_ADMISSION_FENCE_HPP
// ---- end curfew/admission_fence.hpp

// ---- begin curfew/guarded_singleton.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `guarded_singleton<T>` and `scoped_singleton<T>`: one current instance, made on demand by racing threads, replaced,
/// reset and shut down while others use it. Protocol and argument: docs/design/guarded_singleton.md.

#ifndef CURFEW_GUARDED_SINGLETON_HPP
#define CURFEW_GUARDED_SINGLETON_HPP

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

// curfew/admission_fence.hpp: above

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/singleton_engine.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a singleton does with its core: the hit path, creation by racing threads, and the order of every detach. The
/// public face is guarded_singleton.hpp.

#ifndef CURFEW_DETAIL_SINGLETON_ENGINE_HPP
#define CURFEW_DETAIL_SINGLETON_ENGINE_HPP

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/singleton_core.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The heap part of a singleton: blocks, the free list, generations, and the transitions between them. Knows nothing of
/// factories and callbacks. docs/design/guarded_singleton.md has the protocol and the argument.

#ifndef CURFEW_DETAIL_SINGLETON_CORE_HPP
#define CURFEW_DETAIL_SINGLETON_CORE_HPP

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/drain.hpp: above

// ---- begin curfew/detail/singleton_domain.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the singletons of a process share: one short lock for everything that is not the hit path, the per-thread
/// record of what is being created, the waits for another thread's creation, and the fork handlers. Nothing here
/// depends on the type of an instance. The argument is in docs/design/guarded_singleton.md.

#ifndef CURFEW_DETAIL_SINGLETON_DOMAIN_HPP
#define CURFEW_DETAIL_SINGLETON_DOMAIN_HPP

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

// curfew/detail/cancel_shield.hpp: above

// curfew/detail/config.hpp: above

// curfew/detail/lot.hpp: above

// curfew/detail/sync.hpp: above

#if CURFEW_POSIX
#include <pthread.h>
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class singleton_domain;
template <class Sync>
struct singleton_node;
template <class Sync>
struct creation_frame;

/// Registers the fork handlers while whatever uses singletons is being loaded, and not only when the first one is used:
/// of handlers that take locks, those that were registered first take theirs last. Those of a program that also calls
/// singletons with its locks held have to take them before ours, so ours have to be older.
template <class Sync>
struct fork_handlers {
  static const bool registered_at_load;
};

/// One per thread, zero at birth. Fields are written by their own thread; `waiting_for` only under the domain lock,
/// under which other threads read it while they look for a cycle.
template <class Sync>
struct creation_thread {
  creation_frame<Sync>* innermost;    // what this thread is creating, innermost first
  singleton_node<Sync>* waiting_for;  // whose flight it sleeps for
  const void* forking;                // it is between the fork handlers of this domain, and has its lock
};

/// One creation in progress, in the stack frame of the thread that does it.
template <class Sync>
struct creation_frame {
  singleton_node<Sync>* of = nullptr;
  creation_thread<Sync>* thread = nullptr;
  creation_frame* outer = nullptr;
};

template <class Sync>
struct singleton_waiter {
  typename Sync::condition_variable wake;
  bool woken = false;
  singleton_waiter* next = nullptr;
};

/// The part of a singleton's state that the domain works on. Guarded by the domain lock, except for what never changes.
template <class Sync>
struct singleton_node {
  singleton_node(singleton_domain<Sync>& domain, const char* label, void (*recover)(singleton_node&) noexcept) noexcept
      : home(&domain), name(label), after_fork(recover) {}
  singleton_node(const singleton_node&) = delete;
  singleton_node& operator=(const singleton_node&) = delete;

  singleton_domain<Sync>* const home;  // through the object: two shared objects may each have a domain of their own
  const char* const name;
  void (*const after_fork)(singleton_node&) noexcept;
  creation_frame<Sync>* flight = nullptr;     // the one creation that others wait for
  singleton_waiter<Sync>* waiters = nullptr;  // threads to wake at the next change
  singleton_node* next_node = nullptr;
  singleton_node* prev_node = nullptr;
};

/// The names along a cycle of creations, gathered under the lock and put into words after it.
class creation_chain {
 public:
  void add(const char* name) noexcept {
    names_[size_ < capacity ? size_ : capacity - 1] = name;  // the last one is where the cycle closes
    ++size_;
  }
  void reverse() noexcept { std::reverse(names_, names_ + shown()); }
  bool empty() const noexcept { return size_ == 0; }

  /// `a -> b -> a`
  std::string to_string() const {
    std::string text;
    for (unsigned i = 0; i < shown(); ++i) {
      text.append(label(names_[i])).append(" -> ");
      if (i == 0 && size_ > capacity) text.append("... -> ");
    }
    return text.append(label(names_[0]));
  }

 private:
  unsigned shown() const noexcept { return size_ < capacity ? size_ : capacity; }
  static const char* label(const char* name) noexcept { return *name != '\0' ? name : "(unnamed)"; }
  static constexpr unsigned capacity = 16;
  const char* names_[capacity] = {""};
  unsigned size_ = 0;
};

// Lock order: the domain lock, then a bucket of the lot (a fence is reopened under it). Neither is ever held across
// user code, an allocation, or a wait; no thread holds two domain locks.
template <class Sync>
class singleton_domain {
  struct thread_tag;

 public:
  using thread = creation_thread<Sync>;
  using frame = creation_frame<Sync>;
  using node = singleton_node<Sync>;
  using waiter = singleton_waiter<Sync>;
  using time_point = typename Sync::clock::time_point;

  constexpr singleton_domain() noexcept = default;
  singleton_domain(const singleton_domain&) = delete;
  singleton_domain& operator=(const singleton_domain&) = delete;

  /// The calling thread's record. Through the object, like everything that must be unique: another shared object that
  /// uses a singleton of this domain may have thread-locals of its own.
  thread& self() const noexcept { return self_(); }

  /// A critical section. Between the fork handlers the forking thread has the lock already: handlers of others that
  /// run in between may use singletons, too.
  class section {
   public:
    explicit section(singleton_domain& domain) noexcept : lock_(domain.mutex_, std::defer_lock) {
      if (domain.self().forking == &domain) {
        domain.recover_if_child();
      } else {
        lock_.lock();
      }
    }
    section(const section&) = delete;
    section& operator=(const section&) = delete;

    /// Sleeps until somebody changes \p what; false when \p deadline comes first.
    bool wait(node& what, time_point deadline) noexcept {
      const cancel_shield uncancelled;
      waiter mine;
      mine.next = what.waiters;
      what.waiters = &mine;
      while (!mine.woken) {
        const bool bounded = deadline != time_point::max();
        if (!lock_.owns_lock() || (bounded && Sync::clock::now() >= deadline)) {
          for (waiter** link = &what.waiters; *link != nullptr; link = &(*link)->next) {
            if (*link != &mine) continue;
            *link = mine.next;
            break;
          }
          return false;
        }
        if (bounded) {
          mine.wake.wait_until(lock_, deadline);
        } else {
          mine.wake.wait(lock_);
        }
      }
      return true;
    }

   private:
    std::unique_lock<typename Sync::mutex> lock_;
  };

  /// Makes \p what known to the fork handlers. Registers them if that has not happened yet: a constructor of another
  /// static object may come here before its own translation unit's turn, and memory may have been short.
  void enlist(node& what) noexcept {
    if (!fork_handlers<Sync>::registered_at_load) install_fork_handlers();
    const section locked(*this);
    what.next_node = first_;
    if (first_ != nullptr) first_->prev_node = &what;
    first_ = &what;
  }
  void delist(node& what) noexcept {
    const section locked(*this);
    (what.prev_node != nullptr ? what.prev_node->next_node : first_) = what.next_node;
    if (what.next_node != nullptr) what.next_node->prev_node = what.prev_node;
  }

  /// False when memory is short, or there is no fork here.
  static bool install_fork_handlers() noexcept;

  // The rest is called with the lock held.

  /// Lets every waiter of \p what look again. Notified under the lock: a waiter's condition variable dies with its
  /// frame.
  static void wake_locked(node& what) noexcept {
    for (waiter* each = what.waiters; each != nullptr;) {
      waiter* const next = each->next;
      each->woken = true;
      each->wake.notify_one();
      each = next;
    }
    what.waiters = nullptr;
  }

  /// The chain from \p what back to itself, when this thread is creating it already; otherwise empty.
  static creation_chain recursion_locked(const thread& me, const node& what) noexcept {
    creation_chain chain;
    for (const frame* each = me.innermost; each != nullptr; each = each->outer) {
      chain.add(each->of->name);
      if (each->of != &what) continue;
      chain.reverse();
      return chain;
    }
    return {};
  }

  /// The cycle that would close if this thread waited for the flight of \p what: each flight's thread waits for the
  /// next flight, the last of which is this thread's own. Empty when there is none. A thread that cannot wait at all,
  /// because it holds everything up between the fork handlers, gets the short cycle.
  static creation_chain cycle_locked(const thread& me, const node& what) noexcept {
    creation_chain chain;
    for (const node* each = &what; each != nullptr && each->flight != nullptr;) {
      chain.add(each->name);
      if (each->flight->thread == &me || me.forking != nullptr) return chain;
      each = each->flight->thread->waiting_for;
    }
    return {};
  }

 private:
  void recover_if_child() noexcept {
#if CURFEW_POSIX
    if (unrecovered_ && forked_from_ != ::getpid()) recover();
#endif
  }

  void recover() noexcept {
#if CURFEW_POSIX
    // The first process of a new PID namespace may have its parent's number, and that may have recreated the lot, too.
    process_lot<Sync>.recreate_in_child(forked_from_ == ::getpid());
    forked_from_ = ::getpid();
    unrecovered_ = false;
#endif
    for (node* each = first_; each != nullptr; each = each->next_node) {
      // The threads are gone, and their stacks may be given to new ones.
      each->waiters = nullptr;
      if (each->flight != nullptr && each->flight->thread != &self()) each->flight = nullptr;
      each->after_fork(*each);
    }
  }

  static thread& own_record() noexcept {
    return Sync::template local<thread_tag, thread>();
  }

  typename Sync::mutex mutex_;
  thread& (*const self_)() noexcept = &own_record;
  node* first_ = nullptr;
  typename Sync::template atomic<bool> handlers_installed_{false};
#if CURFEW_POSIX
  // Guarded by the lock.
  pid_t forked_from_ = 0;
  unsigned fork_depth_ = 0;   // handlers of this domain that have run before the fork and not yet after it
  bool unrecovered_ = false;  // between the handlers: true still in the parent, and in the child until it is put right
#endif
};

/// Says that this thread is making an instance of \p of: to its own nested calls and, as a flight, to threads that
/// wait.
template <class Sync>
class creation_scope {
 public:
  explicit creation_scope(singleton_node<Sync>& of) noexcept { frame_.of = &of; }
  creation_scope(const creation_scope&) = delete;
  creation_scope& operator=(const creation_scope&) = delete;
  ~creation_scope() { end(); }

  void begin(creation_thread<Sync>& me) noexcept {
    frame_.thread = &me;
    frame_.outer = std::exchange(me.innermost, &frame_);
  }
  /// Leaves the chain, and lets those who wait go on. What follows, teardown included, may call `get` again.
  void end() noexcept {
    if (flew_) {
      const typename singleton_domain<Sync>::section locked(*frame_.of->home);
      land_locked();
    }
    if (frame_.thread != nullptr) std::exchange(frame_.thread, nullptr)->innermost = frame_.outer;
  }

  void fly_locked() noexcept {
    frame_.of->flight = &frame_;
    flew_ = true;
  }
  bool flies_locked() const noexcept { return frame_.of->flight == &frame_; }
  void land_locked() noexcept {
    flew_ = false;
    if (!flies_locked()) return;  // never flew, or was outdated
    frame_.of->flight = nullptr;
    singleton_domain<Sync>::wake_locked(*frame_.of);
  }

 private:
  creation_frame<Sync> frame_;
  bool flew_ = false;
};

template <class Sync>
CURFEW_VISIBLE inline constinit singleton_domain<Sync> process_singletons{};

template <class Sync>
const bool fork_handlers<Sync>::registered_at_load = singleton_domain<Sync>::install_fork_handlers();

// The lock is taken over a fork, so that the child finds no transition half done and no lock held by nobody. Two
// threads that come here first together may both register: the handlers count, and only the outermost of them acts.
// Nobody is let through before a registration is complete.
template <class Sync>
bool singleton_domain<Sync>::install_fork_handlers() noexcept {
#if CURFEW_POSIX
  // order(none, relaxed): saves registering once more, guards nothing
  if (process_singletons<Sync>.handlers_installed_.load(std::memory_order_relaxed)) return true;
  const int error = ::pthread_atfork(
      [] {
        auto& domain = process_singletons<Sync>;
        if (domain.self().forking != &domain) {
          domain.mutex_.lock();
          domain.forked_from_ = ::getpid();
          domain.unrecovered_ = true;
          domain.self().forking = &domain;
        }
        ++domain.fork_depth_;
      },
      [] {
        auto& domain = process_singletons<Sync>;
        if (--domain.fork_depth_ != 0) return;
        domain.unrecovered_ = false;
        domain.self().forking = nullptr;
        domain.mutex_.unlock();
      },
      [] {
        auto& domain = process_singletons<Sync>;
        // Whatever its number: the first process of a new PID namespace may have its parent's.
        if (domain.unrecovered_) domain.recover();
        if (--domain.fork_depth_ != 0) return;
        domain.self().forking = nullptr;
        domain.mutex_.unlock();
      });
  // Out of memory: forking works as in any program with a lock, and the next singleton tries again.
  // order(none, relaxed): as above
  if (error == 0) process_singletons<Sync>.handlers_installed_.store(true, std::memory_order_relaxed);
  return error == 0;
#else
  return false;
#endif
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_DOMAIN_HPP
// ---- end curfew/detail/singleton_domain.hpp

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// Counters of one singleton, taken together. `made == torn_down + handed_back + live` in every snapshot.
struct singleton_stats {
  std::uint64_t made = 0;             ///< successful makes, and instances accepted by `set` and `override_with`
  std::uint64_t installed = 0;        ///< of these, the ones that became current
  std::uint64_t lost_races = 0;       ///< candidates that met another one already current or starting
  std::uint64_t stale = 0;            ///< candidates outdated while they were being made or started
  std::uint64_t torn_down = 0;        ///< whose teardown has begun; every one of these once
  std::uint64_t handed_back = 0;      ///< previous instances returned by `set` and `detach`
  std::uint64_t teardown_errors = 0;  ///< teardown callbacks that threw
  std::uint64_t live = 0;             ///< the current instance, and those suspended by an override
};

namespace detail {

template <class T, class FenceCore, class Sync>
class singleton_core;

/// The place an instance lives in. Type-stable: reused for other instances, freed only when no thread can hold a
/// pointer to it any more, so that a thread may enter the fence of a block that has long left.
///
///     spare    --candidate made---> holds an instance, fence closed (or never entered)     free list, or one creator's
///     filled   --install----------> fence open, current_ points here
///     current  --override begins--> suspended: fence open, current_ elsewhere  --override ends--> current or detached
///     current  --detach-----------> current_ elsewhere, fence closing, one pass held by the detaching thread
///     detached --last pass left---> instance destroyed --> spare
template <class T, class FenceCore, class Sync>
struct singleton_block {
  using core = singleton_core<T, FenceCore, Sync>;

  explicit singleton_block(core& of) noexcept : owner(of), fence(of.name), drained(&core::on_block_drained, this) {}
  singleton_block(const singleton_block&) = delete;
  singleton_block& operator=(const singleton_block&) = delete;

  // Written while nobody else can reach the block: by its creator before install, by the last leaver after everybody.
  std::unique_ptr<T> instance;
  core& owner;
  // Guarded by the domain lock.
  singleton_block* next = nullptr;     // on the free list or the detached list
  singleton_block* prev = nullptr;     // on the detached list
  singleton_block* sibling = nullptr;  // all blocks of the core
  std::uint64_t ticket = 0;            // order of detaching

  FenceCore fence;
  drain_hook drained;
};

/// What an override remembers until it ends.
template <class Block>
struct singleton_override {
  singleton_override* outer = nullptr;
  Block* suspended = nullptr;
  std::uint64_t interventions = 0;
};

// word              who writes, and when
// current           under the domain lock; read by every get. Null, or an open block whose instance has been started.
// generation        +1 under the domain lock for every call that outdates candidates
// is_sealed         under the domain lock
template <class T, class FenceCore, class Sync>
class singleton_core : public singleton_node<Sync> {
 public:
  using domain = singleton_domain<Sync>;
  using section = typename domain::section;
  using block = singleton_block<T, FenceCore, Sync>;
  using block_word = typename Sync::template atomic<block*>;
  using override_record = singleton_override<block>;
  using time_point = typename Sync::clock::time_point;

  singleton_core(const char* label, block_word& current)
      : singleton_node<Sync>(process_singletons<Sync>, label, &after_fork), current_(&current) {
    this->home->enlist(*this);
  }

  // Only for a core that never came into use, or is orphaned and empty.
  ~singleton_core() {
    this->home->delist(*this);
    while (blocks_ != nullptr) delete std::exchange(blocks_, blocks_->sibling);
  }

  std::uint64_t generation() const noexcept {
    // order(singleton.generation, acquire): what preceded the call that outdated; pairs with outdate()
    return generation_.load(std::memory_order_acquire);
  }
  bool is_sealed() const noexcept {
    // order(singleton.sealed, acquire): what preceded seal or unseal; pairs with set_sealed()
    return sealed_.load(std::memory_order_acquire);
  }

  /// A block that only its holder knows: on its way from the free list to being installed, or back. Throws
  /// std::bad_alloc.
  class spare {
   public:
    explicit spare(singleton_core& owner) : owner_(owner), block_(owner.take_spare()) {}
    spare(const spare&) = delete;
    spare& operator=(const spare&) = delete;
    ~spare() {
      if (block_ == nullptr) return;
      block_->instance.reset();
      owner_.give_spare(block_);
    }
    block& operator*() const noexcept { return *block_; }
    block* operator->() const noexcept { return block_; }
    block& installed() noexcept { return *std::exchange(block_, nullptr); }

   private:
    singleton_core& owner_;
    block* block_;
  };

  // ---- blocks, without the lock ----

  block* take_spare() {
    {
      const section locked(*this->home);
      if (block* const found = free_; found != nullptr) {
        ++spares_out_;
        free_ = found->next;
        return found;
      }
    }
    auto fresh = std::make_unique<block>(*this);
    const section locked(*this->home);
    ++spares_out_;
    fresh->sibling = blocks_;
    return blocks_ = fresh.release();
  }

  void give_spare(block* unused) noexcept {
    const section locked(*this->home);
    --spares_out_;
    unused->next = free_;
    free_ = unused;
  }

  /// Second half of a detach, with the lock released and the pass of detach() still held: refuses stale getters from
  /// now on, and arranges for the end.
  void close(block& taken) noexcept {
    Sync::here("singleton.detach.unlinked");
    taken.fence.close();
    taken.fence.on_drained(taken.drained);
    Sync::here("singleton.detach.closed");
  }

  /// On the last leaver's thread, with no lock held, after the fence's last access.
  static void on_block_drained(void* self) noexcept {
    auto& taken = *static_cast<block*>(self);
    Sync::here("singleton.drained");
    taken.instance.reset();
    taken.owner.retire(taken);
  }

  /// The singleton is gone. Detached instances live on in their handles; the last one ends the core.
  static void orphan(singleton_core* core) noexcept {
    bool last = false, inside = false;
    {
      const section locked(*core->home);
      inside = core->top_ != nullptr;
      core->orphaned_ = !inside;
      last = core->unused();
    }
    // With the lock released: a terminate handler may use singletons.
    if (inside) fail("scoped_singleton destroyed inside an override:", core->name);
    if (last) delete core;
  }

  // ---- everything below is called with the lock held ----

  block* current() const noexcept {
    // order(none, relaxed): changes only under the lock that is held
    return current_->load(std::memory_order_relaxed);
  }

  /// The current block with a pass taken, or null. Its fence is open for as long as it is current.
  block* enter_current() const noexcept {
    block* const now = current();
    if (now != nullptr && !now->fence.try_enter()) fail("closed fence on the current instance of", this->name);
    return now;
  }

  /// What reset, shutdown, set, detach, seal and the two ends of an override have in common: no candidate that is being
  /// made or started now may be installed any more, and nobody needs to wait for it.
  void outdate() noexcept {
    // order(singleton.generation, release): what the caller did before; pairs with generation()
    generation_.store(count() + 1, std::memory_order_release);
    this->flight = nullptr;
    domain::wake_locked(*this);
  }

  void set_sealed(bool sealed) noexcept {
    if (sealed) sealed_since_ = count();
    // order(singleton.sealed, release): what the caller did before; pairs with is_sealed()
    sealed_.store(sealed, std::memory_order_release);
  }

  std::uint64_t count() const noexcept {
    // order(none, relaxed): changes only under the lock that is held
    return generation_.load(std::memory_order_relaxed);
  }
  bool outdated_by_seal(std::uint64_t birth) const noexcept { return sealed_since_ > birth; }

  /// Opens the block's fence and makes it current. The instance is complete and started. Returns the block that was
  /// current until now, detached, with a pass for the caller: it needs close() afterwards. Null when there was none.
  block* install(block& next) noexcept {
    open(next);
    return replace_current(&next);
  }

  /// Takes the current block away; the rest as for install().
  block* detach() noexcept { return replace_current(nullptr); }

  /// Puts \p record on the stack of overrides and makes \p next current; the block that was is out of sight, but open.
  void suspend(override_record& record, block& next) noexcept {
    record.outer = top_;
    record.suspended = current();
    record.interventions = interventions;
    top_ = &record;
    if (record.suspended != nullptr) ++suspended_;
    open(next);
    show(&next);
    domain::wake_locked(*this);
  }

  bool innermost(const override_record& record) const noexcept { return top_ == &record; }

  /// Ends the innermost override. Returns its block, detached, when nobody intervened; else the suspended one, which
  /// nobody wants back.
  block* resume(override_record& record) noexcept {
    top_ = record.outer;
    block* const back = record.suspended;
    if (back != nullptr) --suspended_;
    if (record.interventions == interventions) {
      return replace_current(back);
    }
    if (back != nullptr) {
      if (!back->fence.try_enter()) fail("closed fence on the suspended instance of", this->name);
      link_detached(*back);
    }
    return back;
  }

  std::uint64_t last_ticket() const noexcept { return last_ticket_; }

  /// Detached instances up to that ticket that have not been destroyed.
  std::uint64_t detached_up_to(std::uint64_t ticket) const noexcept {
    std::uint64_t found = 0;
    for (const block* each = first_detached_; each != nullptr && each->ticket <= ticket; each = each->next) ++found;
    return found;
  }

  singleton_stats snapshot() const noexcept {
    singleton_stats copy = stats;
    copy.live = suspended_ + (current() != nullptr ? 1 : 0);
    return copy;
  }

  singleton_stats stats;            // `live` is computed
  bool ending = false;              // the singleton is being destroyed: sealed for good
  std::uint64_t interventions = 0;  // calls that keep an override's end from putting anything back

 private:
  block* replace_current(block* next) noexcept {
    block* const taken = enter_current();
    show(next);
    if (taken != nullptr) link_detached(*taken);
    domain::wake_locked(*this);
    return taken;
  }

  void open(block& next) noexcept {
    if (next.fence.is_closed()) next.fence.reopen();
    Sync::here("singleton.install.opened");
    ++stats.installed;
    --spares_out_;
  }

  void show(block* next) noexcept {
    // order(singleton.current, release): the instance, made and started, or what the call that took one away had done
    // before; pairs with hit()
    current_->store(next, std::memory_order_release);
  }

  void link_detached(block& taken) noexcept {
    taken.ticket = ++last_ticket_;
    taken.next = nullptr;
    taken.prev = last_detached_;
    (last_detached_ != nullptr ? last_detached_->next : first_detached_) = &taken;
    last_detached_ = &taken;
  }

  void retire(block& empty) noexcept {
    bool last = false;
    {
      const section locked(*this->home);
      (empty.prev != nullptr ? empty.prev->next : first_detached_) = empty.next;
      (empty.next != nullptr ? empty.next->prev : last_detached_) = empty.prev;
      empty.prev = nullptr;
      empty.next = free_;
      free_ = &empty;
      domain::wake_locked(*this);
      last = orphaned_ && unused();
    }
    if (last) delete this;
  }

  // Spares that are out are what threads were making or starting that a forked child does not have: leaked there.
  bool unused() const noexcept { return first_detached_ == nullptr && spares_out_ == 0; }

  // In the child the lot has forgotten its parent's hooks. Instances that are still pinned, perhaps by the thread that
  // forked, get theirs back; the others' last leaver is gone, and they stay.
  static void after_fork(singleton_node<Sync>& node) noexcept {
    auto& core = static_cast<singleton_core&>(node);
    for (block* each = core.first_detached_; each != nullptr; each = each->next) {
      if (!each->fence.is_drained()) each->fence.on_drained(each->drained);
    }
  }

  block_word* const current_;
  typename Sync::template atomic<std::uint64_t> generation_{0};
  typename Sync::template atomic<bool> sealed_{false};
  // Guarded by the domain lock.
  std::uint64_t sealed_since_ = 0;  // the generation that the last seal began
  block* blocks_ = nullptr;         // all of them
  block* free_ = nullptr;
  block* first_detached_ = nullptr;  // in the order of their tickets
  block* last_detached_ = nullptr;
  std::uint64_t last_ticket_ = 0;
  override_record* top_ = nullptr;
  std::uint64_t suspended_ = 0;
  std::uint64_t spares_out_ = 0;  // blocks on their way from the free list to being installed, or back
  bool orphaned_ = false;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_CORE_HPP
// ---- end curfew/detail/singleton_core.hpp

// curfew/detail/singleton_domain.hpp: above

// ---- begin curfew/detail/singleton_handle.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The handle of a singleton: a pass of the fence of one block, and access to the instance in it.

#ifndef CURFEW_DETAIL_SINGLETON_HANDLE_HPP
#define CURFEW_DETAIL_SINGLETON_HANDLE_HPP

#include <memory>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/singleton_core.hpp: above

CURFEW_BEGIN_NAMESPACE

namespace detail {
template <class T, class Traits, class FenceCore, class Sync>
class singleton_engine;
}  // namespace detail

/// Pins one instance for as long as it lives: the instance is destroyed when it has been detached and its last handle
/// is gone, on that handle's thread (or on the thread of a `get` that was just then looking at it, which is a pin of a
/// few instructions and may turn out to be the last). Eight bytes, movable to other threads, may be held for hours, and
/// outlives resets, and a `scoped_singleton` too. One handle object must not be used by two threads at once.
template <class T, class FenceCore, class Sync>
class basic_singleton_handle {
 public:
  basic_singleton_handle() noexcept = default;
  basic_singleton_handle(basic_singleton_handle&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  basic_singleton_handle& operator=(basic_singleton_handle&& other) noexcept {
    basic_singleton_handle old(std::exchange(block_, std::exchange(other.block_, nullptr)));
    return *this;
  }
  ~basic_singleton_handle() {
    if (block_ != nullptr) block_->fence.leave();
  }

  /// Access to the instance. An empty handle has none: `get()` is null then, the operators must not be used.
  T& operator*() const noexcept { return *block_->instance; }
  T* operator->() const noexcept { return block_->instance.get(); }
  T* get() const noexcept { return block_ != nullptr ? block_->instance.get() : nullptr; }
  explicit operator bool() const noexcept { return block_ != nullptr; }

  /// One more for the same instance; succeeds also when that is detached. An empty handle makes an empty one.
  basic_singleton_handle clone() const noexcept {
    if (block_ != nullptr) block_->fence.clone();
    return basic_singleton_handle(block_);
  }

  /// The same pin as a shared pointer. A weak pointer made from it pins nothing. Throws std::bad_alloc, and keeps the
  /// handle then.
  std::shared_ptr<T> share() && {
    if (block_ == nullptr) return nullptr;
    T* const instance = get();
    return std::shared_ptr<T>(std::make_shared<basic_singleton_handle>(std::move(*this)), instance);
  }

  /// Whether the instance has been reset, shut down, replaced or handed back, so that idle users can move on. False for
  /// an empty handle. An instance suspended by an override is not detached. Certain once the call that took it away has
  /// returned; `get` may return another one slightly earlier.
  bool detached() const noexcept { return block_ != nullptr && block_->fence.is_closed(); }

  /// Lets go. May run the instance's destructor.
  void release() noexcept {
    if (block* const pinned = std::exchange(block_, nullptr); pinned != nullptr) pinned->fence.leave();
  }

 private:
  template <class, class, class, class>
  friend class detail::singleton_engine;
  using block = detail::singleton_block<T, FenceCore, Sync>;

  explicit basic_singleton_handle(block* pinned) noexcept : block_(pinned) {}

  block* block_ = nullptr;
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_HANDLE_HPP
// ---- end curfew/detail/singleton_handle.hpp

// curfew/detail/sync.hpp: above

// ---- begin curfew/detail/teardown_reason.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The vocabulary of every teardown callback.

#ifndef CURFEW_DETAIL_TEARDOWN_REASON_HPP
#define CURFEW_DETAIL_TEARDOWN_REASON_HPP

// curfew/detail/config.hpp: above

CURFEW_BEGIN_NAMESPACE

/// Why an instance is being torn down. Passed to every teardown callback of the kit.
enum class teardown_reason : unsigned char {
  reset,           ///< asked for by `reset` or `tear_down`
  shutdown,        ///< asked for by `shutdown`
  sealed,          ///< by `seal`: nothing may take the place any more
  replaced,        ///< another instance took its place
  lost_race,       ///< was made at the same time as the instance that won, and never used
  stale,           ///< was made before the reset that it arrived after, and never used
  start_failed,    ///< its start hook threw
  override_ended,  ///< belonged to an override, or was suspended by one, that has ended
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_TEARDOWN_REASON_HPP
// ---- end curfew/detail/teardown_reason.hpp

CURFEW_BEGIN_NAMESPACE

/// Thrown by `get`, `set` and `override_with` after `seal`. what() carries the singleton's name.
class CURFEW_VISIBLE singleton_sealed : public std::runtime_error {
 public:
  explicit singleton_sealed(const char* name)
      : std::runtime_error(std::string("curfew: singleton is sealed: ") + (*name != '\0' ? name : "(unnamed)")) {}
};

/// Thrown by a `get` that could only be answered by the creation that it is part of. what() names the chain, `a -> b ->
/// a`.
class CURFEW_VISIBLE recursive_creation : public std::logic_error {
 public:
  explicit recursive_creation(const std::string& chain) : std::logic_error("curfew: recursive creation: " + chain) {}
};

/// What threads do that find no instance while another one is making it.
enum class creation_mode : unsigned char {
  racing,         ///< make their own; one is installed, the others are torn down. No thread waits for a factory.
  single_flight,  ///< wait. For factories that are too expensive, or too visible outside, to run twice.
};

namespace detail {

template <class T, class Traits, class FenceCore, class Sync>
class singleton_engine {
 public:
  using handle = basic_singleton_handle<T, FenceCore, Sync>;
  using core = singleton_core<T, FenceCore, Sync>;
  using block = typename core::block;
  using section = typename core::section;
  using spare = typename core::spare;
  using override_record = typename core::override_record;
  using domain = singleton_domain<Sync>;
  using creation = creation_scope<Sync>;

  constexpr singleton_engine(const char* name, Traits&& traits) : name_(name), traits_(std::move(traits)) {}
  singleton_engine(const singleton_engine&) = delete;
  singleton_engine& operator=(const singleton_engine&) = delete;

  static constexpr bool has_start = requires(Traits & traits, T& instance) { traits.start(instance); };
  static constexpr bool has_on_reset = requires(Traits & traits, T& instance) { traits.on_reset(instance); };
  static constexpr bool has_on_shutdown = requires(Traits & traits, T& instance) {
    traits.on_shutdown(instance, teardown_reason::shutdown);
  };
  static constexpr bool has_on_error = requires(Traits & traits, std::exception_ptr error) {
    traits.on_error(error, teardown_reason::shutdown);
  };

  static constexpr creation_mode mode() noexcept {
    if constexpr (requires { Traits::creation; }) {
      return Traits::creation;
    } else {
      return creation_mode::racing;
    }
  }

  struct end_result {
    bool ended;   // an instance was detached
    bool sealed;  // the state changed
  };

  /// Takes over the pass that the caller has on that block.
  static handle pin(block* entered) noexcept { return handle(entered); }

  block* current_acquired() const noexcept {
    // order(singleton.current, acquire): the instance, made and started; pairs with show()
    return current_.load(std::memory_order_acquire);
  }

  /// Enters the fence of the current block, or null when there is none. A refusal, or another block being current
  /// afterwards, means that somebody has moved the pointer since: look again. The second look is what makes an entry
  /// count: between the first one and the entry the block may have been suspended, or have been emptied and opened for
  /// another instance that is not installed yet.
  block* hit() noexcept {
    for (;;) {
      block* const seen = current_acquired();
      if (seen == nullptr) return nullptr;
      Sync::here("singleton.hit.loaded");
      if (!seen->fence.try_enter()) continue;
      Sync::here("singleton.hit.entered");
      if (current_acquired() == seen) [[likely]]
        return seen;
      give_back(*seen);
    }
  }
  CURFEW_COLD static void give_back(block& overtaken) noexcept { overtaken.fence.leave(); }

  core* existing() const noexcept {
    // order(singleton.core, acquire): the core as built; pairs with ensured()
    return core_.load(std::memory_order_acquire);
  }

  // Asked from members, and not of the class: a header may name `guarded_singleton<T>`, or its handle, where T is only
  // declared, and T may have one of itself as a static member. What T has is not known there.
  static constexpr void check_traits() noexcept {
    static_assert(sizeof(T) > 0, "curfew: T must be complete where its singleton is used");
    // A callback that is there under its name, but cannot be called as it would be, is a mistake and not a wish.
    static_assert(
        has_start || !requires { &Traits::start; }, "curfew: Traits::start must be callable as start(T&)");
    static_assert(
        has_on_reset || !requires { &Traits::on_reset; }, "curfew: Traits::on_reset must be callable as on_reset(T&)");
    static_assert(
        has_on_shutdown || !requires { &Traits::on_shutdown; },
        "curfew: Traits::on_shutdown must be callable as on_shutdown(T&, teardown_reason)");
    static_assert(
        has_on_error || !requires { &Traits::on_error; },
        "curfew: Traits::on_error must be callable as on_error(std::exception_ptr, teardown_reason)");
  }

  core& ensured() {
    check_traits();
    if (core* const c = existing(); c != nullptr) return *c;
    auto fresh = std::make_unique<core>(name_, current_);
    core* first = nullptr;
    // order(singleton.core, acq_rel): the core as built; pairs with existing()
    if (core_.compare_exchange_strong(first, fresh.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
      return *fresh.release();
    }
    return *first;
  }

  /// The miss. Entered, like what hit() returns, and not yet a handle: one that came from here through memory would
  /// have to live in memory on the hit path, too.
  CURFEW_COLD block* create() {
    core& c = ensured();
    Sync::here("singleton.create.missed");
    for (;;) {
      creation mine(c);
      creation_chain circle;
      bool sealed_now = false;
      std::uint64_t birth = 0;
      {
        section locked(*c.home);
        if (block* const found = c.enter_current(); found != nullptr) return found;
        auto& me = c.home->self();
        sealed_now = c.is_sealed();
        if (!sealed_now) circle = domain::recursion_locked(me, c);
        if (!sealed_now && circle.empty() && c.flight != nullptr) {
          circle = domain::cycle_locked(me, c);
          if (circle.empty()) {
            me.waiting_for = &c;
            Sync::here("singleton.create.waiting");
            locked.wait(c, core::time_point::max());
            me.waiting_for = nullptr;
            continue;
          }
        }
        if (!sealed_now && circle.empty()) {
          birth = c.count();
          mine.begin(me);
          if constexpr (mode() == creation_mode::single_flight) mine.fly_locked();
        }
      }
      if (sealed_now) CURFEW_THROW(singleton_sealed(name_));
      if (!circle.empty()) CURFEW_THROW(recursive_creation(circle.to_string()));

      Sync::here("singleton.create.begun");
      spare candidate(c);
      candidate->instance = traits_.make();
      if (!candidate->instance) CURFEW_THROW(std::logic_error(std::string("curfew: make returned null: ") + name_));
      Sync::here("singleton.create.made");
      if (block* const made = conclude(c, candidate, mine, birth); made != nullptr) return made;
    }
  }

  /// Installs the candidate, or ends it. Null when there is nothing to return and `get` has to start over.
  block* conclude(core& c, spare& candidate, creation& mine, std::uint64_t birth) {
    std::exception_ptr failure;
    teardown_reason fate{};
    block* winner = nullptr;
    for (bool started = !has_start;; started = true) {
      {
        const section locked(*c.home);
        if (failure) {
          fate = teardown_reason::start_failed;
        } else if (c.count() != birth) {
          fate = c.outdated_by_seal(birth) ? teardown_reason::sealed : teardown_reason::stale;
          if (fate == teardown_reason::stale) ++c.stats.stale;
        } else if (c.current() != nullptr || (c.flight != nullptr && !mine.flies_locked())) {
          fate = teardown_reason::lost_race;
          ++c.stats.lost_races;
          winner = c.enter_current();
        } else if (started) {
          ++c.stats.made;
          mine.land_locked();
          c.install(candidate.installed());
          return c.enter_current();
        } else {
          mine.fly_locked();
        }
        if (started || !mine.flies_locked()) {
          ++c.stats.made;
          ++c.stats.torn_down;
          break;
        }
      }
      if constexpr (has_start) {
        Sync::here("singleton.create.starting");
        CURFEW_TRY {
          traits_.start(*candidate->instance);
        }
        CURFEW_CATCH_ALL {
          failure = std::current_exception();
        }
        Sync::here("singleton.create.started");
      }
    }
    mine.end();
    tear_down_quietly(*candidate->instance, fate);
    if (failure) std::rethrow_exception(failure);
    return winner;
  }

  template <class Callback>
  end_result take_current(core& c, teardown_reason reason, Callback&& callback) {
    bool sealed_now = false;
    block* taken = nullptr;
    {
      const section locked(*c.home);
      c.outdate();
      ++c.interventions;
      if (reason == teardown_reason::sealed) {
        sealed_now = !c.is_sealed();
        c.set_sealed(true);
      }
      taken = c.detach();
      if (taken != nullptr) ++c.stats.torn_down;
    }
    if (taken == nullptr) return {false, sealed_now};
    c.close(*taken);
    const handle pinned(taken);
    callback(*pinned);
    return {true, sealed_now};
  }

  end_result end_current(teardown_reason reason) {
    return take_current(ensured(), reason, [&](T& instance) { tear_down(instance, reason); });
  }

  void end_override(override_record& record) noexcept {
    core& c = *existing();
    bool in_order = false;
    block* taken = nullptr;
    {
      const section locked(*c.home);
      in_order = c.innermost(record);
      if (in_order) {
        c.outdate();
        taken = c.resume(record);
        if (taken != nullptr) ++c.stats.torn_down;
      }
    }
    if (!in_order) fail("override ended out of order on", name_);
    if (taken == nullptr) return;
    c.close(*taken);
    const handle pinned(taken);
    tear_down_quietly(*pinned, teardown_reason::override_ended);
  }

  /// Makes \p next current the way \p install says, which also says what that detached.
  template <class Install>
  block* place(std::unique_ptr<T> next, const char* what, Install install) {
    if (!next) CURFEW_THROW(std::invalid_argument(std::string("curfew: ") + what + " was given null: " + name_));
    core& c = ensured();
    spare filled(c);
    filled->instance = std::move(next);
    block* taken = nullptr;
    bool refused = false;
    {
      const section locked(*c.home);
      refused = c.is_sealed();
      if (!refused) {
        c.outdate();
        ++c.stats.made;
        taken = install(c, filled.installed());
      }
    }
    if (refused) CURFEW_THROW(singleton_sealed(name_));
    if (taken != nullptr) c.close(*taken);
    return taken;
  }

  void tear_down(T& instance, teardown_reason reason) {
    CURFEW_TRY {
      if (reason == teardown_reason::reset) {
        if constexpr (has_on_reset) traits_.on_reset(instance);
      } else {
        if constexpr (has_on_shutdown) traits_.on_shutdown(instance, reason);
      }
    }
    CURFEW_CATCH_ALL {
      {
        core& c = *existing();
        const section locked(*c.home);
        ++c.stats.teardown_errors;
      }
      CURFEW_RETHROW;
    }
  }

  void tear_down_quietly(T& instance, teardown_reason reason) noexcept {
    CURFEW_TRY {
      tear_down(instance, reason);
    }
    CURFEW_CATCH_ALL {
      if constexpr (has_on_error) traits_.on_error(std::current_exception(), reason);
    }
  }

  // Both are written once or rarely, and read by every get.
  typename Sync::template atomic<block*> current_{nullptr};
  typename Sync::template atomic<core*> core_{nullptr};
  const char* name_;
  [[no_unique_address]] Traits traits_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_ENGINE_HPP
// ---- end curfew/detail/singleton_engine.hpp

// curfew/detail/sync.hpp: above

// ---- begin curfew/teardown.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Taking a thing away and running its callback: exactly once, on the thread that took it, with no lock held.
///
/// - `detach_then`: one statement, for a slot and a mutex that are already there.
/// - `detach_slot`: a place for at most one value, with its own lock and a teardown callback.
/// - `once_teardown`: "shut down once" for an object with many callers; the others wait for the end instead of racing
/// it.
///
/// The rule behind all three: unlink first, under the lock; run foreign code afterwards, without it. The callback may
/// then use everything it was called from, and a slow one delays nobody who does not want to wait for it.
/// Design notes: docs/design/teardown.md.

#ifndef CURFEW_TEARDOWN_HPP
#define CURFEW_TEARDOWN_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

// curfew/detail/cancel_shield.hpp: above

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/lot.hpp: above

// curfew/detail/sync.hpp: above

// curfew/detail/teardown_reason.hpp: above

CURFEW_BEGIN_NAMESPACE

/// Takes the value out of \p slot under \p mutex, leaving `T{}`, and calls `callback(std::move(value))` with the mutex
/// released. Returns false, and calls nothing, when the slot was empty.
///
/// "Empty" is what a conversion to bool says (pointers, smart pointers, optional, function), or equality with `T{}` for
/// a type without one. Of any number of concurrent callers exactly one gets the value.
///
/// \par Requirements
/// T is default constructible and swappable; neither may throw. `swap` runs under the mutex: for `std::optional<X>`
/// that includes the destructor of the moved-from X, so give an X whose destructor takes the same mutex a `unique_ptr`.
/// \par Exceptions
/// What the callback throws reaches the caller; the slot is empty by then and the value consumed.
template <class Lockable, class T, class F>
bool detach_then(Lockable& mutex, T& slot, F&& callback) CURFEW_EXCLUDES(mutex) {
  static_assert(std::is_invocable_v<F, T>, "curfew: the callback of detach_then must be callable with a T&&");
  T value{};
  {
    const std::lock_guard<Lockable> lock(mutex);
    if constexpr (requires { static_cast<bool>(slot); }) {
      if (!static_cast<bool>(slot)) return false;
    } else {
      if (slot == value) return false;
    }
    using std::swap;
    swap(slot, value);
  }
  static_cast<void>(std::forward<F>(callback)(std::move(value)));
  return true;
}

/// A place for at most one T, and the callback that ends it.
///
/// Use it for a resource that several parties may end, replace or hand over (a connection, a worker, a lease). Not for
/// objects that others are still using while they are ended: that is what `guarded_singleton` adds.
///
/// \par Thread safety
/// All members may be called by any thread at any time, also from the callback and from T's destructor. Only T's move
/// constructor runs under the internal lock and must not call back. The callback may run on two threads at once when a
/// new value was installed and detached while the old one is still being torn down. Nothing here is for signal
/// handlers.
/// \par Memory ordering
/// Whatever happened before `try_install` or `replace` returned true is visible to the callback that ends that value.
/// \par Lifetime
/// The destructor seals. Destroying the slot while another thread is inside a member is a data race, as for any object.
/// \par Exceptions
/// What the callback throws reaches the caller that detached, after the slot has become consistent; the value is
/// consumed. The destructor has no caller and drops the exception: call `seal()` first where it matters.
/// \par Cost
/// One mutex, one allocation per installed value.
template <class T, class Teardown, class Sync = std_sync>
class detach_slot {
 public:
  static_assert(std::is_invocable_v<Teardown&, T&, teardown_reason>,
                "curfew: the callback of a detach_slot must be callable as teardown(T&, teardown_reason)");

  explicit detach_slot(Teardown teardown) : teardown_(std::forward<Teardown>(teardown)) {}
  detach_slot(const detach_slot&) = delete;
  detach_slot& operator=(const detach_slot&) = delete;
  ~detach_slot() {
    // Without the lock: nobody else is inside, unless this is a forked child, where who held it is gone.
    sealed_ = true;
    CURFEW_TRY {
      end(std::move(cell_), teardown_reason::sealed);
    }
    CURFEW_CATCH_ALL {  // nobody to tell
    }
  }

  /// Puts \p value in. False when the slot is occupied or sealed; \p value is untouched then.
  bool try_install(T&& value) { return put(std::move(value), false); }

  /// Puts \p value in and tears down the one that was there (reason `replaced`). False when sealed; \p value is
  /// untouched then. If the callback throws, the new value is in place.
  bool replace(T&& value) { return put(std::move(value), true); }

  /// Takes the value away without a callback; the caller owns its end. If T's move constructor throws, the value stays.
  std::optional<T> take() {
    std::optional<T> taken;
    cell_ptr husk;
    {
      const std::lock_guard<mutex> lock(mutex_);
      if (cell_) taken.emplace(std::move(cell_->value()));
      husk = std::move(cell_);
    }
    return taken;
  }

  /// Detaches the value and runs the callback on it (reason `reset`). True for the one call that ran it.
  bool tear_down() { return end(detach(false), teardown_reason::reset); }

  /// `tear_down` with reason `sealed`; every later install is refused. True for the one call that ran the callback.
  bool seal() { return end(detach(true), teardown_reason::sealed); }

  /// Whether a value is in the slot just now, and whether it was sealed.
  bool has_value() const {
    const std::lock_guard<mutex> lock(mutex_);
    return cell_ != nullptr;
  }
  [[nodiscard("curfew: only asks, seal() seals")]] bool sealed() const {
    const std::lock_guard<mutex> lock(mutex_);
    return sealed_;
  }

 private:
  using mutex = typename Sync::mutex;

  // Storage that is allocated before the lock is taken and filled under it, once the answer is known to be yes: a
  // refused value is never moved from, and nothing of T is destroyed while the lock is held.
  class cell {
   public:
    cell() = default;
    cell(const cell&) = delete;
    cell& operator=(const cell&) = delete;
    ~cell() {
      if (full_) value().~T();
    }
    void fill(T&& from) {
      ::new (static_cast<void*>(bytes_)) T(std::move(from));
      full_ = true;
    }
    T& value() noexcept { return *std::launder(reinterpret_cast<T*>(bytes_)); }

   private:
    alignas(T) unsigned char bytes_[sizeof(T)];
    bool full_ = false;
  };
  using cell_ptr = std::unique_ptr<cell>;

  bool put(T&& value, bool displace) {
    cell_ptr fresh(new cell);
    {
      const std::lock_guard<mutex> lock(mutex_);
      if (sealed_ || (cell_ && !displace)) return false;
      fresh->fill(std::move(value));
      cell_.swap(fresh);
    }
    Sync::here("slot.put.unlocked");
    end(std::move(fresh), teardown_reason::replaced);
    return true;
  }

  cell_ptr detach(bool seal) noexcept {
    const std::lock_guard<mutex> lock(mutex_);
    if (seal) sealed_ = true;
    return std::move(cell_);
  }

  bool end(cell_ptr taken, teardown_reason reason) {
    if (!taken) return false;
    Sync::here("slot.end.detached");
    static_cast<void>(teardown_(taken->value(), reason));
    return true;
  }

  mutable mutex mutex_;
  cell_ptr cell_;        // guarded by mutex_
  bool sealed_ = false;  // guarded by mutex_
  Teardown teardown_;
};

/// What a call to `once_teardown::run` has come to.
enum class teardown_status : unsigned char {
  completed,    ///< this call ran the function to its end
  joined,       ///< another call did; it has ended
  in_progress,  ///< this thread is inside the function already: waiting would never end
  timed_out,    ///< another call is still running the function
  failed,       ///< the call that this one waited for threw; run again to retry
};

/// The shutdown flag, done right: the first caller shuts down, the others come back when it *is* shut down.
///
/// Not for a cheap "already closed?" test on a hot path: that is what a fence is for.
///
///     idle --run--> running --f returned--> done        done is final: later calls answer `joined`
///                   running --f threw-----> idle        joiners of that attempt answer `failed`
///
/// \par Thread safety
/// Any thread may call anything. The function runs with no lock held. A joiner must not be something that the function
/// waits for on another thread; where that may happen, bound it with `run_for`. Not for signal handlers.
/// \par Memory ordering
/// Whatever the function did is visible after `completed`, `joined`, and after `done()` has answered true.
/// \par Lifetime
/// May be destroyed when no call is in progress; a joiner that has returned may do it at once.
template <class Sync = std_sync>
class basic_once_teardown {
 public:
  basic_once_teardown() = default;
  basic_once_teardown(const basic_once_teardown&) = delete;
  basic_once_teardown& operator=(const basic_once_teardown&) = delete;

  /// Runs \p f if nobody has; otherwise waits for the one who does. What \p f throws reaches this caller alone, and the
  /// next `run` tries again.
  template <class F>
  teardown_status run(F&& f) {
    return run_until(clock_time::max(), std::forward<F>(f));
  }

  /// `run` that waits for another runner for at most \p limit (not at all when it is zero or less). A call that becomes
  /// the runner itself is not bounded: cutting a teardown short would leave it half done.
  template <class R, class P, class F>
  teardown_status run_for(std::chrono::duration<R, P> limit, F&& f) {
    return run_until(detail::deadline_after<typename Sync::clock>(limit), std::forward<F>(f));
  }

  /// The function is running or has ended well.
  bool started() const noexcept {
    const std::lock_guard<mutex> lock(mutex_);
    return state_ != state::idle;
  }
  /// It has ended well.
  bool done() const noexcept {
    const std::lock_guard<mutex> lock(mutex_);
    return state_ == state::done;
  }

 private:
  using mutex = typename Sync::mutex;
  using clock_time = typename Sync::clock::time_point;
  enum class state : unsigned char { idle, running, done };

  // Ends the attempt on every way out of the function, thread cancellation included.
  struct attempt {
    basic_once_teardown& self;
    bool ended_well = false;
    ~attempt() {
      // Notified under the lock: a joiner may destroy the object as soon as it can take the lock.
      const std::lock_guard<mutex> lock(self.mutex_);
      self.state_ = ended_well ? state::done : state::idle;
      self.ended_ += 1;
      self.runner_ = {};
      if (!std::exchange(self.awaited_, false)) return;
      self.changed_.notify_all();
    }
  };

  template <class F>
  teardown_status run_until(clock_time deadline, F&& f) {
    {
      std::unique_lock<mutex> lock(mutex_);
      if (state_ == state::done) return teardown_status::joined;
      if (state_ == state::running) {
        if (runner_ == Sync::self()) return teardown_status::in_progress;
        return join(lock, deadline);
      }
      state_ = state::running;
      runner_ = Sync::self();
    }
    attempt mine{*this};
    Sync::here("once.run.started");
    static_cast<void>(std::forward<F>(f)());
    mine.ended_well = true;
    return teardown_status::completed;
  }

  // A joiner belongs to the attempt it met: a retry that succeeds later does not turn its `failed` into `joined`.
  teardown_status join(std::unique_lock<mutex>& lock, clock_time deadline) {
    const detail::cancel_shield uncancelled;
    const std::uint64_t met = ended_;
    Sync::here("once.join.waiting");
    while (ended_ == met) {
      if (deadline == clock_time::max()) {
        awaited_ = true;
        changed_.wait(lock);
      } else if (deadline == clock_time::min() || Sync::clock::now() >= deadline) {
        return teardown_status::timed_out;
      } else {
        awaited_ = true;
        changed_.wait_until(lock, deadline);
      }
    }
    return state_ == state::done && ended_ == met + 1 ? teardown_status::joined : teardown_status::failed;
  }

  mutable mutex mutex_;
  // Never destroyed: the destruction would wait for joiners, which a forked child does not have any more.
  typename Sync::lasting_condition_variable changed_;
  // All guarded by mutex_.
  state state_ = state::idle;
  std::uint64_t ended_ = 0;  // attempts that have ended, well or not
  bool awaited_ = false;     // somebody waits, or has given up, on changed_
  typename Sync::thread_id runner_{};
};

/// The one to use.
using once_teardown = basic_once_teardown<>;

CURFEW_END_NAMESPACE

#endif  // CURFEW_TEARDOWN_HPP
// ---- end curfew/teardown.hpp

CURFEW_BEGIN_NAMESPACE

/// How instances are made and ended. Specialise it, or give `guarded_singleton` a class of your own, which may have
/// state and of which only `make` is required:
///
///     struct pool_traits {
///       static constexpr creation_mode creation = creation_mode::racing;
///       std::unique_ptr<pool> make();                      // null is an error
///       void start(pool&);                                 // winner only, before anybody else can see it
///       void on_reset(pool&);
///       void on_shutdown(pool&, teardown_reason);          // every other end
///       void on_error(std::exception_ptr, teardown_reason) noexcept;   // errors that have no caller
///     };
///
/// All of them run with no lock held, may run on several threads at once, and may call any member of any singleton.
template <class T>
struct singleton_traits {
  /// By `std::make_unique<T>()`.
  static std::unique_ptr<T> make() {
    static_assert(std::is_default_constructible_v<T>,
                  "curfew: T cannot be made by default: give the singleton Traits with a make() of their own");
    return std::make_unique<T>();
  }
  /// `T::start()`, where T has it.
  template <std::same_as<T> U>
  requires requires(U& instance) { instance.start(); }
  static void start(U& instance) { instance.start(); }
  /// `T::reset()`, where T has it.
  template <std::same_as<T> U>
  requires requires(U& instance) { instance.reset(); }
  static void on_reset(U& instance) { static_cast<void>(instance.reset()); }
  /// `T::shutdown()`, where T has it.
  template <std::same_as<T> U>
  requires requires(U& instance) { instance.shutdown(); }
  static void on_shutdown(U& instance, teardown_reason) { static_cast<void>(instance.shutdown()); }
};

namespace detail {

// The fence's protocol without the pass object: a handle names its block, which knows its fence.
template <class Fence>
struct core_of_fence;
template <class Core>
struct core_of_fence<basic_fence<Core>> {
  using type = Core;
};

template <class T, class Traits, class Sync>
using engine_of = singleton_engine<T, Traits, typename core_of_fence<basic_admission_fence<Sync>>::type, Sync>;

/// What both kinds of singleton are: everything but the end of the object itself.
template <class T, class Traits, class Sync>
class singleton_front : private engine_of<T, Traits, Sync> {
  using engine = engine_of<T, Traits, Sync>;
  using core = typename engine::core;
  using block = typename engine::block;

 public:
  /// What get() returns; see basic_singleton_handle.
  using handle = typename engine::handle;
  class [[nodiscard("curfew: the override ends when this does")]] scoped_override;

  /// \p name appears in messages; it is not copied and must outlive the singleton and its handles.
  constexpr explicit singleton_front(const char* name = "",
                                     Traits traits = Traits()) noexcept(std::is_nothrow_move_constructible_v<Traits>)
      : engine(name != nullptr ? name : "", std::move(traits)) {}
  singleton_front(const singleton_front&) = delete;
  singleton_front& operator=(const singleton_front&) = delete;

  /// The current instance, made if there is none. Never empty. Throws what `make` or `start` throw, singleton_sealed,
  /// recursive_creation, std::logic_error when `make` returned null, std::bad_alloc; nothing has changed then.
  ///
  /// A thread that finds an instance takes no lock. One that finds none makes one with nothing locked; when several do,
  /// one candidate is installed, the others are torn down by those who made them (`lost_race`), and all return the
  /// same. A candidate that a reset, shutdown, set, detach, seal or override has overtaken is torn down and the call
  /// starts over.
  [[nodiscard]] handle get() {
    block* found = this->hit();
    if (found == nullptr) [[unlikely]]
      found = this->create();
    return engine::pin(found);
  }

  /// The current instance, or empty. Creates nothing, waits for nobody.
  [[nodiscard("curfew: the handle keeps the instance")]] handle try_get() noexcept { return engine::pin(this->hit()); }

  /// `f(*get())`, pinned while \p f runs. A reference into the instance must not be returned.
  template <class F>
  decltype(auto) with(F&& f) {
    const handle pinned = get();
    return std::invoke(std::forward<F>(f), *pinned);
  }

  /// Takes the current instance away and runs `on_reset` on it, on this thread, before returning; handles may still be
  /// out. True for the one call that took it. A throwing callback reaches the caller, with the instance gone all the
  /// same.
  ///
  /// With no handle out the instance is destroyed before this returns, or else, when a `get` on another thread was just
  /// then taking its look at it, by that `get` a moment later.
  ///
  /// Ordering: a `get` that starts after this returned does not return the old instance, nor one whose making began
  /// before this call, even if there was nothing to take.
  bool reset() { return this->end_current(teardown_reason::reset).ended; }

  /// As `reset`, with `on_shutdown`. Not terminal: a later `get` makes a new instance; see `seal`.
  bool shutdown() { return this->end_current(teardown_reason::shutdown).ended; }

  /// As `shutdown`, and from now on `get` throws singleton_sealed. True for the one call that changed the state.
  bool seal() { return this->end_current(teardown_reason::sealed).sealed; }

  /// True for the one call that changed the state. False while a scoped_singleton is being destroyed.
  bool unseal() {
    core* const c = this->existing();
    if (c == nullptr) return false;
    const section locked(*c->home);
    const bool may = c->is_sealed() && !c->ending;
    if (may) c->set_sealed(false);
    return may;
  }

  /// Makes \p next current and returns the previous instance, not shut down: the caller owns its end. Throws
  /// std::invalid_argument for null; singleton_sealed, with \p next destroyed without a callback; std::bad_alloc.
  handle set(std::unique_ptr<T> next) {
    return engine::pin(this->place(std::move(next), "set", [](core& c, block& filled) {
      ++c.interventions;
      block* const taken = c.install(filled);
      if (taken != nullptr) ++c.stats.handed_back;
      return taken;
    }));
  }

  /// Takes the current instance away without a callback: the caller owns its end. Empty when there was none.
  handle detach() {
    core& c = this->ensured();
    block* taken = nullptr;
    {
      const section locked(*c.home);
      c.outdate();
      ++c.interventions;
      taken = c.detach();
      if (taken != nullptr) ++c.stats.handed_back;
    }
    if (taken != nullptr) c.close(*taken);
    return engine::pin(taken);
  }

  /// Waits until all instances detached before this call, handed back ones included, have been destroyed, or \p limit
  /// has passed; `remaining` counts instances. Who holds a handle waits for itself, and so does a callback, or T's
  /// destructor, of an instance that is still being ended. In a forked child it waits for instances, too, that threads
  /// of the parent had pinned, and which are never destroyed there.
  template <class R, class P>
  drain_result drain_for(std::chrono::duration<R, P> limit) {
    core* const c = this->existing();
    if (c == nullptr) return {drain_status::drained, 0};
    const auto deadline = deadline_after<typename Sync::clock>(limit);
    section locked(*c->home);
    const std::uint64_t ticket = c->last_ticket();
    for (bool waiting = true;;) {
      const std::uint64_t remaining = c->detached_up_to(ticket);
      if (remaining == 0) return {drain_status::drained, 0};
      if (!waiting) return {drain_status::timed_out, remaining};
      Sync::here("singleton.drain.waiting");
      waiting = locked.wait(*c, deadline);
    }
  }

  /// For tests: \p next is the current instance until the returned scope ends, when it is torn down (`override_ended`)
  /// and the one that was current before comes back, unless reset, shutdown, set, detach or seal were called meanwhile:
  /// then nothing comes back, and the suspended one is torn down with `override_ended`. Scopes nest and end in reverse
  /// order; any other order ends the process. Throws as `set` does.
  [[nodiscard("curfew: the override ends when this does")]] scoped_override override_with(std::unique_ptr<T> next) {
    auto record = std::make_unique<override_record>();
    this->place(std::move(next), "override_with", [&record](core& c, block& filled) -> block* {
      c.suspend(*record, filled);
      return nullptr;
    });
    return scoped_override(*this, std::move(record));
  }

  /// Whether there is a current instance just now, and whether `seal` holds.
  bool has_value() const noexcept { return this->current_acquired() != nullptr; }
  [[nodiscard("curfew: only asks, seal() seals")]] bool sealed() const noexcept {
    const core* const c = this->existing();
    return c != nullptr && c->is_sealed();
  }

  /// Grows with every reset, shutdown, set, detach, seal, override begin and end, also when there was no instance.
  std::uint64_t generation() const noexcept {
    const core* const c = this->existing();
    return c != nullptr ? c->generation() : 0;
  }
  /// Counters, taken together.
  singleton_stats stats() const noexcept {
    const core* const c = this->existing();
    if (c == nullptr) return {};
    const section locked(*c->home);
    return c->snapshot();
  }
  /// What the constructor was given.
  const char* name() const noexcept { return this->name_; }

 protected:
  ~singleton_front() = default;

  /// Seals, with errors sent to `on_error`, and leaves what is still pinned to its handles. Traits are not used any
  /// more.
  void end_of_life() noexcept {
    core* const c = this->existing();
    if (c == nullptr) return;
    {
      const section locked(*c->home);
      c->ending = true;  // a callback that unseals would bring an instance to life that nobody ends
    }
    this->take_current(*c, teardown_reason::sealed,
                       [this](T& instance) { this->tear_down_quietly(instance, teardown_reason::sealed); });
    core::orphan(c);
  }

 private:
  using section = typename engine::section;
  using override_record = typename engine::override_record;
};

/// The life of an override. Movable; ends where it is destroyed, at the latest before the singleton. Errors of the
/// teardown go to `on_error`.
template <class T, class Traits, class Sync>
class singleton_front<T, Traits, Sync>::scoped_override {
 public:
  scoped_override(scoped_override&& other) noexcept = default;
  // Assigning a new one over a living one would end the outer before the inner.
  scoped_override& operator=(scoped_override&&) = delete;
  ~scoped_override() {
    if (record_ != nullptr) of_->end_override(*record_);
  }

 private:
  friend class singleton_front;
  scoped_override(singleton_front& of, std::unique_ptr<override_record> record) noexcept
      : of_(&of), record_(std::move(record)) {}

  singleton_front* of_;
  std::unique_ptr<override_record> record_;
};

}  // namespace detail

/// One current T, made on demand.
///
///     constinit curfew::guarded_singleton<pool> pools{"pools"};
///     auto pool = pools.get();        // any thread; pinned while `pool` lives
///     pools.shutdown();               // any thread; runs pool::shutdown() now, frees when the last handle is gone
///
/// *When not to use it.* For an object that lives as long as the program: a function-local static is cheaper to read.
/// For configuration that is only ever swapped: nothing here needs a factory. To serialise the use of the instance: all
/// users have it at the same time, and it may be told to shut down while they do.
///
/// *Thread safety.* Everything may be called by any thread at any time, also from factories, callbacks and T's
/// destructor, all of which run with no lock held. No `get` ever waits for a callback; it waits for another thread only
/// for a `start`, and with `creation_mode::single_flight` for a `make`. A factory must not wait for another thread that
/// calls `get`. Nothing here is for signal handlers.
///
/// *Memory ordering.* Whatever `make` and `start` did is visible to every `get` that returns the instance; whatever the
/// holders of handles did is visible to its destructor.
///
/// *Destruction* is trivial: a static one can be used from constructors and destructors of other statics, from atexit
/// handlers and thread_local destructors, and in a forked child. It, its blocks and its current instance are never
/// freed; use `scoped_singleton` where that matters. Traits must be trivially destructible.
///
/// *After fork* the child goes on as a single thread: instances that were pinned or being started by threads it does
/// not have are leaked, all else works and nothing waits for them. (The kit's own fork handlers are registered when the
/// program is loaded. Handlers of others that are registered before main even begins, and take locks that are also held
/// around calls of singletons, may deadlock.)
///
/// *Exceptions* are described at each member. Errors of callbacks that have no caller go to `on_error` or are
/// swallowed; both are counted in `stats().teardown_errors`.
///
/// *Cost.* `get` on an existing instance: two loads of one word that changes only when the instance does, and one entry
/// of its fence. Detaching: one allocation-free critical section and one fence closing. Per instance alive at the same
/// time: about 1.3 KiB, reused.
///
/// *Source.* Type-stable memory, with run-down protection in place of hazard pointers; instance and teardown rules
/// after the double-checked singletons that had to be repaired for want of them.
template <class T, class Traits = singleton_traits<T>, class Sync = std_sync>
class guarded_singleton : public detail::singleton_front<T, Traits, Sync> {
 public:
  using detail::singleton_front<T, Traits, Sync>::singleton_front;
  ~guarded_singleton() = default;

 private:
  static_assert(std::is_trivially_destructible_v<Traits>,
                "curfew: guarded_singleton is never destroyed and needs trivially destructible Traits");
};

/// The same with an end: for a member of an application object, or a test. The destructor seals, which runs
/// `on_shutdown(sealed)` on the current instance, and returns; handles that are still out stay valid and the last one
/// frees everything. It must not race other members or end inside an override.
template <class T, class Traits = singleton_traits<T>, class Sync = std_sync>
class scoped_singleton : public detail::singleton_front<T, Traits, Sync> {
 public:
  using detail::singleton_front<T, Traits, Sync>::singleton_front;
  ~scoped_singleton() { this->end_of_life(); }
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_GUARDED_SINGLETON_HPP
// ---- end curfew/guarded_singleton.hpp

// ---- begin curfew/ordered_lifespan.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `ordered_lifespan` owns a process's start and stop: stages start in the order of what they need, and on SIGTERM,
/// SIGINT or a call they are closed, drained and stopped in exactly the reverse order, each within its slice of one
/// clock, whatever the others do. Design: docs/design/ordered_lifespan.md.

#ifndef CURFEW_ORDERED_LIFESPAN_HPP
#define CURFEW_ORDERED_LIFESPAN_HPP

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

// curfew/admission_fence.hpp: above

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/lifespan_core.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What those who wait for signals do about them: in wait(), or in an event loop by poll_signals().

#ifndef CURFEW_DETAIL_LIFESPAN_CORE_HPP
#define CURFEW_DETAIL_LIFESPAN_CORE_HPP

#include <chrono>
#include <exception>
#include <mutex>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/lifespan_exit.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Leaving the process without the help of threads that may hang.

#ifndef CURFEW_DETAIL_LIFESPAN_EXIT_HPP
#define CURFEW_DETAIL_LIFESPAN_EXIT_HPP

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/signal_table.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What there is once per process about signals: who owns them, what their dispositions were before, and whether this
/// is still the process that took them. Design and the argument for async-signal-safety: docs/design/signals.md.

#ifndef CURFEW_DETAIL_SIGNAL_TABLE_HPP
#define CURFEW_DETAIL_SIGNAL_TABLE_HPP

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

// curfew/detail/config.hpp: above

// curfew/detail/sync.hpp: above

#if CURFEW_POSIX
#include <signal.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Signals are numbered 1 to 64 at most, one bit each.
inline constexpr int signal_limit = 65;
constexpr bool is_signal(int signo) noexcept {
  return signo > 0 && signo < signal_limit;
}
constexpr std::uint64_t signal_bit(int signo) noexcept {
  return is_signal(signo) ? std::uint64_t{1} << (signo - 1) : 0;
}

/// The signal that may mean "reload", 0 where there is none.
#if CURFEW_POSIX
inline constexpr int hangup_signal = SIGHUP;
#else
inline constexpr int hangup_signal = 0;
#endif

/// "SIGTERM" for those that people send, "signal 42" for the others.
inline std::string signal_name(int signo) {
  switch (signo) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
#if CURFEW_POSIX
    case SIGHUP:
      return "SIGHUP";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
#endif
    default:
      return "signal " + std::to_string(signo);
  }
}

#if CURFEW_POSIX

using signal_handler = void (*)(int);

inline sigset_t signal_set(std::uint64_t bits) noexcept {
  sigset_t set;
  sigemptyset(&set);
  for (int signo = 1; signo < signal_limit; ++signo) {
    if ((bits & signal_bit(signo)) != 0) sigaddset(&set, signo);
  }
  return set;
}

/// Installed for every signal the kit takes: SA_RESTART spares foreign system calls, SA_ONSTACK small stacks, and the
/// full mask keeps handlers from nesting.
inline struct sigaction disposition_of(signal_handler handler) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  return action;
}

/// Makes the disposition of \p signo what it was when \p before was asked for, bit for bit. glibc adds a flag of its
/// own to everything it installs, also where there is no handler that could need it; that one is taken off again.
inline void put_back(int signo, const struct sigaction& before) noexcept {
  ::sigaction(signo, &before, nullptr);
#if defined(__linux__) && defined(__x86_64__)
  struct sigaction now {};
  if (::sigaction(signo, nullptr, &now) != 0 || now.sa_flags == before.sa_flags) return;
  if (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN) return;
  struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    std::uint64_t mask;
  } raw{};
  if (::syscall(SYS_rt_sigaction, signo, nullptr, &raw, sizeof raw.mask) != 0) return;
  raw.flags = static_cast<unsigned>(before.sa_flags);
  raw.restorer = nullptr;
  std::memcpy(&raw.mask, &before.sa_mask, sizeof raw.mask);  // a sanitizer in between has filled it
  ::syscall(SYS_rt_sigaction, signo, &raw, nullptr, sizeof raw.mask);
#endif
}

inline bool has_disposition(int signo, signal_handler handler) noexcept {
  struct sigaction now {};
  return ::sigaction(signo, nullptr, &now) == 0 && now.sa_handler == handler;
}

/// Lives for ever and is only ever reached through the one object below. Its atomics are those of the production
/// policy whatever the policy of the owner: a handler may interrupt any thread at any instruction, also one that a
/// policy is just moving about.
///
/// - `owner`: pid of the process whose lifespan owns signals; 0: nobody. Another pid: left over from before a fork.
/// - `owned`: the signals `shutdown_owned` answers for; written before `owner`.
/// - `bell`: where a handler rings; -1 while nobody listens.
/// - `running`: handlers between their first and their last access to anything here. The bell is closed only after the
///   owner has withdrawn it and has seen this at 0.
/// - `mark`: an int in a page that a fork wipes. 1 in the process that took the signals, 0 in its children; null where
///   the system cannot do that and the handler has to ask for the pid.
/// - `restored`: the handlers that were put back when the last owner went, for stragglers; see step_aside().
/// - `reading`, `changing`: scans of the environment under way (see environment_scan), and whether this shared object
///   is changing it. A scan that finds `changing` set gives up, since then it is this object that owns; a change waits
///   for scans to end.
/// - `process`: the process that `running` and `changing` are about; a forked child starts them afresh.
/// - `released`: told, under the lock, that the owner has gone and dispositions are as they were; null: nobody asked.
/// - `lock`: pid of the thread's process while dispositions are changed, 0 when free; never taken in a handler. A child
///   that inherits it held takes it over.
struct signal_table {
  template <class T>
  using atomic = std_sync::atomic<T>;

  atomic<int> owner{0};
  atomic<std::uint64_t> owned{0};
  atomic<int> bell{-1};
  atomic<unsigned> running{0};
  atomic<atomic<int>*> mark{nullptr};
  atomic<std::uint64_t> reading{0};
  atomic<bool> changing{false};
  atomic<int> process{0};
  atomic<signal_handler> restored[signal_limit]{};
  atomic<void (*)() noexcept> released{nullptr};
  atomic<int> lock{0};

  // Guarded by `lock`: what was there before, and which of the owned signals were really taken.
  struct sigaction saved[signal_limit] {};
  std::uint64_t taken = 0;
  signal_handler handler = nullptr;

  /// Async-signal-safe. No system call where `mark` works.
  bool in_owner_process() const noexcept {
    const int pid = owner.load(std::memory_order_seq_cst);
    if (pid == 0) return false;
    const atomic<int>* page = mark.load(std::memory_order_seq_cst);
    return page != nullptr ? page->load(std::memory_order_seq_cst) == 1 : pid == ::getpid();
  }
};
static_assert(std_sync::atomic<int>::is_always_lock_free && std_sync::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::is_trivially_destructible_v<signal_table>);

CURFEW_VISIBLE inline constinit signal_table process_signals{};

/// Bounds a handler's stay, so that the owner can tell when none is left.
class handler_scope {
 public:
  handler_scope() noexcept : errno_(errno) { process_signals.running.fetch_add(1, std::memory_order_seq_cst); }
  handler_scope(const handler_scope&) = delete;
  handler_scope& operator=(const handler_scope&) = delete;
  ~handler_scope() {
    process_signals.running.fetch_sub(1, std::memory_order_seq_cst);
    errno = errno_;
  }

 private:
  int errno_;
};

/// After the caller has withdrawn what handlers use: returns when none that may have seen it is still running. Ends,
/// because a handler never waits for anything.
inline void await_handlers() noexcept {
  while (process_signals.running.load(std::memory_order_seq_cst) != 0) std_sync::yield();
}

/// What the owner's handler does when there is no owner. In a forked child: lets the signal do what it does by default.
/// In the owner's process, later: a straggler, whose frame was made before its disposition was restored, raises the
/// signal again for the restored one; so does a handler that somebody had saved and put back, with the default. Called
/// by somebody else's handler, which is what is left, it does nothing: raising would only bring that one back.
inline void step_aside(int signo, signal_handler self) noexcept {
  struct sigaction now {};
  ::sigaction(signo, nullptr, &now);
  const int owner = process_signals.owner.load(std::memory_order_seq_cst);
  if (owner == ::getpid()) {
    // A straggler too, and the next owner has come meanwhile: whatever it has put there by then gets the signal.
  } else if (owner != 0 || now.sa_handler == self) {
    struct sigaction original {};
    original.sa_handler = SIG_DFL;
    ::sigaction(signo, &original, nullptr);
  } else if (now.sa_handler != process_signals.restored[signo].load(std::memory_order_seq_cst)) {
    return;
  }
  ::raise(signo);  // blocked until this handler returns
}

class disposition_lock {
 public:
  disposition_lock() noexcept {
    const int self = ::getpid();
    for (int holder = 0; !process_signals.lock.compare_exchange_weak(holder, self, std::memory_order_seq_cst,
                                                                     std::memory_order_seq_cst);) {
      if (holder == self) {
        holder = 0;
        std_sync::yield();
      }
    }
    if (process_signals.process.exchange(self, std::memory_order_seq_cst) == self) return;
    process_signals.running.store(0, std::memory_order_seq_cst);
    process_signals.changing.store(false, std::memory_order_seq_cst);
  }
  disposition_lock(const disposition_lock&) = delete;
  disposition_lock& operator=(const disposition_lock&) = delete;
  ~disposition_lock() { process_signals.lock.store(0, std::memory_order_seq_cst); }
};

/// Unblocks \p bits on the calling thread and returns those that were blocked.
inline std::uint64_t unblock_signals(std::uint64_t bits) noexcept {
  const sigset_t set = signal_set(bits);
  sigset_t before;
  if (::pthread_sigmask(SIG_UNBLOCK, &set, &before) != 0) return 0;
  std::uint64_t blocked = 0;
  for (int signo = 1; signo < signal_limit; ++signo) {
    if ((bits & signal_bit(signo)) != 0 && sigismember(&before, signo) == 1) blocked |= signal_bit(signo);
  }
  return blocked;
}

inline void block_signals(std::uint64_t bits) noexcept {
  const sigset_t set = signal_set(bits);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

/// Ends the process by the default action of \p signo, as if it had never been caught. Process 1, to which default
/// actions do not apply, leaves with the code a shell would report.
[[noreturn]] inline void die_by_signal(int signo) noexcept {
  struct sigaction original {};
  original.sa_handler = SIG_DFL;
  ::sigaction(signo, &original, nullptr);
  unblock_signals(signal_bit(signo));
  ::raise(signo);
  std::_Exit(128 + signo);
}

#else

using signal_handler = void (*)(int);

inline std::uint64_t unblock_signals(std::uint64_t) noexcept {
  return 0;
}
inline void block_signals(std::uint64_t) noexcept {}
[[noreturn]] inline void die_by_signal(int signo) noexcept {
  std::_Exit(128 + signo);
}

#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SIGNAL_TABLE_HPP
// ---- end curfew/detail/signal_table.hpp

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Writes out what stdio holds, but does not wait for a stream that somebody who hangs has locked.
template <class Sync>
void flush_stdio(std::chrono::milliseconds limit = std::chrono::milliseconds(100)) noexcept {
  struct progress {
    typename Sync::mutex mutex;
    typename Sync::condition_variable ended;
    bool over = false;
  };
  CURFEW_TRY {
    const auto shared = std::make_shared<progress>();
    typename Sync::thread([shared] {
      std::fflush(stdout);
      std::fflush(nullptr);
      const std::lock_guard lock(shared->mutex);
      shared->over = true;
      shared->ended.notify_all();
    }).detach();
    std::unique_lock lock(shared->mutex);
    shared->ended.wait_until(lock, Sync::clock::now() + limit, [&] { return shared->over; });
  }
  CURFEW_CATCH_ALL {  // no thread: better to lose a line than not to leave
  }
}

/// Past static destructors, which must not run under the feet of a hook that was given up.
template <class Sync>
[[noreturn]] void leave_at_once(int code) noexcept {
  flush_stdio<Sync>();
  std::_Exit(code);
}

template <class Sync>
[[noreturn]] void leave_by_signal(int signo) noexcept {
  flush_stdio<Sync>();
  die_by_signal(signo);
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_EXIT_HPP
// ---- end curfew/detail/lifespan_exit.hpp

// ---- begin curfew/detail/lifespan_family.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Lifespans inside lifespans. A child is driven by the hooks of its stage in the parent, one barrier at a time; when
/// the parent gives such a hook up, what is left of the child is for the thread that is still inside.

#ifndef CURFEW_DETAIL_LIFESPAN_FAMILY_HPP
#define CURFEW_DETAIL_LIFESPAN_FAMILY_HPP

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/lifespan_engine.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Drives the stages: layers up, and down again through three barriers. Whoever is inside start() or stop() is the
/// controller; `busy_` makes that one thread at a time.

#ifndef CURFEW_DETAIL_LIFESPAN_ENGINE_HPP
#define CURFEW_DETAIL_LIFESPAN_ENGINE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/lifespan_graph.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The stages as they were declared, and the layers that follow from their `after` lists.

#ifndef CURFEW_DETAIL_LIFESPAN_GRAPH_HPP
#define CURFEW_DETAIL_LIFESPAN_GRAPH_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/lifespan_types.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The vocabulary of ordered_lifespan: states, phases, outcomes, options, what a hook is told, what an observer is
/// told.

#ifndef CURFEW_DETAIL_LIFESPAN_TYPES_HPP
#define CURFEW_DETAIL_LIFESPAN_TYPES_HPP

#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/stop_token.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// std::stop_token, or a sentence that says why it is missing: libc++ has it from LLVM 18 on, at first only with a
/// flag. Of the primitives, ordered_lifespan and periodic_worker need it.

#ifndef CURFEW_DETAIL_STOP_TOKEN_HPP
#define CURFEW_DETAIL_STOP_TOKEN_HPP

#include <version>

#if defined(__cpp_lib_jthread)
#include <stop_token>
#else
#error "std::stop_token is missing (libc++: from LLVM 18 on, with -fexperimental-library)"
#endif

#endif  // CURFEW_DETAIL_STOP_TOKEN_HPP
// ---- end curfew/detail/stop_token.hpp

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// idle -> starting -> running -> [announcing ->] closing -> draining -> stopping -> stopped;
/// starting -> rolling_back -> stopped; idle -> stopped; stopped -> idle by reset() only.
enum class lifespan_state : unsigned char {
  idle,
  starting,
  running,
  announcing,    ///< not ready any more, but still admitting, so that whoever routes work here can notice
  closing,       ///< barrier 1: admission is closed everywhere
  draining,      ///< barrier 2: what was admitted ends
  stopping,      ///< barrier 3: stages are taken down, last started first
  rolling_back,  ///< the three barriers over what had started when the start failed or was called off
  stopped
};

/// Which of its hooks a stage is in. `cleanup` is the cleanup_partial hook of a start that failed.
enum class lifespan_phase : unsigned char { start, close, drain, stop, cleanup };

/// Why a lifespan stops: the first request counts.
enum class stop_cause : unsigned char { none, requested, signal, start_failed, stage_failed, parent, destructor };

/// What has become of one hook.
enum class stage_outcome : unsigned char {
  not_run,    ///< never called: the stop came first
  ok,         ///< returned before its deadline
  failed,     ///< threw
  timed_out,  ///< returned after its deadline, or left its fence occupied
  abandoned,  ///< still running at its deadline; nobody waits for it any more
  skipped     ///< never called: its stage had not started
};

/// How often a stop was asked for.
enum class urgency : unsigned char {
  normal,
  hurried,  ///< a second request: same order, less time
  forced    ///< a third one: the process leaves at once
};

/// What run() returns after a stop without errors.
enum class exit_code_policy : unsigned char {
  zero_when_clean,   ///< 0 after a clean stop, whatever asked for it
  conventional_128,  ///< 128 + n when signal n asked for it
  reraise            ///< dies of the signal that asked for it, after everything else is done
};

/// The name of the value, as it is spelled in the enumeration.
constexpr const char* to_string(lifespan_state state) noexcept {
  constexpr const char* names[] = {"idle",     "starting", "running",      "announcing", "closing",
                                   "draining", "stopping", "rolling_back", "stopped"};
  return names[static_cast<unsigned>(state)];
}
constexpr const char* to_string(lifespan_phase phase) noexcept {
  constexpr const char* names[] = {"start", "close", "drain", "stop", "cleanup"};
  return names[static_cast<unsigned>(phase)];
}
constexpr const char* to_string(stop_cause cause) noexcept {
  constexpr const char* names[] = {"none",         "requested", "signal",    "start_failed",
                                   "stage_failed", "parent",    "destructor"};
  return names[static_cast<unsigned>(cause)];
}
constexpr const char* to_string(stage_outcome outcome) noexcept {
  constexpr const char* names[] = {"not_run", "ok", "failed", "timed_out", "abandoned", "skipped"};
  return names[static_cast<unsigned>(outcome)];
}
constexpr const char* to_string(urgency pressure) noexcept {
  constexpr const char* names[] = {"normal", "hurried", "forced"};
  return names[static_cast<unsigned>(pressure)];
}

/// The stages do not form an order, or a budget is not a duration anything can be done in. what() names the culprit,
/// and for a cycle the path.
struct CURFEW_VISIBLE bad_graph : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

namespace detail {

/// Adds without overflow: "for ever" stays for ever.
template <class TimePoint>
constexpr TimePoint later_by(TimePoint from, std::chrono::nanoseconds span) noexcept {
  const auto room = std::chrono::duration_cast<std::chrono::nanoseconds>(TimePoint::max() - from);
  return span >= room ? TimePoint::max() : from + span;
}

/// Any duration in nanoseconds; what does not fit is clamped, and what is not a number is the least there is.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds clamped(std::chrono::duration<Rep, Period> span) noexcept {
  using wide = std::chrono::duration<long double, std::nano>;
  constexpr auto limit = std::chrono::nanoseconds::max();
  if (wide(span) >= wide(limit)) return limit;
  if (!(wide(span) > wide(-limit))) return -limit;
  return std::chrono::ceil<std::chrono::nanoseconds>(span);
}

/// Sleeps until \p span is over (true) or \p token has fired (false).
template <class Sync>
bool sleep_or_stop(const std::stop_token& token, std::chrono::nanoseconds span) {
  typename Sync::mutex mutex;
  typename Sync::condition_variable fired;
  bool stopped = false;
  const std::stop_callback wake(token, [&] {
    const std::lock_guard lock(mutex);
    stopped = true;
    fired.notify_all();
  });
  const auto deadline = later_by(Sync::clock::now(), span);
  std::unique_lock lock(mutex);
  if (deadline == Sync::clock::time_point::max()) {
    fired.wait(lock, [&] { return stopped; });
  } else {
    fired.wait_until(lock, deadline, [&] { return stopped; });
  }
  return !stopped;
}

}  // namespace detail

/// What a hook may want to know. Valid, and its token alive, for as long as the hook runs.
struct stage_context {
  /// In a start hook: fires when a stop is requested. In every hook: fires shortly before the deadline, and at once
  /// when the stop becomes hurried. A hook that returns on it in time counts as `ok`.
  std::stop_token token;
  /// When the hook will be given up, as planned at its begin; being hurried moves the real one forward.
  std::chrono::steady_clock::time_point deadline;
  lifespan_phase phase;
  stop_cause cause;
  urgency pressure;

  /// False as soon as the token has fired, true when \p span has passed first.
  template <class Duration>
  bool sleep_or_stop(Duration span) const {
    return detail::sleep_or_stop<std_sync>(token, detail::clamped(span));
  }
};

/// Durations are measured on the steady clock. Budgets must be positive; reserve, grace, announce, hurried budget and
/// guard may be zero. A bad value is refused by start(), before any hook.
struct lifespan_options {
  std::string name = "lifespan";
  std::chrono::nanoseconds start_budget = std::chrono::seconds(60);  ///< all start hooks together
  std::chrono::nanoseconds stop_budget = std::chrono::seconds(25);   ///< all three barriers together
  // Per hook, unless the stage says otherwise; cleanup_partial hooks get stage_stop.
  std::chrono::nanoseconds stage_start = std::chrono::seconds(15);
  std::chrono::nanoseconds stage_close = std::chrono::seconds(1);
  std::chrono::nanoseconds stage_drain = std::chrono::seconds(10);
  std::chrono::nanoseconds stage_stop = std::chrono::seconds(5);
  std::chrono::nanoseconds stage_reserve = std::chrono::milliseconds(100);  ///< kept back for every hook still to come
  std::chrono::nanoseconds hang_grace = std::chrono::milliseconds(200);  ///< from token to deadline, at most a quarter
  std::chrono::nanoseconds announce{0};                                  ///< not ready, still admitting, before closing
  std::chrono::nanoseconds hurried_budget = std::chrono::seconds(2);
  std::chrono::nanoseconds escalation_guard = std::chrono::milliseconds(500);
  /// Taken in the constructor. Empty: no handlers at all (tests, children).
  std::vector<int> owned_signals = {SIGTERM, SIGINT};
  /// When set, SIGHUP is owned too and means: call this, on the thread in wait(), run() or poll_signals(). It has no
  /// deadline while nothing else is asked for; after a stop request it has hang_grace left, is told so by the
  /// lifespan's token(), and is abandoned then. When not set, SIGHUP is left alone.
  std::function<void()> on_hangup;
  exit_code_policy exit = exit_code_policy::zero_when_clean;
};

/// What an observer is told about.
enum class lifespan_event_kind : unsigned char {
  state_changed,
  stage_begin,
  stage_end,
  stage_slow,         ///< half of the slice is over
  stage_hung,         ///< the slice is over; an on_controller hook can only be named
  handler_displaced,  ///< somebody put another handler over ours
  unattended          ///< a signal waited longer than the guard before anybody looked
};

/// Told to observers, one at a time and in the order in which things happened, with no lock held: by the thread in
/// start() or stop(), by the one that watches hooks which run on that one, or by whoever notices something in wait() or
/// poll_signals(). What happens while one of these is telling is told by it afterwards.
struct lifespan_event {
  using enum lifespan_event_kind;

  lifespan_event_kind kind;
  std::string stage;      ///< empty when it is about the lifespan
  lifespan_phase phase;   ///< of stage_* events
  stage_outcome outcome;  ///< of stage_end and stage_hung
  int signal;             ///< of handler_displaced and unattended; state_changed: the first stop signal so far
  std::chrono::nanoseconds elapsed;  ///< stage_*: in this hook; else since the start or the stop request
  lifespan_state state;              ///< at that moment; of state_changed: the new one
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_TYPES_HPP
// ---- end curfew/detail/lifespan_types.hpp

CURFEW_BEGIN_NAMESPACE
namespace detail {

inline constexpr std::size_t phase_count = 5;
constexpr std::size_t index_of(lifespan_phase phase) noexcept {
  return static_cast<std::size_t>(phase);
}

/// A fence of any kind, as a stage sees it.
class fence_port {
 public:
  virtual ~fence_port() = default;
  virtual void close() noexcept = 0;
  /// Calls \p ring(\p arg) once the fence is closed and empty, unless disarm() comes first.
  virtual void arm(void (*ring)(void*) noexcept, void* arg) noexcept = 0;
  /// Whether that has happened. Once true, nothing of the fence's side refers to this object or to `arg` any more.
  virtual bool drained() noexcept = 0;
  /// After it, `ring` is not called any more. The result is that of drained().
  virtual bool disarm() noexcept = 0;
  virtual std::string occupants() const = 0;
};

/// What a hook of the kit's own returns. Empty: all went well. A text makes it a failure like an exception would, also
/// where there are no exceptions. What users' hooks return is ignored.
struct hook_complaint {
  std::string text;
};

/// A stage as declared. Shared with the threads of its hooks: an abandoned hook goes on using it for ever.
struct stage_node {
  explicit stage_node(std::string its_name) : name(std::move(its_name)) {}

  std::string name;
  std::array<std::function<hook_complaint(const stage_context&)>, phase_count> hooks;
  std::array<std::optional<std::chrono::nanoseconds>, phase_count> budgets;
  std::vector<std::string> after;
  std::vector<std::unique_ptr<fence_port>> fences;
  std::function<void()> given_up;  // told when one of its hooks is abandoned; must not throw
  bool on_controller = false;
  bool parallel = false;

  bool has_hook(lifespan_phase phase) const noexcept { return static_cast<bool>(hooks[index_of(phase)]); }
  bool takes_part(lifespan_phase phase) const noexcept {
    return has_hook(phase) || (!fences.empty() && (phase == lifespan_phase::close || phase == lifespan_phase::drain));
  }
};

using stage_list = std::vector<std::shared_ptr<stage_node>>;

/// Stages, by their place in the list, whose start may begin when the layer before has ended.
struct stage_layer {
  std::vector<std::size_t> members;  // by registration
  bool parallel = true;
};

inline void check_budgets(const lifespan_options& options) {
  const auto check = [&](const char* what, std::chrono::nanoseconds span, bool may_be_zero) {
    if (span < std::chrono::nanoseconds::zero() || (!may_be_zero && span == std::chrono::nanoseconds::zero())) {
      CURFEW_THROW(bad_graph("lifespan '" + options.name + "': " + what + " must " +
                             (may_be_zero ? "not be negative" : "be positive")));
    }
  };
  check("start_budget", options.start_budget, false);
  check("stop_budget", options.stop_budget, false);
  check("stage_start", options.stage_start, false);
  check("stage_close", options.stage_close, false);
  check("stage_drain", options.stage_drain, false);
  check("stage_stop", options.stage_stop, false);
  check("stage_reserve", options.stage_reserve, true);
  check("hang_grace", options.hang_grace, true);
  check("announce", options.announce, true);
  check("hurried_budget", options.hurried_budget, true);
  check("escalation_guard", options.escalation_guard, true);
}

/// Walks from a stage that waits for another that waits, until one comes up twice; "a -> b" reads: a comes after b.
inline std::string describe_cycle(const stage_list& stages, const std::vector<std::vector<std::size_t>>& before,
                                  const std::vector<std::size_t>& missing, std::size_t from) {
  std::vector<std::size_t> path;
  std::vector<bool> seen(stages.size(), false);
  while (!seen[from]) {
    seen[from] = true;
    path.push_back(from);
    for (const std::size_t next : before[from]) {
      if (missing[next] != 0) {
        from = next;
        break;
      }
    }
  }
  std::string text;
  bool inside = false;
  for (const std::size_t stage : path) {
    inside = inside || stage == from;
    if (inside) text += stages[stage]->name + " -> ";
  }
  return text + stages[from]->name;
}

/// A stage's layer is the length of its longest `after` chain. Throws bad_graph.
inline std::vector<stage_layer> make_layers(const stage_list& stages) {
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i != stages.size(); ++i) {
    const auto& stage = *stages[i];
    if (stage.name.empty()) CURFEW_THROW(bad_graph("stage number " + std::to_string(i + 1) + " has an empty name"));
    if (!by_name.emplace(stage.name, i).second) CURFEW_THROW(bad_graph("two stages are called '" + stage.name + "'"));
    for (std::size_t p = 0; p != phase_count; ++p) {
      if (stage.budgets[p] && *stage.budgets[p] <= std::chrono::nanoseconds::zero()) {
        CURFEW_THROW(bad_graph("stage '" + stage.name + "': the " + to_string(static_cast<lifespan_phase>(p)) +
                               " budget must be positive"));
      }
    }
  }
  std::vector<std::vector<std::size_t>> before(stages.size());
  std::vector<std::vector<std::size_t>> behind(stages.size());
  std::vector<std::size_t> missing(stages.size(), 0);
  for (std::size_t i = 0; i != stages.size(); ++i) {
    for (const auto& name : stages[i]->after) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) {
        CURFEW_THROW(bad_graph("stage '" + stages[i]->name + "' comes after '" + name + "', which does not exist"));
      }
      before[i].push_back(found->second);
      behind[found->second].push_back(i);
      ++missing[i];
    }
  }
  std::vector<std::size_t> depth(stages.size(), 0);
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i != stages.size(); ++i) {
    if (missing[i] == 0) free.push_back(i);
  }
  std::size_t depths = 0;
  for (std::size_t done = 0; done != free.size(); ++done) {
    const std::size_t stage = free[done];
    depths = std::max(depths, depth[stage] + 1);
    for (const std::size_t next : behind[stage]) {
      depth[next] = std::max(depth[next], depth[stage] + 1);
      if (--missing[next] == 0) free.push_back(next);
    }
  }
  if (free.size() != stages.size()) {
    for (std::size_t i = 0; i != stages.size(); ++i) {
      if (missing[i] != 0)
        CURFEW_THROW(bad_graph("stages form a cycle: " + describe_cycle(stages, before, missing, i)));
    }
  }
  std::vector<stage_layer> layers(depths);
  for (std::size_t i = 0; i != stages.size(); ++i) {
    layers[depth[i]].members.push_back(i);
    // Hooks on the controller have one thread between them, and each its own slice of time.
    const bool own_thread = stages[i]->parallel && !stages[i]->on_controller;
    layers[depth[i]].parallel = layers[depth[i]].parallel && own_thread;
  }
  return layers;
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_GRAPH_HPP
// ---- end curfew/detail/lifespan_graph.hpp

// ---- begin curfew/detail/lifespan_plan.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The stages of one lifespan as they are driven: the three barriers, who takes part in each, and the report. In what
/// order and on whose demand is in lifespan_engine.hpp. Everything here belongs to the controller.

#ifndef CURFEW_DETAIL_LIFESPAN_PLAN_HPP
#define CURFEW_DETAIL_LIFESPAN_PLAN_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/lifespan_graph.hpp: above

// ---- begin curfew/detail/lifespan_hook.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// One call of one hook, with its deadline: on a thread of its own, so that giving it up means no more than to stop
/// waiting, or on the controller for code that is bound to a thread, which can be named when it hangs but not given up.

#ifndef CURFEW_DETAIL_LIFESPAN_HOOK_HPP
#define CURFEW_DETAIL_LIFESPAN_HOOK_HPP

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/lifespan_control.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The part of a lifespan that any thread may use at any time: requests, waiting, observers, the state, ownership of
/// signals. What drives the stages is in lifespan_engine.hpp.
///
/// Lock discipline: `mutex_` guards what its comment says, is a leaf, and is never held while a hook, an observer, a
/// stop callback or a system call runs.

#ifndef CURFEW_DETAIL_LIFESPAN_CONTROL_HPP
#define CURFEW_DETAIL_LIFESPAN_CONTROL_HPP

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/leaked.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Keeps for ever what must not be destroyed: state that a thread nobody waits for any more still uses, and in a forked
/// child what belongs to its parent.

#ifndef CURFEW_DETAIL_LEAKED_HPP
#define CURFEW_DETAIL_LEAKED_HPP

#include <memory>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A base of what may have to be kept, so that keeping it cannot fail for want of memory.
struct leaked_node {
  leaked_node* next_leaked = nullptr;
  std::shared_ptr<void> itself;
};

// Keeps the leaked reachable, so that leak checkers can tell them from mistakes.
CURFEW_VISIBLE inline constinit std_sync::atomic<leaked_node*> leaked_nodes{nullptr};

/// \p itself owns \p node.
inline void leak(leaked_node& node, std::shared_ptr<void> itself) noexcept {
  node.itself = std::move(itself);
  node.next_leaked = leaked_nodes.load(std::memory_order_seq_cst);
  while (!leaked_nodes.compare_exchange_weak(node.next_leaked, &node, std::memory_order_seq_cst,
                                             std::memory_order_seq_cst)) {
  }
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LEAKED_HPP
// ---- end curfew/detail/leaked.hpp

// ---- begin curfew/detail/lifespan_frame.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Which lifespans the calling thread runs user code for: what a hook or an observer calls must not wait for itself.

#ifndef CURFEW_DETAIL_LIFESPAN_FRAME_HPP
#define CURFEW_DETAIL_LIFESPAN_FRAME_HPP

// curfew/detail/config.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Marks, for as long as it lives, that the calling thread runs user code on behalf of a lifespan.
struct lifespan_frame_tag;
template <class Sync>
class lifespan_frame {
 public:
  lifespan_frame(const void* owner, const char* what) noexcept : owner_(owner), what_(what), up_(top()) {
    top() = this;
  }
  lifespan_frame(const lifespan_frame&) = delete;
  lifespan_frame& operator=(const lifespan_frame&) = delete;
  ~lifespan_frame() { top() = up_; }

  /// The innermost frame of \p owner (a predicate) on this thread, null when there is none.
  template <class Owner>
  static const lifespan_frame* find(Owner owner) noexcept {
    for (const lifespan_frame* frame = top(); frame != nullptr; frame = frame->up_) {
      if (owner(frame->owner_)) return frame;
    }
    return nullptr;
  }
  const char* what() const noexcept { return what_; }

 private:
  static lifespan_frame*& top() noexcept { return Sync::template local<lifespan_frame_tag, lifespan_frame*>(); }

  const void* owner_;
  const char* what_;
  lifespan_frame* up_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_FRAME_HPP
// ---- end curfew/detail/lifespan_frame.hpp

// ---- begin curfew/detail/lifespan_observers.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Who is told what happens in a lifespan: one event at a time, in the order in which they happened, with no lock held.

#ifndef CURFEW_DETAIL_LIFESPAN_OBSERVERS_HPP
#define CURFEW_DETAIL_LIFESPAN_OBSERVERS_HPP

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/lifespan_frame.hpp: above

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Events come from whoever drives, from the thread that watches hooks beside it, and from those who wait. Whoever
/// comes while another thread tells leaves its event in a line, and that thread tells it next: so nobody waits for an
/// observer but its own caller, and an observer that causes an event is not entered again.
template <class Sync>
class lifespan_observers {
 public:
  using function = std::function<void(const lifespan_event&)>;

  /// Copying and destroying observers is user code as much as calling them, so it happens without the lock.
  void add(function observer) {
    for (;;) {
      const std::shared_ptr<const list> known = all();
      auto next = known ? std::make_shared<list>(*known) : std::make_shared<list>();
      next->push_back(observer);
      std::shared_ptr<const list> published = std::move(next);
      {
        const std::lock_guard lock(mutex_);
        if (all_ != known) continue;
        all_.swap(published);
      }
      return;
    }
  }

  /// \p owner: the lifespan, for frames.
  void tell(const void* owner, lifespan_event_kind kind, const std::string& stage, lifespan_phase phase,
            stage_outcome outcome, int signo, std::chrono::nanoseconds elapsed, lifespan_state state) noexcept {
    CURFEW_TRY {
      if (!all()) return;
      lifespan_event event{kind, stage, phase, outcome, signo, elapsed, state};
      {
        const std::lock_guard lock(mutex_);
        if (telling_) {
          line_.push_back(std::move(event));
          return;
        }
        telling_ = true;
      }
      tell_all(owner, event);
    }
    CURFEW_CATCH_ALL {  // no memory to say it
      count_error();
    }
  }

  unsigned errors() const noexcept { return errors_.load(std::memory_order_seq_cst); }
  /// Of use to nobody from here on.
  void forget_all() noexcept {
    std::shared_ptr<const list> gone;
    const std::lock_guard lock(mutex_);
    gone.swap(all_);
  }
  void forget_errors() noexcept { errors_.store(0, std::memory_order_seq_cst); }

 private:
  using list = std::vector<function>;

  std::shared_ptr<const list> all() const noexcept {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  void count_error() noexcept { errors_.fetch_add(1, std::memory_order_seq_cst); }

  void tell_all(const void* owner, lifespan_event& event) noexcept {
    const lifespan_frame<Sync> frame(owner, "an observer");
    for (;;) {
      const std::shared_ptr<const list> observers = all();
      for (std::size_t i = 0; observers && i != observers->size(); ++i) {
        CURFEW_TRY {
          (*observers)[i](event);
        }
        CURFEW_CATCH_ALL {
          count_error();
        }
      }
      const std::lock_guard lock(mutex_);
      if (line_.empty()) {
        telling_ = false;
        return;
      }
      event = std::move(line_.front());
      line_.pop_front();
    }
  }

  typename Sync::template atomic<unsigned> errors_{0};  // exceptions that observers let out

  mutable typename Sync::mutex mutex_;
  // Guarded by mutex_:
  std::shared_ptr<const list> all_;
  std::deque<lifespan_event> line_;  // happened while somebody was being told
  bool telling_ = false;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_OBSERVERS_HPP
// ---- end curfew/detail/lifespan_observers.hpp

// ---- begin curfew/detail/lifespan_report.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What an ordered_lifespan leaves behind: a record per hook, and a text a person can read.

#ifndef CURFEW_DETAIL_LIFESPAN_REPORT_HPP
#define CURFEW_DETAIL_LIFESPAN_REPORT_HPP

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// ---- begin curfew/detail/lifespan_json.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Just enough JSON to write a report.

#ifndef CURFEW_DETAIL_LIFESPAN_JSON_HPP
#define CURFEW_DETAIL_LIFESPAN_JSON_HPP

#include <cstddef>
#include <string>
#include <string_view>

// curfew/detail/config.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// How many bytes from \p at on are one character of well-formed UTF-8; 0 when they are none.
constexpr std::size_t utf8_length(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF && tail(1)) return 2;
  if (first >= 0xE0 && first <= 0xEF && tail(1) && tail(2)) {
    const bool shorter = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return shorter || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4 && tail(1) && tail(2) && tail(3)) {
    const bool shorter = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return shorter || beyond ? 0 : 4;
  }
  return 0;
}

/// Quoted. What is not well-formed UTF-8 becomes U+FFFD, so that the document is valid whatever stages are called.
inline std::string json_string(std::string_view text) {
  constexpr const char* hex = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const char c = text[i];
    if (length == 0) {
      out += "\\ufffd";
      ++i;
      continue;
    }
    if (length == 1 && (c == '"' || c == '\\')) {
      out += '\\';
      out += c;
    } else if (length == 1 && static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += hex[(c >> 4) & 15];
      out += hex[c & 15];
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out + '"';
}

template <class List>
std::string json_strings(const List& list) {
  std::string out;
  for (const auto& text : list) out += (out.empty() ? "" : ",") + json_string(text);
  return "[" + out + "]";
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_JSON_HPP
// ---- end curfew/detail/lifespan_json.hpp

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/signal_table.hpp: above

CURFEW_BEGIN_NAMESPACE

/// One hook of one stage. `began` counts from the stop request, for start hooks from start().
struct stage_record {
  std::string stage;
  lifespan_phase phase = lifespan_phase::start;
  stage_outcome outcome = stage_outcome::not_run;
  std::chrono::nanoseconds began{0};
  std::chrono::nanoseconds took{0};
  std::exception_ptr error;
};

/// Records are in the order in which the hooks ended; hooks that were never called come last. A stage that reported its
/// own failure at run time has a `failed` record of phase `start` ahead of the barriers.
struct lifespan_report {
  stop_cause cause = stop_cause::none;
  int signal = 0;  ///< the first stop signal counted, 0 when there was none
  int exit_code = 0;
  std::vector<stage_record> records;
  std::vector<std::string> displaced_handlers;
  std::vector<std::string> abandoned;
  std::chrono::nanoseconds total{0};  ///< from the stop request to the end
  std::map<int, unsigned> signals;    ///< how often each was counted
  std::vector<std::string> notes;     ///< hooks that ran without a thread of their own, reloads that failed
  unsigned observer_errors = 0;       ///< exceptions that observers let out

  /// For a person: a line for the whole, then one for each record, with a bar on a time axis.
  std::string to_string() const;
  /// For machines: one JSON object on one line, with the members of this class by their names; enumerators as text,
  /// durations in nanoseconds with `_ns` behind the name, errors as their what() or null, `signals` keyed by number.
  std::string to_json() const;
};

namespace detail {

inline std::string milliseconds_text(std::chrono::nanoseconds span) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", std::chrono::duration<double, std::milli>(span).count());
  return text;
}

inline std::string error_text(const std::exception_ptr& error) {
  if (!error) return {};
  if (CURFEW_EXCEPTIONS == 0) return "an exception, which nobody can look at in a program without exceptions";
  CURFEW_TRY {
    std::rethrow_exception(error);
  }
  CURFEW_CATCH(std::exception, e) {
    return e.what();
  }
  CURFEW_CATCH_ALL {
    return "an exception that is not a std::exception";
  }
}

inline std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace detail

/// One line for the whole, one for each record with a bar for when it ran, one for each further remark. Bars of start
/// hooks and of stop hooks have a time axis each.
inline std::string lifespan_report::to_string() const {
  constexpr std::size_t columns = 32;
  using fine = std::chrono::duration<double>;
  std::size_t width = 5;
  double span[2] = {1e-9, 1e-9};
  for (const auto& record : records) {
    width = std::max(width, record.stage.size());
    double& axis = span[record.phase == lifespan_phase::start ? 0 : 1];
    axis = std::max(axis, fine(record.began + record.took).count());
  }
  std::string text = std::string("stopped: ") + curfew::to_string(cause);
  if (signal != 0) text += ", " + detail::signal_name(signal);
  text += ", exit code " + std::to_string(exit_code) + ", " + detail::milliseconds_text(total) + "\n";
  for (const auto& record : records) {
    text += "  " + detail::padded(record.stage, width) + "  ";
    text += detail::padded(curfew::to_string(record.phase), 7) + "  ";
    text += detail::padded(curfew::to_string(record.outcome), 9) + "  ";
    const bool ran = record.outcome != stage_outcome::not_run && record.outcome != stage_outcome::skipped;
    std::string bar(columns, '.');
    if (ran) {
      const double axis = span[record.phase == lifespan_phase::start ? 0 : 1];
      const auto column = [&](std::chrono::nanoseconds at) {
        const double place = std::clamp(fine(at).count() / axis, 0.0, 1.0) * static_cast<double>(columns);
        return static_cast<std::size_t>(place);
      };
      const std::size_t first = std::min(column(record.began), columns - 1);
      const std::size_t last = std::clamp(column(record.began + record.took), first + 1, columns);
      std::fill(bar.begin() + static_cast<std::ptrdiff_t>(first), bar.begin() + static_cast<std::ptrdiff_t>(last), '#');
    }
    text += "|" + bar + "|";
    if (ran) text += "  +" + detail::milliseconds_text(record.began) + ", " + detail::milliseconds_text(record.took);
    if (record.error) text += "  " + detail::error_text(record.error);
    text += "\n";
  }
  for (const auto& line : abandoned) text += "  abandoned: " + line + "\n";
  for (const auto& line : displaced_handlers) text += "  displaced: " + line + "\n";
  for (const auto& [signo, count] : signals) {
    text += "  counted: " + detail::signal_name(signo) + " x" + std::to_string(count) + "\n";
  }
  for (const auto& line : notes) text += "  note: " + line + "\n";
  if (observer_errors != 0) text += "  note: " + std::to_string(observer_errors) + " exceptions from observers\n";
  return text;
}

/// The same as its member.
inline std::string lifespan_report::to_json() const {
  const auto member = [](const char* name, const std::string& value) {
    return detail::json_string(name) + ":" + value;
  };
  const auto ns = [](std::chrono::nanoseconds span) { return std::to_string(span.count()); };
  std::string list;
  for (const auto& record : records) {
    list += (list.empty() ? "{" : ",{") + member("stage", detail::json_string(record.stage)) + "," +
            member("phase", detail::json_string(curfew::to_string(record.phase))) + "," +
            member("outcome", detail::json_string(curfew::to_string(record.outcome))) + "," +
            member("began_ns", ns(record.began)) + "," + member("took_ns", ns(record.took)) + "," +
            member("error", record.error ? detail::json_string(detail::error_text(record.error)) : "null") + "}";
  }
  std::string counts;
  for (const auto& [signo, count] : signals) {
    counts += (counts.empty() ? "" : ",") + member(std::to_string(signo).c_str(), std::to_string(count));
  }
  return "{" + member("cause", detail::json_string(curfew::to_string(cause))) + "," +
         member("signal", std::to_string(signal)) + "," + member("exit_code", std::to_string(exit_code)) + "," +
         member("total_ns", ns(total)) + "," + member("records", "[" + list + "]") + "," +
         member("abandoned", detail::json_strings(abandoned)) + "," +
         member("displaced_handlers", detail::json_strings(displaced_handlers)) + "," +
         member("signals", "{" + counts + "}") + "," + member("notes", detail::json_strings(notes)) + "," +
         member("observer_errors", std::to_string(observer_errors)) + "}";
}

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_REPORT_HPP
// ---- end curfew/detail/lifespan_report.hpp

// ---- begin curfew/detail/lifespan_request.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Who asked for the stop, with what, and how urgently: one word that signal handlers and threads write alike, plus a
/// counter per signal. Lock-free, so that the handler of an owned signal does all its work here.

#ifndef CURFEW_DETAIL_LIFESPAN_REQUEST_HPP
#define CURFEW_DETAIL_LIFESPAN_REQUEST_HPP

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>

// curfew/detail/config.hpp: above

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/signal_table.hpp: above

// ---- begin curfew/detail/signal_wakeup.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The bell that a signal handler may ring and the place where somebody who waits for it is parked. On POSIX systems
/// that is an eventfd (a pipe elsewhere) and poll(): level-triggered, so that a ring between a look and a park is not
/// lost, usable inside foreign event loops, and one of the few waits in which every sanitizer delivers signals.

#ifndef CURFEW_DETAIL_SIGNAL_WAKEUP_HPP
#define CURFEW_DETAIL_SIGNAL_WAKEUP_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <type_traits>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/sync.hpp: above

#if CURFEW_POSIX
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/eventfd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

#if CURFEW_POSIX

/// Async-signal-safe: one write, its failure ignored. A full bell is a bell that rings already; what happened is
/// recorded elsewhere, the bytes only wake.
inline void ring_bell(int descriptor) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(descriptor, &one, sizeof one);
}

/// May be rung by any thread and by signal handlers; at most one thread at a time waits (its owner sees to that).
template <class Sync>
class descriptor_wakeup {
 public:
  using clock = typename Sync::clock;

  descriptor_wakeup() {
#if defined(__linux__)
    ends_[0] = ends_[1] = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ends_[0] < 0) CURFEW_THROW(std::system_error(errno, std::generic_category(), "curfew: eventfd"));
#else
    if (::pipe(ends_) != 0) CURFEW_THROW(std::system_error(errno, std::generic_category(), "curfew: pipe"));
    for (const int end : ends_) {
      ::fcntl(end, F_SETFD, FD_CLOEXEC);
      ::fcntl(end, F_SETFL, O_NONBLOCK);
    }
#endif
  }
  descriptor_wakeup(const descriptor_wakeup&) = delete;
  descriptor_wakeup& operator=(const descriptor_wakeup&) = delete;
  ~descriptor_wakeup() {
    ::close(ends_[0]);
    if (ends_[1] != ends_[0]) ::close(ends_[1]);
  }

  void ring() const noexcept {
    ring_bell(ends_[1]);
  }

  /// Readable while it has been rung and nobody has silenced it.
  int handle() const noexcept {
    return ends_[0];
  }
  int bell() const noexcept {
    return ends_[1];
  }

  void silence() const noexcept {
    unsigned char sink[64];
    while (::read(ends_[0], sink, sizeof sink) == static_cast<ssize_t>(sizeof sink)) {
    }
  }

  /// Parks until rung or until \p deadline; may return earlier. Everything rung before the return is silenced.
  void wait_until(typename clock::time_point deadline) const noexcept {
    Sync::here("wakeup.wait.before_poll");
    ::pollfd entry{ends_[0], POLLIN, 0};
    ::poll(&entry, 1, timeout(deadline));
    silence();
  }

 private:
  /// In milliseconds, rounded up: waking a little late costs less than waking in vain.
  static int timeout(typename clock::time_point deadline) noexcept {
    if (deadline == clock::time_point::max()) return -1;
    const auto now = clock::now();
    if (deadline <= now) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    return static_cast<int>(std::min<long long>(left, INT_MAX));
  }

  int ends_[2] = {-1, -1};
};

#else

inline void ring_bell(int) noexcept {}

#endif

/// Without descriptors: a flag. There is nothing to hand to a foreign event loop then.
template <class Sync>
class flag_wakeup {
 public:
  using clock = typename Sync::clock;

  void ring() const noexcept {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    rings_.notify_all();
  }
  int handle() const noexcept { return -1; }
  int bell() const noexcept { return -1; }
  void silence() const noexcept {
    const std::lock_guard lock(mutex_);
    rung_ = false;
  }
  void wait_until(typename clock::time_point deadline) const noexcept {
    Sync::here("wakeup.wait.before_poll");
    std::unique_lock lock(mutex_);
    if (deadline == clock::time_point::max()) {
      rings_.wait(lock, [this] { return rung_; });
    } else {
      rings_.wait_until(lock, deadline, [this] { return rung_; });
    }
    rung_ = false;
  }

 private:
  mutable typename Sync::mutex mutex_;
  mutable typename Sync::condition_variable rings_;
  mutable bool rung_ = false;
};

#if CURFEW_POSIX

/// poll() knows one clock; a policy with a clock of its own waits by its own means.
template <class Sync>
using wakeup = std::conditional_t<std::is_same_v<typename Sync::clock, std_sync::clock>, descriptor_wakeup<Sync>,
                                  flag_wakeup<Sync>>;

#else

template <class Sync>
using wakeup = flag_wakeup<Sync>;

#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SIGNAL_WAKEUP_HPP
// ---- end curfew/detail/signal_wakeup.hpp

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The request word.
///
///     bits 0..1    rung    0 nobody asked, 1 requested, 2 hurried; the third rung is the end of the process
///     bits 2..4    cause   stop_cause of the first request, never changed while rung > 0
///     bits 5..11   signal  first stop signal counted, 0 while there was none
///     bits 12..63  moment  of the last rung, microseconds of the policy's clock
///
/// Transitions: 0 -> 1 ask(), count(); 1 -> 2 count() past the guard, climb(); 2 -> `_Exit` likewise; any -> 0 or 1
/// forget(), by reset() alone. A signal counted within the guard of the last rung only fills in `signal`.
struct stop_request {
  unsigned rung = 0;
  stop_cause cause = stop_cause::none;
  int signal = 0;
  std::uint64_t moment = 0;

  static constexpr stop_request unpack(std::uint64_t word) noexcept {
    return {static_cast<unsigned>(word & 3), static_cast<stop_cause>((word >> 2) & 7),
            static_cast<int>((word >> 5) & 127), word >> 12};
  }
  constexpr std::uint64_t pack() const noexcept {
    return std::uint64_t{rung} | std::uint64_t{static_cast<unsigned>(cause)} << 2 |
           static_cast<std::uint64_t>(signal) << 5 | moment << 12;
  }
};

/// Everything here is sequentially consistent: nothing is hot, and forget() relies on it (see there).
template <class Sync>
class stop_ledger {
 public:
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  using counts = std::array<unsigned, signal_limit>;

  stop_request request() const noexcept { return stop_request::unpack(word_.load(std::memory_order_seq_cst)); }

  unsigned count_of(int signo) const noexcept {
    return is_signal(signo) ? counts_[static_cast<unsigned>(signo)].load(std::memory_order_seq_cst) : 0;
  }
  counts snapshot() const noexcept {
    counts all{};
    for (int signo = 1; signo < signal_limit; ++signo) all[static_cast<unsigned>(signo)] = count_of(signo);
    return all;
  }

  /// A stop that no signal asked for. True when it is the first request.
  bool ask(stop_cause cause) noexcept {
    std::uint64_t word = word_.load(std::memory_order_seq_cst);
    do {
      if (stop_request::unpack(word).rung != 0) return false;
    } while (!swap(word, {1, cause, 0, now()}));
    Sync::here("lifespan.request.latched");
    return true;
  }

  /// What the handler of an owned signal does. Async-signal-safe.
  void count(int signo) noexcept {
    if (!is_signal(signo)) return;
    counts_[static_cast<unsigned>(signo)].fetch_add(1, std::memory_order_seq_cst);
    if (signo != hangup_.load(std::memory_order_seq_cst)) climb(signo, guard_.load(std::memory_order_seq_cst));
  }

  /// One rung up, unless the last one is younger than \p guard microseconds. The third rung does not return.
  void climb(int signo, std::uint64_t guard) noexcept {
    std::uint64_t word = word_.load(std::memory_order_seq_cst);
    stop_request next;
    do {
      next = stop_request::unpack(word);
      const std::uint64_t moment = now();
      if (next.signal == 0) next.signal = signo;
      if (next.rung == 0) {
        next = {1, stop_cause::signal, signo, moment};
      } else if (moment >= next.moment + guard) {
        if (next.rung == 2) std::_Exit(128 + signo);
        next.rung = 2;
        next.moment = moment;
      }
    } while (!swap(word, next));
  }

  /// escalate(): requests, hurries, leaves.
  void force_up() noexcept {
    if (ask(stop_cause::requested)) return;
    std::uint64_t word = word_.load(std::memory_order_seq_cst);
    stop_request next;
    do {
      next = stop_request::unpack(word);
      if (next.rung == 2) std::_Exit(128 + SIGTERM);
      next.rung = 2;
      next.moment = now();
    } while (!swap(word, next));
  }

  /// Back to no request, except that a stop signal counted since \p seen was taken stays latched as a new request. A
  /// handler counts first and looks at the word afterwards; here the word is written first and the counters are looked
  /// at afterwards. In the single order of all these, one of the two sees the other.
  void forget(const counts& seen) noexcept {
    Sync::here("lifespan.request.forgetting");
    word_.store(0, std::memory_order_seq_cst);
    for (int signo = 1; signo < signal_limit; ++signo) {
      if (signo == hangup_.load(std::memory_order_seq_cst)) continue;
      if (count_of(signo) != seen[static_cast<unsigned>(signo)] && request().rung == 0)
        climb(signo, ~std::uint64_t{0} >> 12);
    }
  }

  /// Before anybody can count: \p hangup is the signal that means reload, 0 for none.
  void configure(int hangup, std::chrono::nanoseconds guard) noexcept {
    hangup_.store(hangup, std::memory_order_seq_cst);
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(guard).count();
    guard_.store(micros > 0 ? static_cast<std::uint64_t>(micros) : 0, std::memory_order_seq_cst);
  }

  /// For the next owner of the process-wide ledger.
  void clear() noexcept {
    for (auto& counter : counts_) counter.store(0, std::memory_order_seq_cst);
    word_.store(0, std::memory_order_seq_cst);
  }

  static std::uint64_t now() noexcept { return micros(clock::now()); }
  static time_point moment_of(const stop_request& request) noexcept {
    return time_point(std::chrono::duration_cast<typename clock::duration>(std::chrono::microseconds(request.moment)));
  }

 private:
  static std::uint64_t micros(time_point when) noexcept {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count());
  }
  bool swap(std::uint64_t& word, const stop_request& next) noexcept {
    return word_.compare_exchange_weak(word, next.pack(), std::memory_order_seq_cst, std::memory_order_seq_cst);
  }

  typename Sync::template atomic<std::uint64_t> word_{0};
  typename Sync::template atomic<std::uint64_t> guard_{0};
  typename Sync::template atomic<int> hangup_{0};
  std::array<typename Sync::template atomic<unsigned>, signal_limit> counts_{};
};

#if CURFEW_POSIX

/// The ledger of the lifespan that owns the process's signals. Immortal: a handler may still be running when its
/// lifespan is gone.
template <class Sync>
CURFEW_VISIBLE inline constinit stop_ledger<Sync> process_ledger{};

/// The handler of every owned signal: one write() is its only system call on the normal path.
template <class Sync>
void on_owned_signal(int signo) noexcept {
  const handler_scope scope;
  if (!process_signals.in_owner_process()) {
    step_aside(signo, &on_owned_signal<Sync>);
    return;
  }
  process_ledger<Sync>.count(signo);
  const int bell = process_signals.bell.load(std::memory_order_seq_cst);
  if (bell >= 0) ring_bell(bell);
}

#else

template <class Sync>
inline constinit stop_ledger<Sync> process_ledger{};

template <class Sync>
void on_owned_signal(int signo) noexcept {
  process_ledger<Sync>.count(signo);
}

#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_REQUEST_HPP
// ---- end curfew/detail/lifespan_request.hpp

// curfew/detail/lifespan_types.hpp: above

// ---- begin curfew/detail/process_identity.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Which process this is. What waits for threads, or ends things on behalf of its process, asks before it touches a
/// lock whether a fork has put it into a child, where those threads and those things do not exist.

#ifndef CURFEW_DETAIL_PROCESS_IDENTITY_HPP
#define CURFEW_DETAIL_PROCESS_IDENTITY_HPP

#include <cstdint>
#include <random>
#include <string>

// curfew/detail/config.hpp: above

// curfew/detail/process_id.hpp: above

#if CURFEW_POSIX
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// 16 hexadecimal digits that no other process is likely to draw.
inline std::string random_id() {
  std::random_device source;
  std::string text(16, '0');
  for (char& digit : text) digit = "0123456789abcdef"[source() & 0xf];
  return text;
}

/// `host:pid:random`: names one provider of one process in a store that many hosts share.
inline std::string process_name() {
  char host[256] = "localhost";
#if CURFEW_POSIX
  if (::gethostname(host, sizeof host) != 0) host[0] = '\0';
  host[sizeof host - 1] = '\0';
#endif
  return std::string(host) + ":" + std::to_string(process_id()) + ":" + random_id();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_PROCESS_IDENTITY_HPP
// ---- end curfew/detail/process_identity.hpp

// ---- begin curfew/detail/signal_owner.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Becoming the owner of the process's signals, handing them back, and telling whether somebody owns them, also when
/// that is another shared object's lifespan. Design: docs/design/signals.md.

#ifndef CURFEW_DETAIL_SIGNAL_OWNER_HPP
#define CURFEW_DETAIL_SIGNAL_OWNER_HPP

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/signal_console.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Where signals are events of a console: Ctrl-C counts as SIGINT; Ctrl-Break, the closing of the window, and the end
/// of the session or of the system count as SIGTERM. The system calls the handler on a thread of its own, so it may
/// lock. What is done about an event is the same everywhere, so that it can be tested everywhere; asking the system for
/// events is for Windows only.

#ifndef CURFEW_DETAIL_SIGNAL_CONSOLE_HPP
#define CURFEW_DETAIL_SIGNAL_CONSOLE_HPP

#include <chrono>
#include <csignal>
#include <cstdint>
#include <mutex>

// curfew/detail/config.hpp: above

// curfew/detail/signal_table.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The numbers by which the system calls its events; Ctrl-Break is 1.
enum console_event : unsigned long {
  console_interrupt = 0,
  console_close = 2,
  console_logoff = 5,
  console_shutdown = 6
};

constexpr int signal_of(unsigned long event) noexcept {
  return event == console_interrupt ? SIGINT : SIGTERM;
}
/// When the handler returns from one of these the process is ended, and it is ended anyway after about five seconds.
constexpr bool ends_process(unsigned long event) noexcept {
  return event == console_close || event == console_logoff || event == console_shutdown;
}
inline constexpr std::chrono::milliseconds console_patience{4500};

/// Whose bell a console event rings.
///
///     owned_ == 0  nobody's: events go to whoever was there before
///     owned_ != 0  that of a lifespan, which lives until release()
///
/// An event that ends the process is held here until the lifespan that was told of it has been destroyed: `releases_`
/// has moved on then, also when somebody else owns by the time the held thread looks again.
template <class Sync>
class console_owner {
 public:
  console_owner() = default;
  console_owner(const console_owner&) = delete;
  console_owner& operator=(const console_owner&) = delete;

  /// On the system's thread. False: not ours, the next handler is asked. Handler and bell are called under the lock,
  /// so that neither outlives release(); neither may wait.
  bool on_event(unsigned long event) noexcept {
    std::unique_lock lock(mutex_);
    if ((owned_ & signal_bit(signal_of(event))) == 0) return false;
    handler_(signal_of(event));
    ring_(bell_);
    if (ends_process(event)) {
      const std::uint64_t told = releases_;
      gone_.wait_until(lock, Sync::clock::now() + console_patience, [&] { return releases_ != told; });
    }
    return true;
  }

  /// False when somebody owns already; otherwise as acquire_signals().
  template <class Prepare>
  bool acquire(std::uint64_t wanted, signal_handler handler, void (*ring)(const void*) noexcept, const void* bell,
               Prepare prepare) {
    const std::lock_guard lock(mutex_);
    if (owned_ != 0) return false;
    prepare();
    owned_ = wanted;
    handler_ = handler;
    ring_ = ring;
    bell_ = bell;
    return true;
  }

  void release() noexcept {
    const std::lock_guard lock(mutex_);
    owned_ = 0;
    ++releases_;
    gone_.notify_all();
  }

  std::uint64_t owned() noexcept {
    const std::lock_guard lock(mutex_);
    return owned_;
  }

 private:
  typename Sync::mutex mutex_;
  typename Sync::condition_variable gone_;
  // Guarded by mutex_:
  std::uint64_t owned_ = 0;
  std::uint64_t releases_ = 0;
  signal_handler handler_ = nullptr;
  void (*ring_)(const void*) noexcept = nullptr;
  const void* bell_ = nullptr;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#if defined(_WIN32)

// What windows.h declares, without its macros.
extern "C" __declspec(dllimport) int __stdcall SetConsoleCtrlHandler(int(__stdcall*)(unsigned long), int);

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Never destroyed: the system's thread may come at any time.
inline console_owner<std_sync>& process_console() noexcept {
  static auto* one = new console_owner<std_sync>;
  return *one;
}

inline int __stdcall on_console_event(unsigned long event) {
  return process_console().on_event(event) ? 1 : 0;
}

template <class Prepare>
bool acquire_console(std::uint64_t wanted, signal_handler handler, void (*ring)(const void*) noexcept, const void* bell,
                     Prepare prepare) {
  if (!process_console().acquire(wanted, handler, ring, bell, prepare)) return false;
  ::SetConsoleCtrlHandler(&on_console_event, 1);
  return true;
}

inline void release_console() noexcept {
  process_console().release();
  ::SetConsoleCtrlHandler(&on_console_event, 0);
}

inline std::uint64_t owned_by_console() noexcept {
  return process_console().owned();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif

#endif  // CURFEW_DETAIL_SIGNAL_CONSOLE_HPP
// ---- end curfew/detail/signal_console.hpp

// curfew/detail/signal_table.hpp: above

// curfew/detail/sync.hpp: above

#if CURFEW_POSIX
#include <signal.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__APPLE__)
#include <crt_externs.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// What an attempt to own signals came to.
enum class acquisition : unsigned char { taken, conflict, refused };

#if CURFEW_POSIX

/// Sees to it that in_owner_process() is cheap where it can be. Failure only makes it dearer.
inline void mark_process() noexcept {
#if defined(__linux__) && defined(MADV_WIPEONFORK)
  if (auto* page = process_signals.mark.load(std::memory_order_seq_cst); page != nullptr) {
    page->store(1, std::memory_order_seq_cst);
    return;
  }
  const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  if (::madvise(memory, size, MADV_WIPEONFORK) != 0) {
    ::munmap(memory, size);
    return;
  }
  process_signals.mark.store(::new (memory) std_sync::atomic<int>(1), std::memory_order_seq_cst);
#endif
}

/// The marker by which shared objects that do not share `process_signals` recognise each other's owner:
/// `<pid>:<owned signals, hex>:<address of the handler, hex>`.
inline constexpr const char* owner_marker = "CURFEW_SHUTDOWN_OWNER";

/// Reads the environment in place, as a handler may.
inline const char* find_owner_marker() noexcept {
#if defined(__APPLE__)
  char** entry = *::_NSGetEnviron();
#else
  char** entry = ::environ;
#endif
  const std::size_t length = std::strlen(owner_marker);
  for (; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, owner_marker, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

/// Signals owned by another shared object of this process, 0 when there is no such owner. A marker counts only while
/// one of its signals still has its handler: an exec keeps pid and environment but resets handlers.
inline std::uint64_t read_owner_marker() noexcept {
  const char* text = find_owner_marker();
  if (text == nullptr) return 0;
  // Not strtoull: the parser must be usable in a handler.
  std::uint64_t fields[3] = {0, 0, 0};
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t base = i == 0 ? 10 : 16;
    const char* begin = text;
    for (;; ++text) {
      const char c = *text;
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
      if (static_cast<std::uint64_t>(digit) >= base) break;
      fields[i] = fields[i] * base + static_cast<std::uint64_t>(digit);
    }
    if (text == begin || *text != (i == 2 ? '\0' : ':')) return 0;
    if (i < 2) ++text;
  }
  if (fields[0] != static_cast<std::uint64_t>(::getpid()) || fields[2] == 0) return 0;
  for (int signo = 1; signo < signal_limit; ++signo) {
    if ((fields[1] & signal_bit(signo)) == 0) continue;
    struct sigaction now {};
    if (::sigaction(signo, nullptr, &now) == 0 && reinterpret_cast<std::uintptr_t>(now.sa_handler) == fields[2]) {
      return fields[1];
    }
  }
  return 0;
}

/// Announces a look at the environment.
///
///     bits 0..31   scans under way
///     bits 32..63  pid of the process whose scans they are; those of any other are not there after a fork
///
/// A scan may come before anything here was ever locked, so nobody but scans may set the count.
class environment_scan {
 public:
  environment_scan() noexcept : process_(static_cast<std::uint64_t>(::getpid()) << 32) {
    std::uint64_t seen = process_signals.reading.load(std::memory_order_seq_cst);
    while (!swap(seen, (process_of(seen) == process_ ? seen : process_) + 1)) {
    }
  }
  environment_scan(const environment_scan&) = delete;
  environment_scan& operator=(const environment_scan&) = delete;
  ~environment_scan() {
    std::uint64_t seen = process_signals.reading.load(std::memory_order_seq_cst);
    while (process_of(seen) == process_ && !swap(seen, seen - 1)) {
    }
  }

  /// Of this process; none that begins while `changing` is set reads anything.
  static void await_all() noexcept {
    const auto process = static_cast<std::uint64_t>(::getpid()) << 32;
    for (;;) {
      const std::uint64_t seen = process_signals.reading.load(std::memory_order_seq_cst);
      if (process_of(seen) != process || seen == process) return;
      std_sync::yield();
    }
  }

 private:
  static constexpr std::uint64_t process_of(std::uint64_t word) noexcept { return word >> 32 << 32; }
  static bool swap(std::uint64_t& seen, std::uint64_t next) noexcept {
    return process_signals.reading.compare_exchange_weak(seen, next, std::memory_order_seq_cst,
                                                         std::memory_order_seq_cst);
  }

  const std::uint64_t process_;
};

inline std::uint64_t owned_elsewhere() noexcept {
  const environment_scan scan;
  return process_signals.changing.load(std::memory_order_seq_cst) ? 0 : read_owner_marker();
}

/// Sets the marker, or removes it when \p text is null; false, with errno, when there is no memory for it. Under the
/// lock. Nobody of this shared object looks at the environment meanwhile.
inline bool change_owner_marker(const char* text) noexcept {
  process_signals.changing.store(true, std::memory_order_seq_cst);
  environment_scan::await_all();
  const int result = text != nullptr ? ::setenv(owner_marker, text, 1) : ::unsetenv(owner_marker);
  process_signals.changing.store(false, std::memory_order_seq_cst);
  return result == 0;
}

/// Signals owned by this process's lifespan as seen from this shared object, 0 when it has none.
inline std::uint64_t owned_here() noexcept {
  if (process_signals.owner.load(std::memory_order_seq_cst) != ::getpid()) return 0;
  return process_signals.owned.load(std::memory_order_seq_cst);
}

/// Two owners cannot be, so the environment is asked only where there is none here.
inline bool is_shutdown_owned(int signo) noexcept {
  const std::uint64_t here = owned_here();
  return ((here != 0 ? here : owned_elsewhere()) & signal_bit(signo)) != 0;
}

/// Puts back what is still ours; what somebody else has put on top is left alone. Under the lock.
inline void restore_dispositions() noexcept {
  for (int signo = 1; signo < signal_limit; ++signo) {
    const struct sigaction& before = process_signals.saved[signo];
    if ((process_signals.taken & signal_bit(signo)) != 0 && has_disposition(signo, process_signals.handler)) {
      process_signals.restored[signo].store(before.sa_handler, std::memory_order_seq_cst);
      put_back(signo, before);
    }
  }
  process_signals.taken = 0;
}

/// Becomes the owner of \p wanted: announces it, then installs \p handler, which from the first one on rings \p wake.
/// An ignored SIGINT or SIGHUP was ignored on purpose by whoever started this process, and stays so. \p prepare runs
/// once nobody else can own and before the first handler is there. On `refused`, errno and \p culprit name the reason;
/// on anything but `taken` nothing has changed.
template <class Wakeup, class Prepare>
acquisition acquire_signals(std::uint64_t wanted, signal_handler handler, const Wakeup& wake, int& culprit,
                            Prepare prepare) noexcept {
  auto& table = process_signals;
  const disposition_lock lock;
  const int self = ::getpid();
  culprit = 0;
  if (table.owner.load(std::memory_order_seq_cst) == self || owned_elsewhere() != 0) return acquisition::conflict;
  char marker[80];
  std::snprintf(marker, sizeof marker, "%d:%llx:%llx", self, static_cast<unsigned long long>(wanted),
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(handler)));
  if (!change_owner_marker(marker)) return acquisition::refused;
  mark_process();
  prepare();
  table.handler = handler;
  table.taken = 0;
  table.bell.store(wake.bell(), std::memory_order_seq_cst);
  table.owned.store(wanted, std::memory_order_seq_cst);
  table.owner.store(self, std::memory_order_seq_cst);
  const struct sigaction ours = disposition_of(handler);
  for (int signo = 1; signo < signal_limit; ++signo) {
    if ((wanted & signal_bit(signo)) == 0) continue;
    struct sigaction& before = table.saved[signo];
    if (::sigaction(signo, nullptr, &before) == 0) {
      const bool ignored = (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_IGN;
      if (ignored && (signo == SIGINT || signo == SIGHUP)) continue;
      if (::sigaction(signo, &ours, nullptr) == 0) {
        table.taken |= signal_bit(signo);
        continue;
      }
    }
    const int reason = errno;
    culprit = signo;
    restore_dispositions();
    table.owner.store(0, std::memory_order_seq_cst);
    table.bell.store(-1, std::memory_order_seq_cst);
    await_handlers();
    change_owner_marker(nullptr);
    errno = reason;
    return acquisition::refused;
  }
  return acquisition::taken;
}

/// Hands everything back. When it returns no handler is running that could ring the bell. A signal that is caught by
/// the old handler after its disposition was restored is passed on to that disposition.
inline void release_signals() noexcept {
  auto& table = process_signals;
  const disposition_lock lock;
  restore_dispositions();
  table.owner.store(0, std::memory_order_seq_cst);
  table.bell.store(-1, std::memory_order_seq_cst);
  await_handlers();
  change_owner_marker(nullptr);
  if (auto* released = table.released.load(std::memory_order_seq_cst); released != nullptr) released();
}

/// Whether \p signo was taken and somebody has put another handler on top.
inline bool is_displaced(int signo) noexcept {
  const disposition_lock lock;
  return (process_signals.taken & signal_bit(signo)) != 0 && !has_disposition(signo, process_signals.handler);
}

#else

#if defined(_WIN32)

template <class Wakeup, class Prepare>
acquisition acquire_signals(std::uint64_t wanted, signal_handler handler, const Wakeup& wake, int&,
                            Prepare prepare) noexcept {
  const auto ring = [](const void* bell) noexcept { static_cast<const Wakeup*>(bell)->ring(); };
  return acquire_console(wanted, handler, ring, &wake, prepare) ? acquisition::taken : acquisition::conflict;
}
inline void release_signals() noexcept {
  release_console();
}
inline bool is_shutdown_owned(int signo) noexcept {
  return (owned_by_console() & signal_bit(signo)) != 0;
}

#else

template <class Wakeup, class Prepare>
acquisition acquire_signals(std::uint64_t, signal_handler, const Wakeup&, int&, Prepare prepare) noexcept {
  prepare();
  return acquisition::taken;
}
inline void release_signals() noexcept {}
inline bool is_shutdown_owned(int) noexcept {
  return false;
}

#endif

inline bool is_displaced(int) noexcept {
  return false;
}
#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SIGNAL_OWNER_HPP
// ---- end curfew/detail/signal_owner.hpp

// curfew/detail/signal_table.hpp: above

// curfew/detail/signal_wakeup.hpp: above

// curfew/detail/stop_token.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// A second lifespan wants to own signals while another one does. what() names the signals and both sides.
struct CURFEW_VISIBLE ownership_conflict : std::logic_error {
  using std::logic_error::logic_error;
};

namespace detail {

template <class Sync>
class lifespan_control : public leaked_node {
 public:
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  static_assert(std::is_same_v<time_point, std::chrono::steady_clock::time_point>,
                "curfew: a policy's clock must share the time points of std::chrono::steady_clock");

  explicit lifespan_control(lifespan_options options) : options_(std::move(options)), pid_(process_id()) {
    for (const int signo : options_.owned_signals) {
      if (!is_signal(signo)) {
        CURFEW_THROW(
            std::invalid_argument("lifespan '" + options_.name + "': there is no signal " + std::to_string(signo)));
      }
      wanted_ |= signal_bit(signo);
    }
    const int hangup = options_.on_hangup ? hangup_signal : 0;
    wanted_ |= signal_bit(hangup);
    own_ledger_.configure(hangup, options_.escalation_guard);
    if (wanted_ != 0) take_ownership(hangup);
  }
  lifespan_control(const lifespan_control&) = delete;
  lifespan_control& operator=(const lifespan_control&) = delete;

  /// What the lifespan itself has not given back: it may have failed right after taking it.
  ~lifespan_control() {
    if (!in_forked_child()) hand_back();
  }

  bool owns_signals() const noexcept { return wanted_ != 0; }

  /// A forked child has a copy of everything and a right to nothing.
  bool in_forked_child() const noexcept { return process_id() != pid_; }

  lifespan_state state() const noexcept {
    // order(lifespan.state, acquire): everything done before the state was entered; pairs with set_state()
    return state_.load(std::memory_order_acquire);
  }

  stop_request request() const noexcept { return ledger_->request(); }
  bool called_off_above() const noexcept {
    const lifespan_control* above = parent();
    return above != nullptr && above->request().rung != 0;
  }

  bool request_stop(stop_cause cause, std::optional<int> code) noexcept {
    if (in_forked_child() || state() == lifespan_state::stopped) return false;
    if (code) {
      std::int64_t none = no_code;
      code_.compare_exchange_strong(none, *code, std::memory_order_seq_cst, std::memory_order_seq_cst);
    }
    const bool first = ledger_->ask(cause == stop_cause::none ? stop_cause::requested : cause);
    fire_token();
    wake_.ring();
    return first;
  }

  bool escalate() noexcept {
    if (in_forked_child() || state() == lifespan_state::stopped) return false;
    ledger_->force_up();
    fire_token();
    wake_.ring();
    return true;
  }

  void simulate(int signo, unsigned times) noexcept {
    if (in_forked_child()) return;
    for (; times != 0; --times) {
      ledger_->count(signo);
      wake_.ring();
    }
  }

  void fail_stage(std::string_view stage, std::exception_ptr error) noexcept {
    if (in_forked_child() || state() == lifespan_state::stopped) return;
    CURFEW_TRY {
      stage_record record{std::string(stage), lifespan_phase::start, stage_outcome::failed, {}, {}, std::move(error)};
      const std::lock_guard lock(mutex_);
      failures_.push_back(std::move(record));
    }
    CURFEW_CATCH_ALL {  // no memory for the record: the stop and its exit code still come
    }
    stage_failed_.store(true, std::memory_order_seq_cst);
    request_stop(stop_cause::stage_failed, std::nullopt);
  }

  std::stop_token token() const noexcept {
    const std::lock_guard lock(mutex_);
    return source_.get_token();
  }

  int native_handle() const noexcept { return wake_.handle(); }

  void observe(std::function<void(const lifespan_event&)> observer) {
    if (!observer) {
      CURFEW_THROW(std::invalid_argument("lifespan '" + options_.name + "': the observer is an empty function"));
    }
    observers_.add(std::move(observer));
  }

  lifespan_control* parent() const noexcept { return parent_.load(std::memory_order_seq_cst); }

  /// The frame in which the calling thread runs code of this lifespan, or of a child of it; null otherwise.
  const lifespan_frame<Sync>* own_frame() const noexcept {
    return lifespan_frame<Sync>::find(
        [this](const void* owner) { return static_cast<const lifespan_control*>(owner)->is_or_is_below(this); });
  }

  /// Whether the calling thread runs code of this lifespan or of one that has a parent, near or far, in common with it.
  bool in_family_frame() const noexcept {
    return lifespan_frame<Sync>::find([this](const void* owner) {
             for (auto* one = static_cast<const lifespan_control*>(owner); one != nullptr; one = one->parent()) {
               if (is_or_is_below(one)) return true;
             }
             return false;
           }) != nullptr;
  }

  bool is_or_is_below(const void* other) const noexcept {
    for (const lifespan_control* one = this; one != nullptr; one = one->parent()) {
      if (one == other) return true;
    }
    return false;
  }

  /// Gives the signals back and, where this thread's mask was changed, the mask.
  void hand_back() noexcept {
    if (wanted_ == 0 || handed_back_) return;
    handed_back_ = true;
    release_signals();
    const std::lock_guard lock(mutex_);
    for (const auto& [thread, bits] : masks_) {
      if (thread == Sync::self()) block_signals(bits);
    }
  }

  void ring() const noexcept { wake_.ring(); }

  /// A child has abandoned a hook: this process must not run static destructors either.
  void adopt_abandoned() noexcept { child_abandoned_.store(true, std::memory_order_seq_cst); }

 protected:
  static constexpr std::int64_t no_code = std::numeric_limits<std::int64_t>::min();

  // --- waiting: one thread polls the bell, the others wait for it to tell them

  /// To be taken before looking at whatever one waits for, and given to park() afterwards.
  std::uint64_t ticket() const noexcept {
    const std::lock_guard lock(mutex_);
    return rings_;
  }

  /// Returns when the bell has been rung since \p seen was taken, or at \p deadline, or earlier.
  void park(std::uint64_t seen, time_point deadline) {
    std::unique_lock lock(mutex_);
    if (rings_ != seen) return;
    if (polling_) {
      if (deadline == time_point::max()) {
        parked_.wait(lock);
      } else {
        parked_.wait_until(lock, deadline);
      }
      return;
    }
    polling_ = true;
    lock.unlock();
    wake_.wait_until(deadline);
    lock.lock();
    polling_ = false;
    ++rings_;
    parked_.notify_all();
  }

  // --- telling

  void emit(lifespan_event_kind kind, const std::string& stage, lifespan_phase phase, stage_outcome outcome, int signo,
            std::chrono::nanoseconds elapsed) noexcept {
    observers_.tell(this, kind, stage, phase, outcome, signo, elapsed, state());
  }

  void set_state(lifespan_state next) noexcept {
    // order(lifespan.state, release): the controller's work so far; pairs with state()
    state_.store(next, std::memory_order_release);
    Sync::here("lifespan.state.changed");
    emit(lifespan_event_kind::state_changed, {}, lifespan_phase::start, stage_outcome::not_run, request().signal,
         elapsed());
  }

  std::chrono::nanoseconds elapsed() const noexcept { return clock::now() - origin_; }

  void add_note(std::initializer_list<std::string_view> parts) noexcept {
    CURFEW_TRY {
      std::string text;
      for (const auto part : parts) text += part;
      const std::lock_guard lock(mutex_);
      notes_.push_back(std::move(text));
    }
    CURFEW_CATCH_ALL {  // a remark is not worth more than that
    }
  }

  /// Lets every holder of token() know. Stop callbacks run here, on the thread that asks or the one that notices.
  void fire_token() noexcept {
    std::stop_source source(std::nostopstate);
    {
      const std::lock_guard lock(mutex_);
      source = source_;
    }
    const lifespan_frame<Sync> frame(this, "a stop callback");
    source.request_stop();
  }

  /// What whoever drives or waits does about a request it sees.
  void attend(const stop_request& seen) noexcept {
    if (seen.rung == 0) return;
    fire_token();
    if (seen.cause != stop_cause::signal || unattended_.exchange(true, std::memory_order_seq_cst)) return;
    const auto late = clock::now() - stop_ledger<Sync>::moment_of(seen);
    if (late > options_.escalation_guard && seen.rung == 1) {
      emit(lifespan_event_kind::unattended, {}, lifespan_phase::start, stage_outcome::not_run, seen.signal, late);
    }
  }

  void unblock_here() {
    if (wanted_ == 0) return;
    const std::uint64_t bits = unblock_signals(wanted_);
    if (bits == 0) return;
    CURFEW_TRY {
      const std::lock_guard lock(mutex_);
      masks_.emplace_back(Sync::self(), bits);
    }
    CURFEW_CATCH_ALL {
      block_signals(bits);
      CURFEW_RETHROW;
    }
  }

  const lifespan_options options_;
  const long pid_;
  const wakeup<Sync> wake_;
  lifespan_observers<Sync> observers_;
  stop_ledger<Sync> own_ledger_;
  stop_ledger<Sync>* ledger_ = &own_ledger_;
  std::uint64_t wanted_ = 0;  // signals owned, one bit each
  bool handed_back_ = false;
  // Of a child; set before it starts, and cleared when its parent goes and no thread can be inside it any more.
  typename Sync::template atomic<lifespan_control*> parent_{nullptr};

  typename Sync::template atomic<lifespan_state> state_{lifespan_state::idle};
  typename Sync::template atomic<std::int64_t> code_{no_code};
  typename Sync::template atomic<bool> stage_failed_{false};
  typename Sync::template atomic<bool> unattended_{false};  // said, or found not to be so
  typename Sync::template atomic<bool> child_abandoned_{false};

  // What times are counted from: start(), then the stop request. Written by the controller between its hooks.
  time_point origin_ = clock::now();

  mutable typename Sync::mutex mutex_;
  typename Sync::condition_variable parked_;
  // Guarded by mutex_:
  std::uint64_t rings_ = 0;  // how often somebody has come back from the bell
  bool polling_ = false;     // somebody is at the bell
  bool busy_ = false;        // somebody is inside start() or stop(), and drives
  bool reloading_ = false;   // somebody is inside on_hangup
  unsigned reloaded_ = 0;
  std::stop_source source_;
  std::vector<stage_record> failures_;
  std::vector<std::string> notes_;
  std::vector<std::pair<typename Sync::thread_id, std::uint64_t>> masks_;

 private:
  void take_ownership(int hangup) {
    int culprit = 0;
    const acquisition result = acquire_signals(wanted_, &on_owned_signal<Sync>, wake_, culprit, [&] {
      process_ledger<Sync>.clear();
      process_ledger<Sync>.configure(hangup, options_.escalation_guard);
    });
    if (result == acquisition::taken) {
      ledger_ = &process_ledger<Sync>;
      return;
    }
    const int reason = errno;
    std::string signals;
    for (int signo = 1; signo < signal_limit; ++signo) {
      if ((wanted_ & signal_bit(signo)) != 0) signals += (signals.empty() ? "" : ", ") + signal_name(signo);
    }
    if (result == acquisition::conflict) {
      CURFEW_THROW(ownership_conflict("lifespan '" + options_.name + "' cannot own " + signals +
                                      ": another lifespan of this process owns its signals"));
    }
    const std::string what =
        "lifespan '" + options_.name + "' cannot own " + (culprit != 0 ? signal_name(culprit) : signals);
    if (reason == EINVAL) CURFEW_THROW(std::invalid_argument(what));
    CURFEW_THROW(std::system_error(reason, std::generic_category(), what));
  }
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_CONTROL_HPP
// ---- end curfew/detail/lifespan_control.hpp

// curfew/detail/lifespan_graph.hpp: above

// curfew/detail/lifespan_report.hpp: above

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/stop_token.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Progress of a call:
///
///     running -> finished    the hook's thread, when the hook has returned or thrown
///     running -> abandoned   the watcher, at the deadline
///     abandoned -> late      the hook's thread, if the hook ends after all
///     left                   the same thread, after its thread_local destructors; only then is it joined
///
/// Whoever leaves `running` first wins; `error`, `complaint` and `ended` are written before `finished` and read after
/// it.
inline constexpr std::chrono::milliseconds thread_exit_grace{100};

enum class hook_progress : unsigned char { running, finished, abandoned, late };

/// Made before the first hook runs, so that a stop has nothing left to allocate.
template <class Sync>
struct hook_call : leaked_node {
  using time_point = typename Sync::clock::time_point;

  hook_call(std::shared_ptr<stage_node> its_stage, lifespan_phase its_phase, std::chrono::nanoseconds its_budget)
      : stage(std::move(its_stage)), phase(its_phase), budget(its_budget) {
    record.stage = stage->name;
    record.phase = phase;
  }

  const std::shared_ptr<stage_node> stage;
  const lifespan_phase phase;
  const std::chrono::nanoseconds budget;
  std::stop_source cut;
  stage_context context{};
  typename Sync::template atomic<hook_progress> progress{hook_progress::running};
  time_point ended{};
  std::exception_ptr error;
  hook_complaint complaint;

  // While a thread runs the hook: what it needs even after everybody else has gone, its hold on this, and whether it
  // has nothing left to do but to end.
  std::shared_ptr<lifespan_control<Sync>> owner;
  std::shared_ptr<hook_call> held_by_thread;
  typename Sync::template atomic<bool> left{false};
  typename Sync::thread thread;

  // Of the watcher:
  time_point began{}, slow_at{}, soft_at{}, deadline{};
  bool told_slow = false, told_hung = false, cut_fired = false, hook_over = false, armed = false, settled = false;

  // Of the controller:
  bool here = false;    // runs on the controller
  bool called = false;  // has begun
  stage_record record;
};

template <class Sync>
using hook_group = std::vector<std::shared_ptr<hook_call<Sync>>>;

/// Runs hooks in groups and holds each to its slice of one clock.
template <class Sync>
class lifespan_runner : public lifespan_control<Sync>, public std::enable_shared_from_this<lifespan_runner<Sync>> {
 public:
  using base = lifespan_control<Sync>;
  using typename base::clock;
  using typename base::time_point;
  using call = hook_call<Sync>;
  using group = hook_group<Sync>;

  using base::base;

  /// For a child: its parent is in a hurry, or means to cut the hook that drives the child. Any thread.
  void press(bool hurry) noexcept {
    if (hurry) parent_hurries_.store(true, std::memory_order_seq_cst);
    parent_cuts_.store(true, std::memory_order_seq_cst);
    this->ring();
  }
  bool hurried() const noexcept { return hurried_.load(std::memory_order_seq_cst); }

 protected:
  using base::options_;

  /// slice = min(budget, max(reserve, what is left - reserve for each unit still to come)).
  std::chrono::nanoseconds slice_until(time_point end, std::size_t after, std::chrono::nanoseconds budget,
                                       time_point now) const noexcept {
    std::chrono::nanoseconds left = end - now;
    const auto reserve = options_.stage_reserve;
    if (end != time_point::max()) {
      // In floating point, so that reserves as long as the age of the world do not overflow.
      const double kept = static_cast<double>(reserve.count()) * static_cast<double>(after);
      const double rest = static_cast<double>(left.count()) - kept;
      left = rest <= static_cast<double>(reserve.count()) ? reserve : left - reserve * static_cast<long>(after);
    }
    return std::min(budget, std::max(reserve, left));
  }
  std::chrono::nanoseconds slice(std::chrono::nanoseconds budget, time_point now) const noexcept {
    if (layer_budget_ != std::chrono::nanoseconds::zero()) return slice_until(layer_end_, members_after_, budget, now);
    return slice_until(std::min(clock_end_, ceiling_), units_after_, budget, now);
  }

  /// Drains of one layer share a slice.
  void open_layer(std::chrono::nanoseconds budget) noexcept {
    const time_point now = clock::now();
    layer_end_ = later_by(now, slice(budget, now));
    layer_budget_ = budget;
  }
  void close_layer() noexcept { layer_budget_ = std::chrono::nanoseconds::zero(); }

  /// Calls every hook of \p calls, concurrently if they are several; returns when each has ended or was given up.
  void run_group(const group& calls) {
    if (calls.empty()) return;
    look_at_pressure(clock::now());
    for (const auto& one : calls) begin(*one);
    for (const auto& one : calls) {
      one->here = !one->hook_over && (one->stage->on_controller || !launch(one));
    }
    typename Sync::thread watcher;
    if (std::any_of(calls.begin(), calls.end(), [](const auto& one) { return one->here; })) {
      CURFEW_TRY {
        watcher = typename Sync::thread([&] { watch(calls); });
      }
      CURFEW_CATCH_ALL {
        this->add_note({"no thread to watch the hooks that run on the controller"});
      }
      for (const auto& one : calls) {
        if (!one->here) continue;
        perform(*one, this);
        this->ring();
      }
    }
    if (watcher.joinable()) {
      watcher.join();
    } else {
      watch(calls);
    }
  }

  std::size_t units_after_ = 0;    // hooks, or layers of drains, that still want a share of the clock
  std::size_t members_after_ = 0;  // drains still to come in the layer that is open
  time_point clock_end_ = time_point::max();
  time_point ceiling_ = time_point::max();  // when the hook that drives this child is given up
  stop_cause told_cause_ = stop_cause::none;
  typename Sync::template atomic<bool> hurried_{false};
  typename Sync::template atomic<bool> parent_hurries_{false};
  typename Sync::template atomic<bool> parent_cuts_{false};
  std::vector<std::string> abandoned_;
  bool any_abandoned_ = false;

 private:
  void begin(call& one) noexcept {
    const time_point now = clock::now();
    const auto span = slice(one.budget, now);
    one.called = true;
    one.began = now;
    one.deadline = later_by(now, span);
    one.slow_at = later_by(now, span / 2);
    one.soft_at =
        one.deadline == time_point::max() ? one.deadline : one.deadline - std::min(options_.hang_grace, span / 4);
    one.context = stage_context{one.cut.get_token(), one.deadline, one.phase, told_cause_,
                                hurried() ? urgency::hurried : urgency::normal};
    this->emit(lifespan_event_kind::stage_begin, one.stage->name, one.phase, stage_outcome::not_run, 0, {});
    if (one.phase == lifespan_phase::close) {
      for (const auto& fence : one.stage->fences) fence->close();
    }
    if (!one.stage->has_hook(one.phase)) {
      one.hook_over = true;
      one.ended = clock::now();
    }
  }

  /// When there is no thread to be had the hook runs on the controller: late and unbounded beats not at all.
  bool launch(const std::shared_ptr<call>& one) noexcept {
    one->owner = this->shared_from_this();
    CURFEW_TRY {
      one->thread = typename Sync::thread([one] {
        one->held_by_thread = one;
        Sync::at_thread_exit(&lifespan_runner::leave, one.get());
        perform(*one, one->owner.get());
      });
      return true;
    }
    CURFEW_CATCH(std::exception, e) {
      one->owner.reset();
      this->add_note({"stage '", one->stage->name, "': no thread for its ", to_string(one->phase),
                      " hook, it ran on the controller (", e.what(), ")"});
      return false;
    }
  }

  static void perform(call& one, const base* owner) noexcept {
    {
      const lifespan_frame<Sync> frame(owner, one.stage->name.c_str());
      CURFEW_TRY {
        one.complaint = one.stage->hooks[index_of(one.phase)](one.context);
      }
      CURFEW_CATCH_ALL {
        one.error = std::current_exception();
      }
    }
    one.ended = clock::now();
    Sync::here("lifespan.hook.ended");
    hook_progress running = hook_progress::running;
    if (!one.progress.compare_exchange_strong(running, hook_progress::finished, std::memory_order_seq_cst,
                                              std::memory_order_seq_cst)) {
      one.progress.store(hook_progress::late, std::memory_order_seq_cst);
    }
  }

  /// The hook's thread, after its thread_local objects have gone. Whoever sees `left` joins the thread, so `owner` is
  /// there to the end.
  static void leave(void* call_of_thread) noexcept {
    auto& one = *static_cast<call*>(call_of_thread);
    const auto held = std::move(one.held_by_thread);
    const base* owner = one.owner.get();
    one.left.store(true, std::memory_order_seq_cst);
    owner->ring();
  }

  /// On the controller, or beside it while it runs a hook itself.
  void watch(const group& calls) noexcept {
    for (;;) {
      const std::uint64_t seen = this->ticket();
      const stop_request request = this->request();
      this->attend(request);
      const time_point now = clock::now();
      const bool hurry = look_at_pressure(now);
      const bool cut = parent_cuts_.load(std::memory_order_seq_cst);
      time_point next = time_point::max();
      bool all = true;
      for (const auto& one : calls) {
        if (one->settled) continue;
        if (hurry) {
          one->deadline = std::min(one->deadline, later_by(now, slice(one->budget, now)));
          one->soft_at = now;
        }
        if (cut || (request.rung != 0 && one->phase == lifespan_phase::start))
          one->soft_at = std::min(one->soft_at, now);
        step(one, now);
        if (one->settled) continue;
        all = false;
        next = std::min(next, next_look(*one));
      }
      if (all) return;
      this->park(seen, next);
    }
  }

  /// True when the stop has become hurried since the last look; the clock is shorter then.
  bool look_at_pressure(time_point now) noexcept {
    const bool hurry = this->request().rung >= 2 || parent_hurries_.load(std::memory_order_seq_cst);
    if (!hurry || hurried_.exchange(true, std::memory_order_seq_cst)) return false;
    clock_end_ = std::min(clock_end_, later_by(now, options_.hurried_budget));
    if (layer_budget_ != std::chrono::nanoseconds::zero()) {
      const auto budget = std::exchange(layer_budget_, std::chrono::nanoseconds::zero());
      layer_end_ = std::min(layer_end_, later_by(now, slice(budget, now)));
      layer_budget_ = budget;
    }
    return true;
  }

  /// A hook that only its own return can end is looked at again when that rings.
  static time_point next_look(const call& one) noexcept {
    time_point next = one.told_hung ? time_point::max() : one.deadline;
    if (one.owner && one.progress.load(std::memory_order_seq_cst) == hook_progress::finished) next = gone_by(one);
    if (!one.told_slow) next = std::min(next, one.slow_at);
    if (!one.cut_fired && !one.hook_over) next = std::min(next, one.soft_at);
    return next;
  }

  /// When the thread of a hook that has returned is to be gone; even of one that returned in the last moment.
  static time_point gone_by(const call& one) noexcept {
    return std::max(one.deadline, later_by(one.ended, thread_exit_grace));
  }

  void step(const std::shared_ptr<call>& one, time_point now) noexcept {
    if (!one->hook_over) {
      if (now >= one->deadline && one->owner) {
        hook_progress running = hook_progress::running;
        if (one->progress.compare_exchange_strong(running, hook_progress::abandoned, std::memory_order_seq_cst,
                                                  std::memory_order_seq_cst)) {
          abandon(one, now, " hook still running after ");
          return;
        }
      }
      if (one->progress.load(std::memory_order_seq_cst) == hook_progress::finished) {
        if (!one->owner) {
          one->hook_over = true;
        } else if (one->left.load(std::memory_order_seq_cst)) {
          one->thread.join();
          one->owner.reset();
          one->hook_over = true;
        } else if (now >= gone_by(*one)) {
          abandon(one, now, " hook has returned, but a thread_local destructor of its thread is still running after ");
          return;
        }
      }
    }
    if (one->hook_over && fences_settled(*one, now)) return;
    const auto running = now - one->began;
    if (!one->told_slow && now >= one->slow_at) {
      one->told_slow = true;
      this->emit(lifespan_event_kind::stage_slow, one->stage->name, one->phase, stage_outcome::not_run, 0, running);
    }
    if (!one->cut_fired && !one->hook_over && now >= one->soft_at) fire(one);
    if (!one->told_hung && now >= one->deadline) {  // on the controller: named, not given up
      one->told_hung = true;
      this->emit(lifespan_event_kind::stage_hung, one->stage->name, one->phase, stage_outcome::not_run, 0, running);
    }
  }

  /// After its hook, a drain waits for the stage's fences within the same slice. True when the call is over.
  bool fences_settled(call& one, time_point now) noexcept {
    if (one.phase != lifespan_phase::drain || one.stage->fences.empty()) {
      settle(one, outcome_of(one, one.ended));
      return true;
    }
    const time_point hook_ended = one.ended;
    if (!one.armed) {
      one.armed = true;
      const auto ring = [](void* self) noexcept { static_cast<const lifespan_runner*>(self)->ring(); };
      for (const auto& fence : one.stage->fences) fence->arm(ring, this);
    }
    bool all = true;
    for (const auto& fence : one.stage->fences) all = fence->drained() && all;
    if (!all && now < one.deadline) return false;
    std::string inside;
    for (const auto& fence : one.stage->fences) {
      if (fence->disarm()) continue;
      CURFEW_TRY {
        inside += (inside.empty() ? "not drained: " : ", ") + fence->occupants();
      }
      CURFEW_CATCH_ALL {}
      all = false;
    }
    const stage_outcome of_hook = outcome_of(one, hook_ended);
    one.ended = clock::now();
    if (all) {
      settle(one, of_hook);
      return true;
    }
    if (of_hook != stage_outcome::failed) set_error(one, inside);
    this->emit(lifespan_event_kind::stage_hung, one.stage->name, one.phase, stage_outcome::timed_out, 0,
               one.ended - one.began);
    settle(one, of_hook == stage_outcome::failed ? of_hook : stage_outcome::timed_out);
    return true;
  }

  static stage_outcome outcome_of(const call& one, time_point ended) noexcept {
    if (one.error || !one.complaint.text.empty()) return stage_outcome::failed;
    return ended > one.deadline ? stage_outcome::timed_out : stage_outcome::ok;
  }

  /// Where there are no exceptions nobody could look at one, so the report gets the text as a note.
  void set_error(call& one, const std::string& text) noexcept {
    if constexpr (CURFEW_EXCEPTIONS == 0) {
      this->add_note({"stage '", one.stage->name, "', ", to_string(one.phase), ": ", text});
    } else {
      CURFEW_TRY {
        one.error = std::make_exception_ptr(std::runtime_error(text));
      }
      CURFEW_CATCH_ALL {}
    }
  }

  void settle(call& one, stage_outcome outcome) noexcept {
    one.settled = true;
    if (!one.complaint.text.empty()) set_error(one, one.complaint.text);
    one.record.outcome = outcome;
    one.record.began = one.began - this->origin_;
    one.record.took = one.ended - one.began;
    one.record.error = one.error;
    this->emit(lifespan_event_kind::stage_end, one.stage->name, one.phase, outcome, 0, one.record.took);
  }

  void abandon(const std::shared_ptr<call>& one, time_point now, const char* what) noexcept {
    one->thread.detach();
    leak(*one, one);
    any_abandoned_ = true;
    if (!one->cut_fired) fire(one);  // there was no grace; a hook that listens should end all the same
    if (one->stage->given_up) one->stage->given_up();
    const auto running = now - one->began;
    CURFEW_TRY {
      abandoned_.push_back("stage '" + one->stage->name + "': " + to_string(one->phase) + what +
                           milliseconds_text(running));
    }
    CURFEW_CATCH_ALL {}
    this->emit(lifespan_event_kind::stage_hung, one->stage->name, one->phase, stage_outcome::abandoned, 0, running);
    one->settled = true;
    one->record.outcome = stage_outcome::abandoned;
    one->record.began = one->began - this->origin_;
    one->record.took = running;
    this->emit(lifespan_event_kind::stage_end, one->stage->name, one->phase, stage_outcome::abandoned, 0, running);
  }

  /// Stop callbacks are user code and may block; the watcher must not, so they get a thread. When there is none they
  /// run here.
  void fire(const std::shared_ptr<call>& one) noexcept {
    one->cut_fired = true;
    CURFEW_TRY {
      typename Sync::thread([one, self = this->shared_from_this()] {
        const lifespan_frame<Sync> frame(static_cast<const base*>(self.get()), one->stage->name.c_str());
        one->cut.request_stop();
      }).detach();
    }
    CURFEW_CATCH_ALL {
      const lifespan_frame<Sync> frame(static_cast<const base*>(this), one->stage->name.c_str());
      one->cut.request_stop();
    }
  }

  // Guarded by nobody: the controller writes these between groups, the watcher during one.
  time_point layer_end_ = time_point::max();
  std::chrono::nanoseconds layer_budget_{0};  // of the layer that is open, 0 when none is
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_HOOK_HPP
// ---- end curfew/detail/lifespan_hook.hpp

// curfew/detail/lifespan_report.hpp: above

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/signal_owner.hpp: above

// curfew/detail/signal_table.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_plan : public lifespan_runner<Sync> {
 public:
  using runner = lifespan_runner<Sync>;
  using typename runner::call;

  using runner::runner;

  bool abandoned_anything() const noexcept {
    return this->any_abandoned_ || this->child_abandoned_.load(std::memory_order_seq_cst);
  }

 protected:
  using runner::options_;

  /// Everything that can fail does so here, before the first hook.
  void prepare() {
    check_budgets(options_);
    layers_ = make_layers(stages_);
    calls_.clear();
    calls_.resize(stages_.size());
    started_.assign(stages_.size(), false);
    group_.clear();
    group_.reserve(stages_.size());
    std::size_t records = 0;
    const std::chrono::nanoseconds defaults[phase_count] = {
        options_.stage_start, options_.stage_close, options_.stage_drain, options_.stage_stop, options_.stage_stop};
    for (std::size_t i = 0; i != stages_.size(); ++i) {
      for (std::size_t p = 0; p != phase_count; ++p) {
        const auto phase = static_cast<lifespan_phase>(p);
        if (!stages_[i]->takes_part(phase)) continue;
        calls_[i][p] = std::make_shared<call>(stages_[i], phase, stages_[i]->budgets[p].value_or(defaults[p]));
        ++records;
      }
    }
    report_.records.reserve(records);
  }

  // --- the barriers

  /// A start that threw left half a stage behind. One that was given up and still runs is left alone: cleaning up under
  /// it would be a race.
  void clean_up_barrier() noexcept {
    for_each_unit(lifespan_phase::cleanup, [&] { run_one_unit(); });
  }
  void close_barrier() noexcept {
    for_each_unit(lifespan_phase::close, [&] { run_one_unit(); });
  }
  void stop_barrier() noexcept {
    for_each_unit(lifespan_phase::stop, [&] { run_one_unit(); });
  }

  void drain_barrier() noexcept {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      gather(layer->members, lifespan_phase::drain, true);
      if (group_.empty()) continue;
      if (this->units_after_ != 0) --this->units_after_;
      std::chrono::nanoseconds budget{0};
      for (const auto& one : group_) budget = std::max(budget, one->budget);
      this->open_layer(budget);
      if (layer->parallel) {
        this->members_after_ = 0;
        run_gathered();
      } else {
        this->members_after_ = group_.size();
        for (auto stage = layer->members.rbegin(); stage != layer->members.rend(); ++stage) {
          gather({&*stage, 1}, lifespan_phase::drain, true);
          if (group_.empty()) continue;
          --this->members_after_;
          run_gathered();
        }
      }
      this->close_layer();
    }
  }

  // --- groups

  bool takes_part(std::size_t stage, lifespan_phase phase, bool down) const noexcept {
    const auto& one = calls_[stage][index_of(phase)];
    if (!one) return false;
    if (!down) return true;
    if (phase != lifespan_phase::cleanup) return started_[stage];
    const auto& begun = calls_[stage][index_of(lifespan_phase::start)];
    return begun && begun->called && !started_[stage] &&
           begun->progress.load(std::memory_order_seq_cst) != hook_progress::abandoned;
  }

  /// Fills `group_`, which never grows past what it was made for. On the way down the order is reversed.
  void gather(std::span<const std::size_t> members, lifespan_phase phase, bool down) noexcept {
    group_.clear();
    for (const std::size_t stage : members) {
      if (takes_part(stage, phase, down)) group_.push_back(calls_[stage][index_of(phase)]);
    }
    if (down) std::reverse(group_.begin(), group_.end());
  }

  std::size_t units(lifespan_phase phase, bool down) const noexcept {
    std::size_t count = 0;
    for (const auto& layer : layers_) {
      std::size_t here = 0;
      for (const std::size_t stage : layer.members) here += takes_part(stage, phase, down) ? 1 : 0;
      const bool as_one = layer.parallel || phase == lifespan_phase::drain;
      count += as_one ? std::min<std::size_t>(here, 1) : here;
    }
    return count;
  }

  template <class Run>
  void for_each_unit(lifespan_phase phase, Run run) noexcept {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      if (layer->parallel) {
        gather(layer->members, phase, true);
        run();
        continue;
      }
      for (auto stage = layer->members.rbegin(); stage != layer->members.rend(); ++stage) {
        gather({&*stage, 1}, phase, true);
        run();
      }
    }
  }

  void run_one_unit() noexcept {
    if (group_.empty()) return;
    if (this->units_after_ != 0) --this->units_after_;
    run_gathered();
  }

  void run_gathered() noexcept {
    this->run_group(group_);
    for (const auto& one : group_) {
      const stage_outcome outcome = one->record.outcome;
      const bool counts = outcome == stage_outcome::timed_out ||
                          (outcome == stage_outcome::failed && one->phase != lifespan_phase::start);
      stop_failed_ = stop_failed_ || counts;
      keep_record(std::move(one->record));
    }
  }

  // --- the report

  void keep_record(stage_record&& record) noexcept {
    CURFEW_TRY {
      report_.records.push_back(std::move(record));
    }
    CURFEW_CATCH_ALL {  // the rest of the report is still true
    }
  }

  /// Once, by whoever comes first: a hook that calls stop() may read it while everything else is still being written.
  void note_cause() noexcept {
    const std::lock_guard lock(this->mutex_);
    if (report_.cause == stop_cause::none) report_.cause = this->request().cause;
  }

  void take_failures() noexcept {
    std::vector<stage_record> failures;
    {
      const std::lock_guard lock(this->mutex_);
      failures.swap(this->failures_);
    }
    for (auto& failure : failures) keep_record(std::move(failure));
  }

  /// \p suspects: the stages that may have done it, all of them when the span is empty.
  void look_for_displaced(const char* when, std::span<const std::size_t> suspects) noexcept {
    for (int signo = 1; signo < signal_limit; ++signo) {
      if ((this->wanted_ & signal_bit(signo)) == 0) continue;
      if (!is_displaced(signo)) {
        told_displaced_ &= ~signal_bit(signo);
        continue;
      }
      if ((told_displaced_ & signal_bit(signo)) != 0) continue;
      told_displaced_ |= signal_bit(signo);
      std::string names;
      CURFEW_TRY {
        const std::size_t count = suspects.empty() ? stages_.size() : suspects.size();
        for (std::size_t i = 0; i != count; ++i) {
          names += (i == 0 ? "" : ", ") + stages_[suspects.empty() ? i : suspects[i]]->name;
        }
        report_.displaced_handlers.push_back("the handler of " + signal_name(signo) + " was replaced, " + when + ": " +
                                             names);
      }
      CURFEW_CATCH_ALL {  // no memory: the event below still says so
      }
      this->emit(lifespan_event_kind::handler_displaced, names, lifespan_phase::start, stage_outcome::not_run, signo,
                 this->elapsed());
    }
  }

  void keep_uncalled(bool never_started) noexcept {
    for (std::size_t i = 0; i != stages_.size(); ++i) {
      for (std::size_t p = 0; p != phase_count; ++p) {
        const auto phase = static_cast<lifespan_phase>(p);
        if (!stages_[i]->takes_part(phase) || (i < calls_.size() && calls_[i][p] && calls_[i][p]->called)) continue;
        if (phase == lifespan_phase::cleanup) {
          const bool owed = i < calls_.size() && calls_[i][index_of(lifespan_phase::start)] &&
                            calls_[i][index_of(lifespan_phase::start)]->called && !started_[i];
          if (!owed) continue;
        }
        const bool skipped = !never_started && phase != lifespan_phase::start && phase != lifespan_phase::cleanup;
        CURFEW_TRY {
          keep_record({stages_[i]->name, phase, skipped ? stage_outcome::skipped : stage_outcome::not_run, {}, {}, {}});
        }
        CURFEW_CATCH_ALL {}
      }
    }
  }

  void finish(bool never_started) noexcept {
    take_failures();
    keep_uncalled(never_started);
    report_.abandoned = std::move(this->abandoned_);
    report_.signal = this->request().signal;
    counted_ = this->ledger_->snapshot();
    CURFEW_TRY {
      for (int signo = 1; signo < signal_limit; ++signo) {
        const auto i = static_cast<std::size_t>(signo);
        if (counted_[i] != baseline_[i]) report_.signals[signo] = counted_[i] - baseline_[i];
      }
    }
    CURFEW_CATCH_ALL {  // no memory: the counts stay out of the report
    }
    report_.observer_errors = this->observers_.errors();
    {
      const std::lock_guard lock(this->mutex_);
      report_.notes = std::move(this->notes_);
    }
    report_.exit_code = exit_code();
    report_.total = this->elapsed();
    Sync::here("lifespan.stop.finished");
    this->set_state(lifespan_state::stopped);
  }

  int exit_code() const noexcept {
    const std::int64_t code = this->code_.load(std::memory_order_seq_cst);
    if (code != runner::no_code) return static_cast<int>(code);
    if (start_failed_) return 1;
    if (abandoned_anything()) return 124;
    if (stop_failed_ || this->stage_failed_.load(std::memory_order_seq_cst)) return 1;
    const bool by_signal = report_.cause == stop_cause::signal && report_.signal != 0;
    return by_signal && options_.exit != exit_code_policy::zero_when_clean ? 128 + report_.signal : 0;
  }

  stage_list stages_;
  std::vector<stage_layer> layers_;
  std::vector<std::array<std::shared_ptr<call>, phase_count>> calls_;
  std::vector<bool> started_;
  hook_group<Sync> group_;
  bool start_failed_ = false;
  bool stop_failed_ = false;
  std::uint64_t told_displaced_ = 0;
  lifespan_report report_;
  typename stop_ledger<Sync>::counts baseline_{};  // what had been counted when this run began
  typename stop_ledger<Sync>::counts counted_{};   // what had been counted when it was over
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_PLAN_HPP
// ---- end curfew/detail/lifespan_plan.hpp

// curfew/detail/lifespan_report.hpp: above

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/stop_token.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_engine : public lifespan_plan<Sync> {
 public:
  using plan = lifespan_plan<Sync>;
  using typename plan::clock;
  using typename plan::time_point;

  using plan::plan;

  std::shared_ptr<stage_node> add(std::string name) {
    if (this->state() != lifespan_state::idle) {
      CURFEW_THROW(std::logic_error("lifespan '" + options_.name + "': stage '" + name + "' comes too late"));
    }
    stages_.push_back(std::make_shared<stage_node>(std::move(name)));
    return stages_.back();
  }

  bool start() {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return false;
    if (this->own_frame() != nullptr) return this->state() == lifespan_state::running;
    if (claim(lifespan_state::idle) != claimed::yes) return this->state() == lifespan_state::running;
    CURFEW_TRY {
      this->prepare();
      this->unblock_here();
    }
    CURFEW_CATCH_ALL {
      calls_.clear();
      let_go();
      CURFEW_RETHROW;
    }
    const bool up = run_start();
    let_go();
    return up;
  }

  const lifespan_report& stop(stop_cause cause) noexcept {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return report_;
    this->request_stop(cause, std::nullopt);
    if (this->own_frame() != nullptr) {
      this->note_cause();
      return report_;
    }
    Sync::here("lifespan.stop.requested");
    switch (claim_stop()) {
      case claimed::yes:
        break;
      case claimed::refused:
        return report_;
      case claimed::hopeless:
        return given_up() ? lost_ : report_;
    }
    Sync::here("lifespan.stop.claimed");
    run_stop();
    let_go();
    return report_;
  }

  const lifespan_report& report() const noexcept {
    return this->state() == lifespan_state::stopped ? report_ : nothing_;
  }

  bool reset() {
    if (this->in_forked_child() || this->own_frame() != nullptr) return false;
    const auto keep = this->shared_from_this();
    std::stop_source fresh;
    std::vector<stage_record> failures;  // destroyed without the lock: their exceptions are user code
    if (claim(lifespan_state::stopped) != claimed::yes) return false;
    if (this->abandoned_anything()) {
      let_go();
      return false;
    }
    report_ = {};
    calls_.clear();
    started_.clear();
    start_failed_ = stop_failed_ = false;
    told_displaced_ = 0;
    baseline_ = counted_;
    this->told_cause_ = stop_cause::none;
    this->clock_end_ = this->ceiling_ = time_point::max();
    this->origin_ = clock::now();
    for (auto* flag :
         {&this->hurried_, &this->parent_hurries_, &this->parent_cuts_, &this->stage_failed_, &this->unattended_}) {
      flag->store(false, std::memory_order_seq_cst);
    }
    this->observers_.forget_errors();
    this->code_.store(plan::no_code, std::memory_order_seq_cst);
    this->ledger_->forget(counted_);
    {
      const std::lock_guard lock(this->mutex_);
      this->source_.swap(fresh);
      this->reloaded_ = counted_[hangup_signal];  // those that came while it stopped asked for nothing any more
      this->failures_.swap(failures);
      this->notes_.clear();
    }
    this->set_state(lifespan_state::idle);
    let_go();
    return true;
  }

  /// The last thing a lifespan does that left nothing running: what its hooks and observers hold goes now, on this
  /// thread, and not when the last thread of a stop callback lets go of the rest.
  void forget_hooks() noexcept {
    if (this->state() != lifespan_state::stopped || this->any_abandoned_) return;
    for (const auto& stage : stages_) {
      for (auto& hook : stage->hooks) hook = nullptr;
      stage->fences.clear();
    }
    this->observers_.forget_all();
  }

  /// The signal to die of when the policy is reraise and the stop was clean; 0 otherwise.
  int signal_to_reraise() const noexcept {
    const bool due = options_.exit == exit_code_policy::reraise && this->parent() == nullptr &&
                     report_.cause == stop_cause::signal && report_.signal != 0 && !start_failed_ && !stop_failed_ &&
                     !this->stage_failed_.load(std::memory_order_seq_cst) && !this->abandoned_anything() &&
                     this->code_.load(std::memory_order_seq_cst) == plan::no_code;
    return due ? report_.signal : 0;
  }

 protected:
  using plan::baseline_;
  using plan::calls_;
  using plan::counted_;
  using plan::layers_;
  using plan::options_;
  using plan::report_;
  using plan::stages_;
  using plan::start_failed_;
  using plan::started_;
  using plan::stop_failed_;
  using plan::told_displaced_;

  // --- who drives

  /// What came of the wish to drive. `refused`: the state is another one, and nobody drives. `hopeless`: somebody
  /// drives whose end the caller must not wait for.
  enum class claimed : unsigned char { yes, refused, hopeless };

  claimed claim(lifespan_state wanted) noexcept {
    const bool relative = this->in_family_frame();
    for (;;) {
      const std::uint64_t seen = this->ticket();
      Sync::here("lifespan.claim.looking");
      {
        const std::lock_guard lock(this->mutex_);
        if (!this->busy_) {
          if (this->state() != wanted) return claimed::refused;
          this->busy_ = true;
          return claimed::yes;
        }
        if (given_up_ || (led_ && relative)) return claimed::hopeless;
      }
      this->park(seen, time_point::max());
    }
  }

  /// `yes`: the caller drives the stop. `refused`: it is over.
  claimed claim_stop() noexcept {
    for (;;) {
      for (const auto state : {lifespan_state::running, lifespan_state::idle}) {
        const claimed result = claim(state);
        if (result != claimed::refused) return result;
      }
      if (this->state() == lifespan_state::stopped) return claimed::refused;
    }
  }

  void let_go() noexcept {
    {
      const std::lock_guard lock(this->mutex_);
      this->busy_ = false;
    }
    this->ring();
  }

  // --- up

  bool called_off() const noexcept { return this->request().rung != 0 || this->called_off_above(); }

  /// Whether everything is up. If not, it is down again.
  bool run_start() noexcept {
    this->origin_ = clock::now();
    this->clock_end_ = later_by(this->origin_, options_.start_budget);
    if (called_off()) {
      take_over_request();
      open_stop(std::nullopt);
      this->finish(true);
      return false;
    }
    this->set_state(lifespan_state::starting);
    if (start_layers()) {
      this->set_state(lifespan_state::running);
      return true;
    }
    take_over_request();
    open_stop(lifespan_state::rolling_back);
    this->clean_up_barrier();
    this->close_barrier();
    this->drain_barrier();
    this->stop_barrier();
    this->finish(false);
    return false;
  }

  bool start_layers() noexcept {
    this->units_after_ = this->units(lifespan_phase::start, false);
    for (const auto& layer : layers_) {
      const std::size_t step = layer.parallel ? layer.members.size() : 1;
      for (std::size_t i = 0; i != layer.members.size(); i += step) {
        if (called_off() || !start_stages({layer.members.data() + i, step})) return false;
      }
    }
    return !called_off();
  }

  /// One unit: a stage, or a layer of parallel ones.
  bool start_stages(std::span<const std::size_t> members) noexcept {
    this->gather(members, lifespan_phase::start, false);
    this->run_one_unit();
    for (const std::size_t stage : members) {
      const auto& one = calls_[stage][index_of(lifespan_phase::start)];
      started_[stage] =
          !one || one->record.outcome == stage_outcome::ok || one->record.outcome == stage_outcome::timed_out;
      if (!started_[stage]) start_failed_ = true;
    }
    this->look_for_displaced("after the start of", members);
    if (start_failed_) this->request_stop(stop_cause::start_failed, std::nullopt);
    return !start_failed_;
  }

  // --- down

  /// A stop that nobody asked this lifespan for was asked of its parent.
  void take_over_request() noexcept {
    if (this->request().rung == 0) this->request_stop(stop_cause::parent, std::nullopt);
    this->attend(this->request());
  }

  /// Asked for here: what a parent allowed for the start, when there is one, is no bound of this.
  void run_stop() noexcept {
    this->ceiling_ = time_point::max();
    this->parent_cuts_.store(false, std::memory_order_seq_cst);
    this->attend(this->request());
    let_reload_end();
    if (this->state() == lifespan_state::idle) {
      open_stop(std::nullopt);
      this->finish(true);
      return;
    }
    announce();
    open_stop(lifespan_state::closing);
    this->close_barrier();
    this->set_state(lifespan_state::draining);
    this->drain_barrier();
    this->set_state(lifespan_state::stopping);
    this->stop_barrier();
    this->finish(false);
  }

  /// A reload belongs to the running state. It is told by token() and has the grace of any other hook.
  void let_reload_end() noexcept {
    const time_point until = later_by(clock::now(), options_.hang_grace);
    for (;;) {
      const std::uint64_t seen = this->ticket();
      {
        const std::lock_guard lock(this->mutex_);
        if (!this->reloading_) return;
      }
      if (clock::now() >= until) break;
      this->park(seen, until);
    }
    this->any_abandoned_ = true;
    CURFEW_TRY {
      this->abandoned_.push_back("the reload function (on_hangup): still running after the stop was requested");
    }
    CURFEW_CATCH_ALL {}
  }

  /// Stays up, but not ready, for a while: only for the two requests that leave time for it.
  void announce() noexcept {
    const stop_request asked = this->request();
    const bool polite =
        asked.cause == stop_cause::requested || (asked.cause == stop_cause::signal && asked.signal == SIGTERM);
    if (!polite || options_.announce == std::chrono::nanoseconds::zero()) return;
    const unsigned known = asked.cause == stop_cause::signal ? 1 : 0;
    begin_clock(options_.announce);
    this->set_state(lifespan_state::announcing);
    for (;;) {
      const std::uint64_t seen = this->ticket();
      const auto counts = this->ledger_->snapshot();
      unsigned stop_signals = 0;
      for (int signo = 1; signo < signal_limit; ++signo) {
        const auto i = static_cast<std::size_t>(signo);
        if (options_.on_hangup && signo == hangup_signal) continue;
        stop_signals += counts[i] - baseline_[i];
      }
      if (stop_signals > known || this->request().rung > 1 || clock::now() >= this->clock_end_) return;
      this->park(seen, this->clock_end_);
    }
  }

  void begin_clock(std::chrono::nanoseconds budget) noexcept {
    const time_point now = clock::now();
    if (this->hurried()) budget = std::min(budget, options_.hurried_budget);
    this->clock_end_ = later_by(now, budget);
    if (this->told_cause_ != stop_cause::none) return;  // the announcement was part of it
    const stop_request asked = this->request();
    this->told_cause_ = asked.cause;
    this->origin_ = std::min(now, stop_ledger<Sync>::moment_of(asked));
  }

  void open_stop(std::optional<lifespan_state> next) noexcept {
    begin_clock(options_.stop_budget);
    this->note_cause();
    this->take_failures();
    this->look_for_displaced("noticed at the stop of", {});
    if (!next) return;
    this->units_after_ = 0;
    for (const auto phase :
         {lifespan_phase::cleanup, lifespan_phase::close, lifespan_phase::drain, lifespan_phase::stop}) {
      this->units_after_ += this->units(phase, true);
    }
    this->set_state(*next);
  }

  bool given_up() const noexcept {
    const std::lock_guard lock(this->mutex_);
    return given_up_;
  }

  // Guarded by mutex_; of a child, see lifespan_family.hpp.
  bool led_ = false;       // a stop is under way barrier by barrier, driven by the parent
  bool given_up_ = false;  // the parent has abandoned a hook that drives this; never reset

  const lifespan_report nothing_{};
  lifespan_report lost_;  // what stop() returns when it is hopeless; written before the start
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_ENGINE_HPP
// ---- end curfew/detail/lifespan_engine.hpp

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/stop_token.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_family : public lifespan_engine<Sync> {
 public:
  using engine = lifespan_engine<Sync>;
  using typename engine::clock;
  using typename engine::time_point;

  using engine::engine;

  void adopt(std::shared_ptr<lifespan_family> child) {
    if (child->owns_signals()) {
      CURFEW_THROW(ownership_conflict("lifespan '" + options_.name + "': its child '" + child->options_.name +
                                      "' must not own signals"));
    }
    if (this->state() != lifespan_state::idle || this->is_or_is_below(child.get()) || child->parent() != nullptr ||
        child->state() != lifespan_state::idle) {
      CURFEW_THROW(
          std::logic_error("lifespan '" + options_.name + "': '" + child->options_.name + "' cannot become its child"));
    }
    lifespan_report lost;
    lost.cause = stop_cause::parent;
    lost.exit_code = 124;
    lost.abandoned.push_back("lifespan '" + child->options_.name + "': given up by its parent '" + options_.name +
                             "' while a hook was still running");
    children_.push_back(child);
    child->lost_ = std::move(lost);
    child->parent_.store(this, std::memory_order_seq_cst);
  }

  /// Takes back the last adopt().
  void disown(const std::shared_ptr<lifespan_family>& child) noexcept {
    child->parent_.store(nullptr, std::memory_order_seq_cst);
    children_.pop_back();
  }

  /// Before this lifespan goes; its children may outlive it. One that was given up keeps its parent: a thread may still
  /// be inside it, and that thread keeps the parent's core alive.
  void orphan_children() noexcept {
    for (const auto& child : children_) {
      if (!child->given_up()) child->parent_.store(nullptr, std::memory_order_seq_cst);
    }
    children_.clear();
  }

  // --- as a child; called by a hook of the parent, with that hook's context

  hook_complaint start_under(const stage_context& above) {
    const auto keep = this->shared_from_this();
    face(above);
    const std::stop_callback pressed(above.token, presser{this});
    if (this->start()) return {};
    tell_abandoned();
    // Called off by the parent, not failed: it is down again, and the later barriers will find nothing to do.
    if (this->called_off_above() && report_.cause == stop_cause::parent && clean()) return {};
    return {"child lifespan '" + options_.name + "' did not start"};
  }

  hook_complaint stop_under(lifespan_phase barrier, const stage_context& above) {
    const auto keep = this->shared_from_this();
    bool inside = true;
    {
      const std::lock_guard lock(this->mutex_);
      inside = std::exchange(inside_, true);
      owed_ = barrier;
    }
    if (inside) return {"child lifespan '" + options_.name + "' is still busy with an earlier barrier"};
    face(above);
    const std::stop_callback pressed(above.token, presser{this});
    bool clean = pass(barrier);
    while (falls_due(barrier)) clean = pass(barrier);
    if (clean) return {};
    return {"child lifespan '" + options_.name + "' did not stop cleanly"};
  }

  /// The parent has abandoned the hook that drives this. Nobody may wait for that thread from now on, here or below.
  void give_up() noexcept {
    {
      const std::lock_guard lock(this->mutex_);
      this->given_up_ = true;
    }
    this->ring();
    for (const auto& child : children_) child->give_up();
  }

 protected:
  using engine::options_;
  using engine::report_;

 private:
  using typename engine::claimed;

  struct presser {
    lifespan_family* self;
    void operator()() const noexcept { self->press(static_cast<const lifespan_family*>(self->parent())->hurried()); }
  };

  /// Nothing here is to outlast the hook above, so an eighth of its time is kept back.
  void face(const stage_context& above) noexcept {
    this->parent_cuts_.store(false, std::memory_order_seq_cst);
    if (above.pressure != urgency::normal) this->parent_hurries_.store(true, std::memory_order_seq_cst);
    const bool bounded = above.deadline != time_point::max();
    this->ceiling_ = bounded ? above.deadline - (above.deadline - clock::now()) / 8 : above.deadline;
  }

  /// The parent went on to later barriers while \p barrier was running: they are run now, late, each hook with its
  /// reserve. False when there is none.
  bool falls_due(lifespan_phase& barrier) noexcept {
    const std::lock_guard lock(this->mutex_);
    if (barrier == owed_) {
      inside_ = false;
      return false;
    }
    barrier = barrier == lifespan_phase::close ? lifespan_phase::drain : lifespan_phase::stop;
    return true;
  }

  /// False when the stop is over and was not clean.
  bool pass(lifespan_phase barrier) noexcept {
    if (barrier == lifespan_phase::close) {
      this->request_stop(stop_cause::parent, std::nullopt);
      if (this->claim_stop() != claimed::yes) {  // stopped on its own before its parent was
        tell_abandoned();
        return true;
      }
      lead(true);
      this->attend(this->request());
      this->open_stop(lifespan_state::closing);
      this->close_barrier();
    } else if (led() && barrier == lifespan_phase::drain) {
      this->set_state(lifespan_state::draining);
      this->drain_barrier();
    } else if (led()) {
      this->set_state(lifespan_state::stopping);
      this->stop_barrier();
      this->finish(false);
      const bool well = clean();
      tell_abandoned();
      lead(false);
      this->let_go();
      return well;
    }
    return true;
  }

  /// A child that is stopped may have left a hook behind, under whose feet its parent's process must not end either.
  void tell_abandoned() noexcept {
    if (this->state() == lifespan_state::stopped && this->abandoned_anything()) this->parent()->adopt_abandoned();
  }

  bool clean() const noexcept { return !this->start_failed_ && !this->stop_failed_ && !this->abandoned_anything(); }

  bool led() const noexcept {
    const std::lock_guard lock(this->mutex_);
    return this->led_;
  }
  /// Rings, because who waits for this to be over may have to know that he must not.
  void lead(bool now) noexcept {
    {
      const std::lock_guard lock(this->mutex_);
      this->led_ = now;
    }
    this->ring();
  }

  std::vector<std::shared_ptr<lifespan_family>> children_;
  // Guarded by mutex_:
  bool inside_ = false;                          // a barrier is under way
  lifespan_phase owed_ = lifespan_phase::start;  // the last barrier that the parent has come to
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_FAMILY_HPP
// ---- end curfew/detail/lifespan_family.hpp

// curfew/detail/lifespan_frame.hpp: above

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/signal_table.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_core final : public lifespan_family<Sync> {
 public:
  using family = lifespan_family<Sync>;
  using typename family::clock;
  using typename family::time_point;

  using family::family;

  /// \p in_run: the caller is run(), and will do nothing but stop and leave.
  stop_cause wait(bool in_run = false) {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return this->request().cause;
    this->unblock_here();
    for (;;) {
      const std::uint64_t seen = this->ticket();
      const stop_request now = this->request();
      if (now.rung != 0 || this->state() == lifespan_state::stopped) {
        this->attend(now);
        return now.cause;
      }
      reload(in_run);
      this->park(seen, time_point::max());
    }
  }

  void poll_signals() {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return;
    this->wake_.silence();
    bool somebody_parked = false;
    {
      const std::lock_guard lock(this->mutex_);
      ++this->rings_;
      this->parked_.notify_all();
      somebody_parked = this->polling_;
    }
    if (somebody_parked) this->wake_.ring();  // what was silenced here may have been meant for there
    this->attend(this->request());
    reload(false);
  }

 private:
  using family::options_;

  /// SIGHUP: once for any number of them, only while running and before any stop request.
  void reload(bool in_run) noexcept {
    if (!options_.on_hangup || hangup_signal == 0) return;
    for (;;) {
      const unsigned count = this->ledger_->count_of(hangup_signal);
      if (this->request().rung != 0 || this->state() != lifespan_state::running) return;
      {
        const std::lock_guard lock(this->mutex_);
        if (this->reloading_ || this->reloaded_ == count) return;
        this->reloading_ = true;
        this->reloaded_ = count;
      }
      typename Sync::thread watcher;
      CURFEW_TRY {
        watcher = typename Sync::thread([this, in_run] { watch_reload(in_run); });
      }
      CURFEW_CATCH_ALL {
        this->add_note({"no thread to watch the reload function"});
      }
      perform_reload();
      {
        const std::lock_guard lock(this->mutex_);
        this->reloading_ = false;
      }
      this->ring();
      if (watcher.joinable()) watcher.join();
    }
  }

  void perform_reload() noexcept {
    CURFEW_TRY {
      const lifespan_frame<Sync> frame(static_cast<const lifespan_control<Sync>*>(this), "the reload function");
      options_.on_hangup();
    }
    CURFEW_CATCH(std::exception, e) {
      this->add_note({"reload failed: ", e.what()});
    }
    CURFEW_CATCH_ALL {
      this->add_note({"reload failed"});
    }
  }

  /// Sees to signals while the thread that would is inside the reload function. When that does not return within the
  /// grace after a stop request, the stop is carried out from here, and where nothing else was to follow, the process
  /// is left from here too.
  void watch_reload(bool in_run) noexcept {
    time_point until = time_point::max();
    for (;;) {
      const std::uint64_t seen = this->ticket();
      {
        const std::lock_guard lock(this->mutex_);
        if (!this->reloading_) return;
      }
      const stop_request now = this->request();
      if (now.rung != 0) {
        this->attend(now);
        if (until == time_point::max()) until = later_by(clock::now(), options_.hang_grace);
        if (clock::now() >= until) break;
      }
      this->park(seen, until);
    }
    this->stop(stop_cause::requested);
    if (in_run) leave_at_once<Sync>(this->report().exit_code);
  }
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_CORE_HPP
// ---- end curfew/detail/lifespan_core.hpp

// curfew/detail/lifespan_exit.hpp: above

// curfew/detail/lifespan_graph.hpp: above

// curfew/detail/lifespan_report.hpp: above

// curfew/detail/lifespan_types.hpp: above

// curfew/detail/stop_token.hpp: above

// curfew/detail/sync.hpp: above

// ---- begin curfew/signals.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a component does about signals when it does not know who runs the process: ask whether somebody owns the
/// shutdown, and otherwise fall back on a guard that cleans up before the signal takes its course. Design:
/// docs/design/signals.md.

#ifndef CURFEW_SIGNALS_HPP
#define CURFEW_SIGNALS_HPP

#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/leaked.hpp: above

// ---- begin curfew/detail/signal_fallback.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the guards of signals.hpp share: per signal a stack of guards, of which the newest is served, and the handler
/// that wakes it.

#ifndef CURFEW_DETAIL_SIGNAL_FALLBACK_HPP
#define CURFEW_DETAIL_SIGNAL_FALLBACK_HPP

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/leaked.hpp: above

// curfew/detail/signal_owner.hpp: above

// curfew/detail/signal_table.hpp: above

// curfew/detail/signal_wakeup.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

#if CURFEW_POSIX

/// One guard's hold on one signal; a link of that signal's stack, or, while a lifespan owns the signal, of the queue of
/// those who wait for its end. Guarded by the disposition lock.
struct fallback_entry {
  int signo = 0;
  int bell = -1;
  bool listed = false;
  bool waiting = false;
  /// Sees to it that somebody serves what is caught; false: it cannot be done, and the entry is left alone.
  bool (*man)(fallback_entry&) noexcept = nullptr;
  void* service = nullptr;
  struct sigaction before {};  // what was there when it was installed
  fallback_entry* above = nullptr;
  fallback_entry* below = nullptr;
};

/// Per signal and process. The handler reads `bell`, `pid`, and, when it finds nobody to wake, `orphan[active]`: the
/// other copy of `orphan` is written only when no handler that may have seen it active is still running.
struct fallback_slot {
  std_sync::atomic<int> bell{-1};        // of the newest guard, -1 without one
  std_sync::atomic<int> pid{0};          // of the process whose guards these are
  std_sync::atomic<unsigned> caught{0};  // not yet served
  std_sync::atomic<int> active{0};
  struct sigaction orphan[2]{};
  fallback_entry* newest = nullptr;  // guarded by the disposition lock
};
struct fallback_table {
  fallback_slot slots[signal_limit];
  // Guarded by the disposition lock: those who wait for the end of an owner, oldest first, and whose process it is.
  fallback_entry* waiting = nullptr;
  int waiting_pid = 0;
};
static_assert(std::is_trivially_destructible_v<fallback_table>);

CURFEW_VISIBLE inline constinit fallback_table fallbacks{};

/// Wakes the newest guard. Without one, which is the case in a forked child and after a guard went while somebody else
/// had saved its handler, the signal goes where it would have gone without the guard.
inline void on_fallback_signal(int signo) noexcept {
  const handler_scope scope;
  fallback_slot& slot = fallbacks.slots[signo];
  const int bell = slot.bell.load(std::memory_order_seq_cst);
  if (bell >= 0 && slot.pid.load(std::memory_order_seq_cst) == ::getpid()) {
    slot.caught.fetch_add(1, std::memory_order_seq_cst);
    ring_bell(bell);
    return;
  }
  // Whatever is there now: who calls this handler from his own would otherwise be called again and again.
  ::sigaction(signo, &slot.orphan[slot.active.load(std::memory_order_seq_cst)], nullptr);
  ::raise(signo);
}

inline bool is_ignored(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

inline bool is_fallback(const struct sigaction& action) noexcept {
  return action.sa_handler == &on_fallback_signal;
}

/// Tells the handler whom to wake from now on, and what to restore when there is nobody: what the oldest of the guards
/// that stand directly on each other has found. \p otherwise when there is no guard. Under the lock.
inline void show_to_handler(fallback_slot& slot, const struct sigaction& otherwise) noexcept {
  const struct sigaction* orphan = &otherwise;
  for (const fallback_entry* entry = slot.newest; entry != nullptr; entry = entry->below) {
    orphan = &entry->before;
    if (!is_fallback(*orphan)) break;
  }
  await_handlers();
  const int other = 1 - slot.active.load(std::memory_order_seq_cst);
  slot.orphan[other] = *orphan;
  slot.active.store(other, std::memory_order_seq_cst);
  slot.bell.store(slot.newest != nullptr ? slot.newest->bell : -1, std::memory_order_seq_cst);
}

enum class installation : unsigned char { done, waits, left_alone, refused };

/// On `refused`, errno says why. Under the lock.
inline installation push_fallback(fallback_entry& entry) noexcept {
  if (::sigaction(entry.signo, nullptr, &entry.before) != 0) return installation::refused;
  if (is_ignored(entry.before)) return installation::left_alone;
  if (!entry.man(entry)) return installation::refused;
  fallback_slot& slot = fallbacks.slots[entry.signo];
  if (slot.pid.load(std::memory_order_seq_cst) != ::getpid()) {  // the stack of a parent is no concern of a child
    slot.newest = nullptr;
    slot.caught.store(0, std::memory_order_seq_cst);
    slot.pid.store(::getpid(), std::memory_order_seq_cst);
  }
  // Left behind by a guard that is gone: what that one had found is what there is.
  if (slot.newest == nullptr && is_fallback(entry.before)) {
    entry.before = slot.orphan[slot.active.load(std::memory_order_seq_cst)];
  }
  entry.below = std::exchange(slot.newest, &entry);
  entry.above = nullptr;
  if (entry.below != nullptr) entry.below->above = &entry;
  entry.listed = true;
  show_to_handler(slot, entry.before);
  const struct sigaction ours = disposition_of(&on_fallback_signal);
  if (::sigaction(entry.signo, &ours, nullptr) == 0) return installation::done;
  const int reason = errno;
  slot.newest = entry.below;
  if (entry.below != nullptr) entry.below->above = nullptr;
  entry.listed = false;
  show_to_handler(slot, entry.before);
  errno = reason;
  return installation::refused;
}

/// A lifespan has gone: those who came while it owned their signals are installed, the newest on top. Under the lock.
inline void install_waiting() noexcept {
  if (fallbacks.waiting_pid != ::getpid()) return;  // they are in the process that this one was forked from
  while (fallback_entry* entry = fallbacks.waiting) {
    fallbacks.waiting = entry->above;
    entry->above = nullptr;
    entry->waiting = false;
    push_fallback(*entry);
  }
}

/// Under the lock.
inline void enqueue_waiting(fallback_entry& entry) noexcept {
  if (std::exchange(fallbacks.waiting_pid, ::getpid()) != ::getpid()) fallbacks.waiting = nullptr;
  fallback_entry** last = &fallbacks.waiting;
  while (*last != nullptr) last = &(*last)->above;
  *last = &entry;
  entry.above = nullptr;
  entry.waiting = true;
  process_signals.released.store(&install_waiting, std::memory_order_seq_cst);
}

inline void dequeue_waiting(fallback_entry& entry) noexcept {
  entry.waiting = false;
  for (fallback_entry** link = &fallbacks.waiting; *link != nullptr; link = &(*link)->above) {
    if (*link != &entry) continue;
    *link = entry.above;
    return;
  }
}

/// A signal may be caught and served, and the entry be gone again, before this returns.
inline installation install_fallback(fallback_entry& entry) noexcept {
  const disposition_lock lock;
  if ((owned_here() & signal_bit(entry.signo)) != 0) {
    enqueue_waiting(entry);
    return installation::waits;
  }
  if (is_shutdown_owned(entry.signo))
    return installation::left_alone;  // by another shared object, which cannot tell us
  return push_fallback(entry);
}

/// Takes \p entry off its stack and puts back what it had found, if what is there is still its own. True when a signal
/// was caught for it that nobody has served.
inline bool remove_fallback(fallback_entry& entry) noexcept {
  const disposition_lock lock;
  if (entry.waiting) dequeue_waiting(entry);
  if (!entry.listed) return false;
  entry.listed = false;
  fallback_slot& slot = fallbacks.slots[entry.signo];
  const bool was_newest = slot.newest == &entry;
  if (entry.below != nullptr) entry.below->above = entry.above;
  if (!was_newest) {
    entry.above->below = entry.below;
    // The one above must not put back a handler whose guard is gone.
    if (is_fallback(entry.above->before)) entry.above->before = entry.before;
    show_to_handler(slot, entry.before);
    return false;
  }
  slot.newest = entry.below;
  if (has_disposition(entry.signo, &on_fallback_signal)) put_back(entry.signo, entry.before);
  show_to_handler(slot, entry.before);
  return slot.caught.exchange(0, std::memory_order_seq_cst) != 0;
}

inline bool is_fallback_installed(const fallback_entry& entry) noexcept {
  const disposition_lock lock;
  const fallback_slot& slot = fallbacks.slots[entry.signo];
  return entry.listed && slot.newest == &entry && slot.pid.load(std::memory_order_seq_cst) == ::getpid() &&
         has_disposition(entry.signo, &on_fallback_signal);
}

/// Delivered before this returns, on this thread if no other one takes it.
inline void send_to_self(int signo) noexcept {
  unblock_signals(signal_bit(signo));
  ::kill(::getpid(), signo);
}

/// Signals whose default action is to end the process.
inline bool ends_by_default(int signo) noexcept {
  switch (signo) {
    case SIGCHLD:
    case SIGCONT:
    case SIGURG:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU:
#if defined(SIGWINCH)
    case SIGWINCH:
#endif
      return false;
    default:
      return true;
  }
}

/// The thread of one guard, and what it needs.
template <class Sync>
class fallback_service : public leaked_node, public std::enable_shared_from_this<fallback_service<Sync>> {
 public:
  fallback_service(std::initializer_list<int> signals, std::function<void(int)> callback)
      : callback_(std::move(callback)), pid_(::getpid()), entries_(signals.size()) {
    std::size_t used = 0;
    std::uint64_t seen = 0;
    for (const int signo : signals) {
      if (!is_signal(signo))
        CURFEW_THROW(std::invalid_argument("fallback_signal_guard: no signal " + std::to_string(signo)));
      if ((seen & signal_bit(signo)) != 0) continue;
      seen |= signal_bit(signo);
      entries_[used++].signo = signo;
    }
    entries_.resize(used);
    for (auto& entry : entries_) {
      entry.bell = wake_.bell();
      entry.man = [](fallback_entry& one) noexcept { return static_cast<fallback_service*>(one.service)->man(); };
      entry.service = this;
    }
  }

  /// All or nothing. There is a thread from the first signal on that is really guarded.
  void start() {
    for (auto& entry : entries_) {
      const installation result = install_fallback(entry);
      if (result == installation::refused) {
        const int reason = errno;
        const std::string what = "fallback_signal_guard: cannot guard " + signal_name(entry.signo);
        stop();
        if (const auto no_thread = std::exchange(no_thread_, nullptr)) std::rethrow_exception(no_thread);
        if (reason == EINVAL) CURFEW_THROW(std::invalid_argument(what));
        CURFEW_THROW(std::system_error(reason, std::generic_category(), what));
      }
    }
  }

  /// Waits for a callback that is running, unless that is who calls. A signal that was caught but not served yet goes
  /// to where it would have gone without the guard.
  void stop() noexcept {
    std::uint64_t unserved = 0;
    for (auto& entry : entries_) {
      if (remove_fallback(entry)) unserved |= signal_bit(entry.signo);
    }
    await_handlers();
    over_.store(true, std::memory_order_seq_cst);
    wake_.ring();
    if (thread_.joinable()) {
      if (thread_.get_id() == Sync::self()) {
        thread_.detach();
      } else {
        thread_.join();
      }
    }
    for (const auto& entry : entries_) {
      if ((unserved & signal_bit(entry.signo)) != 0) send_to_self(entry.signo);
    }
  }

  bool installed(int signo) const noexcept {
    for (const auto& entry : entries_) {
      if (entry.signo == signo) return is_fallback_installed(entry);
    }
    return false;
  }
  bool in_forked_child() const noexcept { return ::getpid() != pid_; }

 private:
  /// Under the disposition lock, which the new thread is going to want; it waits.
  bool man() noexcept {
    if (thread_.joinable()) return true;
    CURFEW_TRY {
      thread_ = typename Sync::thread([self = this->shared_from_this()] { self->serve(); });
      return true;
    }
    CURFEW_CATCH_ALL {
      no_thread_ = std::current_exception();
      return false;
    }
  }

  void serve() noexcept {
    for (;;) {
      for (auto& entry : entries_) serve(entry);
      if (over_.load(std::memory_order_seq_cst)) return;
      wake_.wait_until(Sync::clock::time_point::max());
    }
  }

  void serve(fallback_entry& entry) noexcept {
    {
      const disposition_lock lock;
      fallback_slot& slot = fallbacks.slots[entry.signo];
      if (!entry.listed || slot.newest != &entry) return;
      if (slot.caught.exchange(0, std::memory_order_seq_cst) == 0) return;
    }
    Sync::here("fallback.serve.caught");
    if (is_shutdown_owned(entry.signo) && !has_disposition(entry.signo, &on_fallback_signal)) {
      send_to_self(entry.signo);  // a lifespan has come in between: it is its signal now
      return;
    }
    CURFEW_TRY {
      callback_(entry.signo);
    }
    CURFEW_CATCH_ALL {  // whatever went wrong in there, the signal still has to take its course
    }
    remove_fallback(entry);
    send_to_self(entry.signo);
    const bool by_default = (entry.before.sa_flags & SA_SIGINFO) == 0 && entry.before.sa_handler == SIG_DFL;
    if (::getpid() == 1 && by_default && ends_by_default(entry.signo)) std::_Exit(128 + entry.signo);
  }

  const std::function<void(int)> callback_;
  const pid_t pid_;
  const wakeup<Sync> wake_;
  std::vector<fallback_entry> entries_;
  typename Sync::template atomic<bool> over_{false};
  // Written under the disposition lock, by whoever installs the first entry.
  typename Sync::thread thread_;
  std::exception_ptr no_thread_;
};

#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SIGNAL_FALLBACK_HPP
// ---- end curfew/detail/signal_fallback.hpp

// curfew/detail/signal_owner.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// Whether a lifespan of this process owns \p signo, so that a component must leave it alone. Also true when that
/// lifespan was made by another shared object, and for an owned signal that is ignored or that somebody has displaced.
/// A handler that belongs to nobody's lifespan does not count. False in a forked child. Safe anywhere, also in a signal
/// handler.
inline bool shutdown_owned(int signo) noexcept {
  return detail::is_shutdown_owned(signo);
}

/// Cleans up when a signal ends the process, for as long as no lifespan does.
///
///     curfew::fallback_signal_guard guard({SIGTERM, SIGHUP}, [&](int) { pool.shutdown(); });
///
/// Of its signals it takes those that no lifespan owns and that are not ignored. When one arrives the callback runs, in
/// normal context, with no lock held; then what was there before the guard is put back and the signal is raised again,
/// so that it ends the process, or reaches the previous handler, as if the guard had never been. That happens once per
/// signal; its exceptions are swallowed. A lifespan that comes later takes the signal over, and gives it back to the
/// guard when it goes; a guard that is made under a lifespan begins to work when that has gone. Guards nest: the newest
/// is called first, and each passes the signal on to the one before.
///
/// *When not to use it.* In a program that has an ordered_lifespan for this: use a stage. For signals that a fault of
/// the thread raises (SIGSEGV, SIGBUS, SIGFPE, SIGILL): they come again and again until the callback has ended, and for
/// ever when it is the callback that faults.
///
/// *Thread safety.* installed() from any thread; a destructor waits for a callback that is running, unless it is called
/// by it. The callback runs on a thread of the guard; there is one from the first signal on that the
/// guard holds.
///
/// *Destruction* puts back what was there before if what is there is still the guard's own, and leaves it alone
/// otherwise. If the guard's handler is met afterwards all the same, because somebody had saved and restored it, or in
/// a forked child, it steps aside: it restores what the guard had saved and raises the signal again.
///
/// *Exceptions.* The constructor: std::invalid_argument (no such signal, one that cannot be caught, an empty callback),
/// std::system_error, std::bad_alloc; nothing is installed then. A guard whose turn comes when a lifespan
/// goes, and for which there is no thread then, stays idle.
///
/// *Cost.* Idle: a parked thread and a descriptor; under a lifespan the descriptor only.
template <class Sync = std_sync>
class basic_fallback_signal_guard {
 public:
  basic_fallback_signal_guard([[maybe_unused]] std::initializer_list<int> signals,
                              std::function<void(int signo)> callback) {
    if (!callback) CURFEW_THROW(std::invalid_argument("fallback_signal_guard: the callback is an empty function"));
#if CURFEW_POSIX
    service_ = std::make_shared<detail::fallback_service<Sync>>(signals, std::move(callback));
    service_->start();
#endif
  }
  basic_fallback_signal_guard(const basic_fallback_signal_guard&) = delete;
  basic_fallback_signal_guard& operator=(const basic_fallback_signal_guard&) = delete;

  ~basic_fallback_signal_guard() {
#if CURFEW_POSIX
    if (service_->in_forked_child()) {
      auto& service = *service_;
      detail::leak(service, std::move(service_));
      return;
    }
    service_->stop();
#endif
  }

  /// Whether \p signo would come to this guard now.
  bool installed([[maybe_unused]] int signo) const noexcept {
#if CURFEW_POSIX
    return service_->installed(signo);
#else
    return false;
#endif
  }

 private:
#if CURFEW_POSIX
  std::shared_ptr<detail::fallback_service<Sync>> service_;
#endif
};

/// The one to use.
using fallback_signal_guard = basic_fallback_signal_guard<>;

CURFEW_END_NAMESPACE

#endif  // CURFEW_SIGNALS_HPP
// ---- end curfew/signals.hpp

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A fence behind the interface that the engine knows. Steps of a wait: idle -> armed -> rung -> left; the last one is
/// the last thing that the leaver of the fence does here.
template <class Fence, class Sync>
class fence_port_of final : public fence_port {
 public:
  explicit fence_port_of(Fence& fence) noexcept : fence_(fence) {}

  void close() noexcept override { fence_.close(); }

  void arm(void (*ring)(void*) noexcept, void* arg) noexcept override {
    ring_ = ring;
    arg_ = arg;
    step_.store(step::armed, std::memory_order_seq_cst);
    hook_.emplace(&fence_port_of::on_drained, this);
    fence_.on_drained(*hook_);
  }
  bool drained() noexcept override {
    if (step_.load(std::memory_order_seq_cst) == step::armed) return false;
    while (step_.load(std::memory_order_seq_cst) != step::left) Sync::yield();
    return true;
  }
  bool disarm() noexcept override {
    if (step_.load(std::memory_order_seq_cst) == step::armed && fence_.cancel(*hook_)) return false;
    while (step_.load(std::memory_order_seq_cst) != step::left) Sync::yield();
    return true;
  }
  std::string occupants() const override {
    return std::string("fence '") + fence_.name() + "' with " + std::to_string(fence_.inside()) + " inside";
  }

 private:
  enum class step : unsigned char { idle, armed, rung, left };

  static void on_drained(void* self) noexcept {
    auto& port = *static_cast<fence_port_of*>(self);
    port.step_.store(step::rung, std::memory_order_seq_cst);
    port.ring_(port.arg_);
    port.step_.store(step::left, std::memory_order_seq_cst);
  }

  Fence& fence_;
  std::optional<drain_hook> hook_;
  void (*ring_)(void*) noexcept = nullptr;
  void* arg_ = nullptr;
  typename Sync::template atomic<step> step_{step::idle};
};

/// A hook takes nothing or a `const stage_context&`, need not be copyable, and its result is ignored unless it is a
/// hook_complaint.
template <class F>
std::function<hook_complaint(const stage_context&)> make_hook(F&& given) {
  using function = std::decay_t<F>;
  constexpr bool takes_context = std::is_invocable_v<function&, const stage_context&>;
  static_assert(takes_context || std::is_invocable_v<function&>,
                "curfew: a hook takes no argument or a const stage_context&");
  const auto call = [](function& f, [[maybe_unused]] const stage_context& context) -> hook_complaint {
    if constexpr (takes_context) {
      // Exactly that type: a user's result may convert to whatever it is asked for.
      if constexpr (std::is_same_v<std::invoke_result_t<function&, const stage_context&>, hook_complaint>) {
        return f(context);
      } else {
        static_cast<void>(f(context));
      }
    } else {
      static_cast<void>(f());
    }
    return {};
  };
  // Shared whatever it is: a type may say that it can be copied and then not compile, as one with a vector of
  // unique_ptr does.
  return [f = std::make_shared<function>(std::forward<F>(given)), call](const stage_context& context) {
    return call(*f, context);
  };
}

/// An empty std::function or a null function pointer.
template <class F>
bool is_empty_hook(const F& given) noexcept {
  if constexpr (requires {
                  { given == nullptr } -> std::convertible_to<bool>;
                }) {
    return given == nullptr;
  } else {
    return false;
  }
}

}  // namespace detail

/// Starts, runs and stops a process, or a part of one, in order.
///
///     int main() {
///       curfew::ordered_lifespan life;                                      // owns SIGTERM and SIGINT from here on
///       life.add("db").start([&] { db.open(); }).stop([&] { db.close(); });
///       life.add("http").after("db").fence(requests).start([&] { http.listen(); }).stop([&] { http.join(); });
///       return life.run();
///     }
///
/// A stop passes three barriers: every stage is *closed*, then every stage is *drained*, then every stage is *stopped*,
/// each time in exact reverse of the start order. A hook that throws, is late or hangs ends only itself.
///
/// *When not to use it.* For objects whose order the language already gives (members, locals). For supervision: it
/// never restarts anything. It does not touch SIGPIPE, SIGCHLD or fatal signals. One per process should own signals;
/// parts of a program use lifespans with empty `owned_signals`, alone or as children.
///
/// *Thread safety.* Everything may be called by any thread at any time, also by hooks and observers, except add(),
/// add_child() and a stage's own functions (before start() only), the constructor, the destructor, and reset() against
/// anything that reads the report. No lock is held while user code runs. Signal handlers may call shutdown_owned()
/// only.
///
/// *Memory ordering.* What a hook did is visible to every hook that begins after it has ended, to whoever start() or
/// stop() return to, and to whoever reads `stopped` from state(). What precedes request_stop() is visible to whoever
/// wait() returns to because of it.
///
/// *Threads.* None while running (one while a reload is). Each hook that is not on_controller() gets a thread of its
/// own, which is joined when it ends (its thread_local destructors count as its own time), or never when it is
/// abandoned. The controller, which is the thread in start() or stop(), watches it. Where no thread can be made the
/// hook runs on the controller, unbounded, and the report says so.
///
/// *Destruction* stops what still runs, with the same bounds, then gives signals back: every disposition that is still
/// ours becomes bit for bit what it was. Not from a hook or an observer, nor, of a static one, by an exit() in those:
/// that terminates with the stage's name. A child that its parent gave up may be destroyed once the parent has stopped;
/// it does not wait for what hangs. In a forked child the destructor does nothing at all. Stages must not refer to
/// fences that are destroyed before the stop.
///
/// *Exceptions.* The constructor: ownership_conflict, std::invalid_argument (not a signal), std::system_error, and
/// std::bad_alloc, with nothing taken. start() and run(): bad_graph and std::bad_alloc before any hook, state
/// unchanged. Exceptions of hooks are in the report and nowhere else; a hook must not end its thread in any other way
/// (pthread_exit). stop() does not throw: all it needs was made by start().
///
/// *Cost.* Idle and running: a descriptor (two where there is no eventfd). A hook costs a thread's creation, about
/// 20 us; on the controller it costs that of a thread that watches.
///
/// *Source.* Signals by counters and a self-pipe; budgets after the shutdown of service managers, with a reserve so
/// that one hang cannot starve the others.
template <class Sync = std_sync>
class basic_ordered_lifespan {
 public:
  class stage;

  /// Owns `options.owned_signals`, and SIGHUP when `options.on_hangup` is set, from here to the destructor.
  explicit basic_ordered_lifespan(lifespan_options options = {})
      : core_(std::make_shared<engine>(std::move(options))) {}
  basic_ordered_lifespan(const basic_ordered_lifespan&) = delete;
  basic_ordered_lifespan& operator=(const basic_ordered_lifespan&) = delete;

  ~basic_ordered_lifespan() {
    if (core_->in_forked_child()) {
      auto& core = *core_;
      detail::leak(core, std::move(core_));
      return;
    }
    if (const auto* frame = core_->own_frame(); frame != nullptr) {
      detail::fail("ordered_lifespan destroyed by its own stage:", frame->what());
    }
    core_->stop(stop_cause::destructor);
    core_->orphan_children();
    core_->hand_back();
    core_->forget_hooks();
    if (const int signo = core_->signal_to_reraise(); signo != 0 && !left_) detail::leave_by_signal<Sync>(signo);
  }

  /// Declares a stage; the reference stays valid. Names must differ; start() checks that.
  stage& add(std::string name) { return handles_.emplace_back(stage(*core_, core_->add(std::move(name)))); }

  /// A stage that is a whole lifespan, idle and without signals of its own: its barriers run inside those of this one,
  /// and within their slices. It must live until this one has stopped.
  stage& add_child(std::string name, basic_ordered_lifespan& child) {
    const std::shared_ptr<engine> core = child.core_;
    core_->adopt(core);
    stage& added = [&]() -> stage& {
      CURFEW_TRY {
        return add(std::move(name));
      }
      CURFEW_CATCH_ALL {
        core_->disown(core);
        CURFEW_RETHROW;
      }
    }();
    const auto under = [core](lifespan_phase barrier) {
      return [core, barrier](const stage_context& above) { return core->stop_under(barrier, above); };
    };
    added.node_->given_up = [core] { core->give_up(); };
    return added.start([core](const stage_context& above) { return core->start_under(above); })
        .close(under(lifespan_phase::close))
        .drain(under(lifespan_phase::drain))
        .stop(under(lifespan_phase::stop));
  }

  /// Starts all stages, unless a stop was requested. True when everything runs; false when it failed or was called off,
  /// and is rolled back already. When somebody else is in start() or stop(), waits for that. From a hook: does nothing.
  bool start() { return core_->start(); }

  /// Returns when a stop has been requested, with the cause of the first request; before start() too.
  stop_cause wait() { return core_->wait(); }

  /// Requests a stop and carries it out, or waits until whoever does so is done. From a hook, an observer or a stop
  /// callback of token() it only requests; of the report, which is being written then, nothing but `cause` may be read.
  /// The same for a hook of a parent, or of another child of that parent, while the parent drives this one: its end
  /// comes after that hook's. For a child that its parent gave up while something in it hangs it returns a report that
  /// says so.
  const lifespan_report& stop(stop_cause cause = stop_cause::requested) noexcept { return core_->stop(cause); }

  /// start(), wait(), stop(). With an abandoned hook it does not return: it flushes stdio and leaves by `_Exit`,
  /// because static destructors must not run under that hook's feet. With `reraise` it dies of the signal. From a hook
  /// or an observer: does nothing, EXIT_FAILURE.
  int run() {
    if (core_->own_frame() != nullptr) return EXIT_FAILURE;
    if (core_->start()) {
      core_->wait(true);
      core_->stop(stop_cause::requested);
    }
    if (core_->in_forked_child()) return EXIT_FAILURE;
    const int code = core_->report().exit_code;
    if (core_->abandoned_anything()) detail::leave_at_once<Sync>(code);
    if (const int signo = core_->signal_to_reraise(); signo != 0) {
      left_ = true;
      core_->hand_back();
      detail::leave_by_signal<Sync>(signo);
    }
    return code;
  }

  /// Makes a stop happen, in any state; before start() nothing will start. True for the first request. The first
  /// \p exit_code given is the exit code, also when it comes with a later request. Stop callbacks of token() run here.
  bool request_stop(stop_cause cause = stop_cause::requested, std::optional<int> exit_code = {}) noexcept {
    return core_->request_stop(cause, exit_code);
  }

  /// One rung up at once: requests, hurries, then leaves the process by `_Exit(128 + SIGTERM)`. False once stopped.
  bool escalate() noexcept { return core_->escalate(); }

  /// A stage has failed while running: recorded, requests a stop, exit code 1.
  void fail_stage(std::string_view name, std::exception_ptr error) noexcept {
    core_->fail_stage(name, std::move(error));
  }

  /// Fires at the first stop request. When a signal asked, that is when somebody is in start(), wait(), poll_signals()
  /// or stop() to notice. Its callbacks must not block.
  std::stop_token token() const noexcept { return core_->token(); }
  /// Where it stands; see lifespan_state for what leads where.
  lifespan_state state() const noexcept { return core_->state(); }

  /// Running, and nobody has asked for a stop. False before the first close hook begins.
  bool ready() const noexcept { return core_->state() == lifespan_state::running && core_->request().rung == 0; }
  /// From the end of the start to the begin of the closing.
  bool accepting() const noexcept {
    const auto now = core_->state();
    return now == lifespan_state::running || now == lifespan_state::announcing;
  }

  /// For an event loop of one's own: when this descriptor is readable call poll_signals(), then look at token(). Do not
  /// read from it. -1 where there are no descriptors.
  int native_handle() const noexcept { return core_->native_handle(); }
  /// What wait() does about what has come, without waiting: fires token(), reloads. Call stop() when token() has fired.
  void poll_signals() { core_->poll_signals(); }

  /// \p observer is told from now on. It must be quick: the controller waits for it. Its exceptions are counted. An
  /// empty function is refused with std::invalid_argument.
  void observe(std::function<void(const lifespan_event&)> observer) { core_->observe(std::move(observer)); }

  /// Counts \p signo \p times times as its handler would, owned or not, without the kernel.
  void simulate_signal(int signo, unsigned times = 1) noexcept { core_->simulate(signo, times); }

  /// Complete once stopped; empty before.
  const lifespan_report& report() const { return core_->report(); }

  /// From stopped to idle, for another start. False, and still stopped, when a hook was abandoned, and when not
  /// stopped. A stop signal counted since the stop counts as a request again. Fences stay closed.
  bool reset() { return core_->reset(); }

 private:
  using engine = detail::lifespan_core<Sync>;

  std::shared_ptr<engine> core_;
  std::deque<stage> handles_;
  bool left_ = false;
};

/// One stage, declared piece by piece. Hooks may be left out; each is called at most once per run. Setting a hook again
/// replaces it.
template <class Sync>
class basic_ordered_lifespan<Sync>::stage {
 public:
  /// Up. Returning normally means started; throwing, or being abandoned, fails the start of the whole lifespan.
  template <class F>
  stage& start(F&& hook) {
    return set(lifespan_phase::start, std::forward<F>(hook));
  }
  /// Refuse what is new. The stage's fences are closed just before.
  template <class F>
  stage& close(F&& hook) {
    return set(lifespan_phase::close, std::forward<F>(hook));
  }
  /// Finish what was admitted. The stage's fences are waited for afterwards, in the same slice.
  template <class F>
  stage& drain(F&& hook) {
    return set(lifespan_phase::drain, std::forward<F>(hook));
  }
  /// Down.
  template <class F>
  stage& stop(F&& hook) {
    return set(lifespan_phase::stop, std::forward<F>(hook));
  }
  /// After a start hook that threw, or was abandoned and has ended by then: undo the half of it.
  template <class F>
  stage& cleanup_partial(F&& hook) {
    return set(lifespan_phase::cleanup, std::forward<F>(hook));
  }

  /// Starts after, and so stops before, the stages with these names, which may be declared later.
  template <class... Names>
  stage& after(Names&&... names) {
    idle();
    (node_->after.emplace_back(std::forward<Names>(names)), ...);
    return *this;
  }
  /// The slice of its hooks in \p phase, in place of the one in the options.
  template <class Rep, class Period>
  stage& budget(lifespan_phase phase, std::chrono::duration<Rep, Period> span) {
    idle();
    node_->budgets[detail::index_of(phase)] = detail::clamped(span);
    return *this;
  }
  /// Runs this stage's hooks on the thread in start() or stop(): for code bound to a thread. It can be named when it
  /// hangs, and its token fires, but it cannot be abandoned.
  stage& on_controller() {
    idle();
    node_->on_controller = true;
    return *this;
  }
  /// When every stage of a layer says so, their hooks run at the same time.
  stage& parallel() {
    idle();
    node_->parallel = true;
    return *this;
  }
  /// Closed in the close barrier, drained in the drain barrier; any kind of fence. It must outlive the stop.
  template <class Fence>
  stage& fence(Fence& admission) {
    idle();
    node_->fences.push_back(std::make_unique<detail::fence_port_of<Fence, Sync>>(admission));
    return *this;
  }

 private:
  friend class basic_ordered_lifespan;
  stage(engine& core, std::shared_ptr<detail::stage_node> node) noexcept : core_(&core), node_(std::move(node)) {}

  void idle() const {
    if (core_->state() != lifespan_state::idle) {
      CURFEW_THROW(std::logic_error("stage '" + node_->name + "' can be changed only before the start"));
    }
  }
  template <class F>
  stage& set(lifespan_phase phase, F&& hook) {
    idle();
    if (detail::is_empty_hook<std::decay_t<F>>(hook)) {
      CURFEW_THROW(bad_graph("stage '" + node_->name + "': the " + to_string(phase) + " hook is an empty function"));
    }
    node_->hooks[detail::index_of(phase)] = detail::make_hook(std::forward<F>(hook));
    return *this;
  }

  engine* core_;
  std::shared_ptr<detail::stage_node> node_;
};

/// The one to use.
using ordered_lifespan = basic_ordered_lifespan<>;

CURFEW_END_NAMESPACE

#endif  // CURFEW_ORDERED_LIFESPAN_HPP
// ---- end curfew/ordered_lifespan.hpp

// curfew/signals.hpp: above

// curfew/teardown.hpp: above

// ---- begin curfew/keyed_serializer.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// keyed_serializer: one at a time per key. Use it where a lock per key would be needed but the keys come and go, the
/// work under the lock is slow, and the thread that ends the work is not the one that began it. For a fixed handful of
/// keys and short sections a std::mutex each is simpler and faster. See docs/design/second_tier.md.

#ifndef CURFEW_KEYED_SERIALIZER_HPP
#define CURFEW_KEYED_SERIALIZER_HPP

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/lot.hpp: above

// curfew/detail/process_id.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// Why a `hold` is held, or is empty.
enum class serializer_outcome : unsigned char { acquired, busy, timed_out, closed };

/// Exclusion per key. Keys are held by move-only `hold` objects, not by threads: a hold may be taken here and dropped
/// there, or stored for hours.
///
/// A key that nobody holds costs nothing: its lane is made by the first holder and erased by the last, so the table is
/// bounded by the keys in use. Waiters of one key are served first come, first served, by handing the key over; keys
/// never wait for each other.
///
///     state of a lane (one per key in the table)
///       absent  nobody holds the key
///       held    one hold is out; `first..last` are the waiters, oldest first
///     absent -> held   acquire*, try_acquire*
///     held -> held     release with a waiter: the key passes to the oldest one
///     held -> absent   release without
///
/// Thread safety: every member from any thread. Ordering: what a holder did before it dropped the key is visible to the
/// next holder. Destruction: when no hold is out and nobody waits; anything else ends the process. In a forked child at
/// any time, and then it only keeps the table; a hold must not be dropped there. Exceptions: only
/// std::bad_alloc and what hashing or comparing a key throws, from the acquiring members, with nothing changed.
/// Cost: one short critical section and one hash per operation. `Hash` and `==` run inside that section, may not call
/// back, and must not throw for a key that is in the table. Acquiring a key twice from one thread waits for ever, as
/// for any lock.
template <class Key, class Hash = std::hash<Key>, class Sync = std_sync>
class keyed_serializer {
  struct waiter {
    explicit waiter(const Key& wanted) : key(wanted) {}
    const Key& key;
    waiter* next = nullptr;
    std::optional<serializer_outcome> verdict;  // written once, under the lock
    typename Sync::condition_variable told;
  };
  struct lane {
    waiter* first = nullptr;
    waiter* last = nullptr;
    std::size_t waiting = 0;
  };
  using table = std::unordered_map<Key, lane, Hash>;

 public:
  /// A time of the steady clock.
  using deadline = std::chrono::steady_clock::time_point;

  /// The right to a key, for as long as it lives. Must not outlive its serializer.
  class hold {
   public:
    hold() noexcept = default;
    hold(hold&& other) noexcept
        : home_(std::exchange(other.home_, nullptr)), held_(other.held_), outcome_(other.outcome_) {}
    hold& operator=(hold&& other) noexcept {
      if (this != &other) {
        release();
        home_ = std::exchange(other.home_, nullptr);
        held_ = other.held_;
        outcome_ = other.outcome_;
      }
      return *this;
    }
    ~hold() { release(); }

    explicit operator bool() const noexcept { return home_ != nullptr; }
    /// Why this hold is empty; `acquired` when it is not, and stays so after a release.
    serializer_outcome outcome() const noexcept { return outcome_; }

    /// Gives the key back, to who has waited longest; nothing for an empty hold.
    void release() noexcept {
      if (home_ != nullptr) std::exchange(home_, nullptr)->pass_on(held_);
    }

   private:
    friend class keyed_serializer;
    explicit hold(serializer_outcome outcome) noexcept : outcome_(outcome) {}
    hold(keyed_serializer* home, typename table::value_type* held) noexcept
        : home_(home), held_(held), outcome_(serializer_outcome::acquired) {}

    keyed_serializer* home_ = nullptr;
    typename table::value_type* held_ = nullptr;
    serializer_outcome outcome_ = serializer_outcome::busy;
  };

  keyed_serializer() : lanes_() {}
  keyed_serializer(const keyed_serializer&) = delete;
  keyed_serializer& operator=(const keyed_serializer&) = delete;
  ~keyed_serializer() {
    if (detail::process_id() != born_in_) return;  // a thread that is not here may have been changing the table
    if (!lanes_.empty()) detail::fail("keyed_serializer destroyed while a key is held");
    std::destroy_at(&lanes_);
  }

  /// Waits for the key. Empty only when the serializer was closed, before or during the wait.
  [[nodiscard("curfew: the key is free again when this ends")]] hold acquire(const Key& key) {
    return wait_for_key(key, std::nullopt);
  }

  /// Waits no longer than the deadline; a wait given up leaves nothing behind and delays nobody.
  [[nodiscard("curfew: the key is free again when this ends")]] hold acquire_until(const Key& key, deadline until) {
    return wait_for_key(key, until);
  }

  /// acquire_until() with a span from now.
  template <class R, class P>
  [[nodiscard("curfew: the key is free again when this ends")]] hold acquire_for(const Key& key,
                                                                                 std::chrono::duration<R, P> limit) {
    const deadline until = detail::deadline_after<typename Sync::clock>(limit);
    return wait_for_key(key, until == deadline::max() ? std::nullopt : std::optional(until));
  }

  /// The key if it is free; never waits.
  [[nodiscard("curfew: the key is free again when this ends")]] hold try_acquire(const Key& key) {
    return take_if_free(key, false);
  }

  /// As `try_acquire`, also after `close()`: for the one that closed it, to clean up under the same exclusion.
  [[nodiscard("curfew: the key is free again when this ends")]] hold try_acquire_closed(const Key& key) {
    return take_if_free(key, true);
  }

  /// Refuses everybody who does not hold a key yet, and wakes all waiters with `closed`. Holds stay valid. True for the
  /// one call that closed it.
  bool close() noexcept {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    closed_ = true;
    for (auto& [key, queue] : lanes_) {
      for (waiter* w = queue.first; w != nullptr;) {
        waiter* const next = w->next;
        tell(*w, serializer_outcome::closed);
        w = next;
      }
      queue = lane{};
    }
    return true;
  }

  /// Whether newcomers are refused.
  [[nodiscard("curfew: only asks, close() closes")]] bool is_closed() const noexcept {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  /// How many keys are held. Stale as soon as it is returned.
  std::size_t was_size() const noexcept {
    std::lock_guard lock(mutex_);
    return lanes_.size();
  }
  /// How many threads wait for the key. Stale as soon as it is returned.
  std::size_t was_waiting(const Key& key) const {
    std::lock_guard lock(mutex_);
    const auto found = lanes_.find(key);
    return found == lanes_.end() ? 0 : found->second.waiting;
  }

 private:
  hold take_if_free(const Key& key, bool even_if_closed) {
    Sync::here("serializer.try_acquire.start");
    std::lock_guard lock(mutex_);
    if (closed_ && !even_if_closed) return hold(serializer_outcome::closed);
    const auto [found, free] = lanes_.try_emplace(key);
    return free ? hold(this, &*found) : hold(serializer_outcome::busy);
  }

  hold wait_for_key(const Key& key, std::optional<deadline> until) {
    Sync::here("serializer.acquire.start");
    std::unique_lock lock(mutex_);
    if (closed_) return hold(serializer_outcome::closed);
    const auto [found, free] = lanes_.try_emplace(key);
    auto* const wanted = &*found;  // stays put: the lane lives until its last waiter was served
    if (free) return hold(this, wanted);

    waiter self(key);
    lane& queue = wanted->second;
    (queue.last != nullptr ? queue.last->next : queue.first) = &self;
    queue.last = &self;
    ++queue.waiting;
    while (!self.verdict) {
      if (!until) {
        self.told.wait(lock);
      } else if (self.told.wait_until(lock, *until) == std::cv_status::timeout && !self.verdict) {
        abandon(queue, self);
        return hold(serializer_outcome::timed_out);
      }
    }
    return *self.verdict == serializer_outcome::acquired ? hold(this, wanted) : hold(*self.verdict);
  }

  void pass_on(typename table::value_type* held) noexcept {
    Sync::here("serializer.release.start");
    std::lock_guard lock(mutex_);
    lane& queue = held->second;
    waiter* const next = queue.first;
    if (next == nullptr) {
      lanes_.erase(lanes_.find(held->first));
      return;
    }
    queue.first = next->next;
    if (queue.first == nullptr) queue.last = nullptr;
    --queue.waiting;
    tell(*next, serializer_outcome::acquired);
  }

  // Notifies under the lock: the waiter must take the lock to leave, so its condition variable cannot die meanwhile.
  static void tell(waiter& w, serializer_outcome verdict) noexcept {
    w.verdict = verdict;
    w.told.notify_one();
  }

  static void abandon(lane& queue, waiter& self) noexcept {
    waiter* before = nullptr;
    for (waiter* w = queue.first; w != &self; w = w->next) before = w;
    (before != nullptr ? before->next : queue.first) = self.next;
    if (queue.last == &self) queue.last = before;
    --queue.waiting;
  }

  mutable typename Sync::mutex mutex_;
  union {
    table lanes_;  // in a union, so that a forked child can leave it as it is
  };
  bool closed_ = false;
  const long born_in_ = detail::process_id();
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_KEYED_SERIALIZER_HPP
// ---- end curfew/keyed_serializer.hpp

// ---- begin curfew/periodic_worker.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// periodic_worker: a named thread that runs a function every so often and can be stopped within a bound. Use it for
/// upkeep that nobody waits for: reaping, renewing, reconciling. It is no scheduler and no timer: ticks never overlap,
/// a slow one delays the next, and missed ones are not made up for. See docs/design/second_tier.md.

#ifndef CURFEW_PERIODIC_WORKER_HPP
#define CURFEW_PERIODIC_WORKER_HPP

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/process_identity.hpp: above

// curfew/detail/stop_token.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// One thread, one function, one interval. The function takes nothing, or a std::stop_token that fires when the worker
/// is asked to stop.
///
///     idle -> running    start
///     idle -> stopped    stop before any start: a later start is refused
///     running -> stopped stop, and the tick under way has returned
///     A start that could not make its thread leaves the worker idle.
///
/// Thread safety: every member from any thread, also from a tick; a `stop` from the worker's own tick asks and does not
/// wait. Ordering: what ran in a tick is visible after a `stop` that returned true. Exceptions: none leaves a tick; it
/// is counted, and handed to `on_error` when there is one (what that throws is swallowed).
///
/// Destruction stops with the bound given at construction. A tick that outlives the bound is let go: its thread keeps
/// the function alive and ends after that tick, so whatever the function refers to must be owned by it or be
/// permanent. After fork the child's copy is inert: it never starts, waits or ticks, and its destructor leaks the
/// little state there is, because that state may be waited on by a thread which the child does not have.
/// Cost: one thread; between ticks it sleeps.
template <class Sync = std_sync>
class basic_periodic_worker {
 public:
  /// Told of exceptions that left the function, on the thread of the worker.
  using error_sink = std::function<void(std::exception_ptr)>;

  /// \throws std::invalid_argument when the function is empty
  basic_periodic_worker(std::string name, std::function<void(std::stop_token)> tick, error_sink on_error = {},
                        std::chrono::nanoseconds stop_bound = std::chrono::seconds(5))
      : state_(std::make_shared<state>()), stop_bound_(stop_bound), born_in_(detail::process_id()) {
    if (!tick) CURFEW_THROW(std::invalid_argument("periodic_worker \"" + name + "\": the function is empty"));
    state_->name = std::move(name);
    state_->tick = std::move(tick);
    state_->on_error = std::move(on_error);
  }
  template <class F>
  requires std::is_invocable_v<F&> &&(!std::is_invocable_v<F&, std::stop_token>)basic_periodic_worker(
      std::string name, F tick, error_sink on_error = {}, std::chrono::nanoseconds stop_bound = std::chrono::seconds(5))
      : basic_periodic_worker(std::move(name), without_token(std::move(tick)), std::move(on_error), stop_bound) {}
  basic_periodic_worker(const basic_periodic_worker&) = delete;
  basic_periodic_worker& operator=(const basic_periodic_worker&) = delete;

  ~basic_periodic_worker() {
    if (forked()) {
      state_->self = state_;
      return;
    }
    if (stop(stop_bound_)) return;
    std::lock_guard lock(state_->mutex);
    if (state_->thread.joinable()) state_->thread.detach();
  }

  /// Starts the thread: the first tick after \p first, then one every \p interval. False, and nothing done, when it was
  /// started or stopped before. \throws std::system_error when no thread can be made; std::invalid_argument for an
  /// interval of 0 or less
  bool start(std::chrono::nanoseconds interval, std::chrono::nanoseconds first) {
    if (interval <= std::chrono::nanoseconds::zero())
      CURFEW_THROW(std::invalid_argument("periodic_worker \"" + state_->name + "\": the interval must be positive"));
    if (forked()) return false;
    std::lock_guard lock(state_->mutex);
    if (state_->started || state_->stopping) return false;
    // The thread cannot get past its first lock before this section ends, so a throw finds nothing half started.
    state_->thread = typename Sync::thread([s = state_, interval, first] { run(*s, interval, first); });
    state_->runner = state_->thread.get_id();
    state_->started = true;
    return true;
  }
  bool start(std::chrono::nanoseconds interval) { return start(interval, interval); }

  /// Lets the next tick begin now, or as soon as the current one has ended.
  void poke() noexcept {
    if (forked()) return;
    std::lock_guard lock(state_->mutex);
    state_->poked = true;
    state_->wake.notify_all();
  }

  /// Asks the worker to end and waits for that no longer than \p bound. True when no tick runs or will ever run; false
  /// when the bound passed, or when called by the tick itself. May be repeated.
  bool stop(std::chrono::nanoseconds bound) noexcept {
    if (forked()) return true;
    const auto s = state_;
    {
      std::lock_guard lock(s->mutex);
      s->stopping = true;
      s->wake.notify_all();
    }
    s->source.request_stop();  // runs callbacks of the user's, so outside the lock
    Sync::here("worker.stop.requested");
    typename Sync::thread ended;
    {
      std::unique_lock lock(s->mutex);
      if (!s->started) return true;
      if (s->runner == Sync::self()) return false;
      const auto until = after(bound);
      while (!s->done)
        if (s->wake.wait_until(lock, until) == std::cv_status::timeout && !s->done) return false;
      ended = std::move(s->thread);  // to one of several stoppers; the others know that the last tick is over
    }
    if (ended.joinable()) ended.join();
    return true;
  }
  bool stop() noexcept { return stop(stop_bound_); }

  /// Whether its thread lives, how often the function was called, how often it threw, and what it is called.
  bool running() const noexcept {
    if (forked()) return false;
    std::lock_guard lock(state_->mutex);
    return state_->started && !state_->done;
  }
  std::uint64_t ticks() const noexcept { return read(&state::ticks); }
  std::uint64_t errors() const noexcept { return read(&state::errors); }
  const std::string& name() const noexcept { return state_->name; }

 private:
  struct state {
    std::string name;
    std::function<void(std::stop_token)> tick;
    error_sink on_error;
    std::stop_source source;
    typename Sync::mutex mutex;
    typename Sync::condition_variable wake;
    typename Sync::thread thread;
    typename Sync::thread_id runner{};
    std::shared_ptr<state> self;  // set in a forked child only, to leak
    std::uint64_t ticks = 0;
    std::uint64_t errors = 0;
    bool started = false;
    bool stopping = false;
    bool poked = false;
    bool done = false;
  };
  // Erased first, so that an empty function and a null pointer are seen to be empty.
  static std::function<void(std::stop_token)> without_token(std::function<void()> tick) {
    if (!tick) return {};
    return [tick = std::move(tick)](std::stop_token) { tick(); };
  }

  bool forked() const noexcept { return detail::process_id() != born_in_; }
  std::uint64_t read(std::uint64_t state::*counter) const noexcept {
    if (forked()) return 0;
    std::lock_guard lock(state_->mutex);
    return (*state_).*counter;
  }

  // Saturating: an interval of nanoseconds::max() means never again.
  static typename Sync::clock::time_point after(std::chrono::nanoseconds d) noexcept {
    const auto now = Sync::clock::now();
    return d >= Sync::clock::time_point::max() - now ? Sync::clock::time_point::max() : now + d;
  }

  static void run(state& s, std::chrono::nanoseconds interval, std::chrono::nanoseconds first) noexcept {
    Sync::name_thread(s.name.c_str());
    std::unique_lock lock(s.mutex);
    auto next = after(first);
    for (;;) {
      while (!s.stopping && !s.poked)
        if (s.wake.wait_until(lock, next) == std::cv_status::timeout) break;
      if (s.stopping) break;
      s.poked = false;
      lock.unlock();
      const bool failed = !run_tick(s);
      lock.lock();
      ++s.ticks;
      if (failed) ++s.errors;
      next = after(interval);
    }
    // The function may own what must not outlive the worker, and may own it alone: destroyed outside the lock, and
    // before anybody is told that the worker is done.
    lock.unlock();
    s.tick = nullptr;
    s.on_error = nullptr;
    lock.lock();
    s.done = true;
    s.wake.notify_all();
  }

  static bool run_tick(state& s) noexcept {
    Sync::here("worker.tick.start");
    CURFEW_TRY {
      s.tick(s.source.get_token());
      return true;
    }
    CURFEW_CATCH_ALL {
      CURFEW_TRY {
        if (s.on_error) s.on_error(std::current_exception());
      }
      CURFEW_CATCH_ALL {}
      return false;
    }
  }

  std::shared_ptr<state> state_;
  const std::chrono::nanoseconds stop_bound_;
  const long born_in_;
};

/// The one to use.
using periodic_worker = basic_periodic_worker<>;

CURFEW_END_NAMESPACE

#endif  // CURFEW_PERIODIC_WORKER_HPP
// ---- end curfew/periodic_worker.hpp

// ---- begin curfew/slot_ledger.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// slot_ledger: a capacity whose every unit is a move-only object in exactly one named state. Use it where a unit stays
/// taken while the thing in it changes hands, is being ended, or could not be ended. Where a unit is just taken and
/// given back, std::counting_semaphore is enough. See docs/design/second_tier.md.

#ifndef CURFEW_SLOT_LEDGER_HPP
#define CURFEW_SLOT_LEDGER_HPP

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/exceptions.hpp: above

// curfew/detail/process_id.hpp: above

// curfew/detail/sync.hpp: above

CURFEW_BEGIN_NAMESPACE

/// What the thing in a slot is doing. Every state counts as taken: capacity is free only when the slot is gone.
enum class slot_state : unsigned char { reserved, active, warm, transitioning, tombstone };

/// What a `ticket` was told. `evictable`: a warm slot has appeared that the waiter may try to take over.
enum class slot_outcome : unsigned char { granted, evictable, timed_out, closed };

/// Slots per state, counted at one instant.
struct slot_census {
  std::array<std::size_t, 5> count{};
  std::size_t operator[](slot_state state) const noexcept { return count[static_cast<std::size_t>(state)]; }
  /// Slots in any state.
  std::size_t total() const noexcept { return count[0] + count[1] + count[2] + count[3] + count[4]; }
};

/// Hands out slots up to a limit, and says atomically which request was over it.
///
/// - `try_reserve` is the hard cap: no slot beyond `limit`.
/// - `try_burst` is the second hard cap, `limit + burst`.
/// - `exceed` is the soft cap's way out: a slot in any case.
/// - `ticket` waits in line, first come, first served; a slot that is freed goes to the head of the line and to nobody
///   else, so that a newcomer cannot overtake.
///
///     absent -> reserved            try_reserve, try_burst, exceed, a ticket that was granted
///     reserved .. tombstone         slot::become, any to any: which changes make sense is the owner's rule
///     any -> absent, or -> reserved slot::release: freed, or handed to the head of the line
///
/// Thread safety: the ledger from any thread; one slot or ticket from one thread at a time. Ordering: what was done
/// before a slot was released is visible to whoever is granted it. Destruction: with no slot and no ticket out; else
/// the process ends. In a forked child at any time; slots and tickets must be left alone there. Exceptions: none after
/// construction. Cost: one short critical section per operation, no allocation.
template <class Sync = std_sync>
class basic_slot_ledger {
 public:
  /// A time of the steady clock.
  using deadline = std::chrono::steady_clock::time_point;

  /// One unit of the capacity, taken while it lives. Must not outlive its ledger.
  class slot {
   public:
    slot() noexcept = default;
    slot(slot&& other) noexcept : home_(std::exchange(other.home_, nullptr)), state_(other.state_) {}
    slot& operator=(slot&& other) noexcept {
      if (this != &other) {
        release();
        home_ = std::exchange(other.home_, nullptr);
        state_ = other.state_;
      }
      return *this;
    }
    ~slot() { release(); }

    explicit operator bool() const noexcept { return home_ != nullptr; }
    /// The state it is in now.
    slot_state state() const noexcept { return state_; }

    /// Moves the slot to another state; on an empty slot nothing.
    void become(slot_state next) noexcept {
      if (home_ == nullptr) return;
      home_->move(state_, next);
      state_ = next;
    }
    /// Gives the capacity back; on an empty slot nothing.
    void release() noexcept {
      if (home_ != nullptr) std::exchange(home_, nullptr)->free(state_);
    }

   private:
    friend class basic_slot_ledger;
    explicit slot(basic_slot_ledger* home) noexcept : home_(home) {}

    basic_slot_ledger* home_ = nullptr;
    slot_state state_ = slot_state::reserved;
  };

  /// A place in the line. Its destructor leaves the line and gives back a grant that was not taken.
  class ticket {
   public:
    explicit ticket(basic_slot_ledger& home) noexcept : home_(home) { home_.join_line(*this); }
    ticket(const ticket&) = delete;
    ticket& operator=(const ticket&) = delete;
    ~ticket() { home_.leave_line(*this); }

    /// Waits until there is something to tell. After `evictable` the caller tries to evict and, when that failed, waits
    /// again without having lost its place; a later warm slot is told again.
    [[nodiscard("curfew: only a granted ticket has a slot to take")]] slot_outcome wait_until(deadline until) noexcept {
      return home_.wait(*this, until);
    }

    /// The granted slot; empty before `granted`, and the second time.
    [[nodiscard("curfew: the slot is given back when this ends")]] slot take() noexcept {
      std::lock_guard lock(home_.mutex_);
      return std::exchange(granted_, false) ? slot(&home_) : slot();
    }

   private:
    friend class basic_slot_ledger;
    basic_slot_ledger& home_;
    ticket* next_ = nullptr;
    ticket* previous_ = nullptr;
    bool in_line_ = false;
    bool granted_ = false;
    bool evictable_ = false;
    typename Sync::condition_variable told_;
  };

  /// \throws std::invalid_argument when the limit is 0
  explicit basic_slot_ledger(std::size_t limit, std::size_t burst = 0) : limit_(limit), burst_(burst) {
    if (limit == 0) CURFEW_THROW(std::invalid_argument("slot_ledger: the limit must not be 0"));
  }
  basic_slot_ledger(const basic_slot_ledger&) = delete;
  basic_slot_ledger& operator=(const basic_slot_ledger&) = delete;
  ~basic_slot_ledger() {
    if (census_.total() == 0 && first_ == nullptr) return;
    // In a forked child they belong to the parent: what threads wait on is in their tickets, which are not touched.
    if (detail::process_id() == born_in_) detail::fail("slot_ledger destroyed while a slot is taken");
  }

  /// A slot within the limit; empty when there is none, or when closed.
  [[nodiscard("curfew: the slot is given back when this ends")]] slot try_reserve() noexcept {
    return grant_below(limit_);
  }
  /// A slot within limit and burst together.
  [[nodiscard("curfew: the slot is given back when this ends")]] slot try_burst() noexcept {
    return grant_below(limit_ + burst_ < limit_ ? ~std::size_t{0} : limit_ + burst_);
  }
  /// A slot whatever the limit; empty only when closed.
  [[nodiscard("curfew: the slot is given back when this ends")]] slot exceed() noexcept {
    return grant_below(~std::size_t{0});
  }

  /// Refuses every request from now on and wakes everybody in line with `closed`. Slots that are out stay valid. True
  /// for the one call that closed it.
  bool close() noexcept {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    closed_ = true;
    for (ticket* t = first_; t != nullptr; t = t->next_) t->told_.notify_one();
    return true;
  }

  /// Tells the head of the line again that a warm slot may be free to evict: for a caller that parked one, and has only
  /// now let go of whatever kept an evictor from it.
  void nudge() noexcept {
    std::lock_guard lock(mutex_);
    announce_warm();
  }

  /// How many slots are in each state, at one moment; what the limit is; whether newcomers are refused.
  slot_census census() const noexcept {
    std::lock_guard lock(mutex_);
    return census_;
  }
  std::size_t limit() const noexcept { return limit_; }
  [[nodiscard("curfew: only asks, close() closes")]] bool is_closed() const noexcept {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  /// How many tickets wait. Stale as soon as it is returned.
  std::size_t was_waiting() const noexcept {
    std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const ticket* t = first_; t != nullptr; t = t->next_) ++n;
    return n;
  }

 private:
  std::size_t& count(slot_state state) noexcept { return census_.count[static_cast<std::size_t>(state)]; }

  slot grant_below(std::size_t cap) noexcept {
    Sync::here("ledger.reserve.start");
    std::lock_guard lock(mutex_);
    if (closed_ || census_.total() >= cap) return slot();
    ++count(slot_state::reserved);
    return slot(this);
  }

  void move(slot_state from, slot_state to) noexcept {
    std::lock_guard lock(mutex_);
    --count(from);
    ++count(to);
    if (to == slot_state::warm && from != slot_state::warm) announce_warm();
  }

  void free(slot_state from) noexcept {
    Sync::here("ledger.release.start");
    std::lock_guard lock(mutex_);
    --count(from);
    serve_line();
  }

  // Grants while there is room, so that a line and room never stand side by side: a newcomer that finds room overtakes
  // nobody.
  void serve_line() noexcept {
    while (!closed_ && first_ != nullptr && census_.total() < limit_) {
      ticket& head = *first_;
      unlink(head);
      ++count(slot_state::reserved);
      head.granted_ = true;
      head.told_.notify_one();
      if (head.evictable_) announce_warm();  // the head will not use what it was told; the next one may
    }
  }

  void announce_warm() noexcept {
    if (count(slot_state::warm) == 0) return;
    for (ticket* t = first_; t != nullptr; t = t->next_) {
      if (t->evictable_) continue;
      t->evictable_ = true;
      t->told_.notify_one();
      return;
    }
  }

  void join_line(ticket& t) noexcept {
    std::lock_guard lock(mutex_);
    t.previous_ = last_;
    (last_ != nullptr ? last_->next_ : first_) = &t;
    last_ = &t;
    t.in_line_ = true;
    t.evictable_ = count(slot_state::warm) != 0;
    serve_line();
  }

  void leave_line(ticket& t) noexcept {
    std::lock_guard lock(mutex_);
    const bool unused = t.evictable_;
    if (t.in_line_) unlink(t);
    if (t.granted_) {
      --count(slot_state::reserved);
      serve_line();
    }
    if (unused) announce_warm();
  }

  void unlink(ticket& t) noexcept {
    (t.previous_ != nullptr ? t.previous_->next_ : first_) = t.next_;
    (t.next_ != nullptr ? t.next_->previous_ : last_) = t.previous_;
    t.next_ = t.previous_ = nullptr;
    t.in_line_ = false;
  }

  slot_outcome wait(ticket& t, deadline until) noexcept {
    Sync::here("ledger.wait.start");
    std::unique_lock lock(mutex_);
    for (;;) {
      if (t.granted_) return slot_outcome::granted;
      if (closed_) return slot_outcome::closed;
      if (std::exchange(t.evictable_, false)) return slot_outcome::evictable;
      if (t.told_.wait_until(lock, until) == std::cv_status::timeout && !t.granted_ && !closed_ && !t.evictable_)
        return slot_outcome::timed_out;
    }
  }

  mutable typename Sync::mutex mutex_;
  slot_census census_;
  const std::size_t limit_;
  const std::size_t burst_;
  ticket* first_ = nullptr;
  ticket* last_ = nullptr;
  bool closed_ = false;
  const long born_in_ = detail::process_id();
};

/// The one to use.
using slot_ledger = basic_slot_ledger<>;

CURFEW_END_NAMESPACE

#endif  // CURFEW_SLOT_LEDGER_HPP
// ---- end curfew/slot_ledger.hpp

// The sandbox providers report by exception; without exceptions the kit ends here.
#if CURFEW_EXCEPTIONS
// ---- begin curfew/sandbox/aio.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// aio_provider: sandboxes for owners that come back. One sandbox per owner under an id that every process derives
/// alike, kept warm between two uses, a soft cap, idle ones reaped here, running ones found again after a restart. For
/// a fleet whose server keeps the ids, the cap and the clock, use the e2b provider. See docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_AIO_HPP
#define CURFEW_SANDBOX_AIO_HPP

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/sync.hpp: above

// ---- begin curfew/sandbox/backend.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a sandbox backend is: the types that travel between a provider and its backend, the concept, the errors, and
/// the identity of an owner. A backend makes and ends sandboxes and knows nothing of leases, warm pools or capacity;
/// those belong to the providers. Value types only: nothing here locks, waits or starts a thread.

#ifndef CURFEW_SANDBOX_BACKEND_HPP
#define CURFEW_SANDBOX_BACKEND_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/sha256.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// SHA-256 (FIPS 180-4) of a string in memory, for names that must come out the same in every process. Not meant for
/// secrets: nothing here is hardened against timing, and nothing is wiped.

#ifndef CURFEW_DETAIL_SHA256_HPP
#define CURFEW_DETAIL_SHA256_HPP

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

// curfew/detail/config.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The fractional parts of the cube roots of the first 64 primes, as the standard tabulates them.
inline constexpr std::array<std::uint32_t, 64> sha256_round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/// The eight words of the digest, most significant first. Constant expression capable; linear in the length.
constexpr std::array<std::uint32_t, 8> sha256(std::string_view text) noexcept {
  std::array<std::uint32_t, 8> hash{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::uint64_t bits = static_cast<std::uint64_t>(text.size()) * 8;
  const std::size_t blocks = (text.size() + 8) / 64 + 1;  // the text, the 0x80 mark, and eight bytes of length

  // Byte `at` of the padded message, which is never built.
  const auto padded = [&](std::size_t at) -> std::uint32_t {
    if (at < text.size()) return static_cast<unsigned char>(text[at]);
    if (at == text.size()) return 0x80;
    const std::size_t from_end = blocks * 64 - 1 - at;
    return from_end < 8 ? static_cast<std::uint32_t>((bits >> (8 * from_end)) & 0xff) : 0;
  };

  for (std::size_t block = 0; block < blocks; ++block) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
      const std::size_t at = block * 64 + i * 4;
      w[i] = padded(at) << 24 | padded(at + 1) << 16 | padded(at + 2) << 8 | padded(at + 3);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = hash;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t big1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t t1 = h + big1 + ((e & f) ^ (~e & g)) + sha256_round_constants[i] + w[i];
      const std::uint32_t big0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t t2 = big0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) hash[i] += mixed[i];
  }
  return hash;
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SHA256_HPP
// ---- end curfew/detail/sha256.hpp

CURFEW_BEGIN_NAMESPACE
namespace detail {

constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

enum class colon : bool { refused, allowed };

/// An id that is safe as one path component, one argument and one url segment. The pattern excludes the slash, and a
/// leading dot is refused, so neither `..` nor a hidden name passes.
constexpr bool is_sandbox_id(std::string_view id, colon rule) noexcept {
  const auto fits = [rule](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-' || (c == ':' && rule == colon::allowed);
  };
  return !id.empty() && id.size() <= 128 && id.front() != '.' && std::all_of(id.begin(), id.end(), fits);
}

/// Throws std::invalid_argument naming the culprit when a variable could not be passed to a program as it stands.
inline void check_environment(const std::map<std::string, std::string>& environment, const char* who) {
  for (const auto& [name, value] : environment) {
    const bool fits = !name.empty() && !is_digit(name.front()) && std::all_of(name.begin(), name.end(), [](char c) {
      return is_letter(c) || is_digit(c) || c == '_';
    });
    if (!fits) throw std::invalid_argument(std::string(who) + ": bad environment variable name \"" + name + "\"");
    if (value.find('\0') != std::string::npos)
      throw std::invalid_argument(std::string(who) + ": the value of environment variable " + name + " holds a NUL");
  }
}

}  // namespace detail

namespace sandbox {

/// Where ages (idle, warm, grace, time to live) are read. Empty means steady_clock::now; it is never the wall clock.
using clock_fn = std::function<std::chrono::steady_clock::time_point()>;

/// What a probe found. `unknown` is not `dead`: it keeps a sandbox in use.
enum class liveness : unsigned char { alive, dead, unknown };

/// Who a sandbox belongs to. An empty `thread` is an anonymous owner, whose sandbox is never shared or kept warm.
struct owner_key {
  std::string user;
  std::string thread;
  auto operator<=>(const owner_key&) const = default;
};

/// One sandbox as its backend names it.
struct sandbox_info {
  std::string id;
  std::string endpoint;
  std::string request_id = {};  ///< the create_request::id it was made for; empty: the same as `id`
};

/// What a backend is asked to make.
struct create_request {
  std::string id;
  owner_key owner;
  std::map<std::string, std::string> environment;
  std::chrono::seconds time_to_live{0};  ///< 0: no limit kept by the server is asked for
};

/// What every backend offers. Every member may be called from many threads at once.
///
/// - `create` may be slow, throws backend_error, and leaves nothing behind except what `leftover()` names.
/// - `destroy` is true only when the sandbox is confirmed gone, also when it was gone before; it may be repeated, and a
///   throw counts as false.
/// - A throwing `probe` counts as `unknown`; a throwing `list` makes the inventory incomplete.
///
/// Optional members, used when a backend has them:
/// - `bool set_timeout(const std::string& id, std::chrono::seconds)`: false means gone.
/// - `std::optional<sandbox_info> find(const std::string& request_id)`: discovery without `list`.
/// - `listing list_within(const list_budget&)`: a bounded inventory; without it `list` counts as complete.
template <class B>
concept backend = requires(B& b, const create_request& request, const std::string& id) {
  { b.create(request) } -> std::same_as<sandbox_info>;
  { b.destroy(id) } -> std::same_as<bool>;
  { b.probe(id) } -> std::same_as<liveness>;
  { b.list() } -> std::same_as<std::vector<sandbox_info>>;
};

/// The three bounds of one inventory; each of them is a bound on the whole pass.
struct list_budget {
  std::size_t max_pages = 10;
  std::size_t max_items = 200;
  std::chrono::nanoseconds max_time = std::chrono::seconds(15);
};

/// An inventory; not `complete` when a bound or a fault cut it short, and then absence from it means nothing.
struct listing {
  std::vector<sandbox_info> items;
  bool complete = true;
};

/// What kind of failure a backend met. `ambiguous`: whether the request was carried out is not known.
enum class backend_fault : unsigned char {
  unavailable,
  timed_out,
  rejected,
  conflict,
  not_found,
  bad_response,
  spawn_failed,
  ambiguous
};

/// What a backend throws. `leftover()` names what to `destroy` later when something may have been left behind.
class CURFEW_VISIBLE backend_error : public std::runtime_error {
 public:
  backend_error(backend_fault fault, const std::string& message, std::string leftover = {}, int status = 0)
      : std::runtime_error(message), leftover_(std::move(leftover)), status_(status), fault_(fault) {}

  /// What happened, the status of HTTP (0: none), and what to `destroy` later (empty: nothing).
  backend_fault fault() const noexcept { return fault_; }
  int status() const noexcept { return status_; }
  const std::string& leftover() const noexcept { return leftover_; }

  /// Whether the same call may succeed later without anything being changed.
  bool retryable() const noexcept {
    return fault_ == backend_fault::unavailable || fault_ == backend_fault::timed_out ||
           fault_ == backend_fault::ambiguous || status_ == 429;
  }

 private:
  std::string leftover_;
  int status_;
  backend_fault fault_;
};

/// Why there was no slot.
enum class capacity_reason : unsigned char { rejected, timed_out, burst_exhausted };

/// Thrown by an acquire that found every slot taken and was not allowed, or not able, to wait for one.
class CURFEW_VISIBLE capacity_exceeded : public std::runtime_error {
 public:
  capacity_exceeded(capacity_reason reason, std::size_t limit, std::chrono::milliseconds retry_after)
      : std::runtime_error("sandbox capacity of " + std::to_string(limit) + " exceeded (" + text(reason) +
                           "), retry after " + std::to_string(retry_after.count()) + " ms"),
        limit_(limit),
        retry_after_(retry_after),
        reason_(reason) {}

  /// Why, of how many, and when it may be worth asking again.
  capacity_reason reason() const noexcept { return reason_; }
  std::size_t limit() const noexcept { return limit_; }
  std::chrono::milliseconds retry_after() const noexcept { return retry_after_; }

 private:
  static const char* text(capacity_reason reason) noexcept {
    if (reason == capacity_reason::rejected) return "rejected";
    return reason == capacity_reason::timed_out ? "timed out waiting for a slot" : "burst exhausted";
  }

  std::size_t limit_;
  std::chrono::milliseconds retry_after_;
  capacity_reason reason_;
};

/// Two owners met on one sandbox id. The newcomer is refused; the first tenant keeps its sandbox untouched.
class CURFEW_VISIBLE identity_conflict : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The sandbox id of an owner: the same in every process, so that a restarted or a peer process finds it again.
/// The length in front makes the hashed text injective: {"ab","c"} and {"a","bc"} differ.
inline std::string stable_id(const owner_key& owner) {
  const auto digest = detail::sha256(std::to_string(owner.user.size()) + ":" + owner.user + owner.thread);
  std::string id(16, '0');
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = "0123456789abcdef"[digest[i / 8] >> (28 - 4 * (i % 8)) & 0xf];
  return id;
}

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_BACKEND_HPP
// ---- end curfew/sandbox/backend.hpp

// ---- begin curfew/sandbox/lease.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a provider gives out: the lease on a sandbox, its figures, and what a reconcile pass found.

#ifndef CURFEW_SANDBOX_LEASE_HPP
#define CURFEW_SANDBOX_LEASE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/sandbox/backend.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// What an acquire does that finds a hard cap reached: `wait` in line, for `acquire_timeout` at most; `reject` throws
/// at once; `burst` takes one of `burst_limit` further slots, and throws at once when these are taken, too.
enum class overflow_policy : unsigned char { wait, reject, burst };

/// Figures of one provider, read at one instant.
struct provider_stats {
  // Gauges: how many sandboxes are in each state. Their sum is the number of slots in use.
  std::size_t reserved = 0, active = 0, warm = 0, transitioning = 0, tombstones = 0;

  std::uint64_t created = 0;           ///< sandboxes made, those included that a failed create left behind
  std::uint64_t adopted = 0;           ///< sandboxes found running and taken over
  std::uint64_t reused = 0;            ///< leases on a sandbox that was active already
  std::uint64_t reclaimed = 0;         ///< leases on a warm one
  std::uint64_t replaced = 0;          ///< found dead when it was wanted
  std::uint64_t evicted = 0;           ///< warm ones ended to make room
  std::uint64_t idle_reaped = 0;       ///< ended because nobody used them
  std::uint64_t discarded = 0;         ///< created, and refused at commit
  std::uint64_t destroyed = 0;         ///< confirmed gone; the four above are in here too once they are
  std::uint64_t forgotten = 0;         ///< no longer ours: lost to a peer, or vanished
  std::uint64_t refused = 0;           ///< admission_refused thrown
  std::uint64_t waits = 0;             ///< acquires that waited for a slot
  std::uint64_t over_cap = 0;          ///< creates beyond a soft cap
  std::uint64_t destroy_failures = 0;  ///< single destroy calls that did not confirm
  std::uint64_t backend_errors = 0;    ///< exceptions of the backend or of the lease store

  std::vector<std::string> leftover;  ///< ids of the tombstones; after a failed shutdown, of all that it left
  bool started = false;
  bool shut_down = false;

  /// Sandboxes that take up room.
  std::size_t total() const noexcept { return reserved + active + warm + transitioning + tombstones; }
};

/// What one reconcile pass saw and did. `complete` is false when the inventory was not whole: then nothing was ended or
/// forgotten on the strength of it.
struct reconcile_report {
  std::size_t listed = 0, adopted = 0, duplicates_destroyed = 0, orphans_destroyed = 0, expired = 0;
  bool complete = false;
};

class lease;

/// The side of a lease that its provider implements. A tenancy numbers one sandbox from its tracking to its end, so
/// that a lease never speaks for a later sandbox with the same id.
class lease_host {
 public:
  /// Called by leases, from any thread.
  virtual bool lease_valid(const std::string& id, std::uint64_t tenancy) const noexcept = 0;
  virtual bool touch_lease(const std::string& id, std::uint64_t tenancy) noexcept = 0;
  virtual void end_lease(const std::string& id, std::uint64_t tenancy) noexcept = 0;

 protected:
  ~lease_host() = default;
  /// For hosts: makes a lease, and tells whether a host has made one.
  static lease grant(std::weak_ptr<lease_host> host, sandbox_info&& info, owner_key&& owner,
                     std::uint64_t tenancy) noexcept;
  /// Whether \p host made this lease.
  static bool granted_by(const lease& granted, const std::weak_ptr<lease_host>& host) noexcept;
};

/// The right to use one sandbox, ended by its destructor. Move-only. It may move to any thread and may outlive its
/// provider, which it does not keep alive: then it is not valid, and releasing it does nothing. One lease is used by
/// one thread at a time; several leases of one sandbox are independent of each other, and the last release gives it
/// back.
class lease {
 public:
  lease() noexcept = default;
  lease(lease&& other) noexcept
      : host_(std::exchange(other.host_, {})),
        info_(std::move(other.info_)),
        owner_(std::move(other.owner_)),
        tenancy_(std::exchange(other.tenancy_, 0)) {}
  lease& operator=(lease&& other) noexcept {
    if (this != &other) {
      release();
      host_ = std::exchange(other.host_, {});
      info_ = std::move(other.info_);
      owner_ = std::move(other.owner_);
      tenancy_ = std::exchange(other.tenancy_, 0);
    }
    return *this;
  }
  ~lease() { release(); }

  /// Holds a right that was not released yet, also when the sandbox is gone by now.
  explicit operator bool() const noexcept { return tenancy_ != 0; }

  /// The sandbox is active for this lease; false from the moment its teardown begins.
  bool valid() const noexcept {
    const auto host = host_.lock();
    return host != nullptr && host->lease_valid(info_.id, tenancy_);
  }
  /// Whom and what it is for; of an empty lease, empty.
  const sandbox_info& info() const noexcept { return info_; }
  const std::string& id() const noexcept { return info_.id; }
  const owner_key& owner() const noexcept { return owner_; }

  /// Counts as activity; false when the lease is not valid.
  bool touch() noexcept {
    const auto host = host_.lock();
    return host != nullptr && host->touch_lease(info_.id, tenancy_);
  }

  /// Gives the right back. Waits while another call works on the same sandbox; on an empty lease nothing.
  void release() noexcept {
    const auto host = std::exchange(host_, {}).lock();
    const std::uint64_t tenancy = std::exchange(tenancy_, 0);
    if (host != nullptr && tenancy != 0) host->end_lease(info_.id, tenancy);
  }

 private:
  friend class lease_host;
  lease(std::weak_ptr<lease_host>&& host, sandbox_info&& info, owner_key&& owner, std::uint64_t tenancy) noexcept
      : host_(std::move(host)), info_(std::move(info)), owner_(std::move(owner)), tenancy_(tenancy) {}

  std::weak_ptr<lease_host> host_;
  sandbox_info info_;
  owner_key owner_;
  std::uint64_t tenancy_ = 0;  // 0: empty
};

inline lease lease_host::grant(std::weak_ptr<lease_host> host, sandbox_info&& info, owner_key&& owner,
                               std::uint64_t tenancy) noexcept {
  return lease(std::move(host), std::move(info), std::move(owner), tenancy);
}

inline bool lease_host::granted_by(const lease& granted, const std::weak_ptr<lease_host>& host) noexcept {
  return !granted.host_.owner_before(host) && !host.owner_before(granted.host_);
}

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_LEASE_HPP
// ---- end curfew/sandbox/lease.hpp

// ---- begin curfew/sandbox/lease_store.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Who of several providers may use or end a sandbox: the lease store concept and a store for one process. Sandboxes
/// outlive processes and are seen by all of them; a lease says whose one is right now, and a teardown mark on it says
/// that its end has begun and nobody may hand it out any more. Providers in several processes need a store that those
/// share; with a private one a provider knows of nobody else.

#ifndef CURFEW_SANDBOX_LEASE_STORE_HPP
#define CURFEW_SANDBOX_LEASE_STORE_HPP

#include <chrono>
#include <concepts>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/sync.hpp: above

// curfew/sandbox/backend.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// What a store throws when it cannot answer. Acquiring and destroying then fail closed; renewal keeps what it has.
class CURFEW_VISIBLE lease_store_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How a renewal ended. `lapsed`: nobody holds the lease. `lost`: a peer does.
enum class renewal : unsigned char { renewed, lapsed, lost };

/// What a provider asks of a store. Every member is atomic and may be called from many threads at once; any of them may
/// throw. A lease that is not renewed within its time to live is as good as released, mark included.
///
/// - `take`: for handing out. The lease becomes `who`'s, also from a peer; false only while a teardown mark is in
///   force.
/// - `claim`: for everything else. Only when nobody or `who` holds it. `destroying` sets the teardown mark; without it
///   a mark that is there stays.
/// - `renew`: extends the lease that `who` holds, and changes nothing otherwise.
/// - `release`: clears the lease and the mark when they are `who`'s.
/// - `owner`: who holds it.
template <class S>
concept lease_store = requires(S& s, const std::string& id, const std::string& who, std::chrono::nanoseconds ttl,
                               bool destroying) {
  { s.take(id, who, ttl) } -> std::same_as<bool>;
  { s.claim(id, who, ttl, destroying) } -> std::same_as<bool>;
  { s.renew(id, who, ttl) } -> std::same_as<renewal>;
  { s.release(id, who) } -> std::same_as<void>;
  { s.owner(id) } -> std::same_as<std::optional<std::string>>;
};

/// A store in this process's memory: one mutex, times to live on the given clock. Shared by several providers of one
/// process it arbitrates between them. The clock is called outside the mutex, and never the wall clock: a step of the
/// wall clock would end or immortalise every lease at once. Lapsed leases are dropped as the table grows, so its size
/// follows the leases in force. Destruction: when no provider uses it.
template <class Sync = std_sync>
class basic_memory_lease_store {
 public:
  explicit basic_memory_lease_store(clock_fn clock = {}) : clock_(std::move(clock)) {}

  /// As the concept says, under one mutex.
  bool take(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    if (const record* held = in_force(id, now); held != nullptr && held->destroying) return false;
    put(id, who, now, ttl, false);
    return true;
  }

  /// As the concept says.
  bool claim(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl, bool destroying) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    const record* held = in_force(id, now);
    if (held != nullptr && held->who != who) return false;
    put(id, who, now, ttl, destroying || (held != nullptr && held->destroying));
    return true;
  }

  /// As the concept says.
  renewal renew(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    record* held = in_force(id, now);
    if (held == nullptr) return renewal::lapsed;
    if (held->who != who) return renewal::lost;
    held->until = end_of(now, ttl);
    return renewal::renewed;
  }

  /// As the concept says.
  void release(const std::string& id, const std::string& who) {
    std::lock_guard lock(mutex_);
    if (const auto found = records_.find(id); found != records_.end() && found->second.who == who)
      records_.erase(found);
  }

  /// As the concept says.
  std::optional<std::string> owner(const std::string& id) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    const record* held = in_force(id, now);
    return held == nullptr ? std::nullopt : std::optional<std::string>(held->who);
  }

 private:
  using time_point = std::chrono::steady_clock::time_point;
  struct record {
    std::string who;
    time_point until;
    bool destroying = false;
  };

  time_point now() const { return clock_ ? clock_() : Sync::clock::now(); }

  static time_point end_of(time_point now, std::chrono::nanoseconds ttl) noexcept {
    return ttl > time_point::max() - now ? time_point::max() : now + ttl;
  }

  record* in_force(const std::string& id, time_point now) noexcept {
    const auto found = records_.find(id);
    return found != records_.end() && now < found->second.until ? &found->second : nullptr;
  }

  void put(const std::string& id, const std::string& who, time_point now, std::chrono::nanoseconds ttl, bool mark) {
    if (records_.size() >= drop_at_) {
      std::erase_if(records_, [now](const auto& r) { return now >= r.second.until; });
      drop_at_ = 2 * records_.size() + 64;  // amortised: one pass per doubling
    }
    records_.insert_or_assign(id, record{who, end_of(now, ttl), mark});
  }

  const clock_fn clock_;
  mutable typename Sync::mutex mutex_;
  std::unordered_map<std::string, record> records_;
  std::size_t drop_at_ = 64;
};

/// The one to use.
using memory_lease_store = basic_memory_lease_store<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_LEASE_STORE_HPP
// ---- end curfew/sandbox/lease_store.hpp

// ---- begin curfew/sandbox/pool_front.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What all providers are to their callers: options checked, an engine made of them, and the members that do not depend
/// on a policy. Not a type to name: name the provider.

#ifndef CURFEW_SANDBOX_POOL_FRONT_HPP
#define CURFEW_SANDBOX_POOL_FRONT_HPP

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/process_identity.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/lease.hpp: above

// curfew/sandbox/lease_store.hpp: above

// ---- begin curfew/sandbox/sandbox_pool.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers: the steps of an acquire, leases, and the workers. A provider adds the policy: how
/// room is made, what is idle, what may be adopted. See
/// docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_SANDBOX_POOL_HPP
#define CURFEW_SANDBOX_SANDBOX_POOL_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

// curfew/admission_fence.hpp: above

// curfew/detail/config.hpp: above

// curfew/detail/process_identity.hpp: above

// curfew/detail/sync.hpp: above

// curfew/periodic_worker.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/lease.hpp: above

// curfew/sandbox/lease_store.hpp: above

// ---- begin curfew/sandbox/pool_core.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, first part: its state, what excludes what, its calls of backend and store, and the
/// end of one sandbox. The other parts are pool_upkeep.hpp, pool_finish.hpp and sandbox_pool.hpp, which is the one to
/// include. The argument for each rule is in docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_POOL_CORE_HPP
#define CURFEW_SANDBOX_POOL_CORE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// curfew/admission_fence.hpp: above

// curfew/detail/config.hpp: above

// curfew/detail/process_identity.hpp: above

// curfew/detail/sync.hpp: above

// curfew/keyed_serializer.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/lease.hpp: above

// curfew/sandbox/lease_store.hpp: above

// ---- begin curfew/sandbox/sandbox_table.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The sandboxes that a provider tracks: one entry each, found by id or by request, listed by state. Plain data under
/// its owner's mutex; the owner is sandbox_pool.

#ifndef CURFEW_SANDBOX_SANDBOX_TABLE_HPP
#define CURFEW_SANDBOX_SANDBOX_TABLE_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/slot_ledger.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Entries, each holding one slot whose state is the entry's state:
///
///     active         handed out, or about to be given back
///     warm           given back or adopted, ready to be handed out; listed by age, oldest first
///     transitioning  its end has begun: nobody may be given it, or be told that it is there
///     tombstone      its end could not be confirmed; it may still be running and keeps its slot
///     (reserved: a slot without an entry, held by the acquire that will fill it)
///
/// Who moves an entry from which state to which is the table in docs/design/sandbox_pool.md. An entry is a node in the
/// list of its state, so that a move is a splice: it allocates nothing and cannot fail. No member calls foreign code.
/// At most one entry has a given id, and at most one a given request.
template <class Sync>
class sandbox_table {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using slot = typename basic_slot_ledger<Sync>::slot;

  struct entry {
    sandbox_info info;    // fixed
    std::string request;  // fixed
    owner_key owner;      // of the last hand-out
    time_point active_at;
    std::uint64_t tenancy = 0;  // fixed; numbers entries for ever, so that a lease never speaks for a later one
    std::size_t leases = 0;
    bool anonymous = false;    // ended by the last release
    bool never_given = false;  // adopted, and not handed out yet
    slot place = {};
    slot_state state() const noexcept { return place.state(); }
  };
  using entry_at = typename std::list<entry>::iterator;

  std::optional<entry_at> by_id(const std::string& id) const { return lookup(ids_, id); }
  std::optional<entry_at> by_request(const std::string& request) const { return lookup(requests_, request); }
  std::list<entry>& in(slot_state state) noexcept { return listed_[static_cast<std::size_t>(state)]; }
  const std::list<entry>& in(slot_state state) const noexcept { return listed_[static_cast<std::size_t>(state)]; }

  /// The active entry that a lease was granted for.
  std::optional<entry_at> leased(const std::string& id, std::uint64_t tenancy) const {
    const auto found = by_id(id);
    const bool same = found && (*found)->tenancy == tenancy && (*found)->state() == slot_state::active;
    return same && (*found)->leases > 0 ? found : std::nullopt;
  }

  std::vector<std::string> requests_in(std::initializer_list<slot_state> states) const {
    std::vector<std::string> result;
    for (const slot_state state : states)
      for (const entry& e : in(state)) result.push_back(e.request);
    return result;
  }

  /// Adds an entry in \p state. Changes nothing when it throws, and \p place is moved from only when it does not.
  entry_at track(entry&& fresh, slot&& place, slot_state state) {
    std::list<entry> node;
    const entry_at at = node.insert(node.end(), std::move(fresh));
    ids_.emplace(at->info.id, at);
    try {
      requests_.emplace(at->request, at);
    } catch (...) {
      ids_.erase(at->info.id);
      throw;
    }
    at->tenancy = ++last_tenancy_;
    at->place = std::move(place);
    at->place.become(state);
    in(state).splice(position(at, state), node);
    return at;
  }

  /// Removes an entry, and frees its slot unless that was moved out before. Returns the id.
  std::string untrack(entry_at at) noexcept {
    ids_.erase(ids_.find(at->info.id));
    requests_.erase(requests_.find(at->request));
    std::string id = std::move(at->info.id);
    listed_[static_cast<std::size_t>(at->state())].erase(at);
    return id;
  }

  void move(entry_at at, slot_state to) noexcept {
    std::list<entry>& from = in(at->state());
    at->place.become(to);
    in(to).splice(position(at, to), from, at);
  }

 private:
  using index = std::unordered_map<std::string, entry_at>;

  static std::optional<entry_at> lookup(const index& where, const std::string& what) {
    const auto found = where.find(what);
    return found == where.end() ? std::nullopt : std::optional<entry_at>(found->second);
  }

  // The end, but by age among the warm. What is parked now is the youngest, so this seldom takes a step.
  entry_at position(entry_at at, slot_state to) noexcept {
    std::list<entry>& target = in(to);
    auto before = target.end();
    if (to != slot_state::warm) return before;
    while (before != target.begin() && std::prev(before)->active_at > at->active_at) --before;
    return before;
  }

  std::array<std::list<entry>, 5> listed_;
  index ids_;
  index requests_;
  std::uint64_t last_tenancy_ = 0;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_SANDBOX_TABLE_HPP
// ---- end curfew/sandbox/sandbox_table.hpp

// curfew/slot_ledger.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// What the engine needs to know of a provider's options.
struct pool_settings {
  std::string name, owner_id;
  clock_fn clock;
  std::size_t limit = 1;
  std::chrono::nanoseconds lease_ttl, shutdown_budget, worker_stop, destroy_backoff;
  unsigned destroy_attempts = 1, destroy_parallelism = 1;
  std::map<std::string, std::string> environment;
  std::chrono::seconds time_to_live{0};  // kept by the server, and begun anew at each use; 0: none
  bool store_is_private = false;         // there are no peers
};

/// \throws std::invalid_argument naming the part that is too long or holds a control character
inline void check_owner(const owner_key& owner) {
  for (const auto& [part, text] :
       {std::pair<const char*, const std::string&>("user", owner.user), {"thread", owner.thread}}) {
    const bool control = std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; });
    if (control) throw std::invalid_argument(std::string("owner ") + part + " holds a control character");
    if (text.size() > 256) throw std::invalid_argument(std::string("owner ") + part + " is longer than 256 bytes");
  }
}

/// What excludes what:
/// - The *key* of a request, held through `keyed_serializer`, is the right to work on that request's sandbox for as
///   long as the backend and store calls take. Only its holder moves an entry to another state or removes it, so what
///   it has found stays.
/// - `mutex` guards everything declared below it, and the fields of entries, for moments: no backend, store, clock or
///   user code runs under it. Lock order: `mutex`, then the one inside the serializer or the ledger.
/// - The *pass* of the fence keeps a shutdown from sweeping before the call that holds it has committed or given up.
/// - Commit asks under `mutex` whether the fence is closed; a sweep reads the table under `mutex` after closing it. So
///   the sweep finds what was committed, or the commit finds the fence closed.
///
/// Open to the other parts of the engine and to nobody else.
template <backend B, lease_store S, class Sync>
struct pool_core {
  using time_point = std::chrono::steady_clock::time_point;
  using counter = std::uint64_t provider_stats::*;
  using serializer = keyed_serializer<std::string, std::hash<std::string>, Sync>;
  using ledger = basic_slot_ledger<Sync>;
  using pass = typename basic_admission_fence<Sync>::pass;
  using sandboxes = sandbox_table<Sync>;
  using slot = typename sandboxes::slot;
  using entry = typename sandboxes::entry;
  using entry_at = typename sandboxes::entry_at;
  using guard = std::lock_guard<typename Sync::mutex>;
  static constexpr time_point no_limit = time_point::max();

  /// The right to work on the sandbox of a request. Whoever waits for a slot is told when it ends: it may have kept an
  /// evictor from a warm sandbox.
  class key {
   public:
    key() noexcept = default;
    key(typename serializer::hold held, ledger& of) noexcept : held_(std::move(held)), slots_(&of) {}
    key(key&&) noexcept = default;
    key& operator=(key&& other) noexcept {
      key old(std::move(*this));
      held_ = std::move(other.held_);
      slots_ = other.slots_;
      return *this;
    }
    ~key() {
      if (!held_) return;
      held_.release();
      slots_->nudge();
    }
    explicit operator bool() const noexcept { return static_cast<bool>(held_); }

   private:
    typename serializer::hold held_;
    ledger* slots_ = nullptr;
  };

  /// An entry that was moved to `transitioning`, with what is needed to move it back.
  struct victim {
    key held;  // empty when the caller holds the key already
    entry_at at;
    slot_state former;
  };
  enum class ending : unsigned char { gone, kept, tombstone };

  pool_core(std::shared_ptr<B> made_by, std::shared_ptr<S> leases, pool_settings given)
      : settings(std::move(given)),
        maker(std::move(made_by)),
        store(std::move(leases)),
        fence(settings.name.c_str()),
        slots(settings.limit) {}

  bool forked() const noexcept { return detail::process_id() != born_in; }
  time_point now() const { return settings.clock ? settings.clock() : Sync::clock::now(); }
  void count(counter which) noexcept {
    const guard lock(mutex);
    ++(counters.*which);
  }

  /// The way in for everything that touches a sandbox. In a forked child nobody gets in, and no lock was touched.
  pass try_enter() noexcept { return forked() ? pass() : fence.try_enter(); }

  key lock(const std::string& request) { return {keys.acquire(request), slots}; }
  key try_lock(const std::string& request) { return {keys.try_acquire(request), slots}; }

  // ---- calls of the backend and the store

  liveness probe(const std::string& id) noexcept {
    try {
      return maker->probe(id);
    } catch (...) {
      count(&provider_stats::backend_errors);
      return liveness::unknown;
    }
  }

  /// Begins the server's time limit anew. False when the sandbox is gone; a throw is no verdict.
  bool extend([[maybe_unused]] const std::string& id) noexcept {
    if constexpr (requires { maker->set_timeout(id, settings.time_to_live); }) try {
        return settings.time_to_live == std::chrono::seconds::zero() || maker->set_timeout(id, settings.time_to_live);
      } catch (...) {
        count(&provider_stats::backend_errors);
      }
    return true;
  }

  /// The lease in the store, before a sandbox is handed out. \throws backend_error(conflict) when a peer is ending it
  void take(const std::string& id) {
    if (!store->take(id, settings.owner_id, settings.lease_ttl)) throw ended_by_peer(id);
  }
  static backend_error ended_by_peer(const std::string& id) {
    return backend_error(backend_fault::conflict, "sandbox " + id + " is being destroyed by another provider");
  }

  bool claim(const std::string& id, bool destroying) noexcept {
    try {
      return store->claim(id, settings.owner_id, settings.lease_ttl, destroying);
    } catch (...) {
      count(&provider_stats::backend_errors);
      return false;
    }
  }

  void release_in_store(const std::string& id) noexcept {
    try {
      store->release(id, settings.owner_id);
    } catch (...) {
      count(&provider_stats::backend_errors);
    }
  }

  enum class holder : unsigned char { nobody, here, a_peer, unknown };
  holder holder_of(const std::string& id) noexcept {
    try {
      const auto owner = store->owner(id);
      return !owner ? holder::nobody : *owner == settings.owner_id ? holder::here : holder::a_peer;
    } catch (...) {
      return holder::unknown;
    }
  }
  /// Whether a peer may end it before its lease has been taken: one that holds the lease, and, when nobody does, one
  /// that still tracks what had this id before. Then only a probe after the taking is an answer: the peer may have
  /// claimed it, ended it and let go of the lease between an earlier one and the taking.
  bool may_be_a_peers(const std::string& id) noexcept {
    return !settings.store_is_private && holder_of(id) != holder::here;
  }

  /// One teardown's calls. Not begun again past \p until.
  bool destroy_repeatedly(const std::string& id, time_point until) noexcept {
    for (unsigned attempt = 1;; ++attempt) {
      try {
        if (maker->destroy(id)) return true;
      } catch (...) {  // a throw is a failed call, counted as such
      }
      count(&provider_stats::destroy_failures);
      const auto now = Sync::clock::now();
      if (attempt >= settings.destroy_attempts || now >= until || settings.destroy_backoff >= until - now) return false;
      Sync::sleep_for(settings.destroy_backoff);
    }
  }

  // ---- what is tracked

  /// What is tracked for a request. With the key held it stays.
  std::optional<entry_at> find(const std::string& request) {
    const guard lock(mutex);
    return table.by_request(request);
  }

  std::vector<std::string> requests_in(std::initializer_list<slot_state> states) const {
    const guard lock(mutex);
    return table.requests_in(states);
  }

  /// No longer ours, and not ended.
  void forget(entry_at at) noexcept {
    const guard lock(mutex);
    ++counters.forgotten;
    table.untrack(at);
  }

  static identity_conflict met_on(const std::string& id) {
    return identity_conflict("sandbox " + id + " belongs to another owner");
  }
  void refuse_tracked(const std::string& id) {
    const guard lock(mutex);
    refuse_tracked_locked(id);
  }
  void refuse_tracked_locked(const std::string& id) {
    if (table.by_id(id)) throw met_on(id);
  }

  sandbox_info call_create(const create_request& what, entry& fresh, slot& place) {
    try {
      return maker->create(what);
    } catch (const backend_error& error) {
      std::optional<victim> late;
      {
        const guard lock(mutex);
        ++counters.backend_errors;
        if (!error.leftover().empty() && !table.by_id(error.leftover())) {
          fresh.info.id = error.leftover();
          const entry_at at = table.track(std::move(fresh), std::move(place), slot_state::tombstone);
          ++counters.created;
          if (swept) late = mark(at);
        }
      }
      if (late) end_for_good(std::move(*late));
      throw;
    } catch (...) {
      count(&provider_stats::backend_errors);
      throw;
    }
  }

  /// Finds an active entry, and counts as activity on it.
  template <class Find, class Act>
  bool used_now(Find find, Act act) noexcept {
    if (forked()) return false;
    try {
      const time_point moment = now();
      const guard lock(mutex);
      const auto at = find();
      if (!at || (*at)->state() != slot_state::active) return false;
      act(**at);
      (*at)->active_at = moment;
      return true;
    } catch (...) {
      return false;
    }
  }

  /// A create under way: what a failed shutdown names while there is no id yet. The key makes the request unique.
  struct making_guard {
    making_guard(pool_core& where, const std::string& request) : pool(where) {
      const guard lock(pool.mutex);
      at = pool.making.insert(request).first;
    }
    ~making_guard() {
      const guard lock(pool.mutex);
      pool.making.erase(at);
    }
    making_guard(const making_guard&) = delete;
    making_guard& operator=(const making_guard&) = delete;
    pool_core& pool;
    std::set<std::string>::iterator at;
  };

  // ---- the end of one

  /// Begins the end of an entry whose key the caller holds. Under `mutex`.
  victim mark(entry_at at, key held = {}) noexcept {
    const slot_state former = at->state();
    table.move(at, slot_state::transitioning);
    return {std::move(held), at, former};
  }

  /// The same for the entry of a request, when its key is free and \p eligible says so: with the key held and the pool
  /// locked, so that no activity can slip in between. \p eligible must be trivial code.
  template <class Predicate>
  std::optional<victim> seize(const std::string& request, Predicate&& eligible) {
    key held = try_lock(request);
    if (!held) return std::nullopt;
    const guard lock(mutex);
    const auto at = table.by_request(request);
    if (!at || !eligible(std::as_const(**at))) return std::nullopt;
    return mark(*at, std::move(held));
  }

  /// What was tried, and when it had been used last: what was in use since then is worth another try.
  using candidacy = std::pair<std::uint64_t, time_point>;

  /// The same for the oldest entry in a state whose key is free and that is not in \p passed_over, where it is added.
  std::optional<victim> seize_oldest(slot_state state, std::vector<candidacy>& passed_over) {
    const guard lock(mutex);
    auto& candidates = table.in(state);
    for (auto at = candidates.begin(); at != candidates.end(); ++at) {
      const candidacy tried(at->tenancy, at->active_at);
      if (std::find(passed_over.begin(), passed_over.end(), tried) != passed_over.end()) continue;
      key held = try_lock(at->request);
      if (!held) continue;
      passed_over.push_back(tried);
      return mark(at, std::move(held));
    }
    return std::nullopt;
  }

  /// Ends a marked sandbox: claim, destroy, untrack, release the claim; in this order, with the key held throughout.
  /// `kept`: the store refused or could not answer, and the entry is back where it was; with \p whatever it is ended
  /// all the same. \p heir receives the slot of what is gone.
  ending end(victim v, counter reason, slot* heir = nullptr, time_point until = no_limit, bool whatever = false) {
    std::string id_after_it;
    const std::string& id = v.at->info.id;  // no copy: without memory the entry would be stuck in transition
    Sync::here("pool.teardown.marked");
    if (!claim(id, true) && !whatever) {
      const guard lock(mutex);
      table.move(v.at, v.former);
      return ending::kept;
    }
    Sync::here("pool.teardown.claimed");
    if (reason != nullptr) count(reason);
    const bool gone = destroy_repeatedly(id, until);
    {
      const guard lock(mutex);
      if (gone) {
        ++counters.destroyed;
        if (heir != nullptr) (*heir = std::move(v.at->place)).become(slot_state::reserved);
        id_after_it = table.untrack(v.at);
      } else {
        table.move(v.at, slot_state::tombstone);
      }
    }
    Sync::here("pool.teardown.untracked");
    release_in_store(gone ? id_after_it : id);
    return gone ? ending::gone : ending::tombstone;
  }

  /// The end of one that nobody will come back to. What the store does not let us end is forgotten when it has become a
  /// peer's. A peer that held it when we claimed and holds it no more when we ask has ended it, or left it to us: then
  /// the claim is made again. Else it becomes a tombstone, so that it is tried again.
  void end_for_good(victim v, time_point until = no_limit) {
    const key held = std::move(v.held);
    const entry_at at = v.at;
    constexpr int claims = 3;  // each but the last was overtaken by a whole tenancy of a peer
    for (int left = claims; end(std::move(v), nullptr, nullptr, until) == ending::kept; v = again(at)) {
      const holder who = holder_of(at->info.id);
      if (who == holder::a_peer) return forget(at);
      if (who == holder::nobody && --left > 0) continue;
      if (who == holder::unknown) count(&provider_stats::backend_errors);
      const guard lock(mutex);
      if (at->state() != slot_state::tombstone) table.move(at, slot_state::tombstone);
      return;
    }
  }
  victim again(entry_at at) noexcept {
    const guard lock(mutex);
    return mark(at);
  }

  provider_stats stats() const {
    if (forked()) return {};
    const guard lock(mutex);
    provider_stats result = counters;
    const slot_census census = slots.census();
    result.reserved = census[slot_state::reserved];
    result.active = census[slot_state::active];
    result.warm = census[slot_state::warm];
    result.transitioning = census[slot_state::transitioning];
    result.tombstones = census[slot_state::tombstone];
    result.shut_down = fence.is_closed();
    for (const auto& e : table.in(slot_state::tombstone)) result.leftover.push_back(e.info.id);
    if (unfinished) {
      for (const auto state : {slot_state::transitioning, slot_state::active, slot_state::warm})
        for (const auto& e : table.in(state)) result.leftover.push_back(e.info.id);
      result.leftover.insert(result.leftover.end(), making.begin(), making.end());
    }
    return result;
  }

  const pool_settings settings;
  const long born_in = detail::process_id();
  const std::shared_ptr<B> maker;
  const std::shared_ptr<S> store;
  basic_admission_fence<Sync> fence;
  ledger slots;
  serializer keys;

  mutable typename Sync::mutex mutex;
  sandboxes table;
  provider_stats counters;                          // the gauges in it are filled in by stats()
  std::set<std::string> making;                     // requests whose create is under way
  std::map<std::string, time_point> unowned_since;  // orphans in their grace
  std::set<std::string> strays;                     // ids that are being ended without ever having been tracked
  bool swept = false;       // a sweep has read the table: who finds the fence closed now cleans up after itself
  bool unfinished = false;  // the last shutdown left something
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_CORE_HPP
// ---- end curfew/sandbox/pool_core.hpp

// ---- begin curfew/sandbox/pool_finish.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, third part: the end of all sandboxes, once, within one budget, and with nothing left
/// behind unnamed.

#ifndef CURFEW_SANDBOX_POOL_FINISH_HPP
#define CURFEW_SANDBOX_POOL_FINISH_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// curfew/admission_fence.hpp: above

// curfew/detail/config.hpp: above

// curfew/periodic_worker.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/lease.hpp: above

// curfew/sandbox/lease_store.hpp: above

// curfew/sandbox/pool_core.hpp: above

// curfew/slot_ledger.hpp: above

// curfew/teardown.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Ends a pool. Any number of calls from any threads: `once_teardown` makes one of them do it and the others wait for
/// its end, and makes the next call try again when something was left.
template <backend B, lease_store S, class Sync>
class pool_finish {
 public:
  using core = pool_core<B, S, Sync>;
  using worker = basic_periodic_worker<Sync>;
  using time_point = typename core::time_point;
  using guard = typename core::guard;
  using victim = typename core::victim;

  /// Shutdown; with \p hand_over reset, which leaves what was adopted and never given out to a successor. \p pool is
  /// shared, because a thread that is let go at the end of the budget keeps using it.
  teardown_status run(const std::shared_ptr<core>& pool, worker& upkeep, worker& renewal, bool hand_over) noexcept {
    for (const sweeping* s = sweeping::innermost(); s != nullptr; s = s->outer)
      if (s->pool == pool.get()) return teardown_status::in_progress;
    try {
      return once_.run([&] { end_all(pool, upkeep, renewal, hand_over); });
    } catch (...) {
      return teardown_status::failed;
    }
  }

 private:
  struct left_something {};  // thrown through once_teardown: not done, so the next call tries again

  // Marks a thread that ends sandboxes for a shutdown, so that a backend which calls shutdown from there is told so
  // and does not wait for itself.
  struct sweeping {
    explicit sweeping(const core* which) noexcept : pool(which), outer(innermost()) { innermost() = this; }
    ~sweeping() { innermost() = outer; }
    sweeping(const sweeping&) = delete;
    sweeping& operator=(const sweeping&) = delete;
    static const sweeping*& innermost() noexcept { return Sync::template local<sweeping, const sweeping*>(); }
    const core* pool;
    const sweeping* outer;
  };

  // What a sweep has to end, and who does it: each thread holds a pass, so that waiting for them can be bounded.
  struct batch {
    std::deque<victim> jobs;  // under the pool's mutex
    basic_admission_fence<Sync> sweepers{"sweep"};
  };

  // One clock for the drain and the sweep. The drain leaves the sweep a quarter of it, so that one call that hangs does
  // not keep the others' sandboxes running; when the sweep was quicker, the rest goes to the drain again.
  void end_all(const std::shared_ptr<core>& pool, worker& upkeep, worker& renewal, bool hand_over) {
    const sweeping marked(pool.get());
    pool->fence.close();
    pool->slots.close();
    pool->keys.close();
    Sync::here("pool.finish.closed");
    upkeep.stop(pool->settings.worker_stop);
    const time_point begun = Sync::clock::now();
    const auto budget = pool->settings.shutdown_budget;
    const time_point until = budget >= core::no_limit - begun ? core::no_limit : begun + budget;
    const bool drained(pool->fence.drain_until(until - (until - begun) / 4));
    Sync::here("pool.finish.drained");
    sweep(pool, hand_over, until);
    if (!drained && pool->fence.drain_until(until)) sweep(pool, hand_over, until);
    renewal.stop(pool->settings.worker_stop);  // last: it keeps the teardown marks of the sweep in force
    const bool empty = pool->fence.is_drained();
    const guard lock(pool->mutex);
    pool->unowned_since.clear();
    pool->unfinished = !empty || pool->slots.census().total() != 0;
    if (pool->unfinished) throw left_something{};
  }

  void sweep(const std::shared_ptr<core>& pool, bool hand_over, time_point until) {
    const auto all = std::make_shared<batch>();
    std::vector<std::string> handed_over;
    {
      const guard lock(pool->mutex);
      pool->swept = true;
      // A transition whose key is free was given up for lack of memory.
      for (const auto state :
           {slot_state::transitioning, slot_state::active, slot_state::warm, slot_state::tombstone}) {
        auto& listed = pool->table.in(state);
        for (auto next = listed.begin(); next != listed.end();) {
          const auto at = next++;
          typename core::key held(pool->keys.try_acquire_closed(at->request), pool->slots);
          if (!held) continue;  // under a call that outlived the drain, which will end it
          if (hand_over && at->never_given && state == slot_state::warm) {
            handed_over.push_back(at->info.id);
            ++pool->counters.forgotten;
            pool->table.untrack(at);
          } else {
            all->jobs.push_back(pool->mark(at, std::move(held)));
          }
        }
      }
    }
    for (const auto& id : handed_over) pool->release_in_store(id);
    if (!all->jobs.empty()) end_batch(pool, all, until);
  }

  // The calling thread only waits, so that it can stop waiting at the end of the budget; it works itself when there is
  // to be no other, or can be none.
  void end_batch(const std::shared_ptr<core>& pool, const std::shared_ptr<batch>& all, time_point until) {
    std::vector<typename Sync::thread> threads;
    const std::size_t wanted = std::min<std::size_t>(pool->settings.destroy_parallelism, all->jobs.size());
    if (pool->settings.destroy_parallelism > 1) try {
        threads.reserve(wanted);
        while (threads.size() < wanted)
          threads.emplace_back([pool, all, until, inside = all->sweepers.enter()]() mutable {
            work_off(*pool, *all, until);
            inside.release();
          });
      } catch (const std::exception&) {  // no thread, or no memory for one: those there are do it all
      }
    if (threads.empty()) work_off(*pool, *all, until);
    const bool done(all->sweepers.drain_until(until));
    for (auto& thread : threads) done ? thread.join() : thread.detach();
    const guard lock(pool->mutex);
    for (const auto& v : all->jobs) pool->table.move(v.at, slot_state::tombstone);  // not begun within the budget
    all->jobs.clear();
  }

  // Begins with none past \p until, except with the first.
  static void work_off(core& pool, batch& all, time_point until) noexcept {
    const sweeping marked(&pool);
    for (bool first = true;; first = false) {
      if (!first && Sync::clock::now() >= until) return;
      std::optional<victim> v;
      {
        const guard lock(pool.mutex);
        if (all.jobs.empty()) return;
        v = std::move(all.jobs.front());
        all.jobs.pop_front();
      }
      const auto at = v->at;
      const auto held = std::move(v->held);
      try {
        pool.end_for_good(std::move(*v), until);
        continue;
      } catch (const std::exception&) {  // no memory
      }
      const guard lock(pool.mutex);
      if (at->state() != slot_state::tombstone) pool.table.move(at, slot_state::tombstone);
    }
  }

  basic_once_teardown<Sync> once_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_FINISH_HPP
// ---- end curfew/sandbox/pool_finish.hpp

// ---- begin curfew/sandbox/pool_room.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, fourth part: how an acquire comes by a slot. Room is made by ending what nobody
/// uses, and counts only once that end is confirmed.

#ifndef CURFEW_SANDBOX_POOL_ROOM_HPP
#define CURFEW_SANDBOX_POOL_ROOM_HPP

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/lease.hpp: above

// curfew/sandbox/lease_store.hpp: above

// curfew/sandbox/pool_core.hpp: above

// curfew/slot_ledger.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Used by one acquire, which holds a pass and the key of its own request. Each candidate is tried once: one that could
/// not be ended is not hammered by the same acquire, unless its owner has used it and given it back in between.
///
/// `at_once` hands what it frees to its caller. `in_line` frees it for the head of the line, whoever that is: a
/// newcomer may do the work, but it overtakes nobody.
template <backend B, lease_store S, class Sync>
class pool_room {
 public:
  using core = pool_core<B, S, Sync>;
  using slot = typename core::slot;
  using time_point = typename core::time_point;

  /// Where one sandbox will be, and what to count when it has to be created.
  struct place {
    slot taken = {};
    typename core::counter when_created = nullptr;
  };

  explicit pool_room(core& pool) noexcept : pool_(pool) {}

  /// A slot within the limit, made if need be; empty when there is none to be had now.
  slot at_once() {
    slot taken = pool_.slots.try_reserve();
    if (!taken && !free_one(&taken, core::no_limit)) taken = pool_.slots.try_reserve();
    return taken;
  }

  /// The same, and waits its turn; empty when \p patience has passed or the pool was closed.
  slot in_line(std::chrono::nanoseconds patience) {
    const time_point begun = Sync::clock::now();
    const time_point until = patience >= core::no_limit - begun ? core::no_limit : begun + patience;
    typename core::ledger::ticket mine(pool_.slots);
    for (bool waited = false;;) {
      slot_outcome told = mine.wait_until({});  // looks, and does not wait
      const bool full = told == slot_outcome::timed_out || told == slot_outcome::evictable;
      if (full && !free_one(nullptr, until)) {
        if (!std::exchange(waited, true)) pool_.count(&provider_stats::waits);
        Sync::here("pool.room.waiting");
        told = mine.wait_until(until);
      }
      if (told == slot_outcome::granted) return mine.take();
      if (told == slot_outcome::closed || Sync::clock::now() >= until) return slot();
    }
  }

 private:
  // Retries one tombstone, else ends the oldest warm sandbox that can be ended.
  bool free_one(slot* heir, time_point until) {
    const auto gone = [&](std::optional<typename core::victim> v, typename core::counter reason) {
      return v && pool_.end(std::move(*v), reason, heir, until) == core::ending::gone;
    };
    if (gone(pool_.seize_oldest(slot_state::tombstone, tried_), nullptr)) return true;
    for (;;) {
      auto oldest = pool_.seize_oldest(slot_state::warm, tried_);
      if (!oldest) return false;
      if (gone(std::move(oldest), &provider_stats::evicted)) return true;
    }
  }

  core& pool_;
  std::vector<typename core::candidacy> tried_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_ROOM_HPP
// ---- end curfew/sandbox/pool_room.hpp

// ---- begin curfew/sandbox/pool_upkeep.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, second part: what is done on behalf of nobody. Reaping the idle, retrying what could
/// not be ended, comparing with the backend's inventory, and keeping the leases in the store. Each function is one
/// pass, may run on any thread and at any time, and lets go of the fence between two sandboxes, so that a pass in
/// progress holds up a shutdown no longer than one sandbox takes.

#ifndef CURFEW_SANDBOX_POOL_UPKEEP_HPP
#define CURFEW_SANDBOX_POOL_UPKEEP_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/lease.hpp: above

// curfew/sandbox/lease_store.hpp: above

// curfew/sandbox/pool_core.hpp: above

// curfew/slot_ledger.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// The request that a listed sandbox was made for.
inline const std::string& request_of(const sandbox_info& info) noexcept {
  return info.request_id.empty() ? info.id : info.request_id;
}

template <backend B, lease_store S, class Sync>
class pool_upkeep {
 public:
  using core = pool_core<B, S, Sync>;
  using guard = typename core::guard;
  using entry = typename core::entry;
  using key = typename core::key;

  explicit pool_upkeep(core& pool) noexcept : pool_(pool) {}

  /// Ends what has been inactive for longer than \p limit in the given states. Returns how many are gone.
  std::size_t end_idle(std::initializer_list<slot_state> states, std::chrono::nanoseconds limit) {
    std::size_t gone = 0;
    for (const auto& request : pool_.requests_in(states)) {
      const auto inside = pool_.try_enter();
      if (!inside) break;
      Sync::here("pool.sweep.candidate");
      const auto now = pool_.now();
      auto v = pool_.seize(request, [&](const entry& e) {
        return std::find(states.begin(), states.end(), e.state()) != states.end() && now - e.active_at > limit;
      });
      if (v && pool_.end(std::move(*v), &provider_stats::idle_reaped) == core::ending::gone) ++gone;
    }
    return gone;
  }

  void retry_tombstones() {
    for (const auto& request : pool_.requests_in({slot_state::tombstone})) {
      const auto inside = pool_.try_enter();
      if (!inside) break;
      auto v = pool_.seize(request, [](const entry& e) { return e.state() == slot_state::tombstone; });
      if (v) pool_.end(std::move(*v), nullptr);
    }
  }

  /// What the backend has, within \p budget when it can keep one; empty and incomplete when it throws. Not under a
  /// pass: an inventory that hangs holds up no shutdown, and what it brings after one is not acted on.
  listing inventory([[maybe_unused]] const list_budget& budget) {
    try {
      if constexpr (requires { pool_.maker->list_within(budget); }) {
        listing seen = pool_.maker->list_within(budget);
        if (seen.items.size() > budget.max_items) {
          seen.items.resize(budget.max_items);
          seen.complete = false;
        }
        return seen;
      } else {
        return {pool_.maker->list(), true};
      }
    } catch (...) {
      pool_.count(&provider_stats::backend_errors);
      return {{}, false};
    }
  }

  /// What a reconcile pass starts from: what was tracked before the inventory was taken, and the inventory.
  struct survey {
    std::vector<std::string> before = {};
    listing seen = {};
    std::set<std::string> ids = {};
    reconcile_report report = {};
  };
  survey take_survey(const list_budget& budget) {
    retry_tombstones();
    survey s{.before = pool_.requests_in({slot_state::active, slot_state::warm}), .seen = inventory(budget)};
    std::erase_if(s.seen.items, [](const auto& item) { return item.id.empty(); });
    for (const auto& item : s.seen.items) s.ids.insert(item.id);
    s.report.listed = s.seen.items.size();
    s.report.complete = s.seen.complete;
    // An id that vanished starts its grace over when it comes back. An inventory that brought nothing proves nothing.
    const guard lock(pool_.mutex);
    if (s.seen.complete || !s.ids.empty())
      std::erase_if(pool_.unowned_since, [&](const auto& watched) { return !s.ids.contains(watched.first); });
    return s;
  }

  /// How a listed sandbox stands: tracked here, owned by somebody, or neither and for how long. `ripe`: for the whole
  /// grace without a break, and never at first sight. A store that cannot answer counts as an owner.
  enum class standing : unsigned char { tracked, owned, young, ripe };
  standing watch(const sandbox_info& item, std::chrono::nanoseconds grace) {
    bool owned = true;
    try {
      owned = pool_.store->owner(item.id).has_value();
    } catch (...) {
      pool_.count(&provider_stats::backend_errors);
    }
    const auto now = pool_.now();
    const guard lock(pool_.mutex);
    const bool tracked = pool_.table.by_id(item.id).has_value();
    if (owned || tracked) {
      pool_.unowned_since.erase(item.id);
      return tracked ? standing::tracked : standing::owned;
    }
    const auto [since, first_sight] = pool_.unowned_since.try_emplace(item.id, now);
    return !first_sight && now - since->second >= grace ? standing::ripe : standing::young;
  }

  /// Claims an orphan and keeps it warm in \p place. False when it, or another one for its request, is tracked.
  bool adopt_warm(const sandbox_info& item, typename core::slot place) {
    const auto inside = pool_.try_enter();
    const std::string request = request_of(item);
    const key held = inside && place ? pool_.try_lock(request) : key();
    if (!held || pool_.find(request)) return false;
    entry fresh{.info = item, .request = request, .owner = {}, .active_at = pool_.now(), .never_given = true};
    if (!pool_.claim(item.id, false)) return false;
    Sync::here("pool.adopt.claimed");
    const bool there = pool_.extend(item.id);
    {
      const guard lock(pool_.mutex);
      pool_.unowned_since.erase(item.id);
      if (pool_.table.by_id(item.id)) return false;  // ours by now, and so is its lease in the store
      if (there && !pool_.fence.is_closed()) {
        pool_.table.track(std::move(fresh), std::move(place), slot_state::warm);
        ++pool_.counters.adopted;
        return true;
      }
    }
    pool_.release_in_store(item.id);
    return false;
  }

  /// Claims and ends a sandbox that is not tracked, is still on the watch list, and is in the way of nobody: with
  /// \p duplicate a second one for a request whose own sandbox is in use or warm, else one without a request. It never
  /// had a slot, so it is in no figure of the provider but the failures.
  bool end_stray(const sandbox_info& item, bool duplicate, const list_budget& budget) {
    const auto inside = pool_.try_enter();
    const key held = inside ? pool_.try_lock(request_of(item)) : key();
    if (!held) return false;
    {
      const guard lock(pool_.mutex);
      const auto first = duplicate ? pool_.table.by_request(item.request_id) : std::nullopt;
      const bool in_order = first && ((*first)->state() == slot_state::active || (*first)->state() == slot_state::warm);
      if (in_order != duplicate || pool_.table.by_id(item.id) || !pool_.unowned_since.contains(item.id)) return false;
      pool_.strays.insert(item.id);
    }
    const bool claimed = pool_.claim(item.id, true);
    Sync::here("pool.stray.claimed");
    // A peer may have ended it between our inventory and our claim. What does not answer is looked up once more.
    const bool there = claimed && (pool_.probe(item.id) != liveness::dead || lists(item.id, budget));
    const bool gone = there && pool_.destroy_repeatedly(item.id, core::no_limit);
    {
      const guard lock(pool_.mutex);
      pool_.strays.erase(item.id);
      if (gone || (claimed && !there)) pool_.unowned_since.erase(item.id);
    }
    if (claimed) pool_.release_in_store(item.id);
    return gone;
  }

  /// Forgets what was tracked \p before a complete inventory was taken, is not in it, and probes dead. Returns how
  /// many. Does not begin with another one past \p until.
  std::size_t forget_missing(const survey& s, typename core::time_point until = core::no_limit) {
    std::size_t missing = 0;
    for (const auto& request : s.before) {
      if (Sync::clock::now() >= until) break;
      const auto inside = pool_.try_enter();
      const key held = inside ? pool_.try_lock(request) : key();
      const auto at = held ? pool_.find(request) : std::nullopt;
      if (!at || s.ids.contains((*at)->info.id) || (*at)->state() == slot_state::tombstone) continue;
      const std::string id = (*at)->info.id;
      if (pool_.probe(id) != liveness::dead) continue;
      pool_.forget(*at);
      pool_.release_in_store(id);
      ++missing;
    }
    return missing;
  }

  /// Extends every lease in the store, teardown marks included. When one is not ours any more the store is asked again
  /// with the key held, so that no acquire can be re-taking it at the same time: nobody has it, it is claimed again; a
  /// peer has it, the sandbox is forgotten. A teardown holds its key, so its mark can only be extended here and never
  /// comes back once it was released. Extending enters no fence, since a sweep needs its marks renewed too; the rest
  /// has a pass, since a sweep passes over what is held by a call that outlived the drain, and takes any holder for
  /// one.
  void renew_leases() {
    std::vector<std::pair<std::string, std::string>> all;
    {
      const guard lock(pool_.mutex);
      for (const auto state : {slot_state::active, slot_state::warm, slot_state::transitioning})
        for (const auto& e : pool_.table.in(state)) all.emplace_back(e.info.id, e.request);
      for (const auto& id : pool_.strays) all.emplace_back(id, std::string());
    }
    for (const auto& [id, request] : all) try {
        renew(id, request);
      } catch (...) {  // kept: a store that is away for a moment must not cost a sandbox
        pool_.count(&provider_stats::backend_errors);
      }
  }

 private:
  bool lists(const std::string& id, const list_budget& budget) {
    const auto seen = inventory(budget);
    return std::any_of(seen.items.begin(), seen.items.end(), [&](const auto& item) { return item.id == id; });
  }

  void renew(const std::string& id, const std::string& request) {
    const auto& [who, ttl] = std::tie(pool_.settings.owner_id, pool_.settings.lease_ttl);
    if (pool_.store->renew(id, who, ttl) == renewal::renewed) return;
    if (request.empty()) return;  // a stray: its mark is extended while it is there, and never made here
    Sync::here("pool.renew.verdict");
    const auto inside = pool_.try_enter();
    const key held = inside ? pool_.try_lock(request) : key();
    const auto at = held ? pool_.find(request) : std::nullopt;
    if (!at || (*at)->info.id != id || (*at)->state() == slot_state::tombstone) return;
    const auto owner = pool_.store->owner(id);
    if (!owner) {
      pool_.store->claim(id, who, ttl, false);
    } else if (*owner != who) {
      pool_.forget(*at);
    }
  }

  core& pool_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_UPKEEP_HPP
// ---- end curfew/sandbox/pool_upkeep.hpp

// curfew/slot_ledger.hpp: above

// curfew/teardown.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// All sandboxes of one provider. Made by `make`; kept alive by its provider and by the calls under way in it, which is
/// why a create that returns after its provider has gone still finds what it needs to destroy what it made.
///
/// Thread safety: every member from any thread. Where a step asks for a pass and a key, the caller keeps both from
/// before the first step to after the last.
template <backend B, lease_store S, class Sync = std_sync>
class sandbox_pool final : public lease_host, public std::enable_shared_from_this<sandbox_pool<B, S, Sync>> {
  using core = pool_core<B, S, Sync>;
  using worker = basic_periodic_worker<Sync>;
  using guard = typename core::guard;
  using counter = typename core::counter;
  using entry = typename core::entry;
  using victim = typename core::victim;
  using ending = typename core::ending;
  using time_point = typename core::time_point;

 public:
  using key = typename core::key;
  using pass = typename core::pass;
  using slot = typename core::slot;
  using entry_at = typename core::entry_at;

  static std::shared_ptr<sandbox_pool> make(std::shared_ptr<B> backend, std::shared_ptr<S> store,
                                            pool_settings settings, std::function<void(sandbox_pool&)> upkeep) {
    std::shared_ptr<sandbox_pool> pool(new sandbox_pool(std::move(backend), std::move(store), std::move(settings)));
    pool->add_worker(pool->maintain_, ".maintain", std::move(upkeep));
    pool->add_worker(pool->renew_, ".renew", [](sandbox_pool& self) { self.upkeep().renew_leases(); });
    return pool;
  }

  bool forked() const noexcept { return core_.forked(); }
  bool accepting() const noexcept { return !core_.forked() && !core_.fence.is_closed(); }
  provider_stats stats() const { return core_.stats(); }
  pool_upkeep<B, S, Sync> upkeep() noexcept { return pool_upkeep<B, S, Sync>(core_); }
  pool_room<B, S, Sync> room() noexcept { return pool_room<B, S, Sync>(core_); }
  core& state() noexcept { return core_; }

  /// Counts and throws admission_refused.
  [[noreturn]] void refuse() {
    if (!forked()) core_.count(&provider_stats::refused);
    throw admission_refused(core_.settings.name.c_str());
  }
  pass enter() {
    pass inside = core_.try_enter();
    if (!inside) refuse();
    return inside;
  }

  /// Runs \p before and starts the workers; false when that was done already. No backend call on the calling thread.
  template <class Before>
  bool start(std::chrono::nanoseconds maintain_every, std::chrono::nanoseconds renew_every, Before&& before) {
    const pass inside = enter();
    {
      const guard lock(core_.mutex);
      if (std::exchange(core_.counters.started, true)) return false;
    }
    try {
      before();
      renew_->start(renew_every);
      maintain_->start(maintain_every, std::chrono::nanoseconds::zero());
    } catch (...) {  // a renewal that did start goes on and refuses a second start; it does no harm
      const guard lock(core_.mutex);
      core_.counters.started = false;
      throw;
    }
    return true;
  }

  teardown_status finish(bool hand_over) noexcept {
    if (forked()) return teardown_status::completed;
    return finish_.run({this->shared_from_this(), &core_}, *maintain_, *renew_, hand_over);
  }

  /// For a forked child, which must not run the destructor: threads of the parent may wait in there.
  void outlive_process() noexcept { self_ = this->shared_from_this(); }

  // ---- acquire

  /// The owner's sandbox: the one in use, else the warm one, else a running one that is found, else a new one.
  /// \p make_room returns a `pool_room::place`, or throws; it is called with the pass and the key held.
  template <class MakeRoom>
  lease acquire(const owner_key& owner, MakeRoom&& make_room) {
    check_owner(owner);
    const auto inside = enter();
    const bool anonymous = owner.thread.empty();
    const std::string request = anonymous ? detail::random_id() : stable_id(owner);
    const key held = core_.lock(request);
    if (!held) refuse();  // a shutdown came first
    typename pool_room<B, S, Sync>::place room;
    if (const auto known = find(request, owner))
      if (auto again = hand_out(*known, owner, room.taken)) return std::move(*again);
    if (!room.taken) room = make_room();
    if (const auto found = anonymous ? std::nullopt : discover(request))
      if (auto adopted = adopt(*found, owner, request, room.taken)) return std::move(*adopted);
    if (room.when_created != nullptr) core_.count(room.when_created);
    return create(owner, request, std::move(room.taken), anonymous);
  }

  /// Ends the sandbox with this id, waiting for whoever works on it. True when it is confirmed gone.
  bool destroy(const std::string& id) {
    const pass inside = core_.try_enter();
    if (!inside) return false;
    std::string request;
    {
      const guard lock(core_.mutex);
      const auto at = core_.table.by_id(id);
      if (!at) return false;
      request = (*at)->request;
    }
    key held = core_.lock(request);
    if (!held) return false;
    std::optional<victim> v;
    {
      const guard lock(core_.mutex);
      const auto at = core_.table.by_id(id);
      if (!at || (*at)->request != request) return false;
      v = core_.mark(*at);
    }
    return core_.end(std::move(*v), nullptr) == ending::gone;
  }

  // ---- leases

  std::optional<sandbox_info> get(const std::string& id) noexcept {
    std::optional<sandbox_info> info;
    core_.used_now([&] { return core_.table.by_id(id); }, [&](entry& e) { info = e.info; });
    return info;
  }
  bool lease_valid(const std::string& id, std::uint64_t tenancy) const noexcept override {
    if (forked()) return false;
    const guard lock(core_.mutex);
    return core_.table.leased(id, tenancy).has_value();
  }
  bool touch_lease(const std::string& id, std::uint64_t tenancy) noexcept override {
    return core_.used_now([&] { return core_.table.leased(id, tenancy); }, [](entry&) {});
  }
  bool owns(const lease& granted) { return granted_by(granted, this->weak_from_this()); }

  /// The last lease of a sandbox parks it, in the critical section that finds the fence open. What a closed fence
  /// leaves active is for the sweep.
  void end_lease(const std::string& id, std::uint64_t tenancy) noexcept override {
    const pass inside = core_.try_enter();
    if (!inside) return;
    try {
      std::string request;
      const auto leased = [&] { return core_.table.leased(id, tenancy); };
      const auto leave = [&request](entry& e) {
        if (e.leases == 1) {
          request = e.request;
        } else {
          --e.leases;  // not the last, so nobody needs to be kept out
        }
      };
      if (!core_.used_now(leased, leave) || request.empty()) return;
      const key held = core_.lock(request);
      if (!held) return;
      Sync::here("pool.release.keyed");
      const bool to_park = last_of_its_owner(id, tenancy);
      const bool gone = to_park && !core_.extend(id);
      const time_point now = core_.now();
      std::optional<victim> v;
      {
        const guard lock(core_.mutex);
        const auto at = leased();
        if (!at || --(*at)->leases > 0) return;
        (*at)->active_at = now;
        const bool closed = core_.fence.is_closed();
        if (gone) {
          ++core_.counters.forgotten;
          core_.table.untrack(*at);
        } else if ((*at)->anonymous || (closed && core_.swept)) {
          v = core_.mark(*at);
        } else if (!closed) {
          core_.table.move(*at, slot_state::warm);
        }
      }
      if (gone) core_.release_in_store(id);
      if (v) core_.end_for_good(std::move(*v));
    } catch (...) {  // no memory, or a throwing clock: the sandbox stays active, and is ended when it has been idle
      core_.count(&provider_stats::backend_errors);
    }
  }

 private:
  // What a lease is made of, copied before the critical section that may not throw.
  struct grantee {
    sandbox_info info = {};
    owner_key owner = {}, whose = {};
    time_point at = {};
  };

  // ---- the steps of an acquire: the pass and the key of the request are held throughout

  /// What is tracked for a request. \throws identity_conflict when it is another owner's: ids are hashes
  std::optional<entry_at> find(const std::string& request, const owner_key& owner) {
    const guard lock(core_.mutex);
    const auto at = core_.table.by_request(request);
    if (at && !(*at)->never_given && (*at)->owner != owner) throw core::met_on((*at)->info.id);
    return at;
  }

  /// Reuse, or reclaim when it is warm. Empty when it cannot be handed out and was ended: then \p place is its slot.
  std::optional<lease> hand_out(entry_at at, const owner_key& owner, slot& place) {
    const std::string id = at->info.id;
    const bool failed_before = at->state() == slot_state::tombstone, contested = core_.may_be_a_peers(id);
    bool gone = failed_before || core_.probe(id) == liveness::dead;
    if (!gone) {
      core_.take(id);
      Sync::here("pool.acquire.taken");
      gone = (contested && core_.probe(id) == liveness::dead) || !core_.extend(id);
    }
    if (gone) {
      replaced(id, core_.end(mark(at), failed_before ? nullptr : &provider_stats::replaced, &place));
      return std::nullopt;
    }
    grantee to{at->info, owner, owner, core_.now()};
    std::optional<victim> late;
    {
      const guard lock(core_.mutex);
      if (!core_.fence.is_closed()) {
        ++(at->state() == slot_state::warm ? core_.counters.reclaimed : core_.counters.reused);
        return occupy(at, std::move(to));
      }
      if (core_.swept) late = core_.mark(at);
    }
    if (late) core_.end_for_good(std::move(*late));
    refuse();
  }

  /// A running sandbox that was made for this request, as far as the backend can tell.
  std::optional<sandbox_info> discover(const std::string& request) {
    try {
      if constexpr (requires { core_.maker->find(request); }) {
        if (auto found = core_.maker->find(request); found && !found->id.empty()) return found;
      } else {
        for (auto& item : core_.maker->list())
          if (!item.id.empty() && request_of(item) == request) return std::move(item);
      }
    } catch (...) {
      core_.count(&provider_stats::backend_errors);
    }
    return std::nullopt;
  }

  /// Takes a discovered sandbox over. Empty when it was gone and was ended: then \p place is the slot again.
  std::optional<lease> adopt(const sandbox_info& found, const owner_key& owner, const std::string& request,
                             slot& place) {
    core_.refuse_tracked(found.id);
    core_.take(found.id);
    Sync::here("pool.discover.taken");
    const bool gone = core_.probe(found.id) == liveness::dead || !core_.extend(found.id);
    grantee to{found, owner, owner, core_.now()};
    entry fresh{.info = found, .request = request, .owner = owner, .active_at = to.at};
    std::optional<victim> replaceable;
    {
      const guard lock(core_.mutex);
      core_.refuse_tracked_locked(found.id);
      if (!core_.fence.is_closed()) {
        const auto at = core_.table.track(std::move(fresh), std::move(place), slot_state::transitioning);
        ++core_.counters.adopted;
        if (!gone) return occupy(at, std::move(to));
        replaceable.emplace(victim{{}, at, slot_state::active});
      }
    }
    if (!replaceable) {  // it was not made here, so what runs is left to whoever asks next
      core_.release_in_store(found.id);
      refuse();
    }
    replaced(found.id, core_.end(std::move(*replaceable), &provider_stats::replaced, &place, core::no_limit, true));
    return std::nullopt;
  }

  /// Makes a sandbox and commits it. Whatever goes wrong, nothing is left that is not tracked. When a probe calls one
  /// dead that has just been made, it is looked up as well: a service may answer before it knows what it has begun.
  lease create(const owner_key& owner, const std::string& request, slot place, bool anonymous) {
    const typename core::making_guard in_flight(core_, request);
    entry fresh{.info = {}, .request = request, .owner = owner, .active_at = core_.now(), .anonymous = anonymous};
    grantee to{.owner = owner, .whose = owner};
    const bool contested = core_.may_be_a_peers(request);
    std::string spare = request;  // from the moment it runs until it is tracked, what fails ends it
    to.info =
        core_.call_create({request, owner, core_.settings.environment, core_.settings.time_to_live}, fresh, place);
    Sync::here("pool.acquire.created");
    const bool unnamed = to.info.id.empty();
    if (unnamed || to.info.id != request) (unnamed ? to.info.id : to.info.request_id) = std::move(spare);
    const std::string& id = to.info.id;
    std::exception_ptr unanswered;
    bool taken = false;
    std::optional<victim> unwanted;
    try {
      core_.refuse_tracked(id);
      try {
        taken = !unnamed && core_.store->take(id, core_.settings.owner_id, core_.settings.lease_ttl);
        Sync::here("pool.acquire.taken");
        // A peer that was ending the last one of this id may have met the new one, and be done by now.
        if (taken && contested && id == request) taken = core_.probe(id) != liveness::dead || discover(request);
        to.at = core_.now();
      } catch (...) {  // the store, or the clock; what was made is ended first
        unanswered = std::current_exception();
        core_.count(&provider_stats::backend_errors);
      }
      fresh.info = to.info;
      const guard lock(core_.mutex);
      core_.refuse_tracked_locked(id);
      const auto at = core_.table.track(std::move(fresh), std::move(place), slot_state::transitioning);
      ++core_.counters.created;
      if (taken && !unanswered && !core_.fence.is_closed()) return occupy(at, std::move(to));
      if (!unnamed) ++core_.counters.discarded;
      unwanted.emplace(victim{{}, at, slot_state::active});
    } catch (const identity_conflict&) {
      throw;                           // it is somebody else's
    } catch (const std::bad_alloc&) {  // nothing was tracked, so it must go now
      static_cast<void>(core_.destroy_repeatedly(id, core::no_limit));
      core_.release_in_store(id);
      throw;
    }
    core_.end(std::move(*unwanted), nullptr, nullptr, core::no_limit, true);
    if (unnamed) throw backend_error(backend_fault::bad_response, "create answered without a sandbox id");
    if (unanswered) std::rethrow_exception(unanswered);
    if (!taken) throw core::ended_by_peer(id);
    refuse();
  }

  sandbox_pool(std::shared_ptr<B> backend, std::shared_ptr<S> store, pool_settings settings)
      : core_(std::move(backend), std::move(store), std::move(settings)) {}

  // A worker knows the pool weakly: one that was let go in the middle of a tick must not keep it for ever.
  void add_worker(std::optional<worker>& to, const char* suffix, std::function<void(sandbox_pool&)> work) {
    const auto weak = this->weak_from_this();
    auto tick = [weak, work = std::move(work)] {
      if (const auto self = weak.lock()) work(*self);
    };
    auto counted = [weak](std::exception_ptr) {
      if (const auto self = weak.lock()) self->core_.count(&provider_stats::backend_errors);
    };
    to.emplace(core_.settings.name + suffix, std::move(tick), std::move(counted), core_.settings.worker_stop);
  }

  // With the key held nobody adds a lease, so what is the last one now stays the last.
  bool last_of_its_owner(const std::string& id, std::uint64_t tenancy) {
    const guard lock(core_.mutex);
    const auto at = core_.table.leased(id, tenancy);
    return at && (*at)->leases == 1 && !(*at)->anonymous;
  }
  victim mark(entry_at at) {
    const guard lock(core_.mutex);
    return core_.mark(at);
  }
  static void replaced(const std::string& id, ending how) {
    if (how != ending::gone)
      throw backend_error(backend_fault::conflict, "sandbox " + id + " could not be ended to be replaced");
  }
  // Under the pool's mutex, and nothing in it can fail.
  lease occupy(entry_at at, grantee&& to) noexcept {
    if (at->state() != slot_state::active) core_.table.move(at, slot_state::active);
    at->owner = std::move(to.owner);
    at->active_at = to.at;
    at->never_given = false;
    ++at->leases;
    return grant(this->weak_from_this(), std::move(to.info), std::move(to.whose), at->tenancy);
  }

  core core_;
  pool_finish<B, S, Sync> finish_;
  std::optional<worker> maintain_;
  std::optional<worker> renew_;
  std::shared_ptr<sandbox_pool> self_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_SANDBOX_POOL_HPP
// ---- end curfew/sandbox/sandbox_pool.hpp

// curfew/signals.hpp: above

// curfew/teardown.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// The base of a provider with the given options. \p Options has the fields that aio_options and e2b_options share.
template <backend B, lease_store S, class Options, class Sync>
class provider_front {
 public:
  provider_front(const provider_front&) = delete;
  provider_front& operator=(const provider_front&) = delete;

  /// Starts the workers "<name>.maintain", whose first pass begins at once, and "<name>.renew". Repeating it does
  /// nothing. \throws admission_refused after shutdown or reset; std::system_error when no thread can be made
  void start() {
    pool_->start(options_->maintain_interval, options_->renewal_interval, [this] {
      if (!fallbacks_.empty()) return;
      const auto shut_down = [weak = std::weak_ptr<pool>(pool_)](int) {
        if (const auto self = weak.lock()) self->finish(false);
      };
      decltype(fallbacks_) all;  // all of them or none
      for (const int signal : options_->fallback_signals)
        all.emplace_back(std::initializer_list<int>{signal}, shut_down);
      fallbacks_.swap(all);
    });
  }

  /// An active sandbox, without asking the backend; counts as activity.
  std::optional<sandbox_info> get(const std::string& id) noexcept { return pool_->get(id); }

  /// As the lease's own release. \throws std::invalid_argument for a lease of another provider, which gets it back
  void release(lease granted) {
    if (granted && !pool_->owns(granted))
      throw std::invalid_argument(options_->name + ": released a lease of another provider, on sandbox " +
                                  granted.id());
  }

  /// Ends a sandbox, leases or not; false when it is not tracked here or its end could not be confirmed.
  bool destroy(const std::string& id) { return pool_->destroy(id); }

  /// Ends this provider as `shutdown` does, but leaves what it adopted and never handed out to a successor.
  void reset() { pool_->finish(true); }
  /// `completed` for the call that did it; `joined` for one that waited for it; `in_progress` from inside it; `failed`
  /// when something is left, which `stats().leftover` names and the next call tries again. Never throws.
  teardown_status shutdown() { return pool_->finish(false); }

  /// What has happened so far, and whether an acquire has a chance: neither shut down nor in a forked child.
  provider_stats stats() const { return pool_->stats(); }
  bool accepting() const noexcept { return pool_->accepting(); }

 protected:
  using pool = sandbox_pool<B, S, Sync>;
  using place = typename pool_room<B, S, Sync>::place;

  /// \p tick is one pass of the maintain worker. It gets the options as they were checked, and may outlive this object.
  provider_front(std::shared_ptr<B> made_by, Options options, std::shared_ptr<S> store, std::size_t limit,
                 std::chrono::seconds time_to_live, void (*tick)(pool&, const Options&))
      : options_(std::make_shared<const Options>(checked(std::move(options), made_by != nullptr))),
        pool_(pool::make(std::move(made_by), store != nullptr ? store : private_store(options_->clock),
                         settings(*options_, limit, time_to_live, store == nullptr && in_this_process),
                         [o = options_, tick](pool& self) { tick(self, *o); })) {}
  ~provider_front() { pool_->forked() ? pool_->outlive_process() : static_cast<void>(pool_->finish(false)); }

  static void require(const Options& o, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument("provider \"" + o.name + "\": " + what);
  }

  const std::shared_ptr<const Options> options_;
  const std::shared_ptr<pool> pool_;

 private:
  static constexpr bool in_this_process = std::is_constructible_v<S, const clock_fn&>;

  static std::shared_ptr<S> private_store([[maybe_unused]] const clock_fn& clock) {
    if constexpr (in_this_process) {
      return std::make_shared<S>(clock);
    } else if constexpr (std::is_default_constructible_v<S>) {
      return std::make_shared<S>();
    } else {  // an interface, or one that must be told where its server is
      throw std::invalid_argument("provider: the store is null, and one of its type cannot be made here");
    }
  }

  static Options checked(Options o, bool has_backend) {
    constexpr auto zero = std::chrono::nanoseconds::zero();
    require(o, has_backend, "the backend is null");
    require(o, o.replicas > 0, "replicas is 0");
    require(o, o.maintain_interval > zero, "maintain_interval must be positive");
    require(o, o.renewal_interval > zero, "renewal_interval must be positive");
    require(o, o.ttl_multiplier >= 2, "ttl_multiplier is less than 2");
    require(o, o.renewal_interval <= std::chrono::nanoseconds::max() / o.ttl_multiplier,
            "renewal_interval is too long");
    require(o, o.orphan_grace >= zero, "orphan_grace is negative");
    require(o, o.shutdown_budget >= zero && o.worker_stop >= zero, "shutdown_budget or worker_stop is negative");
    require(o, o.destroy_backoff >= zero, "destroy_backoff is negative");
    require(o, o.destroy_attempts > 0 && o.destroy_parallelism > 0, "destroy_attempts or destroy_parallelism is 0");
    detail::check_environment(o.environment, o.name.c_str());
    if (o.owner_id.empty()) o.owner_id = detail::process_name();
    return o;
  }

  static pool_settings settings(const Options& o, std::size_t limit, std::chrono::seconds time_to_live,
                                bool private_store) {
    return {.name = o.name,
            .owner_id = o.owner_id,
            .clock = o.clock,
            .limit = limit,
            .lease_ttl = o.renewal_interval * o.ttl_multiplier,
            .shutdown_budget = o.shutdown_budget,
            .worker_stop = o.worker_stop,
            .destroy_backoff = o.destroy_backoff,
            .destroy_attempts = o.destroy_attempts,
            .destroy_parallelism = o.destroy_parallelism,
            .environment = o.environment,
            .time_to_live = time_to_live,
            .store_is_private = private_store};
  }

  std::list<basic_fallback_signal_guard<Sync>> fallbacks_;  // last: gone before what its callback uses
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_FRONT_HPP
// ---- end curfew/sandbox/pool_front.hpp

// curfew/sandbox/sandbox_pool.hpp: above

// curfew/slot_ledger.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of an aio_provider.
struct aio_options {
  std::size_t replicas = 3;  ///< soft cap: room is made first, and exceeded when none can be made
  std::chrono::nanoseconds idle_timeout = std::chrono::seconds(600);  ///< 0: never reaped
  std::chrono::nanoseconds maintain_interval = std::chrono::seconds(60);
  std::map<std::string, std::string> environment;
  std::chrono::nanoseconds renewal_interval = std::chrono::seconds(30);
  unsigned ttl_multiplier = 4;  ///< a lease in the store lives this many renewal intervals
  std::chrono::nanoseconds orphan_grace = std::chrono::seconds(120);
  std::chrono::nanoseconds shutdown_budget = std::chrono::seconds(20);
  std::chrono::nanoseconds worker_stop = std::chrono::seconds(5);
  std::chrono::nanoseconds destroy_backoff = std::chrono::milliseconds(100);
  unsigned destroy_attempts = 3;
  unsigned destroy_parallelism = 8;
  bool adopt_orphans = true;
  std::string name = "aio";
  std::string owner_id;  ///< who this provider is in the lease store; empty: host:pid:random
  clock_fn clock;
  std::vector<int> fallback_signals;  ///< shut down on these when no lifespan owns them; empty: no handlers at all
};

/// Hands sandboxes to owners, keeps released ones warm, and owns the end of every one it made or adopted.
///
/// Thread safety: every member from any thread; different owners never wait for each other, calls for one owner take
/// turns. Ordering: what a backend's create wrote is visible to whoever is handed the sandbox.
///
/// Nothing runs in the background before `start()`. Without it everything else works, but `sweep_idle` and `reconcile`
/// have to be called and nothing renews the leases in the store. `shutdown()` refuses newcomers, waits for the calls
/// that are inside, and ends every sandbox; when it has returned `completed` or `joined`, no acquire succeeds and
/// nothing that was made or adopted here is running. The destructor does the same. It is legal once no other thread
/// calls a member; leases may outlive it. In a forked child every member returns at once and nothing of the parent's is
/// touched.
///
/// Exceptions: acquire throws admission_refused after shutdown or reset, std::invalid_argument for an owner that cannot
/// be one, backend_error(conflict) when the owner's old sandbox cannot be ended or a peer is ending it,
/// identity_conflict, and what the backend's create or the lease store throws. Cost: reuse and reclaim are one probe
/// and one lease store call, whatever the number of sandboxes.
template <backend B, lease_store S = memory_lease_store, class Sync = std_sync>
class aio_provider : public provider_front<B, S, aio_options, Sync> {
  using front = provider_front<B, S, aio_options, Sync>;
  using typename front::place;
  using typename front::pool;

 public:
  /// \throws std::invalid_argument naming the option that cannot be one
  explicit aio_provider(std::shared_ptr<B> backend, aio_options options = {}, std::shared_ptr<S> store = nullptr)
      : front(std::move(backend), checked(options), std::move(store), options.replicas, no_limit_by_the_server,
              [](pool& self, const aio_options& o) {
                reconcile(self, o);
                sweep_idle(self, o);
              }) {}

  /// The owner's sandbox: the one in use, else the warm one, else a running one that is found, else a new one. An owner
  /// with an empty thread is anonymous: always a new one, destroyed by its release.
  lease acquire(const owner_key& owner) {
    const auto self = this->pool_;  // a create that returns late still needs it, whatever has become of this provider
    return self->acquire(owner, [&] { return make_room(*self); });
  }

  /// One pass: ends what has been idle for longer than `idle_timeout`. Returns how many are gone.
  std::size_t sweep_idle() { return sweep_idle(*this->pool_, *this->options_); }
  /// One pass: adopts what has run unowned through the grace, and forgets what has vanished.
  reconcile_report reconcile() { return reconcile(*this->pool_, *this->options_); }

 private:
  static constexpr std::chrono::seconds no_limit_by_the_server{0};

  // Room within the cap, or else a slot beyond it. Room is made by waiting for an end to be confirmed, never by
  // counting on one.
  static place make_room(pool& self) {
    if (auto within = self.room().at_once()) return {std::move(within)};
    if (auto beyond = self.state().slots.exceed()) return {std::move(beyond), &provider_stats::over_cap};
    self.refuse();
  }

  static std::size_t sweep_idle(pool& self, const aio_options& options) {
    if (!self.accepting()) return 0;  // also in a forked child, where the lock may be held by a thread that is gone
    self.upkeep().retry_tombstones();
    if (options.idle_timeout == std::chrono::nanoseconds::zero()) return 0;
    return self.upkeep().end_idle({slot_state::active, slot_state::warm}, options.idle_timeout);
  }

  static reconcile_report reconcile(pool& self, const aio_options& options) {
    if (!self.accepting()) return {};
    auto upkeep = self.upkeep();
    auto survey = upkeep.take_survey({});
    if (options.adopt_orphans)
      for (const auto& item : survey.seen.items) {
        if (!self.accepting()) break;
        if (upkeep.watch(item, options.orphan_grace) == decltype(upkeep)::standing::ripe &&
            upkeep.adopt_warm(item, self.state().slots.exceed()))
          ++survey.report.adopted;
      }
    if (survey.seen.complete) survey.report.expired = upkeep.forget_missing(survey);
    return survey.report;
  }

  static aio_options checked(aio_options o) {
    front::require(o, o.idle_timeout >= std::chrono::nanoseconds::zero(), "idle_timeout is negative");
    return o;
  }
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_AIO_HPP
// ---- end curfew/sandbox/aio.hpp

// ---- begin curfew/sandbox/aio_rest_backend.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Sandboxes of a provisioner, a server that runs AIO containers on behalf of many hosts. Ids are the caller's and a
/// create is idempotent there, so a lost answer can be undone by id. See docs/design/backends.md.

#ifndef CURFEW_SANDBOX_AIO_REST_BACKEND_HPP
#define CURFEW_SANDBOX_AIO_REST_BACKEND_HPP

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/http_message.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// HTTP/1.1 messages: a request as text, and a reader of responses that is given bytes as they come. No I/O. The reader
/// is strict where leniency lets two parties see two different messages: one way to end a line, one way to say where a
/// body ends, no folded headers.

#ifndef CURFEW_DETAIL_HTTP_MESSAGE_HPP
#define CURFEW_DETAIL_HTTP_MESSAGE_HPP

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/http_types.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// One HTTP exchange as values, the error of one that did not come to its end, and what a transport is.

#ifndef CURFEW_DETAIL_HTTP_TYPES_HPP
#define CURFEW_DETAIL_HTTP_TYPES_HPP

#include <chrono>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/text.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Text that comes from outside: made fit for a message, and compared without regard to case. ASCII alone counts, and
/// no locale is asked: what a server or a tool writes does not depend on where the host runs.

#ifndef CURFEW_DETAIL_TEXT_HPP
#define CURFEW_DETAIL_TEXT_HPP

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

// curfew/detail/config.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Text from outside, fit for an error message.
inline std::string printable(std::string text, std::size_t most = 128) {
  if (text.size() > most) text.resize(most);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

inline bool contains_ignoring_case(std::string_view text, std::string_view part) noexcept {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char x, char y) { return lower(x) == lower(y); }) != text.end();
}

/// Without the blanks at both ends.
constexpr std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_TEXT_HPP
// ---- end curfew/detail/text.hpp

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Names and values as they go over the wire; names are compared without regard to case.
using http_headers = std::vector<std::pair<std::string, std::string>>;

/// What a transport is asked to send.
struct http_request {
  std::string method;
  std::string url;  ///< absolute
  http_headers headers = {};
  std::string body = {};
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  ///< for the whole exchange, connecting included
};

/// What came back, whatever its status.
struct http_response {
  int status = 0;
  http_headers headers;
  std::string body;

  /// The value of the first header of that name; null without one.
  const std::string* header(std::string_view name) const noexcept {
    for (const auto& [key, value] : headers)
      if (detail::equal_ignoring_case(key, name)) return &value;
    return nullptr;
  }
};

/// An exchange that has no response. What it means for the caller depends on `sent()`: true when the server may have
/// seen the request, and so may have acted on it.
class CURFEW_VISIBLE transport_error : public std::runtime_error {
 public:
  transport_error(const std::string& message, bool sent, bool timed_out)
      : std::runtime_error(message), sent_(sent), timed_out_(timed_out) {}

  /// Whether the server may have seen the request, and whether time was what ran out.
  bool sent() const noexcept { return sent_; }
  bool timed_out() const noexcept { return timed_out_; }

 private:
  bool sent_;
  bool timed_out_;
};

/// What carries a request to a server and brings the response back: any response, whatever its status. It follows no
/// redirect and repeats nothing, since only the caller knows what may be repeated. It throws transport_error when there
/// is no response, and std::invalid_argument for a request that it cannot send. It may be called from many threads at
/// once.
template <class T>
concept transport = requires(T& t, const http_request& request) {
  { t.send(request) } -> std::same_as<http_response>;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_TYPES_HPP
// ---- end curfew/detail/http_types.hpp

// ---- begin curfew/detail/http_url.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The urls the kit speaks: http and https, a host, a port, a path and a query. Narrower than the standard on purpose:
/// what is refused here (credentials, fragments, blanks, control characters) has no business in a request.

#ifndef CURFEW_DETAIL_HTTP_URL_HPP
#define CURFEW_DETAIL_HTTP_URL_HPP

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

// curfew/detail/config.hpp: above

// curfew/detail/text.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

struct http_url {
  bool secure = false;
  std::string host;  ///< without the brackets of an IPv6 address
  std::uint16_t port = 0;
  std::string authority;  ///< as in the url
  std::string target;     ///< path and query, never empty
};

constexpr bool is_ascii_alnum(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// A host name, an IPv4 address, or an IPv6 address without its brackets.
inline bool is_host(std::string_view host) noexcept {
  const bool numeric = host.find(':') != std::string_view::npos;
  return !host.empty() && host.size() <= 255 && host.front() != '-' &&
         std::all_of(host.begin(), host.end(), [numeric](char c) {
           return is_ascii_alnum(c) || c == '.' || (numeric ? c == ':' : c == '-' || c == '_');
         });
}

/// A host as it stands in a url.
inline std::string bracketed(const std::string& host) {
  return host.find(':') != std::string::npos ? "[" + host + "]" : host;
}

/// Everything but letters, digits and `-._~` as %XX.
inline std::string percent_encode(std::string_view text) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    if (is_ascii_alnum(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      (((result += '%') += digits[byte >> 4]) += digits[byte & 0xf]);
    }
  }
  return result;
}

/// Throws std::invalid_argument, led by \p who, for what is no such url. The url is not repeated in the message: it may
/// be a secret.
inline http_url parse_url(std::string_view text, const char* who) {
  const auto require = [who](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string(who) + ": bad url: " + what);
  };
  require(std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; }),
          "a blank, a control or a non-ASCII character");
  require(text.find('#') == std::string_view::npos, "a fragment");
  http_url url;
  const std::size_t mark = text.find("://");
  require(mark != std::string_view::npos, "no scheme");
  url.secure = equal_ignoring_case(text.substr(0, mark), "https");
  require(url.secure || equal_ignoring_case(text.substr(0, mark), "http"), "the scheme is neither http nor https");
  text.remove_prefix(mark + 3);

  const std::size_t end = std::min(text.find_first_of("/?"), text.size());
  std::string_view authority = text.substr(0, end);
  url.authority = authority;
  url.target = text.substr(end);
  if (url.target.empty() || url.target.front() == '?') url.target.insert(0, "/");
  require(authority.find('@') == std::string_view::npos, "credentials");

  const bool brackets = authority.starts_with('[');
  const std::size_t host_end = brackets ? authority.find(']') : std::min(authority.find(':'), authority.size());
  require(host_end != std::string_view::npos, "an unclosed bracket");
  url.host = brackets ? authority.substr(1, host_end - 1) : authority.substr(0, host_end);
  require(is_host(url.host) && brackets == (url.host.find(':') != std::string::npos), "the host");
  authority.remove_prefix(host_end + (brackets ? 1 : 0));

  url.port = url.secure ? 443 : 80;
  if (!authority.empty()) {
    const char* const last = authority.data() + authority.size();
    const auto [stop, error] = std::from_chars(authority.data() + 1, last, url.port);
    require(authority.front() == ':' && error == std::errc() && stop == last && url.port != 0, "the port");
  }
  return url;
}

/// A base url without the slashes at its end, so that a path can follow. Throws as parse_url does.
inline std::string base_url(std::string text, const char* who) {
  while (text.ends_with('/')) text.pop_back();
  if (parse_url(text, who).target.find('?') != std::string::npos)
    throw std::invalid_argument(std::string(who) + ": bad url: a base url with a query");
  return text;
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_URL_HPP
// ---- end curfew/detail/http_url.hpp

// curfew/detail/text.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// What a server sent is no response, or not a whole one.
class malformed_response : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::size_t most_http_head = std::size_t{64} << 10;  ///< of all heads and trailers of one exchange
inline constexpr std::size_t most_http_body = std::size_t{8} << 20;

inline bool is_http_token(std::string_view text) noexcept {
  constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [marks](char c) {
    return is_ascii_alnum(c) || marks.find(c) != std::string_view::npos;
  });
}

inline bool is_header_value(std::string_view text) noexcept {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f'; });
}

/// Throws std::invalid_argument for a method or a header that could be read as more than it is, and for the headers
/// that the transport writes itself.
inline void check_request(const sandbox::http_request& request, const char* who) {
  const auto require = [who](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string(who) + ": " + what);
  };
  require(is_http_token(request.method), "bad method");
  require(request.timeout > std::chrono::milliseconds::zero(), "the timeout is not positive");
  for (const auto& [name, value] : request.headers) {
    require(is_http_token(name), "bad header name");
    require(is_header_value(value), "a control character in a header");
    for (const char* const own : {"host", "connection", "content-length", "transfer-encoding"})
      require(!equal_ignoring_case(name, own),
              "Host, Connection, Content-Length and Transfer-Encoding are not to be set");
  }
}

/// A checked request as it goes over the wire; the server closes the connection after its response.
inline std::string request_text(const sandbox::http_request& request, const http_url& url) {
  std::string text = request.method + " " + url.target + " HTTP/1.1\r\nHost: " + url.authority + "\r\n";
  for (const auto& [name, value] : request.headers) text.append(name).append(": ").append(value).append("\r\n");
  if (!request.body.empty() || request.method == "POST" || request.method == "PUT" || request.method == "PATCH")
    text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text.append("Connection: close\r\n\r\n").append(request.body);
}

/// Reads one response.
///
///   head -> head          an interim response (1xx) was skipped
///   head -> done          a status or a method without a body
///   head -> sized         Content-Length
///   head -> until_end     neither a length nor chunks: the end of the connection ends the body
///   head -> chunk_size -> chunk -> chunk_end -> chunk_size ... -> trailer -> done
class response_reader {
 public:
  explicit response_reader(std::string_view method) : bodyless_(method == "HEAD") {}

  /// Takes what has come; true once the response is complete, and what comes later is not looked at. Throws
  /// malformed_response.
  bool feed(std::string_view bytes) {
    input_.append(bytes);
    while (step()) {
    }
    input_.erase(0, std::exchange(at_, 0));
    return state_ == state::done;
  }

  /// Nothing more will come. Throws malformed_response when something is missing.
  void finish() {
    if (state_ == state::until_end) state_ = state::done;
    require(state_ == state::done, heads_ == 0 && input_.empty() ? "closed without a response" : "half a response");
  }

  /// The complete response.
  sandbox::http_response take() { return std::move(response_); }

 private:
  enum class state : unsigned char { head, sized, until_end, chunk_size, chunk, chunk_end, trailer, done };

  static void require(bool holds, const char* what) {
    if (!holds) throw malformed_response(what);
  }

  /// The next line without its end, once it is there. Counted against the bound on heads, also while it is incomplete.
  std::optional<std::string_view> line() {
    const std::size_t end = input_.find('\n', at_);
    const std::size_t size = std::min(end, input_.size()) - at_;
    require(heads_ + size <= most_http_head, "headers too long");
    if (end == std::string::npos) return {};
    require(end > at_ && input_[end - 1] == '\r', "a line that does not end in CR LF");
    const std::string_view text = std::string_view(input_).substr(at_, size - 1);
    heads_ += size + 1;
    at_ = end + 1;
    return text;
  }

  /// One step on; false when it needs more bytes or is done.
  bool step() {
    switch (state_) {
      case state::head:
        return head_line();
      case state::sized:
      case state::chunk:
        return data();
      case state::until_end:
        require(response_.body.size() + input_.size() - at_ <= most_http_body, "body too long");
        response_.body.append(input_, at_);
        at_ = input_.size();
        return false;
      case state::chunk_size:
        return chunk_size();
      case state::chunk_end: {
        const auto text = line();
        require(!text || text->empty(), "a chunk that is longer than its size");
        if (text) {
          state_ = state::chunk_size;
          heads_ -= 2;
        }
        return text.has_value();
      }
      case state::trailer: {
        const auto text = line();
        if (text && text->empty()) state_ = state::done;
        return text.has_value() && state_ != state::done;
      }
      case state::done:
        return false;
    }
    return false;
  }

  bool head_line() {
    const auto text = line();
    if (!text) return false;
    if (response_.status == 0) {
      status_line(*text);
    } else if (!text->empty()) {
      header(*text);
    } else {
      begin_body();
    }
    return true;
  }

  void status_line(std::string_view text) {
    const bool shaped = text.size() >= 12 && (text.starts_with("HTTP/1.1 ") || text.starts_with("HTTP/1.0 ")) &&
                        (text.size() == 12 || text[12] == ' ') && is_header_value(text);
    int status = 0;
    if (shaped) std::from_chars(text.data() + 9, text.data() + 12, status);
    require(shaped && status >= 100, "a malformed status line");
    response_.status = status;
  }

  void header(std::string_view text) {
    const std::size_t colon = text.find(':');
    require(colon != std::string_view::npos && is_http_token(text.substr(0, colon)), "a malformed header");
    const std::string_view value = trimmed(text.substr(colon + 1));
    require(is_header_value(value), "a control character in a header");
    response_.headers.emplace_back(text.substr(0, colon), value);
  }

  void begin_body() {
    if (response_.status < 200) {
      require(response_.status != 101, "an upgrade that was not asked for");
      response_ = {};
      return;
    }
    std::optional<std::size_t> length;
    bool chunked = false;
    for (const auto& [name, value] : response_.headers) {
      if (equal_ignoring_case(name, "transfer-encoding")) {
        require(!chunked && equal_ignoring_case(value, "chunked"), "an unknown transfer encoding");
        chunked = true;
      } else if (equal_ignoring_case(name, "content-length")) {
        const std::size_t size = number(value, 10, "a malformed Content-Length");
        require(!length || *length == size, "two lengths that differ");
        length = size;
      }
    }
    require(!(chunked && length), "both a length and chunks");
    left_ = length.value_or(0);
    if (bodyless_ || response_.status == 204 || response_.status == 304 || (length && left_ == 0)) {
      state_ = state::done;
    } else {
      require(left_ <= most_http_body, "body too long");
      state_ = chunked ? state::chunk_size : length ? state::sized : state::until_end;
    }
  }

  bool chunk_size() {
    const auto text = line();
    if (!text) return false;
    left_ = number(trimmed(text->substr(0, text->find(';'))), 16, "a malformed chunk size");
    require(left_ <= most_http_body - response_.body.size(), "body too long");
    state_ = left_ != 0 ? state::chunk : state::trailer;
    // Small chunks are a server's right: what frames them does not count as a head, but for the longest line.
    if (left_ != 0) heads_ -= text->size() + 2;
    return true;
  }

  bool data() {
    const std::size_t size = std::min(left_, input_.size() - at_);
    response_.body.append(input_, at_, size);
    at_ += size;
    left_ -= size;
    if (left_ != 0) return false;
    state_ = state_ == state::chunk ? state::chunk_end : state::done;
    return true;
  }

  static std::size_t number(std::string_view text, int base, const char* complaint) {
    std::size_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    require(error != std::errc::result_out_of_range, "body too long");
    require(!text.empty() && error == std::errc() && stop == text.data() + text.size(), complaint);
    return value;
  }

  sandbox::http_response response_;
  std::string input_;
  std::size_t at_ = 0;     // what of it has been read
  std::size_t left_ = 0;   // of the body, or of the chunk
  std::size_t heads_ = 0;  // bytes of heads and trailers so far
  const bool bodyless_;
  state state_ = state::head;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_MESSAGE_HPP
// ---- end curfew/detail/http_message.hpp

// ---- begin curfew/detail/http_rest.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the clients of REST servers share: which fault a status or a transport's error is, and waiting until a sandbox
/// answers. Messages name the call and the status, never a body or a header: those may hold what an owner keeps secret.

#ifndef CURFEW_DETAIL_HTTP_REST_HPP
#define CURFEW_DETAIL_HTTP_REST_HPP

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/deadline.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Deadlines that cannot overflow, and what is left of one as poll() wants it.

#ifndef CURFEW_DETAIL_DEADLINE_HPP
#define CURFEW_DETAIL_DEADLINE_HPP

#include <algorithm>
#include <chrono>

// curfew/detail/config.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The point \p d after \p now, or the last one there is.
template <class TimePoint>
TimePoint later(TimePoint now, std::chrono::nanoseconds d) noexcept {
  return d > TimePoint::max() - now ? TimePoint::max() : now + d;
}

/// Milliseconds for poll(), rounded up so that a wait never spins, and capped at a minute so that it never overflows.
inline int poll_timeout(std::chrono::nanoseconds left) noexcept {
  using std::chrono::milliseconds;
  if (left <= std::chrono::nanoseconds::zero()) return 0;
  return static_cast<int>(std::min(milliseconds(60'000), std::chrono::ceil<milliseconds>(left)).count());
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_DEADLINE_HPP
// ---- end curfew/detail/deadline.hpp

// curfew/detail/http_types.hpp: above

// curfew/detail/http_url.hpp: above

// curfew/sandbox/backend.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

constexpr sandbox::backend_fault fault_of_status(int status) noexcept {
  using sandbox::backend_fault;
  if (status == 409) return backend_fault::conflict;
  if (status >= 400 && status < 500) return backend_fault::rejected;
  return status >= 500 ? backend_fault::unavailable : backend_fault::bad_response;
}

inline sandbox::backend_fault fault_of(const sandbox::transport_error& e) noexcept {
  return e.timed_out() ? sandbox::backend_fault::timed_out : sandbox::backend_fault::unavailable;
}

/// One server: its base url, the headers of every request, and the transport.
template <class Transport>
class rest_server {
 public:
  rest_server(const char* who, std::string base, sandbox::http_headers headers, std::shared_ptr<Transport> carrier)
      : who_(who), base_(base_url(std::move(base), who)), headers_(std::move(headers)), carrier_(std::move(carrier)) {
    if (carrier_ == nullptr) carrier_ = std::make_shared<Transport>();
    if constexpr (requires { Transport::speaks_https; }) {
      if (!Transport::speaks_https && parse_url(base_, who).secure)
        throw std::invalid_argument(std::string(who) + ": an https url, and a transport that speaks http only");
    }
  }

  /// Sends as it is: throws what the transport throws.
  sandbox::http_response send(const char* method, const std::string& path, const std::string& body,
                              std::chrono::milliseconds timeout) const {
    sandbox::http_request request{method, base_ + path, headers_, body, timeout};
    if (!body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    return carrier_->send(request);
  }

  /// As send, with the transport's error as a backend_error.
  sandbox::http_response call(const char* method, const std::string& path, const std::string& body,
                              std::chrono::milliseconds timeout) const {
    try {
      return send(method, path, body, timeout);
    } catch (const sandbox::transport_error& e) {
      throw error(method, path, fault_of(e), e.what());
    }
  }

  sandbox::backend_error error(const char* method, const std::string& path, sandbox::backend_fault fault,
                               const std::string& reason, std::string leftover = {}, int status = 0) const {
    const std::string message =
        std::string(who_) + ": " + method + " " + path.substr(0, path.find('?')) + ": " + reason;
    return sandbox::backend_error(fault, message, std::move(leftover), status);
  }

  sandbox::backend_error status_error(const char* method, const std::string& path, int status) const {
    return error(method, path, fault_of_status(status), "status " + std::to_string(status), {}, status);
  }

  Transport& carrier() const noexcept { return *carrier_; }

 private:
  const char* who_;
  std::string base_;
  sandbox::http_headers headers_;
  std::shared_ptr<Transport> carrier_;
};

/// Waits until `GET <endpoint>/v1/sandbox` answers 200, asking once a second and giving a request five seconds. False
/// when \p budget is over. Throws std::invalid_argument for an endpoint that is no url.
template <class Sync, class Transport>
bool wait_until_ready(Transport& carrier, const std::string& endpoint, std::chrono::nanoseconds budget) {
  using std::chrono::milliseconds;
  constexpr milliseconds interval = std::chrono::seconds(1);
  constexpr milliseconds longest_request = std::chrono::seconds(5);
  const std::string url = base_url(endpoint, "readiness") + "/v1/sandbox";
  for (const auto until = later(Sync::clock::now(), budget);;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Sync::clock::now());
    if (left <= milliseconds::zero()) return false;
    try {
      if (carrier.send({"GET", url, {}, {}, std::min(left, longest_request)}).status == 200) return true;
    } catch (const sandbox::transport_error&) {  // it is not there yet
    }
    if (until - Sync::clock::now() <= interval) return false;
    Sync::sleep_for(interval);
  }
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_REST_HPP
// ---- end curfew/detail/http_rest.hpp

// curfew/detail/http_types.hpp: above

// curfew/detail/http_url.hpp: above

// ---- begin curfew/detail/json.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// JSON as the REST backends need it: a strict reader into a tree with typed access, and a writer for requests. What
/// comes from a server is not trusted: depth is bounded, text is checked to be UTF-8, a name that occurs twice in one
/// object is refused because two readers could take either, and whatever is not as expected is one error,
/// backend_error(bad_response).

#ifndef CURFEW_DETAIL_JSON_HPP
#define CURFEW_DETAIL_JSON_HPP

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/sandbox/backend.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Shortest forms only, no surrogates, nothing above U+10FFFF.
constexpr bool is_utf8(std::string_view text) noexcept {
  constexpr char32_t smallest[] = {0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc0 || lead > 0xf7 || text.size() - i < more) return false;
    char32_t code = lead & (0x3fU >> more);
    for (std::size_t k = 0; k < more; ++k) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    if (code < smallest[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
  }
  return true;
}

/// One value. Access says what is expected; anything else throws backend_error(bad_response).
class json_value {
 public:
  enum class kind : unsigned char { null, boolean, number, string, array, object };

  kind type() const noexcept { return kind_; }

  bool boolean() const { return need(kind::boolean, "a boolean").flag_; }
  const std::string& string() const { return need(kind::string, "a string").text_; }
  const std::vector<json_value>& array() const { return need(kind::array, "an array").items_; }

  /// A number without fraction and exponent that fits.
  std::int64_t integer() const {
    const std::string& digits = need(kind::number, "a number").text_;
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || stop != digits.data() + digits.size()) fail("an integer");
    return value;
  }

  /// The member of that name of an object.
  const json_value& at(std::string_view name) const {
    const json_value* const found = need(kind::object, "an object").find(name);
    if (found == nullptr) fail("a member that is missing");
    return *found;
  }

  /// The member of that name; null when there is none, or this is no object.
  const json_value* find(std::string_view name) const noexcept {
    const auto found = names_.find(name);
    return found != names_.end() ? &items_[found->second] : nullptr;
  }

  /// The string of that name, or empty when this is no object, has no such member, or it is no string.
  std::string text_or_empty(std::string_view name) const {
    const json_value* const found = find(name);
    return found != nullptr && found->kind_ == kind::string ? found->text_ : std::string();
  }

 private:
  friend class json_reader;

  [[noreturn]] static void fail(const char* what) {
    throw sandbox::backend_error(sandbox::backend_fault::bad_response,
                                 std::string("json: the response was expected to have ") + what);
  }
  const json_value& need(kind wanted, const char* what) const {
    if (kind_ != wanted) fail(what);
    return *this;
  }

  std::string text_;                                       // of a string; of a number its digits
  std::vector<json_value> items_;                          // of an array or an object
  std::map<std::string, std::size_t, std::less<>> names_;  // of an object: where in items_
  bool flag_ = false;
  kind kind_ = kind::null;
};

class json_reader {
 public:
  static constexpr unsigned most_depth = 64;

  /// The one value that \p text is. Throws backend_error(bad_response) for everything else.
  static json_value read(std::string_view text) {
    json_reader reader(text);
    require(is_utf8(text), "text that is not UTF-8");
    json_value value = reader.value(0);
    reader.skip_blanks();
    require(reader.at_ == text.size(), "text after the value");
    return value;
  }

 private:
  using kind = json_value::kind;

  explicit json_reader(std::string_view text) : text_(text) {}

  static void require(bool holds, const char* what) {
    if (!holds)
      throw sandbox::backend_error(sandbox::backend_fault::bad_response, std::string("json: the response has ") + what);
  }

  char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) noexcept {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void skip_blanks() noexcept {
    while (at_ < text_.size() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }
  bool take_word(std::string_view word) noexcept {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  json_value value(unsigned depth) {
    skip_blanks();
    json_value result;
    if (peek() == '{' || peek() == '[') {
      require(depth < most_depth, "too deep a nesting");
      peek() == '{' ? object(result, depth + 1) : array(result, depth + 1);
    } else if (peek() == '"') {
      result.kind_ = kind::string;
      result.text_ = string();
    } else if ((result.flag_ = take_word("true")) || take_word("false")) {
      result.kind_ = kind::boolean;
    } else if (!take_word("null")) {
      result.kind_ = kind::number;
      result.text_ = number();
    }
    return result;
  }

  void object(json_value& result, unsigned depth) {
    result.kind_ = kind::object;
    take('{');
    skip_blanks();
    if (take('}')) return;
    do {
      skip_blanks();
      require(peek() == '"', "a member without a name");
      std::string name = string();
      skip_blanks();
      require(take(':'), "a member without a colon");
      require(result.names_.emplace(std::move(name), result.items_.size()).second, "two members of one name");
      result.items_.push_back(value(depth));
      skip_blanks();
    } while (take(','));
    require(take('}'), "an object that does not end");
  }

  void array(json_value& result, unsigned depth) {
    result.kind_ = kind::array;
    take('[');
    skip_blanks();
    if (take(']')) return;
    do {
      result.items_.push_back(value(depth));
      skip_blanks();
    } while (take(','));
    require(take(']'), "an array that does not end");
  }

  bool digits() noexcept {
    const std::size_t first = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ != first;
  }

  std::string number() {
    const std::size_t first = at_;
    take('-');
    require(take('0') || digits(), "something that is no value");
    if (take('.')) require(digits(), "a malformed number");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      require(digits(), "a malformed number");
    }
    return std::string(text_.substr(first, at_ - first));
  }

  std::string string() {
    std::string result;
    take('"');
    for (;;) {
      require(at_ < text_.size(), "a string that does not end");
      const char c = text_[at_++];
      if (c == '"') return result;
      require(static_cast<unsigned char>(c) >= ' ', "a control character in a string");
      c == '\\' ? escape(result) : result.push_back(c);
    }
  }

  void escape(std::string& result) {
    constexpr std::string_view names = "\"\\/bfnrt";
    constexpr std::string_view means = "\"\\/\b\f\n\r\t";
    const char c = peek();
    const std::size_t known = names.find(c);
    if (at_ < text_.size() && known != std::string_view::npos) {
      ++at_;
      result.push_back(means[known]);
      return;
    }
    require(take('u'), "an unknown escape");
    char32_t code = hex4();
    require(code < 0xdc00 || code > 0xdfff, "half a surrogate pair");
    if (code >= 0xd800 && code <= 0xdbff) {
      require(take_word("\\u"), "half a surrogate pair");
      const char32_t low = hex4();
      require(low >= 0xdc00 && low <= 0xdfff, "half a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(result, code);
  }

  char32_t hex4() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    require(digits.size() == 4 && error == std::errc() && stop == digits.data() + 4, "a malformed escape");
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& text, char32_t code) {
    constexpr char32_t leads[] = {0, 0xc0, 0xe0, 0xf0};
    const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (code < 0x80) return put(code);
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    put(leads[more] | code >> 6 * more);
    for (int k = more - 1; k >= 0; --k) put(0x80 | (code >> 6 * k & 0x3f));
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

inline json_value parse_json(std::string_view text) {
  return json_reader::read(text);
}

/// A JSON object as text, member by member.
class json_writer {
 public:
  json_writer& add(std::string_view name, std::string_view value) {
    begin(name);
    quote(value);
    return *this;
  }
  json_writer& add(std::string_view name, std::int64_t value) {
    begin(name);
    text_ += std::to_string(value);
    return *this;
  }
  json_writer& add(std::string_view name, const std::map<std::string, std::string>& values) {
    json_writer inner;
    for (const auto& [key, value] : values) inner.add(key, std::string_view(value));
    begin(name);
    text_ += inner.str();
    return *this;
  }
  std::string str() const { return "{" + text_ + "}"; }

 private:
  void begin(std::string_view name) {
    if (!text_.empty()) text_ += ',';
    quote(name);
    text_ += ':';
  }

  /// Throws std::invalid_argument for what is not UTF-8: it would arrive as something else, or not at all.
  void quote(std::string_view value) {
    if (!is_utf8(value)) throw std::invalid_argument("json: a value is not UTF-8");
    text_ += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') text_ += '\\';
      if (static_cast<unsigned char>(c) >= ' ') {
        text_ += c;
      } else {
        constexpr const char* digits = "0123456789abcdef";
        ((text_ += "\\u00") += digits[c >> 4]) += digits[c & 0xf];
      }
    }
    text_ += '"';
  }

  std::string text_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_JSON_HPP
// ---- end curfew/detail/json.hpp

// curfew/detail/sync.hpp: above

// curfew/detail/text.hpp: above

// curfew/sandbox/backend.hpp: above

// ---- begin curfew/sandbox/transport.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// How the REST backends reach their servers: the transport concept with its values and its error, and a transport for
/// plain http over POSIX sockets that needs no library. For https there is curl_transport.hpp; a transport of one's own
/// is any class with a `send`.

#ifndef CURFEW_SANDBOX_TRANSPORT_HPP
#define CURFEW_SANDBOX_TRANSPORT_HPP

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

// curfew/detail/config.hpp: above

// curfew/detail/deadline.hpp: above

// ---- begin curfew/detail/descriptor.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Descriptors that are owned, closed on exec, and kept away from the standard streams. POSIX only.

#ifndef CURFEW_DETAIL_DESCRIPTOR_HPP
#define CURFEW_DETAIL_DESCRIPTOR_HPP

#include <cerrno>
#include <utility>

// curfew/detail/config.hpp: above

#if CURFEW_POSIX
#include <fcntl.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A descriptor that is closed once. Moved-from and default-made ones hold none.
class owned_fd {
 public:
  owned_fd() noexcept = default;
  explicit owned_fd(int fd) noexcept : fd_(fd) {}
  owned_fd(owned_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  owned_fd& operator=(owned_fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~owned_fd() { reset(); }

  void reset() noexcept {
    if (fd_ < 0) return;
    const int kept = errno;
    ::close(std::exchange(fd_, -1));
    errno = kept;
  }
  int release() noexcept { return std::exchange(fd_, -1); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Takes over \p fd and moves it above the standard three, so that a host that has closed its own standard streams
/// does not get a pipe in their place. Empty on failure, with errno set.
inline owned_fd above_standard(int fd) noexcept {
  owned_fd low(fd);
  if (fd < 0 || fd > STDERR_FILENO) return low;
  return owned_fd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

/// A close-on-exec pipe above the standard three. False on failure, with errno set and both ends empty.
inline bool make_pipe(owned_fd& read_end, owned_fd& write_end) noexcept {
  int ends[2];
#if defined(__linux__)
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
#else
  if (::pipe(ends) != 0) return false;
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
#endif
  read_end = above_standard(ends[0]);
  write_end = above_standard(ends[1]);
  if (read_end && write_end) return true;
  read_end.reset();
  write_end.reset();
  return false;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_DESCRIPTOR_HPP
// ---- end curfew/detail/descriptor.hpp

// curfew/detail/http_message.hpp: above

// curfew/detail/http_types.hpp: above

// curfew/detail/http_url.hpp: above

// curfew/detail/sync.hpp: above

#if CURFEW_POSIX
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Plain http over TCP, a connection for each request. For servers on this machine or in a trusted network; nothing is
/// encrypted, and https urls are refused with std::invalid_argument.
///
/// The request's timeout bounds the whole exchange: connecting to all addresses of the host, sending, and a response
/// that trickles. Only looking up a host name is outside of it, since the system's resolver cannot be interrupted; it
/// has bounds of its own, and neither `localhost` nor an address is looked up in the network. A body may have eight
/// MiB, the headers 64 KiB. Interim responses are skipped, redirects are returned like everything else.
///
/// Thread safety: any number of threads; there is no state. No signal: a broken connection is an error, not a SIGPIPE.
/// Descriptors are closed on exec. Exceptions: as the concept says. Cost: a connection, and the response in memory.
template <class Sync = std_sync>
class basic_socket_transport {
 public:
  static constexpr bool speaks_https = false;

  /// One exchange on a connection of its own, within the time of the request; transport_error otherwise.
  http_response send(const http_request& request) const {
    detail::check_request(request, "socket_transport");
    const detail::http_url url = detail::parse_url(request.url, "socket_transport");
    if (url.secure) throw std::invalid_argument("socket_transport: https is not spoken here");
    const std::string text = detail::request_text(request, url);
    const auto until = detail::later(Sync::clock::now(), request.timeout);
    const detail::owned_fd socket = connect(url, until);
    bool sent = false;
    try {
      return exchange(socket.get(), text, request.method, until, sent);
    } catch (const detail::malformed_response& e) {
      throw transport_error(about(url) + e.what(), sent, false);
    } catch (const std::system_error& e) {
      throw transport_error(about(url) + e.code().message(), sent, e.code() == std::errc::timed_out);
    }
  }

 private:
  using time_point = typename Sync::clock::time_point;

  static std::string about(const detail::http_url& url) { return "socket_transport: " + url.authority + ": "; }

  static std::system_error failure(int error) { return std::system_error(error, std::generic_category()); }

  /// Waits until one of \p events, an error or a hang-up; returns them, 0 at \p until.
  static short wait(int fd, short events, time_point until) {
    pollfd entry{fd, events, 0};
    for (;;) {
      const auto left = until - Sync::clock::now();
      const int ready = ::poll(&entry, 1, detail::poll_timeout(left));
      if (ready > 0) return entry.revents;
      if (ready < 0 && errno != EINTR) throw failure(errno);
      if (ready == 0 && left <= std::chrono::nanoseconds::zero()) return 0;
    }
  }

  static detail::owned_fd open_socket(int family) noexcept {
#if defined(__linux__)
    return detail::above_standard(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
#else
    detail::owned_fd fd = detail::above_standard(::socket(family, SOCK_STREAM, 0));
    if (fd) ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC), ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
#if defined(SO_NOSIGPIPE)
    const int on = 1;
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return fd;
#endif
  }

  /// Connects to the first address that answers. Each gets an even share of the time that is left, so that one that
  /// swallows everything does not keep the next one from being tried.
  static detail::owned_fd connect(const detail::http_url& url, time_point until) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int refused = ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
    if (refused != 0) throw transport_error(about(url) + ::gai_strerror(refused), false, false);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
    int left = 0;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) ++left;
    int error = EADDRNOTAVAIL;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next, --left) {
      const auto now = Sync::clock::now();
      detail::owned_fd fd = open_socket(one->ai_family);
      error = fd ? connect_one(fd.get(), *one, now + (until - now) / left) : errno;
      if (error == 0) return fd;
    }
    throw transport_error(about(url) + std::generic_category().message(error), false, error == ETIMEDOUT);
  }

  /// Returns 0 or an errno.
  static int connect_one(int fd, const addrinfo& address, time_point until) {
    if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS && errno != EINTR) return errno;  // interrupted, it goes on like a non-blocking one
    try {
      if (wait(fd, POLLOUT, until) == 0) return ETIMEDOUT;
    } catch (const std::system_error& e) {
      return e.code().value();
    }
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }

  /// Sends and receives at the same time: a server may answer, and close, before it has read a long request.
  static http_response exchange(int fd, std::string_view unsent, const std::string& method, time_point until,
                                bool& sent) {
    detail::response_reader reader(method);
    std::array<char, 16384> chunk;
    for (;;) {
      const short ready = wait(fd, unsent.empty() ? POLLIN : POLLIN | POLLOUT, until);
      if (ready == 0) throw failure(ETIMEDOUT);
      if (!unsent.empty() && (ready & POLLOUT) != 0) {
        Sync::here("socket_transport.send");
        const ssize_t gone = ::send(fd, unsent.data(), unsent.size(), send_flags);
        if (gone > 0) {
          sent = true;
          unsent.remove_prefix(static_cast<std::size_t>(gone));
        } else if (gone < 0 && !again(errno)) {
          unsent = {};  // the server has closed: what it said before that is still to be read
        }
      }
      if ((ready & ~POLLOUT) != 0) {
        const ssize_t got = ::recv(fd, chunk.data(), chunk.size(), 0);
        if (got < 0 && again(errno)) continue;
        if (got < 0) throw failure(errno);
        if (got == 0) reader.finish();
        if (got == 0 || reader.feed({chunk.data(), static_cast<std::size_t>(got)})) return reader.take();
      }
    }
  }

  static bool again(int error) noexcept {
    return error == EINTR || error == EAGAIN || error == EWOULDBLOCK;
  }

#if defined(MSG_NOSIGNAL)
  static constexpr int send_flags = MSG_NOSIGNAL;
#else
  static constexpr int send_flags = 0;
#endif
};

/// The one to use.
using socket_transport = basic_socket_transport<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_SANDBOX_TRANSPORT_HPP
// ---- end curfew/sandbox/transport.hpp

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of an aio_rest_backend.
struct aio_rest_options {
  std::string url;
  std::string api_key = {};  ///< sent as X-API-Key when not empty
};

/// Sandboxes of a provisioner that is reached by HTTP and takes the ids it is given.
///
/// Thread safety: every member from any thread, as far as the transport allows it. There is no state and no lock.
/// Waiting: `create` at most 30 s for the provisioner, 60 s for the sandbox to answer, and 15 s to undo; the others 10
/// to 15 s. Exceptions: backend_error, and std::invalid_argument for input that cannot be meant.
///
/// The provisioner gives its sandboxes their environment; the request's is not sent.
template <transport Transport, class Sync = std_sync>
class aio_rest_backend {
 public:
  /// Sends nothing. \throws std::invalid_argument for a malformed url or key, or an https url with a transport that has
  /// no TLS
  explicit aio_rest_backend(aio_rest_options options, std::shared_ptr<Transport> carrier = nullptr)
      : server_(who, std::move(options.url), headers(options.api_key), std::move(carrier)) {}

  /// Returns once the sandbox answers. \throws backend_error when it does not come to that; the sandbox has then been
  /// deleted, or the error's leftover is its id
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument(std::string(who) + ": bad sandbox id \"" + detail::printable(request.id) + "\"");
    const std::string body = detail::json_writer()
                                 .add("sandbox_id", request.id)
                                 .add("thread_id", request.owner.thread)
                                 .add("user_id", request.owner.user)
                                 .str();
    try {
      const http_response response = server_.send("POST", root, body, std::chrono::seconds(30));
      if (response.status != 200) throw server_.status_error("POST", root, response.status);
      sandbox_info made{request.id, detail::parse_json(response.body).at("sandbox_url").string()};
      if (!ready(made.endpoint))
        throw server_.error("POST", root, backend_fault::timed_out, "the sandbox does not become ready");
      return made;
    } catch (const transport_error& e) {
      const auto error = server_.error("POST", root, detail::fault_of(e), e.what());
      if (!e.sent()) throw error;
      undo(request.id, error);
    } catch (const backend_error& e) {
      if (e.status() >= 400 && e.status() < 500) throw;
      undo(request.id, e);
    }
  }

  /// As the concept backend says.
  bool destroy(const std::string& id) {
    if (!is_id(id)) return false;
    try {
      const int status = server_.call("DELETE", path_of(id), {}, std::chrono::seconds(15)).status;
      return status == 200 || status == 204 || status == 404;
    } catch (const backend_error&) {
      return false;
    }
  }

  /// As the concept backend says.
  liveness probe(const std::string& id) {
    if (!is_id(id)) return liveness::unknown;
    try {
      const http_response response = server_.call("GET", path_of(id), {}, std::chrono::seconds(10));
      if (response.status == 404) return liveness::dead;
      if (response.status != 200) return liveness::unknown;
      const std::string status = detail::parse_json(response.body).text_or_empty("status");
      if (status == "Running") return liveness::alive;
      return status == "Succeeded" || status == "Failed" ? liveness::dead : liveness::unknown;
    } catch (const backend_error&) {
      return liveness::unknown;
    }
  }

  /// The sandbox of that id, if it runs.
  std::optional<sandbox_info> find(const std::string& request_id) {
    if (!is_id(request_id)) return {};
    const std::string path = path_of(request_id);
    const http_response response = server_.call("GET", path, {}, std::chrono::seconds(10));
    if (response.status == 404) return {};
    if (response.status != 200) throw server_.status_error("GET", path, response.status);
    const detail::json_value found = detail::parse_json(response.body);
    if (found.text_or_empty("status") != "Running") return {};
    return sandbox_info{request_id, found.at("sandbox_url").string()};
  }

  /// As the concept backend says.
  std::vector<sandbox_info> list() {
    const http_response response = server_.call("GET", root, {}, std::chrono::seconds(10));
    if (response.status != 200) throw server_.status_error("GET", root, response.status);
    std::vector<sandbox_info> all;
    const detail::json_value answer = detail::parse_json(response.body);
    for (const detail::json_value& item : answer.at("sandboxes").array()) {
      sandbox_info info{item.text_or_empty("sandbox_id"), item.text_or_empty("sandbox_url")};
      if (is_id(info.id) && !info.endpoint.empty()) all.push_back(std::move(info));
    }
    return all;
  }

 private:
  static constexpr const char* who = "aio_rest_backend";
  static constexpr const char* root = "/api/sandboxes";

  static bool is_id(const std::string& id) noexcept { return detail::is_sandbox_id(id, detail::colon::allowed); }
  static std::string path_of(const std::string& id) { return std::string(root) + "/" + detail::percent_encode(id); }

  static http_headers headers(const std::string& key) {
    if (!detail::is_header_value(key))
      throw std::invalid_argument(std::string(who) + ": a control character in the api key");
    return key.empty() ? http_headers{} : http_headers{{"X-API-Key", key}};
  }

  bool ready(const std::string& endpoint) const {
    try {
      return detail::wait_until_ready<Sync>(server_.carrier(), endpoint, std::chrono::seconds(60));
    } catch (const std::invalid_argument&) {
      throw server_.error("POST", root, backend_fault::bad_response, "a sandbox_url that is no url for this transport");
    }
  }

  /// The end of a create that may have made a sandbox which cannot be used.
  [[noreturn]] void undo(const std::string& id, const backend_error& why) {
    if (destroy(id)) throw why;
    throw backend_error(why.fault(), std::string(why.what()) + "; it could not be deleted", id, why.status());
  }

  const detail::rest_server<Transport> server_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_AIO_REST_BACKEND_HPP
// ---- end curfew/sandbox/aio_rest_backend.hpp

// curfew/sandbox/backend.hpp: above

// ---- begin curfew/sandbox/docker_cli_backend.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Sandboxes as containers of the docker command line, or of one that takes the same arguments. The engine may be on
/// another host; nothing but the command and the sandbox's own port is needed. See docs/design/backends.md.

#ifndef CURFEW_SANDBOX_DOCKER_CLI_BACKEND_HPP
#define CURFEW_SANDBOX_DOCKER_CLI_BACKEND_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/deadline.hpp: above

// ---- begin curfew/detail/docker_port.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Ports as a container engine publishes them: whether one is free on this host, and which one a line of the engine's
/// output names. POSIX only.

#ifndef CURFEW_DETAIL_DOCKER_PORT_HPP
#define CURFEW_DETAIL_DOCKER_PORT_HPP

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

// curfew/detail/config.hpp: above

// curfew/detail/descriptor.hpp: above

// curfew/detail/text.hpp: above

#if CURFEW_POSIX
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The number after the last colon.
inline std::optional<std::uint16_t> port_behind(std::string_view text) noexcept {
  text = trimmed(text);
  text.remove_prefix(std::min(text.rfind(':') + 1, text.size()));
  std::uint16_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || stop != text.data() + text.size() || port == 0) return {};
  return port;
}

/// False when the port is taken at \p address, which may have brackets. What cannot be tried here, because the engine
/// is on another host, counts as free.
inline bool is_bindable(std::string_view address, std::uint16_t port) {
  if (address.starts_with('[')) address.remove_prefix(1);
  const std::string text(address.substr(0, address.find(']')));
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(port);
  const bool is_v4 = ::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) != 1) return true;
  const owned_fd fd(::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM, 0));
  if (!fd) return true;
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  const int on = 1;  // a connection that has ended on that port a moment ago is no hindrance to an engine either
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* const any = is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  if (::bind(fd.get(), any, is_v4 ? sizeof v4 : sizeof v6) == 0) return true;
  return errno != EADDRINUSE && errno != EACCES;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_DOCKER_PORT_HPP
// ---- end curfew/detail/docker_port.hpp

// curfew/detail/http_rest.hpp: above

// curfew/detail/http_types.hpp: above

// curfew/detail/http_url.hpp: above

// ---- begin curfew/detail/process_command.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Runs one program of the system to its end: its arguments as they are, never a shell; what it writes, bounded; and a
/// limit on its time. For helpers that end by themselves. POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_COMMAND_HPP
#define CURFEW_DETAIL_PROCESS_COMMAND_HPP

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/deadline.hpp: above

// curfew/detail/descriptor.hpp: above

// ---- begin curfew/detail/process_group.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the kernel says about child processes and process groups: has this child exited, which groups still have a
/// living member. A process id is only safe to signal while it cannot be given to somebody else, so a child is looked
/// at without being reaped, and reaping is a step of its own that the owner takes when it will never signal it again.
/// POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_GROUP_HPP
#define CURFEW_DETAIL_PROCESS_GROUP_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/descriptor.hpp: above

// ---- begin curfew/detail/process_spawn.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Starting one program in a child process: the plan that is complete before the fork, and what the child
/// does between fork and exec. Everything the child touches is prepared by the parent, because a child of a threaded
/// program may only make async-signal-safe calls: the heap lock may be held by a thread that does not exist there.
/// POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_SPAWN_HPP
#define CURFEW_DETAIL_PROCESS_SPAWN_HPP

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/descriptor.hpp: above

// curfew/detail/text.hpp: above

#if CURFEW_POSIX
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Throws std::invalid_argument when \p argv could not be passed to a program as it stands.
inline void check_command(const std::vector<std::string>& argv, const char* who) {
  if (argv.empty() || argv.front().empty()) throw std::invalid_argument(std::string(who) + ": empty command");
  for (const std::string& word : argv)
    if (word.find('\0') != std::string::npos)
      throw std::invalid_argument(std::string(who) + ": NUL in an argument of " + printable(argv.front()));
}

using limit_name = decltype(RLIMIT_CORE);  // an enumeration in one C library, int in another

/// What a child that could not become its program sends through the close-on-exec pipe. Smaller than PIPE_BUF, so it
/// arrives whole or not at all; an end of file without it means that the exec succeeded.
struct spawn_report {
  enum step : int { group, parent, directory, limits, streams, exec };
  int at;
  int error;

  const char* what() const noexcept {
    switch (at) {
      case group:
        return "setpgid";
      case parent:
        return "prctl";
      case directory:
        return "fchdir";
      case limits:
        return "setrlimit";
      case streams:
        return "dup2";
      default:
        return "exec";
    }
  }
};

/// Everything a child needs, in memory that is complete before the fork.
class spawn_plan {
 public:
  /// \p environment is the whole environment of the program. A program name without a slash is looked up in its PATH,
  /// not in the host's.
  spawn_plan(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment)
      : argv_(argv) {
    for (const auto& [name, value] : environment) environment_.push_back(name + "=" + value);
    if (argv.front().find('/') != std::string::npos) {
      candidates_.push_back(argv.front());
    } else {
      const auto path = environment.find("PATH");
      std::string_view rest = path != environment.end() ? std::string_view(path->second) : std::string_view();
      for (bool more = true; more;) {
        const std::size_t colon = rest.find(':');
        const std::string_view part = rest.substr(0, colon);
        candidates_.push_back((part.empty() ? std::string(".") : std::string(part)) + "/" + argv.front());
        more = colon != std::string_view::npos;
        if (more) rest.remove_prefix(colon + 1);
      }
    }
    for (std::string& text : argv_) argv_view_.push_back(text.data());
    for (std::string& text : environment_) environment_view_.push_back(text.data());
    argv_view_.push_back(nullptr);
    environment_view_.push_back(nullptr);
    struct rlimit open_files {};
    if (::getrlimit(RLIMIT_NOFILE, &open_files) == 0)
      highest_fd_ = static_cast<int>(std::min<rlim_t>(open_files.rlim_cur, 1 << 20));
  }

  spawn_plan(const spawn_plan&) = delete;
  spawn_plan& operator=(const spawn_plan&) = delete;

  /// Soft and hard limit become \p value, or the host's hard limit where that is lower: nobody can raise that.
  void limit(limit_name name, std::uint64_t value) {
    struct rlimit now {};
    if (::getrlimit(name, &now) != 0) now.rlim_max = RLIM_INFINITY;
    const rlim_t wanted = std::min(static_cast<rlim_t>(value), now.rlim_max);
    limits_.push_back({name, {wanted, wanted}});
  }

  int directory = -1;  ///< becomes the working directory
  pid_t group = 0;     ///< the process group to join; 0: lead a new one
  int input = -1;      ///< become the standard streams; these three lie above them
  int output = -1;
  int report = -1;  ///< close-on-exec write end
  pid_t host = 0;   ///< the process that forks

  /// The child's side. Async-signal-safe calls only. All signals are blocked when it begins.
  [[noreturn]] void become() const noexcept {
    if (::setpgid(0, group) != 0) give_up(spawn_report::group);
#if defined(__linux__)
    // The parent may have died before the request was in place; then nobody would ever send the signal.
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(spawn_report::parent);
    if (::getppid() != host) ::_exit(127);
#endif
    // A Ctrl-C that came while this child was still in the host's group is pending by now, and the new program would
    // die of it. Ignoring a signal for a moment discards it; whoever means this child waits until it has been
    // announced.
    struct sigaction ignored {
    }, fallback{};
    ignored.sa_handler = SIG_IGN;
    fallback.sa_handler = SIG_DFL;
    for (int signo = 1; signo < NSIG; ++signo) {  // KILL and STOP refuse: fine
      ::sigaction(signo, &ignored, nullptr);
      ::sigaction(signo, &fallback, nullptr);
    }

    if (::fchdir(directory) != 0) give_up(spawn_report::directory);
    if (::dup2(input, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 || ::dup2(output, STDERR_FILENO) < 0)
      give_up(spawn_report::streams);
    close_between(STDERR_FILENO + 1, report - 1);
    close_from(report + 1);
    for (const limit_entry& entry : limits_)
      if (::setrlimit(entry.name, &entry.value) != 0) give_up(spawn_report::limits);

    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    int error = ENOENT;
    for (const std::string& program : candidates_) {
      ::execve(program.c_str(), argv_view_.data(), environment_view_.data());
      // A directory of PATH without the program says nothing; a program that may not be run is worth reporting.
      if (errno != ENOENT && errno != ENOTDIR) error = errno;
      if (error != ENOENT && error != EACCES) break;
    }
    errno = error;
    give_up(spawn_report::exec);
  }

 private:
  struct limit_entry {
    limit_name name;
    struct rlimit value;
  };

  [[noreturn]] void give_up(spawn_report::step at) const noexcept {
    const spawn_report text{at, errno};
    // Nobody is left to tell when this fails; the parent then sees the exit status alone.
    [[maybe_unused]] const ssize_t sent = ::write(report, &text, sizeof text);
    ::_exit(127);
  }

  // The host may have descriptors above its soft limit, if it lowered that after opening them.
  void close_from(int first) const noexcept {
#if defined(__linux__) && defined(SYS_close_range)
    if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
    close_between(first, highest_fd_);
  }
  static void close_between(int first, int last) noexcept {
    if (first > last) return;
#if defined(__linux__) && defined(SYS_close_range)
    if (::syscall(SYS_close_range, static_cast<unsigned>(first), static_cast<unsigned>(last), 0U) == 0) return;
#endif
    for (int fd = first; fd <= last; ++fd) ::close(fd);
  }

  std::vector<std::string> argv_, environment_, candidates_;
  std::vector<char*> argv_view_, environment_view_;
  std::vector<limit_entry> limits_;
  int highest_fd_ = 1 << 16;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_SPAWN_HPP
// ---- end curfew/detail/process_spawn.hpp

#if CURFEW_POSIX
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// One child of this process, identified by a number that stays its own until `reap()`.
class child_process {
 public:
  child_process() noexcept = default;
  explicit child_process(pid_t pid) noexcept : pid_(pid) {
#if defined(__linux__) && defined(SYS_pidfd_open)
    watch_ = owned_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));  // close-on-exec by definition
#endif
  }
  child_process(child_process&& other) noexcept
      : watch_(std::move(other.watch_)), pid_(std::exchange(other.pid_, 0)), reaped_(other.reaped_) {}
  child_process& operator=(child_process&&) noexcept = default;

  pid_t pid() const noexcept {
    return pid_;
  }
  bool reaped() const noexcept {
    return reaped_;
  }

  /// A descriptor that becomes readable when the child exits; -1 where the system has none, then one has to look.
  int watch() const noexcept {
    return watch_.get();
  }

  /// Whether it has exited, as a zombie or reaped. A child that somebody else has reaped counts as exited.
  bool exited() const noexcept {
    if (pid_ == 0 || reaped_) return true;
    siginfo_t info{};
    int result;
    do {
      result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    } while (result != 0 && errno == EINTR);
    return result != 0 || info.si_pid != 0;
  }

  /// Collects an exited child; its number may belong to somebody else afterwards. Returns the exit status, 128 + n for
  /// one that died of signal n, -1 when the status is not to be had: the host ignores SIGCHLD, or waited for any child.
  int reap() noexcept {
    if (pid_ == 0 || reaped_) return -1;
    reaped_ = true;
    watch_.reset();
    int status = 0;
    pid_t got;
    do {
      got = ::waitpid(pid_, &status, WNOHANG);
    } while (got < 0 && errno == EINTR);
    if (got != pid_) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// Signals this child alone. No effect once it was reaped.
  void signal(int signo) const noexcept {
    if (pid_ > 0 && !reaped_) ::kill(pid_, signo);
  }

 private:
  owned_fd watch_;
  pid_t pid_ = 0;
  bool reaped_ = false;
};

/// One look at every process of the system: which process groups have a member that still runs. Zombies do not run.
class group_census {
 public:
  /// Takes the census. A process that vanishes while it is looked up is gone. `exact()` is false where the system
  /// cannot be asked (no /proc, no descriptor left for it); then `lives()` falls back to a question per group, to which
  /// a leader that was not reaped yet answers like a living member.
  group_census() noexcept {
#if defined(__linux__)
    DIR* const processes = ::opendir("/proc");
    if (processes == nullptr) return;
    exact_ = true;
    try {
      for (errno = 0; const dirent* entry = ::readdir(processes); errno = 0)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && !look(::dirfd(processes), entry->d_name))
          exact_ = false;
      if (errno != 0) exact_ = false;
    } catch (...) {  // no memory for the list
      exact_ = false;
    }
    ::closedir(processes);
#endif
  }

  bool exact() const noexcept {
    return exact_;
  }

  bool lives(pid_t group) const noexcept {
    if (exact_) return std::find(living_.begin(), living_.end(), group) != living_.end();
    return ::kill(-group, 0) == 0 || errno == EPERM;
  }

 private:
  /// False when the process is there but cannot be read.
  bool look(int processes, const char* pid) {
    char path[32];
    std::snprintf(path, sizeof path, "%.20s/stat", pid);
    const owned_fd file(::openat(processes, path, O_RDONLY | O_CLOEXEC));
    if (!file) return errno == ENOENT || errno == ESRCH || errno == EACCES;  // EACCES: hidden, another user's
    char text[1024];
    const ssize_t size = ::read(file.get(), text, sizeof text - 1);
    if (size <= 0) return size == 0 || errno == ESRCH || errno == ENOENT;
    text[size] = '\0';
    // pid (name) state ppid pgrp ... with the thread count as 18th field after the name, which may hold anything.
    const char* const after = std::strrchr(text, ')');
    if (after == nullptr) return true;
    char state = 0;
    int group = 0;
    long threads = 0;
    const int found = std::sscanf(after + 1, " %c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
                                  &state, &group, &threads);
    if (found != 3) return true;
    // A main thread that ended before its siblings shows as a zombie of a process that runs on.
    const bool ended = (state == 'Z' && threads <= 1) || state == 'X' || state == 'x';
    if (!ended) living_.push_back(group);
    return true;
  }

  std::vector<pid_t> living_;
  bool exact_ = false;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_GROUP_HPP
// ---- end curfew/detail/process_group.hpp

// ---- begin curfew/detail/process_members.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The members of one process group that this process knows by number, waiting until several groups are empty, and
/// collecting what a command writes. POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_MEMBERS_HPP
#define CURFEW_DETAIL_PROCESS_MEMBERS_HPP

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/deadline.hpp: above

// curfew/detail/descriptor.hpp: above

// curfew/detail/process_group.hpp: above

// curfew/detail/process_spawn.hpp: above

#if CURFEW_POSIX
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A leader, the commands that have joined its group, and those that nobody waits for any more. The owner's lock guards
/// all of it, except that whoever waits for a command may look at that one and is the one who reaps it.
///
/// The leader is reaped only once the group is known to be empty: until then its zombie keeps the number that signals
/// go to from becoming somebody else's.
struct process_members {
  child_process leader;
  std::list<child_process> commands, abandoned;
  bool empty = false;  ///< no living member, and never again one: the number is not ours any more

  bool all_exited() const noexcept {
    const auto exited = [](const child_process& one) { return one.exited(); };
    return leader.exited() && std::all_of(commands.begin(), commands.end(), exited) &&
           std::all_of(abandoned.begin(), abandoned.end(), exited);
  }

  /// To the group, and to each command, also one that has left the group.
  void signal(int signo) const noexcept {
    if (leader.pid() > 0 && !empty) ::kill(-leader.pid(), signo);
    for (const auto* list : {&commands, &abandoned})
      for (const child_process& one : *list) one.signal(signo);
  }

  /// Settles by a census that was taken after everybody had been told to go whether the group is empty, and reaps if
  /// so.
  bool reap_if_empty(const group_census& census) noexcept {
    if (empty) return true;
    if (!all_exited()) return false;
    if (!census.exact()) leader.reap();  // its zombie would answer for the group
    if (leader.pid() > 0 && census.lives(leader.pid())) return false;
    empty = true;
    // A member may have forked behind the census and exited before it came by. Its child cannot outlive this.
    if (leader.pid() > 0 && !leader.reaped()) ::kill(-leader.pid(), SIGKILL);
    leader.reap();
    for (child_process& one : abandoned) one.reap();
    return true;
  }
};

/// Waits at most \p budget until the groups in \p left are empty. Those that are get cleared with no lock held and
/// leave the list. `Owner` has a process_members as `members`, guarded by \p mutex.
template <class Sync, class Owner, class Clear>
void wait_until_empty(typename Sync::mutex& mutex, std::vector<Owner*>& left, std::chrono::nanoseconds budget,
                      const Clear& clear) {
  using std::chrono::nanoseconds;
  constexpr nanoseconds longest_nap = std::chrono::milliseconds(20);
  const auto until = later(Sync::clock::now(), budget);
  for (nanoseconds nap = std::chrono::milliseconds(1);; nap = std::min(nap * 2, longest_nap)) {
    std::vector<pollfd> leaders;  // no group is empty before its leader has exited
    bool look = false;
    {
      const std::lock_guard lock(mutex);
      for (const Owner* one : left) {
        look = look || one->members.all_exited();
        const child_process& leader = one->members.leader;
        if (!leader.exited() && leader.watch() >= 0) leaders.push_back({leader.watch(), POLLIN, 0});
      }
    }
    if (look) {
      const group_census census;
      std::erase_if(left, [&](Owner* one) {
        {
          const std::lock_guard lock(mutex);
          if (!one->members.reap_if_empty(census)) return false;
        }
        clear(*one);
        return true;
      });
    }
    const nanoseconds rest = until - Sync::clock::now();
    if (left.empty() || rest <= nanoseconds::zero()) return;
    const bool all_watched = leaders.size() == left.size();
    ::poll(leaders.data(), static_cast<nfds_t>(leaders.size()), poll_timeout(all_watched ? rest : std::min(rest, nap)));
  }
}

struct group_signal {
  int signo;
  std::chrono::nanoseconds wait;
};

/// Sends each signal to the groups that are left by then and waits after it. True when none is left.
template <class Sync, class Owner, class Clear>
bool end_groups(typename Sync::mutex& mutex, std::vector<Owner*>& left, std::initializer_list<group_signal> ladder,
                const Clear& clear) {
  for (const group_signal& rung : ladder) {
    {
      const std::lock_guard lock(mutex);
      for (const Owner* one : left) one->members.signal(rung.signo);
    }
    Sync::here(rung.signo == SIGKILL ? "process_members.end.killed" : "process_members.end.asked");
    wait_until_empty<Sync>(mutex, left, rung.wait, clear);
    if (left.empty()) return true;
  }
  return left.empty();
}

/// Reads what a command writes and keeps the first \p bound bytes. The rest is read too, so that the writer goes on.
class bounded_output {
 public:
  bounded_output(owned_fd pipe, std::size_t bound) : pipe_(std::move(pipe)), bound_(bound) {
    ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  }

  /// To be polled for POLLIN; -1, which poll() ignores, after the end of file.
  int fd() const noexcept { return pipe_.get(); }

  /// Takes at most about \p most bytes of what is there, without waiting.
  void collect(std::size_t most = std::size_t{1} << 18) {
    std::array<char, 16384> chunk;
    while (pipe_ && most > 0) {
      const ssize_t got = ::read(pipe_.get(), chunk.data(), std::min(most, chunk.size()));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return pipe_.reset();
      const auto size = static_cast<std::size_t>(got);
      text_.append(chunk.data(), std::min(size, bound_ - text_.size()));
      most -= size;
    }
  }

  /// Takes what was written by now, and no more: whoever else holds the pipe may go on writing for ever.
  std::string finish() {
    int written = 0;
    if (pipe_ && ::ioctl(pipe_.get(), FIONREAD, &written) == 0 && written > 0)
      collect(static_cast<std::size_t>(written));
    return std::move(text_);
  }

 private:
  owned_fd pipe_;
  std::size_t bound_;
  std::string text_;
};

enum class exit_wait : unsigned char { exited, killed, gave_up };

/// Waits until \p command has exited and reads what it writes meanwhile. Kills it, and it alone, at \p timeout, and
/// gives up \p kill_wait later. Nobody else may reap it.
template <class Sync>
exit_wait wait_for_exit(const child_process& command, std::initializer_list<bounded_output*> outputs,
                        std::chrono::nanoseconds timeout, std::chrono::nanoseconds kill_wait) {
  constexpr int unwatched_nap_ms = 5;
  bool killed = false;
  for (auto until = later(Sync::clock::now(), timeout); !command.exited();) {
    const auto now = Sync::clock::now();
    if (now >= until) {
      if (std::exchange(killed, true)) return exit_wait::gave_up;
      command.signal(SIGKILL);
      until = later(now, kill_wait);
    }
    std::vector<pollfd> events{{command.watch(), POLLIN, 0}};
    for (const bounded_output* one : outputs) events.push_back({one->fd(), POLLIN, 0});
    const int patience = poll_timeout(until - now);
    ::poll(events.data(), static_cast<nfds_t>(events.size()),
           command.watch() >= 0 ? patience : std::min(patience, unwatched_nap_ms));
    std::size_t at = 1;
    for (bounded_output* one : outputs)
      if (events[at++].revents != 0) one->collect();
  }
  return killed ? exit_wait::killed : exit_wait::exited;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_MEMBERS_HPP
// ---- end curfew/detail/process_members.hpp

#if CURFEW_POSIX
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <unistd.h>

extern char** environ;  // NOLINT: POSIX has no header that declares it

CURFEW_BEGIN_NAMESPACE
namespace detail {

struct command_result {
  int exit_code = -1;      ///< 128 + n when it died of signal n; -1 when that is not to be had
  bool timed_out = false;  ///< it had to be killed; then the exit status is no success
  std::string output, errors;
};

/// What posix_spawn is told: nothing on stdin, pipes on the other two, a process group of its own, so that a Ctrl-C
/// meant for the host does not end what the host is about to need for its shutdown, no signal blocked or ignored, and
/// none of the host's descriptors.
class spawn_settings {
 public:
  spawn_settings(int output, int errors) {
    check(::posix_spawn_file_actions_init(&actions_));
    check(::posix_spawnattr_init(&attributes_));
    check(::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    check(::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO));
    check(::posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO));
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    check(::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1));  // elsewhere: what is not cloexec
#endif
    sigset_t all, none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    check(::posix_spawnattr_setsigdefault(&attributes_, &all));
    check(::posix_spawnattr_setsigmask(&attributes_, &none));
    check(::posix_spawnattr_setpgroup(&attributes_, 0));
    check(::posix_spawnattr_setflags(
        &attributes_, static_cast<short>(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK)));
  }
  spawn_settings(const spawn_settings&) = delete;
  spawn_settings& operator=(const spawn_settings&) = delete;
  ~spawn_settings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  /// The program is looked up in the host's PATH and gets the host's environment.
  child_process start(std::vector<std::string> argv) const {
    std::vector<char*> view;
    for (std::string& word : argv) view.push_back(word.data());
    view.push_back(nullptr);
    pid_t pid = 0;
    check(::posix_spawnp(&pid, view.front(), &actions_, &attributes_, view.data(), environ));
    return child_process(pid);
  }

 private:
  static void check(int error) {
    if (error != 0) throw std::system_error(error, std::generic_category());
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

/// Runs \p argv, killed \p timeout after this call began. Throws std::system_error when it cannot be started.
template <class Sync>
command_result run_command(const std::vector<std::string>& argv, std::chrono::nanoseconds timeout) {
  constexpr std::size_t most_output = std::size_t{1} << 20;
  constexpr std::chrono::seconds kill_wait{1};
  const auto until = later(Sync::clock::now(), timeout);
  owned_fd output_pipe, output_end, errors_pipe, errors_end;
  if (!make_pipe(output_pipe, output_end) || !make_pipe(errors_pipe, errors_end))
    throw std::system_error(errno, std::generic_category());
  child_process child = spawn_settings(output_end.get(), errors_end.get()).start(argv);
  output_end.reset();
  errors_end.reset();
  bounded_output output(std::move(output_pipe), most_output), errors(std::move(errors_pipe), most_output);
  Sync::here("process_command.started");
  const exit_wait ending = wait_for_exit<Sync>(child, {&output, &errors}, until - Sync::clock::now(), kill_wait);
  command_result result;
  if (ending != exit_wait::gave_up) result.exit_code = child.reap();
  result.timed_out = result.exit_code < 0 || (ending == exit_wait::killed && result.exit_code == 128 + SIGKILL);
  result.output = output.finish();
  result.errors = errors.finish();
  return result;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_COMMAND_HPP
// ---- end curfew/detail/process_command.hpp

// curfew/detail/sync.hpp: above

// curfew/detail/text.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/transport.hpp: above

#if CURFEW_POSIX

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// A directory of the engine's host that shows in the container. Absolute paths, without commas or quotes.
struct docker_mount {
  std::string source;
  std::string destination;
  bool read_only = false;
};

/// Options of a docker_cli_backend.
struct docker_options {
  std::string image = "all-in-one-sandbox:latest";
  std::uint16_t port = 8080;  ///< the first one tried on the host
  std::string prefix = "curfew-sandbox";
  std::string host = "localhost";  ///< where the published ports are reached
  std::string bind = {};  ///< where they are published; empty: 127.0.0.1, [::1] or 0.0.0.0, depending on `host`
  std::vector<docker_mount> mounts = {};
  std::map<std::string, std::string> environment = {};
  std::string runtime = "docker";  ///< looked up in PATH
  bool seccomp_unconfined = true;
};

/// Sandboxes as containers of the docker command.
///
/// Thread safety: every member from any thread. One mutex, for the ports that creates are about to publish; nothing
/// waits under it. Waiting: each command has a limit (`run` 10 minutes, since it may fetch the image; `stop` 120 s; the
/// others 5 or 10 s), and readiness 60 s. Exceptions: backend_error, and std::invalid_argument for input that cannot be
/// meant. Cost: a process for each command.
///
/// Values of environment variables go to the command as arguments, which other users of the host can see while it
/// runs; they never appear in a message.
template <transport Transport = socket_transport, class Sync = std_sync>
class docker_cli_backend {
 public:
  /// Runs nothing. \throws std::invalid_argument for options that cannot be arguments or a url
  explicit docker_cli_backend(docker_options options = {}, std::shared_ptr<Transport> carrier = nullptr)
      : options_(checked(std::move(options))),
        carrier_(carrier != nullptr ? std::move(carrier) : std::make_shared<Transport>()) {}

  docker_cli_backend(const docker_cli_backend&) = delete;
  docker_cli_backend& operator=(const docker_cli_backend&) = delete;

  /// Returns once the sandbox answers. A container of that name that runs and answers is taken as it is. \throws
  /// backend_error `conflict` for one that does not, `unavailable` without an engine or a free port, `rejected` for
  /// what the engine refuses, `timed_out`, `spawn_failed` without the command
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument("docker_cli_backend: bad sandbox id \"" + detail::printable(request.id) + "\"");
    detail::check_environment(request.environment, "docker_cli_backend");
    auto environment = request.environment;
    environment.insert(options_.environment.begin(), options_.environment.end());  // the request's values win
    unsigned from = options_.port;
    for (int attempt = 0; attempt < port_attempts; ++attempt) {
      const port_claim port(*this, from);
      from = port.number + 1U;
      const auto result = run(run_arguments(request.id, port.number, environment), std::chrono::minutes(10));
      const auto says = [&result](const char* text) { return detail::contains_ignoring_case(result.errors, text); };
      if (result.exit_code == 0) return when_ready({request.id, endpoint(port.number)});
      if (result.exit_code < 0 || result.exit_code > 128)
        undo(request.id, result.timed_out ? backend_fault::timed_out : backend_fault::unavailable,
             "docker run was cut short");
      if (says("port is already allocated") || says("address already in use")) continue;
      if (says("is already in use by container") || says("conflict. the container name")) return existing(request.id);
      const bool no_engine = says("cannot connect to the docker daemon");
      throw failed("run", result, no_engine ? backend_fault::unavailable : backend_fault::rejected, environment);
    }
    throw backend_error(backend_fault::unavailable,
                        "docker_cli_backend: no free port in " + std::to_string(port_attempts) + " attempts");
  }

  /// True when the engine no longer knows the container.
  bool destroy(const std::string& id) {
    constexpr auto nap = std::chrono::milliseconds(200);
    if (!is_id(id)) return false;
    try {
      const auto result = run({"stop", name_of(id)}, std::chrono::seconds(120));
      if (result.exit_code != 0) return detail::contains_ignoring_case(result.errors, "no such container");
      for (const auto until = detail::later(Sync::clock::now(), std::chrono::seconds(10));;) {
        if (look(id) == container::absent) return true;  // it is removed only after the stop has returned
        if (until - Sync::clock::now() <= nap) return false;
        Sync::sleep_for(nap);
      }
    } catch (const backend_error&) {
      return false;
    }
  }

  /// Asks for the state of the container; see the concept backend.
  liveness probe(const std::string& id) {
    if (!is_id(id)) return liveness::unknown;
    try {
      const container state = look(id);
      if (state == container::running) return liveness::alive;
      return state == container::unknown ? liveness::unknown : liveness::dead;
    } catch (const backend_error&) {
      return liveness::unknown;
    }
  }

  /// The container of that id, if it runs, its port is known and it answers within five seconds.
  std::optional<sandbox_info> find(const std::string& request_id) {
    if (!is_id(request_id) || look(request_id) != container::running) return {};
    const auto result = run({"port", name_of(request_id), inner_port}, std::chrono::seconds(5));
    const auto port = result.exit_code == 0 ? detail::port_behind(result.output) : std::nullopt;
    if (!port) return {};
    sandbox_info info{request_id, endpoint(*port)};
    if (!detail::wait_until_ready<Sync>(*carrier_, info.endpoint, std::chrono::seconds(5))) return {};
    return info;
  }

  /// The running containers with the prefix whose port is published.
  std::vector<sandbox_info> list() {
    const std::string prefix = options_.prefix + "-";
    const auto result =
        run({"ps", "--filter", "name=" + prefix, "--format", "{{.Names}}\t{{.Ports}}"}, std::chrono::seconds(10));
    if (result.exit_code != 0) throw failed("ps", result, backend_fault::unavailable, {});
    std::vector<sandbox_info> all;
    for (std::string_view rest = result.output; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      const std::size_t tab = std::min(line.find('\t'), line.size());
      const std::string_view name = line.substr(0, tab);
      const std::string_view ports = line.substr(tab);
      if (!name.starts_with(prefix)) continue;  // the engine's filter matches anywhere in the name
      const std::string id(name.substr(prefix.size()));
      const std::size_t arrow = ports.find("->8080/tcp");
      const auto port = arrow != std::string_view::npos ? detail::port_behind(ports.substr(0, arrow)) : std::nullopt;
      if (is_id(id) && port) all.push_back({id, endpoint(*port)});
    }
    return all;
  }

 private:
  static constexpr int port_attempts = 10;
  static constexpr const char* inner_port = "8080";
  enum class container : unsigned char { running, stopped, absent, unknown };

  /// A port that no other create of this backend takes meanwhile, and that was free a moment ago.
  struct port_claim {
    port_claim(docker_cli_backend& b, unsigned from) : backend(b) {
      const std::lock_guard lock(backend.mutex_);
      for (; from <= 65535; ++from) {
        number = static_cast<std::uint16_t>(from);
        if (!backend.claimed_.contains(number) && detail::is_bindable(backend.options_.bind, number)) {
          backend.claimed_.insert(number);
          return;
        }
      }
      throw backend_error(backend_fault::unavailable, "docker_cli_backend: no free port up to 65535");
    }
    ~port_claim() {
      const std::lock_guard lock(backend.mutex_);
      backend.claimed_.erase(number);
    }
    port_claim(const port_claim&) = delete;
    port_claim& operator=(const port_claim&) = delete;

    docker_cli_backend& backend;
    std::uint16_t number = 0;
  };

  static bool is_id(const std::string& id) noexcept { return detail::is_sandbox_id(id, detail::colon::refused); }
  std::string name_of(const std::string& id) const { return options_.prefix + "-" + id; }
  std::string endpoint(std::uint16_t port) const {
    return "http://" + detail::bracketed(options_.host) + ":" + std::to_string(port);
  }

  static docker_options checked(docker_options o) {
    const auto require = [](bool holds, const char* what) {
      if (!holds) throw std::invalid_argument(std::string("docker_cli_backend: ") + what);
    };
    const auto is_word = [](std::string_view text) {  // one argument, and no option
      return !text.empty() && text.front() != '-' &&
             std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
    };
    const auto is_path = [](std::string_view text) {
      return text.starts_with('/') && text.find_first_of(std::string_view(",\"\n\r\0", 5)) == std::string_view::npos;
    };
    if (o.host.starts_with('[') && o.host.ends_with(']')) o.host = o.host.substr(1, o.host.size() - 2);
    if (o.bind.empty())
      o.bind = o.host == "::1"                                                             ? "[::1]"
               : detail::equal_ignoring_case(o.host, "localhost") || o.host == "127.0.0.1" ? "127.0.0.1"
                                                                                           : "0.0.0.0";
    require(is_word(o.image), "bad image");
    require(is_word(o.runtime), "bad runtime");
    require(is_id(o.prefix) && detail::is_ascii_alnum(o.prefix.front()), "bad prefix");
    require(detail::is_host(o.host), "bad host");
    require(o.bind.find_first_not_of("0123456789abcdefABCDEF.:[]") == std::string::npos, "bad bind address");
    require(o.port != 0, "port is 0");
    for (const docker_mount& one : o.mounts) require(is_path(one.source) && is_path(one.destination), "bad mount");
    detail::check_environment(o.environment, "docker_cli_backend");
    return o;
  }

  std::vector<std::string> run_arguments(const std::string& id, std::uint16_t port,
                                         const std::map<std::string, std::string>& environment) const {
    std::vector<std::string> words = {"run"};
    const auto add = [&words](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    if (options_.seccomp_unconfined) add({"--security-opt", "seccomp=unconfined"});
    add({"--rm", "-d", "-p", options_.bind + ":" + std::to_string(port) + ":" + inner_port, "--name", name_of(id)});
    for (const auto& [name, value] : environment) add({"-e", name + "=" + value});
    for (const docker_mount& one : options_.mounts)
      add({"--mount", "type=bind,src=" + one.source + ",dst=" + one.destination + (one.read_only ? ",readonly" : "")});
    add({options_.image});
    return words;
  }

  detail::command_result run(std::vector<std::string> words, std::chrono::nanoseconds limit) const {
    words.insert(words.begin(), options_.runtime);
    try {
      return detail::run_command<Sync>(words, limit);
    } catch (const std::system_error& e) {
      throw backend_error(backend_fault::spawn_failed,
                          "docker_cli_backend: " + options_.runtime + ": " + e.code().message());
    }
  }

  static backend_error failed(const char* verb, const detail::command_result& result, backend_fault fault,
                              const std::map<std::string, std::string>& secrets) {
    std::string said = result.errors;
    for (const auto& [name, value] : secrets)
      for (std::size_t at = 0; !value.empty() && (at = said.find(value, at)) != std::string::npos;)
        said.replace(at, value.size(), "***"), at += 3;
    const std::string how = result.timed_out ? "timed out" : "exit status " + std::to_string(result.exit_code);
    return backend_error(result.timed_out ? backend_fault::timed_out : fault,
                         std::string("docker_cli_backend: ") + verb + ": " + how + ": " + detail::printable(said, 512));
  }

  [[noreturn]] void undo(const std::string& id, backend_fault fault, const char* why) {
    const bool gone = destroy(id);
    throw backend_error(fault, "docker_cli_backend: sandbox \"" + id + "\": " + why, gone ? std::string() : id);
  }

  sandbox_info when_ready(sandbox_info info) {
    if (!detail::wait_until_ready<Sync>(*carrier_, info.endpoint, std::chrono::seconds(60)))
      undo(info.id, backend_fault::timed_out, "does not become ready");
    return info;
  }

  sandbox_info existing(const std::string& id) {
    std::optional<sandbox_info> found;
    try {
      found = find(id);
    } catch (const backend_error&) {  // then it is not known to be one that can be used
    }
    if (!found) throw backend_error(backend_fault::conflict, "docker_cli_backend: the name of \"" + id + "\" is taken");
    return *found;
  }

  container look(const std::string& id) const {
    const auto result = run({"inspect", "-f", "{{.State.Running}}", name_of(id)}, std::chrono::seconds(5));
    const std::string_view said = detail::trimmed(result.output);
    if (result.exit_code == 0) {
      return said == "true" ? container::running : said == "false" ? container::stopped : container::unknown;
    }
    const bool absent = detail::contains_ignoring_case(result.errors, "no such object") ||
                        detail::contains_ignoring_case(result.errors, "no such container");
    return absent ? container::absent : container::unknown;
  }

  const docker_options options_;
  const std::shared_ptr<Transport> carrier_;
  typename Sync::mutex mutex_;
  std::set<std::uint16_t> claimed_;  // under the mutex
};

}  // namespace sandbox
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_SANDBOX_DOCKER_CLI_BACKEND_HPP
// ---- end curfew/sandbox/docker_cli_backend.hpp

// ---- begin curfew/sandbox/e2b.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// e2b_provider: sandboxes rented from a service that numbers them itself, ends them itself when their time is up, and
/// allows so many and no more. A hard cap with a line in front of it, time limits begun anew at each use, and an
/// inventory that finds what was lost, within bounds. Where ids are the owner's own and idle ones must be reaped from
/// here, use the aio provider. See docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_E2B_HPP
#define CURFEW_SANDBOX_E2B_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/sync.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/lease.hpp: above

// curfew/sandbox/lease_store.hpp: above

// curfew/sandbox/pool_front.hpp: above

// curfew/sandbox/sandbox_pool.hpp: above

// curfew/slot_ledger.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of an e2b_provider.
struct e2b_options {
  std::size_t replicas = 3;     ///< hard cap: whatever is made, used, kept, ended or could not be ended counts
  std::size_t burst_limit = 0;  ///< so many more under `overflow_policy::burst`
  overflow_policy overflow = overflow_policy::wait;
  std::string name = "e2b";
  std::chrono::nanoseconds acquire_timeout = std::chrono::seconds(30);  ///< in line for a slot
  std::chrono::seconds idle_timeout{1800};  ///< kept by the server; clamped to a day; 0: whatever it does by itself
  std::chrono::nanoseconds maintain_interval = std::chrono::seconds(60);
  std::chrono::nanoseconds orphan_grace = std::chrono::seconds(120);
  std::chrono::nanoseconds orphan_ttl = std::chrono::seconds(3600);  ///< for those that name no request
  list_budget inventory;
  std::map<std::string, std::string> environment;
  std::chrono::nanoseconds renewal_interval = std::chrono::seconds(30);
  unsigned ttl_multiplier = 4;  ///< a lease in the store lives this many renewal intervals
  std::chrono::nanoseconds shutdown_budget = std::chrono::seconds(20);
  std::chrono::nanoseconds worker_stop = std::chrono::seconds(5);
  std::chrono::nanoseconds destroy_backoff = std::chrono::milliseconds(100);
  unsigned destroy_attempts = 3;
  unsigned destroy_parallelism = 8;
  bool adopt_orphans = true;
  std::string owner_id;  ///< who this provider is in the lease store; empty: host:pid:random
  clock_fn clock;
  std::vector<int> fallback_signals;  ///< shut down on these when no lifespan owns them; empty: no handlers at all
};

/// Hands sandboxes to owners and never has more of them than it may. `id` is the server's; `request_id` is derived from
/// the owner, travels in the create request, and is how a sandbox is found again.
///
/// Thread safety: every member from any thread; calls for one owner take turns, and different owners wait for each
/// other only for a slot: first come, first served, until `acquire_timeout`. Whoever releases makes room, since a warm
/// sandbox is ended for an owner who waits. Ordering: what a backend's create wrote is visible to whoever is handed the
/// sandbox.
///
/// A sandbox whose end was not confirmed keeps its slot, and is tried again by whoever needs one, by the workers and by
/// the shutdown. With a backend that has `set_timeout`, every use and the last release begin the server's time limit
/// anew, and one that is gone by then is replaced or forgotten; nothing else extends a life.
///
/// Nothing runs in the background before `start()`. Without it everything else works, but `sweep_idle` and `reconcile`
/// have to be called and nothing renews the leases in the store. `shutdown()` refuses newcomers and those in line,
/// waits for the calls that are inside, and ends every sandbox; when it has returned `completed` or `joined`, no
/// acquire succeeds and nothing that was made or adopted here is running. The destructor does the same. It is legal
/// once no other thread calls a member; leases may outlive it. In a forked child every member returns at once and
/// nothing of the parent's is touched.
///
/// Exceptions: acquire throws capacity_exceeded, admission_refused after shutdown or reset, std::invalid_argument for
/// an owner that cannot be one, backend_error(conflict) when the owner's old sandbox cannot be ended or a peer is
/// ending it, identity_conflict, and what the backend's create or the lease store throws. Cost: reuse and reclaim are
/// one probe, one set_timeout and one lease store call, whatever the number of sandboxes.
template <backend B, lease_store S = memory_lease_store, class Sync = std_sync>
class e2b_provider : public provider_front<B, S, e2b_options, Sync> {
  using front = provider_front<B, S, e2b_options, Sync>;
  using typename front::place;
  using typename front::pool;

 public:
  /// \throws std::invalid_argument naming the option that cannot be one
  explicit e2b_provider(std::shared_ptr<B> backend, e2b_options options = {}, std::shared_ptr<S> store = nullptr)
      : front(std::move(backend), checked(options), std::move(store), hard_cap(options), checked(options).idle_timeout,
              [](pool& self, const e2b_options& o) {
                reconcile(self, o);
                sweep_idle(self, o);
              }) {}

  /// The owner's sandbox: the one in use, else the warm one, else, with a slot, a running one that is found or a new
  /// one. An owner with an empty thread is anonymous: always a new one, destroyed by its release.
  lease acquire(const owner_key& owner) {
    const auto self = this->pool_;  // a create that returns late still needs it, whatever has become of this provider
    return self->acquire(owner, [&self, o = this->options_] { return make_room(*self, *o); });
  }

  /// One pass: ends the warm ones whose time is up, which the server has most likely done. Returns how many are gone.
  std::size_t sweep_idle() { return sweep_idle(*this->pool_, *this->options_); }

  /// One pass over one inventory: adopts what has run unowned through the grace, when a slot is free; and when the
  /// inventory was complete, forgets what has vanished and ends what nobody can be using: second sandboxes of one
  /// request, and those without a request. Begins nothing more when `inventory.max_time` has passed.
  reconcile_report reconcile() { return reconcile(*this->pool_, *this->options_); }

 private:
  using candidates = std::vector<sandbox_info>;  // not tracked, and unowned for long enough

  static place make_room(pool& self, const e2b_options& o) {
    auto room = self.room();
    auto taken = o.overflow == overflow_policy::wait ? room.in_line(o.acquire_timeout) : room.at_once();
    if (taken) return {std::move(taken)};
    if (!self.accepting()) self.refuse();
    const auto reason = o.overflow == overflow_policy::wait     ? capacity_reason::timed_out
                        : o.overflow == overflow_policy::reject ? capacity_reason::rejected
                                                                : capacity_reason::burst_exhausted;
    throw capacity_exceeded(reason, hard_cap(o), std::chrono::seconds(30));
  }

  static std::size_t sweep_idle(pool& self, const e2b_options& o) {
    if (!self.accepting()) return 0;  // also in a forked child, where the lock may be held by a thread that is gone
    self.upkeep().retry_tombstones();
    return o.idle_timeout == o.idle_timeout.zero() ? 0 : self.upkeep().end_idle({slot_state::warm}, o.idle_timeout);
  }

  static reconcile_report reconcile(pool& self, const e2b_options& o) {
    if (!self.accepting()) return {};
    const auto begun = Sync::clock::now();
    const auto until = o.inventory.max_time >= begun.max() - begun ? begun.max() : begun + o.inventory.max_time;
    auto upkeep = self.upkeep();
    auto survey = upkeep.take_survey(o.inventory);
    auto& report = survey.report;
    // What is left of a pass that ran out of time goes on as after an incomplete inventory: it adopts at most.
    const auto whole = [&] {
      report.complete = report.complete && Sync::clock::now() < until;
      return report.complete && self.accepting();
    };
    // A stray that does not answer is looked up in one more inventory: within what the pass has left.
    const auto rest = [&] {
      list_budget left = o.inventory;
      left.max_time = std::clamp<std::chrono::nanoseconds>(until - Sync::clock::now(), {}, left.max_time);
      return left;
    };

    std::map<std::string, candidates> by_request;
    candidates nameless;
    std::set<std::string> owned;
    for (const auto& item : survey.seen.items) {
      if (!self.accepting()) return report;
      using standing = typename decltype(upkeep)::standing;
      const bool named = !item.request_id.empty();
      const auto found = upkeep.watch(item, named ? o.orphan_grace : o.orphan_ttl);
      if (found == standing::owned) owned.insert(item.request_id);
      if (found == standing::ripe) (named ? by_request[item.request_id] : nameless).push_back(item);
    }
    for (auto& [request, ripe] : by_request) {
      // Where a peer has another one of the same request in use, the request is the peer's.
      if (o.adopt_orphans && !owned.contains(request) && adopt_one(self, request, ripe)) ++report.adopted;
      for (const auto& item : ripe)
        if (whole() && upkeep.end_stray(item, true, rest())) ++report.duplicates_destroyed;
    }
    for (const auto& item : nameless)
      if (whole() && upkeep.end_stray(item, false, rest())) ++report.orphans_destroyed;
    if (whole()) report.expired = upkeep.forget_missing(survey, until);
    return report;
  }

  // Alive first, then the smallest id. Into a slot that is free anyway: an orphan evicts nobody and waits for nobody.
  static bool adopt_one(pool& self, const std::string& request, const candidates& ripe) {
    std::map<std::pair<int, std::string>, const sandbox_info*> in_order;
    if (self.state().find(request)) return false;
    for (const auto& item : ripe) {
      const auto found = ripe.size() == 1 ? liveness::alive : self.state().probe(item.id);
      in_order.emplace(std::pair(found == liveness::alive ? 0 : found == liveness::unknown ? 1 : 2, item.id), &item);
    }
    for (const auto& [rank, item] : in_order)
      if (self.upkeep().adopt_warm(*item, self.state().slots.try_reserve())) return true;
    return false;
  }

  static std::size_t hard_cap(const e2b_options& o) {
    const std::size_t more = o.overflow == overflow_policy::burst ? o.burst_limit : 0;
    return o.replicas + more < more ? ~std::size_t{0} : o.replicas + more;
  }

  static e2b_options checked(e2b_options o) {
    constexpr auto zero = std::chrono::nanoseconds::zero();
    front::require(o, o.acquire_timeout > zero, "acquire_timeout must be positive");
    front::require(o, o.orphan_ttl >= zero, "orphan_ttl is negative");
    front::require(o, o.inventory.max_time >= zero, "inventory.max_time is negative");
    o.idle_timeout = std::clamp<std::chrono::seconds>(o.idle_timeout, std::chrono::seconds(0), std::chrono::hours(24));
    return o;
  }
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_E2B_HPP
// ---- end curfew/sandbox/e2b.hpp

// ---- begin curfew/sandbox/e2b_rest_backend.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Sandboxes of an E2B control plane, over its REST interface. The server chooses the ids, keeps the time to live and
/// ends what has outlived it; metadata on each sandbox say which provider and which request it was made for. See
/// docs/design/backends.md.

#ifndef CURFEW_SANDBOX_E2B_REST_BACKEND_HPP
#define CURFEW_SANDBOX_E2B_REST_BACKEND_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// curfew/detail/deadline.hpp: above

// curfew/detail/http_message.hpp: above

// curfew/detail/http_rest.hpp: above

// curfew/detail/http_types.hpp: above

// curfew/detail/http_url.hpp: above

// curfew/detail/json.hpp: above

// curfew/detail/process_identity.hpp: above

// curfew/detail/sync.hpp: above

// curfew/detail/text.hpp: above

// curfew/sandbox/backend.hpp: above

// curfew/sandbox/transport.hpp: above

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of an e2b_rest_backend.
struct e2b_rest_options {
  std::string api_key = {};  ///< empty: the environment variable E2B_API_KEY
  std::string domain = "e2b.app";
  std::string api_url = {};  ///< empty: https://api.<domain>
  std::string template_id = "code-interpreter-v1";
  std::string tag = "curfew";  ///< marks the sandboxes of one fleet of providers; others are never touched
  std::chrono::milliseconds request_timeout = std::chrono::seconds(60);
};

/// Sandboxes of a service that is reached by HTTP and gives out the ids.
///
/// Thread safety: every member from any thread, as far as the transport allows it. There is no state and no lock.
/// Waiting: a call waits for its requests, each at most `request_timeout`, and an inventory for all of its pages at
/// most its budget. Exceptions: backend_error, and std::invalid_argument for input that cannot be meant. Cost: one
/// request a call; an inventory one a hundred sandboxes; a create with a lost answer one look-up and one request for
/// each sandbox that it finds.
///
/// A create that has no usable answer may have made a sandbox. Every create therefore carries a number of its own; a
/// lost one is looked up by that number and what is found is deleted before the error is thrown. When even that cannot
/// be confirmed the error is `ambiguous`, and its leftover, `attempt:<number>`, makes `destroy` look again.
template <transport Transport, class Sync = std_sync>
class e2b_rest_backend {
 public:
  /// Sends nothing. \throws std::invalid_argument without an api key, for a malformed url or domain, for an empty tag
  /// or template, a timeout that is not positive, or an https url with a transport that cannot
  explicit e2b_rest_backend(e2b_rest_options options = {}, std::shared_ptr<Transport> carrier = nullptr)
      : options_(checked(std::move(options))),
        server_(who, options_.api_url, {{"X-API-Key", options_.api_key}}, std::move(carrier)) {}

  /// \throws backend_error `rejected`, `conflict` or `unavailable` when nothing was made; `timed_out`, `unavailable` or
  /// `bad_response` when what a lost request had made is gone again; `ambiguous` otherwise
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument(std::string(who) + ": bad request id \"" + detail::printable(request.id) + "\"");
    if (request.time_to_live < std::chrono::seconds::zero())
      throw std::invalid_argument(std::string(who) + ": negative time to live");
    detail::check_environment(request.environment, who);
    const std::string attempt = detail::random_id();
    detail::json_writer body;
    body.add("templateID", options_.template_id);
    if (request.time_to_live.count() != 0) body.add("timeout", request.time_to_live.count());
    body.add("metadata", std::map<std::string, std::string>{{"curfew_provider", options_.tag},
                                                            {"curfew_request", request.id},
                                                            {"curfew_user", request.owner.user},
                                                            {"curfew_thread", request.owner.thread},
                                                            {"curfew_attempt", attempt}});
    body.add("envVars", request.environment);
    try {
      const http_response response = server_.send("POST", "/sandboxes", body.str(), options_.request_timeout);
      if (response.status < 200 || response.status >= 300)
        throw server_.status_error("POST", "/sandboxes", response.status);
      const detail::json_value made = detail::parse_json(response.body);
      if (!is_id(made.at("sandboxID").string()))
        throw server_.error("POST", "/sandboxes", backend_fault::bad_response, "an id that cannot be one");
      return describe(made, request.id);
    } catch (const transport_error& e) {
      const auto error = server_.error("POST", "/sandboxes", detail::fault_of(e), e.what());
      if (!e.sent()) throw error;
      undo(attempt, error);
    } catch (const backend_error& e) {
      if (e.status() >= 400 && e.status() < 500) throw;
      undo(attempt, e);
    }
  }

  /// As the concept backend says.
  bool destroy(const std::string& id) {
    if (id.starts_with(attempt_prefix)) return destroy_attempt(id.substr(attempt_prefix.size()));
    if (!is_id(id)) return false;
    try {
      const int status = server_.call("DELETE", path_of(id), {}, options_.request_timeout).status;
      return status == 204 || status == 404;
    } catch (const backend_error&) {
      return false;
    }
  }

  /// As the concept backend says.
  liveness probe(const std::string& id) {
    if (!is_id(id) || id.starts_with(attempt_prefix)) return liveness::unknown;
    try {
      const http_response response = server_.call("GET", path_of(id), {}, options_.request_timeout);
      if (response.status == 404) return liveness::dead;
      if (response.status != 200) return liveness::unknown;
      const std::string state = detail::parse_json(response.body).text_or_empty("state");
      return state == "running" ? liveness::alive : state == "paused" ? liveness::dead : liveness::unknown;
    } catch (const backend_error&) {
      return liveness::unknown;
    }
  }

  /// From now on the sandbox has that long. False when it is gone.
  bool set_timeout(const std::string& id, std::chrono::seconds timeout) {
    if (!is_id(id) || timeout < std::chrono::seconds::zero())
      throw std::invalid_argument(std::string(who) + ": bad id or negative timeout");
    const std::string path = path_of(id) + "/timeout";
    const std::string body = detail::json_writer().add("timeout", timeout.count()).str();
    const int status = server_.call("POST", path, body, options_.request_timeout).status;
    if (status == 204) return true;
    if (status == 404) return false;
    throw server_.status_error("POST", path, status);
  }

  /// As list_within with its default pages and items, and no bound on time but the requests' own. \throws backend_error
  /// also when that is not all
  std::vector<sandbox_info> list() {
    listing all = list_within({.max_time = std::chrono::nanoseconds::max()});
    if (!all.complete)
      throw server_.error("GET", list_path, backend_fault::unavailable, "more sandboxes than an inventory may have");
    return std::move(all.items);
  }

  /// Every sandbox with the tag, running or paused. A bound that is met makes the listing incomplete; an error throws.
  listing list_within(const list_budget& budget) {
    listing all;
    all.complete = each_with("curfew_provider", options_.tag, budget, [&](const detail::json_value& item) {
      all.items.push_back(describe(item, metadata_of(item, "curfew_request")));
    });
    return all;
  }

  /// The running sandbox that was made for this request; of several the one with the smallest id.
  std::optional<sandbox_info> find(const std::string& request_id) {
    std::optional<sandbox_info> best;
    if (!is_id(request_id)) return best;
    each_with("curfew_request", request_id, {}, [&](const detail::json_value& item) {
      if (item.text_or_empty("state") != "running") return;
      sandbox_info found = describe(item, request_id);
      if (!best || found.id < best->id) best = std::move(found);
    });
    return best;
  }

 private:
  static constexpr const char* who = "e2b_rest_backend";
  static constexpr const char* list_path = "/v2/sandboxes";
  static constexpr std::string_view attempt_prefix = "attempt:";

  static bool is_id(std::string_view id) noexcept { return detail::is_sandbox_id(id, detail::colon::allowed); }
  static std::string path_of(const std::string& id) { return "/sandboxes/" + detail::percent_encode(id); }

  static e2b_rest_options checked(e2b_rest_options o) {
    const auto require = [](bool holds, const char* what) {
      if (!holds) throw std::invalid_argument(std::string(who) + ": " + what);
    };
    if (o.api_key.empty()) {
      const char* const key = std::getenv("E2B_API_KEY");
      if (key != nullptr) o.api_key = key;
    }
    require(!o.api_key.empty(), "no api key, and none in E2B_API_KEY");
    require(detail::is_header_value(o.api_key), "a control character in the api key");
    require(detail::is_host(o.domain), "bad domain");
    require(!o.template_id.empty() && !o.tag.empty(), "empty template_id or tag");
    require(detail::is_utf8(o.template_id) && detail::is_utf8(o.tag), "template_id or tag is not UTF-8");
    require(o.request_timeout > std::chrono::milliseconds::zero(), "request_timeout is not positive");
    if (o.api_url.empty()) o.api_url = "https://api." + o.domain;
    return o;
  }

  static std::string metadata_of(const detail::json_value& item, const char* key) {
    const detail::json_value* const metadata = item.find("metadata");
    return metadata != nullptr ? metadata->text_or_empty(key) : std::string();
  }

  sandbox_info describe(const detail::json_value& item, const std::string& request_id) const {
    const std::string& id = item.at("sandboxID").string();
    const std::string said = item.text_or_empty("domain");
    return {id, "https://49983-" + id + "." + (detail::is_host(said) ? said : options_.domain), request_id};
  }

  /// Calls \p take for each sandbox that has the pair in its metadata and bears our tag. False when a bound of
  /// \p budget was met. What the server filters is filtered again: what one that ignores the filter answers must not be
  /// taken for ours, least of all by those who delete what they find.
  template <class Take>
  bool each_with(const char* key, const std::string& value, const list_budget& budget, const Take& take) {
    using std::chrono::milliseconds;
    const std::string pair = detail::percent_encode(key) + "=" + detail::percent_encode(value);
    const std::string first =
        list_path + ("?metadata=" + detail::percent_encode(pair)) + "&state=running,paused&limit=100";
    const auto until = detail::later(Sync::clock::now(), budget.max_time);
    std::size_t seen = 0;
    std::string path = first;
    for (std::size_t page = 0; page < budget.max_pages; ++page) {
      const auto left = std::chrono::floor<milliseconds>(until - Sync::clock::now());
      if (left <= milliseconds::zero()) return false;
      http_response response;
      try {
        response = server_.call("GET", path, {}, std::min(left, options_.request_timeout));
      } catch (const backend_error& e) {
        if (e.fault() == backend_fault::timed_out && left < options_.request_timeout) return false;
        throw;
      }
      if (response.status != 200) throw server_.status_error("GET", path, response.status);
      const detail::json_value items = detail::parse_json(response.body);
      for (const detail::json_value& item : items.array()) {
        if (metadata_of(item, key) != value || metadata_of(item, "curfew_provider") != options_.tag) continue;
        if (!is_id(item.at("sandboxID").string()))
          throw server_.error("GET", path, backend_fault::bad_response, "an id that cannot be one");
        if (seen++ == budget.max_items) return false;
        take(item);
      }
      const std::string* const next = response.header("X-Next-Token");
      if (next == nullptr || next->empty()) return true;
      path = first + "&nextToken=" + detail::percent_encode(*next);
    }
    return false;
  }

  bool destroy_attempt(const std::string& attempt) {
    if (!is_id(attempt)) return false;
    try {
      std::vector<std::string> hits;
      bool gone = each_with("curfew_attempt", attempt, {},
                            [&](const detail::json_value& item) { hits.push_back(item.at("sandboxID").string()); });
      for (const std::string& id : hits) gone = destroy(id) && gone;
      return gone;
    } catch (const backend_error&) {
      return false;
    }
  }

  /// The end of a create with a lost answer.
  [[noreturn]] void undo(const std::string& attempt, const backend_error& why) {
    if (destroy_attempt(attempt)) throw why;
    throw backend_error(backend_fault::ambiguous,
                        std::string(why.what()) + "; what it made could not be confirmed gone",
                        std::string(attempt_prefix) + attempt, why.status());
  }

  const e2b_rest_options options_;
  const detail::rest_server<Transport> server_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_E2B_REST_BACKEND_HPP
// ---- end curfew/sandbox/e2b_rest_backend.hpp

// curfew/sandbox/lease_store.hpp: above

// ---- begin curfew/sandbox/process_backend.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A sandbox backend without any server: a sandbox is a child process that leads a process group of its own, with a
/// private directory and a small environment. Good for tests, tools and embedded use; it keeps order, it does not keep
/// secrets: the programs run as the user of the host and see the same files. Where they must not be trusted, use a
/// container backend. Tested on Linux; elsewhere on POSIX it works without the guard against a killed host.

#ifndef CURFEW_SANDBOX_PROCESS_BACKEND_HPP
#define CURFEW_SANDBOX_PROCESS_BACKEND_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

// curfew/detail/config.hpp: above

// ---- begin curfew/detail/directory_tree.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Making and removing a directory that programs which are not trusted have written into: links in it are removed,
/// never followed; a tree of any depth takes a constant number of descriptors and no recursion; a directory that its
/// owner made unreadable is made readable first. POSIX only.

#ifndef CURFEW_DETAIL_DIRECTORY_TREE_HPP
#define CURFEW_DETAIL_DIRECTORY_TREE_HPP

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/process_spawn.hpp: above

// curfew/detail/sync.hpp: above

#if CURFEW_POSIX
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Opens a directory under \p parent, not through a link. With \p repair, access that its owner took away is given back
/// on the inode that was found, never through its name. Empty on failure, with errno set.
inline owned_fd open_directory(int parent, const char* name, bool repair) noexcept {
  constexpr int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  if (repair) {
#if defined(__linux__)
    const owned_fd place(::openat(parent, name, O_PATH | flags));
    if (!place) return {};
    char link[32];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", place.get());
    ::chmod(link, S_IRWXU);  // a failure shows in the open below
#else
    ::fchmodat(parent, name, S_IRWXU, AT_SYMLINK_NOFOLLOW);
#endif
  }
  return owned_fd(::openat(parent, name, O_RDONLY | flags));
}

/// A directory stream over a descriptor of its own. Skips "." and "..".
class directory_stream {
 public:
  explicit directory_stream(owned_fd fd) noexcept : stream_(fd ? ::fdopendir(fd.get()) : nullptr) {
    if (stream_ != nullptr) fd.release();  // the stream owns it now
  }
  directory_stream(const directory_stream&) = delete;
  directory_stream& operator=(const directory_stream&) = delete;
  ~directory_stream() {
    if (stream_ != nullptr) ::closedir(stream_);
  }
  explicit operator bool() const noexcept { return stream_ != nullptr; }
  int fd() const noexcept { return ::dirfd(stream_); }
  void rewind() noexcept { ::rewinddir(stream_); }
  const char* next() noexcept {
    while (const dirent* entry = ::readdir(stream_))
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) return entry->d_name;
    return nullptr;
  }

 private:
  DIR* stream_;
};

inline constexpr std::chrono::seconds removal_limit{2};

/// Removes `name` under \p parent with all that is in it. True when it is gone, also when it was never there.
///
/// Works without recursion: whatever cannot be removed at once is a directory with entries, and its own directories are
/// moved up to the top, where later passes meet them. Each pass takes a level away, so the depth costs time, not
/// descriptors or stack. A program that is still there may add to the tree faster than it is taken away, so this gives
/// up after a while, and leaves what is left.
inline bool remove_tree(int parent, const char* name) noexcept {
  const auto unlinked = [](int at, const char* entry) {
    return ::unlinkat(at, entry, 0) == 0 || ::unlinkat(at, entry, AT_REMOVEDIR) == 0 || errno == ENOENT;
  };
  if (unlinked(parent, name)) return true;
  directory_stream top(open_directory(parent, name, true));
  if (!top) return errno == ENOENT;
  std::uint64_t moved = 0;
  const auto enough = std_sync::clock::now() + removal_limit;
  const auto in_time = [enough] { return std_sync::clock::now() < enough; };
  for (bool progress = true; progress && in_time();) {
    progress = false;
    bool empty = true;
    top.rewind();
    for (const char* entry = top.next(); entry != nullptr && in_time(); entry = top.next()) {
      empty = false;
      if (unlinked(top.fd(), entry)) {
        progress = true;
        continue;
      }
      directory_stream inner(open_directory(top.fd(), entry, true));
      if (!inner) continue;
      for (const char* child = inner.next(); child != nullptr && in_time(); child = inner.next()) {
        if (unlinked(inner.fd(), child)) {
          progress = true;
          continue;
        }
        open_directory(inner.fd(), child, true);  // for the access: moving a directory rewrites its ".."
        for (unsigned tries = 0; tries < 1000; ++tries) {
          char fresh[32];
          std::snprintf(fresh, sizeof fresh, "~%llu", static_cast<unsigned long long>(moved++));
          if (::renameat(inner.fd(), child, top.fd(), fresh) == 0) {
            progress = true;
            break;
          }
          if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) break;  // else the name is taken: the next one
        }
      }
      if (::unlinkat(top.fd(), entry, AT_REMOVEDIR) == 0) progress = true;
    }
    if (empty) break;
  }
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

/// Makes `name` under \p parent, empty and mode 0700, and holds it under an advisory lock for as long as the returned
/// descriptor is open. A directory that a dead process left there is cleared away; one that a living process holds is
/// not touched. Empty on failure, with errno set: EWOULDBLOCK when it is held.
inline owned_fd claim_directory(int parent, const char* name) noexcept {
  for (int tries = 0; tries < 100; ++tries) {
    const bool made = ::mkdirat(parent, name, S_IRWXU) == 0;
    if (!made && errno != EEXIST) return {};
    owned_fd claim = open_directory(parent, name, false);
    if (!claim) {
      const int error = errno;
      if (error == ENOENT) continue;  // cleared away by somebody between the two calls
      if (made) ::unlinkat(parent, name, AT_REMOVEDIR);
      errno = error;
      if (made || error == EMFILE || error == ENFILE || !remove_tree(parent, name)) return {};
      continue;  // a link, a file or an unreadable directory was in the way
    }
    if (::flock(claim.get(), LOCK_EX | LOCK_NB) != 0) return {};
    struct stat held {
    }, found{};
    const bool current = ::fstat(claim.get(), &held) == 0 &&
                         ::fstatat(parent, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && held.st_dev == found.st_dev &&
                         held.st_ino == found.st_ino;
    if (!current) continue;  // locked a directory that somebody had removed meanwhile
    if (made) return claim;
    if (!remove_tree(parent, name)) return {};
  }
  errno = EEXIST;
  return {};
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_DIRECTORY_TREE_HPP
// ---- end curfew/detail/directory_tree.hpp

// ---- begin curfew/detail/process_forker.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The thread that forks. On Linux a child can ask to be killed when its parent dies, but the kernel means the parent
/// *thread*: a child made by a thread of some pool would die with that thread. So all children are made by one thread
/// that lives as long as their owner. POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_FORKER_HPP
#define CURFEW_DETAIL_PROCESS_FORKER_HPP

#include <cerrno>
#include <mutex>
#include <optional>

// curfew/detail/config.hpp: above

// curfew/detail/process_group.hpp: above

// curfew/detail/process_spawn.hpp: above

// curfew/detail/sync.hpp: above

#if CURFEW_POSIX
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class process_forker {
 public:
  process_forker() = default;
  process_forker(const process_forker&) = delete;
  process_forker& operator=(const process_forker&) = delete;

  /// Ends the thread; children that still live are then killed by the kernel.
  ~process_forker() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_one();
    thread_.join();
  }

  /// Forks a child that becomes what \p plan says and waits until it has, or has failed to. Returns an empty child on
  /// failure, with \p failed naming the call and \p error its errno; then nothing is left of it.
  ///
  /// Throws what starting the thread throws, on the first call. Any number of threads may call; forks go one after the
  /// other, waiting for the exec does not.
  child_process spawn(spawn_plan& plan, const char*& failed, int& error) {
    owned_fd report, write_end;
    if (!make_pipe(report, write_end)) {
      failed = "pipe", error = errno;
      return {};
    }
    plan.report = write_end.get();
    plan.host = ::getpid();
    Sync::here("process_forker.spawn.ready");
    order mine{&plan};
    {
      std::unique_lock lock(mutex_);
      if (!thread_.joinable()) thread_ = typename Sync::thread([this] { serve(); });
      mine.next = first_;
      first_ = &mine;
      work_.notify_one();
      done_.wait(lock, [&] { return mine.done; });
    }
    write_end.reset();  // now only the child holds it
    if (mine.pid < 0) {
      failed = "fork", error = mine.error;
      return {};
    }
    child_process child(mine.pid);
    ::setpgid(mine.pid, plan.group);  // both sides set it: the group exists for whichever looks first
    const std::optional<spawn_report> bad = read_report(report.get());
    if (!bad) return child;
    failed = bad->what(), error = bad->error;
    // It has reported and is about to exit; or it hangs, and has to be made to.
    child.signal(SIGKILL);
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    child.reap();
    return {};
  }

 private:
  struct order {
    const spawn_plan* plan;
    order* next = nullptr;
    pid_t pid = -1;
    int error = 0;
    bool done = false;
  };

  /// Nothing when the exec succeeded. A child that does not get there within half a minute counts as failed: a host
  /// that forked at the wrong moment on its own may hold the pipe open, and the file system below the directory may
  /// hang.
  static std::optional<spawn_report> read_report(int fd) noexcept {
    constexpr int patience_ms = 30'000;
    pollfd entry{fd, POLLIN, 0};
    int ready;
    do {
      ready = ::poll(&entry, 1, patience_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) return spawn_report{spawn_report::exec, ETIMEDOUT};
    spawn_report text{};
    ssize_t got;
    do {
      got = ::read(fd, &text, sizeof text);
    } while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof text)) return text;
    return std::nullopt;
  }

  void serve() noexcept {
    // The child inherits this mask: no handler of the host may run in it before the dispositions are reset.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stopping_ || first_ != nullptr; });
      if (first_ == nullptr) return;
      order* const mine = first_;
      first_ = mine->next;
      lock.unlock();
      const pid_t pid = ::fork();
      const int error = errno;
      if (pid == 0) mine->plan->become();
      lock.lock();
      mine->pid = pid;
      mine->error = error;
      mine->done = true;
      done_.notify_all();
    }
  }

  typename Sync::mutex mutex_;
  typename Sync::condition_variable work_, done_;
  order* first_ = nullptr;
  bool stopping_ = false;
  typename Sync::thread thread_;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_FORKER_HPP
// ---- end curfew/detail/process_forker.hpp

// curfew/detail/process_group.hpp: above

// curfew/detail/process_identity.hpp: above

// curfew/detail/process_members.hpp: above

// ---- begin curfew/detail/process_root.hpp
// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The directory under which a process keeps one directory for each of its children. A private one has a random name
/// and goes away with everything in it; a named one may be shared between processes and keeps what others put there.
/// POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_ROOT_HPP
#define CURFEW_DETAIL_PROCESS_ROOT_HPP

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

// curfew/detail/config.hpp: above

// curfew/detail/directory_tree.hpp: above

// curfew/detail/process_identity.hpp: above

// curfew/detail/process_spawn.hpp: above

#if CURFEW_POSIX
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// An environment variable of the host, or \p otherwise when it is not set or empty.
inline std::string host_variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

class process_root {
 public:
  /// Makes nothing yet. \p path empty: `${TMPDIR:-/tmp}/curfew-<uid>-<pid>-<random>`. The environment and the working
  /// directory are read here, once: a later getenv() could race with a setenv(), a later chdir() would move the place.
  explicit process_root(std::string path) : path_(std::move(path)), private_(path_.empty()) {
    if (private_)
      path_ = host_variable("TMPDIR", "/tmp") + "/curfew-" + std::to_string(::getuid()) + "-" +
              std::to_string(process_id()) + "-" + random_id();
    if (path_.find('\0') != std::string::npos) throw std::invalid_argument("NUL in the root directory");
    if (path_.front() == '/') return;
    std::array<char, 4096> here{};
    if (::getcwd(here.data(), here.size()) == nullptr)
      throw std::invalid_argument("relative root directory without a working directory: " + path_);
    path_ = std::string(here.data()) + "/" + path_;
  }

  const std::string& path() const noexcept { return path_; }
  int fd() const noexcept { return fd_.get(); }

  /// Makes the directory unless that was done already. Returns the call that failed, with errno set; null on success.
  /// Not for two threads at once.
  const char* open() noexcept {
    if (fd_) return nullptr;
    const bool made = ::mkdir(path_.c_str(), S_IRWXU) == 0;
    if (!made && (errno != EEXIST || private_)) return "mkdir of the root directory";
    fd_ = owned_fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd_) {
      made_ = made;
      return nullptr;
    }
    const int error = errno;
    if (made) ::rmdir(path_.c_str());
    errno = error;
    return "open of the root directory";
  }

  /// Removes the directory if this object made it: a private one with everything in it, unless \p in_use says that
  /// somebody still works there, a named one when it is empty.
  void dismiss(bool in_use) noexcept {
    if (!std::exchange(made_, false)) return;
    if (private_ && !in_use)
      remove_tree(AT_FDCWD, path_.c_str());
    else
      ::rmdir(path_.c_str());
  }

 private:
  std::string path_;
  bool private_;
  bool made_ = false;
  owned_fd fd_;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_ROOT_HPP
// ---- end curfew/detail/process_root.hpp

// curfew/detail/process_spawn.hpp: above

// curfew/detail/sync.hpp: above

// curfew/sandbox/backend.hpp: above

#if CURFEW_POSIX
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Resource limits of every program of a sandbox, soft and hard alike; never above the host's own hard limits. Core
/// dumps are always off. `processes` counts all processes of the user, as the kernel does.
struct process_limits {
  std::optional<std::uint64_t> cpu_seconds, address_space, processes;
  std::uint64_t open_files = 256;
  std::uint64_t file_size = std::uint64_t{1} << 30;
};

/// Options of a process_backend.
struct process_options {
  std::vector<std::string> command = {"/bin/sh", "-c", "exec sleep 2147483647"};  ///< the program that leads the group
  std::string root;  ///< where the directories are made; empty: ${TMPDIR:-/tmp}/curfew-<uid>-<pid>-<random>
  std::map<std::string, std::string> environment;
  process_limits limits;
  std::chrono::nanoseconds stop_grace = std::chrono::seconds(2);  ///< from SIGTERM to SIGKILL
  std::chrono::nanoseconds kill_wait = std::chrono::seconds(1);   ///< from SIGKILL to giving up
  std::size_t max_output = std::size_t{1} << 20;                  ///< of what one exec() writes; the rest is dropped
};

/// How a command ended: its exit status, or 128 + n when it died of signal n. `output` is its stdout and stderr.
struct exec_result {
  int exit_code = 0;
  bool timed_out = false;
  std::string output;
};

/// Child processes as sandboxes.
///
/// Thread safety: every member may be called from many threads at once, also for one id. The destructor may not.
/// Locks: none is held while anything waits, except that `create` and `destroy` of one id exclude each other.
/// Exceptions: std::invalid_argument for input that cannot be meant, backend_error for what the system refuses.
/// Fork: in a child forked by the host the members refuse, and the destructor does nothing.
/// Cost: a process and two descriptors for each sandbox; one thread in all, started by the first `create`.
///
/// The states of an id, each entered with the `turn` of its box held:
///   (absent) -> starting   create: the id is taken
///   starting -> running    create: directory claimed, group formed, exec confirmed
///   running  -> ending     destroy: no further command joins; SIGTERM, wait, SIGKILL, wait
///   ending   -> (absent)   destroy: no member but zombies; leader reaped, directory removed. Otherwise it stays
///   `ending`
/// A leader is reaped only once its group is known to be empty: until then its zombie keeps the number that signals go
/// to from becoming somebody else's.
template <class Sync = std_sync>
class basic_process_backend {
 public:
  /// Makes nothing yet. Throws std::invalid_argument for an empty command, a negative wait, a bad variable or a NUL.
  explicit basic_process_backend(process_options options = {})
      : all_(std::make_unique<everything>(checked(std::move(options)))) {}

  basic_process_backend(const basic_process_backend&) = delete;
  basic_process_backend& operator=(const basic_process_backend&) = delete;

  /// Ends what is left, all groups at once, within the two waits, and removes the root if this object made it. No other
  /// member may be running.
  ~basic_process_backend() {
    if (!at_home()) {
      static_cast<void>(all_.release());  // what it locks and waits on belongs to threads that do not exist here
      return;
    }
    bool clean = false;
    try {
      std::vector<std::shared_ptr<box>> left;
      for (const auto& [id, it] : all_->boxes) left.push_back(it);
      clean = end(left);
    } catch (...) {  // out of memory; the end of the forker's thread still takes the leaders along
    }
    all_->root.dismiss(!clean);
  }

  /// Starts the leader of a new group in a directory of its own. When it returns, the exec has succeeded and the group
  /// exists. Throws backend_error: `conflict` when the id runs already, here or in another process with the same root;
  /// `spawn_failed`, naming the call and the reason, when the system refuses. Then nothing is left behind.
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument("process_backend: bad sandbox id \"" + detail::printable(request.id) + "\"");
    detail::check_environment(request.environment, "process_backend");
    require_home();
    const auto fresh = std::make_shared<box>(request.id);
    const std::lock_guard turn(fresh->turn);
    enroll(fresh);
    try {
      launch(*fresh, request.environment);
    } catch (...) {
      const std::lock_guard lock(all_->mutex);
      all_->boxes.erase(request.id);
      throw;
    }
    return fresh->info;
  }

  /// True when no member of the group but zombies is left; also for an id that is unknown here.
  bool destroy(const std::string& id) {
    if (!is_id(id) || !at_home()) return false;
    const std::shared_ptr<box> found = find_box(id);
    if (!found) return true;
    const std::lock_guard turn(found->turn);
    if (find_box(id) != found) return true;  // another destroy has ended it, or its create has failed
    return end({found});
  }

  /// Alive until the leader exits. `unknown` while the id is being created, and for what can be no id.
  liveness probe(const std::string& id) {
    if (!is_id(id) || !at_home()) return liveness::unknown;
    const std::shared_ptr<box> found = find_box(id);
    if (!found) return liveness::dead;
    bool settled = false;
    {
      const std::lock_guard lock(all_->mutex);
      if (found->at == stage::starting) return liveness::unknown;
      if (!found->members.leader.exited()) return liveness::alive;
      settled = found->joining == 0;  // and stays so: nothing joins a leader that has exited
    }
    const std::unique_lock turn(found->turn, std::try_to_lock);  // not had: its destroy runs and reaps
    if (settled && turn.owns_lock()) {
      const detail::group_census census;
      const std::lock_guard lock(all_->mutex);
      if (census.exact()) found->members.reap_if_empty(census);
    }
    return liveness::dead;
  }

  /// The sandboxes of this object whose leader runs, sorted by id.
  std::vector<sandbox_info> list() {
    require_home();
    std::vector<sandbox_info> result;
    const std::lock_guard lock(all_->mutex);
    for (const auto& [id, it] : all_->boxes)
      if (it->at != stage::starting && !it->members.leader.exited()) result.push_back(it->info);
    return result;
  }

  /// The sandbox made for this request, if its leader runs.
  std::optional<sandbox_info> find(const std::string& request_id) {
    require_home();
    const std::shared_ptr<box> found = find_box(request_id);
    const std::lock_guard lock(all_->mutex);
    if (!found || found->at == stage::starting || found->members.leader.exited()) return {};
    return found->info;
  }

  /// Runs a command inside a sandbox: in its group, directory, environment and limits, with nothing on stdin. Returns
  /// when the command itself has exited, with what was written by then, also when something it left behind holds on to
  /// the pipe. At \p timeout the command, and it alone, is killed. `destroy` ends it like every member of the group.
  /// Throws std::invalid_argument for an empty command or a NUL, and backend_error: `not_found` when no such sandbox
  /// runs, `spawn_failed`, or `timed_out` for a command that did not end within `kill_wait` of being killed.
  exec_result exec(const std::string& id, const std::vector<std::string>& argv, std::chrono::nanoseconds timeout) {
    detail::check_command(argv, "process_backend");
    require_home();
    std::list<detail::child_process> entry(1);  // made first: nothing may throw between the fork and the group's list
    const auto command = entry.begin();
    const std::shared_ptr<box> where = find_box(id);
    {
      const std::lock_guard lock(all_->mutex);
      if (!where || where->at != stage::running || where->members.leader.exited())
        throw backend_error(backend_fault::not_found, "process_backend: no sandbox " + detail::printable(id) + " runs");
      ++where->joining;
    }
    const auto settle = [&] {
      const std::lock_guard lock(all_->mutex);
      auto& commands = where->members.commands;
      if (command->pid() > 0) commands.splice(commands.end(), entry);
      --where->joining;
      all_->settled.notify_all();
    };
    detail::owned_fd output, write_end;
    try {
      if (!detail::make_pipe(output, write_end)) refuse("pipe", errno, id);
      *command = spawn(argv, *where, where->members.leader.pid(), write_end.get());
    } catch (...) {
      settle();
      throw;
    }
    settle();
    write_end.reset();
    Sync::here("process_backend.exec.started");
    try {
      return follow(*where, command, std::move(output), timeout);
    } catch (...) {
      const std::lock_guard lock(all_->mutex);
      auto& members = where->members;
      command->signal(SIGKILL);
      members.abandoned.splice(members.abandoned.end(), members.commands, command);
      throw;
    }
  }

 private:
  using nanoseconds = std::chrono::nanoseconds;

  enum class stage : unsigned char { starting, running, ending };

  struct box {
    explicit box(std::string id) { info.id = std::move(id); }

    typename Sync::mutex turn;  // create and destroy of this id, one at a time; taken before the object's mutex
    // Constant once the id runs; `home` until it has ended:
    sandbox_info info;
    std::map<std::string, std::string> environment;
    detail::owned_fd home;  // the directory, under its lock
    // Under the object's mutex:
    stage at = stage::starting;
    unsigned joining = 0;  // commands between the check that the sandbox runs and their entry among the members
    detail::process_members members;
  };

  struct everything {
    explicit everything(process_options o) : options(std::move(o)), root(options.root) {}

    const long host = detail::process_id();
    const process_options options;
    const std::string path = detail::host_variable("PATH", "/usr/local/bin:/usr/bin:/bin");
    typename Sync::mutex mutex;
    typename Sync::condition_variable settled;  // some box's `joining` went down
    std::map<std::string, std::shared_ptr<box>> boxes;
    detail::process_root root;  // opened once, under the mutex, by the first create
    detail::owned_fd null;
    detail::process_forker<Sync> forker;
  };

  static bool is_id(const std::string& id) noexcept { return detail::is_sandbox_id(id, detail::colon::refused); }

  static process_options checked(process_options options) {
    detail::check_command(options.command, "process_backend");
    detail::check_environment(options.environment, "process_backend");
    if (options.stop_grace < nanoseconds::zero() || options.kill_wait < nanoseconds::zero())
      throw std::invalid_argument("process_backend: negative stop_grace or kill_wait");
    return options;
  }

  [[noreturn]] static void refuse(const char* call, int error, const std::string& id) {
    const std::string reason = std::string(call) + ": " + std::generic_category().message(error);
    throw backend_error(backend_fault::spawn_failed, "process_backend: sandbox \"" + id + "\": " + reason);
  }

  bool at_home() const noexcept { return all_->host == detail::process_id(); }

  void require_home() const {
    if (!at_home()) throw backend_error(backend_fault::rejected, "process_backend: belongs to the parent process");
  }

  std::shared_ptr<box> find_box(const std::string& id) {
    const std::lock_guard lock(all_->mutex);
    const auto it = all_->boxes.find(id);
    return it != all_->boxes.end() ? it->second : nullptr;
  }

  /// Puts a new box under its id. A dead one that nobody has destroyed makes room.
  void enroll(const std::shared_ptr<box>& fresh) {
    const std::string& id = fresh->info.id;
    for (;;) {
      {
        const std::lock_guard lock(all_->mutex);
        if (all_->boxes.try_emplace(id, fresh).second) return;
      }
      if (probe(id) != liveness::dead || !destroy(id))
        throw backend_error(backend_fault::conflict, "process_backend: sandbox \"" + id + "\" exists already");
    }
  }

  void launch(box& fresh, const std::map<std::string, std::string>& requested) {
    const std::string& id = fresh.info.id;
    {
      const std::lock_guard lock(all_->mutex);
      if (!all_->null) all_->null = detail::above_standard(::open("/dev/null", O_RDWR | O_CLOEXEC));
      if (!all_->null) refuse("open of /dev/null", errno, id);
      if (const char* const failed = all_->root.open()) refuse(failed, errno, id);
    }
    fresh.home = detail::claim_directory(all_->root.fd(), id.c_str());
    if (!fresh.home && errno == EWOULDBLOCK)
      throw backend_error(backend_fault::conflict, "process_backend: another process runs sandbox \"" + id + "\"");
    if (!fresh.home) refuse("mkdir", errno, id);
    try {
      const std::string directory = all_->root.path() + "/" + id;
      fresh.environment = requested;  // insert() keeps what is there: the request wins, then the options
      fresh.environment.insert(all_->options.environment.begin(), all_->options.environment.end());
      fresh.environment.insert({{"PATH", all_->path}, {"HOME", directory}, {"TMPDIR", directory}});
      fresh.info.endpoint.reserve(directory.size() + 32);  // nothing may throw once the leader runs
      detail::child_process leader = spawn(all_->options.command, fresh, 0, all_->null.get());
      Sync::here("process_backend.create.started");
      const std::lock_guard lock(all_->mutex);
      fresh.info.endpoint.append("process://").append(std::to_string(leader.pid())).append(directory);
      fresh.members.leader = std::move(leader);
      fresh.at = stage::running;
    } catch (...) {
      detail::remove_tree(all_->root.fd(), id.c_str());
      throw;
    }
  }

  detail::child_process spawn(const std::vector<std::string>& argv, const box& where, pid_t group, int output) {
    detail::spawn_plan plan(argv, where.environment);
    plan.directory = where.home.get();
    plan.group = group;
    plan.input = all_->null.get();
    plan.output = output;
    const process_limits& limits = all_->options.limits;
    plan.limit(RLIMIT_CORE, 0);
    plan.limit(RLIMIT_NOFILE, limits.open_files);
    plan.limit(RLIMIT_FSIZE, limits.file_size);
    if (limits.cpu_seconds) plan.limit(RLIMIT_CPU, *limits.cpu_seconds);
    if (limits.address_space) plan.limit(RLIMIT_AS, *limits.address_space);
    if (limits.processes) plan.limit(RLIMIT_NPROC, *limits.processes);
    const char* failed = nullptr;
    int error = 0;
    detail::child_process child;
    try {
      child = all_->forker.spawn(plan, failed, error);
    } catch (const std::system_error& e) {
      refuse("starting a thread", e.code().value(), where.info.id);
    }
    if (failed != nullptr) refuse(failed, error, where.info.id);
    return child;
  }

  /// Waits for a command and takes it off the list, unless it throws.
  exec_result follow(box& where, std::list<detail::child_process>::iterator command, detail::owned_fd pipe,
                     nanoseconds timeout) {
    detail::bounded_output output(std::move(pipe), all_->options.max_output);
    const auto ending = detail::wait_for_exit<Sync>(*command, {&output}, timeout, all_->options.kill_wait);
    if (ending == detail::exit_wait::gave_up)
      throw backend_error(backend_fault::timed_out,
                          "process_backend: a killed command does not end in sandbox \"" + where.info.id + "\"");
    exec_result result{0, false, output.finish()};
    const std::lock_guard lock(all_->mutex);
    result.exit_code = command->reap();
    result.timed_out = ending == detail::exit_wait::killed && result.exit_code == 128 + SIGKILL;  // or it was faster
    where.members.commands.erase(command);
    return result;
  }

  /// Ends boxes whose turn the caller has. True when all are gone; those that are not stay known.
  bool end(const std::vector<std::shared_ptr<box>>& boxes) {
    std::vector<box*> left;
    for (const auto& one : boxes) left.push_back(one.get());
    {
      std::unique_lock lock(all_->mutex);
      for (box* one : left) one->at = stage::ending;
      all_->settled.wait(lock, [&] { return std::ranges::none_of(left, [](box* b) { return b->joining != 0; }); });
    }
    const auto clear = [this](box& one) {
      detail::remove_tree(all_->root.fd(), one.info.id.c_str());  // while it is still ours by its lock
      one.home.reset();
      const std::lock_guard lock(all_->mutex);
      all_->boxes.erase(one.info.id);
    };
    return detail::end_groups<Sync>(all_->mutex, left,
                                    {{SIGTERM, all_->options.stop_grace}, {SIGKILL, all_->options.kill_wait}}, clear);
  }

  std::unique_ptr<everything> all_;
};

/// The one to use.
using process_backend = basic_process_backend<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_SANDBOX_PROCESS_BACKEND_HPP
// ---- end curfew/sandbox/process_backend.hpp

// curfew/sandbox/sandbox_pool.hpp: above

// curfew/sandbox/transport.hpp: above
#endif

#endif  // CURFEW_HPP
// ---- end curfew/curfew.hpp
