// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A shared object with sequences of its own: nothing of the kit is exported from it, so its code is what runs.

#include <curfew/admission_fence.hpp>

extern "C" __attribute__((visibility("default"))) bool use_fence(curfew::admission_fence& fence, unsigned times) {
  for (unsigned i = 0; i < times; ++i) {
    if (!fence.try_enter()) return false;
  }
  return true;
}
