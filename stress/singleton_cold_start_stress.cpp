// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// S1, S5 and X4: several threads find no instance at once. One candidate becomes the instance of all of them; each of
// the others is torn down once and destroyed; and a teardown that throws does not reach a caller that has a healthy
// winner.

#include "stress/singleton_scenario.hpp"

namespace {

struct cold_start {
  static constexpr unsigned roles = 4;

  explicit cold_start(stress::rng& random) { in.teardown_throws = random.one_in(2); }

  void role(unsigned i) {
    try {
      got[i] = subject->get();
    } catch (...) {
      STRESS_CHECK(false && "get() threw although there is a winner");
    }
    got[i]->use();
  }

  void finish() {
    auto current = subject->try_get();
    STRESS_CHECK(current);
    STRESS_CHECK(!current->torn());
    for (auto& each : got) {
      if (!each) continue;
      STRESS_CHECK(each.get() == current.get());
      each.release();
    }
    current.release();
    const auto stats = subject->stats();
    STRESS_CHECK(stats.installed == 1 && stats.live == 1);
    STRESS_CHECK(stats.lost_races == stats.made - 1);
    STRESS_CHECK(in.torn.load() == in.made.load() - 1);
    STRESS_CHECK(in.destroyed.load() == in.made.load() - 1);
    stress::count(0, stats.lost_races);
    stress::settle(subject, in);
  }

  stress::books in;
  std::unique_ptr<stress::singleton> subject =
      std::make_unique<stress::singleton>("cold start", stress::probe_traits{&in});
  stress::singleton::handle got[roles];
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<stress::batch<cold_start>>(argc, argv, "singleton_cold_start");
}
