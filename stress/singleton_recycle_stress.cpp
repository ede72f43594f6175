// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Stale getter vs recycle vs install: one thread has loaded the block of the first instance; another one resets, and
// makes the second instance in the same block. The entry of the first thread must not count before the second instance
// is installed: from then on there is no further change, so whoever has got it must find it current.

#include "stress/singleton_scenario.hpp"

namespace {

struct recycle {
  static constexpr unsigned roles = 3;

  explicit recycle(stress::rng&) { static_cast<void>(subject->get()); }

  void role(unsigned i) {
    if (i == 0) {
      subject->reset();
      static_cast<void>(subject->get());
      return;
    }
    for (;;) {
      auto mine = subject->get();
      const bool installed = subject->has_value();
      mine->use();
      if (mine->serial == 1) continue;
      STRESS_CHECK(installed);
      return;
    }
  }

  void finish() { stress::settle(subject, in); }

  stress::books in;
  std::unique_ptr<stress::singleton> subject =
      std::make_unique<stress::singleton>("recycle", stress::probe_traits{&in});
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<stress::batch<recycle>>(argc, argv, "singleton_recycle");
}
