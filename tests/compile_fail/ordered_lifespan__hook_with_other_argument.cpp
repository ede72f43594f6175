// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: a hook takes no argument or a const stage_context&

#include <curfew/ordered_lifespan.hpp>

int main() {
  curfew::ordered_lifespan life;
#ifdef CURFEW_MUST_COMPILE
  life.add("stage").start([](const curfew::stage_context&) {}).stop([] {});
#else
  life.add("stage").start([](int) {});
#endif
}
