// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What check_printers.cmake looks at with gdb.

#include <memory>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>

extern "C" void look_here();
extern "C" void look_here() {
  asm volatile("");
}

struct pool {
  int connections = 42;
};

curfew::admission_fence opened{"opened"};
curfew::admission_fence closed{"closed"};
curfew::admission_fence drained{"drained"};
curfew::compact_admission_fence compact{"compact"};
curfew::traced_admission_fence traced{"traced"};
curfew::guarded_singleton<pool> pools{"pools"};
curfew::guarded_singleton<pool> unused{"unused"};
curfew::guarded_singleton<pool> ended{"ended"};

int main() {
  const auto first = opened.enter();
  const auto second = opened.enter();
  const auto third = closed.enter();
  closed.close();
  drained.drain();
  const auto in_compact = compact.enter();
  compact.close();
  const auto in_traced = traced.enter();
  pools.get().release();
  pools.reset();
  const auto handle = pools.get();
  ended.get().release();
  ended.seal();
  curfew::lifespan_options options;
  options.name = "service";
  options.owned_signals = {};
  curfew::ordered_lifespan life(options);
  life.add("database").start([] {});
  life.add("http").after("database").on_controller().start([] {}).stop([] {});
  life.start();
  const auto* const lifespan = &life;
  const auto* const one_pass = &first;
  look_here();
  static_cast<void>(lifespan);
  static_cast<void>(one_pass);
  life.stop();
}
