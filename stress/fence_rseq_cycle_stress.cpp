// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The cycles of fence_cycle on restartable sequences, disturbed in every way that there is: signals every 100 us whose
// handler uses fences itself, threads that are moved to another CPU, threads that are born and die meanwhile.
//
// c0 = close/reopen cycles, c1 = of these reopened with passes out, c2 = admissions, c3 = releases on another thread,
// c4 = threads born, c5 = moves to another CPU, c6 = signals handled.

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>

#include "stress/fence_cycle_scenario.hpp"

namespace {

constinit thread_local bool rushing = false;

struct policy : stress::noise_sync {
  static void here(const char* tag) noexcept {
    if (!rushing) stress::noise_sync::here(tag);
  }
};
using fence = curfew::basic_admission_fence<policy>;

constinit fence always_open("always open");

void on_timer(int) {
  const auto pass = always_open.try_enter();
  STRESS_CHECK(pass && pass.clone());
  // Long enough for a fence to be closed, drained and opened again meanwhile.
  static constinit thread_local unsigned handled = 0;
  if (++handled % 2 == 0) stress::detail::spin_until(stress::detail::now_ns() + 20'000);
  stress::count(6);
}

class fence_rseq_cycle {
 public:
  static constexpr unsigned roles = fence_cycle<fence>::roles + 2;

  explicit fence_rseq_cycle(stress::rng& random) : cycle_(random), seed_(random.next()) {
    static const bool once = [] {
      struct sigaction how {};
      how.sa_handler = &on_timer;
      how.sa_flags = SA_RESTART;
      ::sigaction(SIGALRM, &how, nullptr);
      // Not the main thread, which only watches: the roles have been started before and get the signals.
      sigset_t timer;
      ::sigemptyset(&timer);
      ::sigaddset(&timer, SIGALRM);
      ::pthread_sigmask(SIG_BLOCK, &timer, nullptr);
      const itimerval every{{0, 100}, {0, 100}};
      return ::setitimer(ITIMER_REAL, &every, nullptr) == 0;
    }();
    STRESS_CHECK(once);
  }

  void role(unsigned i) {
    if (i == movable) {
      disturb(stress::rng(seed_));
      return;
    }
    threads_[i].store(::pthread_self(), std::memory_order_release);
    rushing = i == movable - 1;
    rushing ? cycle_.rush() : cycle_.role(i);
    threads_[i].store(0, std::memory_order_relaxed);
    ended_.fetch_add(1, std::memory_order_release);
  }

  void finish() {
    cycle_.finish();
    // Handlers may be under way, in every thread: not in all moments.
    unsigned looks = 0;
    stress::detail::spin_for([&looks] { return always_open.inside() == 0 || ++looks > 100'000; });
    STRESS_CHECK(looks <= 100'000);
  }

 private:
  static constexpr unsigned movable = roles - 1;

  void disturb(stress::rng random) {
    while (!cycle_.over()) {
      std::thread visitor([this, seed = random.next()] { cycle_.visit(seed, 100); });
      stress::count(4);
      move(visitor.native_handle(), random);
      for (auto& each : threads_) {
        if (const pthread_t thread = each.load(std::memory_order_acquire); thread != 0) move(thread, random);
      }
      visitor.join();
    }
    // The roles end only after this, and so nobody is moved who has ended.
    stress::detail::spin_for([this] { return ended_.load(std::memory_order_acquire) == movable; });
  }

  static void move(pthread_t thread, stress::rng& random) {
    cpu_set_t set;
    CPU_ZERO(&set);
    const std::uint64_t where = random.below(3);  // one of two CPUs, or both
    if (where != 1) CPU_SET(0, &set);
    if (where != 0) CPU_SET(1, &set);
    if (::pthread_setaffinity_np(thread, sizeof set, &set) == 0) stress::count(5);
  }

  fence_cycle<fence> cycle_;
  const std::uint64_t seed_;
  std::atomic<pthread_t> threads_[movable] = {};
  std::atomic<unsigned> ended_{0};
};

}  // namespace

int main(int argc, char** argv) {
  if (!policy::restartable<curfew::detail::cpu_cells<policy>>()) {
    std::puts("no restartable sequences here");
    return 77;
  }
  return stress::run<fence_rseq_cycle>(argc, argv, "fence_rseq_cycle");
}
