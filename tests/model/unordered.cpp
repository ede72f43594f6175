// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// unordered [<mistake>]
//
// What a sanitizer sees of an explored body: plain ints, which the explorer itself does not watch, handed from one
// thread to another in every way that is in order, and with a mistake named on the command line in one that is not.
// Without a mistake the program is clean under every sanitizer; with one it must be reported.

#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>

#include <curfew/testing/explore.hpp>

namespace {

using curfew::testing::explore;
using curfew::testing::model_sync;

std::string_view mistake;
bool broken(std::string_view name) {
  return mistake == name;
}

// By a flag, and by a flag that somebody else has added to since.
struct published {
  static constexpr unsigned roles = 3;
  int value = 0;
  model_sync::atomic<int> ready{0};
  void role(unsigned i) {
    if (i == 0) {
      value = 42;
      ready.store(1, broken("relaxed store") ? std::memory_order_relaxed : std::memory_order_release);
    } else if (i == 1) {
      if (broken("store in between")) {
        if (ready.load(std::memory_order_relaxed) == 1) ready.store(3, std::memory_order_relaxed);
      } else {
        ready.fetch_add(2, std::memory_order_relaxed);
      }
    } else if ((ready.load(broken("relaxed load") ? std::memory_order_relaxed : std::memory_order_acquire) & 1) != 0) {
      if (value != 42) std::puts("?");
    }
  }
  void finish() { value = 0; }
};

// By a mutex and a condition variable.
struct awaited {
  static constexpr unsigned roles = 2;
  model_sync::mutex mutex;
  model_sync::condition_variable changed;
  int waiting = 0;
  bool there = false;
  void role(unsigned i) {
    if (i == 0) {
      std::unique_lock lock(mutex);
      ++waiting;
      while (!there) changed.wait(lock);
      --waiting;
    } else {
      std::unique_lock lock(mutex);
      there = true;
      changed.notify_all();
      lock.unlock();
      if (broken("after the unlock")) static_cast<volatile int&>(waiting) = 0;
    }
  }
  void finish() {}
};

// By the end of a thread.
struct joined {
  static constexpr unsigned roles = 1;
  int value = 0;
  void role(unsigned) {
    model_sync::thread other([this] { ++value; });
    if (broken("before the join")) ++value;
    other.join();
    ++value;
  }
  void finish() { ++value; }
};

// By the last of several owners.
struct owned {
  static constexpr unsigned roles = 2;
  std::unique_ptr<int> shared = std::make_unique<int>(0);
  int* const seen = shared.get();
  model_sync::atomic<int> owners{2};
  void role(unsigned i) {
    if (i == 0 && *seen != 0) std::puts("?");
    if (owners.fetch_sub(1, std::memory_order_acq_rel) == 1) shared.reset();
    if (i == 1 && broken("after the last owner") && *seen != 0) std::puts("?");
  }
  void finish() {}
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) mistake = argv[1];
  const bool clean = explore<published>({.stale_reads = 1}) && explore<awaited>({.spurious_wakeups = 1}) &&
                     explore<joined>() && explore<owned>();
  return clean ? 0 : 1;
}
