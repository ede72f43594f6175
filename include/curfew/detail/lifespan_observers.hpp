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

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_frame.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/sync.hpp>

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
