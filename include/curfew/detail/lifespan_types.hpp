// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The vocabulary of ordered_lifespan: states, phases, outcomes, options, what a hook is told, what an observer is
/// told.

#ifndef CURFEW_DETAIL_LIFESPAN_TYPES_HPP
#define CURFEW_DETAIL_LIFESPAN_TYPES_HPP

#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/stop_token.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE

/// idle -> starting -> running -> [announcing ->] closing -> draining -> stopping -> stopped;
/// starting -> rolling_back -> stopped; idle -> stopped; stopped -> idle by reset() only.
enum class lifespan_state : unsigned char {
  idle,
  starting,
  running,
  announcing,    ///< not ready any more, but still admitting, so that whoever routes work here can notice
  closing,       ///< barrier 1: admission is closed everywhere
  draining,      ///< barrier 2: what was admitted ends
  stopping,      ///< barrier 3: stages are taken down, last started first
  rolling_back,  ///< the three barriers over what had started when the start failed or was called off
  stopped
};

/// Which of its hooks a stage is in. `cleanup` is the cleanup_partial hook of a start that failed.
enum class lifespan_phase : unsigned char { start, close, drain, stop, cleanup };

/// Why a lifespan stops: the first request counts.
enum class stop_cause : unsigned char { none, requested, signal, start_failed, stage_failed, parent, destructor };

/// What has become of one hook.
enum class stage_outcome : unsigned char {
  not_run,    ///< never called: the stop came first
  ok,         ///< returned before its deadline
  failed,     ///< threw
  timed_out,  ///< returned after its deadline, or left its fence occupied
  abandoned,  ///< still running at its deadline; nobody waits for it any more
  skipped     ///< never called: its stage had not started
};

/// How often a stop was asked for.
enum class urgency : unsigned char {
  normal,
  hurried,  ///< a second request: same order, less time
  forced    ///< a third one: the process leaves at once
};

/// What run() returns after a stop without errors.
enum class exit_code_policy : unsigned char {
  zero_when_clean,   ///< 0 after a clean stop, whatever asked for it
  conventional_128,  ///< 128 + n when signal n asked for it
  reraise            ///< dies of the signal that asked for it, after everything else is done
};

/// The name of the value, as it is spelled in the enumeration.
constexpr const char* to_string(lifespan_state state) noexcept {
  constexpr const char* names[] = {"idle",     "starting", "running",      "announcing", "closing",
                                   "draining", "stopping", "rolling_back", "stopped"};
  return names[static_cast<unsigned>(state)];
}
constexpr const char* to_string(lifespan_phase phase) noexcept {
  constexpr const char* names[] = {"start", "close", "drain", "stop", "cleanup"};
  return names[static_cast<unsigned>(phase)];
}
constexpr const char* to_string(stop_cause cause) noexcept {
  constexpr const char* names[] = {"none",         "requested", "signal",    "start_failed",
                                   "stage_failed", "parent",    "destructor"};
  return names[static_cast<unsigned>(cause)];
}
constexpr const char* to_string(stage_outcome outcome) noexcept {
  constexpr const char* names[] = {"not_run", "ok", "failed", "timed_out", "abandoned", "skipped"};
  return names[static_cast<unsigned>(outcome)];
}
constexpr const char* to_string(urgency pressure) noexcept {
  constexpr const char* names[] = {"normal", "hurried", "forced"};
  return names[static_cast<unsigned>(pressure)];
}

/// The stages do not form an order, or a budget is not a duration anything can be done in. what() names the culprit,
/// and for a cycle the path.
struct CURFEW_VISIBLE bad_graph : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

namespace detail {

/// Adds without overflow: "for ever" stays for ever.
template <class TimePoint>
constexpr TimePoint later_by(TimePoint from, std::chrono::nanoseconds span) noexcept {
  const auto room = std::chrono::duration_cast<std::chrono::nanoseconds>(TimePoint::max() - from);
  return span >= room ? TimePoint::max() : from + span;
}

/// Any duration in nanoseconds; what does not fit is clamped, and what is not a number is the least there is.
template <class Rep, class Period>
constexpr std::chrono::nanoseconds clamped(std::chrono::duration<Rep, Period> span) noexcept {
  using wide = std::chrono::duration<long double, std::nano>;
  constexpr auto limit = std::chrono::nanoseconds::max();
  if (wide(span) >= wide(limit)) return limit;
  if (!(wide(span) > wide(-limit))) return -limit;
  return std::chrono::ceil<std::chrono::nanoseconds>(span);
}

/// Sleeps until \p span is over (true) or \p token has fired (false).
template <class Sync>
bool sleep_or_stop(const std::stop_token& token, std::chrono::nanoseconds span) {
  typename Sync::mutex mutex;
  typename Sync::condition_variable fired;
  bool stopped = false;
  const std::stop_callback wake(token, [&] {
    const std::lock_guard lock(mutex);
    stopped = true;
    fired.notify_all();
  });
  const auto deadline = later_by(Sync::clock::now(), span);
  std::unique_lock lock(mutex);
  if (deadline == Sync::clock::time_point::max()) {
    fired.wait(lock, [&] { return stopped; });
  } else {
    fired.wait_until(lock, deadline, [&] { return stopped; });
  }
  return !stopped;
}

}  // namespace detail

/// What a hook may want to know. Valid, and its token alive, for as long as the hook runs.
struct stage_context {
  /// In a start hook: fires when a stop is requested. In every hook: fires shortly before the deadline, and at once
  /// when the stop becomes hurried. A hook that returns on it in time counts as `ok`.
  std::stop_token token;
  /// When the hook will be given up, as planned at its begin; being hurried moves the real one forward.
  std::chrono::steady_clock::time_point deadline;
  lifespan_phase phase;
  stop_cause cause;
  urgency pressure;

  /// False as soon as the token has fired, true when \p span has passed first.
  template <class Duration>
  bool sleep_or_stop(Duration span) const {
    return detail::sleep_or_stop<std_sync>(token, detail::clamped(span));
  }
};

/// Durations are measured on the steady clock. Budgets must be positive; reserve, grace, announce, hurried budget and
/// guard may be zero. A bad value is refused by start(), before any hook.
struct lifespan_options {
  std::string name = "lifespan";
  std::chrono::nanoseconds start_budget = std::chrono::seconds(60);  ///< all start hooks together
  std::chrono::nanoseconds stop_budget = std::chrono::seconds(25);   ///< all three barriers together
  // Per hook, unless the stage says otherwise; cleanup_partial hooks get stage_stop.
  std::chrono::nanoseconds stage_start = std::chrono::seconds(15);
  std::chrono::nanoseconds stage_close = std::chrono::seconds(1);
  std::chrono::nanoseconds stage_drain = std::chrono::seconds(10);
  std::chrono::nanoseconds stage_stop = std::chrono::seconds(5);
  std::chrono::nanoseconds stage_reserve = std::chrono::milliseconds(100);  ///< kept back for every hook still to come
  std::chrono::nanoseconds hang_grace = std::chrono::milliseconds(200);  ///< from token to deadline, at most a quarter
  std::chrono::nanoseconds announce{0};                                  ///< not ready, still admitting, before closing
  std::chrono::nanoseconds hurried_budget = std::chrono::seconds(2);
  std::chrono::nanoseconds escalation_guard = std::chrono::milliseconds(500);
  /// Taken in the constructor. Empty: no handlers at all (tests, children).
  std::vector<int> owned_signals = {SIGTERM, SIGINT};
  /// When set, SIGHUP is owned too and means: call this, on the thread in wait(), run() or poll_signals(). It has no
  /// deadline while nothing else is asked for; after a stop request it has hang_grace left, is told so by the
  /// lifespan's token(), and is abandoned then. When not set, SIGHUP is left alone.
  std::function<void()> on_hangup;
  exit_code_policy exit = exit_code_policy::zero_when_clean;
};

/// What an observer is told about.
enum class lifespan_event_kind : unsigned char {
  state_changed,
  stage_begin,
  stage_end,
  stage_slow,         ///< half of the slice is over
  stage_hung,         ///< the slice is over; an on_controller hook can only be named
  handler_displaced,  ///< somebody put another handler over ours
  unattended          ///< a signal waited longer than the guard before anybody looked
};

/// Told to observers, one at a time and in the order in which things happened, with no lock held: by the thread in
/// start() or stop(), by the one that watches hooks which run on that one, or by whoever notices something in wait() or
/// poll_signals(). What happens while one of these is telling is told by it afterwards.
struct lifespan_event {
  using enum lifespan_event_kind;

  lifespan_event_kind kind;
  std::string stage;      ///< empty when it is about the lifespan
  lifespan_phase phase;   ///< of stage_* events
  stage_outcome outcome;  ///< of stage_end and stage_hung
  int signal;             ///< of handler_displaced and unattended; state_changed: the first stop signal so far
  std::chrono::nanoseconds elapsed;  ///< stage_*: in this hook; else since the start or the stop request
  lifespan_state state;              ///< at that moment; of state_changed: the new one
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_TYPES_HPP
