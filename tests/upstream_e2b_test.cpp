// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The 29 race cases that the Python provider for rented sandboxes is tested with, one test each, under the numbers that
// docs/design/sandbox_pool.md uses. One thread is parked inside a backend call or at a point of the engine, the other
// side runs, both settle, and what is left is compared.
//
// What those cases do inside the sandbox (output synchronisation, bootstrap, connecting, closing a client) is not part
// of this kit. The backend call that stands where it stood is used instead: set_timeout in release and reclaim, the
// lease store and the commit for what follows a create.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
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

// Parks whoever calls it until the test lets go.
struct parked_call {
  gate inside, go;
  bool operator()() {
    inside.open();
    return go.wait();
  }
};

enum class outcome { served, full, refused };

struct UpstreamE2b : curfew_test::provider_fixture<provider, fake_rental, e2b_options> {
  parked_call parked;

  e2b_options capped(std::size_t replicas, overflow_policy overflow = overflow_policy::reject) {
    auto o = options();
    o.replicas = replicas;
    o.overflow = overflow;
    o.acquire_timeout = patience;
    return o;
  }
  static outcome try_acquire(provider& p, const owner_key& owner) {
    try {
      static_cast<void>(p.acquire(owner));
      return outcome::served;
    } catch (const capacity_exceeded&) {
      return outcome::full;
    } catch (const admission_refused&) {
      return outcome::refused;
    }
  }
  // The first call of set_timeout parks and then answers \p answer.
  void park_set_timeout(std::function<bool()> answer) {
    auto first = std::make_shared<std::atomic<bool>>(true);
    world->on_set_timeout = [this, first, answer = std::move(answer)](const std::string& id) {
      if (!first->exchange(false)) return world->runs(id);
      parked();
      return answer();
    };
  }
  std::size_t kills(const std::string& id) const {
    const auto all = world->destroys();
    return static_cast<std::size_t>(std::count(all.begin(), all.end(), id));
  }
  // A shutdown under way that has closed the fence, and waits for what is parked.
  auto shutting_down(provider& p) {
    auto ending = in_role("shutdown", [&p] { return p.shutdown(); });
    EXPECT_TRUE(eventually([&p] { return !p.accepting(); }));
    return ending;
  }
};

// ---- the key and the slot during a transition

TEST_F(UpstreamE2b, E1_AnAcquireWaitsForAReleaseOfTheSameKeyAndThenReclaims) {
  auto p = make();
  auto held = p->acquire(alice);
  const auto looked = world->finds();
  park_set_timeout([] { return true; });
  auto releasing = in_role("release", [&] { held.release(); });
  ASSERT_TRUE(parked.inside.wait());
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  EXPECT_EQ(acquiring.wait_for(20ms), std::future_status::timeout);
  EXPECT_EQ(world->finds(), looked) << "no early discovery";
  EXPECT_EQ(world->creates(), 1u);
  parked.go.open();
  releasing.get();
  EXPECT_EQ(acquiring.get().id(), "vm-1");
  EXPECT_EQ(world->creates(), 1u);
  EXPECT_EQ(p->stats().reclaimed, 1u);
}

TEST_F(UpstreamE2b, E2_AReleaseInTransitKeepsItsSlot) {
  auto p = make(capped(1));
  auto held = p->acquire(alice);
  park_set_timeout([] { return true; });
  auto releasing = in_role("release", [&] { held.release(); });
  ASSERT_TRUE(parked.inside.wait());
  EXPECT_EQ(try_acquire(*p, bob), outcome::full);
  EXPECT_EQ(p->stats().total(), 1u);
  parked.go.open();
  releasing.get();
  EXPECT_EQ(try_acquire(*p, bob), outcome::served);
}

TEST_F(UpstreamE2b, E3_AReclaimInTransitKeepsItsSlot) {
  auto p = make(capped(1));
  { auto held = p->acquire(alice); }
  park_set_timeout([] { return true; });
  auto reclaiming = in_role("reclaim", [&] { return p->acquire(alice); });
  ASSERT_TRUE(parked.inside.wait());
  EXPECT_EQ(try_acquire(*p, bob), outcome::full);
  EXPECT_EQ(p->stats().warm, 1u);
  parked.go.open();
  EXPECT_EQ(reclaiming.get().id(), "vm-1");
}

TEST_F(UpstreamE2b, E4_TwoRacersForOneSlotMakeOneCreate) {
  for (int round = 0; round < 20; ++round) {
    auto p = make(capped(1));
    curfew_test::start_gate start(2);
    const auto before = world->creates();
    std::vector<lease> held(2);
    std::vector<std::future<bool>> racing;
    for (std::size_t i = 0; i < 2; ++i)
      racing.push_back(in_role("racer", [&, i] {
        start.arrive_and_wait();
        try {
          held[i] = p->acquire({"u", std::to_string(i)});
          return true;
        } catch (const capacity_exceeded&) {
          return false;
        }
      }));
    EXPECT_NE(racing[0].get(), racing[1].get());
    EXPECT_EQ(world->creates(), before + 1);
  }
}

// ---- waiting for a slot

TEST_F(UpstreamE2b, E5_AReleaseWakesAWaiter) {
  auto p = make(capped(1, overflow_policy::wait));
  auto held = p->acquire(alice);
  auto waiting = in_role("waiter", [&] { return p->acquire(bob); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  held.release();
  EXPECT_TRUE(waiting.get().valid());
  EXPECT_EQ(p->stats().evicted, 1u);
}

TEST_F(UpstreamE2b, E6_AWaiterGivesUpAtItsTimeout) {
  auto o = capped(1, overflow_policy::wait);
  o.acquire_timeout = 50ms;
  auto p = make(o);
  auto held = p->acquire(alice);
  const auto begun = std::chrono::steady_clock::now();
  try {
    static_cast<void>(p->acquire(bob));
    FAIL();
  } catch (const capacity_exceeded& error) {
    EXPECT_EQ(error.reason(), capacity_reason::timed_out);
    EXPECT_EQ(error.limit(), 1u);
    EXPECT_EQ(error.retry_after(), 30s);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 50ms);
  EXPECT_EQ(world->creates(), 1u);
  EXPECT_EQ(p->stats().total(), 1u);
}

TEST_F(UpstreamE2b, E7_ShutdownWakesAWaiterWhichIsRefused) {
  auto p = make(capped(1, overflow_policy::wait));
  auto held = p->acquire(alice);
  auto waiting = in_role("waiter", [&] { return try_acquire(*p, bob); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(waiting.get(), outcome::refused);
  EXPECT_EQ(world->creates(), 1u);
  EXPECT_EQ(p->stats().refused, 1u);
}

TEST_F(UpstreamE2b, E8_ResetWakesAWaiterAtOnce) {
  auto p = make(capped(1, overflow_policy::wait));
  auto held = p->acquire(alice);
  auto waiting = in_role("waiter", [&] { return try_acquire(*p, bob); });
  ASSERT_TRUE(eventually([&] { return p->stats().waits == 1; }));
  world->on_destroy = [&](const std::string&) { return parked(); };
  auto resetting = in_role("reset", [&] { p->reset(); });
  EXPECT_EQ(waiting.get(), outcome::refused) << "while the reset is still destroying";
  parked.go.open();
  resetting.get();
}

// ---- shutdown during a create

TEST_F(UpstreamE2b, E9_ACreateInFlightIsKilledAndRefused) {
  auto p = make();
  world->on_create = [&](const create_request&) { parked(); };
  auto acquiring = in_role("acquire", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  EXPECT_EQ(ending.wait_for(20ms), std::future_status::timeout);
  parked.go.open();
  EXPECT_EQ(acquiring.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->stats().discarded, 1u);
}

TEST_F(UpstreamE2b, E10_AKillThatFailsIsRepeated) {
  auto p = make();
  world->on_create = [&](const create_request&) { parked(); };
  world->on_destroy = [&](const std::string& id) { return kills(id) > 1; };
  auto acquiring = in_role("acquire", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  EXPECT_EQ(acquiring.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(kills("vm-1"), 2u);
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(UpstreamE2b, E11_AKillThatKeepsFailingLeavesTheIdVisible) {
  auto p = make();
  world->on_create = [&](const create_request&) { parked(); };
  world->on_destroy = [](const std::string&) { return false; };
  auto acquiring = in_role("acquire", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  EXPECT_EQ(acquiring.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::failed);
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{"vm-1"});
  world->on_destroy = nullptr;
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
}

TEST_F(UpstreamE2b, E12_ShutdownBetweenCreateAndCommitDoesNotCommit) {
  auto p = make();
  park committing("pool.acquire.taken", "acquire");
  auto acquiring = in_role("acquire", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(committing.wait_arrived());
  auto ending = shutting_down(*p);
  committing.open();
  EXPECT_EQ(acquiring.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->stats().active, 0u);
  quiet(p->stats());
}

TEST_F(UpstreamE2b, E13_AFailedStartWhoseKillFailsTooIsKilledByTheShutdown) {
  auto p = make();
  store->before = [&](const std::string& verb, const std::string&) {
    if (verb != "take") return;
    parked();
    throw lease_store_error("away");
  };
  world->on_destroy = [&](const std::string& id) { return kills(id) > 3; };  // all attempts of the acquire fail
  auto acquiring = in_role("acquire", [&] { EXPECT_THROW(static_cast<void>(p->acquire(alice)), lease_store_error); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  acquiring.get();
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(kills("vm-1"), 4u);
  EXPECT_EQ(world->running(), 0u);
}

// ---- shutdown during release and reclaim

TEST_F(UpstreamE2b, E14_ShutdownDuringAReleaseKillsAndDoesNotPark) {
  auto p = make();
  auto held = p->acquire(alice);
  park_set_timeout([] { return true; });
  park leaving("serializer.release.start", "release");
  auto releasing = in_role("release", [&] { held.release(); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  ASSERT_TRUE(leaving.wait_arrived());
  EXPECT_EQ(p->stats().warm, 0u);
  EXPECT_EQ(p->stats().active, 1u) << "left to the sweep";
  leaving.open();
  releasing.get();
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  quiet(p->stats());
}

TEST_F(UpstreamE2b, E14_AReleaseThatOutlivesTheBudgetKillsItsSandboxItself) {
  auto o = options();
  o.shutdown_budget = 40ms;
  auto p = make(o);
  auto held = p->acquire(alice);
  park_set_timeout([] { return true; });
  auto releasing = in_role("release", [&] { held.release(); });
  ASSERT_TRUE(parked.inside.wait());
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{"vm-1"});
  parked.go.open();
  releasing.get();
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_TRUE(p->stats().leftover.empty());
}

TEST_F(UpstreamE2b, E15_ShutdownWhileAReleaseHasParkedAndNotReturned) {
  auto p = make();
  auto held = p->acquire(alice);
  park leaving("serializer.release.start", "release");
  auto releasing = in_role("release", [&] { held.release(); });
  ASSERT_TRUE(leaving.wait_arrived());
  EXPECT_EQ(p->stats().warm, 1u);
  auto ending = shutting_down(*p);
  leaving.open();
  releasing.get();
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(UpstreamE2b, E16_WhatIsParkedByASlowReleaseIsCountedOnceAndReclaimable) {
  auto p = make(capped(1));
  auto held = p->acquire(alice);
  park leaving("serializer.release.start", "release");
  auto releasing = in_role("release", [&] { held.release(); });
  ASSERT_TRUE(leaving.wait_arrived());
  EXPECT_EQ(p->stats().total(), 1u);
  EXPECT_EQ(try_acquire(*p, bob), outcome::full) << "and it is nobody's victim yet";
  auto reclaiming = in_role("reclaim", [&] { return p->acquire(alice); });
  leaving.open();
  releasing.get();
  EXPECT_EQ(reclaiming.get().id(), "vm-1");
  EXPECT_TRUE(world->destroys().empty());
}

TEST_F(UpstreamE2b, E17_ShutdownDuringAReclaimDoesNotRegister) {
  auto p = make();
  { auto held = p->acquire(alice); }
  park_set_timeout([] { return true; });
  auto reclaiming = in_role("reclaim", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  EXPECT_EQ(reclaiming.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->stats().reclaimed, 0u);
}

TEST_F(UpstreamE2b, E18_AReclaimThatFailsDuringShutdownIsKilledByIt) {
  auto p = make();
  { auto held = p->acquire(alice); }
  park_set_timeout([]() -> bool { throw backend_error(backend_fault::unavailable, "away"); });
  auto reclaiming = in_role("reclaim", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  EXPECT_EQ(reclaiming.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(kills("vm-1"), 1u);
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(UpstreamE2b, E19_AnEvictionThatFailsDuringShutdownIsKilledByIt) {
  auto o = capped(1);
  o.destroy_attempts = 1;
  auto p = make(o);
  { auto held = p->acquire(alice); }
  world->on_destroy = [&](const std::string& id) {
    if (kills(id) > 1) return true;
    parked();
    throw backend_error(backend_fault::unavailable, "away");
  };
  auto evicting = in_role("evict", [&] { return try_acquire(*p, bob); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  EXPECT_EQ(evicting.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(kills("vm-1"), 2u);
  EXPECT_EQ(world->running(), 0u);
}

// ---- shutdown during discovery

TEST_F(UpstreamE2b, E20_ADiscoveredOneIsReleasedAndNotKilled) {
  auto p = make();
  world->run_for("vm-peer", stable_id(alice));
  park taken("pool.discover.taken", "acquire");
  auto acquiring = in_role("acquire", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(taken.wait_arrived());
  auto ending = shutting_down(*p);
  taken.open();
  EXPECT_EQ(acquiring.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_TRUE(world->runs("vm-peer"));
  EXPECT_TRUE(world->destroys().empty());
  EXPECT_EQ(store->raw().owner("vm-peer"), std::nullopt);
  quiet(p->stats());
}

TEST_F(UpstreamE2b, E21_WhatFailedDuringSuchADiscoveryIsNotRetriedByTheShutdown) {
  auto p = make();
  world->run_for("vm-peer", stable_id(alice));
  park_set_timeout([] { return false; });  // and gone on top of it
  auto acquiring = in_role("acquire", [&] { return try_acquire(*p, alice); });
  ASSERT_TRUE(parked.inside.wait());
  auto ending = shutting_down(*p);
  parked.go.open();
  EXPECT_EQ(acquiring.get(), outcome::refused);
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(p->shutdown(), teardown_status::joined);
  EXPECT_EQ(kills("vm-peer"), 0u);
  EXPECT_TRUE(p->stats().leftover.empty());
}

// ---- ends that are not confirmed

TEST_F(UpstreamE2b, E22_AnEvictionThatIsNotConfirmedKeepsItsSlot) {
  auto p = make(capped(1));
  { auto held = p->acquire(alice); }
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_EQ(try_acquire(*p, bob), outcome::full);
  EXPECT_EQ(try_acquire(*p, bob), outcome::full) << "still";
  EXPECT_EQ(p->stats().tombstones, 1u);
  world->on_destroy = nullptr;
  EXPECT_EQ(try_acquire(*p, bob), outcome::served);
  quiet(p->stats());
}

TEST_F(UpstreamE2b, E22_AReclaimThatEndsUnconfirmedKeepsItsSlot) {
  auto p = make(capped(1));
  { auto held = p->acquire(alice); }
  world->on_probe = [](const std::string&) { return liveness::dead; };
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_THROW(static_cast<void>(p->acquire(alice)), backend_error);
  EXPECT_EQ(try_acquire(*p, bob), outcome::full);
  world->on_destroy = nullptr;
  EXPECT_EQ(try_acquire(*p, bob), outcome::served);
}

TEST_F(UpstreamE2b, E22_ACreateThatIsNotCleanedUpKeepsItsSlot) {
  auto p = make(capped(1));
  store->before = [](const std::string& verb, const std::string&) {
    if (verb == "take") throw lease_store_error("away");
  };
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_THROW(static_cast<void>(p->acquire(alice)), lease_store_error);
  store->before = nullptr;
  EXPECT_EQ(try_acquire(*p, bob), outcome::full);
  world->on_destroy = nullptr;
  EXPECT_EQ(p->sweep_idle(), 0u) << "retries it";
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(try_acquire(*p, bob), outcome::served);
}

TEST_F(UpstreamE2b, E22_ALeftoverKeepsItsSlotUntilItIsConfirmedGone) {
  auto p = make(capped(1));
  world->on_create = [&](const create_request&) {
    world->run_for("vm-lost", "");
    throw backend_error(backend_fault::ambiguous, "no answer", "vm-lost");
  };
  EXPECT_THROW(static_cast<void>(p->acquire(alice)), backend_error);
  world->on_create = nullptr;
  world->on_destroy = [&](const std::string&) { return kills("vm-lost") > 4; };
  EXPECT_EQ(try_acquire(*p, bob), outcome::full) << "three attempts";
  EXPECT_EQ(try_acquire(*p, bob), outcome::served) << "and two more";
  EXPECT_EQ(kills("vm-lost"), 5u);
}

TEST_F(UpstreamE2b, E23_ATombstoneHasOneRetrier) {
  auto p = make(capped(1));
  auto held = p->acquire(alice);
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_FALSE(p->destroy("vm-1"));
  const auto before = kills("vm-1");
  world->on_destroy = [&](const std::string&) { return parked(); };
  auto first = in_role("first", [&] { return try_acquire(*p, bob); });
  ASSERT_TRUE(parked.inside.wait());
  EXPECT_EQ(try_acquire(*p, carol), outcome::full);
  EXPECT_EQ(p->sweep_idle(), 0u);
  static_cast<void>(p->reconcile());
  parked.go.open();
  EXPECT_EQ(first.get(), outcome::served);
  EXPECT_EQ(kills("vm-1"), before + 1);
}

// ---- several providers on one account

TEST_F(UpstreamE2b, E24_TwoReconcilersKillOneDuplicateOnce) {
  auto o = options();
  o.orphan_grace = 0ns;
  auto p = make(o);
  o.owner_id = "them";
  auto q = make(o);
  auto held = p->acquire(alice);
  // Both providers track the request: the second has found it too, and the lease is the second's by now.
  auto theirs = q->acquire(alice);
  ASSERT_EQ(theirs.id(), held.id());
  std::size_t most = 0;
  for (int round = 0; round < 100; ++round) {
    const std::string id = "vm-dup" + std::to_string(round);
    world->run_for(id, stable_id(alice));
    static_cast<void>(p->reconcile());
    static_cast<void>(q->reconcile());
    curfew_test::start_gate start(2);
    auto pass = [&](provider& which) {
      start.arrive_and_wait();
      return which.reconcile().duplicates_destroyed;
    };
    auto one = in_role("one", [&] { return pass(*p); });
    auto two = in_role("two", [&] { return pass(*q); });
    const std::size_t together = one.get() + two.get();
    while (world->runs(id)) static_cast<void>(p->reconcile());  // one of them saw the other's claim and started over
    EXPECT_LE(together, 1u);
    most = std::max(most, kills(id));
    EXPECT_EQ(kills(id), 1u);
  }
  EXPECT_EQ(most, 1u);
}

TEST_F(UpstreamE2b, E24_TheSecondOfTwoThatHaveBothLookedFindsItGone) {
  auto o = options();
  o.orphan_grace = 0ns;
  auto p = make(o);
  o.owner_id = "them";
  auto q = make(o);
  auto held = p->acquire(alice);
  auto theirs = q->acquire(alice);
  world->run_for("vm-0", stable_id(alice));
  static_cast<void>(p->reconcile());
  static_cast<void>(q->reconcile());
  gate claiming, go;
  store->before = [&, first = std::make_shared<std::atomic<bool>>(true)](const std::string& verb,
                                                                         const std::string& id) {
    if (verb != "claim!" || id != "vm-0" || !first->exchange(false)) return;
    claiming.open();
    static_cast<void>(go.wait());
  };
  auto late = in_role("late", [&] { return p->reconcile().duplicates_destroyed; });
  ASSERT_TRUE(claiming.wait()) << "it has seen the inventory, and that nobody owns it";
  EXPECT_EQ(q->reconcile().duplicates_destroyed, 1u);
  go.open();
  EXPECT_EQ(late.get(), 0u);
  EXPECT_EQ(kills("vm-0"), 1u);
  EXPECT_EQ(store->raw().owner("vm-0"), std::nullopt);
}

TEST_F(UpstreamE2b, E25_APeerThatTakesDuringAFailingAdoptionKeepsWhatItTook) {
  auto o = options();
  o.orphan_grace = 0ns;
  auto p = make(o);
  world->run_for("vm-b", stable_id(bob));
  static_cast<void>(p->reconcile());
  world->on_set_timeout = [&](const std::string& id) {
    EXPECT_TRUE(peer_takes(id));
    return false;
  };
  EXPECT_EQ(p->reconcile().adopted, 0u);
  EXPECT_EQ(store->raw().owner("vm-b"), "peer");
  EXPECT_EQ(p->stats().total(), 0u);
  world->on_set_timeout = nullptr;
  EXPECT_EQ(p->reconcile().adopted, 0u) << "owned";
  store->raw().release("vm-b", "peer");
  static_cast<void>(p->reconcile());
  EXPECT_EQ(p->reconcile().adopted, 1u) << "nothing of the failed attempt is left";
}

TEST_F(UpstreamE2b, E26_ShutdownKillsOnlyWhatItOwns) {
  auto p = make();
  auto mine = p->acquire(alice);
  { auto kept = p->acquire(bob); }
  world->run_for("vm-peer", stable_id(carol));
  ASSERT_TRUE(peer_takes("vm-2"));
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_FALSE(world->runs("vm-1"));
  EXPECT_TRUE(world->runs("vm-2")) << "a peer has taken it over";
  EXPECT_TRUE(world->runs("vm-peer"));
  EXPECT_EQ(p->stats().forgotten, 1u);
  quiet(p->stats());
}

TEST_F(UpstreamE2b, E27_TheFirstReconcileDoesNotHoldUpTheStart) {
  auto p = make();
  world->on_list = [&] { parked(); };
  p->start();
  EXPECT_TRUE(parked.inside.wait()) << "on the worker, while the start has returned";
  EXPECT_TRUE(p->acquire(alice).valid());
  parked.go.open();
}

TEST_F(UpstreamE2b, E28_WaitersDoNotOccupyWhatOthersNeed) {
  // There is no executor to share: a waiter is its caller's thread. Any number of them on one key leaves others alone.
  auto p = make(capped(2));
  world->on_create = [&](const create_request& r) {
    if (r.owner == alice) parked();
  };
  std::vector<std::future<lease>> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(in_role("waiter", [&] { return p->acquire(alice); }));
  ASSERT_TRUE(parked.inside.wait());
  EXPECT_EQ(try_acquire(*p, bob), outcome::served);
  parked.go.open();
  for (auto& w : waiting) EXPECT_TRUE(w.get().valid());
  EXPECT_EQ(world->creates(), 2u);
}

TEST_F(UpstreamE2b, E29_TwoGatewaysOnOneProviderWithOneSlotMakeOneCreate) {
  // A cap that several processes share needs a ledger outside of them, which the kit does not bring. What they share
  // here is the provider.
  auto p = make(capped(1));
  world->on_create = [&](const create_request&) { parked(); };
  auto first = in_role("gateway", [&, p] { return p->acquire(alice); });
  ASSERT_TRUE(parked.inside.wait());
  EXPECT_EQ(try_acquire(*p, bob), outcome::full) << "the slot is taken from the moment it was granted";
  parked.go.open();
  EXPECT_TRUE(first.get().valid());
  EXPECT_EQ(world->creates(), 1u);
}

}  // namespace
