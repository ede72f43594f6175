// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The parts of pages that a run writes: between <!-- measured: NAME --> and <!-- /measured --> stands the table of the
/// chart of that name, or what was reached of the goals (`goals`), or on what it was measured (`machine`).

#ifndef CURFEW_BENCH_TOOLS_PAGES_HPP
#define CURFEW_BENCH_TOOLS_PAGES_HPP

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tools/chart.hpp"
#include "bench/tools/goals.hpp"
#include "bench/tools/results.hpp"

namespace bench_tools {

inline std::string goals_in_markdown(const results& run, const std::vector<goal>& goals) {
  std::string text = "| goal | measured (middle half) | asked | |\n|---|---|---|---|\n", missed;
  for (const auto& each : goals) {
    const outcome found = judge(each, run);
    const std::string is = found.is == verdict::met ? "met" : found.is == verdict::not_measured ? "" : "**missed**";
    text += "| " + each.what + " | " + in_words(found) + " | " + goal_in_words(each) + " | " + is + " |\n";
    if (is == "**missed**" && !each.tried.empty()) missed += "- *" + each.what + "*: " + each.tried + "\n";
  }
  if (!missed.empty()) text += "\nWhat bounds those that are missed, and what was tried:\n\n" + missed;
  return text;
}

inline std::string machine_in_markdown(const results& run) {
  const auto said = [&](const char* what) {
    const auto found = run.machine.find(what);
    return found == run.machine.end() ? std::string("?") : found->second;
  };
  return "Commit " + said("commit") + ", " + said("compiler") + ", " + said("cpu") + ", " + said("processors") +
         " processors, " + said("system") + ". Command: `" + said("command") + "`.\n";
}

inline std::string updated_page(std::string_view page, const results& run, const std::vector<goal>& goals,
                                const std::vector<chart>& charts) {
  static constexpr std::string_view open = "<!-- measured: ", end_of_open = " -->\n", close = "<!-- /measured -->";
  std::string text;
  for (;;) {
    const auto begin = page.find(open);
    if (begin == page.npos) return text += page;
    const auto end_of_name = page.find(end_of_open, begin);
    const auto end = page.find(close, begin);
    if (end_of_name == page.npos || end == page.npos || end < end_of_name) {
      throw std::runtime_error("a measured part that does not end");
    }
    const auto name = page.substr(begin + open.size(), end_of_name - begin - open.size());
    text += page.substr(0, end_of_name + end_of_open.size());
    if (name == "goals") {
      text += goals_in_markdown(run, goals);
    } else if (name == "machine") {
      text += machine_in_markdown(run);
    } else {
      const auto found = std::find_if(charts.begin(), charts.end(), [&](const chart& one) { return one.name == name; });
      if (found == charts.end()) throw std::runtime_error("no chart " + std::string(name));
      text += to_markdown(*found, run);
    }
    text += close;
    page.remove_prefix(end + close.size());
  }
}

}  // namespace bench_tools

#endif  // CURFEW_BENCH_TOOLS_PAGES_HPP
