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

#include <curfew/detail/config.hpp>

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
