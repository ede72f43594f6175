// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <curfew/sandbox/lease_store.hpp>

#include <tests/support/fake_backend.hpp>
#include <tests/support/park.hpp>

namespace {

using namespace std::chrono_literals;
using curfew::sandbox::memory_lease_store;
using curfew::sandbox::renewal;
using curfew_test::manual_clock;
using curfew_test::watchdog;

static_assert(curfew::sandbox::lease_store<memory_lease_store>);

struct LeaseStore : ::testing::Test {
  manual_clock clock;
  memory_lease_store store{clock.fn()};
};

TEST_F(LeaseStore, TakeIsTheAcquireSideAndTakesFromAPeer) {
  EXPECT_TRUE(store.take("x", "a", 10s));
  EXPECT_EQ(store.owner("x"), "a");
  EXPECT_TRUE(store.take("x", "b", 10s));
  EXPECT_EQ(store.owner("x"), "b");
}

TEST_F(LeaseStore, TakeIsRefusedOnlyWhileATeardownMarkIsInForce) {
  ASSERT_TRUE(store.claim("x", "a", 10s, true));
  EXPECT_FALSE(store.take("x", "b", 10s));
  EXPECT_FALSE(store.take("x", "a", 10s)) << "the owner's own mark refuses as well";
  clock.advance(10s);
  EXPECT_TRUE(store.take("x", "b", 10s)) << "a lapsed mark is no mark";
}

TEST_F(LeaseStore, ClaimOnlyWhenUnownedOrMine) {
  EXPECT_TRUE(store.claim("x", "a", 10s, false));
  EXPECT_FALSE(store.claim("x", "b", 10s, false));
  EXPECT_FALSE(store.claim("x", "b", 10s, true));
  EXPECT_TRUE(store.claim("x", "a", 10s, true));
  clock.advance(10s);
  EXPECT_TRUE(store.claim("x", "b", 10s, false)) << "lapsed is unowned";
}

TEST_F(LeaseStore, AClaimWithoutDestroyingNeverClearsTheMark) {
  ASSERT_TRUE(store.claim("x", "a", 10s, true));
  EXPECT_TRUE(store.claim("x", "a", 10s, false));
  EXPECT_FALSE(store.take("x", "b", 10s));
}

TEST_F(LeaseStore, ALapsedMarkDoesNotComeBackWithANewLease) {
  ASSERT_TRUE(store.claim("x", "a", 10s, true));
  clock.advance(10s);
  EXPECT_TRUE(store.claim("x", "a", 10s, false));
  EXPECT_TRUE(store.take("x", "b", 10s));
}

TEST_F(LeaseStore, RenewIsThreeWay) {
  EXPECT_EQ(store.renew("x", "a", 10s), renewal::lapsed);
  EXPECT_EQ(store.owner("x"), std::nullopt) << "a renewal makes no lease";
  store.take("x", "a", 10s);
  clock.advance(6s);
  EXPECT_EQ(store.renew("x", "a", 10s), renewal::renewed);
  clock.advance(6s);
  EXPECT_EQ(store.owner("x"), "a") << "extended from the renewal";
  EXPECT_EQ(store.renew("x", "b", 10s), renewal::lost);
  clock.advance(10s);
  EXPECT_EQ(store.renew("x", "a", 10s), renewal::lapsed);
}

TEST_F(LeaseStore, RenewKeepsTheMark) {
  store.claim("x", "a", 10s, true);
  clock.advance(6s);
  EXPECT_EQ(store.renew("x", "a", 10s), renewal::renewed);
  clock.advance(6s);
  EXPECT_FALSE(store.take("x", "b", 10s));
}

TEST_F(LeaseStore, ReleaseClearsLeaseAndMarkButOnlyMine) {
  store.claim("x", "a", 10s, true);
  store.release("x", "b");
  EXPECT_EQ(store.owner("x"), "a");
  store.release("x", "a");
  EXPECT_EQ(store.owner("x"), std::nullopt);
  EXPECT_TRUE(store.take("x", "b", 10s));
}

TEST_F(LeaseStore, AHugeTimeToLiveDoesNotOverflow) {
  EXPECT_TRUE(store.take("x", "a", std::chrono::nanoseconds::max()));
  clock.advance(1h);
  EXPECT_EQ(store.owner("x"), "a");
}

TEST_F(LeaseStore, OneOfManyClaimersWins) {
  watchdog dog("claimers");
  for (int round = 0; round < 100; ++round) {
    const std::string id = std::to_string(round);
    curfew_test::start_gate start(8);
    std::atomic<int> winners{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        winners += store.claim(id, std::to_string(i), 10s, false) ? 1 : 0;
      });
    }
    for (auto& t : threads) t.join();
    ASSERT_EQ(winners, 1);
  }
}

TEST_F(LeaseStore, TheClockIsCalledWithNothingLocked) {
  memory_lease_store* self = nullptr;
  int depth = 0;
  memory_lease_store reentrant([&] {
    if (depth++ == 0) static_cast<void>(self->owner("y"));
    return clock.now();
  });
  self = &reentrant;
  EXPECT_TRUE(reentrant.take("x", "a", 10s));
}

}  // namespace
