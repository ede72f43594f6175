// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A program that has the kit as one file.

#include <curfew.hpp>

#include "use.hpp"

int main() {
  return consumer::use();
}
