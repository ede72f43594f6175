// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Deterministic races: a policy whose named points can hold a thread until the test lets it go, and the bounded waits
/// that keep a failing test from hanging. A test parks one thread at a point, runs the other side, opens the park,
/// settles both and asserts on what is left; nothing is ordered by sleeping.

#ifndef CURFEW_TESTS_SUPPORT_PARK_HPP
#define CURFEW_TESTS_SUPPORT_PARK_HPP

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <curfew/detail/sync.hpp>

namespace curfew_test {

using namespace std::chrono_literals;

/// How long any single wait of a test may last. Generous: it is a safety net, never part of what is tested.
inline constexpr std::chrono::seconds patience{20};

/// Aborts the process with \p what when it lives longer than \p limit: a hang becomes a failure with a name.
class watchdog {
 public:
  explicit watchdog(const char* what, std::chrono::seconds limit = 2 * patience)
      : thread_([this, what, limit] {
          std::unique_lock lock(mutex_);
          if (!cv_.wait_for(lock, limit, [this] { return done_; })) {
            std::fprintf(stderr, "watchdog: '%s' did not end within %lld s\n", what,
                         static_cast<long long>(limit.count()));
            std::abort();
          }
        }) {}
  ~watchdog() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    cv_.notify_all();
    thread_.join();
  }
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable cv_;
  bool done_ = false;
  std::thread thread_;
};

/// A one-shot flag with a bounded wait.
class gate {
 public:
  void open() {
    {
      std::lock_guard lock(mutex_);
      open_ = true;
    }
    cv_.notify_all();
  }
  /// True when the gate was opened within the bound.
  [[nodiscard]] bool wait(std::chrono::milliseconds limit = patience) {
    std::unique_lock lock(mutex_);
    return cv_.wait_for(lock, limit, [this] { return open_; });
  }
  bool is_open() {
    std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable cv_;
  bool open_ = false;
};

/// Releases \p parties threads together; a party that waits longer than the bound aborts the test.
class start_gate {
 public:
  explicit start_gate(unsigned parties) : missing_(parties) {}
  void arrive_and_wait() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) {
      cv_.notify_all();
      return;
    }
    if (!cv_.wait_for(lock, patience, [this] { return missing_ == 0; })) {
      std::fprintf(stderr, "start_gate: %u parties never came\n", missing_);
      std::abort();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable cv_;
  unsigned missing_;
};

/// Polls \p condition, giving way in between, until it holds or the bound passes. For states that no event announces.
template <class Condition>
[[nodiscard]] bool eventually(Condition condition, std::chrono::milliseconds limit = patience) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class park;

namespace detail {
struct park_board {
  std::mutex mutex;
  std::condition_variable cv;
  std::vector<park*> parks;
};
// Beside the board, so that a thread for which nobody waits does not come near it: the first use of the board makes it,
// and a child that is forked meanwhile would wait for that to end.
inline constinit std::atomic<int> parks_open{0};
inline park_board& board() {
  static park_board* instance = new park_board;  // never destroyed: threads may pass a point during static destruction
  return *instance;
}
inline constinit thread_local const char* role = "";
}  // namespace detail

/// Names the calling thread for parks that hold one role only.
class role_scope {
 public:
  explicit role_scope(const char* name) : previous_(detail::role) { detail::role = name; }
  ~role_scope() { detail::role = previous_; }
  role_scope(const role_scope&) = delete;
  role_scope& operator=(const role_scope&) = delete;

 private:
  const char* previous_;
};

/// While it lives, holds the first \p capacity threads (of role \p role, when given) that come to the point \p tag.
/// Its destructor opens it and waits until the held threads have left.
class park {
 public:
  explicit park(std::string tag, std::string role = "", unsigned capacity = 1)
      : tag_(std::move(tag)), role_(std::move(role)), capacity_(capacity) {
    auto& board = detail::board();
    std::lock_guard lock(board.mutex);
    board.parks.push_back(this);
    detail::parks_open.store(static_cast<int>(board.parks.size()), std::memory_order_seq_cst);
  }
  ~park() {
    auto& board = detail::board();
    std::unique_lock lock(board.mutex);
    open_ = true;
    std::erase(board.parks, this);
    detail::parks_open.store(static_cast<int>(board.parks.size()), std::memory_order_seq_cst);
    board.cv.notify_all();
    if (!board.cv.wait_for(lock, patience, [this] { return held_ == 0; })) std::abort();
  }
  park(const park&) = delete;
  park& operator=(const park&) = delete;

  /// True when \p n threads have come within the bound.
  [[nodiscard]] bool wait_arrived(unsigned n = 1, std::chrono::milliseconds limit = patience) {
    auto& board = detail::board();
    std::unique_lock lock(board.mutex);
    return board.cv.wait_for(lock, limit, [&] { return arrived_ >= n; });
  }
  void open() {
    auto& board = detail::board();
    std::lock_guard lock(board.mutex);
    open_ = true;
    board.cv.notify_all();
  }

 private:
  friend struct park_access;
  const std::string tag_;
  const std::string role_;
  const unsigned capacity_;
  unsigned arrived_ = 0;
  unsigned held_ = 0;
  bool open_ = false;
};

struct park_access {
  static void arrive(std::string_view tag) noexcept {
    if (detail::parks_open.load(std::memory_order_seq_cst) == 0) return;
    auto& board = detail::board();
    std::unique_lock lock(board.mutex);
    for (park* p : board.parks) {
      if (p->tag_ != tag || (!p->role_.empty() && p->role_ != detail::role)) continue;
      if (p->open_ || p->arrived_ >= p->capacity_) continue;
      ++p->arrived_;
      ++p->held_;
      board.cv.notify_all();
      if (!board.cv.wait_for(lock, 2 * patience, [p] { return p->open_; })) {
        std::fprintf(stderr, "park '%s' was never opened\n", p->tag_.c_str());
        std::abort();
      }
      --p->held_;
      board.cv.notify_all();
      return;
    }
  }
};

/// The production policy with parks at its named points.
struct park_sync : curfew::std_sync {
  static void here(const char* tag) noexcept { park_access::arrive(tag); }
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_PARK_HPP
