// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// guarded_singleton with several threads, each order forced by parking threads at named points; storms; fork.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/guarded_singleton.hpp>

#include "support/park.hpp"
#include "support/singleton_world.hpp"

#if CURFEW_POSIX
#include <sys/wait.h>
#include <unistd.h>
#endif

#if defined(__has_feature)
#define CURFEW_TEST_HAS_FEATURE(x) __has_feature(x)
#else
#define CURFEW_TEST_HAS_FEATURE(x) 0
#endif

namespace {

using curfew::drain_status;
using curfew::guarded_singleton;
using curfew::recursive_creation;
using curfew::scoped_singleton;
using curfew::singleton_sealed;
using curfew::singleton_traits;
using curfew::teardown_reason;
using curfew_test::balanced;
using curfew_test::flight_traits;
using curfew_test::gate;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::role_scope;
using curfew_test::start_gate;
using curfew_test::starting_flight_traits;
using curfew_test::starting_traits;
using curfew_test::thing;
using curfew_test::watchdog;
using curfew_test::world;
using curfew_test::world_traits;
using namespace std::chrono_literals;

using singleton = scoped_singleton<thing, world_traits, park_sync>;
using starting_singleton = scoped_singleton<thing, starting_traits, park_sync>;
using flight_singleton = scoped_singleton<thing, flight_traits, park_sync>;

// Runs f on a thread with a role name; joins at the end of its life.
class actor {
 public:
  template <class F>
  actor(const char* role, F f)
      : thread_([role, f = std::move(f)]() mutable {
          const role_scope named(role);
          f();
        }) {}
  ~actor() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

struct GuardedSingletonRace : testing::Test {
  watchdog dog{"guarded_singleton race", 120s};
  world w;
  singleton s{"subject", world_traits{&w}};
  ~GuardedSingletonRace() override { EXPECT_TRUE(balanced(s.stats())); }
};

// ---- rule 2: cold start ----

TEST_F(GuardedSingletonRace, Rule2_ManyCandidatesOneWinnerEveryLoserTornDownOnce) {
  constexpr int racers = 8;
  start_gate all_are_making(racers);
  w.on_make = [&] { all_are_making.arrive_and_wait(); };
  std::vector<singleton::handle> got(racers);
  {
    std::vector<std::unique_ptr<actor>> threads;
    for (auto& mine : got) {
      threads.push_back(std::make_unique<actor>("racer", [&] { mine = s.get(); }));
    }
  }
  for (auto& each : got) EXPECT_EQ(each.get(), got[0].get());
  EXPECT_EQ(s.get().get(), got[0].get());
  EXPECT_EQ(got[0]->torn, 0);
  EXPECT_EQ(w.constructed, racers);
  EXPECT_EQ(w.destroyed, racers - 1);
  EXPECT_EQ(w.shutdowns(teardown_reason::lost_race), racers - 1);
  EXPECT_EQ(w.shutdowns(), racers - 1);
  const auto stats = s.stats();
  EXPECT_EQ(stats.made, 8u);
  EXPECT_EQ(stats.installed, 1u);
  EXPECT_EQ(stats.lost_races, 7u);
}

TEST_F(GuardedSingletonRace, Rule2_ALosersErrorGoesToOnErrorAndItsCallerGetsTheWinner) {
  constexpr int racers = 4;
  start_gate all_are_making(racers);
  w.on_make = [&] { all_are_making.arrive_and_wait(); };
  w.on_shutdown = [](thing&, teardown_reason) { throw std::runtime_error("loser"); };
  std::atomic<int> healthy{0};
  {
    std::vector<std::unique_ptr<actor>> threads;
    for (int i = 0; i < racers; ++i) {
      threads.push_back(std::make_unique<actor>("racer", [&] { healthy += s.get() ? 1 : 0; }));
    }
  }
  EXPECT_EQ(healthy, racers);
  EXPECT_EQ(w.errors, racers - 1);
  EXPECT_EQ(w.last_error_reason, static_cast<int>(teardown_reason::lost_race));
  EXPECT_EQ(s.stats().teardown_errors, 3u);
  w.on_shutdown = nullptr;
}

TEST_F(GuardedSingletonRace, Rule2_ARacersMakeErrorIsItsOwnAlsoWhenAWinnerExists) {
  park late("singleton.create.begun", "unlucky");
  actor unlucky("unlucky", [&] { EXPECT_THROW(static_cast<void>(s.get()), std::runtime_error); });
  ASSERT_TRUE(late.wait_arrived());
  EXPECT_TRUE(s.get());
  w.on_make = [] { throw std::runtime_error("mine"); };
  late.open();
  unlucky.join();
  EXPECT_TRUE(s.has_value());
}

TEST_F(GuardedSingletonRace, Rule7_NoRacerEverSeesARecursionError) {
  for (int round = 0; round < 100; ++round) {
    start_gate start(8);
    std::vector<std::unique_ptr<actor>> threads;
    for (int i = 0; i < 8; ++i) {
      threads.push_back(std::make_unique<actor>("racer", [&] {
        start.arrive_and_wait();
        ASSERT_NO_THROW(ASSERT_TRUE(s.get()));
      }));
    }
    threads.clear();
    s.reset();
  }
}

// Nobody is held up to make them meet, except at the start of each round; the factory gives way, so that on few cores,
// too, many are making at once.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || CURFEW_TEST_HAS_FEATURE(thread_sanitizer) || \
    CURFEW_TEST_HAS_FEATURE(address_sanitizer)
constexpr int cold_starts = 1000;
#else
constexpr int cold_starts = 10000;
#endif
TEST(GuardedSingletonColdStart, Rule2_ThirtyTwoThreadsManyTimesOver) {
  const watchdog dog("cold starts", 150s);
  constexpr int racers = 32;
  struct yielding_traits : world_traits {
    std::unique_ptr<thing> make() const {
      std::this_thread::yield();
      return world_traits::make();
    }
  };
  struct round {
    world w;
    scoped_singleton<thing, yielding_traits> s{"cold", yielding_traits{{&w}}};
  };
  std::unique_ptr<round> now;
  std::array<const thing*, racers> got{};
  int most = 0, wrong = 0;
  std::barrier begin(racers + 1), end(racers + 1);
  std::vector<std::unique_ptr<actor>> threads;
  for (auto& mine : got) {
    threads.push_back(std::make_unique<actor>("racer", [&] {
      for (int i = 0; i < cold_starts; ++i) {
        begin.arrive_and_wait();
        mine = now->s.get().get();
        end.arrive_and_wait();
      }
    }));
  }
  for (int i = 0; i < cold_starts; ++i) {
    now = std::make_unique<round>();
    begin.arrive_and_wait();
    end.arrive_and_wait();
    const auto current = now->s.try_get();
    const int made = now->w.constructed;
    bool right = made <= racers && now->w.destroyed == made - 1 && now->w.shutdowns() == made - 1;
    right = right && now->w.shutdowns(teardown_reason::lost_race) == made - 1;
    right = right && now->s.stats().torn_down == static_cast<unsigned>(made - 1);
    for (const thing* each : got) right = right && each == current.get();
    wrong += !right;
    most = std::max(most, made);
  }
  EXPECT_EQ(wrong, 0) << "rounds in which a loser was not torn down once, or somebody got another instance";
  EXPECT_GT(most, 1) << "not one of them was a race";
}

// ---- rule 3: a candidate in flight over everything that outdates it ----

struct in_flight {
  const char* name;
  std::function<void(singleton&, world&)> call;
  teardown_reason fate;
};

TEST_F(GuardedSingletonRace, Rule3_ACandidateInFlightOverAnEmptySlotIsNeverInstalled) {
  const std::vector<in_flight> cases = {
      {"reset", [](singleton& it, world&) { EXPECT_FALSE(it.reset()); }, teardown_reason::stale},
      {"shutdown", [](singleton& it, world&) { EXPECT_FALSE(it.shutdown()); }, teardown_reason::stale},
      {"detach", [](singleton& it, world&) { EXPECT_FALSE(it.detach()); }, teardown_reason::stale},
      {"set", [](singleton& it, world& in) { EXPECT_FALSE(it.set(std::make_unique<thing>(&in, 1))); },
       teardown_reason::stale},
      {"override", [](singleton& it, world& in) { auto scope = it.override_with(std::make_unique<thing>(&in)); },
       teardown_reason::stale},
      {"seal and unseal",
       [](singleton& it, world&) {
         EXPECT_TRUE(it.seal());
         EXPECT_TRUE(it.unseal());
       },
       teardown_reason::sealed},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.name);
    const int before = w.shutdowns(each.fate);
    park made("singleton.create.made", "getter");
    thing* first = nullptr;
    w.on_shutdown = [&](thing& it, teardown_reason why) {
      if (why == each.fate) first = &it;
    };
    singleton::handle got;
    actor getter("getter", [&] { got = s.get(); });
    ASSERT_TRUE(made.wait_arrived());
    each.call(s, w);
    made.open();
    getter.join();
    EXPECT_EQ(w.shutdowns(each.fate), before + 1) << "torn down exactly once";
    ASSERT_TRUE(got);
    EXPECT_EQ(got->torn, 0);
    EXPECT_EQ(got.get(), s.try_get().get());
    w.on_shutdown = nullptr;
    got.release();
    s.reset();
    EXPECT_EQ(w.alive(), 0);
  }
}

TEST_F(GuardedSingletonRace, Rule3_ResetWithNewConfigurationNeverLeavesTheOldConfigurationInstalled) {
  std::atomic<int> config{1};
  struct config_traits {
    std::atomic<int>* from;
    std::unique_ptr<int> make() { return std::make_unique<int>(from->load()); }
  };
  scoped_singleton<int, config_traits, park_sync> configured{"configured", config_traits{&config}};
  park made("singleton.create.made", "getter");
  int seen = 0;
  actor getter("getter", [&] { seen = *configured.get(); });
  ASSERT_TRUE(made.wait_arrived());
  config = 2;
  configured.reset();
  made.open();
  getter.join();
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(*configured.get(), 2);
}

TEST_F(GuardedSingletonRace, Rule3_SealWhileMakingEndsTheCandidateAndItsCallerIsRefused) {
  park made("singleton.create.made", "getter");
  actor getter("getter", [&] { EXPECT_THROW(static_cast<void>(s.get()), singleton_sealed); });
  ASSERT_TRUE(made.wait_arrived());
  EXPECT_TRUE(s.seal());
  made.open();
  getter.join();
  EXPECT_EQ(w.shutdowns(teardown_reason::sealed), 1);
  EXPECT_EQ(w.alive(), 0);
}

// ---- rule 4: stale getters ----

TEST_F(GuardedSingletonRace, Rule4_AGetterThatLoadedAnEmptiedBlockFindsTheNewInstance) {
  thing* const old = s.get().get();
  park loaded("singleton.hit.loaded", "getter");
  singleton::handle got;
  actor getter("getter", [&] { got = s.get(); });
  ASSERT_TRUE(loaded.wait_arrived());
  ASSERT_TRUE(s.reset());
  EXPECT_EQ(w.destroyed, 1) << "a getter that has not entered keeps nothing alive";
  loaded.open();
  getter.join();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->serial, 2);
  EXPECT_FALSE(got->dead);
  static_cast<void>(old);
}

TEST_F(GuardedSingletonRace, Rule4_AGetterThatEnteredBeforeTheDetachLeavesAndFreesWhatItHeldUp) {
  static_cast<void>(s.get());
  park entered("singleton.hit.entered", "getter");
  singleton::handle got;
  actor getter("getter", [&] { got = s.get(); });
  ASSERT_TRUE(entered.wait_arrived());
  ASSERT_TRUE(s.reset());
  EXPECT_EQ(w.destroyed, 0) << "it is inside, and might have been a user";
  entered.open();
  getter.join();
  EXPECT_EQ(w.destroyed, 1);
  EXPECT_EQ(got->serial, 2);
  EXPECT_TRUE(s.drain_for(0s));
}

// The getter holds a pointer to a block; the instance in it is reset and destroyed; the block is filled again and its
// fence is open, but it is not installed yet. Entering succeeds, and must not count.
TEST_F(GuardedSingletonRace, Rule4_StaleGetterVsRecycleVsInstall) {
  static_cast<void>(s.get());
  park loaded("singleton.hit.loaded", "stale");
  park entered("singleton.hit.entered", "stale");
  park missed("singleton.create.missed", "stale");
  park opened("singleton.install.opened", "maker");
  singleton::handle got, made;
  std::atomic<bool> returned{false};
  actor stale("stale", [&] {
    got = s.get();
    returned = true;
  });
  ASSERT_TRUE(loaded.wait_arrived());
  ASSERT_TRUE(s.reset());
  ASSERT_EQ(w.destroyed, 1);
  actor maker("maker", [&] { made = s.get(); });
  ASSERT_TRUE(opened.wait_arrived());  // the only block there is, recycled
  loaded.open();
  ASSERT_TRUE(entered.wait_arrived()) << "the block changed, or was not open: the scenario did not happen";
  EXPECT_FALSE(s.has_value());
  entered.open();
  EXPECT_TRUE(missed.wait_arrived()) << "the entry counted although nothing is installed";
  EXPECT_FALSE(returned);
  EXPECT_FALSE(s.has_value());
  missed.open();
  opened.open();
  maker.join();
  stale.join();
  EXPECT_EQ(got.get(), made.get());
  EXPECT_EQ(got->serial, 2);
  got.release();
  made.release();
  s.reset();
  EXPECT_EQ(w.alive(), 0) << "the stale entry was given back";
}

TEST_F(GuardedSingletonRace, Rule4_AGetterThatLoadedASuspendedBlockGetsTheOverride) {
  auto base = s.get();
  park loaded("singleton.hit.loaded", "getter");
  singleton::handle got;
  actor getter("getter", [&] { got = s.get(); });
  ASSERT_TRUE(loaded.wait_arrived());
  {
    auto scope = s.override_with(std::make_unique<thing>(&w, 42));
    loaded.open();
    getter.join();
    EXPECT_EQ(got->value, 42);
  }
  EXPECT_EQ(s.get().get(), base.get());
}

TEST_F(GuardedSingletonRace, TryGetIsNeverEmptyWhileSetReplaces) {
  static_cast<void>(s.set(std::make_unique<thing>(&w)));
  std::atomic<bool> stop{false};
  actor setter("setter", [&] {
    for (int i = 0; i < 3000; ++i) s.set(std::make_unique<thing>(&w, i));
    stop = true;
  });
  int last = -1;
  while (!stop) {
    auto got = s.try_get();
    ASSERT_TRUE(got);
    ASSERT_FALSE(got->dead);
    ASSERT_GE(got->value, last - 1) << "instances appear in the order in which they were set";
    last = got->value;
  }
}

// ---- rule 5: callbacks ----

TEST_F(GuardedSingletonRace, Rule5_ASlowCallbackDelaysNoGetAndNoOtherDetach) {
  static_cast<void>(s.get());
  gate in_callback, finish;
  w.on_reset = [&](thing& it) {
    if (it.serial != 1) return;
    in_callback.open();
    EXPECT_TRUE(finish.wait());
  };
  actor slow("slow", [&] { EXPECT_TRUE(s.reset()); });
  ASSERT_TRUE(in_callback.wait());
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(s.get());
    EXPECT_TRUE(s.reset());
  }
  EXPECT_EQ(s.drain_for(0s).remaining, 1u) << "the one whose callback runs";
  finish.open();
  slow.join();
  EXPECT_TRUE(s.drain_for(0s));
  w.on_reset = nullptr;
}

TEST_F(GuardedSingletonRace, Rule5_OneOfManyDetachersRunsTheCallback) {
  for (int round = 0; round < 200; ++round) {
    auto it = s.get();
    start_gate start(4);
    std::atomic<int> won{0};
    {
      std::vector<std::unique_ptr<actor>> threads;
      for (int i = 0; i < 4; ++i) {
        threads.push_back(std::make_unique<actor>("detacher", [&, i] {
          start.arrive_and_wait();
          won += i % 2 == 0 ? s.reset() : s.shutdown();
        }));
      }
    }
    ASSERT_EQ(won, 1);
    ASSERT_EQ(it->torn, 1);
  }
}

TEST_F(GuardedSingletonRace, DrainForIsWokenByTheLastRelease) {
  auto pinned = s.get();
  s.reset();
  park waiting("singleton.drain.waiting");
  actor drainer("drainer", [&] {
    const auto result = s.drain_for(std::chrono::hours(1));
    EXPECT_EQ(result.status, drain_status::drained);
    EXPECT_EQ(w.destroyed, 1) << "destroyed, not just released";
  });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  pinned.release();
  drainer.join();
}

TEST_F(GuardedSingletonRace, DrainForDoesNotWaitForInstancesDetachedLater) {
  auto first = s.get();
  s.reset();
  park waiting("singleton.drain.waiting");
  actor drainer("drainer", [&] { EXPECT_TRUE(s.drain_for(std::chrono::hours(1))); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  auto second = s.get();
  s.reset();
  first.release();
  drainer.join();  // the second is still pinned, and none of its business
  EXPECT_EQ(s.drain_for(0s).remaining, 1u);
}

// ---- start ----

struct GuardedSingletonStartRace : testing::Test {
  watchdog dog{"guarded_singleton start race"};
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  gate starting, finish;

  // The first start waits for `finish`; `then` decides how it ends.
  void hold_first_start(std::function<void()> then = {}) {
    w.on_start = [this, then = std::move(then)](thing& it) {
      if (it.serial != 1) return;
      starting.open();
      EXPECT_TRUE(finish.wait());
      if (then) then();
    };
  }
};

TEST_F(GuardedSingletonStartRace, OthersWaitForTheWinnersStartAndShareIt) {
  hold_first_start();
  park waiting("singleton.create.waiting");
  starting_singleton::handle a, b;
  actor winner("winner", [&] { a = s.get(); });
  ASSERT_TRUE(starting.wait());
  actor waiter("waiter", [&] { b = s.get(); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  EXPECT_FALSE(s.has_value());
  EXPECT_FALSE(s.try_get()) << "does not wait either";
  finish.open();
  winner.join();
  waiter.join();
  EXPECT_EQ(a.get(), b.get());
  EXPECT_TRUE(b->started);
  EXPECT_EQ(w.constructed, 1);
  EXPECT_EQ(w.started, 1);
}

TEST_F(GuardedSingletonStartRace, ARacerThatFinishesDuringTheStartLosesTheRace) {
  hold_first_start();
  park begun("singleton.create.begun", "second");
  starting_singleton::handle a, b;
  actor second("second", [&] { b = s.get(); });
  ASSERT_TRUE(begun.wait_arrived());
  actor first("first", [&] { a = s.get(); });
  ASSERT_TRUE(starting.wait());
  begun.open();
  finish.open();
  first.join();
  second.join();
  EXPECT_EQ(a.get(), b.get());
  EXPECT_EQ(w.started, 1) << "losers have started nothing";
  EXPECT_EQ(w.shutdowns(teardown_reason::lost_race), 1);
}

TEST_F(GuardedSingletonStartRace, Rule8_WaitersOfAFailedStartMakeTheirOwn) {
  hold_first_start([] { throw std::runtime_error("port taken"); });
  park waiting("singleton.create.waiting");
  actor winner("winner", [&] { EXPECT_THROW(static_cast<void>(s.get()), std::runtime_error); });
  ASSERT_TRUE(starting.wait());
  starting_singleton::handle b;
  actor waiter("waiter", [&] { b = s.get(); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  finish.open();
  winner.join();
  waiter.join();
  ASSERT_TRUE(b);
  EXPECT_EQ(b->serial, 2);
  EXPECT_TRUE(b->started);
  EXPECT_EQ(w.shutdowns(teardown_reason::start_failed), 1);
}

TEST_F(GuardedSingletonStartRace, WaitersOfAnOutdatedStartDoNotWaitForItsEnd) {
  hold_first_start();
  park waiting("singleton.create.waiting");
  starting_singleton::handle a, b;
  actor winner("winner", [&] { a = s.get(); });
  ASSERT_TRUE(starting.wait());
  actor waiter("waiter", [&] { b = s.get(); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  EXPECT_FALSE(s.reset());
  waiter.join();  // the first start still hangs
  EXPECT_EQ(b->serial, 2);
  finish.open();
  winner.join();
  EXPECT_EQ(a.get(), b.get());
  EXPECT_EQ(w.shutdowns(teardown_reason::stale), 1);
}

TEST_F(GuardedSingletonStartRace, SetDuringAStartIsServedToWaitersAtOnce) {
  hold_first_start();
  park waiting("singleton.create.waiting");
  starting_singleton::handle a, b;
  actor winner("winner", [&] { a = s.get(); });
  ASSERT_TRUE(starting.wait());
  actor waiter("waiter", [&] { b = s.get(); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  s.set(std::make_unique<thing>(&w, 5));
  waiter.join();
  EXPECT_EQ(b->value, 5);
  finish.open();
  winner.join();
  EXPECT_EQ(a->value, 5);
}

TEST_F(GuardedSingletonStartRace, SealDuringAStartRefusesTheStarterAndItsWaiters) {
  hold_first_start();
  park waiting("singleton.create.waiting");
  actor winner("winner", [&] { EXPECT_THROW(static_cast<void>(s.get()), singleton_sealed); });
  ASSERT_TRUE(starting.wait());
  actor waiter("waiter", [&] { EXPECT_THROW(static_cast<void>(s.get()), singleton_sealed); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  EXPECT_TRUE(s.seal());
  waiter.join();
  finish.open();
  winner.join();
  EXPECT_EQ(w.shutdowns(teardown_reason::sealed), 1);
  EXPECT_EQ(w.alive(), 0);
}

// ---- rule 7: cycles over two threads ----

struct crosswise_traits {
  std::function<void()>* in_make = nullptr;
  std::function<void()>* in_start = nullptr;
  std::unique_ptr<int> make() {
    if (in_make != nullptr) (*in_make)();
    return std::make_unique<int>(1);
  }
  void start(int&) {
    if (in_start != nullptr) (*in_start)();
  }
};
struct crosswise_flight_traits : crosswise_traits {
  static constexpr curfew::creation_mode creation = curfew::creation_mode::single_flight;
};

template <class Traits>
void build_crosswise(bool in_start) {
  const watchdog dog("crosswise creation");
  for (int round = 0; round < 50; ++round) {
    std::function<void()> ask_b, ask_a;
    const auto asking = [in_start](std::function<void()>& what) {
      Traits traits;
      (in_start ? traits.in_start : traits.in_make) = &what;
      return traits;
    };
    scoped_singleton<int, Traits, park_sync> a{"a", asking(ask_b)};
    scoped_singleton<int, Traits, park_sync> b{"b", asking(ask_a)};
    start_gate inside(2);
    std::atomic<int> entered{0};
    std::atomic<int> refused{0};
    const auto meet = [&] {
      if (entered.fetch_add(1) < 2) inside.arrive_and_wait();
    };
    ask_b = [&] {
      meet();
      static_cast<void>(b.get());
    };
    ask_a = [&] {
      meet();
      static_cast<void>(a.get());
    };
    const auto attempt = [&](auto& which) {
      try {
        static_cast<void>(which.get());
      } catch (const recursive_creation& e) {
        ++refused;
        const std::string text = e.what();
        EXPECT_TRUE(text.find("a -> b -> a") != std::string::npos || text.find("b -> a -> b") != std::string::npos)
            << text;
      }
    };
    actor one("one", [&] { attempt(a); });
    actor two("two", [&] { attempt(b); });
    one.join();
    two.join();
    ASSERT_EQ(refused, 2) << "each needs the other: neither can exist";
    ask_a = ask_b = [] {};
    EXPECT_TRUE(a.get());
    EXPECT_TRUE(b.get());
  }
}

TEST(GuardedSingletonCycle, Rule7_CrosswiseMakeNeverHangs) {
  build_crosswise<crosswise_traits>(false);
}
TEST(GuardedSingletonCycle, Rule7_CrosswiseStartNeverHangs) {
  build_crosswise<crosswise_traits>(true);
}
TEST(GuardedSingletonCycle, Rule7_CrosswiseSingleFlightNeverHangs) {
  build_crosswise<crosswise_flight_traits>(false);
}
TEST(GuardedSingletonCycle, Rule7_CrosswiseSingleFlightStartNeverHangs) {
  build_crosswise<crosswise_flight_traits>(true);
}

TEST(GuardedSingletonCycle, Rule7_WaitingWithoutACycleIsNotACycle) {
  const watchdog dog("chain of waits");
  // b waits for a's start while holding b's; a needs nobody: both succeed.
  std::function<void()> ask_a, hold;
  scoped_singleton<int, crosswise_traits, park_sync> a{"a", crosswise_traits{nullptr, &hold}};
  scoped_singleton<int, crosswise_traits, park_sync> b{"b", crosswise_traits{nullptr, &ask_a}};
  gate starting, finish;
  park waiting("singleton.create.waiting");
  hold = [&] {
    starting.open();
    EXPECT_TRUE(finish.wait());
  };
  ask_a = [&] { EXPECT_TRUE(a.get()); };
  actor one("one", [&] { EXPECT_TRUE(a.get()); });
  ASSERT_TRUE(starting.wait());
  actor two("two", [&] { EXPECT_TRUE(b.get()); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  finish.open();
}

// ---- single flight ----

TEST(SingleFlight, OneMakeAtATimeAndWaitersShareIt) {
  const watchdog dog("single flight");
  world w;
  flight_singleton s{"flight", flight_traits{{&w}}};
  constexpr unsigned waiters = 6;
  gate making, finish;
  w.on_make = [&] {
    making.open();
    EXPECT_TRUE(finish.wait());
  };
  park waiting("singleton.create.waiting");
  std::vector<flight_singleton::handle> got(waiters + 1);
  std::vector<std::unique_ptr<actor>> threads;
  threads.push_back(std::make_unique<actor>("maker", [&] { got[0] = s.get(); }));
  ASSERT_TRUE(making.wait());
  for (unsigned i = 1; i <= waiters; ++i) {
    threads.push_back(std::make_unique<actor>("waiter", [&, i] { got[i] = s.get(); }));
  }
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  finish.open();
  threads.clear();
  for (auto& each : got) EXPECT_EQ(each.get(), got[0].get());
  EXPECT_EQ(w.constructed, 1);
}

TEST(SingleFlight, AFailureReachesItsOwnCallerOnlyAndWaitersRetry) {
  const watchdog dog("failed flight");
  world w;
  flight_singleton s{"flight", flight_traits{{&w}}};
  gate making, finish;
  std::atomic<bool> first{true};
  w.on_make = [&] {
    if (!first.exchange(false)) return;
    making.open();
    EXPECT_TRUE(finish.wait());
    throw std::runtime_error("flight");
  };
  park waiting("singleton.create.waiting");
  actor maker("maker", [&] { EXPECT_THROW(static_cast<void>(s.get()), std::runtime_error); });
  ASSERT_TRUE(making.wait());
  flight_singleton::handle got;
  actor waiter("waiter", [&] { got = s.get(); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  finish.open();
  maker.join();
  waiter.join();
  EXPECT_TRUE(got);
}

TEST(SingleFlight, WaitersOfAnOutdatedFlightRetryAtOnce) {
  const watchdog dog("outdated flight");
  world w;
  flight_singleton s{"flight", flight_traits{{&w}}};
  gate making, finish;
  std::atomic<bool> first{true};
  w.on_make = [&] {
    if (!first.exchange(false)) return;
    making.open();
    EXPECT_TRUE(finish.wait());
  };
  park waiting("singleton.create.waiting");
  flight_singleton::handle a, b;
  actor maker("maker", [&] { a = s.get(); });
  ASSERT_TRUE(making.wait());
  actor waiter("waiter", [&] { b = s.get(); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  s.shutdown();
  waiter.join();
  EXPECT_TRUE(b);
  finish.open();
  maker.join();
  EXPECT_EQ(a.get(), b.get());
  EXPECT_EQ(w.shutdowns(teardown_reason::stale), 1);
}

TEST(SingleFlight, RecursionIsFoundOnOneThread) {
  world w;
  flight_singleton s{"flight", flight_traits{{&w}}};
  w.on_make = [&] { static_cast<void>(s.get()); };
  EXPECT_THROW(static_cast<void>(s.get()), recursive_creation);
  w.on_make = nullptr;
  EXPECT_TRUE(s.get());
}

// ---- lifetimes ----

TEST(ScopedSingletonRace, TheLastHandleOnAnotherThreadFreesEverything) {
  const watchdog dog("scoped end");
  for (int round = 0; round < 300; ++round) {
    world w;
    auto s = std::make_unique<scoped_singleton<thing, world_traits>>("scoped", world_traits{&w});
    start_gate start(3);
    {
      actor one("one", [&, h = s->get()]() mutable {
        start.arrive_and_wait();
        h.release();
      });
      actor two("two", [&, h = s->get()]() mutable {
        auto more = h.clone();
        start.arrive_and_wait();
        h.release();
        more.release();
      });
      start.arrive_and_wait();
      s.reset();
    }
    ASSERT_EQ(w.alive(), 0);
    ASSERT_EQ(w.shutdowns(teardown_reason::sealed), 1);
  }
}

TEST_F(GuardedSingletonRace, NestedUseStaysLegalWhileAnotherThreadReplaces) {
  std::atomic<bool> stop{false};
  actor setter("setter", [&] {
    while (!stop) s.set(std::make_unique<thing>(&w));
  });
  for (int i = 0; i < 2000; ++i) {
    s.with([&](thing& a) {
      s.with([&](thing& b) { s.with([&](thing& c) { ASSERT_FALSE(a.dead || b.dead || c.dead); }); });
    });
  }
  stop = true;
}

TEST_F(GuardedSingletonRace, ThreadsMayComeAndGoDuringResets) {
  std::atomic<bool> stop{false};
  actor resetter("resetter", [&] {
    while (!stop) s.reset();
  });
  for (int i = 0; i < 300; ++i) {
    actor visitor("visitor", [&] {
      auto h = s.get();
      ASSERT_FALSE(h->dead);
    });
  }
  stop = true;
}

// The factory takes a mutex; another thread has it, and needs the instance before it gives it back. With the factory
// under a lock of the singleton's this would be two threads that wait for each other.
TEST_F(GuardedSingletonRace, Rule1_AFactoryMayWaitForALockWhoseOwnerCallsGet) {
  std::recursive_mutex theirs;
  std::unique_lock held(theirs);
  gate making;
  w.on_make = [&] {
    making.open();
    const std::lock_guard lock(theirs);
  };
  singleton::handle late;
  actor maker("maker", [&] { late = s.get(); });
  ASSERT_TRUE(making.wait());
  const auto mine = s.get();
  held.unlock();
  maker.join();
  EXPECT_EQ(late.get(), mine.get());
  EXPECT_EQ(w.shutdowns(teardown_reason::lost_race), 1);
}

// The instance has a worker that pins it. Ending the worker is the callback's business, which runs on the thread that
// detached: the instance cannot end up being destroyed, and its worker joined, by that worker.
struct with_worker {
  void run(scoped_singleton<with_worker, singleton_traits<with_worker>, park_sync>& of) {
    worker = std::thread([this, &of] {
      const auto myself = of.get();
      EXPECT_EQ(myself.get(), this);
      pinned.open();
      EXPECT_TRUE(told_to_stop.wait());
    });
  }
  void shutdown() {
    told_to_stop.open();
    if (worker.joinable()) worker.join();
    ended_by = std::this_thread::get_id();
  }
  ~with_worker() { EXPECT_EQ(ended_by, std::this_thread::get_id()); }
  gate pinned, told_to_stop;
  std::thread::id ended_by;
  std::thread worker;
};
TEST(GuardedSingletonCallback, AnInstanceMayBePinnedByTheWorkerThatItsShutdownJoins) {
  const watchdog dog("worker");
  scoped_singleton<with_worker, singleton_traits<with_worker>, park_sync> of{"with worker"};
  for (int round = 0; round < 20; ++round) {
    {
      const auto it = of.get();
      it->run(of);
      ASSERT_TRUE(it->pinned.wait());
    }
    EXPECT_TRUE(of.shutdown());
    EXPECT_TRUE(of.drain_for(0s));
  }
}

TEST_F(GuardedSingletonRace, AnyNumberOfInstancesMayBeHeldThroughReplacements) {
  std::atomic<bool> stop{false};
  actor setter("setter", [&] {
    while (!stop) s.set(std::make_unique<thing>(&w));
  });
  for (int round = 0; round < 20; ++round) {
    std::vector<singleton::handle> held;
    for (int i = 0; i < 200; ++i) {
      held.push_back(s.get());
      if (i % 3 == 0) held.push_back(held.back().clone());
    }
    for (const auto& each : held) ASSERT_FALSE(each->dead);
  }
  stop = true;
}

// ---- storms ----

template <class Traits>
void storm(unsigned rounds_per_thread) {
  const watchdog dog("storm", 120s);
  world w;
  std::uint64_t made = 0;
  {
    scoped_singleton<thing, Traits> s{"storm", [&] {
                                        Traits traits;
                                        traits.in = &w;
                                        return traits;
                                      }()};
    w.on_destroy = [](thing& it) { ASSERT_FALSE(it.dead); };
    std::atomic<int> bad{0};
    start_gate start(4);
    {
      std::vector<std::unique_ptr<actor>> threads;
      for (unsigned id = 0; id < 4; ++id) {
        threads.push_back(std::make_unique<actor>("storm", [&, id] {
          std::vector<typename scoped_singleton<thing, Traits>::handle> kept;
          unsigned dice = id * 7919 + 1;
          start.arrive_and_wait();
          for (unsigned i = 0; i < rounds_per_thread; ++i) {
            dice = dice * 1664525 + 1013904223;
            try {
              switch ((dice >> 16) % 16) {
                case 0:
                  s.reset();
                  break;
                case 1:
                  s.shutdown();
                  break;
                case 2:
                  kept.push_back(s.set(std::make_unique<thing>(&w)));
                  break;
                case 3:
                  kept.push_back(s.detach());
                  break;
                case 4:
                  s.seal();
                  s.unseal();
                  break;
                case 5:
                  kept.push_back(s.get().clone());
                  break;
                case 6:
                  kept.clear();
                  break;
                case 7:
                  static_cast<void>(s.drain_for(0s));
                  break;
                case 8:
                  bad += !balanced(s.stats());
                  break;
                case 9:
                  if (id == 0) {  // overrides nest: one thread does them all
                    auto scope = s.override_with(std::make_unique<thing>(&w));
                    static_cast<void>(s.try_get());
                  }
                  break;
                case 10:
                  if (auto h = s.try_get()) bad += h->dead;
                  static_cast<void>(s.has_value());
                  static_cast<void>(s.generation());
                  break;
                default:
                  s.with([&](thing& it) { bad += it.dead; });
              }
            } catch (const singleton_sealed&) {
            }
          }
        }));
      }
    }
    EXPECT_EQ(bad, 0);
    EXPECT_TRUE(s.drain_for(0s));
    const auto stats = s.stats();
    EXPECT_TRUE(balanced(stats)) << stats.made << " " << stats.torn_down << " " << stats.handed_back << " "
                                 << stats.live;
    EXPECT_EQ(w.alive(), static_cast<int>(stats.live));
    EXPECT_EQ(static_cast<std::uint64_t>(w.resets + w.shutdowns()), stats.torn_down) << "every one exactly once";
    made = stats.made;
  }
  EXPECT_EQ(w.alive(), 0);
  EXPECT_GT(made, 0u);
}

TEST(GuardedSingletonStorm, Rule6_TheBooksBalanceWhateverRaces) {
  storm<world_traits>(20000);
}
TEST(GuardedSingletonStorm, Rule6_WithStart) {
  storm<starting_traits>(20000);
}
TEST(GuardedSingletonStorm, Rule6_WithSingleFlight) {
  storm<flight_traits>(20000);
}
TEST(GuardedSingletonStorm, Rule6_WithSingleFlightAndStart) {
  storm<starting_flight_traits>(20000);
}

// ---- fork ----

#if CURFEW_POSIX

// Runs f in a forked child, which has 30 s; its exit status is 0 if f returned true.
template <class F>
void in_child(F f) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(30);
    ::_exit(f() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status) << ": it hung or crashed";
  if (WIFEXITED(status)) {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

TEST_F(GuardedSingletonRace, Rule9_AForkedChildGoesOnUsingIt) {
  auto pinned = s.get();
  in_child([&] {
    bool ok = s.get().get() == pinned.get();
    ok = ok && s.reset() && pinned->torn == 1 && pinned.detached();
    pinned.release();
    ok = ok && w.destroyed == 1 && s.drain_for(0s);
    ok = ok && s.get()->serial == 2;
    ok = ok && s.seal() && w.destroyed == 2;
    return ok;
  });
  EXPECT_FALSE(pinned.detached()) << "the parent has its own copy of everything";
}

TEST_F(GuardedSingletonRace, Rule9_InTheChildNothingWaitsForAHandleOfAThreadThatIsGone) {
  gate pinned, finish;
  actor holder("holder", [&] {
    auto h = s.get();
    pinned.open();
    EXPECT_TRUE(finish.wait());
  });
  ASSERT_TRUE(pinned.wait());
  in_child([&] {
    bool ok = s.reset() && w.resets == 1;
    ok = ok && w.destroyed == 0;  // leaked
    ok = ok && s.drain_for(1ms).remaining == 1;
    ok = ok && s.get()->serial == 2;
    ok = ok && s.shutdown() && w.destroyed == 1;
    return ok;
  });
  finish.open();
}

TEST_F(GuardedSingletonRace, Rule9_AnInstanceDetachedBeforeTheForkIsDestroyedByTheChildsLastHandle) {
  auto pinned = s.get();
  s.reset();
  in_child([&] {
    pinned.release();
    return w.destroyed == 1 && static_cast<bool>(s.drain_for(0s));
  });
}

TEST_F(GuardedSingletonStartRace, Rule9_InTheChildAStartOfAThreadThatIsGoneIsVoid) {
  hold_first_start();
  park waiting("singleton.create.waiting");
  actor winner("winner", [&] { static_cast<void>(s.get()); });
  ASSERT_TRUE(starting.wait());
  actor waiter("waiter", [&] { static_cast<void>(s.get()); });
  ASSERT_TRUE(waiting.wait_arrived());
  waiting.open();
  in_child([&] {
    auto mine = s.get();
    return mine->serial == 2 && mine->started;
  });
  finish.open();
}

TEST(SingleFlight, AfterForkAFlightOfAThreadThatIsGoneIsVoid) {
  const watchdog dog("flight over fork");
  world w;
  flight_singleton s{"flight", flight_traits{{&w}}};
  gate making, finish;
  std::atomic<bool> first{true};
  w.on_make = [&] {
    if (!first.exchange(false)) return;
    making.open();
    EXPECT_TRUE(finish.wait());
  };
  actor maker("maker", [&] { static_cast<void>(s.get()); });
  ASSERT_TRUE(making.wait());
  in_child([&] { return static_cast<bool>(s.get()); });
  finish.open();
}

TEST(ScopedSingletonFork, AChildDoesNotDestroyWhatAThreadThatIsGoneWasStarting) {
  const watchdog dog("start over fork");
  world w;
  auto s = std::make_unique<starting_singleton>("starting", starting_traits{{&w}});
  gate starting, finish;
  w.on_start = [&](thing&) {
    starting.open();
    EXPECT_TRUE(finish.wait());
  };
  actor maker("maker", [&] { static_cast<void>(s->get()); });
  ASSERT_TRUE(starting.wait());
  in_child([&] {
    s.reset();
    return w.destroyed == 0 && w.shutdowns() == 0;
  });
  finish.open();
  maker.join();
  s.reset();
  EXPECT_EQ(w.destroyed, 1);
}

TEST_F(GuardedSingletonRace, Rule9_ForkInsideMakeGoesOnMakingInTheChild) {
  w.on_make = [&] {
    w.on_make = nullptr;
    const pid_t child = ::fork();
    if (child == 0) return;  // the child's get goes on
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 3);
  };
  const pid_t self = ::getpid();
  auto it = s.get();
  if (::getpid() != self) ::_exit(it && it->serial == 1 && s.reset() ? 3 : 4);
  EXPECT_TRUE(it);
}

// Not under AddressSanitizer: its allocator may be locked by one of the other threads at the moment of the fork, and
// then no allocation in the child ever returns.
#if !defined(__SANITIZE_ADDRESS__) && !CURFEW_TEST_HAS_FEATURE(address_sanitizer)
TEST_F(GuardedSingletonRace, Rule9_ForkNeverMeetsAHeldLock) {
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<actor>> churn;
  for (int i = 0; i < 4; ++i) {
    churn.push_back(std::make_unique<actor>("churn", [&] {
      while (!stop) {
        static_cast<void>(s.get());
        s.reset();
      }
    }));
  }
  for (int i = 0; i < 60; ++i) {
    in_child([&] {
      for (int j = 0; j < 3; ++j) {
        if (!s.get()) return false;
        s.reset();
      }
      return static_cast<bool>(s.get()->serial);
    });
  }
  stop = true;
}
#endif

TEST(GuardedSingletonFork, AForkHandlerRegisteredEarlierMayUseSingletons) {
  // Handlers of others run between ours: before the fork in reverse order, after it in order.
  static guarded_singleton<int> subject{"in handlers"};
  struct handlers {
    static void use() {
      static_cast<void>(subject.get());
      subject.reset();
    }
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process, in which no singleton has been used yet
  EXPECT_EXIT(
      {
        if (::pthread_atfork(&handlers::use, &handlers::use, &handlers::use) != 0) std::_Exit(2);
        static_cast<void>(subject.get());
        ::alarm(30);
        const pid_t child = ::fork();
        if (child == 0) ::_exit(subject.get() ? 0 : 1);
        int status = 0;
        ::waitpid(child, &status, 0);
        std::_Exit(WIFEXITED(status) && WEXITSTATUS(status) == 0 && subject.get() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

// A program that holds a mutex of its own around calls of singletons, and takes it over a fork, so that its child finds
// it free. Its handler must come to the mutex before ours come to the lock, or the two threads wait for each other.
TEST(GuardedSingletonFork, AHandlerMayLockWhatOthersHoldAroundSingletons) {
  static guarded_singleton<int> subject{"under a lock"};
  static std::mutex theirs;
  static gate preparing, locked, forked;
  struct handlers {
    static void prepare() {
      preparing.open();
      theirs.lock();
    }
    static void release() { theirs.unlock(); }
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process, in which no singleton has been used yet
  EXPECT_EXIT(
      {
        ::alarm(30);
        if (::pthread_atfork(&handlers::prepare, &handlers::release, &handlers::release) != 0) std::_Exit(2);
        std::thread user([] {
          static_cast<void>(subject.get());
          {
            const std::lock_guard<std::mutex> lock(theirs);
            locked.open();
            if (!preparing.wait()) std::_Exit(3);
            subject.reset();
          }
          if (!forked.wait()) std::_Exit(5);
        });
        if (!locked.wait()) std::_Exit(4);
        const pid_t child = ::fork();
        if (child == 0) ::_exit(subject.get() ? 0 : 1);
        forked.open();
        user.join();
        int status = 0;
        ::waitpid(child, &status, 0);
        std::_Exit(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(GuardedSingletonFork, AForkedChildMayExitNormally) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        static guarded_singleton<int> subject{"exit in child"};
        auto pinned = subject.get();
        const pid_t child = ::fork();
        if (child == 0) {
          ::alarm(30);
          std::exit(7);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        std::_Exit(WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

#endif  // CURFEW_POSIX

}  // namespace
