// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Race bodies of the ordered lifespan. Signals are counted as their handler would, without the kernel: what that does
/// is for the tests of whole processes. Budgets are endless, since nothing here is about time.

#ifndef CURFEW_TESTS_MODEL_CASES_LIFESPAN_HPP
#define CURFEW_TESTS_MODEL_CASES_LIFESPAN_HPP

#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>

#include <curfew/admission_fence.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/testing/outcome.hpp>

namespace curfew_cases {

using curfew::lifespan_state;
using curfew::stop_cause;
using curfew::testing::check;
using curfew::testing::close_call;
using namespace std::chrono_literals;

inline curfew::lifespan_options endless() {
  curfew::lifespan_options chosen;
  chosen.owned_signals = {};
  chosen.escalation_guard = std::chrono::hours(1);  // signals of one body are one request
  for (auto* budget : {&chosen.start_budget, &chosen.stop_budget, &chosen.stage_start, &chosen.stage_close,
                       &chosen.stage_drain, &chosen.stage_stop}) {
    *budget = std::chrono::nanoseconds::max();
  }
  return chosen;
}

/// A lifespan that notes when it comes to its stop barrier. A stage with a hook would need a thread for that, and there
/// would be many more schedules; lifespan_hook and lifespan_barriers have one.
template <class Sync>
struct lifespan_case {
  static constexpr unsigned timeouts = 0;
  curfew::basic_ordered_lifespan<Sync> life{endless()};
  typename Sync::template plain<int> down{0};  // belongs to the stop, and to who knows that it has ended
  unsigned stopped = 0;

  lifespan_case() {
    life.observe([this](const curfew::lifespan_event& event) {
      curfew::testing::foreign("observer");
      if (event.kind != curfew::lifespan_event_kind::state_changed || life.state() != lifespan_state::stopping) return;
      ++stopped;
      down = 1;
    });
  }
  /// What stop() promises to whoever it returns to.
  stop_cause ended(stop_cause cause = stop_cause::requested) {
    const auto& report = life.stop(cause);
    check(life.state() == lifespan_state::stopped, "stopped when stop() returns");
    return report.cause;
  }
};

/// X13. Who comes to stop() while the stop is under way comes back when it is over, not before.
template <class Sync>
struct lifespan_late_stop : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<bool> under_way{false};
  lifespan_late_stop() {
    this->life.observe([this](const curfew::lifespan_event&) {
      if (this->life.state() == lifespan_state::stopping) under_way.store(true, std::memory_order_release);
    });
    check(this->life.start(), "up");
  }
  void role(unsigned i) {
    if (i == 1 && !under_way.load(std::memory_order_acquire)) return;
    check(this->ended() == stop_cause::requested, "as asked");
    check(this->down == 1, "down when stop() returns");
  }
  void finish() { check(this->stopped == 1, "exactly once"); }
};

/// Two at once: one drives, the other joins. What the one that joins may see is in lifespan_late_stop, to the end.
template <class Sync>
struct lifespan_two_stops : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  static constexpr unsigned bound =
      2;  // without one, millions: every look of who joins against every step of who drives
  lifespan_two_stops() { check(this->life.start(), "up"); }
  void role(unsigned) {
    check(this->ended() == stop_cause::requested, "as asked");
    check(this->down == 1, "down when stop() returns");
  }
  void finish() { check(this->stopped == 1, "exactly once"); }
};

/// Start against stop. Whoever comes first, what has started is stopped, and nothing starts after.
template <class Sync>
struct lifespan_start_stop : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  bool up = false;
  void role(unsigned i) {
    if (i == 0) {
      up = this->life.start();
    } else {
      this->ended();
    }
  }
  void finish() {
    check(this->life.state() == lifespan_state::stopped, "stopped for good");
    check(this->stopped == (up ? 1u : 0u) || !up, "what was up is down");
    check(this->stopped <= 1, "at most once");
  }
};

/// Start against a request. A request is never forgotten: at the latest stop() finds it, with its cause and its code.
template <class Sync>
struct lifespan_request_in_start : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  bool up = false;
  void role(unsigned i) {
    if (i == 0) {
      up = this->life.start();
      if (!up) check(this->life.state() == lifespan_state::stopped, "rolled back when start() returns");
    } else {
      check(this->life.request_stop(stop_cause::stage_failed, 11), "the first");
    }
  }
  void finish() {
    const auto& report = this->life.stop();
    check(report.cause == stop_cause::stage_failed && report.exit_code == 11, "the first request and its code");
  }
};

/// A signal against a request: one of them is the cause, and everybody is told the same one.
template <class Sync>
struct lifespan_signal_request : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  stop_cause told[2] = {};
  bool was_first = false;
  lifespan_signal_request() { check(this->life.start(), "up"); }
  void role(unsigned i) {
    if (i == 0) {
      this->life.simulate_signal(SIGTERM);
      told[0] = this->life.wait();
    } else {
      was_first = this->life.request_stop(stop_cause::requested, 11);
      told[1] = this->ended();
    }
  }
  void finish() {
    const auto& report = this->life.stop();
    check(told[0] == report.cause && told[1] == report.cause, "one cause for all");
    check((report.cause == stop_cause::requested) == was_first, "that of the first");
    check(report.exit_code == 11, "the first code given counts");
  }
};

/// Two threads wait, only one of them can be at the bell; both come back.
template <class Sync>
struct lifespan_two_wait : lifespan_case<Sync> {
  static constexpr unsigned roles = 3;
  typename Sync::template plain<int> asked{0};
  lifespan_two_wait() { check(this->life.start(), "up"); }
  void role(unsigned i) {
    if (i == 2) {
      asked = 1;
      check(this->life.request_stop(stop_cause::requested), "the first");
    } else {
      check(this->life.wait() == stop_cause::requested, "as asked");
      check(asked == 1, "what precedes the request is visible");
    }
  }
  void finish() {
    this->ended();
    check(this->stopped == 1, "stopped once");
  }
};

/// A signal that comes while the lifespan is made ready for another start is neither lost nor counted for the last
/// stop.
template <class Sync>
struct lifespan_reset_signal : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  lifespan_reset_signal() {
    this->life.start();
    this->ended();
  }
  void role(unsigned i) {
    if (i == 0) {
      check(this->life.reset(), "ready for another start");
    } else {
      this->life.simulate_signal(SIGTERM);
    }
  }
  void finish() {
    check(!this->life.start(), "the signal counts");
    check(this->life.report().cause == stop_cause::signal, "and says so");
  }
};

/// Close, drain, stop: what the stop hook takes away nobody is using, and nobody comes in after.
template <class Sync>
struct lifespan_barriers : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  curfew::basic_compact_admission_fence<Sync> fence{"requests"};
  typename Sync::template plain<int> resource{1};
  lifespan_barriers() {
    this->life.add("requests").fence(fence).stop([this] { resource = 0; });
    check(this->life.start(), "up");
  }
  void role(unsigned i) {
    if (i == 1) {
      this->ended();
    } else if (auto pass = fence.try_enter()) {
      check(resource == 1, "there while somebody is inside");
    } else {
      close_call("refused");
    }
  }
  void finish() {
    check(resource == 0 && fence.is_drained(), "down");
    check(this->stopped == 1, "once");
  }
};

/// A hook on a thread of its own, which is joined: what it did is visible. One that asks for the stop again gets its
/// answer at once.
template <class Sync>
struct lifespan_hook {
  static constexpr unsigned timeouts = 0;
  static constexpr unsigned roles = 1;
  curfew::basic_ordered_lifespan<Sync> life{endless()};
  typename Sync::template plain<int> stopped{0};
  lifespan_hook() {
    life.add("only").stop([this] {
      curfew::testing::foreign("stop hook");
      ++stopped;
      check(life.stop().cause == stop_cause::requested, "already under way");
    });
    check(life.start(), "up");
  }
  void role(unsigned) {
    life.stop();
    check(stopped == 1, "exactly once, and over");
  }
  void finish() {}
};

/// A stage fails while another thread stops: both are recorded, the stop happens once.
template <class Sync>
struct lifespan_failure_stop : lifespan_case<Sync> {
  static constexpr unsigned roles = 2;
  lifespan_failure_stop() { check(this->life.start(), "up"); }
  void role(unsigned i) {
    if (i == 0) {
      this->life.fail_stage("only", std::make_exception_ptr(std::runtime_error("broke")));
    } else {
      this->ended();
    }
  }
  void finish() {
    const auto& report = this->life.stop();
    check(report.cause == stop_cause::requested || report.cause == stop_cause::stage_failed, "one of the two");
    check(report.cause != stop_cause::stage_failed || report.exit_code == 1, "a failure shows in the exit code");
    check(this->stopped == 1, "exactly once");
  }
};

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_LIFESPAN_HPP
