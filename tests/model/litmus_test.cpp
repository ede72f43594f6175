// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The explorer against programs whose outcomes are known. What it explores must not be less than what the model allows
// (a bug would be missed) nor more (a correct program would be blamed), but for the misses that are listed.

#include <gtest/gtest.h>

#include <map>

#include <curfew/testing/explore.hpp>

#include "model/litmus.hpp"

namespace {

using curfew::testing::exploration;
using curfew::testing::explore;
using curfew::testing::fault;
using curfew::testing::model_sync;
using curfew::testing::search;

struct shape {
  const char* name;
  const char* code;
  const char* outcome;
  bool seen;
};

// Values read, threads from left to right. What C++20 forbids is never seen; what it allows is, except for the misses.
constexpr shape shapes[] = {
    {"reader_before_writer", "Rx | Wx1", "1", true},
    {"readers_before_writer", "Rx | Rx | Wx1", "11", true},
    {"reader_between_writers", "Rx Rx | Wx1 Wx2", "12", true},
    {"SB_sc", "Wx1.sc Ry.sc | Wy1.sc Rx.sc", "00", false},
    {"SB_rel_acq", "Wx1.rel Ry.acq | Wy1.rel Rx.acq", "00", true},
    {"SB_relaxed", "Wx1 Ry | Wy1 Rx", "00", true},
    {"SB_one_side_sc", "Wx1.sc Ry.sc | Wy1.rel Rx.acq", "00", true},
    {"SB_fences", "Wx1 F.sc Ry | Wy1 F.sc Rx", "00", false},
    {"SB_one_fence", "Wx1 F.sc Ry | Wy1 Rx", "00", true},
    {"SB_acq_rel_fences", "Wx1 F.ar Ry | Wy1 F.ar Rx", "00", true},
    {"SB_light_heavy", "Wx1 L Ry | Wy1 H Rx", "00", false},
    {"SB_light_light", "Wx1 L Ry | Wy1 L Rx", "00", true},
    {"SB_rmw_acq_rel", "Ux.ar Ry.acq | Uy.ar Rx.acq", "0000", true},
    {"SB_rmw_sc", "Ux.sc Ry.sc | Uy.sc Rx.sc", "0000", false},
    {"MP_rel_acq", "Wx1 Wy1.rel | Ry.acq Rx", "10", false},
    {"MP_relaxed", "Wx1 Wy1 | Ry Rx", "10", true},
    {"MP_relaxed_store", "Wx1 Wy1 | Ry.acq Rx", "10", true},
    {"MP_relaxed_load", "Wx1 Wy1.rel | Ry Rx", "10", true},
    {"MP_fences", "Wx1 F.rel Wy1 | Ry F.acq Rx", "10", false},
    {"MP_release_fence_only", "Wx1 F.rel Wy1 | Ry Rx", "10", true},
    {"MP_acquire_fence_only", "Wx1 Wy1 | Ry F.acq Rx", "10", true},
    {"MP_rmw", "Wx1 Uy.rel | Ry.acq Rx", "010", false},
    {"MP_rmw_relaxed", "Wx1 Uy | Ry.acq Rx", "010", true},
    {"CoRR", "Wx1 | Rx Rx", "10", false},
    {"CoRR_two_writers", "Wx1 | Wx2 | Rx Rx | Rx Rx", "1221", false},
    {"CoWR", "Wx1 Rx | Wx2", "0", false},
    {"CoRW", "Rx Wx1 | Wx2", "1", false},
    {"CoRR_across_threads", "Wx1 | Rx Wy1.rel | Ry.acq Rx", "110", false},
    {"RMW_atomicity", "Ux | Ux", "00", false},
    {"IRIW_sc", "Wx1.sc | Wy1.sc | Rx.sc Ry.sc | Ry.sc Rx.sc", "1010", false},
    {"IRIW_acq", "Wx1.rel | Wy1.rel | Rx.acq Ry.acq | Ry.acq Rx.acq", "1010", true},
    {"IRIW_fences", "Wx1 | Wy1 | Rx F.sc Ry | Ry F.sc Rx", "1010", false},
    {"RWC_fences", "Wx1 | Rx F.sc Ry | Wy1 F.sc Rx", "100", false},
    {"RWC_relaxed", "Wx1 | Rx Ry | Wy1 Rx", "100", true},
    {"release_sequence_rmw", "Wx1 Wy1.rel | Uy | Ry.acq Rx", "120", false},
    {"release_sequence_same_thread_store", "Wx1 Wy1.rel Wy2 | Ry.acq Rx", "20", true},
    {"release_sequence_other_store", "Wx1 Wy1.rel | Wy2 | Ry.acq Rx", "20", true},
    {"WRC_rel_acq", "Wx1 | Rx.acq Wy1.rel | Ry.acq Rx", "110", false},
    {"WRC_relaxed", "Wx1 | Rx Wy1 | Ry Rx", "110", true},
    {"ISA2", "Wx1 Wy1.rel | Ry.acq Wz1.rel | Rz.acq Rx", "110", false},
    {"ISA2_broken_middle", "Wx1 Wy1.rel | Ry Wz1.rel | Rz.acq Rx", "110", true},
    {"R_sc", "Wx1.sc Wy1.sc | Wy2.sc Rx.sc Ry.sc", "02", true},
    {"S_rel_acq", "Wx2 Wy1.rel | Ry.acq Wx1 Rx", "12", false},
    {"MP_sc_store_relaxed_data", "Wx1 Wy1.sc | Ry.sc Rx", "10", false},
    // What comes after a fence of somebody else is not covered by it, nor what comes after a yield.
    {"heavy_fence_before", "H Wz1 | Rz Wx1 Wy1 | Ry Rx", "110", true},
    {"yield_before", "Y Ry Rx | Wx1 Wy1", "10", true},
    // Restartable sequences. Shut, restart, count: who was let in is counted, who was not is not.
    {"sequence_counted", "Qx | Wx1 B Rc Rd", "100", false},
    {"sequence_counted_in_time", "Qx | Wx1 B Rc Rd", "101", true},
    {"sequence_refused", "Qx | Wx1 B Rc Rd", "000", true},
    {"sequence_refused_uncounted", "Qx | Wx1 B Rc Rd", "001", false},
    {"sequence_not_restarted", "Qx | Wx1 Rc Rd", "100", true},
    {"sequence_restarted_too_late", "Qx | Wx1 Rc Rd B", "100", true},
    {"sequence_shut_too_late", "Qx | B Wx1 Rc Rd", "100", true},
    {"sequence_two_processors", "Qx | Qx | Wx1 B Rc Rd", "1111", true},
    {"sequence_two_processors_counted", "Qx | Qx | Wx1 B Rc Rd", "1110", false},
    {"sequence_one_processor", "Qx | Wx1 B Rc Rd | Qx", "1021", true},
    {"sequence_one_processor_counted", "Qx | Wx1 B Rc Rd | Qx", "1011", false},
    {"sequence_publishes", "Wy1 Qx | Wx1 Rd.acq Ry", "110", false},
    {"sequence_publishes_to_restart", "Wy1 Qx | Wx1 B Rd Ry", "110", false},
    {"sequence_read_relaxed", "Wy1 Qx | Wx1 Rd Ry", "110", true},
    {"sequence_refused_acquires", "Qx Ry | Wy1 Wx1.rel", "00", false},
    {"sequence_refused_relaxed", "Qx Ry | Wy1 Wx1", "00", true},
    {"sequence_store_buffered", "Qx Ry | Wy1 Rd", "100", true},
    {"sequence_store_flushed", "Qx Ry | Wy1 B Rd", "100", false},
    {"sequence_sees_shut_gate", "Wx1 B Wz1 | Rz Qx", "11", false},
    {"sequence_misses_shut_gate", "Wx1 Wz1 | Rz Qx", "11", true},
    // Known misses: an outcome that needs a read of a store that has not been made, or stores out of order.
    {"LB_miss", "Rx Wy1 | Ry Wx1", "11", false},
    {"LB_fences_miss", "Rx F.acq Wy1 | Ry Wx1", "11", false},
    {"2_2W_miss", "Wx1 Wy2 Rx Ry | Wy1 Wx2 Rx Ry", "1111", false},
};

class Litmus : public ::testing::TestWithParam<shape> {};

TEST_P(Litmus, HasTheKnownOutcomes) {
  const shape& s = GetParam();
  const auto reduced = curfew_litmus::run(s.code, search::reduced, 2);
  ASSERT_EQ(reduced.run.what, fault::none) << reduced.run.message;
  EXPECT_TRUE(reduced.run.complete) << reduced.run.summary();
  EXPECT_EQ(reduced.outcomes.count(s.outcome) != 0, s.seen) << s.code;
}

TEST_P(Litmus, TheReductionLosesNoOutcome) {
  const shape& s = GetParam();
  if (curfew_litmus::parse(s.code).size() > 3) {
    // Every interleaving of four threads would be too many: a bound stands in for them.
    const auto reduced = curfew_litmus::run(s.code, search::reduced, 1);
    for (const std::string& outcome : curfew_litmus::run(s.code, search::preempted, 1).outcomes) {
      EXPECT_TRUE(reduced.outcomes.count(outcome) != 0) << outcome;
    }
    return;
  }
  for (const unsigned stale : {0u, 1u}) {
    const auto reduced = curfew_litmus::run(s.code, search::reduced, stale);
    const auto all = curfew_litmus::run(s.code, search::all, stale);
    EXPECT_TRUE(all.run.complete) << all.run.summary();
    EXPECT_EQ(reduced.outcomes, all.outcomes) << stale;
    EXPECT_LE(reduced.run.schedules, all.run.schedules);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Litmus, ::testing::ValuesIn(shapes),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// ---- closed forms ----

TEST(Counts, StoreBufferingHasThreeTraces) {
  const auto found = curfew_litmus::run("Wx1.sc Ry.sc | Wy1.sc Rx.sc", search::reduced, 0);
  EXPECT_EQ(found.run.schedules - found.run.redundant, 3u) << found.run.summary();
  EXPECT_EQ(found.outcomes, (std::set<std::string>{"01", "10", "11"}));
}

template <unsigned Threads, unsigned Times>
struct locking {
  static constexpr unsigned roles = Threads;
  model_sync::mutex mutex;
  void role(unsigned) {
    for (unsigned i = 0; i < Times; ++i) {
      mutex.lock();
      mutex.unlock();
    }
  }
  void finish() {}
};

TEST(Counts, LockOrdersAreMultinomial) {
  const auto three_twice = explore<locking<3, 2>>();
  EXPECT_EQ(three_twice.schedules - three_twice.redundant, 90u) << three_twice.summary();  // 6! / 2!^3
  const auto four_once = explore<locking<4, 1>>();
  EXPECT_EQ(four_once.schedules - four_once.redundant, 24u) << four_once.summary();
  const auto two_thrice = explore<locking<2, 3>>();
  EXPECT_EQ(two_thrice.schedules - two_thrice.redundant, 20u) << two_thrice.summary();
}

template <unsigned Threads, unsigned Steps>
struct independent {
  static constexpr unsigned roles = Threads;
  model_sync::atomic<unsigned> cells[Threads];
  void role(unsigned i) {
    for (unsigned n = 0; n < Steps; ++n) cells[i].fetch_add(1);
  }
  void finish() {}
};

TEST(Counts, IndependentThreadsHaveOneTrace) {
  EXPECT_EQ((explore<independent<4, 5>>().schedules), 1u);
}

TEST(Counts, EveryInterleavingIsMultinomial) {
  // Two threads of three steps each: a start and two operations.
  EXPECT_EQ((explore<independent<2, 2>>({.how = search::all}).schedules), 20u);
  // Three threads of three: 9! / 3!^3.
  EXPECT_EQ((explore<independent<3, 2>>({.how = search::all}).schedules), 1680u);
}

TEST(Counts, PreemptionBoundsAreNested) {
  std::uint64_t before = 0;
  for (const unsigned bound : {0u, 1u, 2u, 3u, 9u}) {
    const auto found = explore<independent<3, 2>>({.how = search::preempted, .bound = bound});
    EXPECT_TRUE(found.complete);
    EXPECT_GT(found.schedules, before);
    before = found.schedules;
  }
  EXPECT_EQ(before, 1680u);
}

struct readers_and_writer {
  static constexpr unsigned roles = 3;
  model_sync::atomic<int> x;
  void role(unsigned i) {
    if (i == 0) {
      x.store(1);
    } else {
      static_cast<void>(x.load());
    }
  }
  void finish() {}
};

TEST(Counts, ReadsOfOneValueCommute) {
  const auto found = explore<readers_and_writer>();
  EXPECT_EQ(found.schedules - found.redundant, 4u) << found.summary();  // each reader before or after
}

// The set of things that threads can see, as the reduction finds it and as every interleaving has it.
template <class Case>
std::set<std::string> sights(search how, unsigned bound = 2) {
  std::set<std::string> all;
  const auto found =
      explore<Case>({.how = how, .bound = bound, .visit = [&](const std::vector<curfew::testing::engine::event>& run) {
                       std::map<unsigned, std::string> seen;
                       for (const auto& e : run) {
                         seen[e.thread] += std::to_string(static_cast<int>(e.kind)) + e.remark;
                         if (e.reads) seen[e.thread] += "=" + std::to_string(e.before);
                         seen[e.thread] += ";";
                       }
                       std::string text;
                       for (const auto& each : seen) text += each.second + "|";
                       all.insert(text);
                     }});
  EXPECT_EQ(found.what, fault::none) << found.message;
  EXPECT_TRUE(found.complete) << found.summary();
  return all;
}

struct monitor {
  static constexpr unsigned roles = 3;
  model_sync::mutex mutex;
  model_sync::condition_variable changed;
  int items = 0;
  void role(unsigned i) {
    std::unique_lock lock(mutex);
    if (i == 0) {
      items += 2;
      changed.notify_all();
    } else {
      while (items == 0) changed.wait(lock);
      --items;
    }
  }
  void finish() {}
};

struct tickets {
  static constexpr unsigned roles = 3;
  model_sync::mutex mutex;
  model_sync::atomic<int> next{0};
  model_sync::atomic<int> last{0};
  void role(unsigned i) {
    const int mine = next.fetch_add(1);
    if (i == 2) {
      last.store(mine);
      return;
    }
    const std::lock_guard lock(mutex);
    static_cast<void>(last.load());
    if (mine == 0) next.store(7);
  }
  void finish() {}
};

struct polite {
  static constexpr unsigned roles = 2;
  model_sync::mutex first, second;
  model_sync::atomic<int> got{0};
  void role(unsigned i) {
    std::unique_lock mine(i == 0 ? first : second);
    std::unique_lock other(i == 0 ? second : first, std::try_to_lock);
    if (other.owns_lock()) got.fetch_add(1);
  }
  void finish() {}
};

TEST(Reduction, SeesWhatEveryInterleavingSees) {
  EXPECT_EQ(sights<monitor>(search::reduced), sights<monitor>(search::all));
  EXPECT_EQ(sights<tickets>(search::reduced), sights<tickets>(search::all));
  EXPECT_EQ(sights<polite>(search::reduced), sights<polite>(search::all));
}

TEST(Reduction, IsSmaller) {
  EXPECT_LT(explore<tickets>().schedules * 10, explore<tickets>({.how = search::all}).schedules);
}

}  // namespace
