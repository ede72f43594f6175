// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// c0 = close/reopen cycles, c1 = of these reopened with passes out, c2 = admissions, c3 = releases on another thread.

#include "stress/fence_cycle_scenario.hpp"

int main(int argc, char** argv) {
  return stress::run<fence_cycle<curfew::basic_admission_fence<stress::noise_sync>>>(argc, argv, "fence_cycle");
}
