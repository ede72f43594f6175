// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/keyed_serializer.hpp>

#include <tests/support/park.hpp>

#if CURFEW_POSIX
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace {

using namespace std::chrono_literals;
using curfew::serializer_outcome;
using curfew_test::eventually;
using curfew_test::gate;
using curfew_test::watchdog;
using serializer = curfew::keyed_serializer<std::string>;

TEST(KeyedSerializer, OneHolderPerKey) {
  watchdog dog("one holder per key");
  serializer keys;
  auto first = keys.acquire("a");
  EXPECT_TRUE(first);
  EXPECT_EQ(first.outcome(), serializer_outcome::acquired);
  const auto second = keys.try_acquire("a");
  EXPECT_FALSE(second);
  EXPECT_EQ(second.outcome(), serializer_outcome::busy);
  first.release();
  EXPECT_TRUE(keys.try_acquire("a"));
}

TEST(KeyedSerializer, ALimitBeyondTheClockIsNone) {
  watchdog dog("a limit beyond the clock");
  serializer keys;
  auto first = keys.acquire("a");
  const auto waits = [&](auto limit) {
    std::thread releasing([&] {
      EXPECT_TRUE(eventually([&] { return keys.was_waiting("a") == 1; }));
      first.release();
    });
    auto second = keys.acquire_for("a", limit);
    releasing.join();
    EXPECT_TRUE(second);
    first = std::move(second);
  };
  waits(std::chrono::hours::max());
  waits(std::chrono::duration<double>(1e300));
}

TEST(KeyedSerializer, KeysNeverWaitForEachOther) {
  watchdog dog("keys never wait");
  serializer keys;
  const auto a = keys.acquire("a");
  const auto b = keys.acquire("b");
  EXPECT_TRUE(b);
  EXPECT_EQ(keys.was_size(), 2u);
}

TEST(KeyedSerializer, AHoldIsNotBoundToAThread) {
  watchdog dog("not bound to a thread");
  serializer keys;
  auto hold = keys.acquire("a");
  std::thread([moved = std::move(hold)]() mutable { moved.release(); }).join();
  EXPECT_TRUE(keys.try_acquire("a"));
}

TEST(KeyedSerializer, WaitersAreServedFirstComeFirstServed) {
  watchdog dog("first come first served");
  serializer keys;
  auto hold = keys.acquire("a");
  std::vector<int> order;  // guarded by the key
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&, i] {
      const auto mine = keys.acquire("a");
      order.push_back(i);
    });
    ASSERT_TRUE(eventually([&] { return keys.was_waiting("a") == static_cast<std::size_t>(i) + 1; }));
  }
  hold.release();
  for (auto& w : waiters) w.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(KeyedSerializer, ATimedWaitGivenUpLeavesNothingBehind) {
  watchdog dog("timed wait");
  serializer keys;
  auto hold = keys.acquire("a");
  EXPECT_EQ(keys.acquire_for("a", 1ms).outcome(), serializer_outcome::timed_out);
  EXPECT_EQ(keys.acquire_for("a", -1s).outcome(), serializer_outcome::timed_out);
  EXPECT_EQ(keys.acquire_until("a", {}).outcome(), serializer_outcome::timed_out);
  EXPECT_EQ(keys.was_waiting("a"), 0u);
  hold.release();
  EXPECT_EQ(keys.was_size(), 0u);
  EXPECT_TRUE(keys.acquire_for("a", std::chrono::hours(1 << 20)));
}

TEST(KeyedSerializer, AnAbandonedWaiterInTheMiddleDoesNotBlockItsSuccessor) {
  watchdog dog("abandoned in the middle");
  serializer keys;
  auto hold = keys.acquire("a");
  gate given_up;
  std::atomic<int> served{0};
  std::thread first([&] { served += keys.acquire("a") ? 1 : 0; });
  ASSERT_TRUE(eventually([&] { return keys.was_waiting("a") == 1; }));
  std::thread middle([&] {
    EXPECT_FALSE(keys.acquire_for("a", 20ms));
    given_up.open();
  });
  ASSERT_TRUE(eventually([&] { return keys.was_waiting("a") == 2; }));
  std::thread last([&] { served += keys.acquire("a") ? 1 : 0; });
  ASSERT_TRUE(given_up.wait());
  ASSERT_TRUE(eventually([&] { return keys.was_waiting("a") == 2; }));
  hold.release();
  first.join();
  middle.join();
  last.join();
  EXPECT_EQ(served, 2);
}

TEST(KeyedSerializer, CloseRefusesNewcomersAndWakesWaitersButNotHolders) {
  watchdog dog("close");
  serializer keys;
  auto hold = keys.acquire("a");
  std::vector<std::thread> waiters;
  std::atomic<int> closed{0};
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] { closed += keys.acquire("a").outcome() == serializer_outcome::closed ? 1 : 0; });
  }
  ASSERT_TRUE(eventually([&] { return keys.was_waiting("a") == 3; }));
  EXPECT_TRUE(keys.close());
  EXPECT_FALSE(keys.close());
  for (auto& w : waiters) w.join();
  EXPECT_EQ(closed, 3);
  EXPECT_EQ(keys.acquire("b").outcome(), serializer_outcome::closed);
  EXPECT_EQ(keys.try_acquire("b").outcome(), serializer_outcome::closed);
  EXPECT_EQ(keys.acquire_for("b", 1h).outcome(), serializer_outcome::closed);
  EXPECT_TRUE(hold);
  EXPECT_FALSE(keys.try_acquire_closed("a")) << "the holder is still in there";
  hold.release();
  EXPECT_TRUE(keys.try_acquire_closed("a"));
}

TEST(KeyedSerializer, TheTableIsBoundedByTheKeysInUse) {
  serializer keys;
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(keys.acquire(std::to_string(i)));
  EXPECT_EQ(keys.was_size(), 0u);
}

TEST(KeyedSerializer, MovesKeepOneRight) {
  serializer keys;
  auto a = keys.acquire("a");
  auto b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT: the moved-from state is what is tested
  EXPECT_TRUE(b);
  b = keys.acquire("b");
  EXPECT_TRUE(keys.try_acquire("a")) << "assigning over a hold drops its key";
}

TEST(KeyedSerializer, AWaiterThatIsGrantedAtItsDeadlineHasTheKey) {
  // The grant is written before the waiter can look at the clock again: it must not be thrown away as a timeout, or the
  // key is lost for ever.
  watchdog dog("granted at the deadline");
  serializer keys;
  for (int round = 0; round < 300; ++round) {
    auto hold = keys.acquire("a");
    std::thread waiter([&] { static_cast<void>(keys.acquire_for("a", std::chrono::microseconds(round % 60))); });
    for (int i = 0; i < round % 40; ++i) std::this_thread::yield();
    hold.release();
    waiter.join();
    ASSERT_EQ(keys.was_size(), 0u) << "round " << round;
  }
}

TEST(KeyedSerializer, ManyThreadsOnFewKeysExcludeEachOther) {
  watchdog dog("storm");
  serializer keys;
  int plain[3] = {};  // each guarded by its key
  std::vector<std::thread> threads;
  std::atomic<int> entered{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const int k = (t + i) % 3;
        const auto hold = i % 5 == 0 ? keys.acquire_for(std::to_string(k), std::chrono::microseconds(50))
                                     : keys.acquire(std::to_string(k));
        if (!hold) continue;
        ++plain[k];
        ++entered;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(plain[0] + plain[1] + plain[2], entered.load());
  EXPECT_EQ(keys.was_size(), 0u);
}

#if CURFEW_POSIX
TEST(KeyedSerializer, AForkedChildMayDestroyItWhileThreadsOfTheParentWait) {
  watchdog dog("destroyed in the child");
  auto keys = std::make_unique<serializer>();
  auto held = keys->acquire("a");
  std::vector<std::thread> waiters;
  for (int t = 0; t < 2; ++t) waiters.emplace_back([&] { EXPECT_TRUE(keys->acquire("a")); });
  EXPECT_TRUE(eventually([&] { return keys->was_waiting("a") == 2; }));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    keys.reset();
    ::_exit(0);
  }
  held.release();
  for (auto& t : waiters) t.join();
  EXPECT_EQ(keys->was_size(), 0u);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it hung, or ended with a message";
}
#endif

TEST(KeyedSerializerDeathTest, DestroyedWhileHeldEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto keys = std::make_unique<serializer>();
        auto hold = keys->acquire("a");
        keys.reset();
      },
      "keyed_serializer destroyed while a key is held");
}

}  // namespace
