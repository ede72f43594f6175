// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A program whose units were compiled in different ways: this one with the defaults, the other one with the flags of
// the cell. Each uses the kit; where both speak of the same types, one closes the door through which the other came.

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/teardown.hpp>

#include <cstdio>
#include <thread>

#include "../consumer/use.hpp"
#include "mixed.hpp"

namespace {

bool refused() {
  curfew::admission_fence door{"door"};
  door.drain();
  try {
    static_cast<void>(door.enter());
  } catch (const curfew::admission_refused&) {
    return true;
  }
  return false;
}

// Two units that do not share the table of signals see each other's owner all the same.
bool one_owner_for_both() {
  {
    const curfew::ordered_lifespan life;
    if (!mixed_sees_owner()) return false;
  }
  static bool refused = false;
  mixed_while_owner([] {
    try {
      const curfew::ordered_lifespan second;
    } catch (const curfew::ownership_conflict&) {
      refused = true;
    }
  });
  return refused && !mixed_sees_owner();
}

#ifdef CURFEW_TEST_SAME_TYPES
bool one_door_for_both() {
  curfew::admission_fence door{"door"};
  int entered = 0;
  std::thread other([&] { entered = mixed_enter_until_closed(door); });
  while (!door.run([] {})) {
  }
  door.drain();
  const bool all_out = !door.try_enter();
  other.join();
  return all_out && entered >= 0;
}
#endif

}  // namespace

int main() {
  if (consumer::use() != 0) return std::puts("mixed: this unit"), 1;
  if (mixed_use() != 0) return std::puts("mixed: the other unit"), 1;
  if (!refused()) return std::puts("mixed: no exception arrived"), 1;
  if (!one_owner_for_both()) return std::puts("mixed: two owners"), 1;
#ifdef CURFEW_TEST_STRAY_OBJECT
  mixed_door.drain();
#endif
#ifdef CURFEW_TEST_STRAY_RESULT
  mixed_gate().drain();
#endif
#ifdef CURFEW_TEST_SAME_TYPES
  if (!one_door_for_both()) return std::puts("mixed: one door"), 1;
#endif
  return std::puts("mixed: ok"), 0;
}
