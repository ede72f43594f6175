// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: T cannot be made by default: give the singleton Traits with a make() of their own

#include <curfew/guarded_singleton.hpp>

struct pool {
#ifdef CURFEW_MUST_COMPILE
  explicit pool(int = 0) {}
#else
  explicit pool(int) {}
#endif
};

curfew::guarded_singleton<pool> shared{"pool"};

int main() {
  return shared.get() ? 0 : 1;
}
