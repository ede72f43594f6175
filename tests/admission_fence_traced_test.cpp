// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Who is inside: what only a traced_admission_fence does. That it is a fence is tested with the others.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
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
using curfew::fence_occupant;
using curfew::traced_admission_fence;
using curfew_test::gate;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::start_gate;
using curfew_test::watchdog;

template <class Fence>
concept lists_occupants = requires(const Fence& fence) {
  fence.for_each_inside([](const auto&) {});
};
static_assert(lists_occupants<traced_admission_fence>);
static_assert(!lists_occupants<curfew::admission_fence> && !lists_occupants<curfew::compact_admission_fence>);
static_assert(std::is_same_v<decltype(fence_occupant::thread), std::thread::id>);
static_assert(std::is_same_v<decltype(fence_occupant::since), std::chrono::steady_clock::time_point>);

class TracedFence : public testing::Test {
  watchdog watchdog_{"admission_fence_traced_test"};
};

std::vector<unsigned> lines_of(const traced_admission_fence& fence) {
  std::vector<unsigned> lines;
  fence.for_each_inside([&](const fence_occupant& one) { lines.push_back(static_cast<unsigned>(one.where.line())); });
  std::sort(lines.begin(), lines.end());
  return lines;
}

using lines = std::vector<unsigned>;

TEST_F(TracedFence, T12_ListsTheSiteTheThreadAndTheTimeOfEachPass) {
  traced_admission_fence fence("gateway");
  EXPECT_TRUE(lines_of(fence).empty());
  const auto before = std::chrono::steady_clock::now();
  const unsigned here = __LINE__;
  auto first = fence.try_enter();
  traced_admission_fence::pass second;
  std::thread::id other;
  std::thread([&] {
    other = std::this_thread::get_id();
    second = fence.enter();
  }).join();
  EXPECT_TRUE(fence.run([&] { EXPECT_EQ(lines_of(fence), (lines{here + 1, here + 6, here + 8})); }));
  EXPECT_EQ(lines_of(fence), (lines{here + 1, here + 6}));
  fence.for_each_inside([&](const fence_occupant& one) {
    EXPECT_NE(std::string(one.where.file_name()).find("admission_fence_traced_test.cpp"), std::string::npos);
    EXPECT_EQ(one.thread, one.where.line() == here + 1 ? std::this_thread::get_id() : other);
    EXPECT_TRUE(before <= one.since && one.since <= std::chrono::steady_clock::now());
  });
}

TEST_F(TracedFence, T12_TheListIsRightAfterMoveCloneAndRelease) {
  traced_admission_fence fence;
  const unsigned here = __LINE__;
  auto first = fence.enter();
  auto second = std::move(first);
  auto third = second.clone();
  EXPECT_EQ(lines_of(fence), (lines{here + 1, here + 3}));
  auto& alias = second;
  second = std::move(alias);
  std::swap(second, third);
  EXPECT_EQ(lines_of(fence), (lines{here + 1, here + 3}));
  second.release();  // the clone
  EXPECT_EQ(lines_of(fence), (lines{here + 1}));
  second = third.clone(curfew::source_location::current());
  EXPECT_EQ(lines_of(fence), (lines{here + 1, here + 11}));
  third = std::move(second);
  EXPECT_EQ(lines_of(fence), (lines{here + 11}));
  std::thread([pass = std::move(third)]() mutable { pass.release(); }).join();
  EXPECT_TRUE(lines_of(fence).empty());
  EXPECT_TRUE(fence.drain_for(0s));
  EXPECT_FALSE(fence.try_enter());
  EXPECT_TRUE(lines_of(fence).empty());
}

TEST_F(TracedFence, T12_ATimeoutCanNameItsCulprits) {
  traced_admission_fence fence("gateway");
  const auto pass = fence.enter();
  EXPECT_EQ(fence.drain_for(1ms).status, curfew::drain_status::timed_out);
  const std::string report = fence.describe_inside();
  EXPECT_EQ(report.find("gateway: 1 inside\n  "), 0u) << report;
  EXPECT_NE(report.find("admission_fence_traced_test.cpp:"), std::string::npos) << report;
  EXPECT_NE(report.find("(this one), for 0."), std::string::npos) << report;
  std::thread([&] { EXPECT_EQ(fence.describe_inside().find("(this one)"), std::string::npos); }).join();
  curfew::compact_admission_fence nameless;
  const auto other = nameless.enter();
  EXPECT_EQ(nameless.describe_inside(), "(no name): 1 inside\n");
}

TEST_F(TracedFence, CallsBackWithNoLockHeld) {
  traced_admission_fence fence;
  std::vector<traced_admission_fence::pass> passes;
  for (int i = 0; i < 100; ++i) passes.push_back(fence.enter());
  int seen = 0;
  fence.for_each_inside([&](const fence_occupant&) {
    ++seen;
    std::thread([&] {
      if (!passes.empty()) passes.pop_back();
      static_cast<void>(fence.try_enter());
    }).join();
  });
  EXPECT_GE(seen, 50);  // each call takes one of the others away
  EXPECT_THROW(
      {
        const auto pass = fence.enter();
        fence.for_each_inside([](const fence_occupant&) { throw std::domain_error("f"); });
      },
      std::domain_error);
  passes.clear();
  EXPECT_TRUE(fence.drain_for(0s));
}

TEST_F(TracedFence, SeesWhoStaysOnceWhileOthersComeAndGo) {
  traced_admission_fence fence;
  constexpr unsigned stay = 300;
  std::vector<traced_admission_fence::pass> passes;
  std::atomic<bool> stop{false};
  std::vector<std::jthread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      std::vector<traced_admission_fence::pass> mine(50);
      for (unsigned k = 0; !stop.load(); ++k) {
        mine[k % mine.size()] = fence.try_enter();
        auto clone = mine[(k * 7) % mine.size()].clone();
      }
    });
  }
  for (unsigned i = 0; i < stay; ++i) passes.push_back(fence.enter(curfew::source_location()));
  for (int round = 0; round < 200; ++round) {
    unsigned seen = 0;
    fence.for_each_inside([&](const fence_occupant& one) { seen += one.where.line() == 0; });
    ASSERT_EQ(seen, stay);
  }
  stop.store(true);
}

// Records are used again: the memory is that of the most passes there ever were.
TEST_F(TracedFence, ReusesRecords) {
  traced_admission_fence fence;
  for (int i = 0; i < 1'000'000; ++i) {
    auto pass = fence.enter();
    auto clone = pass.clone();
  }
  auto pass = fence.enter();
  EXPECT_EQ(lines_of(fence).size(), 1u);
}

// Counted, and not listed yet: for_each_inside is told of nobody, and misses nobody who is listed.
TEST_F(TracedFence, APassMayBeCountedBeforeItIsListed) {
  using fence_type = curfew::basic_traced_admission_fence<park_sync>;
  fence_type fence;
  fence_type::pass pass;
  std::jthread entrant;
  park counted("fence.traced.counted");
  entrant = std::jthread([&] { pass = fence.enter(); });
  ASSERT_TRUE(counted.wait_arrived());
  EXPECT_EQ(fence.inside(), 1u);
  int seen = 0;
  fence.for_each_inside([&](const auto&) { ++seen; });
  EXPECT_EQ(seen, 0);
  counted.open();
  entrant.join();
  fence.for_each_inside([&](const auto&) { ++seen; });
  EXPECT_EQ(seen, 1);
}

TEST_F(TracedFence, Rule11_AChildListsItsOwnPassesOnly) {
  auto fence = std::make_unique<traced_admission_fence>("forked");
  gate inside, leave;
  std::thread other([&] {
    auto pass = fence->enter();
    inside.open();
    if (!leave.wait()) std::abort();
  });
  ASSERT_TRUE(inside.wait());
  traced_admission_fence::pass moved;
  std::thread([&] { moved = fence->enter(); }).join();  // lives on here, though it was taken elsewhere
  auto mine = fence->enter();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    fence->reset_after_fork_in_child(2);
    if (lines_of(*fence).size() != 1) ::_exit(1);
    moved.release();
    auto again = fence->enter();
    if (lines_of(*fence).size() != 2) ::_exit(2);
    mine.release();
    again.release();
    if (!lines_of(*fence).empty() || !fence->drain_for(1s)) ::_exit(3);
    fence.reset();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  leave.open();
  other.join();
}

TEST(TracedFenceDeathTest, Rule9_TheDestructorNamesTheSites) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        auto fence = std::make_optional<traced_admission_fence>("gateway");
        auto first = fence->enter();
        auto second = first.clone();
        fence.reset();
      },
      "traced_admission_fence destroyed with 2 inside: gateway\n"
      "  .*admission_fence_traced_test.cpp:[0-9]+ .*thread 0x[0-9a-f]+ .this one., for 0[.].*\n"
      "  .*admission_fence_traced_test.cpp:[0-9]+ ");
}

}  // namespace
