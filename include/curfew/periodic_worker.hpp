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

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/stop_token.hpp>
#include <curfew/detail/sync.hpp>

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
