// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Many at once: passes, closers, fences closed together.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <curfew/admission_fence.hpp>

#include "support/park.hpp"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CURFEW_TEST_SANITIZED
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define CURFEW_TEST_SANITIZED
#endif
#endif

namespace {

using namespace std::chrono_literals;
using curfew::drain_hook;
using curfew_test::gate;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::start_gate;
using curfew_test::watchdog;

// Counts the system calls by which sequences are restarted.
struct counting_sync : curfew::std_sync {
  static void restart_all() noexcept {
    restarts.fetch_add(1);
    curfew::std_sync::restart_all();
  }
  static inline std::atomic<int> restarts{0};
};
using counting_fence = curfew::basic_admission_fence<counting_sync>;

class ManyFences : public testing::Test {
  watchdog watchdog_{"admission_fence_many_test"};
};

template <class Fence>
class ManyOfAKind : public testing::Test {
  watchdog watchdog_{"admission_fence_many_test"};
};
struct kind_names {
  template <class Fence>
  static std::string GetName(int) {
    if (std::is_same_v<Fence, curfew::traced_admission_fence>) return "traced";
    return std::is_same_v<Fence, curfew::admission_fence> ? "striped" : "compact";
  }
};
using kinds = testing::Types<curfew::admission_fence, curfew::compact_admission_fence, curfew::traced_admission_fence>;
TYPED_TEST_SUITE(ManyOfAKind, kinds, kind_names);

// T26: a system call that the kernel serialises is made once for all, not once for each.
TEST_F(ManyFences, T26_CloseAllRestartsTheSequencesOnce) {
  std::vector<counting_fence*> pointers;
  const auto fences = std::make_unique<counting_fence[]>(64);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(fences[i].try_enter());  // which chooses its backend
    pointers.push_back(&fences[i]);
  }
  counting_sync::restarts.store(0);
  for (counting_fence* each : pointers) each->close();
  const int one_by_one = counting_sync::restarts.exchange(0);
  EXPECT_TRUE(one_by_one == 64 || one_by_one == 0) << one_by_one;  // 0: the portable backend
  for (counting_fence* each : pointers) EXPECT_TRUE(each->reopen());
  counting_fence::close_all(pointers);
  EXPECT_EQ(counting_sync::restarts.load(), one_by_one / 64);
  for (counting_fence* each : pointers) EXPECT_TRUE(each->is_drained());
  counting_fence::close_all(pointers);
  EXPECT_EQ(counting_sync::restarts.load(), one_by_one / 64);  // there was nothing to close
}

// T26: closers from many threads, of fences that others are entering, all finish.
TYPED_TEST(ManyOfAKind, T26_SixtyFourConcurrentClosersFinish) {
  constexpr std::size_t many = 64;
  for (int round = 0; round < 3; ++round) {
    const auto fences = std::make_unique<TypeParam[]>(many);
    std::atomic<bool> stop{false};
    std::vector<std::jthread> threads;
    start_gate start(many);
    std::jthread entrant([&] {
      while (!stop.load()) {
        for (std::size_t i = 0; i < many; ++i) static_cast<void>(fences[i].try_enter());
        std::this_thread::yield();
      }
    });
    for (std::size_t i = 0; i < many; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        TypeParam* const some[] = {&fences[i], &fences[(i + 1) % many], &fences[(i * 7) % many]};
        TypeParam::close_all(some);
        fences[i].drain();
      });
    }
    threads.clear();
    stop.store(true);
    for (std::size_t i = 0; i < many; ++i) ASSERT_TRUE(fences[i].drain_for(0s)) << i;
  }
}

// More than are closed in one go, from two threads in opposite order.
TYPED_TEST(ManyOfAKind, Close_AllManyFromTwoSides) {
  constexpr std::size_t many = 300;
  const auto fences = std::make_unique<TypeParam[]>(many);
  std::vector<TypeParam*> up, down;
  std::vector<typename TypeParam::pass> passes;
  for (std::size_t i = 0; i < many; ++i) {
    up.push_back(&fences[i]);
    down.push_back(&fences[many - 1 - i]);
    if (i % 3 == 0) passes.push_back(fences[i].enter());
  }
  {
    std::jthread one([&] { TypeParam::close_all(up); });
    std::jthread two([&] { TypeParam::close_all(down); });
    std::jthread leaver([&] { passes.clear(); });
  }
  for (TypeParam* each : up) ASSERT_TRUE(each->is_drained());
}

TYPED_TEST(ManyOfAKind, Close_AllRunsHooksWhenAllAreClosed) {
  struct context {
    TypeParam first, second;
    bool ran = false;
    static void run(void* arg) noexcept {
      auto& self = *static_cast<context*>(arg);
      self.ran = static_cast<bool>(self.second.wait_drained_for(0s)) && self.first.is_drained();
    }
  } shared;
  drain_hook hook(&context::run, &shared);
  shared.first.on_drained(hook);
  TypeParam* const both[] = {&shared.first, &shared.second, &shared.first};
  TypeParam::close_all(both);
  EXPECT_TRUE(shared.ran);
  EXPECT_TRUE(shared.second.is_drained());
}

// Rule 6 with a group: what has been harvested and is drained by somebody else is not touched again.
TEST_F(ManyFences, Rule6_AFenceOfAGroupMayGoWhileTheOthersAreBeingClosed) {
  using fence_type = curfew::basic_admission_fence<park_sync>;
  auto first = std::make_unique<fence_type>();
  fence_type second;
  auto pass = first->enter();
  std::jthread closer;
  park flagged("fence.close_group.flagged"), harvested("fence.close_group.harvested");
  closer = std::jthread([&] {
    fence_type* const both[] = {first.get(), &second};
    fence_type::close_all(both);
  });
  ASSERT_TRUE(flagged.wait_arrived());
  EXPECT_TRUE(first->is_closed() && second.is_closed());
  EXPECT_FALSE(first->try_enter() || second.is_drained());
  EXPECT_EQ(first->drain_for(0s).remaining, 1u);
  EXPECT_EQ(second.drain_for(0s).remaining, 1u);  // the closing that is under way
  flagged.open();
  ASSERT_TRUE(harvested.wait_arrived());
  pass.release();
  EXPECT_TRUE(first->is_drained());
  first.reset();
  EXPECT_FALSE(second.is_drained());
  harvested.open();
  closer.join();
  EXPECT_TRUE(second.is_drained());
}

// T5: every entry and every release by a thread of its own, which is born and ends while the fence is being closed, and
// the fence goes as soon as it is drained.
TYPED_TEST(ManyOfAKind, T5_ThreadsAreBornAndEndWhileTheFenceIsClosed) {
  for (int round = 0; round < 60; ++round) {
    auto fence = std::make_unique<TypeParam>();
    TypeParam* const seen = fence.get();
    std::vector<typename TypeParam::pass> passes(6);
    for (auto& each : passes) std::thread([&] { each = seen->enter(); }).join();
    std::vector<std::jthread> threads;
    for (auto& each : passes) {
      threads.emplace_back([&each] {
        auto clone = each.clone();
        each.release();
      });
    }
    threads.emplace_back([&] {
      seen->drain();
      fence.reset();
    });
    threads.clear();
    ASSERT_EQ(fence, nullptr);
  }
}

#if defined(RUSAGE_THREAD)
// T11: whoever waits sleeps until it is told. A poll would show as a context switch for each look.
TYPED_TEST(ManyOfAKind, T11_WaitingDoesNotPoll) {
  TypeParam fence;
  auto pass = fence.enter();
  long switches = -1;
  std::jthread drainer([&] {
    const auto count = [] {
      rusage usage{};
      ::getrusage(RUSAGE_THREAD, &usage);
      return usage.ru_nvcsw;
    };
    const long before = count();
    if (fence.drain_for(curfew_test::patience)) switches = count() - before;
  });
  ASSERT_TRUE(curfew_test::eventually([&] { return fence.is_closed(); }));
  std::this_thread::sleep_for(150ms);  // long enough for polls to be seen; nothing is ordered by it
  pass.release();
  drainer.join();
  EXPECT_GE(switches, 0);
  EXPECT_LE(switches, 10);
}
#endif

#if defined(__GLIBC__) && !defined(CURFEW_TEST_SANITIZED)
// T10: a wait that times out leaves nothing behind, however often.
TYPED_TEST(ManyOfAKind, T10_TimeoutsLeaveNothingBehind) {
  TypeParam fence;
  auto pass = fence.enter();
  const auto in_use = [] { return ::mallinfo2().uordblks; };
  static_cast<void>(fence.drain_for(1ns));
  const auto before = in_use();
  for (int i = 0; i < 10'000; ++i) ASSERT_FALSE(fence.drain_for(1ns));
  EXPECT_EQ(in_use(), before);
  pass.release();
  EXPECT_TRUE(fence.drain_for(0s));
}
#endif

// T24: a count of sixteen bits would have overflown, and a check before the entry would have lost some. A traced pass
// has a record, and sanitizers take several times the memory and the time.
TYPED_TEST(ManyOfAKind, T24_TenMillionPassesAtOnce) {
#if defined(CURFEW_TEST_SANITIZED)
  constexpr std::size_t many = 100'000;
#else
  constexpr std::size_t many = std::is_same_v<TypeParam, curfew::traced_admission_fence> ? 1'000'000 : 10'000'000;
#endif
  TypeParam fence;
  std::vector<typename TypeParam::pass> passes;
  passes.reserve(many);
  for (std::size_t i = 0; i < many; ++i) passes.push_back(fence.try_enter());
  EXPECT_EQ(fence.inside(), many);
  EXPECT_EQ(fence.drain_for(0s).remaining, many);
  std::thread([&] { passes.resize(many / 2); }).join();
  EXPECT_EQ(fence.inside(), many / 2);
  passes.clear();
  EXPECT_TRUE(fence.is_drained());
}

}  // namespace
