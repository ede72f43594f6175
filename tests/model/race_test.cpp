// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The race harness: every verdict on a body that deserves it, and what it measures.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

#include <curfew/testing/race.hpp>

#include "model/cases/fence.hpp"

namespace {

using curfew::testing::check;
using curfew::testing::close_call;
using curfew::testing::fault;
using curfew::testing::noise_sync;
using curfew::testing::race;
using curfew::testing::random_source;

template <class Sync>
struct careless_counter {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<int> count{0};
  void role(unsigned) { count.store(count.load() + 1); }
  void finish() { check(count.load() == 2, "both count"); }
};

template <class Sync>
struct careful_counter {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<int> count{0};
  void role(unsigned) {
    if (count.fetch_add(1) == 1) close_call("second");
  }
  void finish() { check(count.load() == 2, "both count"); }
};

// Where the machine is too busy for rounds to overlap a test says so, and is skipped: it has shown nothing.
TEST(Race, PassesWhatIsCorrect) {
  const auto result = race<careful_counter<noise_sync>>({.name = "careful", .seconds = 1, .must_see = {"second"}});
  if (result.what == fault::inconclusive) GTEST_SKIP() << result.summary();
  EXPECT_TRUE(result) << result.summary();
  EXPECT_GE(result.rounds, result.overlapped);
  ASSERT_EQ(result.close_calls.size(), 1u);
  EXPECT_EQ(result.close_calls[0].second, result.rounds);
}

TEST(Race, FindsALostUpdate) {
  const auto result = race<careless_counter<noise_sync>>({.name = "careless", .seconds = 20, .print = false});
  EXPECT_EQ(result.what, fault::check_failed) << result.summary();
  EXPECT_NE(result.message.find("both count"), std::string::npos) << result.message;
  EXPECT_NE(result.replay.find(std::to_string(result.seed)), std::string::npos);
}

struct crashing {
  static constexpr unsigned roles = 2;
  void role(unsigned i) {
    if (i == 0) {
      std::signal(SIGABRT, SIG_DFL);
      std::abort();
    }
  }
  void finish() {}
};

TEST(Race, ACrashIsAResult) {
  const auto result = race<crashing>({.name = "crashing", .print = false});
  EXPECT_EQ(result.what, fault::crash) << result.summary();
}

struct hanging {
  static constexpr unsigned roles = 2;
  std::mutex first, second;
  std::atomic<int> holders{0};
  void role(unsigned i) {
    const std::lock_guard a(i == 0 ? first : second);
    holders.fetch_add(1);
    while (holders.load() < 2) std::this_thread::yield();
    const std::lock_guard b(i == 0 ? second : first);
  }
  void finish() {}
};

TEST(Race, AHangIsAResult) {
  const auto result = race<hanging>({.name = "hanging", .patience = 0.5, .print = false});
  // ThreadSanitizer may see the inversion of the locks first, and end the child.
  EXPECT_TRUE(result.what == fault::hang || result.what == fault::crash) << result.summary();
}

struct lonely {
  static constexpr unsigned roles = 2;
  std::mutex one_at_a_time;
  void role(unsigned) {}
  void finish() {}
};

TEST(Race, TooLittleOverlapIsInconclusive) {
  const auto result = race<lonely>({.name = "lonely", .seconds = 0.1, .quota = 1'000'000'000, .print = false});
  EXPECT_EQ(result.what, fault::inconclusive) << result.summary();
  EXPECT_FALSE(result);
}

TEST(Race, AWindowThatWasNeverHitIsInconclusive) {
  const auto result =
      race<lonely>({.name = "lonely", .seconds = 0.1, .quota = 0, .must_see = {"the window"}, .print = false});
  EXPECT_EQ(result.what, fault::inconclusive) << result.summary();
  EXPECT_NE(result.message.find("the window"), std::string::npos);
}

struct any_number {
  static constexpr unsigned roles = 0;
  any_number(unsigned threads, random_source&) : expected(threads) {}
  const unsigned expected;
  std::atomic<unsigned> count{0};
  void role(unsigned) { count.fetch_add(1); }
  void finish() { check(count.load() == expected, "all came"); }
};

TEST(Race, TakesSeveralNumbersOfThreads) {
  const auto result = race<any_number>({.name = "any", .seconds = 0.3, .print = false});
  if (result.what == fault::inconclusive) GTEST_SKIP() << result.summary();
  EXPECT_TRUE(result) << result.summary();
}

TEST(Race, RunsTheBodiesOfTheExplorer) {
  using fence = curfew::basic_admission_fence<noise_sync>;
  const auto result = race<curfew_cases::fence_enter_close<fence, noise_sync>>(
      {.name = "fence_enter_close", .seconds = 0.5, .print = false});
  if (result.what == fault::inconclusive) GTEST_SKIP() << result.summary();
  EXPECT_TRUE(result) << result.summary();
}

}  // namespace
