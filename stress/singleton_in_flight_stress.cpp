// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// X1, X2 and X3: an instance is being made, nothing is installed yet, and a shutdown, a reset with a new configuration,
// or a seal comes in between. What was begun before is not current afterwards; sealed means sealed.

#include "stress/singleton_scenario.hpp"

namespace {

struct in_flight {
  static constexpr unsigned roles = 3;

  explicit in_flight(stress::rng& random) : verb(random.below(3)) {}

  void role(unsigned i) {
    if (i == 0) {
      asked_at = in.clock.fetch_add(1);
      switch (verb) {
        case 0:
          subject->shutdown();
          break;
        case 1:
          in.config.store(2);
          subject->reset();
          break;
        default:
          STRESS_CHECK(subject->seal());
          STRESS_CHECK(!subject->has_value());
      }
      return;
    }
    try {
      subject->get()->use();
    } catch (const curfew::singleton_sealed&) {
      STRESS_CHECK(verb == 2);
    }
  }

  void finish() {
    if (auto current = subject->try_get()) {
      STRESS_CHECK(verb != 2);
      STRESS_CHECK(current->born > asked_at);
      STRESS_CHECK(!current->torn());
      if (verb == 1) STRESS_CHECK(current->config == 2);
      stress::count(1);
    } else {
      STRESS_CHECK(in.torn.load() == in.made.load());
    }
    if (verb == 2) {
      bool refused = false;
      try {
        static_cast<void>(subject->get());
      } catch (const curfew::singleton_sealed&) {
        refused = true;
      }
      STRESS_CHECK(refused);
    }
    stress::count(0, subject->stats().stale);
    stress::settle(subject, in);
  }

  stress::books in;
  std::unique_ptr<stress::singleton> subject =
      std::make_unique<stress::singleton>("in flight", stress::probe_traits{&in});
  std::uint64_t verb;
  unsigned asked_at = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<stress::batch<in_flight>>(argc, argv, "singleton_in_flight");
}
