// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// [quickstart]
#include <csignal>
#include <cstdio>
#include <thread>

#include <curfew/curfew.hpp>

int main() {
  curfew::admission_fence requests{"requests"};
  std::jthread client;
  curfew::ordered_lifespan life;  // owns SIGTERM from here on
  life.add("database").start([] { std::puts("database up"); }).stop([] { std::puts("database down"); });
  life.add("server").after("database").fence(requests).start([&] {
    client = std::jthread([&, pass = requests.enter()] {
      std::raise(SIGTERM);  // a real one, in the middle of a request
      while (!pass.closing()) std::this_thread::yield();
      std::puts(requests.try_enter() ? "late request admitted" : "late request refused");
      std::puts("request finished");
    });
  });
  return life.run();
}
// [/quickstart]
