// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: deleted

#include <utility>

#include <curfew/admission_fence.hpp>

int main() {
#ifdef CURFEW_MUST_COMPILE
  curfew::admission_fence fence;
  auto pass = fence.try_enter();
  auto other = std::move(pass);
#else
  curfew::admission_fence fence;
  auto pass = fence.try_enter();
  auto other = pass;
#endif
}
