// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The portable backend. c0 = close/reopen cycles, c1 = of these reopened with passes out, c2 = admissions, c3 =
// releases on another thread.

#include "stress/fence_cycle_scenario.hpp"

namespace {

struct portable_sync : stress::noise_sync {
  template <class Cells>
  static constexpr std::int64_t restartable() noexcept {
    return 0;
  }
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<fence_cycle<curfew::basic_admission_fence<portable_sync>>>(argc, argv, "fence_cycle");
}
