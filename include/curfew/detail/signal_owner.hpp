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

#include <curfew/detail/config.hpp>
#include <curfew/detail/signal_console.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/sync.hpp>

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
