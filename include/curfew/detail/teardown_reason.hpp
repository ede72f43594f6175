// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The vocabulary of every teardown callback.

#ifndef CURFEW_DETAIL_TEARDOWN_REASON_HPP
#define CURFEW_DETAIL_TEARDOWN_REASON_HPP

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE

/// Why an instance is being torn down. Passed to every teardown callback of the kit.
enum class teardown_reason : unsigned char {
  reset,           ///< asked for by `reset` or `tear_down`
  shutdown,        ///< asked for by `shutdown`
  sealed,          ///< by `seal`: nothing may take the place any more
  replaced,        ///< another instance took its place
  lost_race,       ///< was made at the same time as the instance that won, and never used
  stale,           ///< was made before the reset that it arrived after, and never used
  start_failed,    ///< its start hook threw
  override_ended,  ///< belonged to an override, or was suspended by one, that has ended
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_TEARDOWN_REASON_HPP
