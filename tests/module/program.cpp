// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A program that has the kit as a module, and includes nothing of it.

#include <chrono>
#include <cstdio>
#include <memory>

import curfew;

struct pool {
  void shutdown() { std::puts("pool down"); }
};

int main() {
  curfew::admission_fence requests{"requests"};
  curfew::compact_admission_fence compact{"compact"};
  curfew::guarded_singleton<pool> pools{"pools"};
  curfew::lifespan_options options;
  options.owned_signals = {};
  curfew::ordered_lifespan life(options);
  life.add("pool").start([&] { static_cast<void>(pools.get()); }).stop([&] { pools.seal(); });
  life.add("http").after("pool").fence(requests).start([&] { life.request_stop(); });
  const int code = life.run();
  try {
    static_cast<void>(requests.enter());
  } catch (const curfew::admission_refused& refused) {
    std::puts(refused.what());
  }
  std::puts(to_string(life.state()));
  const curfew::sandbox::owner_key owner{"user", "thread"};
  return code + (curfew::sandbox::stable_id(owner).size() == 16 ? 0 : 1);
}
