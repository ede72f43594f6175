// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The goals of bench/goals.txt against a run. A goal that is known to be missed says what was measured, how far from
/// that a run may be before it counts as worse, and what bounds it and was tried.

#ifndef CURFEW_BENCH_TOOLS_GOALS_HPP
#define CURFEW_BENCH_TOOLS_GOALS_HPP

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tools/results.hpp"

namespace bench_tools {

struct goal {
  std::string what, measured, against;
  bool at_most = false;
  double value = 0;
  std::string unit;             // x for a ratio
  std::optional<double> known;  // measured when the goal was last found missed
  double tolerance = 0;         // of `known`, as a part of it
  std::string tried;            // what bounds it, and what was tried
};

enum class verdict { met, missed, worse, not_measured };

struct outcome {
  goal of;
  spread measured;
  verdict is = verdict::not_measured;
};

/// what | measured | against, or - | <= or >=, a number, and its unit | nothing, or: missed, a number, a part in
/// percent | what bounds it and was tried: may be left out with its bar where nothing is missed
inline std::vector<goal> read_goals(std::string_view text) {
  std::vector<goal> goals;
  for (const auto& fields : read_table(text)) {
    goal each;
    char relation = 0, unit[16] = "";
    double known = 0, percent = 0;
    if (fields.size() < 5 || fields.size() > 6 ||
        std::sscanf(fields[3].c_str(), "%c= %lf %15s", &relation, &each.value, unit) != 3 ||
        (relation != '<' && relation != '>')) {
      throw std::runtime_error("goals: cannot read the line of: " + fields[0]);
    }
    each.what = fields[0];
    each.measured = fields[1];
    each.against = fields[2];
    each.at_most = relation == '<';
    each.unit = unit;
    if (fields.size() == 6) each.tried = fields[5];
    if (!fields[4].empty()) {
      if (std::sscanf(fields[4].c_str(), "missed %lf +- %lf%%", &known, &percent) != 2) {
        throw std::runtime_error("goals: cannot read how it is missed: " + fields[0]);
      }
      if (each.tried.empty()) throw std::runtime_error("goals: missed, and nothing says what was tried: " + fields[0]);
      each.known = known;
      each.tolerance = percent / 100;
    }
    goals.push_back(std::move(each));
  }
  return goals;
}

inline outcome judge(const goal& of, const results& run) {
  outcome result{of, {}, verdict::not_measured};
  const auto measured = run.find(of.measured);
  const auto against = of.against == "-" ? spread{1, 1, 1} : run.find(of.against);
  if (!measured || !against || against->low <= 0) return result;
  result.measured = {measured->median / against->median, measured->low / against->high, measured->high / against->low};
  const auto within = [&](double bound) {
    return of.at_most ? result.measured.median <= bound : result.measured.median >= bound;
  };
  if (within(of.value)) {
    result.is = verdict::met;
  } else if (of.known && within(*of.known * (of.at_most ? 1 + of.tolerance : 1 - of.tolerance))) {
    result.is = verdict::missed;
  } else {
    result.is = verdict::worse;
  }
  return result;
}

/// "3.2 x (3.1 to 3.3)"
inline std::string in_words(const outcome& of) {
  if (of.is == verdict::not_measured) return "not measured";
  const auto text = [](double value) { return short_number(value); };
  return text(of.measured.median) + " " + of.of.unit + " (" + text(of.measured.low) + " to " + text(of.measured.high) +
         ")";
}

inline const char* in_words(verdict of) {
  switch (of) {
    case verdict::met:
      return "met";
    case verdict::missed:
      return "missed, as known";
    case verdict::worse:
      return "MISSED";
    default:
      return "NOT MEASURED";
  }
}

inline std::string goal_in_words(const goal& of) {
  return (of.at_most ? "at most " : "at least ") + plain_number(of.value) + " " + of.unit;
}

}  // namespace bench_tools

#endif  // CURFEW_BENCH_TOOLS_GOALS_HPP
