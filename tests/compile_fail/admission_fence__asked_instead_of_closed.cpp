// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: only asks, close() closes

#include <curfew/admission_fence.hpp>

#pragma GCC diagnostic error "-Wunused-result"

int main() {
  curfew::admission_fence fence;
#ifdef CURFEW_MUST_COMPILE
  fence.close();
#else
  fence.is_closed();
#endif
}
