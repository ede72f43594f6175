// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What judges a run of the benchmarks, on a run that is small enough to be reckoned by hand.

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "bench/tools/chart.hpp"
#include "bench/tools/goals.hpp"
#include "bench/tools/pages.hpp"
#include "bench/tools/results.hpp"
#include "bench/tools/simulation.hpp"

namespace {

using namespace bench_tools;

constexpr const char* written = R"({
  "context": {"date": "a \"quoted\" day", "caches": [], "load_avg": [1.5, 0]},
  "benchmarks": [
    {"name": "fast/threads:1", "run_name": "fast/threads:1", "run_type": "iteration", "repetitions": 3,
     "repetition_index": 0, "threads": 1, "iterations": 7, "real_time": 4.0e+00, "cpu_time": 2.0, "time_unit": "ns"},
    {"name": "fast/threads:1", "run_name": "fast/threads:1", "run_type": "iteration", "repetitions": 3,
     "repetition_index": 1, "threads": 1, "iterations": 7, "real_time": 5.0e+00, "cpu_time": 1.0, "time_unit": "ns"},
    {"name": "fast/threads:1", "run_name": "fast/threads:1", "run_type": "iteration", "repetitions": 3,
     "repetition_index": 2, "threads": 1, "iterations": 7, "real_time": 6.0e+00, "cpu_time": 4.0, "time_unit": "ns"},
    {"name": "fast/threads:1_mean", "run_name": "fast/threads:1", "run_type": "aggregate", "real_time": 99,
     "cpu_time": 99, "time_unit": "ns"},
    {"name": "slow", "run_name": "slow", "run_type": "iteration", "repetitions": 1, "threads": 1, "iterations": 1,
     "real_time": 1.0, "cpu_time": 0.02, "time_unit": "us", "p99_ms": 12.5}
  ]
})";

results small_run() {
  results run;
  read_google(run, "p", written);
  return run;
}

TEST(BenchTools, MedianAndMiddleHalf) {
  const spread odd = spread_of({9, 1, 5, 3, 7});
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.low, 3);
  EXPECT_EQ(odd.high, 7);
  EXPECT_EQ(spread_of({1, 2}).median, 1.5);
}

TEST(BenchTools, RepetitionsAreTakenAndAggregatesAreNot) {
  const results run = small_run();
  ASSERT_EQ(run.rows.size(), 2u);
  EXPECT_EQ(run.find("p/fast/threads:1")->median, 2);
  EXPECT_EQ(run.find("p/fast/threads:1@real")->median, 5);
  EXPECT_EQ(run.find("p/slow@real")->median, 1000) << "in nanoseconds";
  EXPECT_EQ(run.find("p/slow@p99_ms")->median, 12.5) << "counters have units of their own";
  EXPECT_EQ(run.find("p/slow@real*1e-3")->median, 1);
  EXPECT_EQ(run.find("=7.5")->median, 7.5);
  EXPECT_FALSE(run.find("p/fast"));
  EXPECT_FALSE(run.find("p/slow@p50_ms"));
}

TEST(BenchTools, AFailedBenchmarkIsAnError) {
  std::string failed = written;
  failed.replace(failed.find("\"p99_ms\": 12.5"), 14, "\"error_occurred\": true, \"error_message\": \"lost one\"");
  results run;
  EXPECT_THROW(read_google(run, "p", failed), std::runtime_error);
}

TEST(BenchTools, WhatIsNoJsonIsAnError) {
  for (const char* const text : {"", "{", "[1,]", "{\"a\" 1}", "\"a", "[1] 2", "tru", "[.]"}) {
    EXPECT_THROW(json_parser::parse(text), std::runtime_error) << text;
  }
}

TEST(BenchTools, KeptResultsReadBack) {
  results run = small_run();
  run.machine["cpu"] = "a \"fast\" one";
  const results again = from_text(to_text(run));
  EXPECT_EQ(again.machine, run.machine);
  EXPECT_EQ(to_text(again), to_text(run));
  EXPECT_EQ(again.find("p/slow@p99_ms")->median, 12.5);
}

verdict judged(const std::string& line) {
  return judge(read_goals(line).at(0), small_run()).is;
}

TEST(BenchTools, Verdicts) {
  // The ratio is 20 / 2 = 10.
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | >= 10 x |"), verdict::met);
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | >= 10.1 x |"), verdict::worse);
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | <= 10 x |"), verdict::met);
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | <= 9.9 x |"), verdict::worse);
  EXPECT_EQ(judged("r | p/slow@p99_ms | - | <= 12 ms |"), verdict::worse);
  EXPECT_EQ(judged("r | p/gone | - | <= 12 ms |"), verdict::not_measured);
}

TEST(BenchTools, AKnownMissIsToleratedAndDriftIsNot) {
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | >= 20 x | missed 11 +- 10% | this"), verdict::missed);
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | >= 20 x | missed 12 +- 10% | this"), verdict::worse);
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | <= 5 x | missed 9.5 +- 10% | this"), verdict::missed);
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | <= 5 x | missed 9 +- 10% | this"), verdict::worse);
  EXPECT_EQ(judged("r | p/slow | p/fast/threads:1 | >= 9 x | missed 8 +- 10% | this"), verdict::met);
}

TEST(BenchTools, GoalsThatCannotBeReadAreErrors) {
  EXPECT_THROW(read_goals("r | a | b | about 10 x |"), std::runtime_error);
  EXPECT_THROW(read_goals("r | a | b | >= 10 |"), std::runtime_error);
  EXPECT_THROW(read_goals("r | a | b | >= 10 x | missed"), std::runtime_error);
  EXPECT_THROW(read_goals("r | a | b | >= 10 x"), std::runtime_error);
  EXPECT_THROW(read_goals("r | a | b | >= 10 x | missed 5 +- 10%"), std::runtime_error) << "nothing was tried";
  EXPECT_THROW(read_goals("r | a | b | >= 10 x | missed 5 +- 10% | this | that"), std::runtime_error);
  EXPECT_TRUE(read_goals("# a comment\n\n").empty());
}

TEST(BenchTools, PagesAreRewrittenBetweenTheirMarks) {
  const auto charts = read_charts(
      "chart | both | bars | log | us | 0.001 | Cost\nseries | one=1\nrow | fast | p/fast/threads:$\n"
      "row | a peer that is missing | p/peer/threads:$\n");
  const auto goals = read_goals("r | p/slow | p/fast/threads:1 | >= 20 x | | it is slow; nothing");
  const std::string page = "before\n<!-- measured: both -->\nold\n<!-- /measured -->\nafter\n";
  const std::string updated = updated_page(page, small_run(), goals, charts);
  EXPECT_EQ(
      updated,
      "before\n<!-- measured: both -->\n| Cost, us | one |\n|---|---:|\n| fast | 0.002 |\n<!-- /measured -->\nafter\n");
  EXPECT_EQ(updated_page(updated, small_run(), goals, charts), updated);
  const std::string all = updated_page("<!-- measured: goals -->\n<!-- /measured -->", small_run(), goals, charts);
  EXPECT_NE(all.find("| r | 10.0 x (5.00 to 20.0) | at least 20 x | **missed** |"), std::string::npos) << all;
  EXPECT_NE(all.find("\n- *r*: it is slow; nothing\n"), std::string::npos) << all;
  EXPECT_THROW(updated_page("<!-- measured: none -->\n<!-- /measured -->", small_run(), goals, charts),
               std::runtime_error);
  EXPECT_THROW(updated_page("<!-- measured: both -->\n", small_run(), goals, charts), std::runtime_error);
}

TEST(BenchTools, ChartsAreDrawn) {
  const auto charts = read_charts(
      "chart | a | bars | log | ns | 1 | T < U\nseries | one=1 | two=2\nrow | fast & so | p/fast/threads:$\n");
  const std::string drawn = to_svg(charts.at(0), small_run());
  EXPECT_NE(drawn.find("T &lt; U"), std::string::npos);
  EXPECT_NE(drawn.find("fast &amp; so"), std::string::npos);
  EXPECT_NE(drawn.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(drawn.find("nan"), std::string::npos);
  EXPECT_EQ(drawn.substr(drawn.size() - 7), "</svg>\n");
}

TEST(BenchTools, TheModelIsWhatItSaysWhereThatCanBeReckoned) {
  const machine_model m;
  EXPECT_NEAR(simulate(gate_kind::one_word, 1), 2 * m.locked, 1e-6);
  EXPECT_NEAR(simulate(gate_kind::lane_each, 1), 2 * (m.plain + m.sequence), 1e-6);
  EXPECT_NEAR(simulate(gate_kind::lane_each, 256), 2 * (m.plain + m.sequence), 1e-6) << "nothing is shared";
  EXPECT_NEAR(simulate(gate_kind::stripes, 16), 2 * m.locked, 1e-6);
  EXPECT_GT(simulate(gate_kind::stripes, 32), 2 * m.locked) << "two on a line";
  EXPECT_GT(simulate(gate_kind::one_word, 2), m.near);
  EXPECT_LT(simulate(gate_kind::one_word, 2), 4 * m.near + 4 * m.locked);
  EXPECT_EQ(simulate(gate_kind::one_word, 64), simulate(gate_kind::one_word, 64)) << "the same every time";
  // Beyond what one line can carry, everybody waits for everybody.
  EXPECT_GT(simulate(gate_kind::one_word, 256), 255 * m.locked);
  EXPECT_DOUBLE_EQ(simulate_close(false, 1), 16 * m.locked);
  EXPECT_DOUBLE_EQ(simulate_close(true, 256) - simulate_close(false, 256),
                   m.system_call + 255 * m.send_interrupt + m.interrupt);
}

// The files of this tree, without a run: what compare and plot are given must at least be readable.
TEST(BenchTools, TheGoalsAndChartsOfThisTreeCanBeRead) {
  EXPECT_GT(read_goals(read_file(CURFEW_BENCH_DIR "/goals.txt")).size(), 15u);
  EXPECT_GT(read_charts(read_file(CURFEW_BENCH_DIR "/charts.txt")).size(), 5u);
}

}  // namespace
