// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What a lifespan is made of. (`guarded_singleton` is not here: it registers its fork handlers when it is loaded.)

#include <curfew/admission_fence.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/signals.hpp>
#include <curfew/systemd_notifier.hpp>

int use();
int use() {
  curfew::admission_fence requests("requests");
  curfew::ordered_lifespan life;
  curfew::systemd_notifier supervisor;
  curfew::fallback_signal_guard guard({SIGHUP}, [](int) {});
  supervisor.follow(life, std::chrono::seconds(1));
  life.add("a").fence(requests).start([] {});
  return life.run() + (curfew::shutdown_owned(SIGTERM) ? 1 : 0);
}
