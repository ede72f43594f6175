// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A hard cap of one, and three owners who each want their sandbox twice. Never are there two, also when stops fail; and
// when none does everybody is served, since everybody gives back. c0 served, c1 waited, c2 gave up.

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include <curfew/sandbox/e2b.hpp>

#include "stress/support/stress.hpp"
#include "tests/support/fake_rental.hpp"

namespace {

using provider =
    curfew::sandbox::e2b_provider<curfew_test::fake_rental, curfew::sandbox::memory_lease_store, stress::noise_sync>;

struct line {
  static constexpr unsigned roles = 3;

  explicit line(stress::rng& random) : failing(random.below(4) == 0) {
    world->on_destroy = [this](const std::string&) { return !failing || ++stops % 2 == 0; };
    curfew::sandbox::e2b_options options;
    options.replicas = 1;
    options.acquire_timeout = std::chrono::milliseconds(failing ? 1 : 2000);
    options.destroy_backoff = {};
    options.destroy_parallelism = 1;  // no threads of its own in every round
    options.destroy_attempts = 1;
    subject = std::make_unique<provider>(world, options);
  }

  void role(unsigned i) {
    for (int n = 0; n < 2; ++n) {
      try {
        auto held = subject->acquire({std::to_string(i), "1"});
        stress::count(0);
      } catch (const curfew::sandbox::capacity_exceeded&) {
        STRESS_CHECK(failing);
        stress::count(2);
      }
    }
  }

  void finish() {
    STRESS_CHECK(world->peak() == 1);
    if (subject->stats().waits != 0) stress::count(1);
    while (subject->shutdown() == curfew::teardown_status::failed) {
    }
    STRESS_CHECK(world->running() == 0);
  }

  const bool failing;
  std::atomic<int> stops{0};
  std::shared_ptr<curfew_test::fake_rental> world = std::make_shared<curfew_test::fake_rental>();
  std::unique_ptr<provider> subject;
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<line>(argc, argv, "provider_line");
}
