// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The guide's pages on ordered_lifespan and signals.

#include <csignal>
#include <cstdio>

#include <curfew/admission_fence.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/signals.hpp>

namespace {

// [guard]
class cache {
 public:
  void flush() { std::printf("flushed\n"); }

 private:
  // Does nothing while a lifespan owns SIGTERM, also when that lifespan comes later. Otherwise: flush on a thread of
  // its own, never in the handler; then the handler that was there before; then SIGTERM again.
  curfew::fallback_signal_guard on_term_{{SIGTERM}, [this](int) { flush(); }};
};
// [/guard]

void say(const char* what) {
  std::printf("%s\n", what);
}

/// Stands for the SIGTERM of the real world, so that this program ends.
void ask_to_stop_once_running(curfew::ordered_lifespan& life) {
  life.observe([&life](const curfew::lifespan_event&) {
    if (life.state() == curfew::lifespan_state::running) life.request_stop();
  });
}

}  // namespace

// [order]
int main() {
  curfew::ordered_lifespan life;  // first of all: it owns SIGTERM and SIGINT from here on

  cache entries;
  curfew::admission_fence requests{"requests"};

  life.add("database").start([] { say("database up"); }).stop([&] {
    entries.flush();
    say("database down");
  });
  life.add("http")
      .after("database")
      .start([] { say("http up"); })
      .fence(requests)  // closed with the others, before anything is stopped; then waited for
      .stop([](const curfew::stage_context& stage) {
        if (!stage.token.stop_requested()) say("http down");
      });

  ask_to_stop_once_running(life);
  return life.run();  // starts in order, waits, closes, drains, stops in reverse order, returns the exit code
}
// [/order]
