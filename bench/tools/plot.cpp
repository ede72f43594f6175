// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// plot <results> <charts> <directory>: an SVG file for each chart of which something was measured.

#include <cstdio>
#include <exception>
#include <string>

#include "bench/tools/chart.hpp"
#include "bench/tools/results.hpp"

int main(int count, char** arguments) try {
  if (count != 4) {
    std::fputs("usage: plot <results> <charts> <directory>\n", stderr);
    return 2;
  }
  using namespace bench_tools;
  const results run = from_text(read_file(arguments[1]));
  for (const auto& each : read_charts(read_file(arguments[2]))) {
    if (each.drawn && !measured_rows(each, run).empty()) {
      write_file(std::string(arguments[3]) + "/" + each.name + ".svg", to_svg(each, run));
    }
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "plot: %s\n", error.what());
  return 1;
}
