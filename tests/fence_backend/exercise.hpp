// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A fence that is entered, left, closed, drained and reopened for a moment, while timer signals interrupt everybody,
/// threads come and go, and those that are there are moved between CPUs. Exact, or the process ends.

#ifndef CURFEW_TESTS_FENCE_BACKEND_EXERCISE_HPP
#define CURFEW_TESTS_FENCE_BACKEND_EXERCISE_HPP

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include <curfew/admission_fence.hpp>

namespace fence_backend {

#define DEMAND(condition) \
  ((condition) ? static_cast<void>(0) : ::fence_backend::give_up(#condition, __FILE__, __LINE__))

[[noreturn]] inline void give_up(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what);
  std::_Exit(1);
}

/// The production policy, with the sequences counted.
struct counted_sync : curfew::std_sync {
  static inline std::atomic<std::uint64_t> added{0}, not_added{0};

  template <int Delta, class Cells>
  static bool add_on_cpu(Cells& cells) noexcept {
    const bool done = std_sync::add_on_cpu<Delta>(cells);
    (done ? added : not_added).fetch_add(1, std::memory_order_relaxed);
    return done;
  }
};
using counted_fence = curfew::basic_admission_fence<counted_sync>;

/// Whether this process has the backend on restartable sequences.
inline bool has_sequences() {
  return static_cast<bool>(counted_sync::restartable<curfew::detail::cpu_cells<counted_sync>>());
}

inline counted_fence* interrupted = nullptr;  // entered and left by the signal handler
inline std::atomic<std::uint64_t> handled{0};
inline thread_local volatile sig_atomic_t holding = 0;

/// Enters a fence that stays open, and one that is being closed, but that only when the thread has a pass of it: the
/// release of a last pass takes a lock, which a handler must not.
inline void on_timer(int) {
  static constinit curfew::admission_fence always_open("always open");
  DEMAND(always_open.try_enter());
  if (holding != 0 && interrupted != nullptr) static_cast<void>(interrupted->try_enter());
  handled.fetch_add(1, std::memory_order_relaxed);
}

class exercise {
 public:
  explicit exercise(std::chrono::milliseconds span) : end_(std::chrono::steady_clock::now() + span) {
    interrupted = &fence_;
    struct sigaction how {};
    how.sa_handler = &on_timer;
    how.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &how, nullptr);
    const itimerval every{{0, 100}, {0, 100}};
    ::setitimer(ITIMER_REAL, &every, nullptr);
    std::thread parent[2] = {std::thread([this] { bring_up(1); }), std::thread([this] { bring_up(2); })};
    control();
    for (auto& each : parent) each.join();
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    interrupted = nullptr;
    for (auto& each : parked_) each.release();
    DEMAND(fence_.drain_for(std::chrono::seconds(10)));
    DEMAND(fence_.inside() == 0);
    std::printf("%llu cycles, %llu admissions, %llu threads, %llu signals, %llu by sequences, %llu not\n",
                number(cycles_), number(admitted_), number(threads_), number(handled), number(counted_sync::added),
                number(counted_sync::not_added));
  }

 private:
  using pass = counted_fence::pass;
  static unsigned long long number(const std::atomic<std::uint64_t>& n) { return n.load(); }

  bool over() const { return std::chrono::steady_clock::now() >= end_; }

  // One thread after the other, each for a few hundred entries.
  void bring_up(std::uint64_t seed) {
    while (!over()) {
      std::thread child([this, seed] { work(seed); });
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(seed / 2 % 2, &one);
      ::pthread_setaffinity_np(child.native_handle(), sizeof one, &one);  // may fail: then it is not moved
      child.join();
      threads_.fetch_add(1);
      seed += 2;
    }
  }

  void work(std::uint64_t seed) {
    for (unsigned i = 0; i < 2000; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      pass mine = fence_.try_enter();
      if (!mine) {
        if (seed >> 62 == 0) std::this_thread::yield();
        continue;
      }
      inside_.fetch_add(1, std::memory_order_relaxed);
      admitted_.fetch_add(1, std::memory_order_relaxed);
      holding = 1;
      pass other = mine.clone();
      holding = 0;
      other.release();
      if (seed >> 61 == 0) {  // let another thread, on another CPU perhaps, release it
        const std::lock_guard lock(mutex_);
        std::swap(mine, parked_[(seed >> 40) % parked_.size()]);
      }
      if (mine) {
        inside_.fetch_sub(1, std::memory_order_relaxed);
        mine.release();
      }
    }
  }

  void control() {
    for (std::uint64_t i = 0; !over(); ++i) {
      for (unsigned n = 0; n < i % 64; ++n) curfew::std_sync::pause();
      DEMAND(fence_.close());
      DEMAND(!fence_.try_enter());
      if (i % 2 == 0 && fence_.cancel_close()) continue;
      {
        const std::lock_guard lock(mutex_);
        for (auto& each : parked_) {
          if (each) inside_.fetch_sub(1, std::memory_order_relaxed);
          each.release();
        }
      }
      while (!fence_.drain_for(std::chrono::milliseconds(1))) {
        const std::lock_guard lock(mutex_);
        for (auto& each : parked_) {
          if (each) inside_.fetch_sub(1, std::memory_order_relaxed);
          each.release();
        }
      }
      DEMAND(inside_.load(std::memory_order_relaxed) == 0);
      DEMAND(fence_.inside() == 0);
      DEMAND(fence_.reopen());
      cycles_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  const std::chrono::steady_clock::time_point end_;
  counted_fence fence_{"exercised"};
  std::atomic<std::int64_t> inside_{0};
  std::atomic<std::uint64_t> cycles_{0}, admitted_{0}, threads_{0};
  std::mutex mutex_;
  std::array<pass, 4> parked_;
};

}  // namespace fence_backend

#endif  // CURFEW_TESTS_FENCE_BACKEND_EXERCISE_HPP
