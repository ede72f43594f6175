// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/slot_ledger.hpp>

#include <tests/support/park.hpp>

#if CURFEW_POSIX
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace {

using namespace std::chrono_literals;
using curfew::slot_ledger;
using curfew::slot_outcome;
using curfew::slot_state;
using curfew_test::eventually;
using curfew_test::watchdog;

std::chrono::steady_clock::time_point in(std::chrono::nanoseconds d) {
  return std::chrono::steady_clock::now() + d;
}

TEST(SlotLedger, TheHardCapCountsEveryState) {
  slot_ledger ledger(5);
  std::vector<slot_ledger::slot> slots;
  for (const auto state :
       {slot_state::reserved, slot_state::active, slot_state::warm, slot_state::transitioning, slot_state::tombstone}) {
    slots.push_back(ledger.try_reserve());
    ASSERT_TRUE(slots.back());
    slots.back().become(state);
    EXPECT_EQ(slots.back().state(), state);
    EXPECT_EQ(ledger.census()[state], 1u);
  }
  EXPECT_EQ(ledger.census().total(), 5u);
  EXPECT_FALSE(ledger.try_reserve());
  slots.pop_back();
  EXPECT_TRUE(ledger.try_reserve());
}

TEST(SlotLedger, TheSoftCapGivesASlotInAnyCase) {
  slot_ledger ledger(1);
  const auto first = ledger.try_reserve();
  EXPECT_FALSE(ledger.try_reserve());
  const auto second = ledger.exceed();
  EXPECT_TRUE(second);
  EXPECT_EQ(ledger.census().total(), 2u);
}

TEST(SlotLedger, BurstIsASecondHardCap) {
  slot_ledger ledger(1, 1);
  const auto first = ledger.try_reserve();
  EXPECT_FALSE(ledger.try_reserve());
  const auto second = ledger.try_burst();
  EXPECT_TRUE(second);
  EXPECT_FALSE(ledger.try_burst());
}

TEST(SlotLedger, ALimitOfZeroIsRefused) {
  EXPECT_THROW(slot_ledger(0), std::invalid_argument);
}

TEST(SlotLedger, ASlotMovedToItsHeirIsNeverFreeInBetween) {
  slot_ledger ledger(1);
  auto victim = ledger.try_reserve();
  victim.become(slot_state::transitioning);
  slot_ledger::slot heir = std::move(victim);
  heir.become(slot_state::reserved);
  EXPECT_EQ(ledger.census().total(), 1u);
  EXPECT_FALSE(ledger.try_reserve());
  EXPECT_FALSE(victim);  // NOLINT: the moved-from state is what is tested
  victim.become(slot_state::active);
  EXPECT_EQ(ledger.census()[slot_state::active], 0u) << "an empty slot changes nothing";
  EXPECT_NE(victim.state(), slot_state::active);
}

TEST(SlotLedger, RacingRequestsNeverExceedTheCap) {
  watchdog dog("racing requests");
  slot_ledger ledger(3);
  std::atomic<int> inside{0}, peak{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const auto slot = ledger.try_reserve();
        if (!slot) continue;
        const int now = ++inside;
        for (int seen = peak; now > seen && !peak.compare_exchange_weak(seen, now);) {
        }
        --inside;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_LE(peak, 3);
  EXPECT_EQ(ledger.census().total(), 0u);
}

TEST(SlotLedger, TicketsAreGrantedInOrderAndNewcomersDoNotOvertake) {
  watchdog dog("tickets in order");
  slot_ledger ledger(1);
  auto slot = ledger.try_reserve();
  slot_ledger::ticket first(ledger);
  slot_ledger::ticket second(ledger);
  EXPECT_EQ(ledger.was_waiting(), 2u);
  EXPECT_EQ(first.wait_until({}), slot_outcome::timed_out);
  slot.release();
  EXPECT_FALSE(ledger.try_reserve()) << "the freed slot belongs to the head of the line";
  EXPECT_EQ(second.wait_until({}), slot_outcome::timed_out);
  EXPECT_EQ(first.wait_until({}), slot_outcome::granted);
  auto mine = first.take();
  EXPECT_TRUE(mine);
  EXPECT_FALSE(first.take());
  mine.release();
  EXPECT_EQ(second.wait_until({}), slot_outcome::granted);
}

TEST(SlotLedger, ATicketThatLeavesGivesItsGrantToTheNext) {
  watchdog dog("grant given back");
  slot_ledger ledger(1);
  auto slot = ledger.try_reserve();
  auto first = std::make_unique<slot_ledger::ticket>(ledger);
  slot_ledger::ticket second(ledger);
  slot.release();
  first.reset();  // granted and not taken
  EXPECT_EQ(second.wait_until({}), slot_outcome::granted);
  EXPECT_EQ(ledger.census().total(), 1u);
}

TEST(SlotLedger, AWaiterIsWokenByAFreedSlot) {
  watchdog dog("woken by a freed slot");
  slot_ledger ledger(1);
  auto slot = ledger.try_reserve();
  std::atomic<bool> got{false};
  std::thread waiter([&] {
    slot_ledger::ticket line(ledger);
    got = line.wait_until(in(1h)) == slot_outcome::granted;
  });
  ASSERT_TRUE(eventually([&] { return ledger.was_waiting() == 1; }));
  slot.release();
  waiter.join();
  EXPECT_TRUE(got);
}

TEST(SlotLedger, AWaiterIsToldOfAWarmSlotAndKeepsItsPlace) {
  watchdog dog("told of a warm slot");
  slot_ledger ledger(2);
  auto busy = ledger.try_reserve();
  auto parked = ledger.try_reserve();
  slot_ledger::ticket first(ledger);
  slot_ledger::ticket second(ledger);
  parked.become(slot_state::warm);
  EXPECT_EQ(second.wait_until({}), slot_outcome::timed_out) << "one warm slot is one waiter's";
  EXPECT_EQ(first.wait_until({}), slot_outcome::evictable);
  EXPECT_EQ(first.wait_until({}), slot_outcome::timed_out) << "told once";
  ledger.nudge();
  EXPECT_EQ(first.wait_until({}), slot_outcome::evictable) << "told again";
  busy.release();
  EXPECT_EQ(first.wait_until({}), slot_outcome::granted) << "the place in line was kept";
}

TEST(SlotLedger, WordOfAWarmSlotIsPassedOnByOneWhoDoesNotUseIt) {
  watchdog dog("word passed on");
  slot_ledger ledger(2);
  auto busy = ledger.try_reserve();
  auto parked = ledger.try_reserve();
  slot_ledger::ticket first(ledger);
  slot_ledger::ticket second(ledger);
  parked.become(slot_state::warm);  // tells the first
  busy.release();                   // and grants it, so it will not evict
  EXPECT_EQ(second.wait_until({}), slot_outcome::evictable);
}

TEST(SlotLedger, CloseWakesEverybodyInLineWithATypedRefusal) {
  watchdog dog("close");
  slot_ledger ledger(1);
  auto slot = ledger.try_reserve();
  std::atomic<int> refused{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back([&] {
      slot_ledger::ticket line(ledger);
      refused += line.wait_until(in(1h)) == slot_outcome::closed ? 1 : 0;
    });
  }
  ASSERT_TRUE(eventually([&] { return ledger.was_waiting() == 3; }));
  EXPECT_TRUE(ledger.close());
  EXPECT_FALSE(ledger.close());
  for (auto& w : waiters) w.join();
  EXPECT_EQ(refused, 3);
  EXPECT_FALSE(ledger.exceed());
  slot.become(slot_state::tombstone);
  EXPECT_EQ(ledger.census()[slot_state::tombstone], 1u) << "slots that are out stay valid";
}

#if CURFEW_POSIX
TEST(SlotLedger, AForkedChildMayDestroyItWhileThreadsOfTheParentWait) {
  watchdog dog("destroyed in the child");
  auto ledger = std::make_unique<slot_ledger>(1);
  auto taken = ledger->try_reserve();
  std::vector<std::thread> waiters;
  for (int t = 0; t < 2; ++t) {
    waiters.emplace_back([&] {
      slot_ledger::ticket line(*ledger);
      EXPECT_EQ(line.wait_until(in(60s)), slot_outcome::granted);
    });
  }
  EXPECT_TRUE(eventually([&] { return ledger->was_waiting() == 2; }));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    ledger.reset();
    ::_exit(0);
  }
  taken.release();
  for (auto& t : waiters) t.join();
  EXPECT_EQ(ledger->census().total(), 0u);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it hung, or ended with a message";
}
#endif

TEST(SlotLedgerDeathTest, DestroyedWhileASlotIsTakenEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto ledger = std::make_unique<slot_ledger>(1);
        auto slot = ledger->try_reserve();
        ledger.reset();
      },
      "slot_ledger destroyed while a slot is taken");
}

}  // namespace
