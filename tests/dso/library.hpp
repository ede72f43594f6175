// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// dlopen, with an end to the program where it does not succeed.

#ifndef CURFEW_TESTS_DSO_LIBRARY_HPP
#define CURFEW_TESTS_DSO_LIBRARY_HPP

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

inline void* load(const char* path, int scope) {
  void* const part = ::dlopen(path, RTLD_NOW | scope);
  if (part == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    std::exit(1);
  }
  return part;
}

template <class Function>
Function* symbol(void* part, const char* name) {
  void* const found = ::dlsym(part, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no %s: %s\n", name, ::dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function*>(found);
}

inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::exit(1);
}

#endif  // CURFEW_TESTS_DSO_LIBRARY_HPP
