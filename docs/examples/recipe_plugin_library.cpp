// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What recipe_plugin loads and unloads.

extern "C" int price(int amount);

extern "C" int price(int amount) {
  return 2 * amount + 2;
}
