// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Restartable sequences under the explorer, on a counter as a user would write it: visitors are counted on the
// processor they run on, and on a shared word when the sequence did not add. Each mistake that such a counter invites
// is found.

#include <gtest/gtest.h>

#include <string>

#include <curfew/testing/explore.hpp>
#include <curfew/testing/restartable_model_sync.hpp>

namespace {

using curfew::testing::check;
using curfew::testing::exploration;
using curfew::testing::explore;
using curfew::testing::explore_options;
using curfew::testing::fault;
using curfew::testing::restartable_model_sync;

enum class mistake {
  none,
  no_restart,     // counts the cells while a visitor may still be on the way to one
  restart_first,  // restarts, then shuts
  read_relaxed,   // the count does not acquire what the visitors did
  taken_away,     // zeroes the cells while a sequence may be adding
  one_way,        // counts an interrupted sequence as done
  cells_confused  // expects a visitor to leave by the cell it came in by
};

template <mistake Wrong, class Sync = restartable_model_sync>
struct tally {
  struct cells {
    struct lane {
      typename Sync::template atomic<int> local{0};
    };
    typename Sync::template atomic<int> gate{2};
    lane lanes[2];
  };
  cells counted;
  typename Sync::template atomic<int> shared{0};  // of those whose sequence did not add; shut when it is odd

  bool enter() {
    if (Sync::template add_on_cpu<1>(counted)) return true;
    if (Wrong == mistake::one_way) return counted.gate.load(std::memory_order_acquire) != 0;
    return (shared.fetch_add(2, std::memory_order_acq_rel) & 1) == 0;
  }
  void leave() {
    if (!Sync::template add_on_cpu<-1>(counted)) shared.fetch_sub(2, std::memory_order_acq_rel);
  }
  /// How many visitors are in, none of whom has left by then or will be counted twice; later ones are refused.
  int shut() {
    if (Wrong == mistake::restart_first) Sync::restart_all();
    counted.gate.store(0, std::memory_order_release);
    const int others = shared.fetch_or(1, std::memory_order_acq_rel) / 2;
    if (Wrong != mistake::no_restart && Wrong != mistake::restart_first && Wrong != mistake::taken_away) {
      Sync::restart_all();
    }
    const auto order = Wrong == mistake::read_relaxed ? std::memory_order_relaxed : std::memory_order_acquire;
    int sum = others;
    for (auto& lane : counted.lanes) {
      const int here =
          Wrong == mistake::taken_away ? lane.local.exchange(0, std::memory_order_acq_rel) : lane.local.load(order);
      if (Wrong == mistake::cells_confused) check(here >= 0, "nobody leaves where nobody came in");
      sum += here;
    }
    return sum;
  }
};

// Visitors who stay: each one who was let in is in the sum.
template <mistake Wrong, class Sync = restartable_model_sync>
struct visitors_stay {
  static constexpr unsigned roles = 3;
  tally<Wrong, Sync> visitors;
  int in[2] = {};
  int counted = 0;
  void role(unsigned i) {
    if (i == 2) {
      counted = visitors.shut();
    } else {
      in[i] = visitors.enter() ? 1 : 0;
    }
  }
  void finish() { check(counted == in[0] + in[1], "all are counted"); }
};

// A visitor who leaves before it is shut: what it has done is known to whoever counts none.
template <mistake Wrong, class Sync = restartable_model_sync>
struct visitor_leaves {
  static constexpr unsigned roles = 2;
  tally<Wrong, Sync> visitors;
  typename Sync::template plain<int> done{0};
  typename Sync::template atomic<int> left{0};
  void role(unsigned i) {
    if (i == 0) {
      if (!visitors.enter()) return;
      done = 1;
      visitors.leave();
      left.store(1, std::memory_order_relaxed);
    } else if (left.load(std::memory_order_relaxed) == 1) {
      check(visitors.shut() == 0, "nobody is in");
      check(done == 1, "and the visitor was");
    }
  }
  void finish() {}
};

exploration found_in(exploration (*run)(const explore_options&), explore_options options, fault what) {
  options.print = false;
  options.name = "tally";
  const exploration found = run(options);
  EXPECT_EQ(found.what, what) << found.summary() << "\n" << found.story;
  EXPECT_TRUE(found.confirmed);
  options.replay = found.replay;
  const exploration again = run(options);
  EXPECT_EQ(again.what, what) << again.message;
  EXPECT_EQ(again.message, found.message);
  return found;
}

template <class Case>
void expect_clean(explore_options options) {
  const exploration found = explore<Case>(options);
  EXPECT_EQ(found.what, fault::none) << found.story;
  EXPECT_TRUE(found.complete) << found.summary();
}

TEST(Sequences, CountEverybody) {
  for (const unsigned stale : {0u, 1u}) {
    expect_clean<visitors_stay<mistake::none>>({.stale_reads = stale});
    expect_clean<visitors_stay<mistake::none>>({.stale_reads = stale, .interruptions = 1, .migrations = 1});
    expect_clean<visitors_stay<mistake::none>>({.stale_reads = stale, .processors = 1});
    expect_clean<visitors_stay<mistake::none>>({.stale_reads = stale, .processors = 3});
    expect_clean<visitor_leaves<mistake::none>>({.stale_reads = stale, .interruptions = 1, .migrations = 1});
  }
}

TEST(Sequences, ACountWithoutARestartIsFound) {
  found_in(explore<visitors_stay<mistake::no_restart>>, {}, fault::check_failed);
  found_in(explore<visitors_stay<mistake::restart_first>>, {}, fault::check_failed);
}

TEST(Sequences, ACountThatDoesNotAcquireIsFound) {
  found_in(explore<visitor_leaves<mistake::read_relaxed>>, {}, fault::data_race);
}

TEST(Sequences, AWriteIntoACellIsFound) {
  found_in(explore<visitors_stay<mistake::taken_away>>, {}, fault::data_race);
}

TEST(Sequences, AnInterruptionIsFound) {
  expect_clean<visitors_stay<mistake::one_way>>({.processors = 1});
  found_in(explore<visitors_stay<mistake::one_way>>, {.interruptions = 1}, fault::check_failed);
}

TEST(Sequences, AMigrationIsFound) {
  expect_clean<visitor_leaves<mistake::cells_confused>>({});
  const auto found = found_in(explore<visitor_leaves<mistake::cells_confused>>, {.migrations = 1}, fault::check_failed);
  EXPECT_NE(found.replay.find("m1"), std::string::npos) << found.replay;
}

// Nothing runs on a processor that has no cell.
struct elsewhere : tally<mistake::none> {
  static constexpr unsigned roles = 1;
  elsewhere() { counted.gate.store(0, std::memory_order_relaxed); }
  void role(unsigned) {
    check(enter(), "let in");
    check(counted.lanes[0].local.load() + counted.lanes[1].local.load() == 0, "not by a cell");
  }
  void finish() { check(shared.load() == 2, "but by the shared word"); }
};

TEST(Sequences, WithoutACellTheOtherWayIsTaken) {
  expect_clean<elsewhere>({});
}

}  // namespace
