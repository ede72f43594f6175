// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: the callback of a detach_slot must be callable as teardown(T&, teardown_reason)

#include <curfew/teardown.hpp>

struct close_file {
#ifdef CURFEW_MUST_COMPILE
  void operator()(int&, curfew::teardown_reason) const {}
#else
  void operator()(int&) const {}
#endif
};

int main() {
  curfew::detach_slot<int, close_file> slot{close_file{}};
}
