// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// X9: acquires are in the middle of creating while the provider is shut down. When shutdown() has returned nothing
// runs, no acquire that begins then succeeds, and every sandbox is in the books. c0 handed out, c1 refused, c3
// discarded.

#include "stress/provider_scenario.hpp"

namespace {

struct commit : stress::provider_world {
  static constexpr unsigned roles = 3;
  explicit commit(stress::rng& random) : provider_world(random), head_start(random.below(4000)) {}

  void role(unsigned i) {
    if (i == 0) {
      for (std::uint64_t n = 0; n < head_start; ++n) curfew::std_sync::pause();
      shut_down(false);
    } else {
      for (int n = 0; n < 2; ++n) acquire(i == 1 ? "alice" : "bob");
    }
  }

  const std::uint64_t head_start;
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<commit>(argc, argv, "provider_commit");
}
