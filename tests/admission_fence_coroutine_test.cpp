// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// `co_await fence.drained()`, for every kind of fence: rule 10 of docs/design/admission_fence.md and what it says about
// epochs.

#include <gtest/gtest.h>

#include <atomic>
#include <coroutine>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>

#include "support/coroutine.hpp"
#include "support/park.hpp"

namespace {

using namespace std::chrono_literals;
using curfew_test::detached_coroutine;
using curfew_test::gate;
using curfew_test::owned_coroutine;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::watchdog;

template <class Fence>
class FenceCoroutine : public testing::Test {
  watchdog watchdog_{"admission_fence_coroutine_test"};
};
using striped = curfew::basic_admission_fence<park_sync>;
using compact = curfew::basic_compact_admission_fence<park_sync>;
using traced = curfew::basic_traced_admission_fence<park_sync>;
using kinds = testing::Types<striped, compact, traced>;

struct kind_names {
  template <class Fence>
  static std::string GetName(int) {
    if (std::is_same_v<Fence, traced>) return "traced";
    return std::is_same_v<Fence, striped> ? "striped" : "compact";
  }
};
TYPED_TEST_SUITE(FenceCoroutine, kinds, kind_names);

template <class Fence>
class FenceCoroutineDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};
TYPED_TEST_SUITE(FenceCoroutineDeathTest, kinds, kind_names);

template <class Fence>
owned_coroutine waits(Fence& fence, int& resumed) {
  co_await fence.drained();
  ++resumed;
}

TYPED_TEST(FenceCoroutine, Rule10_GoesOnWhenTheLastOneHasLeftOnThatThread) {
  TypeParam fence;
  auto pass = fence.enter();
  std::thread::id where;
  int work = 0, seen = -1;
  auto waiter = [](TypeParam& f, std::thread::id& w, const int& in, int& out) -> owned_coroutine {
    co_await f.drained();
    w = std::this_thread::get_id();
    out = in;
  }(fence, where, work, seen);
  EXPECT_FALSE(waiter.done());
  fence.close();
  EXPECT_FALSE(waiter.done());
  std::thread last([&] {
    work = 7;
    pass.release();
  });
  const auto id = last.get_id();
  last.join();
  EXPECT_TRUE(waiter.done());
  EXPECT_EQ(where, id);
  EXPECT_EQ(seen, 7);
  EXPECT_TRUE(fence.is_drained());
}

TYPED_TEST(FenceCoroutine, Rule10_IsNotSuspendedWhenDrainedAlready) {
  TypeParam fence;
  fence.close();
  int resumed = 0;
  auto waiter = waits(fence, resumed);
  EXPECT_TRUE(waiter.done());
  EXPECT_EQ(resumed, 1);
}

TYPED_TEST(FenceCoroutine, Rule10_TheCloserOfAnEmptyFenceResumes) {
  TypeParam fence;
  int resumed = 0;
  auto first = waits(fence, resumed);
  auto second = waits(fence, resumed);
  EXPECT_EQ(resumed, 0);
  EXPECT_TRUE(fence.close());
  EXPECT_EQ(resumed, 2);
  EXPECT_TRUE(first.done() && second.done());
}

// Drained between the look at the state and the registration.
TYPED_TEST(FenceCoroutine, Rule10_IsNotLostWhenTheFenceDrainsWhileItRegisters) {
  TypeParam fence;
  auto awaitable = fence.drained();
  EXPECT_FALSE(awaitable.await_ready());
  fence.close();
  EXPECT_FALSE(awaitable.await_suspend(std::noop_coroutine()));  // goes on by itself
}

TYPED_TEST(FenceCoroutine, Rule10_EndsWithItsEpochEvenIfReopenedBeforeItRuns) {
  TypeParam fence;
  auto pass = fence.enter();
  std::coroutine_handle<> sent;
  int resumed = 0;
  auto waiter = [](TypeParam& f, std::coroutine_handle<>& to, int& count) -> owned_coroutine {
    co_await f.drained([&to](std::coroutine_handle<> self) noexcept { to = self; });
    ++count;
  }(fence, sent, resumed);
  fence.close();
  pass.release();
  EXPECT_TRUE(sent);
  EXPECT_TRUE(fence.reopen());
  EXPECT_TRUE(fence.try_enter());
  EXPECT_EQ(resumed, 0);
  sent.resume();
  EXPECT_EQ(resumed, 1);
  EXPECT_FALSE(fence.is_closed());
}

TYPED_TEST(FenceCoroutine, Rule10_StaysAcrossCancelClose) {
  TypeParam fence;
  auto pass = fence.enter();
  int resumed = 0;
  auto waiter = waits(fence, resumed);
  fence.close();
  EXPECT_TRUE(fence.cancel_close());
  pass.release();
  EXPECT_EQ(resumed, 0);
  fence.close();
  EXPECT_EQ(resumed, 1);
}

TYPED_TEST(FenceCoroutine, Rule10_ACoroutineMayDestroyTheFenceAndItself) {
  std::atomic<int> ended{0};
  const auto owns = [](std::unique_ptr<TypeParam> fence, std::atomic<int>& count) -> detached_coroutine {
    co_await fence->drained();
    fence.reset();
    count.fetch_add(1);
  };
  {  // by the last leaver
    auto owned = std::make_unique<TypeParam>("owned");
    TypeParam& fence = *owned;
    auto pass = fence.enter();
    owns(std::move(owned), ended);
    fence.close();
    pass.release();
    EXPECT_EQ(ended.load(), 1);
  }
  {  // by close
    auto owned = std::make_unique<TypeParam>("owned");
    TypeParam& fence = *owned;
    owns(std::move(owned), ended);
    EXPECT_TRUE(fence.close());
    EXPECT_EQ(ended.load(), 2);
  }
  {  // by drain
    auto owned = std::make_unique<TypeParam>("owned");
    TypeParam& fence = *owned;
    owns(std::move(owned), ended);
    EXPECT_TRUE(fence.drain_for(0s));
    EXPECT_EQ(ended.load(), 3);
  }
  {  // by itself
    auto owned = std::make_unique<TypeParam>("owned");
    owned->close();
    owns(std::move(owned), ended);
    EXPECT_EQ(ended.load(), 4);
  }
}

TYPED_TEST(FenceCoroutine, Rule10_NoLockIsHeldWhileItRuns) {
  TypeParam fence;
  int worked = 0;
  auto waiter = [](TypeParam& f, int& count) -> owned_coroutine {
    co_await f.drained();
    // On another thread: a lock held here would block it for good.
    std::thread([&] {
      count += f.reopen();
      count += static_cast<bool>(f.drain_for(0s));
      count += f.reopen();
    }).join();
    count += static_cast<bool>(f.try_enter());
  }(fence, worked);
  fence.close();
  EXPECT_EQ(worked, 4);
}

// The list is drained in a loop: neither many coroutines nor one that waits again and again grows the stack.
TYPED_TEST(FenceCoroutine, Rule10_ResumesWithoutRecursion) {
  TypeParam fence;
  constexpr int many = 10'000;
  int resumed = 0;
  std::vector<owned_coroutine> waiters;
  for (int i = 0; i < many; ++i) waiters.push_back(waits(fence, resumed));
  fence.close();
  EXPECT_EQ(resumed, many);
  int rounds = 0;
  auto again = [](TypeParam& f, int& count) -> owned_coroutine {
    for (int i = 0; i < 1'000'000; ++i) {
      co_await f.drained();
      ++count;
    }
  }(fence, rounds);
  EXPECT_EQ(rounds, 1'000'000);
  fence.reopen();
  auto reopens = [](TypeParam& f, int& count) -> owned_coroutine {
    for (count = 0; count < 1000; ++count) {
      co_await f.drained();
      f.reopen();
    }
  }(fence, rounds);
  for (int i = 0; i < 1000; ++i) fence.close();
  EXPECT_TRUE(reopens.done());
  EXPECT_EQ(rounds, 1000);
}

TYPED_TEST(FenceCoroutine, Rule10_DestroyingTheSuspendedFrameTakesItOffTheList) {
  TypeParam fence;
  auto pass = fence.enter();
  int resumed = 0;
  auto first = waits(fence, resumed);
  auto second = waits(fence, resumed);
  auto third = waits(fence, resumed);
  second.destroy();
  fence.close();
  first.destroy();
  pass.release();
  EXPECT_EQ(resumed, 1);
  EXPECT_TRUE(third.done());
}

// A coroutine that has come due, and that the one before it destroys before its turn.
TYPED_TEST(FenceCoroutine, Rule10_ACoroutineMayDestroyTheNextOne) {
  TypeParam fence;
  int resumed = 0;
  owned_coroutine second;
  auto first = [](TypeParam& f, owned_coroutine& next) -> owned_coroutine {
    co_await f.drained();
    next.destroy();
  }(fence, second);
  second = waits(fence, resumed);
  fence.close();
  EXPECT_TRUE(first.done());
  EXPECT_EQ(resumed, 0);
}

TYPED_TEST(FenceCoroutine, Rule10_TheFenceMayGoBeforeTheSuspendedCoroutine) {
  int resumed = 0;
  auto fence = std::make_unique<TypeParam>();
  auto waiter = waits(*fence, resumed);
  fence.reset();
  waiter.destroy();
  EXPECT_EQ(resumed, 0);
}

TYPED_TEST(FenceCoroutine, Rule10_AHandleThatWasSentAwayMayBeDestroyedThere) {
  TypeParam fence;
  std::coroutine_handle<> sent;
  auto waiter = [](TypeParam& f, std::coroutine_handle<>& to) -> owned_coroutine {
    co_await f.drained([&to](std::coroutine_handle<> self) noexcept { to = self; });
    ADD_FAILURE() << "resumed";
  }(fence, sent);
  fence.close();
  EXPECT_TRUE(sent);
  waiter.destroy();
}

// The resumer is another thread, and quicker: the frame is gone before resume() or await_suspend() has returned.
TYPED_TEST(FenceCoroutine, Rule10_TheFrameMayGoWhileItIsStillBeingSuspended) {
  TypeParam fence;
  auto pass = fence.enter();
  std::atomic<int> ended{0};
  std::jthread waiter;
  park enlisted("drain.awaitable.enlisted");
  waiter = std::jthread([&] {
    [](TypeParam& f, std::atomic<int>& count) -> detached_coroutine {
      co_await f.drained();
      count.fetch_add(1);
    }(fence, ended);
  });
  ASSERT_TRUE(enlisted.wait_arrived());
  fence.close();
  pass.release();
  EXPECT_EQ(ended.load(), 1);
  enlisted.open();
}

TYPED_TEST(FenceCoroutine, Rule10_TheFrameMayGoBeforeTheResumptionHasReturned) {
  TypeParam fence;
  std::atomic<int> ended{0};
  struct elsewhere {
    std::vector<int> weight = std::vector<int>(100, 1);  // something of its own to lose
    void operator()(std::coroutine_handle<> self) noexcept {
      std::thread([self] { self.resume(); }).join();
      weight[0] = 2;
    }
  };
  [](TypeParam& f, std::atomic<int>& count) -> detached_coroutine {
    co_await f.drained(elsewhere());
    count.fetch_add(1);
  }(fence, ended);
  fence.close();
  EXPECT_EQ(ended.load(), 1);
}

// T17: what the coroutine holds is given back when it completes, not when its frame goes.
TYPED_TEST(FenceCoroutine, T17_APassInACoroutineIsReleasedAtItsCompletion) {
  TypeParam work, trigger;
  auto holder = [](TypeParam& w, TypeParam& t) -> owned_coroutine {
    const auto pass = w.enter();
    co_await t.drained();
  }(work, trigger);
  EXPECT_FALSE(work.drain_for(0s));
  trigger.close();
  EXPECT_TRUE(holder.done());
  EXPECT_TRUE(work.is_drained());
}

// Many coroutines against closings from several threads; each goes on once for each closing.
TYPED_TEST(FenceCoroutine, Rule10_EveryWaiterGoesOnOnceInEveryEpoch) {
  TypeParam fence;
  constexpr int waiters = 8, epochs = 300;
  std::atomic<int> resumed{0};
  std::vector<owned_coroutine> all;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    all.clear();
    for (int i = 0; i < waiters; ++i) {
      all.push_back([](TypeParam& f, std::atomic<int>& count) -> owned_coroutine {
        co_await f.drained();
        count.fetch_add(1);
      }(fence, resumed));
    }
    std::jthread one([pass = fence.enter()]() mutable { pass.release(); });
    std::jthread two([&fence] { fence.close(); });
    fence.drain();
    one.join();
    two.join();
    ASSERT_EQ(resumed.exchange(0), waiters);
    ASSERT_TRUE(fence.reopen());
  }
}

TYPED_TEST(FenceCoroutineDeathTest, Rule10_AFrameDestroyedWhileItIsAboutToGoOnIsNamed) {
  EXPECT_DEATH(
      {
        TypeParam fence;
        int resumed = 0;
        auto waiter = waits(fence, resumed);
        std::thread closer;
        park before("drain.visit.due");
        closer = std::thread([&] { fence.close(); });
        static_cast<void>(before.wait_arrived());
        waiter.destroy();
        before.open();
        closer.join();
      },
      "a coroutine was destroyed while drained\\(\\) was resuming it");
}

}  // namespace
