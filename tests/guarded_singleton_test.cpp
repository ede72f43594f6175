// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// guarded_singleton, one thread at a time: what every member promises. Races are in guarded_singleton_race_test.cpp.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <curfew/guarded_singleton.hpp>

#include "support/park.hpp"
#include "support/singleton_world.hpp"

#if defined(__GLIBC__)
#include <malloc.h>
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
using curfew_test::starting_traits;
using curfew_test::thing;
using curfew_test::watchdog;
using curfew_test::world;
using curfew_test::world_traits;
using namespace std::chrono_literals;

using singleton = scoped_singleton<thing, world_traits>;
using starting_singleton = scoped_singleton<thing, starting_traits>;

struct GuardedSingleton : testing::Test {
  world w;
  singleton s{"subject", world_traits{&w}};
  std::unique_ptr<thing> another(int value = 0) { return std::make_unique<thing>(&w, value); }
  ~GuardedSingleton() override { EXPECT_TRUE(balanced(s.stats())); }
};

// ---- shape ----

struct plain {
  int value = 7;
};
constinit guarded_singleton<plain> constant_initialised{"constant"};
static_assert(std::is_trivially_destructible_v<guarded_singleton<plain>>);
static_assert(std::is_trivially_destructible_v<guarded_singleton<thing, starting_traits>>);
static_assert(!std::is_copy_constructible_v<guarded_singleton<plain>>);
static_assert(!std::is_move_constructible_v<guarded_singleton<plain>>);
using handle = guarded_singleton<plain>::handle;
static_assert(sizeof(handle) == sizeof(void*));
static_assert(std::is_nothrow_move_constructible_v<handle> && std::is_nothrow_move_assignable_v<handle>);
static_assert(!std::is_copy_constructible_v<handle>);
static_assert(noexcept(constant_initialised.try_get()) && noexcept(constant_initialised.has_value()));

TEST(GuardedSingletonShape, ConstantInitialisedOnesWork) {
  EXPECT_EQ(constant_initialised.get()->value, 7);
}

TEST_F(GuardedSingleton, GetCreatesOnceAndReturnsTheSame) {
  EXPECT_FALSE(s.has_value());
  EXPECT_FALSE(s.try_get());
  EXPECT_EQ(w.constructed, 0);
  auto first = s.get();
  ASSERT_TRUE(first);
  EXPECT_TRUE(s.has_value());
  EXPECT_EQ(s.get().get(), first.get());
  EXPECT_EQ(s.try_get().get(), first.get());
  EXPECT_EQ(w.constructed, 1);
  EXPECT_STREQ(s.name(), "subject");
}

TEST_F(GuardedSingleton, WithRunsOnThePinnedInstanceAndReturnsWhatItReturns) {
  const int serial = s.with([&](thing& it) {
    s.reset();
    EXPECT_FALSE(it.dead) << "pinned";
    EXPECT_EQ(w.destroyed, 0);
    return it.serial;
  });
  EXPECT_EQ(serial, 1);
  EXPECT_EQ(w.destroyed, 1);
  EXPECT_THROW(s.with([](thing&) { throw std::runtime_error("user"); }), std::runtime_error);
  EXPECT_TRUE(s.drain_for(0s));
  static_assert(std::is_same_v<decltype(s.with([](thing& it) -> int& { return it.value; })), int&>);
  EXPECT_EQ(s.with(&thing::value), 0) << "anything that std::invoke takes";
}

struct hooks_found {
  std::vector<std::string>* log;
  void start() { note("start"); }
  void reset() { note("reset"); }
  void shutdown() { note("shutdown"); }
  static inline std::vector<std::string> notes;
  void note(const char* what) { notes.emplace_back(what); }
};

TEST(SingletonTraits, DefaultFindsStartResetAndShutdownOfT) {
  hooks_found::notes.clear();
  scoped_singleton<hooks_found> s;
  static_cast<void>(s.get());
  s.reset();
  static_cast<void>(s.get());
  s.shutdown();
  EXPECT_EQ(hooks_found::notes, (std::vector<std::string>{"start", "reset", "start", "shutdown"}));
}

// Named where nobody can know yet what they have.
class declared;
struct has_a_handle {
  guarded_singleton<declared>::handle mine;
};
class declared {
 public:
  void start() { log += "start "; }
  void shutdown() { log += "shutdown "; }
  static inline std::string log;
};
struct [[nodiscard]] report {};
struct own_singleton {
  static inline constinit guarded_singleton<own_singleton> all{"own"};
  static guarded_singleton<own_singleton>::handle current() { return all.get(); }
  void start() { log += "start "; }
  report reset() {
    log += "reset ";
    return {};
  }
  static inline std::string log;
};

TEST(SingletonTraits, DefaultFindsThemAlsoWhereTWasOnlyDeclaredWhenTheSingletonWasNamed) {
  guarded_singleton<declared> s{"declared"};
  { const has_a_handle user{s.get()}; }
  s.shutdown();
  EXPECT_EQ(declared::log, "start shutdown ");
  static_cast<void>(own_singleton::current());
  own_singleton::all.reset();
  EXPECT_EQ(own_singleton::log, "start reset ");
}

TEST(SingletonTraits, DefaultDoesWithoutThem) {
  scoped_singleton<plain> s;
  EXPECT_EQ(s.get()->value, 7);
  EXPECT_TRUE(s.reset()) << "runs no callback, detaches all the same";
  EXPECT_EQ(s.stats().torn_down, 1u);
  EXPECT_FALSE(s.shutdown());
}

TEST(SingletonTraits, OnlyMakeIsRequiredAndStateIsKept) {
  struct counting {
    int* made;
    std::unique_ptr<plain> make() { return std::make_unique<plain>(plain{++*made}); }
  };
  int made = 0;
  scoped_singleton<plain, counting> s{"counting", counting{&made}};
  EXPECT_EQ(s.get()->value, 1);
  s.shutdown();
  EXPECT_EQ(s.get()->value, 2);
}

struct knows_itself;
extern constinit guarded_singleton<knows_itself> of_incomplete_type;
struct knows_itself {
  int depth = 0;
  static auto current() { return of_incomplete_type.try_get(); }
};
constinit guarded_singleton<knows_itself> of_incomplete_type{"incomplete"};

TEST(SingletonTraits, MayBeDeclaredForAnIncompleteType) {
  EXPECT_FALSE(knows_itself::current());
  EXPECT_EQ(of_incomplete_type.get()->depth, 0);
}

// ---- rule 1: no lock, no restriction ----

TEST_F(GuardedSingleton, Rule1_EveryMemberMayBeCalledFromEveryCallbackAndTheDestructor) {
  const watchdog dog("re-entry");
  int depth = 0;
  const auto poke = [&] {
    if (++depth == 1 && !s.sealed()) {
      static_cast<void>(s.has_value());
      static_cast<void>(s.generation());
      static_cast<void>(s.stats());
      static_cast<void>(s.try_get());
      static_cast<void>(s.get());
      s.reset();
      static_cast<void>(s.get());
      s.shutdown();
      static_cast<void>(s.set(another()));
      static_cast<void>(s.detach());
      static_cast<void>(s.drain_for(0s));
      { auto scope = s.override_with(another()); }
    }
    --depth;
  };
  w.on_reset = [&](thing&) { poke(); };
  w.on_shutdown = [&](thing&, teardown_reason) { poke(); };
  w.on_destroy = [&](thing&) { poke(); };
  static_cast<void>(s.get());
  EXPECT_TRUE(s.reset());
  static_cast<void>(s.get());
  EXPECT_TRUE(s.shutdown());
  static_cast<void>(s.get());
  EXPECT_TRUE(s.seal());
  EXPECT_TRUE(s.drain_for(0s));
  EXPECT_EQ(w.alive(), 0);
  w.on_reset = w.on_destroy = nullptr;
  w.on_shutdown = nullptr;
}

TEST_F(GuardedSingleton, Rule1_MakeMayCallEverythingButGet) {
  const watchdog dog("re-entry from make");
  bool first = true;
  w.on_make = [&] {
    if (!std::exchange(first, false)) return;
    EXPECT_FALSE(s.has_value());
    EXPECT_FALSE(s.try_get());
    EXPECT_FALSE(s.reset());
    EXPECT_FALSE(s.shutdown());
    EXPECT_FALSE(s.detach());
    EXPECT_TRUE(s.drain_for(0s));
    EXPECT_TRUE(s.seal());
    EXPECT_TRUE(s.unseal());
  };
  auto it = s.get();
  EXPECT_EQ(w.shutdowns(teardown_reason::sealed), 1) << "the first candidate was outdated from inside";
  EXPECT_EQ(it->serial, 2);
}

// ---- rule 3 on one thread ----

TEST_F(GuardedSingleton, Rule3_CandidateOutdatedDuringMakeIsStaleAndMadeAfresh) {
  int rounds = 0;
  w.on_make = [&] {
    switch (rounds++) {
      case 0:
        s.reset();
        break;
      case 1:
        s.shutdown();
        break;
      case 2:
        static_cast<void>(s.detach());
        break;
      case 3: {
        auto scope = s.override_with(another());
      } break;
      default:
        break;
    }
  };
  EXPECT_EQ(s.get()->torn, 0);
  EXPECT_EQ(rounds, 5);
  EXPECT_EQ(w.shutdowns(teardown_reason::stale), 4);
  EXPECT_EQ(w.shutdowns(teardown_reason::lost_race), 0);
  const auto stats = s.stats();
  EXPECT_EQ(stats.stale, 4u);
  EXPECT_EQ(stats.made, 6u) << "five candidates and one override";
  EXPECT_EQ(w.alive(), 1);
}

TEST_F(GuardedSingleton, Rule3_SetDuringMakeWinsAndTheCandidateIsStale) {
  w.on_make = [&] {
    w.on_make = nullptr;
    EXPECT_FALSE(s.set(another(5)));
    EXPECT_EQ(s.get()->value, 5) << "a make that has called set itself may call get";
  };
  EXPECT_EQ(s.get()->value, 5);
  EXPECT_EQ(w.shutdowns(teardown_reason::stale), 1);
  EXPECT_EQ(s.stats().lost_races, 0u) << "stale wins over lost_race";
}

TEST_F(GuardedSingleton, Rule3_SealDuringMakeEndsTheCandidateSealedAndThrows) {
  w.on_make = [&] { EXPECT_TRUE(s.seal()); };
  EXPECT_THROW(static_cast<void>(s.get()), singleton_sealed);
  EXPECT_EQ(w.shutdowns(teardown_reason::sealed), 1);
  EXPECT_EQ(w.alive(), 0);
  EXPECT_EQ(s.stats().stale, 0u);
}

// ---- rules 4 and 5: detaching ----

TEST_F(GuardedSingleton, Rule4_AfterResetShutdownSetNoGetReturnsTheOldOne) {
  auto a = s.get();
  EXPECT_TRUE(s.reset());
  auto b = s.get();
  EXPECT_NE(b.get(), a.get());
  EXPECT_TRUE(s.shutdown());
  auto c = s.get();
  EXPECT_NE(c.get(), b.get());
  auto previous = s.set(another(9));
  EXPECT_EQ(previous.get(), c.get());
  EXPECT_EQ(s.get()->value, 9);
}

TEST_F(GuardedSingleton, Rule5_CallbacksAreEagerAndTheObjectLivesToItsLastHandle) {
  auto a = s.get();
  auto b = a.clone();
  EXPECT_FALSE(a.detached());
  EXPECT_TRUE(s.reset());
  EXPECT_EQ(w.resets, 1);
  EXPECT_EQ(a->torn, 1);
  EXPECT_TRUE(a.detached());
  EXPECT_FALSE(a->dead);
  a.release();
  EXPECT_EQ(w.destroyed, 0);
  std::thread([moved = std::move(b), this]() mutable {
    EXPECT_EQ(w.destroyed, 0);
    moved.release();
    EXPECT_EQ(w.destroyed, 1) << "on the thread that let go last";
  }).join();
}

TEST_F(GuardedSingleton, Rule5_WithNoHandleOutTheDetachingCallDestroys) {
  static_cast<void>(s.get());
  s.reset();
  EXPECT_EQ(w.destroyed, 1);
  static_cast<void>(s.get());
  s.shutdown();
  EXPECT_EQ(w.destroyed, 2);
  static_cast<void>(s.get());
  s.detach().release();
  EXPECT_EQ(w.destroyed, 3);
  static_cast<void>(s.get());
  s.seal();
  EXPECT_EQ(w.destroyed, 4);
}

TEST_F(GuardedSingleton, ReturnsTrueForTheOneCallThatDetached) {
  EXPECT_FALSE(s.reset());
  EXPECT_FALSE(s.shutdown());
  static_cast<void>(s.get());
  EXPECT_TRUE(s.reset());
  EXPECT_FALSE(s.reset());
  EXPECT_FALSE(s.shutdown());
  EXPECT_EQ(w.shutdowns(), 0);
}

TEST_F(GuardedSingleton, ShutdownIsNotTerminal) {
  static_cast<void>(s.get());
  EXPECT_TRUE(s.shutdown());
  EXPECT_EQ(w.shutdowns(teardown_reason::shutdown), 1);
  EXPECT_EQ(w.resets, 0);
  EXPECT_EQ(s.get()->serial, 2);
}

// ---- set, detach ----

TEST_F(GuardedSingleton, SetReturnsThePreviousOneNotShutDown) {
  EXPECT_FALSE(s.set(another(1))) << "there was none";
  auto previous = s.set(another(2));
  ASSERT_TRUE(previous);
  EXPECT_EQ(previous->value, 1);
  EXPECT_EQ(previous->torn, 0);
  EXPECT_TRUE(previous.detached());
  EXPECT_EQ(w.shutdowns() + w.resets, 0);
  const auto stats = s.stats();
  EXPECT_EQ(stats.made, 2u);
  EXPECT_EQ(stats.installed, 2u);
  EXPECT_EQ(stats.handed_back, 1u);
  EXPECT_EQ(stats.live, 1u);
  previous.release();
  EXPECT_EQ(w.destroyed, 1);
}

TEST_F(GuardedSingleton, SetOfNullIsRefusedByNameAndChangesNothing) {
  static_cast<void>(s.set(another(1)));
  const auto generation = s.generation();
  try {
    static_cast<void>(s.set(nullptr));
    ADD_FAILURE() << "accepted";
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("subject"), std::string::npos) << e.what();
  }
  EXPECT_EQ(s.generation(), generation);
  EXPECT_EQ(s.get()->value, 1);
}

TEST_F(GuardedSingleton, SetWhenSealedThrowsAndDestroysWithoutACallback) {
  s.seal();
  const auto generation = s.generation();
  EXPECT_THROW(static_cast<void>(s.set(another())), singleton_sealed);
  EXPECT_EQ(w.destroyed, 1);
  EXPECT_EQ(w.shutdowns() + w.resets, 0);
  EXPECT_EQ(s.stats().made, 0u) << "not counted";
  EXPECT_EQ(s.generation(), generation) << "a refused set changes nothing";
}

TEST_F(GuardedSingleton, DetachHandsTheCurrentOneOverWithoutACallback) {
  EXPECT_FALSE(s.detach());
  auto seen = s.get();
  auto mine = s.detach();
  EXPECT_EQ(mine.get(), seen.get());
  EXPECT_TRUE(mine.detached());
  EXPECT_FALSE(s.has_value());
  EXPECT_EQ(w.shutdowns() + w.resets, 0);
  EXPECT_EQ(s.stats().handed_back, 1u);
}

// ---- seal ----

TEST_F(GuardedSingleton, SealTearsDownAndGetThrowsItsName) {
  static_cast<void>(s.get());
  EXPECT_FALSE(s.sealed());
  EXPECT_TRUE(s.seal());
  EXPECT_TRUE(s.sealed());
  EXPECT_FALSE(s.seal()) << "true for the one call that changed the state";
  EXPECT_EQ(w.shutdowns(teardown_reason::sealed), 1);
  EXPECT_FALSE(s.try_get());
  EXPECT_FALSE(s.reset());
  try {
    static_cast<void>(s.get());
    ADD_FAILURE() << "created after seal";
  } catch (const singleton_sealed& e) {
    EXPECT_NE(std::string(e.what()).find("subject"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(s.unseal());
  EXPECT_FALSE(s.unseal());
  EXPECT_FALSE(s.sealed());
  EXPECT_TRUE(s.get());
}

TEST_F(GuardedSingleton, SealAndUnsealOfAnUnusedOneChangeTheState) {
  EXPECT_FALSE(s.unseal());
  EXPECT_TRUE(s.seal());
  EXPECT_TRUE(s.unseal());
}

TEST_F(GuardedSingleton, GenerationGrowsWithEveryCallThatOutdatesAlsoOnAnEmptySlot) {
  auto last = s.generation();
  EXPECT_EQ(last, 0u);
  const auto grew = [&] { return std::exchange(last, s.generation()) < s.generation(); };
  for (int filled = 0; filled < 2; ++filled) {
    const auto fill = [&] {
      if (filled != 0) static_cast<void>(s.get());
    };
    fill();
    EXPECT_FALSE(grew());
    s.reset();
    EXPECT_TRUE(grew());
    fill();
    s.shutdown();
    EXPECT_TRUE(grew());
    fill();
    static_cast<void>(s.detach());
    EXPECT_TRUE(grew());
    fill();
    s.seal();
    EXPECT_TRUE(grew());
    s.unseal();
    EXPECT_FALSE(grew());
    fill();
    {
      auto scope = s.override_with(another());
      EXPECT_TRUE(grew());
    }
    EXPECT_TRUE(grew());
    static_cast<void>(s.set(another()));
    EXPECT_TRUE(grew());
    s.reset();
    EXPECT_TRUE(grew());
  }
}

// ---- rule 7: recursion ----

struct node_traits {
  const char* name = "";
  guarded_singleton<plain, node_traits>* next = nullptr;
  guarded_singleton<plain, node_traits>* also = nullptr;
  std::unique_ptr<plain> make() {
    if (next != nullptr) static_cast<void>(next->get());
    return std::make_unique<plain>();
  }
};

std::string recursion_text(guarded_singleton<plain, node_traits>& from) {
  try {
    static_cast<void>(from.get());
  } catch (const recursive_creation& e) {
    return e.what();
  }
  return "no exception";
}

TEST(GuardedSingletonRecursion, Rule7_AFactoryThatAsksForItselfGetsTheChain) {
  static constinit guarded_singleton<plain, node_traits> self{"self", {"", nullptr}};
  static constinit guarded_singleton<plain, node_traits> own{"own", {"", &own}};
  EXPECT_NE(recursion_text(own).find("own -> own"), std::string::npos) << recursion_text(own);
  EXPECT_EQ(recursion_text(self), "no exception");
}

extern constinit guarded_singleton<plain, node_traits> chain_a, chain_b, chain_c;
constinit guarded_singleton<plain, node_traits> chain_a{"a", {"", &chain_b}};
constinit guarded_singleton<plain, node_traits> chain_b{"b", {"", &chain_c}};
constinit guarded_singleton<plain, node_traits> chain_c{"c", {"", &chain_a}};

TEST(GuardedSingletonRecursion, Rule7_TheWholeChainIsNamedInTheOrderOfTheCalls) {
  EXPECT_NE(recursion_text(chain_a).find("a -> b -> c -> a"), std::string::npos) << recursion_text(chain_a);
  EXPECT_NE(recursion_text(chain_b).find("b -> c -> a -> b"), std::string::npos) << recursion_text(chain_b);
  EXPECT_FALSE(chain_a.has_value() || chain_b.has_value() || chain_c.has_value());
  chain_c.set(std::make_unique<plain>());  // breaks the cycle
  EXPECT_TRUE(chain_a.get());
  chain_a.reset();
  chain_b.reset();
  chain_c.reset();
}

TEST(GuardedSingletonRecursion, Rule7_OnlyTheCycleIsNamedNotWhatLedToIt) {
  static constinit guarded_singleton<plain, node_traits> entry{"entry", {"", &chain_a}};
  const std::string text = recursion_text(entry);
  EXPECT_NE(text.find(": a -> b -> c -> a"), std::string::npos) << text;
  EXPECT_EQ(text.find("entry"), std::string::npos) << text;
}

TEST(GuardedSingletonRecursion, Rule7_UnnamedOnesAreSaidToBeSo) {
  static constinit guarded_singleton<plain, node_traits> nameless{nullptr, {"", &nameless}};
  EXPECT_NE(recursion_text(nameless).find("(unnamed) -> (unnamed)"), std::string::npos);
}

TEST(GuardedSingletonRecursion, Rule7_VeryLongChainsAreAbbreviated) {
  struct link_traits {
    std::vector<std::unique_ptr<scoped_singleton<plain, link_traits>>>* all;
    std::size_t index;
    std::unique_ptr<plain> make() {
      static_cast<void>((*all)[(index + 1) % all->size()]->get());
      return std::make_unique<plain>();
    }
  };
  std::vector<std::unique_ptr<scoped_singleton<plain, link_traits>>> all;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < 40; ++i) names.push_back("n" + std::to_string(i));
  for (std::size_t i = 0; i < 40; ++i) {
    all.push_back(std::make_unique<scoped_singleton<plain, link_traits>>(names[i].c_str(), link_traits{&all, i}));
  }
  try {
    static_cast<void>(all[0]->get());
    ADD_FAILURE();
  } catch (const recursive_creation& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("n0 -> ... -> "), std::string::npos) << text;
    EXPECT_NE(text.find("n39 -> n0"), std::string::npos) << text;
  }
}

TEST(GuardedSingletonRecursion, GetInsideStartIsRecursive) {
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  w.on_start = [&](thing&) { static_cast<void>(s.get()); };
  EXPECT_THROW(static_cast<void>(s.get()), recursive_creation);
  EXPECT_EQ(w.shutdowns(teardown_reason::start_failed), 1);
  w.on_start = nullptr;
  EXPECT_TRUE(s.get()) << "nothing is left of the failed attempt";
}

TEST_F(GuardedSingleton, TeardownOfACandidateIsNotPartOfMakingAndMayCallGet) {
  bool once = false;
  w.on_make = [&] {
    if (!std::exchange(once, true)) s.reset();
  };
  w.on_shutdown = [&](thing&, teardown_reason) { EXPECT_TRUE(s.get()); };
  EXPECT_TRUE(s.get());
  w.on_shutdown = nullptr;
}

// ---- rule 8: failures ----

TEST_F(GuardedSingleton, Rule8_MakeThrowingChangesNothing) {
  w.on_make = [] { throw std::runtime_error("no network"); };
  const auto generation = s.generation();
  EXPECT_THROW(static_cast<void>(s.get()), std::runtime_error);
  EXPECT_FALSE(s.has_value());
  EXPECT_EQ(s.generation(), generation);
  EXPECT_EQ(s.stats().made, 0u);
  w.on_make = nullptr;
  EXPECT_TRUE(s.get());
}

TEST(GuardedSingletonFailure, MakeReturningNullThrowsTheName) {
  struct null_traits {
    std::unique_ptr<plain> make() { return nullptr; }
  };
  scoped_singleton<plain, null_traits> s{"hollow"};
  try {
    static_cast<void>(s.get());
    ADD_FAILURE();
  } catch (const recursive_creation&) {
    ADD_FAILURE() << "wrong kind";
  } catch (const std::logic_error& e) {
    EXPECT_NE(std::string(e.what()).find("hollow"), std::string::npos) << e.what();
  }
  EXPECT_EQ(s.stats().made, 0u);
}

TEST(GuardedSingletonFailure, Rule8_StartThrowingTearsTheWinnerDownAndReachesItsCaller) {
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  w.on_start = [](thing&) { throw std::runtime_error("port taken"); };
  EXPECT_THROW(static_cast<void>(s.get()), std::runtime_error);
  EXPECT_EQ(w.shutdowns(teardown_reason::start_failed), 1);
  EXPECT_EQ(w.alive(), 0);
  EXPECT_FALSE(s.has_value());
  const auto stats = s.stats();
  EXPECT_EQ(stats.made, 1u);
  EXPECT_EQ(stats.installed, 0u);
  EXPECT_EQ(stats.torn_down, 1u);
  EXPECT_TRUE(balanced(stats));
}

TEST(GuardedSingletonFailure, ErrorOfTheTeardownAfterAFailedStartGoesToOnErrorNotInsteadOfTheCause) {
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  w.on_start = [](thing&) { throw std::runtime_error("cause"); };
  w.on_shutdown = [](thing&, teardown_reason) { throw std::logic_error("effect"); };
  EXPECT_THROW(static_cast<void>(s.get()), std::runtime_error);
  EXPECT_EQ(w.errors, 1);
  EXPECT_EQ(w.last_error_reason, static_cast<int>(teardown_reason::start_failed));
  w.on_shutdown = nullptr;
}

TEST_F(GuardedSingleton, ErrorsReachTheCallThatDetachedWithTheInstanceConsumed) {
  w.on_reset = [](thing&) { throw std::runtime_error("reset"); };
  w.on_shutdown = [](thing&, teardown_reason) { throw std::runtime_error("shutdown"); };
  static_cast<void>(s.get());
  EXPECT_THROW(s.reset(), std::runtime_error);
  EXPECT_FALSE(s.has_value());
  EXPECT_EQ(w.destroyed, 1);
  static_cast<void>(s.get());
  EXPECT_THROW(s.shutdown(), std::runtime_error);
  static_cast<void>(s.get());
  EXPECT_THROW(s.seal(), std::runtime_error);
  EXPECT_TRUE(s.sealed()) << "state already changed";
  const auto stats = s.stats();
  EXPECT_EQ(stats.teardown_errors, 3u);
  EXPECT_EQ(stats.torn_down, 3u) << "a callback that throws still counts";
  EXPECT_EQ(w.errors, 0) << "they had a caller";
  EXPECT_EQ(w.alive(), 0);
  w.on_shutdown = nullptr;
}

TEST_F(GuardedSingleton, CallbacksMayThrowWhatIsNoException) {
  struct odd {};
  w.on_reset = [](thing&) { throw 42; };
  w.on_shutdown = [](thing&, teardown_reason) { throw odd{}; };
  static_cast<void>(s.get());
  EXPECT_THROW(s.reset(), int);
  static_cast<void>(s.get());
  EXPECT_THROW(s.shutdown(), odd);
  { auto scope = s.override_with(another()); }
  EXPECT_EQ(w.errors, 1);
  static_cast<void>(s.get());
  EXPECT_THROW(s.seal(), odd);
  EXPECT_TRUE(s.sealed());
  EXPECT_EQ(w.alive(), 0);
  EXPECT_EQ(s.stats().teardown_errors, 4u);
  EXPECT_TRUE(s.unseal());
  w.on_make = [] { throw "a string"; };
  EXPECT_THROW(static_cast<void>(s.get()), const char*);
  w.on_make = nullptr;
  w.on_reset = nullptr;
  w.on_shutdown = nullptr;
  EXPECT_TRUE(s.get());
}

TEST(GuardedSingletonFailure, ErrorsWithoutACallerAreSwallowedAndCountedWhenThereIsNoOnError) {
  struct no_sink {
    int* calls;
    std::unique_ptr<plain> make() { return std::make_unique<plain>(); }
    void on_shutdown(plain&, teardown_reason) {
      ++*calls;
      throw 1;
    }
  };
  int calls = 0;
  scoped_singleton<plain, no_sink> s{"", no_sink{&calls}};
  { auto scope = s.override_with(std::make_unique<plain>()); }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(s.stats().teardown_errors, 1u);
}

// ---- start ----

TEST(GuardedSingletonStart, RunsOnceOnTheWinnerBeforeAnybodySeesIt) {
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  w.on_start = [&](thing&) {
    EXPECT_FALSE(s.has_value());
    EXPECT_FALSE(s.try_get());
    EXPECT_EQ(s.stats().live, 0u);
    EXPECT_TRUE(balanced(s.stats()));
  };
  auto it = s.get();
  EXPECT_TRUE(it->started);
  EXPECT_EQ(w.started, 1);
  EXPECT_EQ(s.get().get(), it.get());
  EXPECT_EQ(w.started, 1);
}

TEST(GuardedSingletonStart, NotCalledForInstancesGivenToSetAndOverride) {
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  static_cast<void>(s.set(std::make_unique<thing>(&w)));
  { auto scope = s.override_with(std::make_unique<thing>(&w)); }
  EXPECT_EQ(w.started, 0);
}

TEST(GuardedSingletonStart, CallsDuringStartOutdateTheCandidateAndSetInstallsAtOnce) {
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  int round = 0;
  w.on_start = [&](thing&) {
    switch (round++) {
      case 0:
        s.reset();
        break;
      case 1:
        static_cast<void>(s.set(std::make_unique<thing>(&w, 5)));
        EXPECT_TRUE(s.has_value());
        EXPECT_EQ(s.get()->value, 5);
        break;
      default:
        ADD_FAILURE();
    }
  };
  EXPECT_EQ(s.get()->value, 5);
  EXPECT_EQ(w.shutdowns(teardown_reason::stale), 2);
}

TEST(GuardedSingletonStart, SealDuringStartEndsItSealed) {
  world w;
  starting_singleton s{"starter", starting_traits{{&w}}};
  w.on_start = [&](thing&) { s.seal(); };
  EXPECT_THROW(static_cast<void>(s.get()), singleton_sealed);
  EXPECT_EQ(w.shutdowns(teardown_reason::sealed), 1);
}

// ---- handles ----

TEST_F(GuardedSingleton, HandleMovesAndEmptyOnesAreHarmless) {
  singleton::handle none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), nullptr);
  EXPECT_FALSE(none.detached());
  EXPECT_FALSE(none.clone());
  EXPECT_EQ(std::move(none).share(), nullptr);
  none.release();
  auto a = s.get();
  thing* const it = a.get();
  auto b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_EQ(b.get(), it);
  EXPECT_EQ(&*b, it);
  a = std::move(b);
  EXPECT_EQ(a.get(), it);
  auto& alias = a;
  a = std::move(alias);
  EXPECT_EQ(a.get(), it) << "self-move keeps it";
  s.reset();
  EXPECT_EQ(w.destroyed, 0);
  a = singleton::handle{};
  EXPECT_EQ(w.destroyed, 1) << "assignment lets the old one go";
}

TEST_F(GuardedSingleton, CloneOfADetachedHandleStillPins) {
  auto a = s.get();
  s.reset();
  auto b = a.clone();
  a.release();
  EXPECT_TRUE(b.detached());
  EXPECT_EQ(w.destroyed, 0);
  b.release();
  EXPECT_EQ(w.destroyed, 1);
}

TEST_F(GuardedSingleton, ShareIsTheSamePinAsASharedPointerAndWeakPointersDoNotPin) {
  auto a = s.get();
  thing* const it = a.get();
  std::shared_ptr<thing> shared = std::move(a).share();
  EXPECT_FALSE(a);
  EXPECT_EQ(shared.get(), it);
  std::weak_ptr<thing> weak = shared;
  std::shared_ptr<thing> second = shared;
  s.reset();
  shared.reset();
  EXPECT_EQ(w.destroyed, 0);
  EXPECT_NE(weak.lock(), nullptr);
  second.reset();
  EXPECT_EQ(w.destroyed, 1);
  EXPECT_EQ(weak.lock(), nullptr);
  EXPECT_TRUE(s.drain_for(0s)) << "the weak pointer is still there";
}

TEST_F(GuardedSingleton, StatsAreExactWithManyHandlesOut) {
  std::vector<singleton::handle> pins;
  for (int i = 0; i < 10; ++i) {
    pins.push_back(s.get());
    s.reset();
  }
  EXPECT_EQ(w.alive(), 10);
  EXPECT_EQ(s.stats().torn_down, 10u) << "torn down when the callback ran, not when destroyed";
  EXPECT_EQ(s.drain_for(0s).remaining, 10u);
  pins.clear();
  EXPECT_EQ(w.alive(), 0);
}

// ---- drain ----

TEST_F(GuardedSingleton, DrainForCountsInstancesIncludingHandedBackOnes) {
  EXPECT_TRUE(s.drain_for(0s));
  auto a = s.get();
  auto a2 = a.clone();
  s.reset();
  auto b = s.get();
  auto back = s.detach();
  b.release();
  auto result = s.drain_for(1ms);
  EXPECT_EQ(result.status, drain_status::timed_out);
  EXPECT_EQ(result.remaining, 2u) << "instances, not handles";
  a.release();
  a2.release();
  EXPECT_EQ(s.drain_for(-1s).remaining, 1u);
  back.release();
  result = s.drain_for(std::chrono::hours::max());
  EXPECT_EQ(result.status, drain_status::drained);
  EXPECT_EQ(result.remaining, 0u);
}

TEST_F(GuardedSingleton, DrainForCountsAnInstanceUntilItsDestructorHasRun) {
  std::uint64_t during = 0;
  w.on_destroy = [&](thing&) { during = s.drain_for(0s).remaining; };
  static_cast<void>(s.get());
  s.reset();
  w.on_destroy = nullptr;
  EXPECT_EQ(during, 1u);
  EXPECT_TRUE(s.drain_for(0s));
}

TEST_F(GuardedSingleton, DrainForDoesNotWaitForTheCurrentInstance) {
  auto current = s.get();
  EXPECT_TRUE(s.drain_for(0s));
}

// ---- overrides ----

TEST_F(GuardedSingleton, OverrideReplacesAndPutsBack) {
  auto before = s.get();
  {
    auto scope = s.override_with(another(42));
    EXPECT_EQ(s.get()->value, 42);
    EXPECT_FALSE(before.detached()) << "suspended, not detached";
    const auto stats = s.stats();
    EXPECT_EQ(stats.live, 2u);
    EXPECT_TRUE(balanced(stats));
  }
  EXPECT_EQ(s.get().get(), before.get());
  EXPECT_EQ(w.shutdowns(teardown_reason::override_ended), 1);
  EXPECT_EQ(before->torn, 0);
  EXPECT_EQ(w.constructed, 2);
}

TEST_F(GuardedSingleton, OverrideOfAnEmptyOneLeavesItEmpty) {
  {
    auto scope = s.override_with(another(42));
    EXPECT_EQ(s.get()->value, 42);
  }
  EXPECT_FALSE(s.has_value());
  EXPECT_EQ(w.alive(), 0);
}

TEST_F(GuardedSingleton, OverridesNest) {
  auto base = s.get();
  {
    auto outer = s.override_with(another(1));
    {
      auto inner = s.override_with(another(2));
      EXPECT_EQ(s.get()->value, 2);
      EXPECT_EQ(s.stats().live, 3u);
    }
    EXPECT_EQ(s.get()->value, 1);
  }
  EXPECT_EQ(s.get().get(), base.get());
}

TEST_F(GuardedSingleton, OverrideEndingAfterAnInterventionPutsNothingBack) {
  const std::vector<std::function<void()>> interventions = {[&] { s.reset(); }, [&] { s.shutdown(); },
                                                            [&] { static_cast<void>(s.detach()); },
                                                            [&] { static_cast<void>(s.set(another(7))); },
                                                            [&] {
                                                              s.seal();
                                                              s.unseal();
                                                            }};
  for (std::size_t i = 0; i < interventions.size(); ++i) {
    auto base = s.get();
    const int ended = w.shutdowns(teardown_reason::override_ended);
    {
      auto scope = s.override_with(another(42));
      interventions[i]();
      EXPECT_EQ(base->torn, 0) << i;
    }
    EXPECT_EQ(base->torn, 1) << i << ": the suspended one is torn down with override_ended";
    EXPECT_TRUE(base.detached()) << i;
    EXPECT_EQ(w.shutdowns(teardown_reason::override_ended), ended + 1) << i;
    EXPECT_EQ(s.has_value(), i == 3) << i << ": what set installed stays";
    if (i == 3) {
      EXPECT_EQ(s.get()->value, 7);
    }
    EXPECT_TRUE(balanced(s.stats())) << i;
    s.reset();
  }
}

TEST_F(GuardedSingleton, ResetInsideANestedOverrideCountsForTheOuterOneToo) {
  auto base = s.get();
  {
    auto outer = s.override_with(another(1));
    auto mid = s.get();
    {
      auto inner = s.override_with(another(2));
      EXPECT_TRUE(s.reset());
      EXPECT_EQ(s.get()->value, 0) << "made by the factory";
    }
    EXPECT_EQ(mid->torn, 1);
    EXPECT_EQ(s.get()->value, 0);
  }
  EXPECT_EQ(base->torn, 1);
  EXPECT_TRUE(s.has_value());
  EXPECT_EQ(w.shutdowns(teardown_reason::override_ended), 2);
}

TEST_F(GuardedSingleton, OverrideRefusesNullAndASealedSingleton) {
  EXPECT_THROW(static_cast<void>(s.override_with(nullptr)), std::invalid_argument);
  s.seal();
  EXPECT_THROW(static_cast<void>(s.override_with(another())), singleton_sealed);
  EXPECT_EQ(w.alive(), 0);
  EXPECT_EQ(w.shutdowns(), 0);
}

TEST_F(GuardedSingleton, OverrideScopeMayMove) {
  std::optional<singleton::scoped_override> keep;
  {
    auto scope = s.override_with(another(3));
    keep.emplace(std::move(scope));
  }
  EXPECT_EQ(s.get()->value, 3);
  keep.reset();
  EXPECT_FALSE(s.has_value());
}

TEST_F(GuardedSingleton, ErrorOfAnEndingOverrideGoesToOnError) {
  w.on_shutdown = [](thing&, teardown_reason) { throw 1; };
  { auto scope = s.override_with(another()); }
  EXPECT_EQ(w.errors, 1);
  EXPECT_EQ(w.last_error_reason, static_cast<int>(teardown_reason::override_ended));
  EXPECT_EQ(s.stats().teardown_errors, 1u);
  w.on_shutdown = nullptr;
}

TEST(GuardedSingletonDeathTest, OverridesEndingOutOfOrderEndTheProcessByName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        static guarded_singleton<plain> s{"stacked"};
        auto outer =
            std::make_unique<guarded_singleton<plain>::scoped_override>(s.override_with(std::make_unique<plain>()));
        auto inner = s.override_with(std::make_unique<plain>());
        outer.reset();
      },
      "out of order.*stacked");
}

TEST(GuardedSingletonDeathTest, ScopedOneDestroyedInsideAnOverrideEndsTheProcessByName) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto s = std::make_unique<scoped_singleton<plain>>("inner");
        auto scope = s->override_with(std::make_unique<plain>());
        s.reset();
      },
      "override.*inner");
}

TEST(GuardedSingletonDeathTest, ATerminateHandlerMayUseSingletonsAlsoWhenTheKitHasEndedTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto last_words = [] {
    static_cast<void>(constant_initialised.get());
    constant_initialised.reset();
    std::_Exit(3);
  };
  EXPECT_EXIT(
      {
        const watchdog dog("out of order", 20s);
        std::set_terminate(last_words);
        scoped_singleton<plain> s{"inner"};
        auto outer =
            std::make_unique<scoped_singleton<plain>::scoped_override>(s.override_with(std::make_unique<plain>()));
        auto inner = s.override_with(std::make_unique<plain>());
        outer.reset();
      },
      testing::ExitedWithCode(3), "override.*inner");
  EXPECT_EXIT(
      {
        const watchdog dog("inside", 20s);
        std::set_terminate(last_words);
        auto s = std::make_unique<scoped_singleton<plain>>("inner");
        auto scope = s->override_with(std::make_unique<plain>());
        s.reset();
      },
      testing::ExitedWithCode(3), "override.*inner");
}

// ---- scoped_singleton ----

TEST(ScopedSingleton, ACallbackOfItsEndCannotBringItBackToLife) {
  world w;
  int refused = 0;
  {
    singleton s{"ending", world_traits{&w}};
    static_cast<void>(s.get());
    w.on_shutdown = [&](thing&, teardown_reason) {
      EXPECT_FALSE(s.unseal());
      try {
        static_cast<void>(s.get());
      } catch (const curfew::singleton_sealed&) {
        ++refused;
      }
    };
  }
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(w.ends[static_cast<unsigned>(teardown_reason::sealed)], 1);
}

TEST(ScopedSingleton, DestructorSealsAndHandlesOutliveIt) {
  world w;
  auto s = std::make_unique<singleton>("scoped", world_traits{&w});
  auto a = s->get();
  s->reset();
  auto b = s->get();
  s.reset();
  EXPECT_EQ(w.shutdowns(teardown_reason::sealed), 1);
  EXPECT_EQ(w.destroyed, 0) << "both are still pinned";
  EXPECT_TRUE(b.detached());
  auto c = b.clone();
  a.release();
  b.release();
  EXPECT_EQ(w.destroyed, 1);
  auto shared = std::move(c).share();
  shared.reset();
  EXPECT_EQ(w.destroyed, 2);
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
// Blocks and cores stay reachable from the process-wide list, so a leak checker cannot see that they were forgotten.
TEST(ScopedSingleton, WhoeverComesLastDestructorOrHandleFreesEverything) {
  const auto in_use = [] { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; };  // 0 where a sanitizer allocates
  std::size_t before = 0;
  for (int round = 0; round < 1100; ++round) {
    if (round == 100) before = in_use();
    scoped_singleton<plain>::handle late;
    scoped_singleton<plain> s{"short-lived"};
    if (round % 2 == 0) late = s.get();
    static_cast<void>(s.get());
  }
  EXPECT_LT(in_use(), before + 1000 * 256) << "a core and a block are more than 1 KiB";
}
#endif

TEST(ScopedSingleton, DestructorOfAnUnusedOneDoesNothing) {
  world w;
  { singleton s{"unused", world_traits{&w}}; }
  {
    singleton s{"touched", world_traits{&w}};
    s.reset();
  }
  EXPECT_EQ(w.constructed, 0);
}

TEST(ScopedSingleton, DestructorSendsErrorsToOnErrorAndDoesNotTouchTraitsAfterwards) {
  world w;
  struct living_traits : world_traits {  // destroyed with the singleton: a later use is for ASan to see
    std::unique_ptr<int> alive = std::make_unique<int>(1);
    explicit living_traits(world* in_world) : world_traits{in_world} {}
    void on_error(std::exception_ptr, teardown_reason reason) noexcept {
      EXPECT_EQ(*alive, 1);
      ++in->errors;
      EXPECT_EQ(reason, teardown_reason::sealed);
    }
  };
  w.on_shutdown = [](thing&, teardown_reason) { throw 1; };
  scoped_singleton<thing, living_traits>::handle kept;
  {
    scoped_singleton<thing, living_traits> s{"scoped", living_traits{&w}};
    kept = s.get();
  }
  EXPECT_EQ(w.errors, 1);
  kept.release();
  EXPECT_EQ(w.destroyed, 1);
}

// ---- rule 9: before, after and beside main ----

constinit guarded_singleton<plain> process_wide{"process_wide"};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(86);
}

// Constructed before main, destroyed after it; the atexit handler runs in between.
struct static_user {
  int seen_before_main;
  static_user() : seen_before_main(process_wide.get()->value) {
    std::atexit([] {
      process_wide.reset();
      if (process_wide.get()->value != 7) die("atexit: wrong instance");
    });
  }
  ~static_user() {
    if (!process_wide.has_value()) die("static destructor: instance is gone");
    process_wide.shutdown();
    if (process_wide.get()->value != 7) die("static destructor: wrong instance");
  }
} static_user_instance;

struct thread_user {
  bool used = false;
  ~thread_user() {
    if (used && process_wide.get()->value != 7) die("thread_local destructor: wrong instance");
  }
};
thread_local thread_user thread_user_instance;

TEST(GuardedSingletonLifetime, Rule9_UsableFromStaticConstructorsDestructorsAndAtexit) {
  EXPECT_EQ(static_user_instance.seen_before_main, 7);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(0), testing::ExitedWithCode(0), "");
}

TEST(GuardedSingletonLifetime, Rule9_UsableFromThreadLocalDestructors) {
  std::thread([] {
    thread_user_instance.used = true;
    EXPECT_EQ(process_wide.get()->value, 7);
    process_wide.reset();
  }).join();
  EXPECT_TRUE(process_wide.has_value());
}

}  // namespace
