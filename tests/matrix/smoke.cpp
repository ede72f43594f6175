// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What every compiler, mode and machine of the matrix must be able to do: a little of each primitive, on two threads.
// With an argument it does one thing that throws; where there are no exceptions, that has to end the process and say
// why.

#ifdef CURFEW_TEST_SINGLE_HEADER
#include <curfew.hpp>
#else
#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/keyed_serializer.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/slot_ledger.hpp>
#include <curfew/teardown.hpp>
#endif

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "../consumer/use.hpp"

namespace {

// A fence under traffic, and a drain that must not come back before the last pass has left.
bool fence_under_traffic() {
  curfew::admission_fence door{"door"};
  int inside = 0;  // changed by the thread with the passes only, read after the drain
  std::thread visitor([&] {
    while (door.run([&] { ++inside; })) {
    }
  });
  while (!door.run([] {})) {
  }
  door.drain();
  const int at_drain = inside;
  visitor.join();
  return inside == at_drain && !door.try_enter();
}

struct counted {
  int value = 7;
};
curfew::guarded_singleton<counted> shared{"counted"};

bool singleton_from_two_threads() {
  counted* other = nullptr;
  std::thread getter([&] { other = shared.get().get(); });
  counted* const mine = shared.get().get();
  getter.join();
  return mine == other && mine->value == 7;
}

bool second_tier() {
  curfew::slot_ledger slots{1};
  const auto first = slots.try_reserve();
  curfew::keyed_serializer<int> lanes;
  const auto hold = lanes.try_acquire(1);
  return first && !slots.try_reserve() && hold && !lanes.try_acquire(1);
}

// A child that cannot be drained is a failure in the report of its parent and nothing else, whatever there is to say it
// with: the stop goes on.
bool lifespan_with_a_child_that_fails() {
  using namespace std::chrono_literals;
  curfew::lifespan_options options;
  options.owned_signals = {};
  curfew::admission_fence door{"door"};
  options.name = "child";
  curfew::ordered_lifespan child{options};
  child.add("guests").fence(door).budget(curfew::lifespan_phase::drain, 20ms);
  curfew::ordered_lifespan life{options};
  bool last = false;
  life.add("house").stop([&] { last = true; });
  life.add_child("party", child).after("house").fence(door).budget(curfew::lifespan_phase::drain, 100ms);
  const bool up = life.start();
  const auto guest = door.try_enter();
  const auto& report = life.stop();
  const bool told = report.to_string().find("'child' did not stop cleanly") != std::string::npos &&
                    report.to_json().find("'door' with 1 inside") != std::string::npos;
  return up && guest && last && told && report.exit_code == 1 && child.report().exit_code == 1;
}

struct {
  const char* name;
  bool (*holds)();
} const checks[] = {
    {"consumer", [] { return consumer::use() == 0; }}, {"fence", fence_under_traffic},
    {"singleton", singleton_from_two_threads},         {"second tier", second_tier},
    {"lifespan", lifespan_with_a_child_that_fails},
};

void throw_something(std::string_view what) {
  curfew::admission_fence door{"front door"};
  if (what == "refused") {
    door.drain();
    static_cast<void>(door.enter());
  } else if (what == "sealed") {
    shared.seal();
    static_cast<void>(shared.get());
  } else if (what == "graph") {
    curfew::lifespan_options options;
    options.owned_signals = {};
    curfew::ordered_lifespan life{options};
    life.add("cellar").after("attic");
    life.start();
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) {
    throw_something(arguments[1]);
    return 0;
  }
  for (const auto& check : checks) {
    if (check.holds()) continue;
    std::fprintf(stderr, "smoke: %s\n", check.name);
    return 1;
  }
  std::puts("smoke: ok");
  return 0;
}
