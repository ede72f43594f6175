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

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/leaked.hpp>
#include <curfew/detail/signal_owner.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/signal_wakeup.hpp>
#include <curfew/detail/sync.hpp>

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
