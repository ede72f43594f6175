// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// race_cases [--cases <part of a name>] [--seconds <s>] [--seed <n>]
//
// The bodies of cases/ on real threads, with noise. Exit status 0: all passed; 1: one failed; 77: none failed, but some
// hardly overlapped, so that nothing can be said about them.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <curfew/testing/race.hpp>

#include "model/cases/all.hpp"

namespace {

using curfew::testing::fault;
using curfew::testing::noise_sync;
using curfew::testing::race_options;

struct visitor {
  const std::string& only;
  const race_options& chosen;
  unsigned& failed;
  unsigned& unclear;

  template <class Case>
  void operator()(const char* name) const {
    if (!curfew_cases::selected(only, name)) return;
    race_options options = chosen;
    options.name = name;
    options.quota = Case::roles > 1 ? 20 : 0;
    options.print = false;
    const auto result = curfew::testing::race<Case>(options);
    std::printf("%-40s %s\n", name, result.summary().c_str());
    if (result.what == fault::inconclusive) {
      ++unclear;
    } else if (!result) {
      ++failed;
      std::printf("  replay: --cases %s. --seed %llu\n", name, static_cast<unsigned long long>(result.seed));
    }
    std::fflush(stdout);
  }
};

}  // namespace

int main(int argc, char** argv) {
  std::string only;
  race_options chosen;
  chosen.seconds = 0.25;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view arg = argv[i];
    if (arg == "--cases") only = argv[i + 1];
    if (arg == "--seconds") chosen.seconds = std::strtod(argv[i + 1], nullptr);
    if (arg == "--seed") chosen.seed = std::strtoull(argv[i + 1], nullptr, 0);
  }
  unsigned failed = 0, unclear = 0;
  curfew_cases::for_each_case<noise_sync>(visitor{only, chosen, failed, unclear});
  std::printf("%u failed, %u inconclusive\n", failed, unclear);
  return failed != 0 ? 1 : unclear != 0 ? 77 : 0;
}
