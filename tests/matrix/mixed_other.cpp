// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The unit with other flags: see mixed_main.cpp.

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/teardown.hpp>

#include <csignal>

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

bool mixed_sees_owner() {
  return curfew::shutdown_owned(SIGTERM);
}

void mixed_while_owner(void (*f)()) {
  const curfew::ordered_lifespan life;
  f();
}

#ifdef CURFEW_TEST_STRAY_OBJECT
curfew::compact_admission_fence mixed_door{"door"};
#endif
#ifdef CURFEW_TEST_STRAY_RESULT
curfew::compact_admission_fence& mixed_gate() {
  static curfew::compact_admission_fence gate{"gate"};
  return gate;
}
#endif

#ifdef CURFEW_TEST_SAME_TYPES
int mixed_enter_until_closed(curfew::admission_fence& door) {
  int entered = 0;
  while (door.run([] {})) ++entered;
  return entered;
}
#endif
