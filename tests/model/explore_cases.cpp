// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// explore_cases [--cases <part of a name>] [--schedules <n>] [--stale <n>] [--spurious <n>] [--search <name>]
//               [--bound <n>] [--expect <fault>[,<fault>]] [--list] [--quiet] [--all]
//
// Explores the bodies of cases/ and prints a line for each. A body that has too many schedules says how many
// preemptions are enough for every day; with --all it is explored without that bound. Exit status 0: all are clean, or,
// with --expect, one failed with that fault (with "none": all are clean and complete); that is how the program is used
// against headers that are broken on purpose.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <curfew/testing/explore.hpp>

#include "model/cases/all.hpp"

namespace {

using curfew::testing::exploration;
using curfew::testing::explore;
using curfew::testing::explore_options;
using curfew::testing::model_sync;
using curfew::testing::search;

struct settings {
  std::string only;
  std::string expect;
  bool list = false;
  bool quiet = false;
  bool all = false;
  bool every_level = true;
  explore_options options;
};

struct tally {
  unsigned cases = 0, complete = 0, failed = 0;
  unsigned long long schedules = 0;
  double seconds = 0;
  std::string faults;
};

struct visitor {
  const settings& chosen;
  tally& sum;

  template <class Case>
  void operator()(const char* name) const {
    if (!curfew_cases::selected(chosen.only, name)) return;
    if (chosen.list) {
      std::printf("%s\n", name);
      return;
    }
    ++sum.cases;
    bool all_complete = true;
    // Sequentially consistent first, because its stories are the shortest; then with stale reads and spurious wake-ups.
    for (int level = chosen.every_level ? 0 : 2; level < 3; ++level) {
      explore_options options = chosen.options;
      options.name = name;
      options.print = !chosen.quiet;
      if constexpr (requires { Case::timeouts; }) options.timeouts = Case::timeouts;
      const char* bounded = "";
      if constexpr (requires { Case::bound; }) {
        if (!chosen.all && options.how == search::reduced) {
          options.how = search::preempted;
          options.bound = Case::bound;
          bounded = ", bounded";
        }
      }
      if (level < 2) options.stale_reads = level == 0 ? 0 : 2;
      if (level == 0) options.spurious_wakeups = 0;
      if (level == 2 && chosen.every_level) {
        options.stale_reads = 0;
        options.spurious_wakeups = 1;
      }
      const exploration found = explore<Case>(options);
      sum.schedules += found.schedules;
      sum.seconds += found.seconds;
      all_complete = all_complete && found.complete;
      std::printf("%-40s stale %u spurious %u%s: %s\n", name, options.stale_reads, options.spurious_wakeups, bounded,
                  found.summary().c_str());
      if (!found) {
        ++sum.failed;
        std::printf("killed case=%s fault=%s schedule=%llu preemptions=%u choices=%zu confirmed=%d replay=%s\n", name,
                    to_string(found.what), static_cast<unsigned long long>(found.failed_at), found.preemptions,
                    found.choices, found.confirmed, found.replay.c_str());
        sum.faults += to_string(found.what);
        sum.faults += ' ';
        return;
      }
    }
    if (all_complete) ++sum.complete;
  }
};

search search_named(std::string_view name) {
  constexpr const char* names[] = {"reduced", "all", "preempted", "random", "priority", "pending"};
  for (unsigned i = 0; i < 6; ++i) {
    if (name == names[i]) return static_cast<search>(i);
  }
  std::fprintf(stderr, "unknown search\n");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  settings chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--list" || arg == "--quiet" || arg == "--all") {
      (arg == "--list" ? chosen.list : arg == "--all" ? chosen.all : chosen.quiet) = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (value == nullptr) {
      std::fprintf(stderr, "usage: see the top of explore_cases.cpp\n");
      return 2;
    }
    if (arg == "--cases") chosen.only = value;
    if (arg == "--expect") chosen.expect = value;
    if (arg == "--schedules") chosen.options.schedules = std::strtoull(value, nullptr, 10);
    if (arg == "--search") chosen.options.how = search_named(value);
    if (arg == "--bound") chosen.options.bound = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
    if (arg == "--seed") chosen.options.seed = std::strtoull(value, nullptr, 10);
    if (arg == "--stale" || arg == "--spurious") {
      chosen.every_level = false;
      (arg == "--stale" ? chosen.options.stale_reads : chosen.options.spurious_wakeups) =
          static_cast<unsigned>(std::strtoul(value, nullptr, 10));
    }
  }

  tally sum;
  curfew_cases::for_each_case<model_sync>(visitor{chosen, sum});
  // A sequence may be interrupted, or its thread moved, once in a schedule.
  settings restarted = chosen;
  restarted.options.interruptions = restarted.options.migrations = 1;
  curfew_cases::for_each_restartable_case(visitor{restarted, sum});
  if (chosen.list) return 0;
  std::printf("%u cases, %u complete, %u failed, %llu schedules, %.2f s\n", sum.cases, sum.complete, sum.failed,
              sum.schedules, sum.seconds);
  if (sum.cases == 0) return 2;
  if (chosen.expect.empty()) return sum.failed == 0 ? 0 : 1;
  if (chosen.expect == "none") return sum.complete == sum.cases ? 0 : 1;
  for (std::size_t at = 0; at < chosen.expect.size();) {
    const std::size_t comma = std::min(chosen.expect.find(',', at), chosen.expect.size());
    if (sum.faults.find(chosen.expect.substr(at, comma - at) + ' ') != std::string::npos) return 0;
    at = comma + 1;
  }
  std::printf("SURVIVED: expected %s, found %s\n", chosen.expect.c_str(),
              sum.faults.empty() ? "nothing" : sum.faults.c_str());
  return 1;
}
