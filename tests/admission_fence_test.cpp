// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The rules of docs/design/admission_fence.md by number, for every kind of fence. Cases that need a thread held inside
// the protocol are in admission_fence_race_test.cpp.

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>

#include "support/park.hpp"

namespace {

using namespace std::chrono_literals;
using curfew::drain_hook;
using curfew::drain_result;
using curfew::drain_status;
using curfew_test::gate;
using curfew_test::start_gate;
using curfew_test::watchdog;

struct kind_names {
  template <class Fence>
  static std::string GetName(int) {
    if (std::is_same_v<Fence, curfew::traced_admission_fence>) return "traced";
    return std::is_same_v<Fence, curfew::admission_fence> ? "striped" : "compact";
  }
};

template <class Fence>
class AdmissionFence : public testing::Test {
  watchdog watchdog_{"admission_fence_test"};
};
using kinds = testing::Types<curfew::admission_fence, curfew::compact_admission_fence, curfew::traced_admission_fence>;
TYPED_TEST_SUITE(AdmissionFence, kinds, kind_names);

template <class Fence>
class AdmissionFenceDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};
TYPED_TEST_SUITE(AdmissionFenceDeathTest, kinds, kind_names);

// Counts how often it ran.
struct counting_hook {
  static void hit(void* self) noexcept { static_cast<counting_hook*>(self)->runs.fetch_add(1); }
  std::atomic<int> runs{0};
  drain_hook hook{&hit, this};
};

template <class Fence>
constexpr bool shape_is_right() {
  using pass = typename Fence::pass;
  static_assert(!std::is_copy_constructible_v<Fence> && !std::is_move_constructible_v<Fence>);
  static_assert(!std::is_copy_assignable_v<Fence> && !std::is_move_assignable_v<Fence>);
  static_assert(!std::is_convertible_v<const char*, Fence>);
  static_assert(std::is_nothrow_default_constructible_v<Fence>);
  static_assert(!std::is_copy_constructible_v<pass> && !std::is_copy_assignable_v<pass>);
  static_assert(std::is_nothrow_move_constructible_v<pass> && std::is_nothrow_move_assignable_v<pass>);
  static_assert(std::is_nothrow_default_constructible_v<pass>);
  static_assert(!std::is_convertible_v<pass, bool> && std::is_constructible_v<bool, const pass&>);
  static_assert(sizeof(pass) == (std::is_same_v<Fence, curfew::traced_admission_fence> ? 2 : 1) * sizeof(void*));
  static_assert(noexcept(std::declval<Fence&>().try_enter()) && !noexcept(std::declval<Fence&>().enter()));
  static_assert(noexcept(std::declval<Fence&>().close())&& noexcept(std::declval<Fence&>().drain()));
  static_assert(noexcept(std::declval<Fence&>().drain_for(std::declval<std::chrono::seconds>()))&& noexcept(
      std::declval<Fence&>().wait_drained_for(std::declval<std::chrono::seconds>())));
  static_assert(noexcept(std::declval<Fence&>().reopen())&& noexcept(std::declval<Fence&>().cancel_close()));
  static_assert(noexcept(std::declval<const pass&>().clone())&& noexcept(std::declval<pass&>().release()));
  static_assert(std::is_same_v<typename Fence::time_point, std::chrono::steady_clock::time_point>);
  return true;
}
static_assert(shape_is_right<curfew::admission_fence>() && shape_is_right<curfew::compact_admission_fence>() &&
              shape_is_right<curfew::traced_admission_fence>());
static_assert(sizeof(curfew::compact_admission_fence) == 16);
static_assert(sizeof(curfew::admission_fence) <= 1536);
static_assert(!std::is_copy_constructible_v<drain_hook> && !std::is_move_constructible_v<drain_hook>);
static_assert(!std::is_convertible_v<drain_result, bool> &&
              std::is_base_of_v<std::runtime_error, curfew::admission_refused>);

constinit curfew::admission_fence static_striped{"static"};
constinit curfew::compact_admission_fence static_compact{"static"};
constinit curfew::traced_admission_fence static_traced{"static"};

TEST(AdmissionFenceStatic, NeedsNoDynamicInitialisation) {
  EXPECT_TRUE(static_striped.try_enter());
  EXPECT_TRUE(static_compact.try_enter());
  EXPECT_TRUE(static_traced.try_enter());
  EXPECT_STREQ(static_striped.name(), "static");
}

// Neither an array of fences nor an aggregate with one needs more than `{}`.
TYPED_TEST(AdmissionFence, StandsInAggregates) {
  struct server {
    TypeParam requests;
    int port = 80;
  };
  server one{};
  std::array<TypeParam, 2> two = {};
  EXPECT_TRUE(one.requests.try_enter());
  EXPECT_TRUE(two[1].try_enter());
  EXPECT_STREQ(two[0].name(), "");
}

// --- rule 1: one atomic verdict
// ---------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule1_ANonEmptyPassIsCountedUntilReleased) {
  TypeParam fence("f");
  EXPECT_EQ(fence.inside(), 0u);
  auto pass = fence.try_enter();
  ASSERT_TRUE(pass);
  EXPECT_EQ(fence.inside(), 1u);
  fence.close();
  EXPECT_EQ(fence.inside(), 1u);
  EXPECT_FALSE(fence.is_drained());
  pass.release();
  EXPECT_EQ(fence.inside(), 0u);
  EXPECT_TRUE(fence.is_drained());
}

TYPED_TEST(AdmissionFence, Rule1_AnEmptyPassIsCountedByNobody) {
  TypeParam fence;
  fence.close();
  auto refused = fence.try_enter();
  EXPECT_FALSE(refused);
  EXPECT_EQ(fence.inside(), 0u);
  EXPECT_TRUE(fence.is_drained());
  refused.release();
  EXPECT_TRUE(fence.reopen());
  EXPECT_EQ(fence.inside(), 0u);
}

// The accepted-but-not-yet-started unit of work: the pass is taken before the work is queued.
TYPED_TEST(AdmissionFence, Rule1_DrainAwaitsWorkThatIsStillQueued) {
  TypeParam fence;
  std::deque<typename TypeParam::pass> queue;
  for (int i = 0; i < 3; ++i) queue.push_back(fence.enter());
  EXPECT_FALSE(fence.drain_for(0s));
  std::atomic<int> served{0};
  std::thread worker([&] {
    while (!queue.empty()) {
      served.fetch_add(1);
      queue.pop_front();
    }
  });
  fence.drain();
  EXPECT_EQ(served.load(), 3);
  worker.join();
}

TYPED_TEST(AdmissionFence, Rule1_NobodyIsInsideOnceDrainHasReturned) {
  TypeParam fence;
  constexpr int workers = 3;
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        if (auto pass = fence.try_enter()) {
          inside.fetch_add(1);
          auto second = pass.clone();
          pass.release();
          inside.fetch_sub(1);
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    fence.drain();
    ASSERT_EQ(inside.load(), 0);
    ASSERT_TRUE(fence.reopen());
  }
  stop.store(true);
  for (auto& each : threads) each.join();
}

// --- rule 2: refusal
// --------------------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule2_RefusedAfterCloseReturned) {
  for (int round = 0; round < 50; ++round) {
    TypeParam fence;
    std::atomic<bool> closed{false};
    std::atomic<int> broken{0};
    start_gate start(3);
    auto tries = [&] {
      start.arrive_and_wait();
      for (int after = 0; after < 2000;) {
        const bool must_refuse = closed.load(std::memory_order_acquire);
        const bool admitted = static_cast<bool>(fence.try_enter());
        if (must_refuse) {
          ++after;
          if (admitted) broken.fetch_add(1);
        }
      }
    };
    std::thread a(tries), b(tries);
    start.arrive_and_wait();
    fence.close();
    closed.store(true, std::memory_order_release);
    a.join();
    b.join();
    ASSERT_EQ(broken.load(), 0);
  }
}

TYPED_TEST(AdmissionFence, Rule2_AThreadOnceRefusedStaysRefusedUntilReopen) {
  for (int round = 0; round < 200; ++round) {
    TypeParam fence;
    std::atomic<int> broken{0};
    start_gate start(3);
    auto tries = [&] {
      start.arrive_and_wait();
      bool refused = false;
      for (int after = 0; after < 200;) {
        const bool admitted = static_cast<bool>(fence.try_enter());
        if (refused && admitted) broken.fetch_add(1);
        refused = refused || !admitted;
        if (refused) ++after;
      }
    };
    std::thread a(tries), b(tries);
    start.arrive_and_wait();
    fence.close();
    a.join();
    b.join();
    ASSERT_EQ(broken.load(), 0);
    ASSERT_TRUE(fence.reopen());
    ASSERT_TRUE(fence.try_enter());
  }
}

TYPED_TEST(AdmissionFence, Rule2_EnterThrowsWithTheFencesName) {
  TypeParam fence("uploads");
  { const auto pass = fence.enter(); }
  fence.close();
  try {
    const auto pass = fence.enter();
    FAIL() << "admitted";
  } catch (const curfew::admission_refused& refused) {
    EXPECT_NE(std::string(refused.what()).find("uploads"), std::string::npos) << refused.what();
  }
  TypeParam nameless;
  nameless.close();
  EXPECT_THROW(static_cast<void>(nameless.enter()), curfew::admission_refused);
}

TYPED_TEST(AdmissionFence, Rule2_ManyRefusalsLeaveNoTrace) {
  TypeParam fence;
  auto pass = fence.enter();
  fence.close();
  for (int i = 0; i < 1'000'000; ++i) ASSERT_FALSE(fence.try_enter());
  EXPECT_EQ(fence.inside(), 1u);
  EXPECT_TRUE(fence.cancel_close());
  EXPECT_EQ(fence.inside(), 1u);
}

// --- rule 3: nesting and clones
// ---------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule3_HoldingAPassDoesNotAdmitAfterClose) {
  TypeParam fence;
  auto pass = fence.enter();
  {
    auto nested = fence.try_enter();
    EXPECT_TRUE(nested);
  }
  fence.close();
  EXPECT_FALSE(fence.try_enter());
  EXPECT_EQ(fence.inside(), 1u);
}

TYPED_TEST(AdmissionFence, Rule3_CloneOfALivePassAlwaysSucceeds) {
  TypeParam fence;
  auto pass = fence.enter();
  auto before = pass.clone();
  EXPECT_TRUE(before);
  fence.close();
  auto after = pass.clone();
  auto of_clone = after.clone();
  EXPECT_TRUE(after && of_clone);
  EXPECT_EQ(fence.inside(), 4u);
  pass.release();
  before.release();
  after.release();
  EXPECT_FALSE(fence.is_drained());
  const auto last = of_clone.clone();
  of_clone.release();
  EXPECT_FALSE(fence.is_drained());
}

TYPED_TEST(AdmissionFence, Rule3_CloneOfAnEmptyPassIsEmpty) {
  typename TypeParam::pass empty;
  EXPECT_FALSE(empty.clone());
  EXPECT_FALSE(empty.closing());
  empty.release();
}

TYPED_TEST(AdmissionFence, Rule3_ClosingTellsIdleInsidersToLeave) {
  TypeParam fence;
  std::atomic<bool> idle{true};
  auto pass = fence.enter();
  EXPECT_FALSE(pass.closing());
  std::thread insider([&idle, pass = std::move(pass)]() mutable {
    while (!pass.closing()) std::this_thread::yield();
    idle.store(false);
    pass.release();
  });
  EXPECT_TRUE(fence.drain_for(curfew_test::patience));
  EXPECT_FALSE(idle.load());
  insider.join();
}

// --- rule 4: release from anywhere
// ------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule4_ReleaseOnAnotherThreadAfterTheEnteringOneEnded) {
  TypeParam fence;
  std::vector<typename TypeParam::pass> passes(40);
  for (auto& each : passes) std::thread([&] { each = fence.enter(); }).join();
  EXPECT_EQ(fence.inside(), passes.size());
  std::thread([&] { passes.resize(20); }).join();
  EXPECT_EQ(fence.inside(), 20u);
  fence.close();
  EXPECT_EQ(fence.inside(), 20u);
  for (auto& each : passes) std::thread([&] { each.release(); }).join();
  EXPECT_TRUE(fence.is_drained());
}

TYPED_TEST(AdmissionFence, Rule4_ReleaseFromAThreadLocalDestructor) {
  TypeParam fence;
  std::thread([&] {
    thread_local typename TypeParam::pass early;
    early = fence.enter();
    thread_local typename TypeParam::pass late;
    late = early.clone();
  }).join();
  EXPECT_EQ(fence.inside(), 0u);
  gate closed;
  std::thread last([&] {
    thread_local typename TypeParam::pass held;
    held = fence.enter();
    if (!closed.wait()) std::abort();
  });
  ASSERT_TRUE(curfew_test::eventually([&] { return fence.inside() == 1; }));
  fence.close();
  closed.open();
  fence.drain();
  last.join();
}

TYPED_TEST(AdmissionFenceDeathTest, Rule4_ReleaseDuringStaticDestruction) {
  EXPECT_EXIT(
      {
        static TypeParam fence("static");
        static typename TypeParam::pass held;
        held = fence.enter();
        fence.close();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TYPED_TEST(AdmissionFence, Rule4_AMillionPassesAtOnce) {
  TypeParam fence;
  std::vector<typename TypeParam::pass> passes(1'000'000);
  for (auto& each : passes) each = fence.try_enter();
  EXPECT_EQ(fence.inside(), passes.size());
  fence.close();
  EXPECT_EQ(fence.drain_for(0s).remaining, passes.size());
  passes.clear();
  EXPECT_TRUE(fence.is_drained());
}

TYPED_TEST(AdmissionFence, Rule4_PassesMoveAndSwap) {
  TypeParam one("1"), two("2");
  auto a = one.enter();
  auto b = two.enter();
  std::swap(a, b);
  EXPECT_EQ(one.inside() + two.inside(), 2u);
  a.release();
  EXPECT_EQ(two.inside(), 0u);
  EXPECT_EQ(one.inside(), 1u);
  auto& alias = b;
  b = std::move(alias);
  EXPECT_TRUE(b);
  EXPECT_EQ(one.inside(), 1u);
  auto c = std::move(b);
  EXPECT_FALSE(b);
  b = two.enter();
  c = std::move(b);
  EXPECT_EQ(one.inside(), 0u);
  EXPECT_EQ(two.inside(), 1u);
  c.release();
  c.release();
  EXPECT_EQ(two.inside(), 0u);
}

TYPED_TEST(AdmissionFence, Rule4_RunHoldsAPassWhileItsFunctionRuns) {
  TypeParam fence;
  EXPECT_TRUE(fence.run([&] {
    EXPECT_EQ(fence.inside(), 1u);
    return std::make_unique<int>(1);
  }));
  EXPECT_EQ(fence.inside(), 0u);
  EXPECT_THROW(fence.run([] { throw std::domain_error("f"); }), std::domain_error);
  EXPECT_EQ(fence.inside(), 0u);
  struct move_only {
    std::unique_ptr<int> p = std::make_unique<int>(3);
    int operator()() && { return *std::move(p); }
  };
  EXPECT_TRUE(fence.run(move_only{}));
  fence.close();
  EXPECT_FALSE(fence.run([] { FAIL() << "called although refused"; }));
}

// --- rule 5: visibility
// -----------------------------------------------------------------------------------------------

// Several threads write plain memory before they leave; whoever is told "drained" sums it up.
template <class Fence, class Wait>
void sums_what_leavers_wrote(Wait wait) {
  constexpr std::size_t leavers = 4;
  for (int round = 0; round < 50; ++round) {
    Fence fence;
    std::array<int, leavers> plain{};
    start_gate start(leavers + 1);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < leavers; ++i) {
      threads.emplace_back([&, i, pass = fence.enter()]() mutable {
        start.arrive_and_wait();
        auto clone = pass.clone();
        pass.release();
        plain[i] = static_cast<int>(i) + 1;
        clone.release();
      });
    }
    start.arrive_and_wait();
    wait(fence, [&] {
      int sum = 0;
      for (const int each : plain) sum += each;
      return sum;
    });
    for (auto& each : threads) each.join();
  }
}

TYPED_TEST(AdmissionFence, Rule5_DrainSeesWhatLeaversWrote) {
  sums_what_leavers_wrote<TypeParam>([](TypeParam& fence, auto sum) {
    fence.drain();
    ASSERT_EQ(sum(), 10);
  });
}

TYPED_TEST(AdmissionFence, Rule5_DrainForAndDrainUntilSeeWhatLeaversWrote) {
  sums_what_leavers_wrote<TypeParam>([](TypeParam& fence, auto sum) {
    while (!fence.drain_for(1us)) {
    }
    ASSERT_EQ(sum(), 10);
  });
  sums_what_leavers_wrote<TypeParam>([](TypeParam& fence, auto sum) {
    ASSERT_TRUE(fence.drain_until(std::chrono::steady_clock::now() + curfew_test::patience));
    ASSERT_EQ(sum(), 10);
  });
}

TYPED_TEST(AdmissionFence, Rule5_WaitDrainedSeesWhatLeaversWrote) {
  sums_what_leavers_wrote<TypeParam>([](TypeParam& fence, auto sum) {
    std::thread closer([&] { fence.close(); });
    const drain_result result = fence.wait_drained_for(curfew_test::patience);
    const int total = sum();
    closer.join();
    ASSERT_TRUE(result);
    ASSERT_EQ(total, 10);
  });
}

TYPED_TEST(AdmissionFence, Rule5_PollingIsDrainedSeesWhatLeaversWrote) {
  sums_what_leavers_wrote<TypeParam>([](TypeParam& fence, auto sum) {
    fence.close();
    while (!fence.is_drained()) std::this_thread::yield();
    ASSERT_EQ(sum(), 10);
  });
}

TYPED_TEST(AdmissionFence, Rule5_AHookSeesWhatLeaversWrote) {
  sums_what_leavers_wrote<TypeParam>([](TypeParam& fence, auto sum) {
    struct context {
      decltype(sum)& add;
      std::atomic<int> result{-1};
    } shared{sum};
    drain_hook hook(
        [](void* arg) noexcept {
          auto& self = *static_cast<context*>(arg);
          self.result.store(self.add());
        },
        &shared);
    fence.on_drained(hook);
    fence.close();
    ASSERT_TRUE(curfew_test::eventually([&] { return shared.result.load() != -1; }));
    ASSERT_EQ(shared.result.load(), 10);
  });
}

TYPED_TEST(AdmissionFence, Rule5_WhoeverIsAdmittedSeesWhatPrecededTheOpening) {
  for (const bool occupied : {false, true}) {
    TypeParam fence;
    typename TypeParam::pass inside;
    if (occupied) inside = fence.enter();
    int plain = 0;
    fence.close();
    int seen = 0;
    std::thread entrant([&] {
      for (;;) {
        if (auto pass = fence.try_enter()) {
          seen = plain;
          return;
        }
        std::this_thread::yield();
      }
    });
    plain = 1;
    EXPECT_TRUE(occupied ? fence.cancel_close() : fence.reopen());
    entrant.join();
    EXPECT_EQ(seen, 1);
  }
}

TYPED_TEST(AdmissionFence, Rule5_WhoeverIsRefusedSeesWhatPrecededTheClosing) {
  for (const int how : {0, 1, 2}) {
    TypeParam fence;
    typename TypeParam::pass inside;
    if (how != 0) inside = fence.enter();
    int plain = 0;
    int seen = 0;
    std::thread entrant([&] {
      while (fence.try_enter()) std::this_thread::yield();
      seen = plain;
    });
    plain = 1;
    if (how != 2) {
      fence.close();
    } else {
      fence.drain_for(0s);
    }
    entrant.join();
    EXPECT_EQ(seen, 1);
  }
}

TYPED_TEST(AdmissionFence, Rule5_AnInsiderToldOfTheClosingSeesWhatPrecededIt) {
  TypeParam fence;
  int plain = 0;
  int seen = 0;
  std::thread insider([&, pass = fence.enter()]() mutable {
    while (!pass.closing()) std::this_thread::yield();
    seen = plain;
  });
  plain = 1;
  fence.close();
  insider.join();
  EXPECT_EQ(seen, 1);
}

TYPED_TEST(AdmissionFence, Rule5_WhoeverCountsNobodyInsideSeesWhatLeaversWrote) {
  for (const bool closed : {false, true}) {
    TypeParam fence;
    std::array<int, 2> plain{};
    std::vector<std::thread> leavers;
    for (int& each : plain) {
      leavers.emplace_back([&each, pass = fence.enter()]() mutable {
        each = 1;
        pass.release();
      });
    }
    if (closed) fence.close();
    while (fence.inside() != 0) std::this_thread::yield();
    EXPECT_EQ(plain[0] + plain[1], 2);
    for (auto& each : leavers) each.join();
  }
}

// --- rule 6: destroying at once (the deterministic cases are race tests)
// ----------------------------------------------

TYPED_TEST(AdmissionFence, Rule6_AFenceOnTheStackMayGoAsSoonAsDrainReturns) {
  struct job {
    std::atomic<typename TypeParam::pass*> pass{nullptr};
  } slot;
  std::atomic<bool> stop{false};
  std::thread leaver([&] {
    while (!stop.load()) {
      if (auto* pass = slot.pass.exchange(nullptr)) {
        auto mine = std::move(*pass);
        delete pass;
        mine.release();
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (int i = 0; i < 1000; ++i) {
    alignas(TypeParam) unsigned char memory[sizeof(TypeParam)];
    auto* fence = new (memory) TypeParam("stack");
    slot.pass.store(new typename TypeParam::pass(fence->enter()));
    if (i % 2 == 0) {
      fence->drain();
    } else {
      fence->close();
      while (!fence->is_drained()) std::this_thread::yield();
    }
    fence->~TypeParam();
    std::fill(std::begin(memory), std::end(memory), static_cast<unsigned char>(0xdb));
  }
  stop.store(true);
  leaver.join();
}

// --- rule 7: drainers
// -------------------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule7_ASpanThatIsNotPositiveClosesAndLooksOnce) {
  for (const auto span : {0ns, -1ns, std::chrono::nanoseconds::min()}) {
    TypeParam fence;
    auto pass = fence.enter();
    const drain_result first = fence.drain_for(span);
    EXPECT_EQ(first.status, drain_status::timed_out);
    EXPECT_EQ(first.remaining, 1u);
    EXPECT_TRUE(fence.is_closed());
    pass.release();
    const drain_result second = fence.drain_for(span);
    EXPECT_EQ(second.status, drain_status::drained);
    EXPECT_EQ(second.remaining, 0u);
  }
  TypeParam fence;
  EXPECT_TRUE(fence.drain_until(std::chrono::steady_clock::time_point::min()));
  auto old = std::chrono::steady_clock::now() - 1h;
  EXPECT_TRUE(fence.drain_until(old));
}

TYPED_TEST(AdmissionFence, Rule7_HugeSpansDoNotOverflow) {
  const auto waits = [](auto span) {
    TypeParam fence;
    std::thread leaver([pass = fence.enter()]() mutable { pass.release(); });
    const drain_result result = fence.drain_for(span);
    leaver.join();
    return result.status == drain_status::drained;
  };
  EXPECT_TRUE(waits(std::chrono::nanoseconds::max()));
  EXPECT_TRUE(waits(std::chrono::hours::max()));
  EXPECT_TRUE(waits(std::chrono::duration<std::int64_t, std::ratio<1'000'000'000>>::max()));
  EXPECT_TRUE(waits(std::chrono::duration<double>(std::numeric_limits<double>::infinity())));
  EXPECT_TRUE(waits(std::chrono::duration<double>(1e300)));
  EXPECT_TRUE(waits(std::chrono::hours(24 * 365 * 50)));
  EXPECT_TRUE(waits(std::chrono::duration<unsigned char, std::ratio<3600>>(255)));
  TypeParam fence;
  const auto pass = fence.enter();
  EXPECT_EQ(fence.drain_for(std::chrono::duration<double>(std::nan(""))).status, drain_status::timed_out);
  EXPECT_EQ(fence.drain_for(std::chrono::duration<double>(-std::numeric_limits<double>::infinity())).status,
            drain_status::timed_out);
  EXPECT_EQ(fence.drain_for(std::chrono::hours::min()).status, drain_status::timed_out);
  EXPECT_EQ(fence.drain_for(std::chrono::duration<double, std::nano>(0.25)).status, drain_status::timed_out);
}

TYPED_TEST(AdmissionFence, Rule7_TimesOutAtItsDeadlineAndCanBeRepeated) {
  TypeParam fence;
  auto pass = fence.enter();
  const auto begin = std::chrono::steady_clock::now();
  const drain_result result = fence.drain_for(20ms);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(result.status, drain_status::timed_out);
  EXPECT_GE(took, 20ms);
  EXPECT_LT(took, 5s);
  for (int i = 0; i < 10'000; ++i) ASSERT_FALSE(fence.drain_for(1ns));
  EXPECT_FALSE(fence.wait_drained_for(1ms));
  pass.release();
  EXPECT_TRUE(fence.drain_for(0s));
}

TYPED_TEST(AdmissionFence, Rule7_EveryOneOfManyDrainersReturns) {
  TypeParam fence;
  auto pass = fence.enter();
  std::atomic<int> told{0};
  std::vector<std::thread> drainers;
  for (int i = 0; i < 8; ++i) {
    drainers.emplace_back([&, i] {
      if (i % 2 == 0) {
        fence.drain();
        told.fetch_add(1);
      } else if (fence.wait_drained_for(curfew_test::patience)) {
        told.fetch_add(1);
      }
    });
  }
  ASSERT_TRUE(curfew_test::eventually([&] { return fence.is_closed(); }));
  EXPECT_EQ(told.load(), 0);
  pass.release();
  for (auto& each : drainers) each.join();
  EXPECT_EQ(told.load(), 8);
}

// A hook of the last leaver reopens and enters before any of the drainers can run: they are told about their own epoch.
TYPED_TEST(AdmissionFence, Rule7_DrainersAreToldAboutTheirEpochAlthoughItWasReopened) {
  for (int round = 0; round < 50; ++round) {
    struct context {
      TypeParam fence;
      typename TypeParam::pass next;
      std::atomic<bool> done{false};
    } shared;
    drain_hook hook(
        [](void* arg) noexcept {
          auto& self = *static_cast<context*>(arg);
          if (!self.fence.reopen()) std::abort();
          self.next = self.fence.try_enter();
          self.done.store(true);
        },
        &shared);
    auto pass = shared.fence.enter();
    ASSERT_TRUE(shared.fence.on_drained(hook));
    std::atomic<int> drained{0};
    std::vector<std::thread> drainers;
    std::atomic<int> waiting{0};
    for (int i = 0; i < 2; ++i) {
      drainers.emplace_back([&] {
        waiting.fetch_add(1);
        if (shared.fence.wait_drained_for(curfew_test::patience).status == drain_status::drained) drained.fetch_add(1);
      });
    }
    ASSERT_TRUE(curfew_test::eventually([&] { return waiting.load() == 2; }));
    std::this_thread::yield();
    shared.fence.close();
    pass.release();
    ASSERT_TRUE(curfew_test::eventually([&] { return shared.done.load(); }));
    // One that came after all this happened waits for the next epoch, which is this one:
    shared.fence.close();
    shared.next.release();
    for (auto& each : drainers) each.join();
    ASSERT_EQ(drained.load(), 2);
  }
}

TYPED_TEST(AdmissionFence, Rule7_WaitDrainedNeverCloses) {
  TypeParam fence;
  const drain_result empty = fence.wait_drained_for(1ms);
  EXPECT_EQ(empty.status, drain_status::timed_out);
  EXPECT_EQ(empty.remaining, 0u);
  EXPECT_FALSE(fence.is_closed());
  auto pass = fence.enter();
  const drain_result occupied = fence.wait_drained_for(-1s);
  EXPECT_EQ(occupied.status, drain_status::timed_out);
  EXPECT_EQ(occupied.remaining, 1u);
  EXPECT_FALSE(fence.is_closed());
  std::thread observer([&] { EXPECT_TRUE(fence.wait_drained_until(std::chrono::steady_clock::time_point::max())); });
  fence.close();
  pass.release();
  observer.join();
}

TYPED_TEST(AdmissionFence, Rule7_CloseOfAnEmptyFenceWakesObservers) {
  TypeParam fence;
  std::atomic<int> told{0};
  std::vector<std::thread> observers;
  for (int i = 0; i < 3; ++i) {
    observers.emplace_back([&] {
      if (fence.wait_drained_for(curfew_test::patience)) told.fetch_add(1);
    });
  }
  EXPECT_TRUE(fence.close());
  for (auto& each : observers) each.join();
  EXPECT_EQ(told.load(), 3);
}

// --- rule 8: reopening
// ------------------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule8_ReopenOnlyFromDrained) {
  TypeParam fence;
  EXPECT_FALSE(fence.reopen());
  auto pass = fence.enter();
  EXPECT_FALSE(fence.reopen());
  fence.close();
  EXPECT_FALSE(fence.reopen());
  EXPECT_TRUE(fence.is_closed());
  pass.release();
  EXPECT_TRUE(fence.reopen());
  EXPECT_FALSE(fence.reopen());
  EXPECT_FALSE(fence.is_closed());
  EXPECT_FALSE(fence.is_drained());
  EXPECT_TRUE(fence.try_enter());
}

TYPED_TEST(AdmissionFence, Rule8_CancelCloseOnlyWithSomebodyInside) {
  TypeParam fence;
  EXPECT_FALSE(fence.cancel_close());
  fence.close();
  EXPECT_FALSE(fence.cancel_close());
  EXPECT_TRUE(fence.is_drained());
  EXPECT_TRUE(fence.reopen());
  auto pass = fence.enter();
  EXPECT_FALSE(fence.cancel_close());
  fence.close();
  EXPECT_TRUE(fence.cancel_close());
  EXPECT_FALSE(fence.is_closed());
  EXPECT_FALSE(pass.closing());
  EXPECT_EQ(fence.inside(), 1u);
}

TYPED_TEST(AdmissionFence, Rule8_PassesAreCarriedOverExactly) {
  TypeParam fence;
  std::vector<typename TypeParam::pass> old;
  for (int i = 0; i < 5; ++i) std::thread([&] { old.push_back(fence.enter()); }).join();
  for (int epoch = 0; epoch < 100; ++epoch) {
    ASSERT_TRUE(fence.close());
    ASSERT_FALSE(fence.close());
    ASSERT_EQ(fence.inside(), old.size());
    if (epoch % 20 == 7) std::thread([&] { old.pop_back(); }).join();  // leaves while closed
    if (epoch % 20 == 9) old.push_back(old.back().clone());            // comes while closed
    ASSERT_EQ(fence.inside(), old.size());
    ASSERT_TRUE(fence.cancel_close());
    ASSERT_EQ(fence.inside(), old.size());
    if (epoch % 20 == 11) std::thread([&] { old.pop_back(); }).join();  // leaves while open
    if (epoch % 20 == 13) std::thread([&] { old.push_back(fence.enter()); }).join();
    ASSERT_EQ(fence.inside(), old.size());
  }
  fence.close();
  while (!old.empty()) {
    ASSERT_FALSE(fence.is_drained());
    old.pop_back();
  }
  EXPECT_TRUE(fence.is_drained());
  EXPECT_TRUE(fence.reopen());
  EXPECT_EQ(fence.inside(), 0u);
}

// --- rule 9: the destructor
// -------------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule9_SilentWhenNobodyIsInside) {
  { TypeParam unused; }
  {
    TypeParam used;
    used.enter().release();
  }
  {
    TypeParam closed;
    closed.close();
  }
  {
    TypeParam drained;
    drained.drain();
  }
  {
    TypeParam reopened;
    reopened.drain();
    reopened.reopen();
    reopened.enter().release();
  }
  {
    TypeParam carried;
    auto pass = carried.enter();
    carried.close();
    carried.cancel_close();
    pass.release();
  }
}

TYPED_TEST(AdmissionFenceDeathTest, Rule9_NamesItselfAndTheCountWhenSomebodyIsInside) {
  EXPECT_DEATH(
      {
        auto fence = std::make_optional<TypeParam>("gateway");
        auto first = fence->enter();
        auto second = first.clone();
        auto third = fence->enter();
        fence.reset();
      },
      "destroyed with 3 inside: gateway");
  EXPECT_DEATH(
      {
        auto fence = std::make_optional<TypeParam>("gateway");
        auto first = fence->enter();
        fence->close();
        fence.reset();
      },
      "destroyed with 1 inside: gateway");
  EXPECT_DEATH(
      {
        auto fence = std::make_optional<TypeParam>(nullptr);
        auto first = fence->enter();
        fence.reset();
      },
      "destroyed with 1 inside: .no name.");
}

// --- rule 10: hooks
// ---------------------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Rule10_AHookRunsOnceOnTheLastLeaversThread) {
  TypeParam fence;
  struct context {
    std::thread::id where;
    std::atomic<int> runs{0};
  } shared;
  drain_hook hook(
      [](void* arg) noexcept {
        auto& self = *static_cast<context*>(arg);
        self.where = std::this_thread::get_id();
        self.runs.fetch_add(1);
      },
      &shared);
  auto first = fence.enter();
  auto second = first.clone();
  EXPECT_TRUE(fence.on_drained(hook));
  fence.close();
  first.release();
  EXPECT_EQ(shared.runs.load(), 0);
  std::thread last([&] { second.release(); });
  const auto id = last.get_id();
  last.join();
  EXPECT_EQ(shared.runs.load(), 1);
  EXPECT_EQ(shared.where, id);
  EXPECT_TRUE(fence.reopen());
  fence.close();
  EXPECT_EQ(shared.runs.load(), 1);
}

TYPED_TEST(AdmissionFence, Rule10_AHookRunsInlineWhenDrainedAlready) {
  TypeParam fence;
  counting_hook counter;
  fence.close();
  EXPECT_FALSE(fence.on_drained(counter.hook));
  EXPECT_EQ(counter.runs.load(), 1);
  EXPECT_FALSE(fence.cancel(counter.hook));
  EXPECT_FALSE(fence.on_drained(counter.hook));
  EXPECT_EQ(counter.runs.load(), 2);
}

TYPED_TEST(AdmissionFence, Rule10_HooksMayComeBeforeCloseAndAreServedInOrder) {
  TypeParam fence;
  struct step {
    std::vector<int>* log;
    int number;
    static void run(void* arg) noexcept {
      auto& self = *static_cast<step*>(arg);
      self.log->push_back(self.number);
    }
  };
  std::vector<int> log;
  step steps[] = {{&log, 1}, {&log, 2}, {&log, 3}};
  drain_hook a(&step::run, &steps[0]), b(&step::run, &steps[1]), c(&step::run, &steps[2]);
  EXPECT_TRUE(fence.on_drained(a));
  EXPECT_TRUE(fence.on_drained(b));
  EXPECT_TRUE(fence.on_drained(c));
  EXPECT_TRUE(fence.close());
  EXPECT_EQ(log, (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(fence.is_drained());
}

TYPED_TEST(AdmissionFence, Rule10_AHookMayDestroyTheFenceAndItself) {
  struct owner {
    TypeParam fence{"owned"};
    drain_hook hook{&owner::end, this};
    std::atomic<int>* ended = nullptr;
    static void end(void* arg) noexcept {
      std::unique_ptr<owner> self(static_cast<owner*>(arg));
      self->ended->fetch_add(1);
    }
  };
  std::atomic<int> ended{0};
  {  // by the last leaver
    auto* object = new owner;
    object->ended = &ended;
    auto pass = object->fence.enter();
    object->fence.on_drained(object->hook);
    object->fence.close();
    pass.release();
    EXPECT_EQ(ended.load(), 1);
  }
  {  // by close
    auto* object = new owner;
    object->ended = &ended;
    object->fence.on_drained(object->hook);
    EXPECT_TRUE(object->fence.close());
    EXPECT_EQ(ended.load(), 2);
  }
  {  // by drain
    auto* object = new owner;
    object->ended = &ended;
    object->fence.on_drained(object->hook);
    EXPECT_TRUE(object->fence.drain_for(0s));
    EXPECT_EQ(ended.load(), 3);
  }
  {  // by the registering call
    auto* object = new owner;
    object->ended = &ended;
    object->fence.close();
    EXPECT_FALSE(object->fence.on_drained(object->hook));
    EXPECT_EQ(ended.load(), 4);
  }
}

TYPED_TEST(AdmissionFence, Rule10_AHookMayDestroyThePassThatIsReleased) {
  struct owner {
    TypeParam fence{"owned"};
    typename TypeParam::pass pass = fence.enter();
    bool* was_empty = nullptr;
    drain_hook hook{&owner::end, this};
    static void end(void* arg) noexcept {
      std::unique_ptr<owner> self(static_cast<owner*>(arg));
      *self->was_empty = !self->pass;
    }
  };
  bool was_empty = false;
  auto* object = new owner;
  object->was_empty = &was_empty;
  object->fence.on_drained(object->hook);
  object->fence.close();
  object->pass.release();
  EXPECT_TRUE(was_empty);
}

TYPED_TEST(AdmissionFence, Rule10_NoLockIsHeldWhileAHookRuns) {
  struct context {
    TypeParam fence;
    TypeParam other;
    counting_hook inner;
    int worked = 0;
  } shared;
  drain_hook hook(
      [](void* arg) noexcept {
        auto& self = *static_cast<context*>(arg);
        // Every call that takes the lock, on another thread as well: a lock held here would block it for good.
        std::thread([&self] {
          self.worked += self.fence.is_drained();
          self.worked += !self.fence.on_drained(self.inner.hook);
          self.worked += self.fence.reopen();
          self.worked += static_cast<bool>(self.fence.drain_for(0s));
        }).join();
        self.other.drain();
        self.worked += self.fence.reopen();
        self.worked += static_cast<bool>(self.fence.try_enter());
      },
      &shared);
  auto pass = shared.fence.enter();
  shared.fence.on_drained(hook);
  shared.fence.close();
  pass.release();
  EXPECT_EQ(shared.worked, 6);
  EXPECT_EQ(shared.inner.runs.load(), 1);
  EXPECT_FALSE(shared.fence.is_closed());
}

TYPED_TEST(AdmissionFence, Rule10_CancelIsTrueOnlyWhenTheHookWillNeverRun) {
  TypeParam fence;
  counting_hook counter;
  EXPECT_FALSE(fence.cancel(counter.hook));
  EXPECT_TRUE(fence.on_drained(counter.hook));
  EXPECT_TRUE(fence.cancel(counter.hook));
  EXPECT_FALSE(fence.cancel(counter.hook));
  fence.close();
  EXPECT_EQ(counter.runs.load(), 0);
  fence.reopen();
  EXPECT_TRUE(fence.on_drained(counter.hook));
  fence.close();
  EXPECT_FALSE(fence.cancel(counter.hook));
  EXPECT_EQ(counter.runs.load(), 1);
}

TYPED_TEST(AdmissionFence, Rule10_AHookMayCancelTheNextOne) {
  struct context {
    TypeParam fence;
    counting_hook second;
    bool cancelled = false;
  } shared;
  drain_hook first(
      [](void* arg) noexcept {
        auto& self = *static_cast<context*>(arg);
        self.cancelled = self.fence.cancel(self.second.hook);
      },
      &shared);
  shared.fence.on_drained(first);
  shared.fence.on_drained(shared.second.hook);
  shared.fence.close();
  EXPECT_TRUE(shared.cancelled);
  EXPECT_EQ(shared.second.runs.load(), 0);
}

TYPED_TEST(AdmissionFence, Rule10_AHookMayRegisterItselfAgain) {
  struct context {
    TypeParam fence;
    drain_hook hook{&context::again, this};
    int runs = 0;
    static void again(void* arg) noexcept {
      auto& self = *static_cast<context*>(arg);
      if (++self.runs < 3) {
        self.fence.reopen();
        self.fence.on_drained(self.hook);
      }
    }
  } shared;
  shared.fence.on_drained(shared.hook);
  for (int i = 0; i < 3; ++i) shared.fence.close();
  EXPECT_EQ(shared.runs, 3);
}

TYPED_TEST(AdmissionFence, Rule10_HooksStayRegisteredAcrossCancelClose) {
  TypeParam fence;
  counting_hook counter;
  auto pass = fence.enter();
  fence.on_drained(counter.hook);
  fence.close();
  EXPECT_TRUE(fence.cancel_close());
  EXPECT_EQ(counter.runs.load(), 0);
  pass.release();
  EXPECT_EQ(counter.runs.load(), 0);
  fence.close();
  EXPECT_EQ(counter.runs.load(), 1);
}

TYPED_TEST(AdmissionFence, Rule10_HooksOfADestroyedFenceNeverRun) {
  counting_hook counter;
  {
    TypeParam fence;
    fence.on_drained(counter.hook);
  }
  TypeParam other;
  EXPECT_TRUE(other.on_drained(counter.hook));
  EXPECT_TRUE(other.cancel(counter.hook));
  EXPECT_EQ(counter.runs.load(), 0);
}

TYPED_TEST(AdmissionFence, Rule10_OneHookTypeServesEveryKind) {
  TypeParam fence;
  counting_hook counter;
  fence.on_drained(counter.hook);
  fence.close();
  static_compact.close();
  static_compact.on_drained(counter.hook);
  static_compact.reopen();
  EXPECT_EQ(counter.runs.load(), 2);
}

// Many fences share a bucket of the lot; only the right nodes are served.
TYPED_TEST(AdmissionFence, Rule10_FencesDoNotServeEachOthersHooks) {
  constexpr std::size_t many = 200;
  const auto fences = std::make_unique<TypeParam[]>(many);
  const auto counters = std::make_unique<counting_hook[]>(many);
  for (std::size_t i = 0; i < many; ++i) ASSERT_TRUE(fences[i].on_drained(counters[i].hook));
  for (std::size_t i = 0; i < many; i += 2) fences[i].close();
  for (std::size_t i = 0; i < many; ++i) ASSERT_EQ(counters[i].runs.load(), i % 2 == 0 ? 1 : 0) << i;
  for (std::size_t i = 1; i < many; i += 2) ASSERT_TRUE(fences[i].cancel(counters[i].hook));
}

TYPED_TEST(AdmissionFenceDeathTest, Rule10_MisuseOfAHookIsNamed) {
  EXPECT_DEATH(drain_hook(nullptr, nullptr), "drain_hook without a function");
  EXPECT_DEATH(
      {
        TypeParam fence("gateway");
        counting_hook counter;
        fence.on_drained(counter.hook);
        fence.on_drained(counter.hook);
      },
      "drain_hook registered twice, now with gateway");
  EXPECT_DEATH(
      {
        TypeParam fence;
        counting_hook counter;
        fence.on_drained(counter.hook);
      },
      "drain_hook destroyed while it is registered");
}

// --- rule 11: fork
// ----------------------------------------------------------------------------------------------------

// Runs \p body in a forked child and returns its exit status.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TYPED_TEST(AdmissionFence, Rule11_AChildForgetsThePassesOfVanishedThreads) {
  auto fence = std::make_unique<TypeParam>("forked");
  gate inside, leave;
  std::thread other([&] {
    auto pass = fence->enter();
    inside.open();
    if (!leave.wait()) std::abort();
  });
  ASSERT_TRUE(inside.wait());
  auto mine = fence->enter();
  EXPECT_EQ(in_child([&] {
              fence->reset_after_fork_in_child(1);
              if (fence->inside() != 1 || fence->is_closed()) return 1;
              mine.release();
              if (!fence->drain_for(1s)) return 2;
              fence.reset();
              return 0;
            }),
            0);
  fence->close();
  counting_hook counter;
  fence->on_drained(counter.hook);
  EXPECT_EQ(in_child([&] {  // forked while it is closed, with a hook registered
              fence->reset_after_fork_in_child(1);
              if (!fence->is_closed() || fence->is_drained() || fence->inside() != 1) return 1;
              mine.release();
              if (!fence->is_drained() || counter.runs.load() != 0) return 2;
              counter.hook.~drain_hook();  // no longer counts as registered
              new (&counter.hook) drain_hook(&counting_hook::hit, &counter);
              fence.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(in_child([&] {
              fence->reset_after_fork_in_child(0);
              return fence->is_drained() && fence->reopen() && fence->try_enter() ? 0 : 1;
            }),
            0);
  EXPECT_EQ(in_child([&] {  // a second fence's reset must not forget what was registered after the first one's
              TypeParam second("second");
              fence->reset_after_fork_in_child(1);
              counting_hook fresh;
              if (!fence->on_drained(fresh.hook)) return 1;
              second.reset_after_fork_in_child(0);
              mine.release();
              return fresh.runs.load() == 1 ? 0 : 2;
            }),
            0);
  mine.release();
  leave.open();
  other.join();
  EXPECT_TRUE(fence->is_drained());
  EXPECT_EQ(counter.runs.load(), 1);
}

// What was due after the hook that forks is forgotten like every other hook.
TYPED_TEST(AdmissionFence, Rule11_AHookMayForkAndComeBackInTheChild) {
  struct context {
    TypeParam fence;
    std::unique_ptr<drain_hook> second;
    int runs = 0;
    pid_t child = -1;
    static void fork_here(void* arg) noexcept {
      auto& self = *static_cast<context*>(arg);
      self.child = ::fork();
      if (self.child != 0) return;
      ::alarm(20);
      self.fence.reset_after_fork_in_child(0);
      self.second.reset();
    }
    static void count(void* arg) noexcept { ++static_cast<context*>(arg)->runs; }
  } shared;
  drain_hook first(&context::fork_here, &shared);
  shared.second = std::make_unique<drain_hook>(&context::count, &shared);
  shared.fence.on_drained(first);
  shared.fence.on_drained(*shared.second);
  shared.fence.close();
  if (shared.child == 0) ::_exit(shared.runs == 0 && shared.fence.is_drained() && shared.fence.reopen() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(shared.child, &status, 0), shared.child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(shared.runs, 1);
}

// --- cancellation and odd clocks

TYPED_TEST(AdmissionFence, S22_DrainIsNotACancellationPoint) {
  TypeParam fence("cancelled");
  auto inside = fence.enter();
  gate drained;
  std::thread drainer([&] {
    fence.drain();
    drained.open();
  });
  ASSERT_TRUE(curfew_test::eventually([&] { return fence.is_closed(); }));
  ASSERT_EQ(::pthread_cancel(drainer.native_handle()), 0);
  inside.release();
  EXPECT_TRUE(drained.wait());  // the request is acted on later, if at all
  drainer.join();
}

TEST(AdmissionFenceDeadline, OddUnitsNeitherOverflowNorLoseTheirSign) {
  using sevenths = std::chrono::duration<std::int64_t, std::ratio<1, 7>>;
  using clock = std::chrono::steady_clock;
  const auto now = clock::now();
  EXPECT_GT(curfew::detail::deadline_after<clock>(sevenths(14'000'000'000)), now + 1'000'000'000s);
  EXPECT_GE(curfew::detail::deadline_after<clock>(sevenths(1)), now + 142ms);
  EXPECT_LT(curfew::detail::deadline_after<clock>(sevenths(1)), now + 60s);
  EXPECT_EQ(curfew::detail::deadline_after<clock>(sevenths(-1)), clock::time_point::min());
  EXPECT_EQ(curfew::detail::deadline_after<clock>(std::chrono::hours::max()), clock::time_point::max());
  // A condition variable whose time_t has 32 bits would take it for one that has passed, and its user would spin.
  EXPECT_EQ(curfew::detail::deadline_after<clock>(2'200'000'000s), clock::time_point::max());
  EXPECT_GT(curfew::detail::deadline_after<clock>(std::chrono::duration<float>(0.5f)), now);
}

// --- closing
// ----------------------------------------------------------------------------------------------------------

TYPED_TEST(AdmissionFence, Close_IsTrueForTheOneCallThatClosedIt) {
  for (int round = 0; round < 100; ++round) {
    TypeParam fence;
    std::atomic<int> winners{0};
    start_gate start(3);
    std::vector<std::thread> closers;
    for (int i = 0; i < 3; ++i) {
      closers.emplace_back([&] {
        start.arrive_and_wait();
        if (fence.close()) winners.fetch_add(1);
      });
    }
    for (auto& each : closers) each.join();
    ASSERT_EQ(winners.load(), 1);
  }
  TypeParam fence;
  EXPECT_TRUE(fence.close());
  EXPECT_FALSE(fence.close());
  fence.reopen();
  EXPECT_TRUE(fence.close());
}

TYPED_TEST(AdmissionFence, Close_AllClosesEachAsCloseDoes) {
  std::array<TypeParam, 64> fences;
  std::vector<TypeParam*> pointers;
  for (auto& each : fences) pointers.push_back(&each);
  auto pass = fences[7].enter();
  counting_hook counter;
  fences[9].on_drained(counter.hook);
  TypeParam::close_all(pointers);
  for (auto& each : fences) EXPECT_TRUE(each.is_closed());
  EXPECT_FALSE(fences[7].is_drained());
  EXPECT_TRUE(fences[8].is_drained());
  EXPECT_EQ(counter.runs.load(), 1);
  TypeParam::close_all({});
  TypeParam::close_all(pointers);
}

TYPED_TEST(AdmissionFenceDeathTest, Close_AllRefusesANullPointer) {
  TypeParam* const pointers[] = {nullptr};
  EXPECT_DEATH(TypeParam::close_all(pointers), "close_all: null pointer to a fence");
}

TYPED_TEST(AdmissionFence, Close_FromInside) {
  TypeParam fence;
  auto pass = fence.enter();
  EXPECT_TRUE(fence.close());
  EXPECT_TRUE(pass.closing());
  EXPECT_EQ(fence.drain_for(0s).remaining, 1u);
}

// Releases land on other stripes than the entries, before and after the closing; single stripes go negative.
TYPED_TEST(AdmissionFence, Close_HarvestsNegativeStripes) {
  TypeParam fence;
  std::vector<typename TypeParam::pass> passes;
  for (int i = 0; i < 32; ++i) std::thread([&] { passes.push_back(fence.enter()); }).join();
  for (int i = 0; i < 16; ++i) {
    passes.pop_back();  // all on this thread's stripe
  }
  EXPECT_TRUE(fence.close());
  EXPECT_EQ(fence.inside(), 16u);
  passes.clear();
  EXPECT_TRUE(fence.is_drained());
}

}  // namespace
