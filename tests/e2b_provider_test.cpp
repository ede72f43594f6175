// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What the e2b provider does beyond the engine, and that the engine's rules hold under it. The races that its upstream
// tests are in upstream_e2b_test.cpp.

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/sandbox/e2b.hpp>

#include <tests/support/fake_rental.hpp>
#include <tests/support/park.hpp>
#include <tests/support/provider_fixture.hpp>

namespace {

using namespace std::chrono_literals;
using namespace curfew::sandbox;
using curfew::admission_refused;
using curfew::teardown_status;
using curfew_test::alice;
using curfew_test::bob;
using curfew_test::carol;
using curfew_test::eventually;
using curfew_test::fake_rental;
using curfew_test::fake_store;
using curfew_test::gate;
using curfew_test::in_role;
using curfew_test::park;
using curfew_test::patience;

using provider = e2b_provider<fake_rental, fake_store, curfew_test::provider_sync>;

struct E2bProvider : curfew_test::provider_fixture<provider, fake_rental, e2b_options> {
  e2b_options capped(std::size_t replicas, overflow_policy overflow = overflow_policy::reject) {
    auto o = options();
    o.replicas = replicas;
    o.overflow = overflow;
    o.acquire_timeout = patience;
    return o;
  }
  static std::optional<capacity_reason> refusal(provider& p, const owner_key& owner) {
    try {
      static_cast<void>(p.acquire(owner));
    } catch (const capacity_exceeded& error) {
      return error.reason();
    }
    return std::nullopt;
  }
  std::size_t extensions(const std::string& id) const {
    const auto all = world->extended();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](auto& e) { return e.first == id; }));
  }
  // How often the store was asked; "claim!" is a claim that marks the end.
  std::size_t asked(const std::string& what) const {
    const auto log = store->log();
    return static_cast<std::size_t>(std::count(log.begin(), log.end(), what));
  }
  // One pass at first sight, one after the grace.
  reconcile_report settle(provider& p) {
    static_cast<void>(p.reconcile());
    clock.advance(2h);
    return p.reconcile();
  }
};

// ---- RE1, RE2: the cap and the line before it

TEST_F(E2bProvider, RE1_EveryStateCountsAndTheCapIsHard) {
  auto p = make(capped(2));
  auto in_use = p->acquire(alice);
  { auto kept = p->acquire(bob); }
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_EQ(refusal(*p, carol), capacity_reason::rejected) << "the warm one could not be ended, so it still counts";
  EXPECT_EQ(p->stats().tombstones, 1u);
  EXPECT_EQ(p->stats().total(), 2u);
  EXPECT_TRUE(p->acquire(alice).valid()) << "one's own needs no slot";
  world->on_destroy = nullptr;
  EXPECT_TRUE(p->acquire(carol).valid()) << "the tombstone was retried";
  EXPECT_EQ(world->peak(), 2u);
  quiet(p->stats());
}

TEST_F(E2bProvider, RE1_BurstAddsItsLimitAndNoMore) {
  auto o = capped(1, overflow_policy::burst);
  o.burst_limit = 1;
  auto p = make(o);
  auto first = p->acquire(alice);
  auto second = p->acquire(bob);
  try {
    static_cast<void>(p->acquire(carol));
    FAIL();
  } catch (const capacity_exceeded& error) {
    EXPECT_EQ(error.reason(), capacity_reason::burst_exhausted);
    EXPECT_EQ(error.limit(), 2u);
    EXPECT_EQ(error.retry_after(), 30s);
  }
  second.release();
  EXPECT_TRUE(p->acquire(carol).valid()) << "a warm one makes room under any policy";
  auto without = capped(1, overflow_policy::burst);
  without.owner_id = "other";
  auto q = make(without);
  auto only = q->acquire({"dave", "1"});
  EXPECT_EQ(refusal(*q, {"erin", "1"}), capacity_reason::burst_exhausted);
}

TEST_F(E2bProvider, RE1_RacingCreatesNeverExceedTheCap) {
  auto p = make(capped(2));
  curfew_test::start_gate start(6);
  std::atomic<int> refused{0};
  std::vector<std::future<lease>> acquiring;
  for (int i = 0; i < 6; ++i)
    acquiring.push_back(in_role("racer", [&, i] {
      start.arrive_and_wait();
      try {
        return p->acquire({"u", std::to_string(i)});
      } catch (const capacity_exceeded&) {
        ++refused;
        return lease();
      }
    }));
  std::vector<lease> held;
  for (auto& a : acquiring) held.push_back(a.get());
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(world->creates(), 2u);
  EXPECT_EQ(world->peak(), 2u);
}

TEST_F(E2bProvider, RE1_SixtyFourRacingAcquiresUnderAHardCap) {
  constexpr int racers = 64, cap = 8;
  auto p = make(capped(cap));
  auto race = [&](provider& of) {
    curfew_test::start_gate start(racers);
    std::vector<std::future<lease>> acquiring;
    for (int i = 0; i < racers; ++i)
      acquiring.push_back(in_role("racer", [&, i] {
        start.arrive_and_wait();
        try {
          return of.acquire({"u", std::to_string(i)});
        } catch (const capacity_exceeded&) {
          return lease();
        }
      }));
    std::vector<lease> held;
    for (auto& a : acquiring)
      if (auto one = a.get()) held.push_back(std::move(one));
    return held;
  };
  {
    const auto held = race(*p);
    EXPECT_EQ(held.size(), static_cast<std::size_t>(cap)) << "no slot unused, and none used twice";
    EXPECT_EQ(world->creates(), static_cast<std::size_t>(cap));
    EXPECT_EQ(p->stats().total(), static_cast<std::size_t>(cap));
  }
  p->shutdown();

  auto in_line = capped(cap, overflow_policy::wait);
  in_line.owner_id = "other";
  auto q = make(in_line);
  curfew_test::start_gate start(racers);
  std::vector<std::future<bool>> served;
  for (int i = 0; i < racers; ++i)
    served.push_back(in_role("racer", [&, i] {
      start.arrive_and_wait();
      return q->acquire({"u", std::to_string(i)}).valid();
    }));
  for (auto& one : served) EXPECT_TRUE(one.get());
  EXPECT_EQ(world->peak(), static_cast<std::size_t>(cap));
  quiet(q->stats());
}

TEST_F(E2bProvider, RE2_OneTombstoneIsRetriedBeforeAWarmOneIsEvicted) {
  auto p = make(capped(2));
  const std::string dead = p->acquire(alice).id();
  const std::string warm = p->acquire(bob).id();
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_FALSE(p->destroy(warm)) << "warm ones are known by their id too";
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{warm});
  world->on_destroy = nullptr;
  auto third = p->acquire(carol);
  EXPECT_FALSE(world->runs(warm));
  EXPECT_TRUE(world->runs(dead));
  EXPECT_EQ(p->stats().evicted, 0u);
  EXPECT_TRUE(p->acquire({"dave", "1"}).valid());
  EXPECT_FALSE(world->runs(dead)) << "the oldest warm one goes next";
  EXPECT_EQ(p->stats().evicted, 1u);
}

TEST_F(E2bProvider, RE2_TheOldestWarmOneIsEvicted) {
  auto p = make(capped(2));
  const std::string older = p->acquire(alice).id();
  clock.advance(1s);
  const std::string younger = p->acquire(bob).id();
  auto third = p->acquire(carol);
  EXPECT_FALSE(world->runs(older));
  EXPECT_TRUE(world->runs(younger));
}

TEST_F(E2bProvider, RE2_WaitersAreServedInTheOrderInWhichTheyCame) {
  auto p = make(capped(1, overflow_policy::wait));
  auto held = p->acquire({"u", "0"});
  std::mutex mutex;
  std::vector<std::string> served;
  std::vector<std::future<void>> waiting;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    waiting.push_back(in_role("waiter", [&, i] {
      auto mine = p->acquire({"u", std::to_string(i)});
      std::lock_guard lock(mutex);
      served.push_back(mine.owner().thread);
    }));
    ASSERT_TRUE(eventually([&] { return p->stats().waits == i; }));
  }
  held.release();
  for (auto& w : waiting) w.get();
  EXPECT_EQ(served, (std::vector<std::string>{"1", "2", "3", "4"}));
  EXPECT_EQ(world->peak(), 1u);
  EXPECT_EQ(p->stats().waits, 4u);
}

TEST_F(E2bProvider, RE2_ANewcomerThatEvictsDoesItForTheHeadOfTheLine) {
  auto p = make(capped(1, overflow_policy::wait));
  auto held = p->acquire(alice);
  park waiting("pool.room.waiting", "first");
  auto first = in_role("first", [&] { return p->acquire(bob); });
  ASSERT_TRUE(waiting.wait_arrived()) << "in line, and not looking";
  held.release();
  auto second = in_role("second", [&] { return p->acquire(carol); });
  ASSERT_TRUE(eventually([&] { return p->stats().evicted == 1; })) << "by the newcomer";
  EXPECT_EQ(second.wait_for(20ms), std::future_status::timeout);
  waiting.open();
  auto one = first.get();
  EXPECT_TRUE(one.valid());
  EXPECT_EQ(second.wait_for(0ms), std::future_status::timeout);
  one.release();
  EXPECT_TRUE(second.get().valid());
}

TEST_F(E2bProvider, RE2_ASlotThatIsFreedWakesAWaiter) {
  auto p = make(capped(1, overflow_policy::wait));
  auto held = p->acquire(alice);
  auto waiting = in_role("waiter", [&] { return p->acquire(bob); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  EXPECT_TRUE(p->destroy(held.id()));
  EXPECT_TRUE(waiting.get().valid());
  EXPECT_FALSE(held.valid());
}

TEST_F(E2bProvider, RE2_AWarmOneThatWasBusyWhenAWaiterLookedIsOfferedAgain) {
  gate probing, go;
  auto o = capped(1, overflow_policy::wait);
  auto p = make(o);
  const std::string id = p->acquire(alice).id();
  world->on_list_within = [&](const list_budget&) {
    world->on_probe = [&](const std::string&) {
      probing.open();
      return go.wait() ? liveness::alive : liveness::unknown;
    };
    world->stop(id);  // missing from the inventory, so the reconciler probes it with its key held
    return true;
  };
  auto reconciling = in_role("reconciler", [&] { return p->reconcile(); });
  ASSERT_TRUE(probing.wait());
  auto waiting = in_role("waiter", [&] { return p->acquire(bob); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  go.open();
  EXPECT_EQ(reconciling.get().expired, 0u) << "it answered after all";
  EXPECT_TRUE(waiting.get().valid());
  EXPECT_EQ(p->stats().evicted, 1u);
}

TEST_F(E2bProvider, RE2_AVictimThatWasRefusedIsNotHammeredByAWaiter) {
  auto o = capped(1, overflow_policy::wait);
  o.acquire_timeout = 60ms;
  auto p = make(o);
  const std::string id = p->acquire(alice).id();
  ASSERT_TRUE(peer_takes(id));
  EXPECT_EQ(refusal(*p, bob), capacity_reason::timed_out);
  EXPECT_EQ(asked("claim! " + id), 1u);
  EXPECT_EQ(p->stats().warm, 1u);
}

TEST_F(E2bProvider, RE2_AVictimThatWasRefusedAndHasBeenUsedSinceIsTriedAgain) {
  auto p = make(capped(1, overflow_policy::wait));
  const std::string id = p->acquire(alice).id();
  ASSERT_TRUE(peer_takes(id));
  auto waiting = in_role("bob", [&] { return p->acquire(bob); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  EXPECT_EQ(asked("claim! " + id), 1u);
  clock.advance(1s);
  EXPECT_EQ(p->acquire(alice).id(), id);  // takes it back, and parks it anew
  ASSERT_EQ(waiting.wait_for(patience / 2), std::future_status::ready) << "nobody else would make room for him";
  EXPECT_TRUE(waiting.get().valid());
  EXPECT_FALSE(world->runs(id));
}

TEST_F(E2bProvider, R11_R15_ALeftoverThatComesAfterTheBudgetIsEndedByItsOwnThread) {
  gate creating, answer;
  world->on_create = [&](const create_request&) {
    creating.open();
    EXPECT_TRUE(answer.wait());
    world->run_for("vm-lost", "");
    throw backend_error(backend_fault::ambiguous, "no answer", "vm-lost");
  };
  auto o = options();
  o.shutdown_budget = 0s;
  auto p = make(o);
  auto acquiring = in_role("alice", [&] { return p->acquire(alice); });
  ASSERT_TRUE(creating.wait());
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  answer.open();
  EXPECT_THROW(acquiring.get(), backend_error);
  EXPECT_FALSE(world->runs("vm-lost"));
  EXPECT_EQ(p->stats().total(), 0u);
  quiet(p->stats());
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
}

TEST_F(E2bProvider, RE2_ATombstoneIsNotHammeredByAWaiter) {
  auto o = capped(1, overflow_policy::wait);
  o.acquire_timeout = 60ms;
  auto p = make(o);
  auto held = p->acquire(alice);
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_FALSE(p->destroy(held.id()));
  EXPECT_EQ(refusal(*p, bob), capacity_reason::timed_out);
  EXPECT_EQ(world->destroys().size(), 2 * o.destroy_attempts);
}

// ---- RE3: ids

TEST_F(E2bProvider, RE3_TheServersIdIsTheOneAndTheRequestTravelsAlong) {
  std::optional<create_request> sent;
  world->on_create = [&](const create_request& r) { sent = r; };
  auto o = options();
  o.environment = {{"K", "v"}};
  o.idle_timeout = 90s;
  auto p = make(o);
  auto held = p->acquire(alice);
  EXPECT_EQ(held.id(), "vm-1");
  EXPECT_EQ(held.info().request_id, stable_id(alice));
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->id, stable_id(alice));
  EXPECT_EQ(sent->owner, alice);
  EXPECT_EQ(sent->environment, o.environment);
  EXPECT_EQ(sent->time_to_live, 90s);
  EXPECT_EQ(p->get("vm-1").value().endpoint, "https://vm-1");
  EXPECT_EQ(p->get(stable_id(alice)), std::nullopt);
  EXPECT_FALSE(p->destroy(stable_id(alice)));
  EXPECT_TRUE(p->destroy("vm-1"));
  EXPECT_EQ(p->acquire(alice).id(), "vm-2");
}

TEST_F(E2bProvider, RE3_ABackendThatAnswersWithoutTheRequestIsFilledIn) {
  world->name_it = [](const create_request&) { return sandbox_info{"vm-x", "https://x"}; };
  auto p = make();
  EXPECT_EQ(p->acquire(alice).info().request_id, stable_id(alice));
}

// ---- RE4: time limits

TEST_F(E2bProvider, RE4_EveryUseAndTheLastReleaseBeginTheTimeLimitAnew) {
  auto p = make();
  auto held = p->acquire(alice);
  EXPECT_EQ(extensions("vm-1"), 0u) << "create carries it";
  auto again = p->acquire(alice);
  EXPECT_EQ(extensions("vm-1"), 1u) << "reuse";
  again.release();
  EXPECT_EQ(extensions("vm-1"), 1u) << "not the last";
  held.release();
  EXPECT_EQ(extensions("vm-1"), 2u) << "before parking";
  held = p->acquire(alice);
  EXPECT_EQ(extensions("vm-1"), 3u) << "reclaim";
  static_cast<void>(p->get("vm-1"));
  EXPECT_TRUE(held.touch());
  EXPECT_EQ(extensions("vm-1"), 3u);
  world->run_for("vm-b", stable_id(bob));
  auto found = p->acquire(bob);
  EXPECT_EQ(extensions("vm-b"), 1u) << "discovery";
  world->run_for("vm-c", stable_id(carol));
  EXPECT_EQ(settle(*p).adopted, 1u);
  EXPECT_EQ(extensions("vm-c"), 1u) << "adoption";
  EXPECT_EQ(world->extended().front().second, 1800s);
}

TEST_F(E2bProvider, RE4_GoneAtReuseOrReclaimIsReplaced) {
  auto p = make();
  auto held = p->acquire(alice);
  world->on_set_timeout = [](const std::string& id) { return id == "vm-3"; };
  auto again = p->acquire(alice);
  EXPECT_EQ(again.id(), "vm-2");
  EXPECT_FALSE(held.valid());
  EXPECT_TRUE(again.valid());
  world->on_set_timeout = nullptr;
  again.release();
  world->on_set_timeout = [](const std::string&) { return false; };
  auto third = p->acquire(alice);
  EXPECT_EQ(third.id(), "vm-3");
  EXPECT_EQ(p->stats().replaced, 2u);
  EXPECT_EQ(p->stats().created, 3u);
  EXPECT_EQ(world->peak(), 1u) << "the slot of the old one is the slot of the new one";
  quiet(p->stats());
}

TEST_F(E2bProvider, RE4_GoneAtReleaseIsForgottenAndNotDestroyed) {
  auto p = make();
  auto held = p->acquire(alice);
  world->on_set_timeout = [](const std::string&) { return false; };
  held.release();
  EXPECT_EQ(p->stats().forgotten, 1u);
  EXPECT_EQ(p->stats().total(), 0u);
  EXPECT_TRUE(world->destroys().empty());
  EXPECT_EQ(store->raw().owner("vm-1"), std::nullopt);
  quiet(p->stats());
}

TEST_F(E2bProvider, RE4_GoneAtDiscoveryIsReplacedAndAtAdoptionLeftAlone) {
  auto p = make();
  world->on_set_timeout = [](const std::string&) { return false; };
  world->run_for("vm-b", stable_id(bob));
  EXPECT_EQ(p->acquire(bob).id(), "vm-1");
  EXPECT_EQ(p->stats().replaced, 1u);
  world->run_for("vm-c", stable_id(carol));
  EXPECT_EQ(settle(*p).adopted, 0u);
  EXPECT_EQ(store->raw().owner("vm-c"), std::nullopt);
  quiet(p->stats());
}

TEST_F(E2bProvider, RE4_AThrowIsNoVerdict) {
  auto p = make();
  world->on_set_timeout = [](const std::string&) -> bool { throw backend_error(backend_fault::unavailable, "away"); };
  { auto held = p->acquire(alice); }
  EXPECT_EQ(p->stats().warm, 1u);
  EXPECT_EQ(p->acquire(alice).id(), "vm-1");
  EXPECT_EQ(p->stats().backend_errors, 3u);
}

TEST_F(E2bProvider, RE4_TheLimitIsClampedToADayAndZeroAsksForNothing) {
  auto o = options();
  o.idle_timeout = 100h;
  {
    auto p = make(o);
    auto held = p->acquire(alice);
  }
  ASSERT_FALSE(world->extended().empty());
  EXPECT_EQ(world->extended().back().second, 86400s);
  const auto before = world->extended().size();
  for (const auto none : {0s, -5s}) {
    std::optional<create_request> sent;
    world->on_create = [&](const create_request& r) { sent = r; };
    o.idle_timeout = none;
    auto p = make(o);
    { auto held = p->acquire(alice); }
    { auto held = p->acquire(alice); }
    EXPECT_EQ(sent.value().time_to_live, 0s);
    clock.advance(100h);
    EXPECT_EQ(p->sweep_idle(), 0u);
    world->on_create = nullptr;
  }
  EXPECT_EQ(world->extended().size(), before);
}

TEST_F(E2bProvider, RE4_AnonymousOnesAreEndedWithoutALastExtension) {
  auto p = make();
  { auto held = p->acquire({"alice", ""}); }
  EXPECT_TRUE(world->extended().empty());
  EXPECT_EQ(world->running(), 0u);
}

// ---- RE5

TEST_F(E2bProvider, RE5_WarmOnesAreReapedAndActiveOnesAreTheServers) {
  auto p = make();
  auto in_use = p->acquire(alice);
  { auto kept = p->acquire(bob); }
  clock.advance(1800s);
  EXPECT_EQ(p->sweep_idle(), 0u) << "not older than the limit yet";
  clock.advance(1s);
  EXPECT_EQ(p->sweep_idle(), 1u);
  EXPECT_TRUE(in_use.valid());
  EXPECT_FALSE(world->runs("vm-2"));
  EXPECT_EQ(p->stats().idle_reaped, 1u);
}

// ---- RE6, RE7: reconciling

TEST_F(E2bProvider, RE6_WhatIsMissingAndDeadIsForgotten) {
  auto p = make();
  auto a = p->acquire(alice);
  auto b = p->acquire(bob);
  world->stop("vm-1");
  world->stop("vm-2");
  world->on_probe = [](const std::string& id) { return id == "vm-1" ? liveness::dead : liveness::unknown; };
  const auto report = p->reconcile();
  EXPECT_EQ(report.expired, 1u);
  EXPECT_TRUE(report.complete);
  EXPECT_FALSE(a.valid());
  EXPECT_TRUE(b.valid()) << "missing, and nobody can say";
  EXPECT_TRUE(world->destroys().empty());
  quiet(p->stats());
}

TEST_F(E2bProvider, RE6_ASecondOneOfATrackedRequestIsEndedAfterTheGrace) {
  auto p = make();
  auto held = p->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  EXPECT_EQ(p->reconcile().duplicates_destroyed, 0u) << "first sight";
  clock.advance(119s);
  EXPECT_EQ(p->reconcile().duplicates_destroyed, 0u);
  clock.advance(1s);
  const auto report = p->reconcile();
  EXPECT_EQ(report.duplicates_destroyed, 1u);
  EXPECT_EQ(report.listed, 2u);
  EXPECT_FALSE(world->runs("vm-0"));
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(asked("claim! vm-0"), 1u);
  EXPECT_EQ(store->raw().owner("vm-0"), std::nullopt);
  EXPECT_EQ(p->stats().destroyed, 0u) << "it never was one of ours";
  quiet(p->stats());
}

TEST_F(E2bProvider, RE6_APausedDuplicateIsEndedToo) {
  auto p = make();
  auto held = p->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  world->on_probe = [](const std::string& id) { return id == "vm-0" ? liveness::dead : liveness::alive; };
  EXPECT_EQ(settle(*p).duplicates_destroyed, 1u);
  EXPECT_FALSE(world->runs("vm-0"));
}

TEST_F(E2bProvider, RE6_ADuplicateThatAPeerOwnsIsLeftAlone) {
  auto p = make();
  auto held = p->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  static_cast<void>(p->reconcile());
  ASSERT_TRUE(peer_takes("vm-0"));
  clock.advance(10min);
  EXPECT_EQ(p->reconcile().duplicates_destroyed, 0u);
  store->raw().release("vm-0", "peer");
  EXPECT_EQ(p->reconcile().duplicates_destroyed, 0u) << "an owner seen starts the grace over";
  clock.advance(120s);
  EXPECT_EQ(p->reconcile().duplicates_destroyed, 1u);
}

TEST_F(E2bProvider, RE6_ADuplicateOfATombstoneIsLeftAlone) {
  auto o = options();
  auto p = make(o);
  auto held = p->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  world->on_destroy = [](const std::string& id) { return id == "vm-0"; };
  EXPECT_FALSE(p->destroy("vm-1"));
  EXPECT_EQ(settle(*p).duplicates_destroyed, 0u) << "it may be the only one its owner has left";
  EXPECT_TRUE(world->runs("vm-0"));
  world->on_destroy = nullptr;
}

TEST_F(E2bProvider, RE6_WithoutARequestItIsEndedAfterItsTimeToLive) {
  auto p = make();
  world->run_for("vm-0", "");
  EXPECT_EQ(p->reconcile().orphans_destroyed, 0u);
  clock.advance(3599s);
  EXPECT_EQ(p->reconcile().orphans_destroyed, 0u);
  clock.advance(1s);
  const auto report = p->reconcile();
  EXPECT_EQ(report.orphans_destroyed, 1u);
  EXPECT_EQ(report.adopted, 0u);
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(E2bProvider, RE6_AnIncompleteInventoryAdoptsAtMost) {
  auto p = make();
  auto held = p->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  world->run_for("vm-x", "");
  world->run_for("vm-b", stable_id(bob));
  world->on_list_within = [](const list_budget&) { return false; };
  world->on_probe = [](const std::string&) { return liveness::dead; };
  world->stop("vm-1");
  const auto report = settle(*p);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.adopted, 1u);
  EXPECT_EQ(report.duplicates_destroyed + report.orphans_destroyed + report.expired, 0u);
  EXPECT_TRUE(world->destroys().empty());
  EXPECT_TRUE(held.valid());
}

TEST_F(E2bProvider, RE6_AnInventoryThatThrowsDoesNothing) {
  auto p = make();
  auto held = p->acquire(alice);
  world->stop("vm-1");
  world->on_list = [] { throw std::runtime_error("list"); };
  const auto report = p->reconcile();
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.listed, 0u);
  EXPECT_TRUE(held.valid());
  EXPECT_EQ(p->stats().backend_errors, 1u);
}

TEST_F(E2bProvider, RE6_TheBoundsTravelAndHoldForTheWholePass) {
  auto o = options();
  o.inventory = {.max_pages = 7, .max_items = 3, .max_time = 1h};
  auto p = make(o);
  std::optional<list_budget> asked_for;
  world->on_list_within = [&](const list_budget& budget) {
    asked_for = budget;
    return true;
  };
  for (int i = 0; i < 5; ++i) world->run_for("vm-0" + std::to_string(i), "");
  auto report = settle(*p);
  EXPECT_EQ(asked_for.value().max_pages, 7u);
  EXPECT_EQ(asked_for.value().max_items, 3u);
  EXPECT_EQ(asked_for.value().max_time, 1h);
  EXPECT_EQ(report.listed, 3u) << "more than were asked for";
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.orphans_destroyed, 0u);

  o.inventory = {.max_pages = 7, .max_items = 30, .max_time = 0ns};
  auto q = make(o);
  report = settle(*q);
  EXPECT_FALSE(report.complete) << "the time was up before it could act";
  EXPECT_EQ(report.orphans_destroyed, 0u);
}

TEST_F(E2bProvider, RE6_WhatLooksUpASilentDuplicateHasTheRestOfThePass) {
  auto o = options();
  o.inventory.max_time = 1h;
  auto p = make(o);
  auto held = p->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  world->on_probe = [](const std::string& id) { return id == "vm-0" ? liveness::dead : liveness::alive; };
  std::vector<std::chrono::nanoseconds> spans;
  world->on_list_within = [&](const list_budget& budget) {
    spans.push_back(budget.max_time);
    return true;
  };
  EXPECT_EQ(settle(*p).duplicates_destroyed, 1u);
  ASSERT_EQ(spans.size(), 3u) << "one to see it, one to end it, one to look it up";
  EXPECT_EQ(spans[1], 1h);
  EXPECT_LT(spans[2], 1h);
  EXPECT_GT(spans[2], 0s);
}

TEST_F(E2bProvider, RE7_AdoptionNeedsTheGraceAndAFreeSlot) {
  auto p = make(capped(1, overflow_policy::wait));
  const std::string warm = p->acquire(alice).id();
  world->run_for("vm-b", stable_id(bob));
  EXPECT_EQ(settle(*p).adopted, 0u) << "no slot; it neither waits nor evicts";
  EXPECT_TRUE(world->runs(warm));
  EXPECT_TRUE(p->destroy(warm));
  const auto report = p->reconcile();
  EXPECT_EQ(report.adopted, 1u);
  EXPECT_EQ(p->stats().warm, 1u);
  EXPECT_EQ(p->acquire(bob).id(), "vm-b");
  EXPECT_EQ(p->stats().reclaimed, 1u);
  quiet(p->stats());
}

TEST_F(E2bProvider, RE7_AliveFirstThenTheSmallestId) {
  auto p = make();
  for (const auto* id : {"vm-4", "vm-3", "vm-2", "vm-1x"}) world->run_for(id, stable_id(bob));
  world->on_probe = [](const std::string& id) {
    return id == "vm-1x" ? liveness::dead : id == "vm-2" ? liveness::unknown : liveness::alive;
  };
  const auto report = settle(*p);
  EXPECT_EQ(report.adopted, 1u);
  EXPECT_EQ(report.duplicates_destroyed, 3u) << "its request is tracked now";
  EXPECT_EQ(world->running(), 1u);
  world->on_probe = nullptr;
  EXPECT_EQ(p->acquire(bob).id(), "vm-3");
}

TEST_F(E2bProvider, RE7_TheNextCandidateIsTakenWhenTheFirstIsGone) {
  auto p = make();
  world->run_for("vm-1x", stable_id(bob));
  world->run_for("vm-2x", stable_id(bob));
  world->on_set_timeout = [](const std::string& id) { return id == "vm-2x"; };
  EXPECT_EQ(settle(*p).adopted, 1u);
  EXPECT_EQ(p->acquire(bob).id(), "vm-2x");
}

TEST_F(E2bProvider, RE7_ARequestThatAPeerServesIsNotAdopted) {
  auto p = make();
  world->run_for("vm-1x", stable_id(bob));
  world->run_for("vm-2x", stable_id(bob));
  ASSERT_TRUE(store->raw().take("vm-2x", "peer", 24h));
  EXPECT_EQ(settle(*p).adopted, 0u);
  EXPECT_EQ(world->running(), 2u);
}

TEST_F(E2bProvider, RE7_AdoptionCanBeTurnedOff) {
  auto o = options();
  o.adopt_orphans = false;
  auto p = make(o);
  world->run_for("vm-b", stable_id(bob));
  EXPECT_EQ(settle(*p).adopted, 0u);
}

TEST_F(E2bProvider, RE7_AnAdoptedOneIsOfferedToWhoeverWaits) {
  auto p = make(capped(2, overflow_policy::wait));
  auto a = p->acquire(alice);
  auto b = p->acquire(bob);
  auto waiting = in_role("waiter", [&] { return p->acquire(carol); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  world->run_for("vm-d", stable_id({"dave", "1"}));
  EXPECT_EQ(settle(*p).adopted, 0u) << "no slot is free while somebody waits";
  b.release();
  EXPECT_TRUE(waiting.get().valid());
}

TEST_F(E2bProvider, RE7_E24_TwoPassesOfOneProviderEndADuplicateOnce) {
  auto p = make();
  auto held = p->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  static_cast<void>(p->reconcile());
  clock.advance(1h);
  park claimed("pool.stray.claimed", "first");
  auto first = in_role("first", [&] { return p->reconcile(); });
  ASSERT_TRUE(claimed.wait_arrived());
  EXPECT_EQ(p->reconcile().duplicates_destroyed, 0u) << "the key of its request is held";
  claimed.open();
  EXPECT_EQ(first.get().duplicates_destroyed, 1u);
  EXPECT_EQ(world->destroys(), std::vector<std::string>{"vm-0"});
}

TEST_F(E2bProvider, R16_TheMarkOnADuplicateIsRenewedWhileItsDestroyRuns) {
  auto o = options();
  o.renewal_interval = 1ms;
  o.ttl_multiplier = 60'000;  // 60 s on the test's clock
  o.orphan_grace = 0ns;
  auto p = make(o);
  auto held = p->acquire(alice);
  p->start();
  ASSERT_TRUE(eventually([&] { return world->lists() == 1; })) << "the worker's first pass has looked";
  world->run_for("vm-0", stable_id(alice));
  static_cast<void>(p->reconcile());
  int taken = 0;
  world->on_destroy = [&](const std::string& id) {
    for (int i = 0; i < 3 && id == "vm-0"; ++i) {
      clock.advance(50s);
      const auto renewals = asked("renew vm-0");
      EXPECT_TRUE(eventually([&] { return asked("renew vm-0") > renewals + 1; }));
      if (peer_takes(id)) ++taken;
    }
    return true;
  };
  EXPECT_EQ(p->reconcile().duplicates_destroyed, 1u);
  EXPECT_EQ(taken, 0);
  EXPECT_EQ(store->raw().owner("vm-0"), std::nullopt);
}

// ---- RE8

TEST_F(E2bProvider, RE8_DiscoveryHasItsSlotBeforeItLooks) {
  auto p = make(capped(1));
  auto held = p->acquire(alice);
  world->run_for("vm-b", stable_id(bob));
  const auto finds = world->finds();
  EXPECT_EQ(refusal(*p, bob), capacity_reason::rejected);
  EXPECT_EQ(world->finds(), finds);
  held.release();
  EXPECT_EQ(p->acquire(bob).id(), "vm-b");
  EXPECT_EQ(p->stats().adopted, 1u);
  quiet(p->stats());
}

TEST_F(E2bProvider, RE8_ATeardownMarkOfAPeerIsAConflictAndAThrowFindsNothing) {
  auto p = make();
  world->run_for("vm-b", stable_id(bob));
  ASSERT_TRUE(store->raw().claim("vm-b", "peer", 1h, true));
  EXPECT_THROW(static_cast<void>(p->acquire(bob)), backend_error);
  EXPECT_EQ(p->stats().total(), 0u);
  world->on_find = [](const std::string&) { throw std::runtime_error("find"); };
  EXPECT_EQ(p->acquire(carol).id(), "vm-1");
}

// ---- the engine's rules under this provider

TEST_F(E2bProvider, R1_AProviderThatWasNeverUsedTouchesNothing) {
  world->run_for("vm-0", "");
  {
    auto p = make();
    EXPECT_EQ(p->shutdown(), teardown_status::completed);
  }
  { auto destroyed_only = make(); }
  EXPECT_EQ(world->calls() + world->finds() + store->calls(), 0u);
}

TEST_F(E2bProvider, R2_R13_AfterTheEndNothingIsAskedOfAnybody) {
  for (const bool soft : {false, true}) {
    auto p = make();
    soft ? p->reset() : static_cast<void>(p->shutdown());
    EXPECT_THROW(static_cast<void>(p->acquire(alice)), admission_refused);
    EXPECT_THROW(p->start(), admission_refused);
    EXPECT_EQ(p->sweep_idle(), 0u);
    EXPECT_FALSE(p->reconcile().complete);
    EXPECT_FALSE(p->destroy("vm-1"));
    EXPECT_EQ(p->shutdown(), teardown_status::joined);
  }
  EXPECT_EQ(world->calls() + world->finds() + world->extended().size() + store->calls(), 0u);
}

TEST_F(E2bProvider, R4_AnAcquireThatMeetsItsOwnTeardownCreatesAfresh) {
  auto p = make(capped(1));
  { auto held = p->acquire(alice); }
  clock.advance(1h);
  park reaping("pool.teardown.marked");
  auto reaper = in_role("reaper", [&] { return p->sweep_idle(); });
  ASSERT_TRUE(reaping.wait_arrived());
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  EXPECT_EQ(acquiring.wait_for(20ms), std::future_status::timeout);
  reaping.open();
  EXPECT_EQ(reaper.get(), 1u);
  EXPECT_EQ(acquiring.get().id(), "vm-2");
  EXPECT_EQ(world->peak(), 1u);
}

TEST_F(E2bProvider, R5_R6_OneSandboxForAllLeasesOfAnOwnerAndNoListForItsOwn) {
  auto p = make();
  auto first = p->acquire(alice);
  auto second = p->acquire(alice);
  EXPECT_EQ(first.id(), second.id());
  const auto looked = world->lists() + world->finds();
  first.release();
  EXPECT_EQ(p->stats().active, 1u);
  second.release();
  EXPECT_EQ(p->stats().warm, 1u);
  first = p->acquire(alice);
  EXPECT_EQ(world->lists() + world->finds(), looked);
  EXPECT_EQ(world->creates(), 1u);
}

TEST_F(E2bProvider, R7_DeadIsReplacedWithinTheCapAndUnknownIsKept) {
  auto p = make(capped(1));
  { auto held = p->acquire(alice); }
  world->on_probe = [](const std::string&) { return liveness::unknown; };
  EXPECT_EQ(p->acquire(alice).id(), "vm-1");
  world->on_probe = [](const std::string&) { return liveness::dead; };
  EXPECT_EQ(p->acquire(alice).id(), "vm-2");
  EXPECT_EQ(p->stats().replaced, 1u);
  world->on_create = [](const create_request&) { throw backend_error(backend_fault::unavailable, "no"); };
  EXPECT_THROW(static_cast<void>(p->acquire(alice)), backend_error);
  EXPECT_EQ(p->stats().total(), 0u);
  quiet(p->stats());
}

TEST_F(E2bProvider, R8_GetCallsNobody) {
  auto p = make();
  auto held = p->acquire(alice);
  const auto calls = world->calls() + world->extended().size() + store->calls();
  EXPECT_TRUE(p->get("vm-1"));
  EXPECT_FALSE(p->get("vm-2"));
  EXPECT_EQ(world->calls() + world->extended().size() + store->calls(), calls);
}

TEST_F(E2bProvider, R11_R12_R14_AFailedStopKeepsItsSlotIsNamedAndTriedAgain) {
  auto p = make(capped(1));
  auto held = p->acquire(alice);
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_FALSE(p->destroy("vm-1"));
  EXPECT_FALSE(held.valid());
  EXPECT_EQ(refusal(*p, bob), capacity_reason::rejected) << "it is no free capacity";
  EXPECT_THROW(static_cast<void>(p->acquire(alice)), backend_error) << "its own tombstone cannot be cleared";
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{"vm-1"});
  world->on_destroy = nullptr;
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  held.release();
  quiet(p->stats());
}

TEST_F(E2bProvider, R10_AReapInFlightEndsItsSandboxOnceAndShutdownWaitsForIt) {
  auto p = make();
  { auto parked = p->acquire(alice); }
  clock.advance(2h);
  park reaping("pool.teardown.marked", "reaper");
  auto reaper = in_role("reaper", [&] { return p->sweep_idle(); });
  ASSERT_TRUE(reaping.wait_arrived());
  auto stopping = in_role("shutdown", [&] { return p->shutdown(); });
  ASSERT_TRUE(eventually([&] { return !p->accepting(); }));
  EXPECT_EQ(stopping.wait_for(20ms), std::future_status::timeout) << "the reaper has the key";
  reaping.open();
  EXPECT_EQ(reaper.get(), 1u);
  EXPECT_EQ(stopping.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(world->destroys().size(), 1u);
  EXPECT_EQ(p->stats().idle_reaped, 1u);
  quiet(p->stats());
}

TEST_F(E2bProvider, R15_ALeftoverBecomesATombstoneAndCountsAgainstTheCap) {
  auto p = make(capped(1));
  world->on_create = [&](const create_request&) {
    world->run_for("vm-left", "");
    throw backend_error(backend_fault::ambiguous, "lost", "vm-left");
  };
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_THROW(static_cast<void>(p->acquire(alice)), backend_error);
  EXPECT_EQ(p->stats().tombstones, 1u);
  world->on_create = nullptr;
  EXPECT_EQ(refusal(*p, bob), capacity_reason::rejected);
  world->on_destroy = nullptr;
  EXPECT_TRUE(p->acquire(bob).valid());
  EXPECT_FALSE(world->runs("vm-left"));
  quiet(p->stats());
}

TEST_F(E2bProvider, R16_AStoreThatThrowsFailsClosedAndGivesTheSlotBack) {
  auto p = make(capped(1));
  store->before = [](const std::string& verb, const std::string&) {
    if (verb == "take") throw lease_store_error("away");
  };
  EXPECT_THROW(static_cast<void>(p->acquire(alice)), lease_store_error);
  EXPECT_EQ(world->running(), 0u) << "the fresh one was ended first";
  EXPECT_EQ(p->stats().total(), 0u);
  store->before = nullptr;
  EXPECT_TRUE(p->acquire(bob).valid());
}

TEST_F(E2bProvider, X15_R17_AForkedChildTouchesNothingOfItsParents) {
  auto p = make(capped(1, overflow_policy::wait));
  p->start();
  auto held = p->acquire(alice);
  auto waiting = in_role("waiter", [&] { return p->acquire(bob); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(10);
    int wrong = 0;
    try {
      static_cast<void>(p->acquire(carol));
      wrong |= 1;
    } catch (const admission_refused&) {
    }
    wrong |= p->get("vm-1") || p->destroy("vm-1") ? 2 : 0;
    p->release(std::move(held));
    p->reset();
    p->shutdown();
    wrong |= p->accepting() || p->sweep_idle() != 0 || p->reconcile().listed != 0 || p->stats().total() != 0 ? 4 : 0;
    p.reset();
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  held.release();
  EXPECT_TRUE(waiting.get().valid());
}

TEST_F(E2bProvider, R20_R21_TheWorkersReconcileAndTouchNoSignal) {
  struct sigaction before {
  }, after{};
  ::sigaction(SIGTERM, nullptr, &before);
  auto o = options();
  o.orphan_grace = 0ns;
  o.maintain_interval = 1ms;
  std::atomic<int> passes{0};
  world->on_list = [&] {
    if (++passes == 1) throw std::runtime_error("list");
  };
  world->run_for("vm-b", stable_id(bob));
  auto p = make(o);
  p->start();
  p->start();
  EXPECT_TRUE(eventually([&] { return p->stats().warm == 1; })) << "a pass that threw is followed by others";
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
}

// ---- bad input

TEST_F(E2bProvider, BadOptionsAreRefusedByName) {
  const auto refused = [&](auto spoil, const char* culprit) {
    auto o = options();
    spoil(o);
    try {
      make(o);
      FAIL() << culprit;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(culprit), std::string::npos) << error.what();
    }
  };
  EXPECT_THROW(provider(nullptr), std::invalid_argument);
  refused([](e2b_options& o) { o.replicas = 0; }, "replicas");
  refused([](e2b_options& o) { o.acquire_timeout = 0s; }, "acquire_timeout");
  refused([](e2b_options& o) { o.acquire_timeout = -1s; }, "acquire_timeout");
  refused([](e2b_options& o) { o.maintain_interval = 0s; }, "maintain_interval");
  refused([](e2b_options& o) { o.renewal_interval = -1s; }, "renewal_interval");
  refused([](e2b_options& o) { o.ttl_multiplier = 1; }, "ttl_multiplier");
  refused([](e2b_options& o) { o.orphan_grace = -1ns; }, "orphan_grace");
  refused([](e2b_options& o) { o.orphan_ttl = -1ns; }, "orphan_ttl");
  refused([](e2b_options& o) { o.inventory.max_time = -1ns; }, "max_time");
  refused([](e2b_options& o) { o.shutdown_budget = -1ns; }, "shutdown_budget");
  refused([](e2b_options& o) { o.worker_stop = -1ns; }, "worker_stop");
  refused([](e2b_options& o) { o.destroy_backoff = -1ns; }, "destroy_backoff");
  refused([](e2b_options& o) { o.destroy_attempts = 0; }, "destroy_attempts");
  refused([](e2b_options& o) { o.environment["a b"] = ""; }, "a b");
  auto p = make();
  EXPECT_THROW(static_cast<void>(p->acquire({"u\t", "1"})), std::invalid_argument);
  EXPECT_EQ(p->stats().total(), 0u);
  p->release(lease());
  auto o = options();
  o.owner_id = "other";
  auto other = make(o);
  EXPECT_THROW(p->release(other->acquire(alice)), std::invalid_argument);
  EXPECT_EQ(other->stats().warm, 1u);
}

// ---- everything at once

TEST_F(E2bProvider, StormKeepsItsBooksAndItsCap) {
  for (int round = 0; round < 3; ++round) {
    auto o = options();
    o.replicas = 3;
    o.overflow = static_cast<overflow_policy>(round);
    o.burst_limit = 1;
    o.acquire_timeout = 5ms;
    o.orphan_grace = 1ms;
    o.orphan_ttl = 1ms;
    o.maintain_interval = 1ms;
    o.renewal_interval = 1ms;
    o.ttl_multiplier = 100'000;
    o.clock = nullptr;
    const std::size_t cap = o.overflow == overflow_policy::burst ? 4 : 3;
    std::atomic<unsigned> dice{static_cast<unsigned>(round)};
    std::atomic<bool> over{false};
    provider p(world, o, std::make_shared<fake_store>());
    world->on_destroy = [&](const std::string&) { return dice.fetch_add(7) % 5 != 0; };
    world->on_create = [&](const create_request& r) {
      if (dice.fetch_add(3) % 11 == 0) throw backend_error(backend_fault::unavailable, "no", dice % 2 ? r.id : "");
      if (dice.fetch_add(1) % 13 == 0) world->run_for("stray-" + std::to_string(dice.fetch_add(1)), r.id);
    };
    world->on_set_timeout = [&](const std::string& id) {
      if (dice.fetch_add(1) % 17 == 0) world->stop(id);  // its time was up
      return world->runs(id);
    };
    p.start();
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t + 100u * static_cast<unsigned>(round));
        for (int i = 0; i < 100; ++i) {
          try {
            auto l = p.acquire({"u", random() % 8 == 0 ? "" : std::to_string(random() % 5)});
            if (p.stats().total() > cap) over = true;
            if (random() % 8 == 0) p.destroy(l.id());
            if (random() % 8 == 0) world->stop(l.id());
          } catch (const capacity_exceeded&) {
          } catch (const backend_error&) {
          }
        }
      });
    }
    for (auto& t : threads) t.join();
    EXPECT_FALSE(over);
    while (p.shutdown() == teardown_status::failed) {
    }
    const auto s = p.stats();
    EXPECT_EQ(s.total(), 0u);
    quiet(s);
    for (const auto& left : world->everything()) {  // strays that no pass came to
      EXPECT_EQ(left.id.rfind("stray-", 0), 0u) << left.id;
      world->stop(left.id);
    }
  }
}

}  // namespace
