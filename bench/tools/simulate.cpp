// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// simulate: what simulation.hpp says of up to 256 processors, as Google Benchmark would write it, to the standard
// output.

#include <cstdio>
#include <string>

#include "bench/tools/simulation.hpp"

int main(int count, char** arguments) {
  using namespace bench_tools;
  std::FILE* const out = count == 2 ? std::fopen(arguments[1], "w") : nullptr;
  if (out == nullptr) {
    std::fputs("usage: simulate <out>\n", stderr);
    return 2;
  }
  const char* comma = "";
  const auto row = [&](const std::string& name, double ns) {
    std::fprintf(out,
                 "%s\n{\"name\": \"%s\", \"run_name\": \"%s\", \"run_type\": \"iteration\", \"cpu_time\": %.4f, "
                 "\"real_time\": %.4f, \"time_unit\": \"ns\"}",
                 comma, name.c_str(), name.c_str(), ns, ns);
    comma = ",";
  };
  std::fprintf(out, "{\"benchmarks\": [");
  for (int cpus = 1; cpus <= 256; cpus *= 2) {
    const std::string at = "/cpus:" + std::to_string(cpus);
    row("lane_each" + at, simulate(gate_kind::lane_each, cpus));
    row("sixteen_lanes" + at, simulate(gate_kind::sixteen_lanes, cpus));
    row("stripes" + at, simulate(gate_kind::stripes, cpus));
    row("one_word" + at, simulate(gate_kind::one_word, cpus));
    row("mutex_and_count" + at, simulate(gate_kind::mutex_and_count, cpus));
    row("close_sequences" + at, simulate_close(true, cpus));
    row("close_portable" + at, simulate_close(false, cpus));
  }
  std::fprintf(out, "\n]}\n");
  return std::fclose(out) == 0 ? 0 : 1;
}
