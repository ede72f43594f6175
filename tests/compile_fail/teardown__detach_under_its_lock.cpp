// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: cannot call function 'detach_then' while mutex 'mutex' is held

#include <curfew/teardown.hpp>

#include <optional>

#pragma clang diagnostic error "-Wthread-safety"

struct __attribute__((capability("mutex"))) annotated_mutex {
  void lock() __attribute__((acquire_capability())) {}
  void unlock() __attribute__((release_capability())) {}
};

int main() {
  annotated_mutex mutex;
  std::optional<int> slot = 1;
#ifdef CURFEW_MUST_COMPILE
  curfew::detach_then(mutex, slot, [](std::optional<int>) {});
#else
  mutex.lock();
  curfew::detach_then(mutex, slot, [](std::optional<int>) {});
  mutex.unlock();
#endif
}
