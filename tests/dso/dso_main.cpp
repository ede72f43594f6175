// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Loads two shared objects built with hidden visibility: what is unique in a process must be so across them, and a
// compact fence drained in one and released in the other must wake its waiter.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include <curfew/admission_fence.hpp>

namespace {

template <class Function>
Function* symbol(void* part, const char* name) {
  void* const found = ::dlsym(part, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no %s: %s\n", name, ::dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function*>(found);
}

void* load(const char* path) {
  void* const part = ::dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (part == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(1);
  }
  return part;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const one = load(argv[1]);
  void* const two = load(argv[2]);
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
