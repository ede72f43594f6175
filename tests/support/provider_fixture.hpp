// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the tests of the providers share: a policy with parks, threads with roles, owners, and a fixture with a world,
/// a clock and a lease store.

#ifndef CURFEW_TESTS_SUPPORT_PROVIDER_FIXTURE_HPP
#define CURFEW_TESTS_SUPPORT_PROVIDER_FIXTURE_HPP

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <curfew/sandbox/lease.hpp>

#include <tests/support/fake_backend.hpp>
#include <tests/support/park.hpp>

namespace curfew_test {

/// Parks at named points, and makes no thread when told so. One policy for all tests of a file: each further one would
/// instantiate the whole provider again.
struct provider_sync : park_sync {
  static inline std::atomic<bool> no_threads{false};
  struct thread : std::thread {
    thread() = default;
    template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, thread>) explicit thread(F&& f)
        : std::thread(std::forward<F>(checked(f))) {}

   private:
    template <class F>
    static F& checked(F& f) {
      if (no_threads) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      return f;
    }
  };
};

// Runs f on a thread of its own, under a name that parks can ask for. The function is erased before it reaches
// std::async, which would otherwise be instantiated anew for every lambda of a file.
template <class R>
CURFEW_NOINLINE std::future<R> run_in_role(const char* role, std::function<R()> f) {
  return std::async(std::launch::async, [role, f = std::move(f)] {
    role_scope scope(role);
    return f();
  });
}
template <class F>
auto in_role(const char* role, F f) {
  using result = std::invoke_result_t<F&>;
  return run_in_role<result>(role, [shared = std::make_shared<F>(std::move(f))]() -> result { return (*shared)(); });
}

inline const sb::owner_key alice{"alice", "1"};
inline const sb::owner_key bob{"bob", "1"};
inline const sb::owner_key carol{"carol", "1"};

/// What a hook refers to is declared before the provider: its destructor may still call hooks.
template <class Provider, class World, class Options>
struct provider_fixture : ::testing::Test {
  watchdog dog{::testing::UnitTest::GetInstance()->current_test_info()->name()};
  manual_clock clock;
  std::shared_ptr<World> world = std::make_shared<World>();
  std::shared_ptr<fake_store> store = std::make_shared<fake_store>(clock.fn());

  Options options() {
    Options o;
    o.clock = clock.fn();
    o.destroy_backoff = std::chrono::nanoseconds::zero();
    o.owner_id = "me";
    return o;
  }
  CURFEW_NOINLINE std::shared_ptr<Provider> make(Options o) {
    return std::make_shared<Provider>(world, std::move(o), store);
  }
  CURFEW_NOINLINE std::shared_ptr<Provider> make() { return make(options()); }

  CURFEW_NOINLINE static void quiet(const sb::provider_stats& s) {
    EXPECT_EQ(s.created + s.adopted, s.destroyed + s.forgotten + s.active + s.warm + s.transitioning + s.tombstones);
    EXPECT_EQ(s.reserved, 0u);
    EXPECT_EQ(s.transitioning, 0u);
  }
  bool peer_takes(const std::string& id) { return store->raw().take(id, "peer", std::chrono::hours(1)); }
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_PROVIDER_FIXTURE_HPP
