// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The bodies of the admission fence once more, for its backend on restartable sequences, and those that only this
/// backend needs. Explorer only: on real threads std_sync has this backend anyway, where the machine has it.

#ifndef CURFEW_TESTS_MODEL_CASES_FENCE_RSEQ_HPP
#define CURFEW_TESTS_MODEL_CASES_FENCE_RSEQ_HPP

#include <utility>

#include <curfew/admission_fence.hpp>
#include <curfew/testing/outcome.hpp>
#include <curfew/testing/restartable_model_sync.hpp>

namespace curfew_cases {

using restartable_sync = curfew::testing::restartable_model_sync;

/// A fence that nobody has entered yet: the first one to do so chooses the backend, and is itself counted by a stripe.
using undecided_fence = curfew::basic_admission_fence<restartable_sync>;

/// A fence that has chosen.
struct per_cpu_fence : undecided_fence {
  explicit per_cpu_fence(const char* name) : undecided_fence(name) {
    drain();
    reopen();
  }
};

/// Rule 8, over three openings: who came in by a cell may leave by a stripe, and the other way round, in a later epoch;
/// nothing stays behind in a cell.
template <class Fence, class Sync>
struct fence_carried_over {
  static constexpr unsigned roles = 2;
  Fence fence{"requests"};
  typename Fence::pass first = fence.try_enter(), second = fence.try_enter();

  void role(unsigned i) {
    if (i == 0) {
      first.release();
      return;
    }
    check(fence.close(), "the one call that closes");
    check(fence.cancel_close(), "somebody is inside");
    second.release();
  }
  void finish() {
    check(fence.inside() == 0, "all are out");
    check(static_cast<bool>(fence.drain_for(0s)), "drained");
    check(fence.reopen() && fence.inside() == 0, "and nothing is left of it");
  }
};

/// Rule 4: in by one thread, out by another, perhaps on another processor, while it is being closed.
template <class Fence, class Sync>
struct fence_crosses_over {
  static constexpr unsigned roles = 3;
  Fence fence{"requests"};
  typename Fence::pass pass = fence.try_enter();
  typename Sync::template plain<int> work{0};

  void role(unsigned i) {
    if (i == 0) {
      work = 1;
      auto own = std::move(pass);
    } else if (i == 1) {
      if (auto own = fence.try_enter()) check(!fence.is_drained(), "somebody is inside");
    } else {
      fence.drain();
      check(work == 1, "what the leaver did is visible");
    }
  }
  void finish() { check(fence.is_drained() && fence.inside() == 0, "drained"); }
};

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_FENCE_RSEQ_HPP
