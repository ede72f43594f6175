// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// c0 to c5: how the fence came to its end, in the order of the scenario's enum.

#include "stress/fence_destroy_scenario.hpp"

int main(int argc, char** argv) {
  return stress::run<fence_destroy<curfew::basic_compact_admission_fence<stress::noise_sync>>>(argc, argv,
                                                                                               "fence_compact_destroy");
}
