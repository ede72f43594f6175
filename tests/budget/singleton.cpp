// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The least that a program does with a singleton.

#include <curfew/guarded_singleton.hpp>

struct pool {
  int size = 1;
};
constinit curfew::guarded_singleton<pool> pools{"pools"};

int main() {
  const int result = pools.get()->size;
  pools.shutdown();
  return result;
}
