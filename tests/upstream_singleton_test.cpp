// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The regression suite of the provider singleton that guarded_singleton replaces, test by test. The first five carry
// the names that the races had there; the X cases are what that suite did not look at, and its subject got wrong. Where
// the original widens a window by sleeping, the window is held open here until everybody is in it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/guarded_singleton.hpp>

#include "support/park.hpp"

namespace {

using curfew::recursive_creation;
using curfew::scoped_singleton;
using curfew::singleton_sealed;
using curfew::teardown_reason;
using curfew_test::gate;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::role_scope;
using curfew_test::start_gate;
using curfew_test::watchdog;
using namespace std::chrono_literals;

/// What runs outside the process: shared by all providers, and what a teardown may wrongly stop.
struct backend {
  std::mutex mutex;
  std::set<std::string> running;

  void stop(const std::string& id) {
    std::lock_guard lock(mutex);
    running.erase(id);
  }
  std::set<std::string> list() {
    std::lock_guard lock(mutex);
    return running;
  }
};

class provider;

/// Everything that the providers of one test have in common. Hooks are set before threads start.
struct site {
  std::function<void()> in_constructor;
  std::function<void(provider&)> in_shutdown;
  std::atomic<int> config{1};
  std::atomic<int> constructed{0}, destroyed{0}, workers{0}, sunk_errors{0};
  backend containers;
  std::mutex mutex;
  std::vector<int> shutdown_of;  // serial numbers, one for each call

  int shutdown_calls(int serial) {
    std::lock_guard lock(mutex);
    return static_cast<int>(std::count(shutdown_of.begin(), shutdown_of.end(), serial));
  }
};

/// Adopts every running container and starts a worker when it is started; ends both when it is shut down.
class provider {
 public:
  explicit provider(site& at) : at_(at), config(at.config.load()), serial(++at.constructed) {
    if (at.in_constructor) at.in_constructor();
    whole_ = true;
  }
  provider(const provider&) = delete;
  provider& operator=(const provider&) = delete;
  ~provider() {
    whole_ = false;
    ++at_.destroyed;
  }

  void start() {
    adopted_ = at_.containers.list();
    ++at_.workers;
    working_ = true;
  }
  void reset() { ++resets; }
  void shutdown() {
    ++shutdowns;
    {
      std::lock_guard lock(at_.mutex);
      at_.shutdown_of.push_back(serial);
    }
    if (at_.in_shutdown) at_.in_shutdown(*this);
    if (std::exchange(working_, false)) --at_.workers;
    for (const auto& id : adopted_) at_.containers.stop(id);
  }
  bool whole() const { return whole_; }

 private:
  site& at_;
  bool whole_ = false;  // plain on purpose: a half-built one would be a data race as well
  bool working_ = false;
  std::set<std::string> adopted_;

 public:
  const int config;
  const int serial;
  std::atomic<int> resets{0}, shutdowns{0};
};

struct provider_traits {
  site* at;
  std::unique_ptr<provider> make() { return std::make_unique<provider>(*at); }
  void start(provider& it) { it.start(); }
  void on_reset(provider& it) { it.reset(); }
  void on_shutdown(provider& it, teardown_reason) { it.shutdown(); }
  void on_error(std::exception_ptr, teardown_reason) noexcept { ++at->sunk_errors; }
};

using singleton = scoped_singleton<provider, provider_traits, park_sync>;

/// Runs each function on a thread of its own, all of them from one instant, and joins them.
class together {
 public:
  void add(std::function<void()> role) { roles_.push_back(std::move(role)); }
  void run() {
    start_gate start(static_cast<unsigned>(roles_.size()));
    std::vector<std::thread> threads;
    for (auto& role : roles_) {
      threads.emplace_back([&start, &role] {
        start.arrive_and_wait();
        role();
      });
    }
    for (auto& each : threads) each.join();
  }

 private:
  std::vector<std::function<void()>> roles_;
};

struct Upstream : testing::Test {
  static constexpr int racers = 8;
  watchdog dog{"upstream suite"};
  site at;
  singleton s{"provider", provider_traits{&at}};

  /// Four getters against one other call, on an instance that is there already.
  void four_getters_against(const std::function<void()>& other) {
    for (int round = 0; round < 100; ++round) {
      static_cast<void>(s.get());
      std::array<singleton::handle, 4> got;
      together all;
      for (auto& mine : got) {
        all.add([&] {
          mine = s.get();
          EXPECT_TRUE(mine->whole()) << "seen by the getter itself, not after the race";
        });
      }
      all.add(other);
      all.run();
      for (auto& each : got) {
        ASSERT_TRUE(each);
        EXPECT_TRUE(each->whole());
      }
    }
  }
};

// ---- the five ----

// S1
TEST_F(Upstream, GetInstallsOneSingletonUnderConcurrentAccess) {
  start_gate constructing(racers);
  at.in_constructor = [&] { constructing.arrive_and_wait(); };
  std::array<singleton::handle, racers> got;
  together all;
  for (auto& mine : got) all.add([&] { mine = s.get(); });
  all.run();
  at.in_constructor = nullptr;
  const auto installed = s.get();
  for (const auto& each : got) EXPECT_EQ(each.get(), installed.get());
  EXPECT_EQ(at.constructed, racers) << "the race was one";
  EXPECT_EQ(at.workers, 1) << "of the threads that providers start, only the installed one's are left";
}

// S2
TEST_F(Upstream, ResetRacingGetOfLiveSingletonNeverReturnsNoneOrTorn) {
  four_getters_against([&] { s.reset(); });
  EXPECT_EQ(s.stats().torn_down, s.stats().made - s.stats().live);
}

// S3: the callback lasts until every getter has an instance, so that it does overlap them.
TEST_F(Upstream, ShutdownRacingGetOfLiveSingletonNeverReturnsNoneOrTorn) {
  four_getters_against([&] { s.shutdown(); });

  static_cast<void>(s.get());
  gate in_shutdown, finish;
  at.in_shutdown = [&](provider& it) {
    if (in_shutdown.is_open()) return;  // a loser's
    in_shutdown.open();
    EXPECT_TRUE(finish.wait());
    EXPECT_TRUE(it.whole()) << "alive to the end of its own shutdown";
  };
  std::thread shutter([&] { EXPECT_TRUE(s.shutdown()); });
  ASSERT_TRUE(in_shutdown.wait());
  const auto rebuilt = s.get();
  EXPECT_TRUE(rebuilt->whole());
  EXPECT_EQ(rebuilt->shutdowns, 0) << "not the one that is going down";
  finish.open();
  shutter.join();
  at.in_shutdown = nullptr;
}

// S4
TEST_F(Upstream, SetRacingGetNeverReturnsNoneOrTorn) {
  four_getters_against([&] {
    const auto previous = s.set(std::make_unique<provider>(at));
    EXPECT_EQ(previous->shutdowns, 0) << "the caller owns its end";
  });
}

// S5
TEST_F(Upstream, LosingColdStartRacerShutsDownItsOrphan) {
  start_gate constructing(racers);
  at.in_constructor = [&] { constructing.arrive_and_wait(); };
  together all;
  for (int i = 0; i < racers; ++i) all.add([&] { static_cast<void>(s.get()); });
  all.run();
  at.in_constructor = nullptr;
  const auto winner = s.get();
  EXPECT_EQ(winner->shutdowns, 0);
  EXPECT_EQ(at.constructed, racers);
  for (int serial = 1; serial <= racers; ++serial) {
    EXPECT_EQ(at.shutdown_calls(serial), serial == winner->serial ? 0 : 1);
  }
  EXPECT_EQ(at.destroyed, racers - 1);
}

// ---- what that suite did not look at ----

// A construction in flight over a shutdown was installed after it, and nobody shut it down.
TEST_F(Upstream, X1_ConstructionInFlightOverAShutdownIsNotInstalledAfterIt) {
  park constructed("singleton.create.made", "getter");
  singleton::handle got;
  std::thread getter([&] {
    const role_scope role("getter");
    got = s.get();
  });
  ASSERT_TRUE(constructed.wait_arrived());
  EXPECT_FALSE(s.shutdown()) << "there was nothing to take";
  constructed.open();
  getter.join();
  EXPECT_EQ(got->serial, 2);
  EXPECT_EQ(at.shutdown_calls(1), 1);
  EXPECT_EQ(at.destroyed, 1);
  EXPECT_EQ(at.workers, 1);
}

// The same over a reset, with a new configuration: the old one stayed for ever.
TEST_F(Upstream, X2_ConstructionInFlightOverAResetNeverLeavesTheOldConfiguration) {
  park constructed("singleton.create.made", "getter");
  singleton::handle got;
  std::thread getter([&] {
    const role_scope role("getter");
    got = s.get();
  });
  ASSERT_TRUE(constructed.wait_arrived());
  at.config = 2;
  s.reset();
  constructed.open();
  getter.join();
  EXPECT_EQ(got->config, 2);
  EXPECT_EQ(s.get()->config, 2);
  EXPECT_EQ(at.shutdown_calls(1), 1);
}

// A get after the last shutdown built a provider that nobody ended. There, seal; here also in flight.
TEST_F(Upstream, X3_AfterTheEndNoGetBringsItBackToLife) {
  static_cast<void>(s.get());
  park constructed("singleton.create.made", "getter");
  s.shutdown();
  std::thread getter([&] {
    const role_scope role("getter");
    EXPECT_THROW(static_cast<void>(s.get()), singleton_sealed);
  });
  ASSERT_TRUE(constructed.wait_arrived());
  EXPECT_TRUE(s.seal());
  constructed.open();
  getter.join();
  EXPECT_THROW(static_cast<void>(s.get()), singleton_sealed);
  EXPECT_FALSE(s.try_get());
  EXPECT_EQ(at.workers, 0);
  EXPECT_EQ(at.destroyed, at.constructed);
}

// A loser's shutdown error came out of get(), although there was a healthy winner.
TEST_F(Upstream, X4_ALosersShutdownErrorIsNotItsCallersProblem) {
  constexpr int four = 4;
  start_gate constructing(four);
  at.in_constructor = [&] { constructing.arrive_and_wait(); };
  at.in_shutdown = [](provider&) { throw std::runtime_error("cannot stop"); };
  std::atomic<int> healthy{0};
  together all;
  for (int i = 0; i < four; ++i) all.add([&] { healthy += s.get()->whole() ? 1 : 0; });
  all.run();
  EXPECT_EQ(healthy, four);
  EXPECT_EQ(at.sunk_errors, four - 1);
  EXPECT_EQ(s.stats().teardown_errors, 3u);
  at.in_constructor = nullptr;
  at.in_shutdown = nullptr;
}

// A constructor that asks for the provider built one after the other until the stack was full.
TEST_F(Upstream, X5_AConstructorThatAsksForItselfIsToldSo) {
  at.in_constructor = [&] { static_cast<void>(s.get()); };
  try {
    static_cast<void>(s.get());
    ADD_FAILURE() << "returned";
  } catch (const recursive_creation& e) {
    EXPECT_NE(std::string(e.what()).find("provider -> provider"), std::string::npos) << e.what();
  }
  EXPECT_EQ(at.constructed, 1);
  EXPECT_FALSE(s.has_value());
  at.in_constructor = nullptr;
  EXPECT_TRUE(s.get()) << "and nothing is broken by it";
}

// Each constructor adopted every running container; each loser's shutdown stopped them under the winner.
TEST_F(Upstream, X6_LosersOfAColdStartStopNothingThatTheWinnerHasAdopted) {
  at.containers.running = {"a", "b"};
  start_gate constructing(racers);
  at.in_constructor = [&] { constructing.arrive_and_wait(); };
  together all;
  for (int i = 0; i < racers; ++i) all.add([&] { static_cast<void>(s.get()); });
  all.run();
  at.in_constructor = nullptr;
  EXPECT_EQ(at.constructed, racers);
  EXPECT_EQ(at.containers.list(), (std::set<std::string>{"a", "b"})) << "only what was started has adopted anything";
  s.shutdown();
  EXPECT_TRUE(at.containers.list().empty());
}

// Five cycles left five instances reachable, each with an exit handler and a signal handler in a chain.
TEST_F(Upstream, X7_CyclesOfGetAndShutdownLeaveNothingBehind) {
  for (int cycle = 1; cycle <= 5; ++cycle) {
    EXPECT_EQ(s.get()->serial, cycle);
    EXPECT_TRUE(s.shutdown());
    EXPECT_EQ(at.destroyed, cycle);
    EXPECT_EQ(at.workers, 0);
  }
  EXPECT_TRUE(s.drain_for(0s));
  EXPECT_EQ(s.stats().live, 0u);
}

// The original promised a real object, not a live one: a getter could be given one whose teardown had run.
TEST_F(Upstream, WhatAGetterHoldsStaysWholeThroughItsShutdown) {
  auto held = s.get();
  EXPECT_TRUE(s.shutdown());
  EXPECT_TRUE(held.detached()) << "and it can tell";
  EXPECT_TRUE(held->whole());
  EXPECT_EQ(held->shutdowns, 1);
  held.release();
  EXPECT_EQ(at.destroyed, 1);
}

}  // namespace
