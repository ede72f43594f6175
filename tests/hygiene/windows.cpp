// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The portable parts as a Windows compiler sees them. Compiled only, by a cross compiler where there is one.

#include <cstdio>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/keyed_serializer.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/periodic_worker.hpp>
#include <curfew/signals.hpp>
#include <curfew/slot_ledger.hpp>
#include <curfew/systemd_notifier.hpp>
#include <curfew/teardown.hpp>

int main() {
  curfew::ordered_lifespan life;  // Ctrl-C and Ctrl-Break from here on
  curfew::systemd_notifier nobody("");
  curfew::fallback_signal_guard nothing({SIGTERM}, [](int) {});
  curfew::admission_fence requests("requests");
  curfew::guarded_singleton<int> number("number");
  nobody.follow(life, std::chrono::seconds(1));
  life.add("a").fence(requests).start([&] { *number.get() += curfew::shutdown_owned(SIGTERM) ? 1 : 0; });
  life.add("b").after("a").start([&] { life.simulate_signal(SIGTERM); });
  const int code = life.run();
  std::puts(life.report().to_string().c_str());
  return code;
}
