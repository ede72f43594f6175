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

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>

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
