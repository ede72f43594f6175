// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <curfew/sandbox/aio.hpp>

#include <tests/support/fake_backend.hpp>
#include <tests/support/park.hpp>
#include <tests/support/provider_fixture.hpp>

// The sanitizers of clang bring an allocator that cannot be replaced.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CURFEW_TEST_CANNOT_STARVE
#endif
#endif

#ifndef CURFEW_TEST_CANNOT_STARVE
// The n-th allocation of the thread that sets it fails, from 0 on.
static thread_local long starve_at = -1;

// Not inlined: compilers compare what they see of the one with what they see of the other.
__attribute__((noinline)) void* operator new(std::size_t size) {
  if (starve_at >= 0 && starve_at-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size != 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

namespace {

using namespace std::chrono_literals;
using namespace curfew::sandbox;
using curfew::admission_refused;
using curfew::teardown_status;
using curfew_test::alice;
using curfew_test::bob;
using curfew_test::carol;
using curfew_test::eventually;
using curfew_test::fake_backend;
using curfew_test::fake_store;
using curfew_test::gate;
using curfew_test::in_role;
using curfew_test::manual_clock;
using curfew_test::park;

using provider = aio_provider<fake_backend, fake_store, curfew_test::provider_sync>;
using AioProvider = curfew_test::provider_fixture<provider, fake_backend, aio_options>;

// ---- R1, R2

TEST_F(AioProvider, R1_AProviderThatWasNeverUsedTouchesNothing) {
  world->run("somebody-elses");
  {
    auto unused = make();
    EXPECT_EQ(unused->shutdown(), teardown_status::completed);
  }
  { auto destroyed_only = make(); }
  EXPECT_EQ(world->calls(), 0u);
  EXPECT_EQ(store->calls(), 0u);
  EXPECT_TRUE(world->runs("somebody-elses"));
}

TEST_F(AioProvider, X6_LosersOfAColdStartDestroyNothing) {
  world->run(stable_id(alice));
  world->run(stable_id(bob));
  std::vector<std::shared_ptr<provider>> candidates;
  for (int i = 0; i < 8; ++i) candidates.push_back(make());
  candidates[0]->start();
  while (candidates.size() > 1) {
    candidates.back()->shutdown();
    candidates.pop_back();
  }
  EXPECT_TRUE(world->runs(stable_id(alice)));
  EXPECT_TRUE(world->runs(stable_id(bob)));
  EXPECT_TRUE(world->destroys().empty());
}

TEST_F(AioProvider, R2_RefusedAfterShutdownWithoutABackendCall) {
  auto p = make();
  p->shutdown();
  EXPECT_THROW(p->acquire(alice), admission_refused);
  EXPECT_THROW(p->start(), admission_refused);
  EXPECT_EQ(world->calls(), 0u);
  EXPECT_EQ(p->stats().refused, 2u);
  EXPECT_TRUE(p->stats().shut_down);
  EXPECT_FALSE(p->accepting());
}

// ---- R3, R4: one key at a time

TEST_F(AioProvider, R3_DifferentKeysNeverWaitForEachOther) {
  gate creating, go;
  auto p = make();
  world->on_create = [&](const create_request& r) {
    if (r.owner == alice) {
      creating.open();
      static_cast<void>(go.wait());
    }
  };
  auto slow = in_role("slow", [&] { return p->acquire(alice); });
  ASSERT_TRUE(creating.wait());
  EXPECT_TRUE(p->acquire(bob).valid());
  EXPECT_EQ(p->sweep_idle(), 0u);
  go.open();
  EXPECT_TRUE(slow.get().valid());
}

TEST_F(AioProvider, R3_AReleaseInTransitIsActiveAndNoVictim) {
  auto o = options();
  o.replicas = 1;
  auto p = make(o);
  auto lease = p->acquire(alice);
  const std::string id = lease.id();
  park in_release("pool.release.keyed");
  auto releasing = in_role("release", [&, held = std::move(lease)]() mutable { held.release(); });
  ASSERT_TRUE(in_release.wait_arrived());
  EXPECT_EQ(p->stats().active, 1u);
  auto other = p->acquire(bob);
  EXPECT_TRUE(world->runs(id)) << "busy, so the newcomer went over the cap instead";
  EXPECT_EQ(p->stats().over_cap, 1u);
  in_release.open();
  releasing.get();
  EXPECT_EQ(p->stats().warm, 1u);
}

TEST_F(AioProvider, R3_AReclaimInTransitIsWarmAndNoVictim) {
  auto o = options();
  o.replicas = 1;
  auto p = make(o);
  const std::string id = p->acquire(alice).id();
  park reclaiming("pool.acquire.taken", "reclaim");
  auto again = in_role("reclaim", [&] { return p->acquire(alice); });
  ASSERT_TRUE(reclaiming.wait_arrived());
  EXPECT_EQ(p->stats().warm, 1u);
  clock.advance(2h);
  EXPECT_EQ(p->sweep_idle(), 0u) << "the reaper skips a busy key";
  auto other = p->acquire(bob);
  EXPECT_TRUE(world->runs(id));
  reclaiming.open();
  EXPECT_EQ(again.get().id(), id);
  EXPECT_EQ(p->stats().reclaimed, 1u);
}

TEST_F(AioProvider, A1_ReclaimMeetsTheReaperWaitsAndCreatesAfresh) {
  auto p = make();
  { auto first = p->acquire(alice); }
  clock.advance(2h);
  park reaping("pool.teardown.marked");
  auto reaper = in_role("reaper", [&] { return p->sweep_idle(); });
  ASSERT_TRUE(reaping.wait_arrived());
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  EXPECT_EQ(acquiring.wait_for(20ms), std::future_status::timeout);
  reaping.open();
  EXPECT_EQ(reaper.get(), 1u);
  auto fresh = acquiring.get();
  EXPECT_TRUE(fresh.valid());
  EXPECT_TRUE(world->runs(fresh.id()));
  EXPECT_EQ(world->creates(), 2u);
  EXPECT_EQ(p->stats().idle_reaped, 1u);
}

TEST_F(AioProvider, A2_ReuseMeetsTheReaperWaitsAndCreatesAfresh) {
  auto p = make();
  auto first = p->acquire(alice);
  clock.advance(2h);
  park reaping("pool.teardown.claimed");
  auto reaper = in_role("reaper", [&] { return p->sweep_idle(); });
  ASSERT_TRUE(reaping.wait_arrived());
  EXPECT_FALSE(first.valid()) << "from the moment its teardown began";
  EXPECT_FALSE(first.touch());
  EXPECT_EQ(p->get(first.id()), std::nullopt);
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  reaping.open();
  EXPECT_EQ(reaper.get(), 1u);
  auto fresh = acquiring.get();
  EXPECT_TRUE(fresh.valid());
  EXPECT_FALSE(first.valid()) << "a lease never speaks for a later sandbox with the same id";
  first.release();
  EXPECT_TRUE(fresh.valid());
  EXPECT_EQ(p->stats().active, 1u);
}

TEST_F(AioProvider, A3_AReuseInItsProbeIsNoVictimOfTheReaper) {
  gate probing, go;
  auto p = make();
  auto first = p->acquire(alice);
  world->on_probe = [&](const std::string&) {
    probing.open();
    static_cast<void>(go.wait());
    return liveness::alive;
  };
  clock.advance(2h);
  auto reuse = in_role("reuse", [&] { return p->acquire(alice); });
  ASSERT_TRUE(probing.wait());
  EXPECT_EQ(p->sweep_idle(), 0u);
  go.open();
  EXPECT_TRUE(reuse.get().valid());
  EXPECT_TRUE(world->destroys().empty());
}

TEST_F(AioProvider, A19_ActivityBetweenTheSnapshotAndTheMarkSavesTheSandbox) {
  auto p = make();
  auto lease = p->acquire(alice);
  clock.advance(2h);
  park candidate("pool.sweep.candidate");
  auto reaper = in_role("reaper", [&] { return p->sweep_idle(); });
  ASSERT_TRUE(candidate.wait_arrived());
  EXPECT_TRUE(lease.touch());
  candidate.open();
  EXPECT_EQ(reaper.get(), 0u);
  EXPECT_TRUE(lease.valid());
}

TEST_F(AioProvider, R4_DestroyWaitsForTheKeyAndTheNextAcquireCreatesAfresh) {
  gate destroying, go;
  auto p = make();
  auto lease = p->acquire(alice);
  world->on_destroy = [&](const std::string&) {
    destroying.open();
    return go.wait();
  };
  auto ended = in_role("destroy", [&] { return p->destroy(lease.id()); });
  ASSERT_TRUE(destroying.wait());
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  EXPECT_EQ(acquiring.wait_for(20ms), std::future_status::timeout);
  EXPECT_EQ(world->creates(), 1u);
  go.open();
  EXPECT_TRUE(ended.get());
  EXPECT_TRUE(acquiring.get().valid());
  EXPECT_EQ(world->creates(), 2u);
  EXPECT_FALSE(p->destroy("unknown"));
}

// ---- R5 to R8

TEST_F(AioProvider, R5_ReuseThenReclaimThenDiscoveryThenCreate) {
  auto p = make();
  world->run(stable_id(bob));
  auto created = p->acquire(alice);
  EXPECT_EQ(world->creates(), 1u);
  EXPECT_EQ(world->lists(), 1u);
  auto reused = p->acquire(alice);
  EXPECT_EQ(reused.id(), created.id());
  reused.release();
  created.release();
  auto reclaimed = p->acquire(alice);
  EXPECT_EQ(reclaimed.id(), stable_id(alice));
  EXPECT_EQ(world->creates(), 1u);
  EXPECT_EQ(world->lists(), 1u) << "neither reuse nor reclaim lists";
  auto discovered = p->acquire(bob);
  EXPECT_EQ(discovered.id(), stable_id(bob));
  EXPECT_EQ(world->creates(), 1u);
  const auto s = p->stats();
  EXPECT_EQ(s.created, 1u);
  EXPECT_EQ(s.reused, 1u);
  EXPECT_EQ(s.reclaimed, 1u);
  EXPECT_EQ(s.adopted, 1u);
  quiet(s);
}

TEST_F(AioProvider, R6_ConcurrentColdAcquiresOfOneOwnerMakeOneCreateAndTheLastReleaseParks) {
  auto p = make();
  curfew_test::start_gate start(6);
  std::vector<std::future<lease>> acquiring;
  for (int i = 0; i < 6; ++i) {
    acquiring.push_back(in_role("cold", [&] {
      start.arrive_and_wait();
      return p->acquire(alice);
    }));
  }
  std::vector<lease> leases;
  for (auto& a : acquiring) leases.push_back(a.get());
  EXPECT_EQ(world->creates(), 1u);
  for (std::size_t i = 0; i + 1 < leases.size(); ++i) {
    leases[i].release();
    EXPECT_EQ(p->stats().active, 1u);
  }
  EXPECT_TRUE(leases.back().valid());
  leases.back().release();
  EXPECT_EQ(p->stats().active, 0u);
  EXPECT_EQ(p->stats().warm, 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, R7_ADeadSandboxIsDestroyedAndReplaced) {
  auto p = make();
  auto lease = p->acquire(alice);
  world->stop(lease.id());
  auto again = p->acquire(alice);
  EXPECT_TRUE(again.valid());
  EXPECT_FALSE(lease.valid());
  lease.release();
  again.release();
  world->stop(stable_id(alice));
  EXPECT_TRUE(p->acquire(alice).valid());
  const auto s = p->stats();
  EXPECT_EQ(s.replaced, 2u);
  EXPECT_EQ(s.created, 3u);
  EXPECT_EQ(s.destroyed, 2u);
  quiet(s);
}

TEST_F(AioProvider, R7_UnknownOrAThrowKeepsTheSandbox) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  world->on_probe = [](const std::string&) { return liveness::unknown; };
  { auto lease = p->acquire(alice); }
  world->on_probe = [](const std::string&) -> liveness { throw std::runtime_error("probe"); };
  { auto lease = p->acquire(alice); }
  EXPECT_EQ(p->stats().reclaimed, 2u);
  EXPECT_EQ(p->stats().backend_errors, 1u);
  EXPECT_EQ(world->creates(), 1u);
}

TEST_F(AioProvider, R7_AReplacementThatCannotBeMadeLeavesNothingTracked) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  world->stop(stable_id(alice));
  world->on_create = [](const create_request&) { throw backend_error(backend_fault::unavailable, "no"); };
  EXPECT_THROW(p->acquire(alice), backend_error);
  EXPECT_EQ(p->stats().total(), 0u);
  quiet(p->stats());
}

TEST_F(AioProvider, R7_ADeadDiscoveredSandboxIsDestroyedAndReplaced) {
  auto p = make();
  world->run(stable_id(alice));
  world->on_probe = [](const std::string&) { return liveness::dead; };
  auto lease = p->acquire(alice);
  EXPECT_TRUE(lease.valid());
  const auto s = p->stats();
  EXPECT_EQ(s.adopted, 1u);
  EXPECT_EQ(s.replaced, 1u);
  EXPECT_EQ(s.created, 1u);
  EXPECT_EQ(s.destroyed, 1u);
  quiet(s);
}

TEST_F(AioProvider, R8_GetAnswersForActiveIdsOnlyAndCallsNobody) {
  auto p = make();
  auto lease = p->acquire(alice);
  const auto calls = world->calls();
  const auto asked = store->calls();
  EXPECT_EQ(p->get(lease.id()).value().endpoint, lease.info().endpoint);
  EXPECT_EQ(p->get("unknown"), std::nullopt);
  lease.release();
  EXPECT_EQ(p->get(stable_id(alice)), std::nullopt) << "warm";
  EXPECT_EQ(world->calls(), calls);
  EXPECT_EQ(store->calls(), asked);
}

TEST_F(AioProvider, R8_GetNeverBlocksOnAKeyAndCountsAsActivity) {
  gate probing, go;
  auto p = make();
  auto lease = p->acquire(alice);
  world->on_probe = [&](const std::string&) {
    probing.open();
    static_cast<void>(go.wait());
    return liveness::alive;
  };
  auto reuse = in_role("reuse", [&] { return p->acquire(alice); });
  ASSERT_TRUE(probing.wait());
  clock.advance(2h);
  EXPECT_TRUE(p->get(lease.id()).has_value());
  go.open();
  reuse.get();
  EXPECT_EQ(p->sweep_idle(), 0u);
}

// ---- R9: commit

TEST_F(AioProvider, X9_R9_ACreateInFlightIsDestroyedByItsThreadAndRefused) {
  auto p = make();
  park created("pool.acquire.created", "acquire");
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  ASSERT_TRUE(created.wait_arrived());
  auto stopping = in_role("shutdown", [&] { return p->shutdown(); });
  ASSERT_TRUE(eventually([&] { return !p->accepting(); }));
  EXPECT_EQ(stopping.wait_for(20ms), std::future_status::timeout) << "waits for what is in flight";
  created.open();
  EXPECT_THROW(acquiring.get(), admission_refused);
  EXPECT_EQ(stopping.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  const auto s = p->stats();
  EXPECT_EQ(s.created, 1u);
  EXPECT_EQ(s.discarded, 1u);
  EXPECT_EQ(s.destroyed, 1u);
  quiet(s);
  EXPECT_THROW(p->acquire(alice), admission_refused);
  EXPECT_EQ(world->creates(), 1u);
}

TEST_F(AioProvider, E10_E11_AnUnconfirmedDiscardBecomesATombstoneThatShutdownRetries) {
  std::atomic<int> refusals{2};
  auto o = options();
  o.destroy_attempts = 2;
  auto p = make(o);
  world->on_destroy = [&](const std::string&) { return refusals.fetch_sub(1) <= 0; };
  park created("pool.acquire.created");
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  ASSERT_TRUE(created.wait_arrived());
  auto stopping = in_role("shutdown", [&] { return p->shutdown(); });
  ASSERT_TRUE(eventually([&] { return !p->accepting(); }));
  created.open();
  EXPECT_THROW(acquiring.get(), admission_refused);
  EXPECT_EQ(stopping.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->stats().destroy_failures, 2u);
  quiet(p->stats());
}

TEST_F(AioProvider, E14_ClosedDuringReleaseIsSweptAndNotParked) {
  auto p = make();
  auto lease = p->acquire(alice);
  park in_release("pool.release.keyed");
  auto releasing = in_role("release", [&, held = std::move(lease)]() mutable { held.release(); });
  ASSERT_TRUE(in_release.wait_arrived());
  auto stopping = in_role("shutdown", [&] { return p->shutdown(); });
  ASSERT_TRUE(eventually([&] { return !p->accepting(); }));
  in_release.open();
  releasing.get();
  EXPECT_EQ(stopping.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->stats().warm, 0u);
}

TEST_F(AioProvider, E17_ClosedDuringReuseIsRefusedAndSwept) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  park taken("pool.acquire.taken");
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  ASSERT_TRUE(taken.wait_arrived());
  auto stopping = in_role("shutdown", [&] { return p->shutdown(); });
  ASSERT_TRUE(eventually([&] { return !p->accepting(); }));
  taken.open();
  EXPECT_THROW(acquiring.get(), admission_refused);
  EXPECT_EQ(stopping.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->stats().reclaimed, 0u);
}

TEST_F(AioProvider, R10_AReapInFlightEndsItsSandboxOnceAndShutdownWaitsForIt) {
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

TEST_F(AioProvider, E20_ClosedDuringDiscoveryIsReleasedAndNotDestroyed) {
  auto p = make();
  world->run(stable_id(alice));
  park taken("pool.discover.taken");
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  ASSERT_TRUE(taken.wait_arrived());
  auto stopping = in_role("shutdown", [&] { return p->shutdown(); });
  ASSERT_TRUE(eventually([&] { return !p->accepting(); }));
  taken.open();
  EXPECT_THROW(acquiring.get(), admission_refused);
  EXPECT_EQ(stopping.get(), teardown_status::completed);
  EXPECT_TRUE(world->runs(stable_id(alice)));
  EXPECT_EQ(store->raw().owner(stable_id(alice)), std::nullopt);
  EXPECT_EQ(p->stats().adopted, 0u);
  quiet(p->stats());
}

// ---- R10, R11, R12: shutdown

TEST_F(AioProvider, R10_E7_KeyWaitersAreWokenAndRefused) {
  gate creating, go;
  auto p = make();
  world->on_create = [&](const create_request&) {
    creating.open();
    static_cast<void>(go.wait());
  };
  auto first = in_role("first", [&] { return p->acquire(alice); });
  ASSERT_TRUE(creating.wait());
  auto second = in_role("second", [&] { return p->acquire(alice); });
  auto stopping = in_role("shutdown", [&] { return p->shutdown(); });
  EXPECT_THROW(second.get(), admission_refused) << "without waiting for the first";
  EXPECT_EQ(world->creates(), 1u);
  go.open();
  EXPECT_THROW(first.get(), admission_refused);
  EXPECT_EQ(stopping.get(), teardown_status::completed);
}

TEST_F(AioProvider, R10_EverySandboxIsEndedAtMostSoManyAtATime) {
  std::atomic<int> together{0};
  auto o = options();
  o.replicas = 20;
  o.destroy_parallelism = 3;
  auto p = make(o);
  std::vector<lease> held;
  for (int i = 0; i < 12; ++i) {
    auto l = p->acquire({"u", std::to_string(i)});
    if (i % 2 == 0) held.push_back(std::move(l));
  }
  world->on_destroy = [&](const std::string&) {
    ++together;
    static_cast<void>(eventually([&] { return together >= 3; }, 2s));
    return true;
  };
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(world->peak_destroys(), 3u);
  for (const auto& l : held) {
    EXPECT_TRUE(l);
    EXPECT_FALSE(l.valid());
  }
  const auto s = p->stats();
  EXPECT_EQ(s.destroyed, 12u);
  EXPECT_EQ(s.total(), 0u);
  quiet(s);
}

TEST_F(AioProvider, R10_ParallelismOfOneDestroysOnTheCallingThread) {
  std::set<std::thread::id> threads;
  auto o = options();
  o.destroy_parallelism = 1;
  auto p = make(o);
  { auto a = p->acquire(alice), b = p->acquire(bob); }
  world->on_destroy = [&](const std::string&) {
    threads.insert(std::this_thread::get_id());
    return true;
  };
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_F(AioProvider, R10_TheCallingThreadBeginsWithNoneThatIsPastTheBudget) {
  auto o = options();
  o.destroy_parallelism = 1;
  o.shutdown_budget = 0s;
  auto p = make(o);
  { auto a = p->acquire(alice), b = p->acquire(bob), c = p->acquire(carol); }
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(world->destroys().size(), 1u) << "one is begun in any case, so that repeating it comes to an end";
  EXPECT_EQ(p->stats().leftover.size(), 2u);
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(AioProvider, R10_X16_WithoutThreadsTheCallingThreadDestroys) {
  auto p = make();
  { auto a = p->acquire(alice), b = p->acquire(bob); }
  curfew_test::provider_sync::no_threads = true;
  EXPECT_THROW(p->start(), std::system_error);
  EXPECT_FALSE(p->stats().started);
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  curfew_test::provider_sync::no_threads = false;
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(AioProvider, R10_LeasesInTheStoreAreReleased) {
  auto p = make();
  { auto a = p->acquire(alice); }
  EXPECT_EQ(store->raw().owner(stable_id(alice)), "me");
  p->shutdown();
  EXPECT_EQ(store->raw().owner(stable_id(alice)), std::nullopt);
}

TEST_F(AioProvider, X12_X13_R11_EveryOtherCallWaitsForTheFirstAndIsToldJoined) {
  gate destroying, go;
  auto p = make();
  auto lease = p->acquire(alice);
  world->on_destroy = [&](const std::string&) {
    destroying.open();
    return go.wait();
  };
  auto first = in_role("first", [&] { return p->shutdown(); });
  ASSERT_TRUE(destroying.wait());
  auto second = in_role("second", [&] {
    const auto status = p->shutdown();
    return std::pair(status, world->running());
  });
  EXPECT_EQ(second.wait_for(20ms), std::future_status::timeout) << "returned with the teardown unfinished";
  go.open();
  EXPECT_EQ(first.get(), teardown_status::completed);
  EXPECT_EQ(second.get(), std::pair(teardown_status::joined, std::size_t{0}));
  EXPECT_EQ(p->shutdown(), teardown_status::joined);
}

TEST_F(AioProvider, R11_FromInsideTheTeardownOnAnyOfItsThreads) {
  for (const unsigned parallelism : {1u, 4u}) {
    auto o = options();
    o.destroy_parallelism = parallelism;
    auto p = make(o);
    { auto a = p->acquire(alice), b = p->acquire(bob); }
    std::atomic<int> in_progress{0};
    world->on_destroy = [&](const std::string&) {
      in_progress += p->shutdown() == teardown_status::in_progress ? 1 : 0;
      return true;
    };
    EXPECT_EQ(p->shutdown(), teardown_status::completed);
    EXPECT_EQ(in_progress, 2);
    world->on_destroy = nullptr;
  }
}

TEST_F(AioProvider, R11_FailedNamesTheTombstonesAndTheNextCallTriesAgain) {
  auto p = make();
  { auto a = p->acquire(alice), b = p->acquire(bob); }
  world->on_destroy = [&](const std::string& id) { return id != stable_id(alice); };
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{stable_id(alice)});
  EXPECT_EQ(p->stats().destroy_failures, 3u);
  EXPECT_FALSE(world->runs(stable_id(bob)));
  world->on_destroy = nullptr;
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_TRUE(p->stats().leftover.empty());
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->shutdown(), teardown_status::joined);
  quiet(p->stats());
}

TEST_F(AioProvider, R11_ACreateThatOutlivesTheBudgetIsNamedAndStillDestroyedByItsThread) {
  gate creating, go;
  auto o = options();
  o.shutdown_budget = 2s;  // a quarter of it is the sweep's
  auto p = make(o);
  auto other = p->acquire(bob);
  world->on_create = [&](const create_request&) {
    creating.open();
    static_cast<void>(go.wait());
  };
  auto late = in_role("late", [&] { return p->acquire(alice); });
  ASSERT_TRUE(creating.wait());
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{stable_id(alice)});
  EXPECT_FALSE(world->runs(other.id())) << "one that hangs does not keep the others running";
  go.open();
  EXPECT_THROW(late.get(), admission_refused);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_TRUE(p->stats().leftover.empty());
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  quiet(p->stats());
}

TEST_F(AioProvider, R11_ADestroyThatHangsIsLetGoAtTheEndOfTheBudget) {
  gate go;
  auto o = options();
  o.shutdown_budget = 1s;
  auto p = make(o);
  { auto a = p->acquire(alice), b = p->acquire(bob); }
  world->on_destroy = [&](const std::string& id) { return id != stable_id(alice) || go.wait(); };
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{stable_id(alice)});
  go.open();
  ASSERT_TRUE(eventually([&] { return p->stats().total() == 0; }));
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(AioProvider, R11_AProbeThatOutlivesTheBudgetEndsItsSandboxItself) {
  gate probing, go;
  auto o = options();
  o.shutdown_budget = 40ms;
  auto p = make(o);
  { auto a = p->acquire(alice); }
  world->on_probe = [&](const std::string&) {
    probing.open();
    static_cast<void>(go.wait());
    return liveness::alive;
  };
  auto late = in_role("late", [&] { return p->acquire(alice); });
  ASSERT_TRUE(probing.wait());
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  go.open();
  EXPECT_THROW(late.get(), admission_refused);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
}

TEST_F(AioProvider, R12_LeasesOutliveTheProvider) {
  auto p = make();
  auto lease = p->acquire(alice);
  auto kept = p->acquire(bob);
  p->shutdown();
  EXPECT_TRUE(lease);
  EXPECT_FALSE(lease.valid());
  lease.release();
  EXPECT_FALSE(lease);
  p.reset();
  EXPECT_FALSE(kept.valid());
  EXPECT_FALSE(kept.touch());
  EXPECT_EQ(kept.id(), stable_id(bob));
  kept.release();
  EXPECT_EQ(world->running(), 0u);
}

TEST_F(AioProvider, R12_TheDestructorShutsDown) {
  auto p = make();
  auto lease = p->acquire(alice);
  p.reset();
  EXPECT_EQ(world->running(), 0u);
  EXPECT_FALSE(lease.valid());
}

// ---- R13: reset

TEST_F(AioProvider, R13_ResetLeavesWhatItOnlyAdoptedToTheSuccessor) {
  world->run(stable_id(alice));
  world->run(stable_id(bob));
  auto o = options();
  o.orphan_grace = 10s;
  auto p = make(o);
  p->reconcile();
  clock.advance(10s);
  EXPECT_EQ(p->reconcile().adopted, 2u);
  auto given = p->acquire(bob);
  auto made = p->acquire(carol);
  p->reset();
  EXPECT_TRUE(world->runs(stable_id(alice))) << "adopted and never handed out";
  EXPECT_EQ(store->raw().owner(stable_id(alice)), std::nullopt);
  EXPECT_FALSE(world->runs(stable_id(bob))) << "handed out";
  EXPECT_FALSE(world->runs(stable_id(carol))) << "made here";
  EXPECT_EQ(p->stats().forgotten, 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, R13_ResetIsTerminal) {
  auto p = make();
  { auto a = p->acquire(alice); }
  p->reset();
  EXPECT_EQ(p->shutdown(), teardown_status::joined);
  EXPECT_THROW(p->acquire(alice), admission_refused);
  EXPECT_THROW(p->start(), admission_refused);
  const auto calls = world->calls();
  EXPECT_EQ(p->sweep_idle(), 0u);
  const auto report = p->reconcile();
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.listed, 0u);
  EXPECT_FALSE(p->destroy(stable_id(alice)));
  EXPECT_EQ(world->calls(), calls);
}

TEST_F(AioProvider, R13_E8_ResetWakesWaitersAtOnce) {
  gate creating, go;
  auto p = make();
  world->on_create = [&](const create_request&) {
    creating.open();
    static_cast<void>(go.wait());
  };
  auto first = in_role("first", [&] { return p->acquire(alice); });
  ASSERT_TRUE(creating.wait());
  auto second = in_role("second", [&] { return p->acquire(alice); });
  auto resetting = in_role("reset", [&] { p->reset(); });
  EXPECT_THROW(second.get(), admission_refused);
  go.open();
  EXPECT_THROW(first.get(), admission_refused);
  resetting.get();
}

TEST_F(AioProvider, X14_ADetachedProviderNeverReapsWhatItsSuccessorHandsOut) {
  auto o = options();
  o.owner_id = "old";
  auto old = make(o);
  { auto a = old->acquire(alice); }
  park sweeping("pool.finish.drained");
  auto resetting = in_role("reset", [&] { old->reset(); });
  ASSERT_TRUE(sweeping.wait_arrived());
  o.owner_id = "new";
  auto successor = make(o);
  auto adopted = successor->acquire(alice);
  EXPECT_EQ(world->creates(), 1u);
  sweeping.open();
  resetting.get();
  clock.advance(1h);
  EXPECT_EQ(old->sweep_idle(), 0u);
  EXPECT_TRUE(adopted.valid());
  EXPECT_TRUE(world->runs(adopted.id()));
  EXPECT_EQ(old->shutdown(), teardown_status::joined);
  EXPECT_EQ(old->stats().forgotten, 1u);
  quiet(old->stats());
}

// ---- R14, R15: what fails

TEST_F(AioProvider, R14_AFailedStopKeepsItsSlotAndIsRetriedByWhoeverComesBy) {
  for (const std::string retrier : {"sweep_idle", "reconcile", "other owner", "same owner", "destroy"}) {
    auto o = options();
    o.replicas = 1;
    auto p = make(o);
    auto lease = p->acquire(alice);
    world->on_destroy = [](const std::string&) -> bool { throw std::runtime_error("destroy"); };
    EXPECT_FALSE(p->destroy(lease.id())) << retrier;
    auto s = p->stats();
    EXPECT_EQ(s.tombstones, 1u);
    EXPECT_EQ(s.total(), 1u) << "never free capacity";
    EXPECT_EQ(s.destroy_failures, 3u);
    EXPECT_EQ(s.leftover, std::vector<std::string>{lease.id()});
    EXPECT_EQ(s.destroyed, 0u);
    quiet(s);
    world->on_destroy = nullptr;
    if (retrier == "sweep_idle") {
      EXPECT_EQ(p->sweep_idle(), 0u);
    }
    if (retrier == "reconcile") p->reconcile();
    if (retrier == "other owner") {
      EXPECT_TRUE(p->acquire(bob).valid());
    }
    if (retrier == "same owner") {
      EXPECT_TRUE(p->acquire(alice).valid());
    }
    if (retrier == "destroy") {
      EXPECT_TRUE(p->destroy(lease.id()));
    }
    s = p->stats();
    EXPECT_EQ(s.tombstones, 0u) << retrier;
    EXPECT_EQ(s.destroyed, 1u) << retrier;
    EXPECT_EQ(s.over_cap, 0u) << retrier;
    quiet(s);
    p->shutdown();
  }
}

TEST_F(AioProvider, R14_OneRetrierAtATime) {
  gate destroying, go;
  auto p = make();
  auto lease = p->acquire(alice);
  world->on_destroy = [](const std::string&) { return false; };
  EXPECT_FALSE(p->destroy(lease.id()));
  world->on_destroy = [&](const std::string&) {
    destroying.open();
    return go.wait();
  };
  const auto before = world->destroys().size();
  auto first = in_role("first", [&] { return p->sweep_idle(); });
  ASSERT_TRUE(destroying.wait());
  p->reconcile();
  p->sweep_idle();
  go.open();
  first.get();
  EXPECT_EQ(world->destroys().size(), before + 1);
}

TEST_F(AioProvider, R14_AttemptsAreApartAndEndWithTheFirstTrue) {
  std::atomic<int> calls{0};
  auto o = options();
  o.destroy_backoff = 20ms;
  o.destroy_attempts = 5;
  auto p = make(o);
  auto lease = p->acquire(alice);
  world->on_destroy = [&](const std::string&) { return ++calls == 3; };
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(p->destroy(lease.id()));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 40ms);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(p->stats().destroy_failures, 2u);
  EXPECT_EQ(p->stats().destroyed, 1u);
}

TEST_F(AioProvider, R15_AnyExceptionOfCreateReachesItsAcquireUnchanged) {
  auto p = make();
  struct odd {};
  world->on_create = [](const create_request&) { throw odd{}; };
  EXPECT_THROW(p->acquire(alice), odd);
  EXPECT_EQ(p->stats().total(), 0u);
  world->on_create = [](const create_request&) { throw backend_error(backend_fault::rejected, "no", {}, 429); };
  try {
    p->acquire(alice);
    FAIL();
  } catch (const backend_error& error) {
    EXPECT_EQ(error.status(), 429);
  }
  world->on_create = nullptr;
  EXPECT_TRUE(p->acquire(alice).valid()) << "the same owner may try again at once";
  quiet(p->stats());
}

TEST_F(AioProvider, R15_ALeftoverIsCountedAsCreatedAndBecomesATombstone) {
  auto p = make();
  world->run("half-made");
  world->on_create = [](const create_request&) {
    throw backend_error(backend_fault::ambiguous, "who knows", "half-made");
  };
  EXPECT_THROW(p->acquire(alice), backend_error);
  auto s = p->stats();
  EXPECT_EQ(s.created, 1u);
  EXPECT_EQ(s.leftover, std::vector<std::string>{"half-made"});
  quiet(s);
  world->on_create = nullptr;
  world->on_destroy = [](const std::string&) { return false; };
  try {
    p->acquire(alice);
    FAIL();
  } catch (const backend_error& error) {
    EXPECT_EQ(error.fault(), backend_fault::conflict) << "its own tombstone cannot be cleared";
  }
  EXPECT_EQ(world->creates(), 1u);
  world->on_destroy = nullptr;
  EXPECT_TRUE(p->acquire(alice).valid());
  EXPECT_FALSE(world->runs("half-made"));
  quiet(p->stats());
}

TEST_F(AioProvider, R15_ACreateWithoutAnIdIsDestroyedByItsRequest) {
  auto p = make();
  world->name_it = [](const create_request&) { return sandbox_info{}; };
  try {
    p->acquire(alice);
    FAIL();
  } catch (const backend_error& error) {
    EXPECT_EQ(error.fault(), backend_fault::bad_response);
  }
  EXPECT_EQ(world->destroys(), std::vector<std::string>{stable_id(alice)});
  quiet(p->stats());
}

// ---- R16: the lease store

TEST_F(AioProvider, R16_A28_A29_A30_ARefusedClaimLeavesTheEntryAsItWas) {
  auto o = options();
  o.replicas = 2;
  auto p = make(o);
  auto active = p->acquire(alice);
  { auto warm = p->acquire(bob); }
  ASSERT_TRUE(peer_takes(stable_id(alice)));
  ASSERT_TRUE(peer_takes(stable_id(bob)));
  EXPECT_FALSE(p->destroy(active.id()));
  EXPECT_TRUE(active.valid());
  clock.advance(30min);
  EXPECT_EQ(p->sweep_idle(), 0u);
  EXPECT_TRUE(active.valid());
  EXPECT_TRUE(p->acquire(carol).valid());
  auto s = p->stats();
  EXPECT_EQ(s.over_cap, 1u) << "nothing of ours could be evicted";
  EXPECT_EQ(s.evicted, 0u);
  EXPECT_TRUE(world->destroys().empty());
  EXPECT_TRUE(p->acquire(bob).valid()) << "still there, and an acquire takes it back";
  quiet(p->stats());
}

TEST_F(AioProvider, R16_A32_ADeadSandboxOfAPeerIsNotDestroyed) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  ASSERT_TRUE(peer_takes(stable_id(alice)));
  world->on_probe = [](const std::string&) { return liveness::dead; };
  EXPECT_THROW(p->acquire(alice), backend_error);
  EXPECT_TRUE(world->destroys().empty());
  quiet(p->stats());
}

TEST_F(AioProvider, R16_A31_ShutdownForgetsWhatAPeerHasTaken) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  ASSERT_TRUE(peer_takes(stable_id(alice)));
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_TRUE(world->runs(stable_id(alice)));
  EXPECT_EQ(p->stats().forgotten, 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, R16_AShutdownThatAPeerOvertakesHasLeftNothing) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  const std::string id = stable_id(alice);
  ASSERT_TRUE(store->raw().claim(id, "me", std::chrono::hours(1), false) && peer_takes(id));
  store->before = [&](const std::string& verb, const std::string&) {
    if (verb != "owner") return;  // after the claim was refused: the peer has ended it, and let go
    world->stop(id);
    store->raw().release(id, "peer");
  };
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(p->stats().destroyed, 1u);
  EXPECT_EQ(store->raw().owner(id), std::nullopt);
  quiet(p->stats());
}

TEST_F(AioProvider, R7_R16_WhatAPeerEndsBetweenTheProbeAndTheTakingIsReplaced) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  const std::string id = stable_id(alice);
  ASSERT_TRUE(peer_takes(id));
  store->before = [&, once = false](const std::string& verb, const std::string&) mutable {
    if (verb != "take" || std::exchange(once, true)) return;
    world->stop(id);
    store->raw().release(id, "peer");
  };
  const auto l = p->acquire(alice);
  EXPECT_TRUE(l.valid());
  EXPECT_TRUE(world->runs(id)) << "a dead one was handed out";
  EXPECT_EQ(p->stats().replaced, 1u);
  store->before = nullptr;
  quiet(p->stats());
}

TEST_F(AioProvider, R16_WhatAPeerEndsBetweenItsCreateAndTheTakingIsNotHandedOut) {
  auto p = make();
  const std::string id = stable_id(alice);
  ASSERT_TRUE(store->raw().claim(id, "peer", std::chrono::hours(1), true)) << "the last one of this id is being ended";
  world->after_create = [&](const std::string&) {  // and the call that does it meets the new one
    world->stop(id);
    store->raw().release(id, "peer");
  };
  EXPECT_THROW(p->acquire(alice), backend_error);
  EXPECT_EQ(p->stats().discarded, 1u);
  quiet(p->stats());
  world->after_create = nullptr;
  EXPECT_TRUE(p->acquire(alice).valid());
  EXPECT_TRUE(world->runs(id));
}

// The peer tracks one that had this id, and learns only by its next renewal that it is gone.
TEST_F(AioProvider, R16_WhatAPeerClaimsBetweenItsCreateAndTheTakingIsNotHandedOut) {
  auto p = make();
  const std::string id = stable_id(alice);
  world->after_create = [&](const std::string&) {
    ASSERT_TRUE(store->raw().claim(id, "peer", 1h, true)) << "nobody's lease is there for whoever claims it";
    world->stop(id);
    store->raw().release(id, "peer");
  };
  EXPECT_THROW(p->acquire(alice), backend_error);
  EXPECT_EQ(p->stats().discarded, 1u);
  quiet(p->stats());
  world->after_create = nullptr;
  EXPECT_TRUE(p->acquire(alice).valid());
  EXPECT_TRUE(world->runs(id));
}

TEST_F(AioProvider, R7_R16_WhatAPeerClaimsAfterALapseIsReplaced) {
  auto p = make();
  { auto lease = p->acquire(alice); }
  const std::string id = stable_id(alice);
  store->raw().release(id, *store->raw().owner(id));
  store->before = [&, once = false](const std::string& verb, const std::string&) mutable {
    if (verb != "take" || std::exchange(once, true)) return;
    ASSERT_TRUE(store->raw().claim(id, "peer", 1h, true));
    world->stop(id);
    store->raw().release(id, "peer");
  };
  const auto l = p->acquire(alice);
  EXPECT_TRUE(l.valid());
  EXPECT_TRUE(world->runs(id)) << "a dead one was handed out";
  EXPECT_EQ(p->stats().replaced, 1u);
  store->before = nullptr;
  quiet(p->stats());
}

TEST_F(AioProvider, R16_A38_A40_AStoreThatThrowsFailsClosed) {
  auto p = make();
  auto lease = p->acquire(bob);
  store->before = [](const std::string& verb, const std::string&) {
    if (verb != "release") throw lease_store_error("away");
  };
  EXPECT_THROW(p->acquire(alice), lease_store_error);
  EXPECT_FALSE(world->runs(stable_id(alice))) << "a fresh sandbox is destroyed first";
  EXPECT_THROW(p->acquire(bob), lease_store_error);
  EXPECT_FALSE(p->destroy(lease.id()));
  clock.advance(2h);
  EXPECT_EQ(p->sweep_idle(), 0u);
  EXPECT_TRUE(lease.valid());
  EXPECT_EQ(p->shutdown(), teardown_status::failed);
  EXPECT_EQ(p->stats().leftover, std::vector<std::string>{lease.id()});
  store->before = nullptr;
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
  quiet(p->stats());
}

TEST_F(AioProvider, R16_A40_ACreateWhoseLeaseAPeerIsEndingIsDiscarded) {
  auto p = make();
  world->after_create = [&](const std::string& id) { store->raw().claim(id, "peer", 1h, true); };
  try {
    p->acquire(alice);
    FAIL();
  } catch (const backend_error& error) {
    EXPECT_EQ(error.fault(), backend_fault::conflict);
  }
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(p->stats().discarded, 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, R16_A21_TheMarkIsInForceThroughoutATeardownAndReleasedLast) {
  auto p = make();
  auto lease = p->acquire(alice);
  world->on_destroy = [&](const std::string& id) {
    EXPECT_FALSE(peer_takes(id));
    return true;
  };
  park untracked("pool.teardown.untracked");
  auto ended = in_role("destroy", [&] { return p->destroy(lease.id()); });
  ASSERT_TRUE(untracked.wait_arrived());
  EXPECT_FALSE(peer_takes(lease.id()));
  EXPECT_EQ(p->stats().total(), 0u) << "untracked before the mark is gone";
  untracked.open();
  EXPECT_TRUE(ended.get());
  EXPECT_TRUE(peer_takes(lease.id()));
}

TEST_F(AioProvider, R16_A24_TheMarkOfAFailedTeardownIsReleased) {
  auto p = make();
  auto lease = p->acquire(alice);
  world->on_destroy = [](const std::string&) -> bool { throw std::runtime_error("stop"); };
  EXPECT_FALSE(p->destroy(lease.id()));
  EXPECT_TRUE(peer_takes(lease.id()));
}

TEST_F(AioProvider, R16_A22_TheRenewalKeepsAMarkThatATeardownOutlives) {
  aio_options o;  // real time
  o.owner_id = "me";
  o.renewal_interval = 10ms;
  o.ttl_multiplier = 60;
  auto real = std::make_shared<fake_store>();
  std::atomic<bool> refused{true};
  provider p(world, o, real);
  auto lease = p.acquire(alice);
  p.start();
  world->on_destroy = [&](const std::string& id) {
    const auto end = std::chrono::steady_clock::now() + 900ms;  // longer than a lease lives
    while (std::chrono::steady_clock::now() < end) {
      if (real->raw().take(id, "peer", 1h)) refused = false;
      std::this_thread::yield();
    }
    return true;
  };
  EXPECT_EQ(p.shutdown(), teardown_status::completed);
  EXPECT_TRUE(refused);
}

struct AioRenewal : AioProvider {
  // The renewal worker, driven by hand: real workers tick on real time.
  std::shared_ptr<provider> started() {
    auto o = options();
    o.adopt_orphans = false;  // who asks the store for an owner is the renewal
    o.renewal_interval = 1ms;
    o.ttl_multiplier = 60'000;  // 60 s on the test's clock
    o.maintain_interval = 1h;
    o.idle_timeout = 0s;
    return make(o);
  }
};

TEST_F(AioRenewal, R16_ALapsedLeaseIsClaimedAgain) {
  auto p = started();
  auto lease = p->acquire(alice);
  clock.advance(1h);
  EXPECT_EQ(store->raw().owner(lease.id()), std::nullopt);
  p->start();
  EXPECT_TRUE(eventually([&] { return store->raw().owner(lease.id()) == "me"; }));
  EXPECT_TRUE(lease.valid());
}

TEST_F(AioRenewal, R16_A39_ALostLeaseMakesTheSandboxForgottenAndNotDestroyed) {
  auto p = started();
  auto lease = p->acquire(alice);
  ASSERT_TRUE(peer_takes(lease.id()));
  p->start();
  ASSERT_TRUE(eventually([&] { return p->stats().forgotten == 1; }));
  EXPECT_FALSE(lease.valid());
  EXPECT_TRUE(world->runs(lease.id()));
  lease.release();
  EXPECT_TRUE(world->destroys().empty());
  quiet(p->stats());
}

TEST_F(AioRenewal, R16_A38_AStoreThatIsAwayCostsNoSandbox) {
  std::atomic<int> failed{0};
  auto p = started();
  auto lease = p->acquire(alice);
  store->before = [&](const std::string& verb, const std::string&) {
    if (verb == "renew" && failed < 5) {
      ++failed;
      throw lease_store_error("away");
    }
  };
  p->start();
  ASSERT_TRUE(eventually([&] { return failed == 5; }));
  EXPECT_TRUE(lease.valid());
  EXPECT_GE(p->stats().backend_errors, 4u);
}

TEST_F(AioRenewal, R16_A6_AReuseThatReTookTheLeaseAfterTheVerdictKeepsTheSandbox) {
  auto p = started();
  auto lease = p->acquire(alice);
  ASSERT_TRUE(peer_takes(lease.id()));
  park verdict("pool.renew.verdict");
  p->start();
  ASSERT_TRUE(verdict.wait_arrived());
  auto again = p->acquire(alice);  // takes it back
  verdict.open();
  ASSERT_TRUE(eventually([&] { return store->log().size() > 20; }));
  EXPECT_TRUE(again.valid());
  EXPECT_EQ(p->stats().forgotten, 0u);
}

TEST_F(AioRenewal, R16_A8_ATakeThatHasNotReturnedYetKeepsTheSandbox) {
  auto p = started();
  { auto lease = p->acquire(alice); }
  ASSERT_TRUE(peer_takes(stable_id(alice)));
  park taken("pool.acquire.taken", "acquire");
  park verdict("pool.renew.verdict");
  p->start();
  ASSERT_TRUE(verdict.wait_arrived());
  auto acquiring = in_role("acquire", [&] { return p->acquire(alice); });
  ASSERT_TRUE(taken.wait_arrived());
  verdict.open();
  const auto calls = store->calls();
  ASSERT_TRUE(eventually([&] { return store->calls() > calls + 4; }));
  taken.open();
  EXPECT_TRUE(acquiring.get().valid());
  EXPECT_EQ(p->stats().forgotten, 0u);
}

TEST_F(AioRenewal, R12_R16_AShutdownWaitsForARenewalThatHoldsTheKey) {
  gate asked, answer;
  auto p = started();
  { auto lease = p->acquire(alice); }
  clock.advance(1h);
  store->before = [&](const std::string& verb, const std::string&) {
    if (verb != "owner") return;
    asked.open();
    EXPECT_TRUE(answer.wait());
  };
  p->start();
  ASSERT_TRUE(asked.wait());
  park drained("pool.finish.drained", "shutdown");
  auto ending = in_role("shutdown", [&] { return p->shutdown(); });
  EXPECT_FALSE(drained.wait_arrived(1, 50ms)) << "what the renewal holds would be passed over by the sweep";
  answer.open();
  drained.open();
  EXPECT_EQ(ending.get(), teardown_status::completed);
  EXPECT_EQ(world->running(), 0u);
}

// ---- R17 to R21

TEST_F(AioProvider, X15_R17_AForkedChildTouchesNothingOfItsParents) {
  gate creating, go;
  auto p = make();
  p->start();
  auto lease = p->acquire(alice);
  const auto calls = world->calls();
  // A thread that holds everything a child could hang on is inside while the fork happens.
  world->on_create = [&](const create_request&) {
    creating.open();
    static_cast<void>(go.wait());
  };
  auto busy = in_role("busy", [&] { return p->acquire(bob); });
  ASSERT_TRUE(creating.wait());
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
    wrong |= p->get(lease.id()) ? 2 : 0;
    wrong |= p->destroy(lease.id()) ? 4 : 0;
    wrong |= lease.valid() || lease.touch() ? 8 : 0;
    p->release(std::move(lease));
    p->reset();
    p->shutdown();
    wrong |= p->accepting() || p->sweep_idle() != 0 || p->reconcile().listed != 0 ? 16 : 0;
    p.reset();
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  go.open();
  EXPECT_TRUE(busy.get().valid());
  EXPECT_TRUE(lease.valid());
  EXPECT_GE(world->calls(), calls);
  EXPECT_TRUE(world->destroys().empty());
}

TEST_F(AioProvider, R18_AgesUseTheInjectedClock) {
  auto o = options();
  o.idle_timeout = 1h;
  auto p = make(o);
  { auto lease = p->acquire(alice); }
  clock.advance(1h);
  EXPECT_EQ(p->sweep_idle(), 0u) << "not more than the timeout yet";
  clock.advance(1ns);
  EXPECT_EQ(p->sweep_idle(), 1u);
}

TEST_F(AioProvider, R19_AnonymousOwnersShareNothingAndAreDestroyedByTheirRelease) {
  auto p = make();
  auto one = p->acquire({"alice", ""});
  auto two = p->acquire({"alice", ""});
  EXPECT_NE(one.id(), two.id());
  EXPECT_EQ(one.id().size(), 16u);
  one.release();
  EXPECT_EQ(p->stats().warm, 0u);
  EXPECT_EQ(world->running(), 1u);
  two.release();
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(world->lists(), 0u) << "a random id cannot be discovered";
  quiet(p->stats());
}

TEST_F(AioProvider, R16_R19_AnAnonymousOneThatTheStoreKeepsFromEndingIsTriedAgain) {
  bool away = false;
  auto p = make();
  store->before = [&](const std::string& verb, const std::string&) {
    if (away && verb == "claim!") throw lease_store_error("away");
  };
  auto l = p->acquire({"alice", ""});
  away = true;
  l.release();
  EXPECT_EQ(p->stats().active, 0u) << "nobody holds it, and nobody would come back to it";
  EXPECT_EQ(p->stats().tombstones, 1u);
  away = false;
  EXPECT_EQ(p->sweep_idle(), 0u);
  EXPECT_EQ(world->running(), 0u);
  quiet(p->stats());
}

TEST_F(AioProvider, R16_R19_AnAnonymousOneThatAPeerHasTakenIsForgotten) {
  auto p = make();
  auto l = p->acquire({"alice", ""});
  ASSERT_TRUE(peer_takes(l.id()));
  l.release();
  EXPECT_EQ(p->stats().forgotten, 1u);
  EXPECT_EQ(p->stats().total(), 0u);
  EXPECT_EQ(world->running(), 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, R20_NoExceptionLeavesAWorkerAndTheNextTickRuns) {
  std::atomic<int> lists{0};
  auto o = options();
  o.maintain_interval = 1ms;
  auto p = make(o);
  world->on_list = [&] {
    if (++lists < 5) throw std::runtime_error("list");
  };
  p->start();
  ASSERT_TRUE(eventually([&] { return lists >= 6; }));
  EXPECT_GE(p->stats().backend_errors, 4u);
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
}

TEST_F(AioProvider, R20_AThrowingClockIsCountedToo) {
  auto o = options();
  o.maintain_interval = 1ms;
  std::atomic<bool> broken{false};
  o.clock = [&, now = clock.fn()] {
    if (broken) throw std::runtime_error("clock");
    return now();
  };
  auto p = make(o);
  auto lease = p->acquire(alice);
  world->run("stray");
  broken = true;
  p->start();
  ASSERT_TRUE(eventually([&] { return p->stats().backend_errors >= 3; }));
  broken = false;
  EXPECT_TRUE(lease.valid());
}

TEST_F(AioProvider, R20_AClockThatThrowsAtCommitDiscardsWhatWasMade) {
  auto o = options();
  std::atomic<bool> broken{false};
  o.clock = [&, now = clock.fn()] {
    if (broken) throw std::runtime_error("clock");
    return now();
  };
  auto p = make(o);
  world->after_create = [&](const std::string&) { broken = true; };
  EXPECT_THROW(p->acquire(alice), std::runtime_error);
  EXPECT_EQ(world->running(), 0u);
  EXPECT_EQ(store->raw().owner(stable_id(alice)), std::nullopt);
  EXPECT_EQ(p->stats().discarded, 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, R21_NoSignalHandlerUnlessAskedFor) {
  struct sigaction before {
  }, after{};
  ::sigaction(SIGTERM, nullptr, &before);
  auto p = make();
  p->start();
  ::sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

struct AioProviderDeathTest : AioProvider {};

TEST_F(AioProviderDeathTest, R21_AFallbackSignalShutsDownAndThenTakesItsCourse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto o = options();
        o.fallback_signals = {SIGTERM};
        auto p = make(o);
        p->start();
        auto lease = p->acquire(alice);
        world->on_destroy = [](const std::string&) {
          std::fputs("destroyed by the fallback\n", stderr);
          return true;
        };
        ::kill(::getpid(), SIGTERM);
        std::this_thread::sleep_for(curfew_test::patience);
      },
      ::testing::KilledBySignal(SIGTERM), "destroyed by the fallback");
}

TEST_F(AioProvider, E27_StartMakesNoBackendCallOnItsCallersThread) {
  gate listing_now, go;
  std::atomic<std::thread::id> lister{};
  world->on_list = [&] {
    lister = std::this_thread::get_id();
    listing_now.open();
    static_cast<void>(go.wait());
  };
  auto p = make();
  p->start();
  p->start();
  ASSERT_TRUE(listing_now.wait()) << "the first reconcile runs at once, on the worker";
  EXPECT_NE(lister.load(), std::this_thread::get_id());
  EXPECT_TRUE(p->stats().started);
  go.open();
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
}

TEST_F(AioProvider, R10_AnInventoryThatHangsHoldsUpAShutdownNoLongerThanTheWorkersBound) {
  gate listing_now, go;
  auto o = options();
  o.worker_stop = 20ms;
  auto p = make(o);
  world->run("stray");
  world->on_list = [&] {
    listing_now.open();
    static_cast<void>(go.wait());
  };
  p->start();
  ASSERT_TRUE(listing_now.wait());
  EXPECT_EQ(p->shutdown(), teardown_status::completed);
  const auto asked = store->calls();
  p.reset();
  go.open();
  EXPECT_TRUE(eventually([&] { return world.use_count() == 1; })) << "the worker lets the backend go";
  EXPECT_EQ(store->calls(), asked) << "what it listed is not acted on";
}

// ---- RA: the aio policy

TEST_F(AioProvider, RA1_TheIdIsTheOwnersInEveryProcess) {
  auto p = make();
  EXPECT_EQ(p->acquire({"user", "thread"}).id(), "4b8a99b5237474c4");
}

TEST_F(AioProvider, RA1_TheRequestCarriesTheOwnerAndTheEnvironment) {
  create_request seen;
  auto o = options();
  o.environment["KEY"] = "value";
  auto p = make(o);
  world->on_create = [&](const create_request& r) { seen = r; };
  auto lease = p->acquire(alice);
  EXPECT_EQ(seen.id, stable_id(alice));
  EXPECT_EQ(seen.owner, alice);
  EXPECT_EQ(seen.environment.at("KEY"), "value");
  EXPECT_EQ(lease.owner(), alice);
}

TEST_F(AioProvider, RA2_TheOldestWarmOneMakesRoomBeforeTheCreateStarts) {
  auto o = options();
  o.replicas = 2;
  auto p = make(o);
  { auto first = p->acquire(alice); }
  clock.advance(1s);
  { auto second = p->acquire(bob); }
  world->on_create = [&](const create_request& r) {
    if (r.owner == carol) {
      EXPECT_FALSE(world->runs(stable_id(alice)));
    }
  };
  auto third = p->acquire(carol);
  EXPECT_TRUE(world->runs(stable_id(bob)));
  EXPECT_EQ(world->peak(), 2u);
  EXPECT_EQ(p->stats().evicted, 1u);
  EXPECT_EQ(p->stats().over_cap, 0u);
  quiet(p->stats());
}

TEST_F(AioProvider, RA2_ReclaimRenewsItsPlaceAmongTheWarm) {
  auto o = options();
  o.replicas = 2;
  auto p = make(o);
  { auto lease = p->acquire(alice); }
  clock.advance(1s);
  { auto lease = p->acquire(bob); }
  clock.advance(1s);
  { auto lease = p->acquire(alice); }
  auto lease = p->acquire(carol);
  EXPECT_TRUE(world->runs(stable_id(alice)));
  EXPECT_FALSE(world->runs(stable_id(bob)));
}

TEST_F(AioProvider, RA2_AVictimThatCannotBeStoppedBecomesATombstoneAndTheNextIsTried) {
  auto o = options();
  o.replicas = 2;
  auto p = make(o);
  { auto lease = p->acquire(alice); }
  clock.advance(1s);
  { auto lease = p->acquire(bob); }
  world->on_destroy = [](const std::string& id) { return id != stable_id(alice); };
  auto lease = p->acquire(carol);
  const auto s = p->stats();
  EXPECT_EQ(s.tombstones, 1u);
  EXPECT_EQ(s.leftover, std::vector<std::string>{stable_id(alice)});
  EXPECT_FALSE(world->runs(stable_id(bob)));
  EXPECT_EQ(s.total(), 2u);
  EXPECT_EQ(s.over_cap, 0u);
  quiet(s);
  world->on_destroy = nullptr;
}

TEST_F(AioProvider, RA2_AVictimThatWasRefusedKeepsItsAge) {
  auto p = make();
  for (const auto& owner : {alice, bob, carol}) {
    auto lease = p->acquire(owner);
    clock.advance(1s);
  }
  ASSERT_TRUE(peer_takes(stable_id(alice)));
  auto first = p->acquire({"new", "1"});
  EXPECT_FALSE(world->runs(stable_id(bob))) << "the oldest that could be claimed";
  store->raw().release(stable_id(alice), "peer");
  auto second = p->acquire({"new", "2"});
  EXPECT_FALSE(world->runs(stable_id(alice)));
  EXPECT_TRUE(world->runs(stable_id(carol)));
}

TEST_F(AioProvider, RA2_NothingEvictableCreatesAnywayAndSaysSo) {
  auto o = options();
  o.replicas = 1;
  auto p = make(o);
  auto a = p->acquire(alice);
  auto b = p->acquire(bob);
  EXPECT_TRUE(a.valid() && b.valid());
  EXPECT_EQ(p->stats().over_cap, 1u);
  EXPECT_EQ(p->stats().total(), 2u);
}

TEST_F(AioProvider, X8_RA2_RacingAcquiresEvictDifferentVictimsAndNeverExceedTheCap) {
  constexpr int k = 6;
  for (int round = 0; round < 20; ++round) {
    auto o = options();
    o.replicas = k;
    auto p = make(o);
    for (int i = 0; i < k; ++i) p->acquire({"old", std::to_string(i)});
    curfew_test::start_gate start(k);
    std::vector<std::future<lease>> acquiring;
    for (int i = 0; i < k; ++i) {
      acquiring.push_back(in_role("racer", [&, i] {
        start.arrive_and_wait();
        return p->acquire({"new", std::to_string(i)});
      }));
    }
    std::vector<lease> leases;
    for (auto& a : acquiring) leases.push_back(a.get());
    EXPECT_EQ(p->stats().evicted, static_cast<std::uint64_t>(k));
    EXPECT_EQ(p->stats().over_cap, 0u);
    EXPECT_LE(world->peak(), static_cast<std::size_t>(k));
    const auto destroyed = world->destroys();
    EXPECT_EQ(std::set<std::string>(destroyed.end() - k, destroyed.end()).size(), static_cast<std::size_t>(k));
    leases.clear();
    p->shutdown();
  }
}

TEST_F(AioProvider, RA2_SixtyFourRacingAcquiresEvictWhatIsWarmAndGoOverTheSoftCapForTheRest) {
  constexpr int racers = 64, cap = 8;
  auto o = options();
  o.replicas = cap;
  auto p = make(o);
  for (int i = 0; i < cap; ++i) p->acquire({"old", std::to_string(i)});
  curfew_test::start_gate start(racers);
  std::vector<std::future<lease>> acquiring;
  for (int i = 0; i < racers; ++i) {
    acquiring.push_back(in_role("racer", [&, i] {
      start.arrive_and_wait();
      return p->acquire({"new", std::to_string(i)});
    }));
  }
  std::vector<lease> held;
  for (auto& a : acquiring) held.push_back(a.get());
  std::set<std::string> ids;
  for (const lease& one : held) {
    EXPECT_TRUE(one.valid());
    ids.insert(one.id());
  }
  EXPECT_EQ(ids.size(), static_cast<std::size_t>(racers)) << "no id for two owners";
  const auto s = p->stats();
  EXPECT_EQ(s.evicted, static_cast<std::uint64_t>(cap));
  EXPECT_EQ(s.over_cap, static_cast<std::uint64_t>(racers - cap)) << "each one beyond the cap says so";
  EXPECT_EQ(s.total(), static_cast<std::size_t>(racers));
  EXPECT_EQ(world->running(), static_cast<std::size_t>(racers));
  quiet(s);
}

TEST_F(AioProvider, RA3_IdleOnesAreReapedActiveAndWarmAndEveryUseCountsAsActivity) {
  auto p = make();
  auto active = p->acquire(alice);
  { auto warm = p->acquire(bob); }
  clock.advance(600s);
  EXPECT_EQ(p->sweep_idle(), 0u);
  EXPECT_TRUE(active.touch());
  clock.advance(1ns);
  EXPECT_EQ(p->sweep_idle(), 1u) << "bob's";
  EXPECT_TRUE(active.valid());
  clock.advance(600s);
  EXPECT_TRUE(p->get(active.id()).has_value());
  EXPECT_EQ(p->sweep_idle(), 0u);
  clock.advance(601s);
  EXPECT_EQ(p->sweep_idle(), 1u);
  EXPECT_FALSE(active.valid());
  EXPECT_EQ(p->stats().idle_reaped, 2u);
  quiet(p->stats());
}

TEST_F(AioProvider, RA3_ATimeoutOfZeroReapsNothing) {
  auto o = options();
  o.idle_timeout = 0s;
  auto p = make(o);
  { auto lease = p->acquire(alice); }
  clock.advance(24h * 365);
  EXPECT_EQ(p->sweep_idle(), 0u);
  EXPECT_EQ(p->stats().warm, 1u);
}

TEST_F(AioProvider, RA4_OrphansAreAdoptedAfterTheGraceAndNeverAtFirstSight) {
  world->run(stable_id(alice));
  auto o = options();
  o.orphan_grace = 0s;
  auto impatient = make(o);
  EXPECT_EQ(impatient->reconcile().adopted, 0u) << "never at first sight";
  impatient->shutdown();
  auto p = make();
  EXPECT_EQ(p->reconcile().adopted, 0u);
  clock.advance(119s);
  EXPECT_EQ(p->reconcile().adopted, 0u);
  clock.advance(1s);
  const auto report = p->reconcile();
  EXPECT_EQ(report.adopted, 1u);
  EXPECT_EQ(report.listed, 1u);
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(p->stats().warm, 1u);
  EXPECT_EQ(store->raw().owner(stable_id(alice)), "me");
  EXPECT_EQ(p->sweep_idle(), 0u) << "activity is now";
  EXPECT_EQ(p->acquire(alice).id(), stable_id(alice));
  EXPECT_EQ(world->creates(), 0u);
  quiet(p->stats());
}

TEST_F(AioProvider, RA4_A35_AnOwnerSeenOrAnIdVanishedResetsTheGrace) {
  auto p = make();
  world->run("seen-owned");
  world->run("vanished");
  p->reconcile();
  clock.advance(119s);
  store->raw().take("seen-owned", "peer", 500ms);
  world->stop("vanished");
  p->reconcile();
  world->run("vanished");
  clock.advance(1s);
  EXPECT_EQ(p->reconcile().adopted, 0u) << "starts over";
  clock.advance(119s);
  EXPECT_EQ(p->reconcile().adopted, 0u) << "and was not merely paused";
  clock.advance(1s);
  EXPECT_EQ(p->reconcile().adopted, 2u);
}

TEST_F(AioProvider, RA4_AdoptionCanBeTurnedOff) {
  world->run("stray");
  auto o = options();
  o.adopt_orphans = false;
  auto p = make(o);
  p->reconcile();
  clock.advance(24h);
  EXPECT_EQ(p->reconcile().adopted, 0u);
  EXPECT_EQ(store->calls(), 0u);
}

TEST_F(AioProvider, RA4_A10_ReconcileDoesNotAdoptWhatIsBeingTornDown) {
  auto o = options();
  o.orphan_grace = 1s;
  auto p = make(o);
  auto lease = p->acquire(alice);
  park marked("pool.teardown.marked");
  auto ended = in_role("destroy", [&] { return p->destroy(lease.id()); });
  ASSERT_TRUE(marked.wait_arrived());
  p->reconcile();
  clock.advance(1h);
  EXPECT_EQ(p->reconcile().adopted, 0u);
  marked.open();
  EXPECT_TRUE(ended.get());
}

TEST_F(AioProvider, RA4_WhatVanishedFromACompleteInventoryAndProbesDeadIsForgotten) {
  auto p = make();
  auto gone = p->acquire(alice);
  auto hidden = p->acquire(bob);
  world->stop(gone.id());
  world->stop(hidden.id());
  world->on_probe = [&](const std::string& id) { return id == gone.id() ? liveness::dead : liveness::unknown; };
  const auto report = p->reconcile();
  EXPECT_EQ(report.expired, 1u);
  EXPECT_FALSE(gone.valid());
  EXPECT_TRUE(hidden.valid());
  EXPECT_TRUE(world->destroys().empty());
  EXPECT_EQ(p->stats().forgotten, 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, RA4_AnInventoryThatThrowsForgetsNothing) {
  auto p = make();
  auto lease = p->acquire(alice);
  world->stop(lease.id());
  world->on_list = [] { throw std::runtime_error("list"); };
  const auto report = p->reconcile();
  EXPECT_FALSE(report.complete);
  EXPECT_TRUE(lease.valid());
}

TEST_F(AioProvider, RA5_DiscoveryNeedsNoGraceAndAThrowFindsNothing) {
  world->run(stable_id(alice));
  auto p = make();
  EXPECT_EQ(p->acquire(alice).id(), stable_id(alice));
  EXPECT_EQ(world->creates(), 0u);
  world->on_list = [] { throw std::runtime_error("list"); };
  EXPECT_TRUE(p->acquire(bob).valid());
  EXPECT_EQ(world->creates(), 1u);
}

TEST_F(AioProvider, RA5_A4_ADiscoveredOneThatAPeerIsEndingIsAConflict) {
  world->run(stable_id(alice));
  store->raw().claim(stable_id(alice), "peer", 1h, true);
  auto p = make();
  try {
    p->acquire(alice);
    FAIL();
  } catch (const backend_error& error) {
    EXPECT_EQ(error.fault(), backend_fault::conflict);
  }
  EXPECT_EQ(world->creates(), 0u);
  EXPECT_EQ(p->stats().total(), 0u);
}

TEST_F(AioProvider, RA6_A49_TwoOwnersOnOneIdFailClosed) {
  auto p = make();
  auto first = p->acquire(alice);
  world->name_it = [&](const create_request&) { return first.info(); };
  EXPECT_THROW(p->acquire(bob), identity_conflict);
  EXPECT_TRUE(first.valid());
  EXPECT_EQ(first.owner(), alice);
  EXPECT_TRUE(world->destroys().empty());
  EXPECT_EQ(p->stats().total(), 1u);
  quiet(p->stats());
}

TEST_F(AioProvider, RA6_TwoCreatesThatAnswerOneIdFailClosedAtCommit) {
  auto p = make();
  world->name_it = [](const create_request&) { return sandbox_info{"same", "fake://same"}; };
  park taken("pool.acquire.taken", "second");
  auto second = in_role("second", [&] { return p->acquire(bob); });
  ASSERT_TRUE(taken.wait_arrived());
  auto first = p->acquire(alice);
  taken.open();
  EXPECT_THROW(second.get(), identity_conflict);
  EXPECT_TRUE(first.valid());
  EXPECT_TRUE(world->destroys().empty());
  quiet(p->stats());
}

// ---- bad input

TEST_F(AioProvider, BadOptionsAreRefusedByName) {
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
  refused([](aio_options& o) { o.replicas = 0; }, "replicas");
  refused([](aio_options& o) { o.idle_timeout = -1ns; }, "idle_timeout");
  refused([](aio_options& o) { o.maintain_interval = 0s; }, "maintain_interval");
  refused([](aio_options& o) { o.renewal_interval = 0s; }, "renewal_interval");
  refused([](aio_options& o) { o.renewal_interval = std::chrono::nanoseconds::max(); }, "renewal_interval");
  refused([](aio_options& o) { o.ttl_multiplier = 1; }, "ttl_multiplier");
  refused([](aio_options& o) { o.orphan_grace = -1ns; }, "orphan_grace");
  refused([](aio_options& o) { o.shutdown_budget = -1ns; }, "shutdown_budget");
  refused([](aio_options& o) { o.worker_stop = -1ns; }, "worker_stop");
  refused([](aio_options& o) { o.destroy_backoff = -1ns; }, "destroy_backoff");
  refused([](aio_options& o) { o.destroy_attempts = 0; }, "destroy_attempts");
  refused([](aio_options& o) { o.environment["9x"] = ""; }, "9x");
  refused([](aio_options& o) { o.environment["x"] = std::string(1, '\0'); }, "x");
}

// A store that must be told where its server is.
struct distant_store : fake_store {
  explicit distant_store(const char*) {}
};

TEST_F(AioProvider, AStoreThatCannotBeMadeHereMustBeGiven) {
  using distant = aio_provider<fake_backend, distant_store, curfew_test::provider_sync>;
  EXPECT_TRUE(distant(world, options(), std::make_shared<distant_store>("server")).acquire(alice).valid());
  EXPECT_THROW(distant(world, options()), std::invalid_argument);
}

TEST_F(AioProvider, R5_AnAnswerWithoutAnIdIsNoDiscovery) {
  auto p = make();
  world->run(sandbox_info{"", "fake://", stable_id(alice)});
  EXPECT_EQ(p->acquire(alice).id(), stable_id(alice));
  EXPECT_EQ(p->stats().adopted, 0u);
}

#ifndef CURFEW_TEST_CANNOT_STARVE
TEST_F(AioProvider, R15_WhatRunsWhenMemoryEndsIsEnded) {
  bool served = false;
  for (long nth = 0; !served; ++nth) {
    ASSERT_LT(nth, 100);
    auto p = make();
    world->name_it = [&](const create_request& r) {
      return sandbox_info{"an id that the server has given to " + r.id, "fake://"};
    };
    world->after_create = [&](const std::string&) { starve_at = nth; };
    try {
      const auto l = p->acquire(alice);
      served = std::exchange(starve_at, -1) >= 0;
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(p->stats().total(), world->running()) << "allocation " << nth;
    }
    starve_at = -1;
    world->after_create = nullptr;
    EXPECT_EQ(p->shutdown(), teardown_status::completed);
    EXPECT_EQ(world->running(), 0u) << "allocation " << nth;
  }
}

TEST_F(AioProvider, R14_AnEndWithoutMemoryLeavesNothingInTransition) {
  bool gone = false;
  for (long nth = 0; !gone; ++nth) {
    ASSERT_LT(nth, 100);
    auto p = make();
    const auto l = p->acquire(alice);
    const std::string id = l.id();
    try {
      starve_at = nth;
      gone = p->destroy(id) && starve_at >= 0;
    } catch (const std::bad_alloc&) {
    }
    starve_at = -1;
    EXPECT_EQ(p->stats().transitioning, 0u) << "allocation " << nth;
    store->raw().release(id, "me");  // without memory for it a mark stays until it lapses
  }
}
#endif

TEST_F(AioProvider, BadOwnersAreRefusedBeforeAnythingIsReserved) {
  auto p = make();
  EXPECT_THROW(p->acquire({std::string(257, 'u'), "1"}), std::invalid_argument);
  EXPECT_THROW(p->acquire({"u", std::string(257, 't')}), std::invalid_argument);
  EXPECT_THROW(p->acquire({"u\n", "1"}), std::invalid_argument);
  EXPECT_THROW(p->acquire({"u", "\x7f"}), std::invalid_argument);
  EXPECT_EQ(p->stats().total(), 0u);
  EXPECT_EQ(world->calls(), 0u);
  EXPECT_TRUE(p->acquire({std::string(256, 'u'), "\xc3\xa4"}).valid());
}

TEST_F(AioProvider, ALeaseOfAnotherProviderGoesBackToItsOwn) {
  auto p = make();
  auto o = options();
  o.owner_id = "other";
  auto other = make(o);
  auto foreign = other->acquire(alice);
  EXPECT_THROW(p->release(std::move(foreign)), std::invalid_argument);
  EXPECT_EQ(other->stats().warm, 1u);
  p->release(lease());
  auto own = p->acquire(bob);
  p->release(std::move(own));
  EXPECT_EQ(p->stats().warm, 1u);
}

TEST_F(AioProvider, AnEmptyLeaseHasNoEffect) {
  lease empty;
  EXPECT_FALSE(empty);
  EXPECT_FALSE(empty.valid());
  EXPECT_FALSE(empty.touch());
  EXPECT_TRUE(empty.id().empty());
  empty.release();
  auto p = make();
  auto held = p->acquire(alice);
  lease moved = std::move(held);
  EXPECT_FALSE(held);  // NOLINT: the moved-from state is what is tested
  EXPECT_TRUE(moved.valid());
  moved = p->acquire(bob);
  EXPECT_EQ(p->stats().warm, 1u) << "assigning over a lease releases it";
}

// ---- everything at once

TEST_F(AioProvider, StormKeepsItsBooksAndShutdownLeavesNothing) {
  for (int round = 0; round < 4; ++round) {
    auto o = options();
    o.replicas = 3;
    o.idle_timeout = 5ms;
    o.orphan_grace = 5ms;
    o.maintain_interval = 1ms;
    o.renewal_interval = 1ms;
    o.ttl_multiplier = 100'000;
    o.clock = nullptr;
    auto real = std::make_shared<fake_store>();
    std::atomic<unsigned> dice{static_cast<unsigned>(round)};
    provider p(world, o, real);
    world->on_destroy = [&](const std::string&) { return dice.fetch_add(7) % 5 != 0; };
    world->on_create = [&](const create_request& r) {
      if (dice.fetch_add(3) % 11 == 0) throw backend_error(backend_fault::unavailable, "no", dice % 2 ? r.id : "");
    };
    world->on_probe = [&](const std::string& id) {
      return dice.fetch_add(1) % 13 == 0 || !world->runs(id) ? liveness::dead : liveness::alive;
    };
    p.start();
    std::vector<std::thread> threads;
    std::atomic<int> served{0};
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t + 100u * static_cast<unsigned>(round));
        for (int i = 0; i < 150; ++i) {
          try {
            auto l = p.acquire({"u", random() % 8 == 0 ? "" : std::to_string(random() % 5)});
            ++served;
            if (random() % 8 == 0) p.destroy(l.id());
            if (random() % 4 == 0) l.touch();
            if (random() % 8 == 0) world->stop(l.id());
            static_cast<void>(p.get(l.id()));
          } catch (const backend_error&) {
          } catch (const admission_refused&) {
            return;
          }
        }
      });
    }
    if (round % 2 == 0) {
      static_cast<void>(eventually([&] { return served > 100; }, 5s));
    } else {
      for (auto& t : threads) t.join();
    }
    while (p.shutdown() == teardown_status::failed) {
    }
    if (round % 2 == 0) {
      for (auto& t : threads) t.join();
    }
    const auto s = p.stats();
    EXPECT_EQ(s.total(), 0u);
    quiet(s);
    EXPECT_EQ(world->running(), 0u);
    EXPECT_THROW(p.acquire(alice), admission_refused);
  }
}

}  // namespace
