// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: deleted

#include <utility>

#include <curfew/admission_fence.hpp>

int main() {
#ifdef CURFEW_MUST_COMPILE
  curfew::admission_fence fence;
  curfew::admission_fence& other = fence;
  other.close();
#else
  curfew::admission_fence fence;
  curfew::admission_fence other = std::move(fence);
  other.close();
#endif
}
