// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A program that includes the module headers it needs.

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/teardown.hpp>

#include "use.hpp"

#ifdef CURFEW_TEST_OTHER_UNIT
int other_unit();
#else
static int other_unit() {
  return 0;
}
#endif

int main() {
  return consumer::use() != 0 ? 1 : other_unit();
}
