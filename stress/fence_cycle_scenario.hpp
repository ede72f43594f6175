// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// One thread closes and reopens a fence over and over, half of the time with passes still out, while others enter,
/// clone, hand their passes to each other and release them elsewhere. What must hold: whoever is told "drained" finds
/// nobody inside; nobody enters between close() and reopening; nothing gets lost or counted twice over any number of
/// epochs; nothing hangs.

#ifndef CURFEW_STRESS_FENCE_CYCLE_SCENARIO_HPP
#define CURFEW_STRESS_FENCE_CYCLE_SCENARIO_HPP

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>

#include <curfew/admission_fence.hpp>

#include "stress/support/stress.hpp"

template <class Fence>
class fence_cycle {
 public:
  static constexpr unsigned roles = 3;

  explicit fence_cycle(stress::rng& random) {
    for (auto& each : workers_) each.seed = random.next();
  }

  void role(unsigned i) {
    if (i == 0) {
      control(stress::rng(workers_[0].seed));
      stop_.store(true, std::memory_order_release);
    } else {
      work(workers_[i]);
    }
  }

  void finish() {
    for (auto& each : mailboxes_) {
      if (each.content) leave(each.content);
    }
    STRESS_CHECK(holders_.load() == 0);
    STRESS_CHECK(fence_.inside() == 0);
    STRESS_CHECK(fence_.drain_for(std::chrono::seconds(0)).status == curfew::drain_status::drained);
    STRESS_CHECK(!hooked_.load());  // every hook was served by the end of its epoch
    std::uint64_t admitted = 0;
    for (const auto& each : workers_) admitted += each.admitted;
    stress::count(2, admitted);
    stress::count(3, handed_over_.load());
  }

  bool over() const { return stop_.load(std::memory_order_acquire); }

  /// The work of one more thread, for so long; only one at a time.
  void visit(std::uint64_t seed, unsigned entries) {
    worker& self = workers_[roles];
    self.seed = seed;
    work(self, entries);
  }

  /// Nothing but in and out, so that whatever interrupts the thread is likely to do so in the midst of it.
  void rush() {
    unsigned batches = 0;
    while (!over()) {
      std::uint64_t admitted = 0;
      for (unsigned i = 0; i < 100; ++i) admitted += static_cast<bool>(fence_.try_enter()) ? 1 : 0;
      stress::count(2, admitted);
      if (++batches % 4 == 0) std::this_thread::yield();
    }
  }

 private:
  using pass = typename Fence::pass;

  struct alignas(64) worker {
    std::uint64_t seed = 0;
    std::uint64_t admitted = 0;  // plain: written while inside, read by whoever was told "drained"
  };
  struct alignas(64) mailbox {
    std::atomic<int> state{0};  // 0 empty, 1 busy, 2 full
    pass content;
  };

  void control(stress::rng random) {
    constexpr unsigned cycles = 50;
    std::uint64_t seen = 0;
    unsigned undrained = 0;
    for (unsigned i = 1; i <= cycles; ++i) {
      if (random.one_in(4)) give_way(random);
      STRESS_CHECK(!fence_.is_closed() && !fence_.is_drained());
      if (random.one_in(2) && !hooked_.load(std::memory_order_acquire)) {
        hooked_.store(true, std::memory_order_relaxed);
        STRESS_CHECK(fence_.on_drained(hook_));
      }
      const unsigned how = static_cast<unsigned>(random.below(8));
      if (how == 0) {
        fence_.drain();
        drained(seen);
      } else {
        pass own;
        if (how >= 4) {  // half of all: certainly undrained, with a pass in the mail besides this one
          own = fence_.enter();
          holders_.fetch_add(2, std::memory_order_relaxed);
          pass second = own.clone();
          hand_over(random, second);
          if (second) leave(second);
        }
        STRESS_CHECK(fence_.close());
        closed_.store(i, std::memory_order_release);
        if (random.one_in(4)) give_way(random);
        closed_.store(0, std::memory_order_release);
        if (how == 1) {
          // Whatever this says, it is about this epoch.
          const auto result = fence_.drain_for(std::chrono::microseconds(20));
          STRESS_CHECK(result.status != curfew::drain_status::reopened);
          STRESS_CHECK(static_cast<bool>(result) == (result.remaining == 0));
          if (result) drained(seen);
        }
        if (how >= 4) {
          STRESS_CHECK(fence_.inside() >= 1 && !fence_.reopen());
          STRESS_CHECK(fence_.cancel_close());
          leave(own);
          ++undrained;
          continue;
        }
        if (how == 3 && fence_.cancel_close()) {
          ++undrained;
          continue;
        }
        if (how == 2) {
          stress::detail::spin_for([this] { return fence_.reopen(); });
          continue;
        }
        STRESS_CHECK(!fence_.cancel_close() || how == 1);
        if (!fence_.is_closed()) {
          ++undrained;
          continue;
        }
        fence_.drain();
        drained(seen);
      }
      STRESS_CHECK(fence_.reopen());
    }
    stress::count(0, cycles);
    stress::count(1, undrained);
  }

  void drained(std::uint64_t& seen) {
    STRESS_CHECK(holders_.load(std::memory_order_relaxed) == 0);
    STRESS_CHECK(fence_.is_drained());
    STRESS_CHECK(fence_.inside() == 0);
    std::uint64_t admitted = 0;
    for (const auto& each : workers_) admitted += each.admitted;
    STRESS_CHECK(admitted >= seen);
    seen = admitted;
  }

  void work(worker& self, unsigned entries = std::numeric_limits<unsigned>::max()) {
    stress::rng random(self.seed);
    for (; entries != 0 && !over(); --entries) {
      const std::uint64_t closed = closed_.load(std::memory_order_acquire);
      pass mine = fence_.try_enter();
      if (mine) {
        // Admitted although the close of this epoch had returned, unless that epoch is over by now.
        STRESS_CHECK(closed == 0 || closed_.load(std::memory_order_acquire) != closed);
        holders_.fetch_add(1, std::memory_order_relaxed);
        ++self.admitted;
        if (random.one_in(4)) {
          holders_.fetch_add(1, std::memory_order_relaxed);
          pass clone = mine.clone();
          leave(mine);
          mine = std::move(clone);
        }
        if (random.one_in(2)) hand_over(random, mine);
        if (mine) leave(mine);
        if (random.one_in(4)) take_over(random);
      } else {
        take_over(random);
        if (random.one_in(8)) std::this_thread::yield();
      }
    }
  }

  // Counted out before the release, so that the number never exceeds that of the fence.
  void leave(pass& mine) {
    holders_.fetch_sub(1, std::memory_order_relaxed);
    mine.release();
  }

  void hand_over(stress::rng& random, pass& mine) {
    mailbox& to = mailboxes_[random.below(mailboxes_.size())];
    int empty = 0;
    if (!to.state.compare_exchange_strong(empty, 1, std::memory_order_acquire, std::memory_order_relaxed)) return;
    to.content = std::move(mine);
    to.state.store(2, std::memory_order_release);
  }

  void take_over(stress::rng& random) {
    mailbox& from = mailboxes_[random.below(mailboxes_.size())];
    int full = 2;
    if (!from.state.compare_exchange_strong(full, 1, std::memory_order_acquire, std::memory_order_relaxed)) return;
    pass taken = std::move(from.content);
    from.state.store(0, std::memory_order_release);
    leave(taken);
    handed_over_.fetch_add(1, std::memory_order_relaxed);
  }

  static void serve(void* self) noexcept {
    STRESS_CHECK(static_cast<fence_cycle*>(self)->hooked_.exchange(false, std::memory_order_acq_rel));
  }

  static void give_way(stress::rng& random) {
    for (std::uint64_t n = random.below(64); n != 0; --n) curfew::std_sync::pause();
    if (random.one_in(8)) std::this_thread::yield();
  }

  Fence fence_{"cycle"};
  curfew::drain_hook hook_{&serve, this};
  std::atomic<bool> hooked_{false};
  std::atomic<std::int64_t> holders_{0};
  std::atomic<std::uint64_t> closed_{0};  // the cycle whose close() has returned; 0 in between
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> handed_over_{0};
  std::array<worker, roles + 1> workers_{};
  std::array<mailbox, 3> mailboxes_{};
};

#endif  // CURFEW_STRESS_FENCE_CYCLE_SCENARIO_HPP
