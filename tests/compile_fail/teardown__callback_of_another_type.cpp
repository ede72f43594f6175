// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: the callback of detach_then must be callable with a T&&

#include <curfew/teardown.hpp>

#include <memory>
#include <mutex>

int main() {
  std::mutex mutex;
  std::unique_ptr<int> slot;
#ifdef CURFEW_MUST_COMPILE
  curfew::detach_then(mutex, slot, [](std::unique_ptr<int>) {});
#else
  curfew::detach_then(mutex, slot, [](int*) {});
#endif
}
