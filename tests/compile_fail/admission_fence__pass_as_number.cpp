// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: conver

#include <curfew/admission_fence.hpp>

int main() {
  curfew::admission_fence fence;
  auto pass = fence.try_enter();
#ifdef CURFEW_MUST_COMPILE
  const bool inside = static_cast<bool>(pass);
#else
  const int inside = pass;
#endif
  return inside;
}
