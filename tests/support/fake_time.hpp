// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Time that passes only when nobody has anything left to do: a policy whose clock stands still while any of its
/// threads runs, and jumps to the next deadline when all of them wait. Budgets of minutes cost nothing, and durations
/// come out exact, whatever the machine does meanwhile.

#ifndef CURFEW_TESTS_SUPPORT_FAKE_TIME_HPP
#define CURFEW_TESTS_SUPPORT_FAKE_TIME_HPP

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/sync.hpp>

namespace curfew_test {

/// Who runs, who waits, and for when. One per process, and never destroyed: abandoned hooks stay in it.
class fake_world {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  struct waiter {
    std::condition_variable woken_up;
    time_point deadline = time_point::max();
    bool woken = false;
  };

  static fake_world& get() {
    static auto* world = new fake_world;
    return *world;
  }

  time_point now() {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  /// The thread that calls waits in \p line until it is woken or \p deadline comes; \p unlock runs once it is in line.
  template <class Unlock>
  void wait(std::vector<waiter*>& line, time_point deadline, Unlock unlock) {
    waiter self;
    self.deadline = deadline;
    std::unique_lock lock(mutex_);
    line.push_back(&self);
    waiting_.push_back(&self);
    unlock();
    --running_;
    pass_time();
    self.woken_up.wait(lock, [&] { return self.woken; });
    std::erase(line, &self);
  }
  void wake(std::vector<waiter*>& line, bool all) {
    const std::lock_guard lock(mutex_);
    for (waiter* one : line) {
      if (one->woken) continue;
      wake(*one);
      if (!all) return;
    }
  }

  void thread_begins() {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  /// \p done is set, and who waits in \p line is woken, in the same instant in which the thread stops to count.
  void thread_ends(bool& done, std::vector<waiter*>& line) {
    const std::lock_guard lock(mutex_);
    done = true;
    for (waiter* one : line) {
      if (!one->woken) wake(*one);
    }
    --running_;
    pass_time();
  }

  /// Waits until the thread that sets \p done has ended, unless it has.
  void join(const bool& done, std::vector<waiter*>& line) {
    waiter self;
    std::unique_lock lock(mutex_);
    if (done) return;
    line.push_back(&self);
    waiting_.push_back(&self);
    --running_;
    pass_time();
    self.woken_up.wait(lock, [&] { return self.woken; });
    std::erase(line, &self);
  }

 private:
  void wake(waiter& one) {
    one.woken = true;
    ++running_;
    std::erase(waiting_, &one);
    one.woken_up.notify_one();
  }

  void pass_time() {
    if (running_ != 0 || waiting_.empty()) return;
    const auto next = std::min_element(waiting_.begin(), waiting_.end(),
                                       [](const waiter* a, const waiter* b) { return a->deadline < b->deadline; });
    if ((*next)->deadline == time_point::max()) return;  // nobody is left to wake anybody: a watchdog will say so
    now_ = std::max(now_, (*next)->deadline);
    for (waiter* one : std::vector<waiter*>(waiting_)) {
      if (one->deadline <= now_) wake(*one);
    }
  }

  std::mutex mutex_;
  time_point now_{std::chrono::hours(1)};
  int running_ = 1;  // the main thread
  std::vector<waiter*> waiting_;
};

/// The policy. Threads that are not its own must not wait by it.
struct fake_sync : curfew::std_sync {
  struct clock {
    using rep = std::chrono::steady_clock::rep;
    using period = std::chrono::steady_clock::period;
    using duration = std::chrono::steady_clock::duration;
    using time_point = std::chrono::steady_clock::time_point;
    static constexpr bool is_steady = true;
    static time_point now() noexcept { return fake_world::get().now(); }
  };

  class condition_variable {
   public:
    void notify_one() noexcept { fake_world::get().wake(line_, false); }
    void notify_all() noexcept { fake_world::get().wake(line_, true); }
    void wait(std::unique_lock<std::mutex>& lock) { wait_until(lock, clock::time_point::max()); }
    template <class Condition>
    void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
      while (!condition()) wait(lock);
    }
    std::cv_status wait_until(std::unique_lock<std::mutex>& lock, clock::time_point deadline) {
      fake_world::get().wait(line_, deadline, [&] { lock.unlock(); });
      lock.lock();
      return clock::now() >= deadline ? std::cv_status::timeout : std::cv_status::no_timeout;
    }
    template <class Condition>
    bool wait_until(std::unique_lock<std::mutex>& lock, clock::time_point deadline, Condition condition) {
      while (!condition()) {
        if (clock::now() >= deadline) return false;
        wait_until(lock, deadline);
      }
      return true;
    }

   private:
    std::vector<fake_world::waiter*> line_;
  };

  class thread {
   public:
    thread() = default;
    template <class F>
    explicit thread(F&& f) : state_(std::make_shared<state>()) {
      fake_world::get().thread_begins();
      try {
        thread_ = std::thread([s = state_, f = std::forward<F>(f)]() mutable {
          // Ends after the thread's own thread_local objects, as far as these were made by f.
          thread_local struct ending {
            std::shared_ptr<state> mine;
            ~ending() {
              if (mine) fake_world::get().thread_ends(mine->done, mine->joiners);
            }
          } end;
          end.mine = std::move(s);
          f();
        });
      } catch (...) {
        fake_world::get().thread_ends(state_->done, state_->joiners);
        throw;
      }
    }
    bool joinable() const noexcept { return thread_.joinable(); }
    std::thread::id get_id() const noexcept { return thread_.get_id(); }
    void join() {
      fake_world::get().join(state_->done, state_->joiners);
      thread_.join();
    }
    void detach() { thread_.detach(); }

   private:
    struct state {
      bool done = false;
      std::vector<fake_world::waiter*> joiners;
    };
    std::shared_ptr<state> state_;
    std::thread thread_;
  };

  static void sleep_for(std::chrono::nanoseconds span) {
    std::mutex mutex;
    condition_variable never;
    std::unique_lock lock(mutex);
    never.wait_until(lock, clock::now() + span, [] { return false; });
  }
};

/// A one-shot flag in that time. Without a limit a wait lasts until it is opened: time does not pass for its sake.
class fake_gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] bool wait(std::chrono::nanoseconds limit = std::chrono::nanoseconds::max()) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, curfew::detail::later_by(fake_sync::clock::now(), limit),
                               [this] { return open_; });
  }
  bool is_open() {
    const std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  std::mutex mutex_;
  fake_sync::condition_variable changed_;
  bool open_ = false;
};

/// A hook that hangs until the test is over.
class fake_hang {
 public:
  fake_hang() : inside_(std::make_shared<state>()) {}
  ~fake_hang() {
    inside_->let_go.open();
    if (inside_->came.is_open() && !inside_->left.wait()) std::abort();
  }
  fake_hang(const fake_hang&) = delete;
  fake_hang& operator=(const fake_hang&) = delete;

  auto hook() const {
    return [inside = inside_](const curfew::stage_context&) {
      inside->came.open();
      static_cast<void>(inside->let_go.wait());
      inside->left.open();
    };
  }
  bool came() const { return inside_->came.is_open(); }
  bool wait_came() const { return inside_->came.wait(); }
  bool wait_left() const { return inside_->left.wait(); }
  void let_go() { inside_->let_go.open(); }

 private:
  struct state {
    fake_gate came, let_go, left;
  };
  std::shared_ptr<state> inside_;
};

/// What a hook in that time does instead of context.sleep_or_stop(span).
inline bool nap(const curfew::stage_context& context, std::chrono::nanoseconds span) {
  return curfew::detail::sleep_or_stop<fake_sync>(context.token, span);
}

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_FAKE_TIME_HPP
