// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What every consumer does with the kit, however it got it: a little of each part. Included after the kit.

#ifndef CURFEW_TESTS_CONSUMER_USE_HPP
#define CURFEW_TESTS_CONSUMER_USE_HPP

#include <mutex>
#include <optional>

namespace consumer {

struct service {
  bool running = true;
  void shutdown() { running = false; }
};

inline curfew::guarded_singleton<service> shared_service{"service"};

/// Returns 0 when everything did what it should.
inline int use() {
  curfew::admission_fence door{"door"};
  if (!door.run([] {})) return 1;
  door.drain();
  if (door.try_enter()) return 2;

  std::mutex mutex;
  std::optional<int> slot = 7;
  int seen = 0;
  if (!curfew::detach_then(mutex, slot, [&](std::optional<int> value) { seen = *value; }) || seen != 7) return 3;

  if (!shared_service.get()->running) return 4;
  shared_service.reset();

  int order = 0;
  curfew::lifespan_options options;
  options.owned_signals = {};
  curfew::ordered_lifespan life{options};
  life.add("first").start([&] { order = order * 10 + 1; }).stop([&] { order = order * 10 + 2; });
  life.start();
  life.stop();
  return order == 12 ? 0 : 5;
}

}  // namespace consumer

#endif  // CURFEW_TESTS_CONSUMER_USE_HPP
