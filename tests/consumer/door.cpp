// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A program that needs one primitive: enough where only the way to the headers is tested.

#include <curfew/admission_fence.hpp>

int main() {
  curfew::admission_fence door{"door"};
  if (!door.run([] {})) return 1;
  door.drain();
  return door.try_enter() ? 2 : 0;
}
