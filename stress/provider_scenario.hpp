// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the provider scenarios share: a world of sandboxes, and a provider whose points are noisy.

#ifndef CURFEW_STRESS_PROVIDER_SCENARIO_HPP
#define CURFEW_STRESS_PROVIDER_SCENARIO_HPP

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include <curfew/sandbox/aio.hpp>

#include "stress/support/stress.hpp"
#include "tests/support/fake_backend.hpp"

namespace stress {

using curfew::teardown_status;
using provider =
    curfew::sandbox::aio_provider<curfew_test::fake_backend, curfew::sandbox::memory_lease_store, noise_sync>;

struct provider_world {
  explicit provider_world(rng& random) : spin(random.below(400)) {
    // A create takes a while after its sandbox runs, and a destroy before it is gone: that is where the races are.
    world->after_create = [this](const std::string&) { linger(); };
    world->on_destroy = [this](const std::string&) {
      linger();
      return true;
    };
    curfew::sandbox::aio_options options;
    options.owner_id = "me";
    options.destroy_parallelism = 1;  // no threads of its own in every round
    subject = std::make_unique<provider>(world, options);
  }

  void linger() const {
    for (std::uint64_t i = 0; i < spin; ++i) curfew::std_sync::pause();
    if (spin % 4 == 0) curfew::std_sync::yield();
  }

  /// Acquires and uses. What is handed out after a shutdown has returned, or runs no more while it is valid, is wrong.
  void acquire(const char* user) {
    const bool late = stopped.load();
    try {
      auto held = subject->acquire({user, "1"});
      STRESS_CHECK(!late);
      // A valid lease is ended by nobody but the shutdown, and that not before it has begun.
      if (subject->accepting()) {
        const bool runs = world->runs(held.id());
        STRESS_CHECK(runs || !subject->accepting());
      }
      count(0);
    } catch (const curfew::admission_refused&) {
      count(1);
    }
  }

  void shut_down(bool must_join) {
    const auto status = subject->shutdown();
    // Whatever the call was told, the teardown is over now.
    STRESS_CHECK(status == teardown_status::completed || status == teardown_status::joined);
    STRESS_CHECK(!must_join || status == teardown_status::joined);
    STRESS_CHECK(world->running() == 0);
    stopped.store(true);
    if (status == teardown_status::joined) count(2);
  }

  void finish() {
    shut_down(true);
    const auto s = subject->stats();
    if (s.discarded != 0) count(3);
    STRESS_CHECK(s.total() == 0);
    STRESS_CHECK(s.created + s.adopted == s.destroyed + s.forgotten);
    STRESS_CHECK(world->creates() == s.created);
  }

  const std::uint64_t spin;
  std::shared_ptr<curfew_test::fake_backend> world = std::make_shared<curfew_test::fake_backend>();
  std::unique_ptr<provider> subject;
  std::atomic<bool> stopped{false};
};

}  // namespace stress

#endif  // CURFEW_STRESS_PROVIDER_SCENARIO_HPP
