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

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/leaked.hpp>
#include <curfew/detail/signal_fallback.hpp>
#include <curfew/detail/signal_owner.hpp>
#include <curfew/detail/sync.hpp>

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
