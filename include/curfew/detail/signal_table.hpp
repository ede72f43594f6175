// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What there is once per process about signals: who owns them, what their dispositions were before, whether this is
/// still the process that took them, and how another shared object's owner is recognised. Design and the argument for
/// async-signal-safety: docs/design/signals.md.

#ifndef CURFEW_DETAIL_SIGNAL_TABLE_HPP
#define CURFEW_DETAIL_SIGNAL_TABLE_HPP

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>

#if CURFEW_POSIX
#include <signal.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#endif
#if defined(__APPLE__)
#include <crt_externs.h>
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
  atomic<signal_handler> restored[signal_limit]{};
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
  if (process_signals.owner.load(std::memory_order_seq_cst) != 0 || now.sa_handler == self) {
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
  }
  disposition_lock(const disposition_lock&) = delete;
  disposition_lock& operator=(const disposition_lock&) = delete;
  ~disposition_lock() { process_signals.lock.store(0, std::memory_order_seq_cst); }
};

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
inline std::uint64_t owned_elsewhere() noexcept {
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

/// Signals owned by this process's lifespan as seen from this shared object, 0 when it has none.
inline std::uint64_t owned_here() noexcept {
  if (process_signals.owner.load(std::memory_order_seq_cst) != ::getpid()) return 0;
  return process_signals.owned.load(std::memory_order_seq_cst);
}

inline bool is_shutdown_owned(int signo) noexcept {
  return ((owned_here() | owned_elsewhere()) & signal_bit(signo)) != 0;
}

/// What an attempt to own signals came to.
enum class acquisition : unsigned char { taken, conflict, refused };

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

/// Becomes the owner of \p wanted: announces it, then installs \p handler, which from the first one on rings \p bell.
/// An ignored SIGINT or SIGHUP was ignored on purpose by whoever started this process, and stays so. \p prepare runs
/// once nobody else can own and before the first handler is there. On `refused`, errno and \p culprit name the reason;
/// on anything but `taken` nothing has changed.
template <class Prepare>
acquisition acquire_signals(std::uint64_t wanted, signal_handler handler, int bell, int& culprit,
                            Prepare prepare) noexcept {
  auto& table = process_signals;
  const disposition_lock lock;
  const int self = ::getpid();
  culprit = 0;
  if (table.owner.load(std::memory_order_seq_cst) == self || owned_elsewhere() != 0) return acquisition::conflict;
  char marker[80];
  std::snprintf(marker, sizeof marker, "%d:%llx:%llx", self, static_cast<unsigned long long>(wanted),
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(handler)));
  if (::setenv(owner_marker, marker, 1) != 0) return acquisition::refused;
  mark_process();
  prepare();
  table.handler = handler;
  table.taken = 0;
  table.bell.store(bell, std::memory_order_seq_cst);
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
    ::unsetenv(owner_marker);
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
  ::unsetenv(owner_marker);
}

/// Whether \p signo was taken and somebody has put another handler on top.
inline bool is_displaced(int signo) noexcept {
  const disposition_lock lock;
  return (process_signals.taken & signal_bit(signo)) != 0 && !has_disposition(signo, process_signals.handler);
}

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
enum class acquisition : unsigned char { taken, conflict, refused };

template <class Prepare>
acquisition acquire_signals(std::uint64_t, signal_handler, int, int&, Prepare prepare) noexcept {
  prepare();
  return acquisition::taken;
}
inline void release_signals() noexcept {}
inline bool is_shutdown_owned(int) noexcept {
  return false;
}
inline bool is_displaced(int) noexcept {
  return false;
}
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
