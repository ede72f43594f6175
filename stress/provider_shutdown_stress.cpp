// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// X12 and X13: two threads shut the provider down at once, and a third releases what it holds. Neither call returns
// before the teardown is over. c2 joined.

#include "stress/provider_scenario.hpp"

namespace {

struct twice : stress::provider_world {
  static constexpr unsigned roles = 3;

  explicit twice(stress::rng& random) : provider_world(random) {
    subject->acquire({"warm", "1"});
    held = subject->acquire({"held", "1"});
  }

  void role(unsigned i) {
    if (i < 2) {
      shut_down(false);
    } else {
      held.release();
    }
  }

  curfew::sandbox::lease held;
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<twice>(argc, argv, "provider_shutdown");
}
