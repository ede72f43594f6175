// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A type for singletons that keeps books: how many were made, destroyed and torn down, and why. Used by the tests, the
/// stress scenarios and the benchmark of guarded_singleton.

#ifndef CURFEW_TESTS_SUPPORT_SINGLETON_WORLD_HPP
#define CURFEW_TESTS_SUPPORT_SINGLETON_WORLD_HPP

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include <curfew/guarded_singleton.hpp>

namespace curfew_test {

struct thing;

/// One per test. Hooks are set before threads start, and called with no synchronisation of their own.
struct world {
  std::atomic<int> constructed{0};
  std::atomic<int> destroyed{0};
  std::atomic<int> started{0};
  std::atomic<int> resets{0};
  std::atomic<int> ends[8]{};  // on_shutdown, by reason
  std::atomic<int> errors{0};
  std::atomic<int> last_error_reason{-1};

  std::function<void()> on_make;
  std::function<void(thing&)> on_start, on_reset, on_destroy;
  std::function<void(thing&, curfew::teardown_reason)> on_shutdown;

  int alive() const { return constructed.load() - destroyed.load(); }
  int shutdowns(curfew::teardown_reason reason) const { return ends[static_cast<unsigned>(reason)].load(); }
  int shutdowns() const {
    int sum = 0;
    for (const auto& each : ends) sum += each.load();
    return sum;
  }
};

struct thing {
  explicit thing(world* w, int v = 0) : in(w), value(v), serial(++w->constructed) {}
  thing(const thing&) = delete;
  thing& operator=(const thing&) = delete;
  ~thing() {
    if (in->on_destroy) in->on_destroy(*this);
    dead = true;
    ++in->destroyed;
  }

  world* in;
  int value;
  int serial;
  bool started = false;  // plain on purpose: visible to users only if creation synchronises with get
  bool dead = false;
  std::atomic<int> torn{0};
};

/// Traits without start.
struct world_traits {
  world* in = nullptr;

  std::unique_ptr<thing> make() const {
    if (in->on_make) in->on_make();
    return std::make_unique<thing>(in);
  }
  void on_reset(thing& it) const {
    ++it.torn;
    ++in->resets;
    if (in->on_reset) in->on_reset(it);
  }
  void on_shutdown(thing& it, curfew::teardown_reason reason) const {
    ++it.torn;
    ++in->ends[static_cast<unsigned>(reason)];
    if (in->on_shutdown) in->on_shutdown(it, reason);
  }
  void on_error(std::exception_ptr, curfew::teardown_reason reason) const noexcept {
    ++in->errors;
    in->last_error_reason = static_cast<int>(reason);
  }
};

struct starting_traits : world_traits {
  void start(thing& it) const {
    it.started = true;
    ++in->started;
    if (in->on_start) in->on_start(it);
  }
};

struct flight_traits : world_traits {
  static constexpr curfew::creation_mode creation = curfew::creation_mode::single_flight;
};

struct starting_flight_traits : starting_traits {
  static constexpr curfew::creation_mode creation = curfew::creation_mode::single_flight;
};

template <class Stats>
bool balanced(const Stats& s) {
  return s.made == s.torn_down + s.handed_back + s.live;
}

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_SINGLETON_WORLD_HPP
