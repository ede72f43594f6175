// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A shared object with hidden visibility that uses the kit on its own.

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>

#include "service.hpp"

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

// A singleton of the program's.
EXPORTED int part_use(services* of) {
  return of->get()->mark;
}
EXPORTED void part_pin(services* of, services::handle* out) {
  *out = of->get();
}
EXPORTED void part_unpin(services::handle* out) {
  out->release();
}
EXPORTED bool part_reset(services* of) {
  return of->reset();
}
EXPORTED char part_try(services* of) {
  try {
    static_cast<void>(of->get());
    return 'i';
  } catch (const curfew::recursive_creation&) {
    return 'r';
  } catch (const curfew::singleton_sealed&) {
    return 's';
  }
}

// One of its own, with an end: the object may be unloaded.
namespace {
std::atomic<int> own_alive{0};
services own{"own", service_traits{&own_alive, nullptr}};
}  // namespace
EXPORTED int part_use_own() {
  own.reset();
  return own.get()->mark;
}
