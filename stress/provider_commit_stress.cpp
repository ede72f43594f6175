// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// X9: acquires are in the middle of creating while the provider is shut down. When shutdown() has returned nothing
// runs, no acquire that begins then succeeds, and every sandbox is in the books. c0 handed out, c1 refused, c3
// discarded.

#include "stress/provider_scenario.hpp"

namespace {

struct commit : stress::provider_world {
  static constexpr unsigned roles = 3;
  using provider_world::provider_world;

  void role(unsigned i) {
    if (i == 0) {
      shut_down(false);
    } else {
      for (int n = 0; n < 2; ++n) acquire(i == 1 ? "alice" : "bob");
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<commit>(argc, argv, "provider_commit");
}
