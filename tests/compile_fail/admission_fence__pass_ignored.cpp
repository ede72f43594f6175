// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: the pass is the admission

#include <curfew/admission_fence.hpp>

#pragma GCC diagnostic error "-Wunused-result"

int main() {
  curfew::admission_fence fence;
#ifdef CURFEW_MUST_COMPILE
  if (fence.try_enter()) return 1;
#else
  fence.try_enter();
#endif
}
