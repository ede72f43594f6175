// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Loads two shared objects built with hidden visibility: what is unique in a process must be so across them, and a
// compact fence drained in one and released in the other must wake its waiter.

#include <cstdio>
#include <thread>

#include <curfew/admission_fence.hpp>

#include "library.hpp"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const one = load(argv[1], RTLD_GLOBAL);
  void* const two = load(argv[2], RTLD_GLOBAL);
  for (const char* table : {"part_lot", "part_singletons"}) {
    if (symbol<const void*()>(one, table)() != symbol<const void*()>(two, table)()) {
      std::fprintf(stderr, "%s: each shared object has its own\n", table);
      return 1;
    }
  }
  curfew::compact_admission_fence fence{"shared"};
  auto pass = fence.try_enter();
  bool drained = false;
  std::thread drainer([&] { drained = symbol<bool(curfew::compact_admission_fence*)>(one, "part_drain")(&fence); });
  while (!fence.is_closed()) std::this_thread::yield();
  symbol<void(curfew::compact_admission_fence::pass*)>(two, "part_release")(&pass);
  drainer.join();
  std::puts(drained ? "one table for all" : "the waiter was not woken");
  return drained ? 0 : 1;
}
