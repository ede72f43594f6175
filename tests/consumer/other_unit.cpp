// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A second translation unit, with the single header, in a program whose first one has the module headers.

#include <curfew.hpp>

#include "use.hpp"

int other_unit();
int other_unit() {
  return consumer::use();
}
