// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What can be wrong with a schedule, and the checks that a body makes itself. The checks mean the same to the explorer
/// and to the race harness, so that one body serves both.

#ifndef CURFEW_TESTING_OUTCOME_HPP
#define CURFEW_TESTING_OUTCOME_HPP

#include <cstdio>
#include <exception>
#include <string>

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing {

/// What was found. The detectors of the explorer; the race harness sees the first three, a crash, or a hang of these.
enum class fault : unsigned char {
  none,
  check_failed,         ///< a check() of the body was false
  exception,            ///< an exception left a role
  terminated,           ///< std::terminate was called
  deadlock,             ///< nobody can go on
  lost_wakeup,          ///< the same, and a notification came when nobody waited yet
  self_relock,          ///< a mutex locked by its owner
  unowned_unlock,       ///< a mutex unlocked, or waited with, by somebody else than its owner
  callback_under_lock,  ///< foreign() reached with a mutex held
  data_race,            ///< plain data used by two threads with nothing to order them
  destroyed_in_use,     ///< an object destroyed before another thread's last use of it, held, or waited on
  use_after_destroy,    ///< an object used after its destruction
  leak,                 ///< objects or threads of the run outlive it
  livelock,             ///< more steps than allowed
  nondeterminism,       ///< the body did something else than the last time: it depends on more than the schedule
  crash,                ///< the process died, or would have: a broken access, an abort
  hang,                 ///< race harness: no round ended for a while
  inconclusive          ///< race harness: too little overlap to mean anything
};

/// The name of the value, as it is spelled in the enumeration.
constexpr const char* to_string(fault what) noexcept {
  constexpr const char* names[] = {"none",
                                   "check_failed",
                                   "exception",
                                   "terminated",
                                   "deadlock",
                                   "lost_wakeup",
                                   "self_relock",
                                   "unowned_unlock",
                                   "callback_under_lock",
                                   "data_race",
                                   "destroyed_in_use",
                                   "use_after_destroy",
                                   "leak",
                                   "livelock",
                                   "nondeterminism",
                                   "crash",
                                   "hang",
                                   "inconclusive"};
  return names[static_cast<unsigned char>(what)];
}

namespace engine {

/// Whoever runs bodies listens here. Outside of both instruments a failed check ends the process.
struct listener {
  void (*check_failed)(const char* what, const char* file, unsigned line) = nullptr;
  void (*foreign)(const char* what, const char* file, unsigned line) = nullptr;
  void (*close_call)(const char* what) = nullptr;
};
inline constinit listener listening{};

}  // namespace engine

/// Fails the run unless \p ok. May be called by roles, finish(), and everything they call; needs no lock.
inline void check(bool ok, const char* what = "check", unsigned line = __builtin_LINE(),
                  const char* file = __builtin_FILE()) {
  if (ok) return;
  if (engine::listening.check_failed != nullptr) engine::listening.check_failed(what, file, line);
  std::fprintf(stderr, "%s:%u: check failed: %s\n", file, line, what);
  std::terminate();
}

/// To be called by the callbacks that a body hands to what it tests: fails the run when the calling thread holds a
/// mutex of the policy there. Does nothing outside the explorer, which alone knows.
inline void foreign(const char* what = "callback", unsigned line = __builtin_LINE(),
                    const char* file = __builtin_FILE()) {
  if (engine::listening.foreign != nullptr) engine::listening.foreign(what, file, line);
}

/// Counts that the interesting window was hit: the race harness calls a run without a single close call inconclusive.
inline void close_call(const char* what) {
  if (engine::listening.close_call != nullptr) engine::listening.close_call(what);
}

}  // namespace testing
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_OUTCOME_HPP
