// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// S2, S3 and S4: threads use the current instance while another one resets it, shuts it down slowly, or sets a new one.
// What get() returns is an instance that nobody destroys under its user, and try_get() is never empty while set()
// replaces.

#include "stress/singleton_scenario.hpp"

namespace {

struct replace {
  static constexpr unsigned roles = 4;

  explicit replace(stress::rng& random) : verb(random.below(3)) { static_cast<void>(subject->get()); }

  void role(unsigned i) {
    if (i == 0) {
      switch (verb) {
        case 0:
          STRESS_CHECK(subject->reset());
          break;
        case 1:
          STRESS_CHECK(subject->shutdown());
          break;
        default:
          subject->set(std::make_unique<stress::probe>(in)).release();
          break;
      }
      auto after = subject->get();
      STRESS_CHECK(after->serial != 1);
      after->use();
      after.release();
      // The others let go sooner or later; drained means that the destructor has run.
      STRESS_CHECK(subject->drain_for(std::chrono::seconds(20)));
      STRESS_CHECK(in.destroyed.load() >= 1);
      return;
    }
    for (int round = 0; round < 3; ++round) {
      if (verb == 2) {
        auto peek = subject->try_get();
        STRESS_CHECK(peek);
        peek->use();
      }
      auto mine = subject->get();
      for (int look = 0; look < 20; ++look) mine->use();
      auto more = mine.clone();
      mine.release();
      more->use();
    }
  }

  void finish() { stress::settle(subject, in); }

  stress::books in;
  std::unique_ptr<stress::singleton> subject =
      std::make_unique<stress::singleton>("replace", stress::probe_traits{&in});
  std::uint64_t verb;
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<stress::batch<replace>>(argc, argv, "singleton_replace");
}
