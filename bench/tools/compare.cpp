// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// compare <results> <goals>                        each goal, what was measured, and 1 when one is missed unexpectedly
// compare --update <results> <goals> <charts> <page> ...  rewrites what stands in the pages between
//                                                  <!-- measured: NAME --> and <!-- /measured -->: a chart's table, the
//                                                  goals, or the machine
// compare --note <results> <goals>                 rewrites the goals: which are missed, by how much, give or take 25%
// compare --slowdown <results> <plain results> ...  how many times slower, over the rows of one thread that both have;
// of the plain
//                                                  ones the first that can be read

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/tools/chart.hpp"
#include "bench/tools/goals.hpp"
#include "bench/tools/pages.hpp"
#include "bench/tools/results.hpp"

namespace {

using namespace bench_tools;

int judge_all(const results& run, const std::vector<goal>& goals) {
  int failures = 0;
  for (const auto& each : goals) {
    const outcome found = judge(each, run);
    const bool failed = found.is == verdict::worse || found.is == verdict::not_measured;
    failures += failed ? 1 : 0;
    std::printf("%-12s %s\n             %s; goal %s\n", in_words(found.is), each.what.c_str(), in_words(found).c_str(),
                goal_in_words(each).c_str());
    if (found.is == verdict::met && each.known) {
      std::printf("             was missed (%s) when the table was written\n", short_number(*each.known).c_str());
    }
  }
  std::printf("%d of %zu goals missed that are not known to be\n", failures, goals.size());
  return failures == 0 ? 0 : 1;
}

/// The lines of \p text with what they say of being missed made anew.
std::string noted(const results& run, const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && line.front() != '#') {
      goal each = read_goals(line).at(0);
      each.known.reset();
      const outcome found = judge(each, run);
      std::size_t bar = 0;
      for (int bars = 0; bars < 4; ++bars) bar = line.find('|', bar) + 1;
      line.erase(bar);
      const bool missed = found.is == verdict::worse;
      if (missed && each.tried.empty())
        throw std::runtime_error("missed, and nothing says what was tried: " + each.what);
      if (missed) line += " missed " + short_number(found.measured.median) + " +- 25%";
      if (!each.tried.empty()) line += " | " + each.tried;
    }
    result += line + "\n";
  }
  return result;
}

int slowdown(const results& slow, const results& plain) {
  std::vector<std::pair<double, std::string>> ratios;
  for (const auto& [name, metrics] : slow.rows) {
    if (name.find("/threads:1") == name.npos) continue;
    const auto mine = slow.find(name), theirs = plain.find(name);
    if (mine && theirs && mine->median > 0 && theirs->median > 0) {
      ratios.emplace_back(mine->median / theirs->median, name);
    }
  }
  if (ratios.empty()) throw std::runtime_error("no row in common");
  std::sort(ratios.begin(), ratios.end());
  double logarithms = 0;
  for (const auto& each : ratios) logarithms += std::log(each.first);
  std::printf(
      "slow-down, CPU time, over %zu rows of one thread: %s times (geometric mean); least %s (%s), most %s (%s)\n",
      ratios.size(), short_number(std::exp(logarithms / static_cast<double>(ratios.size()))).c_str(),
      short_number(ratios.front().first).c_str(), ratios.front().second.c_str(),
      short_number(ratios.back().first).c_str(), ratios.back().second.c_str());
  return 0;
}

results read(const std::string& path) {
  return from_text(read_file(path));
}

}  // namespace

int main(int count, char** arguments) try {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() >= 5 && words[0] == "--update") {
    const results run = read(words[1]);
    const auto goals = read_goals(read_file(words[2]));
    const auto charts = read_charts(read_file(words[3]));
    for (std::size_t i = 4; i < words.size(); ++i) {
      write_file(words[i], updated_page(read_file(words[i]), run, goals, charts));
    }
    return 0;
  }
  if (words.size() == 3 && words[0] == "--note") {
    write_file(words[2], noted(read(words[1]), read_file(words[2])));
    return 0;
  }
  if (words.size() >= 3 && words[0] == "--slowdown") {
    for (std::size_t i = 2; i < words.size(); ++i) {
      if (std::filesystem::exists(words[i])) return slowdown(read(words[1]), read(words[i]));
    }
    std::puts("slow-down: there is no plain run to compare with: cmake --workflow --preset bench");
    return 0;
  }
  if (words.size() == 2) return judge_all(read(words[0]), read_goals(read_file(words[1])));
  std::fputs("usage: compare [--update | --note | --slowdown] ...: see the head of compare.cpp\n", stderr);
  return 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "compare: %s\n", error.what());
  return 1;
}
