// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: guarded_singleton is never destroyed and needs trivially destructible Traits

#include <memory>

#include <curfew/guarded_singleton.hpp>

struct traits {
  std::unique_ptr<int> make() { return std::make_unique<int>(1); }
#ifndef CURFEW_MUST_COMPILE
  ~traits() {}
#endif
};

curfew::guarded_singleton<int, traits> number{"number"};

int main() {
  return *number.get() - 1;
}
