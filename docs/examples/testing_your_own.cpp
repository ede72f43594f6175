// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The page docs/testing-your-own.md: a class with a race, the harness that hits it, the explorer that shows it, the
// fix.

#include <atomic>
#include <cstdio>
#include <mutex>

#include <curfew/testing/explore.hpp>
#include <curfew/testing/race.hpp>

namespace {

using namespace curfew::testing;

// [class]
/// One connection for the whole program, opened by whoever asks first.
template <class Sync>
class careless_connection {
 public:
  int get() {
    if (socket_.load(std::memory_order_acquire) == none) {  // check ...
      socket_.store(open(), std::memory_order_release);     // ... then create
    }
    return socket_.load(std::memory_order_acquire);
  }
  int opened() const { return opened_.load(std::memory_order_relaxed); }

 private:
  static constexpr int none = 0;
  int open() { return opened_.fetch_add(1, std::memory_order_relaxed) + 1; }

  typename Sync::template atomic<int> socket_{none};
  typename Sync::template atomic<int> opened_{0};
};
// [/class]

// [body]
/// Two threads ask for the first time at the same time.
template <template <class> class Connection, class Sync>
struct first_use {
  static constexpr unsigned roles = 2;
  Connection<Sync> connection;
  int got[2] = {};

  void role(unsigned i) { got[i] = connection.get(); }
  void finish() { check(connection.opened() == 1, "one connection is open"); }
};
// [/body]

// [fix]
template <class Sync>
class careful_connection {
 public:
  int get() {
    if (const int seen = socket_.load(std::memory_order_acquire); seen != none) return seen;
    const std::lock_guard lock(mutex_);
    int seen = socket_.load(std::memory_order_relaxed);
    if (seen == none) {
      seen = open();
      socket_.store(seen, std::memory_order_release);
    }
    return seen;
  }
  // [/fix]
  int opened() const { return opened_.load(std::memory_order_relaxed); }

 private:
  static constexpr int none = 0;
  int open() { return opened_.fetch_add(1, std::memory_order_relaxed) + 1; }

  typename Sync::mutex mutex_;
  typename Sync::template atomic<int> socket_{none};
  typename Sync::template atomic<int> opened_{0};
};

bool races() {
  // [race]
  // Real threads, thousands of rounds. noise_sync adds small delays; std_sync would do, more slowly.
  const race_result hit = race<first_use<careless_connection, noise_sync>>({.name = "first_use", .seconds = 30});
  std::printf("real threads: %s\n", to_string(hit.what));
  // [/race]
  return hit.what == fault::check_failed;
}

bool explores() {
  // [explore]
  // Every schedule, on one thread, until one goes wrong.
  const exploration shown = explore<first_use<careless_connection, model_sync>>({.name = "first_use", .print = false});
  std::printf("%s", shown.story.c_str());
  // [/explore]
  return shown.what == fault::check_failed && shown.confirmed;
}

bool is_fixed() {
  // [fixed]
  // The same body, the other class; with loads that may return old values, and until nothing is left to explore.
  const exploration clean = explore<first_use<careful_connection, model_sync>>({.name = "first_use", .stale_reads = 2});
  std::printf("fixed: %s, %s\n", to_string(clean.what), clean.complete ? "every schedule explored" : "not complete");
  // [/fixed]
  return clean && clean.complete;
}

}  // namespace

int main() {
  const bool broken = races();
  const bool shown = explores();
  const bool fixed = is_fixed();
  return broken && shown && fixed ? 0 : 1;
}
