// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A signal arrives while a lifespan that has stopped is being reset. Whichever comes first, the signal came after the
// stop, so the next start must find it.

#include <curfew/ordered_lifespan.hpp>

#include "stress/support/stress.hpp"

namespace {

using lifespan = curfew::basic_ordered_lifespan<stress::noise_sync>;

struct scenario {
  static constexpr unsigned roles = 2;

  explicit scenario(stress::rng&) : life_(options()) {
    life_.request_stop();
    life_.start();
  }

  static curfew::lifespan_options options() {
    curfew::lifespan_options chosen;
    chosen.owned_signals = {};
    chosen.escalation_guard = std::chrono::hours(1);
    return chosen;
  }

  void role(unsigned i) {
    if (i == 0) {
      reset_ = life_.reset();
    } else {
      life_.simulate_signal(SIGTERM);
    }
  }

  void finish() {
    STRESS_CHECK(reset_);
    STRESS_CHECK(!life_.start());
    STRESS_CHECK(life_.report().cause == curfew::stop_cause::signal);
    STRESS_CHECK(life_.report().signal == SIGTERM);
  }

  lifespan life_;
  bool reset_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<scenario>(argc, argv, "lifespan_reset");
}
