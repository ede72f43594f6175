// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The unit with other flags: see mixed_main.cpp.

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/teardown.hpp>

// The exercise belongs to the test and would be merged with that of the other unit.
#define consumer consumer_elsewhere
#include "../consumer/use.hpp"
#include "mixed.hpp"

int mixed_use() {
  // A form that may throw, so that this unit, too, holds the code for it.
  curfew::admission_fence door{"door"};
  { const auto pass = door.enter(); }
  return consumer::use();
}

#ifdef CURFEW_TEST_SAME_TYPES
int mixed_enter_until_closed(curfew::admission_fence& door) {
  int entered = 0;
  while (door.run([] {})) ++entered;
  return entered;
}
#endif
