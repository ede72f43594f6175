// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// One thread starts (in half of the rounds it has done so before the race), one asks for the stop with an exit code,
// one sends a signal and waits; all three then stop. Whoever comes first, what has started is stopped exactly once and
// in reverse, everybody is told the same cause, and nobody returns from stop() before it is over.

#include <atomic>
#include <optional>
#include <string>

#include <curfew/ordered_lifespan.hpp>

#include "stress/support/stress.hpp"

namespace {

using lifespan = curfew::basic_ordered_lifespan<stress::noise_sync>;

curfew::lifespan_options options() {
  curfew::lifespan_options chosen;
  chosen.owned_signals = {};
  chosen.escalation_guard = std::chrono::hours(1);
  for (auto* budget : {&chosen.start_budget, &chosen.stop_budget, &chosen.stage_start, &chosen.stage_close,
                       &chosen.stage_drain, &chosen.stage_stop}) {
    *budget = std::chrono::minutes(10);  // nothing here is about time
  }
  return chosen;
}

struct scenario {
  static constexpr unsigned roles = 3;
  static constexpr int stages = 3;

  explicit scenario(stress::rng& random) : life_(options()) {
    const bool threads = random.one_in(4);
    for (int i = 0; i != stages; ++i) {
      auto& stage = life_.add(std::to_string(i));
      if (!threads) stage.on_controller();
      stage.start([this, i] { started_.fetch_or(1u << i); });
      stage.stop([this, i] {
        // Exactly once, and every later one is down already.
        if ((stopped_.fetch_or(1u << i) >> i) != (started_.load() >> (i + 1)) << 1) wrong_.store(true);
      });
    }
    if (random.one_in(2)) up_ = life_.start();
  }

  void role(unsigned i) {
    if (i == 0) {
      if (!up_) up_ = life_.start();
    } else if (i == 1) {
      first_ = life_.request_stop(curfew::stop_cause::requested, 11);
    } else {
      life_.simulate_signal(SIGTERM);
      waited_ = life_.wait();
    }
    const auto& report = life_.stop();
    if (life_.state() != curfew::lifespan_state::stopped) wrong_.store(true);
    causes_[i] = report.cause;
  }

  void finish() {
    STRESS_CHECK(!wrong_.load());
    STRESS_CHECK(started_.load() == stopped_.load());
    STRESS_CHECK(!up_ || started_.load() == (1u << stages) - 1);
    const auto cause = life_.report().cause;
    for (const auto told : causes_) STRESS_CHECK(told == cause);
    STRESS_CHECK(waited_ == cause);
    STRESS_CHECK(!first_ || cause == curfew::stop_cause::requested);
    const int code = life_.report().exit_code;
    STRESS_CHECK(code == 11 || (code == 0 && !first_));
    stress::count(up_ ? 0 : 1);
    stress::count(first_ ? 2 : 3);
  }

  lifespan life_;
  std::atomic<unsigned> started_{0};
  std::atomic<unsigned> stopped_{0};
  std::atomic<bool> wrong_{false};
  bool up_ = false;
  bool first_ = false;
  curfew::stop_cause waited_ = curfew::stop_cause::none;
  curfew::stop_cause causes_[roles] = {};
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<scenario>(argc, argv, "lifespan_stop");
}
