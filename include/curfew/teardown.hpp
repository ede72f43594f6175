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

#include <curfew/detail/cancel_shield.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lot.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/detail/teardown_reason.hpp>

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
