// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What check_hit_path.cmake disassembles.

#include <new>

#include <curfew/admission_fence.hpp>

using pass = curfew::admission_fence::pass;

extern "C" void probe_enter(curfew::admission_fence& fence, void* where) {
  ::new (where) pass(fence.try_enter());
}
extern "C" void probe_clone(const pass& from, void* where) {
  ::new (where) pass(from.clone());
}
extern "C" void probe_release(pass& from) {
  from.release();
}
extern "C" void probe_destroy(pass& from) {
  from.~pass();
}
