// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// One of two shared objects, built with hidden visibility, that use the kit on their own.

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const void* part_lot() {
  return &curfew::detail::process_lot<curfew::std_sync>;
}
EXPORTED const void* part_singletons() {
  return &curfew::detail::process_singletons<curfew::std_sync>;
}
EXPORTED bool part_drain(curfew::compact_admission_fence* fence) {
  return static_cast<bool>(fence->drain_for(std::chrono::seconds(20)));
}
EXPORTED void part_release(curfew::compact_admission_fence::pass* pass) {
  pass->release();
}
