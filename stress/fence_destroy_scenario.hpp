// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A fence is destroyed on the spot by whoever is told "drained" first, while the last leavers and the closer may still
/// be on their way out of their calls. What must hold: none of them touches the memory afterwards.

#ifndef CURFEW_STRESS_FENCE_DESTROY_SCENARIO_HPP
#define CURFEW_STRESS_FENCE_DESTROY_SCENARIO_HPP

#include <atomic>
#include <chrono>
#include <thread>

#include <curfew/admission_fence.hpp>

#include "stress/support/stress.hpp"

template <class Fence>
class fence_destroy {
 public:
  static constexpr unsigned roles = 3;

  explicit fence_destroy(stress::rng& random) : how_(static_cast<end>(random.below(ends))) {
    Fence& fence = yard_.make("destroy");
    if (!random.one_in(8)) first_ = fence.enter();
    if (first_ && random.one_in(2)) second_ = first_.clone();
    if (how_ == end::hook) fence.on_drained(hook_);
  }

  void role(unsigned i) {
    Fence& fence = yard_.get();
    switch (i) {
      case 0:
        destroy(fence);
        break;
      case 1:
        first_.release();
        break;
      default:
        // The one who closes, where the destroyer does not; nobody can see the fence drained before that has begun.
        if (how_ == end::observer || how_ == end::poller || how_ == end::hook) fence.close();
        if (how_ == end::second_drainer) {
          fence.drain();
        } else {
          second_.release();
        }
        break;
    }
  }

  void finish() {
    STRESS_CHECK(buried_.load() == 1);
    STRESS_CHECK(!yard_.disturbed());
    stress::count(static_cast<unsigned>(how_));
  }

 private:
  enum class end : unsigned { drain, drain_poll, observer, poller, second_drainer, hook };
  static constexpr unsigned ends = 6;

  void destroy(Fence& fence) {
    switch (how_) {
      case end::drain:
        fence.drain();
        break;
      case end::drain_poll:
        stress::detail::spin_for([&] { return static_cast<bool>(fence.drain_for(std::chrono::seconds(0))); });
        break;
      case end::observer:
        fence.wait_drained_until(std::chrono::steady_clock::time_point::max());
        break;
      case end::poller:
      case end::second_drainer:
        if (how_ == end::second_drainer) second_.release();
        stress::detail::spin_for([&] { return fence.is_drained(); });
        break;
      case end::hook:
        return;
    }
    bury();
  }

  void bury() {
    yard_.bury();
    buried_.fetch_add(1);
  }

  static void bury_by_hook(void* self) noexcept { static_cast<fence_destroy*>(self)->bury(); }

  const end how_;
  stress::graveyard<Fence> yard_;
  curfew::drain_hook hook_{&bury_by_hook, this};
  typename Fence::pass first_, second_;
  std::atomic<int> buried_{0};
};

#endif  // CURFEW_STRESS_FENCE_DESTROY_SCENARIO_HPP
