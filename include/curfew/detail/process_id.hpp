// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The number of this process, by which what a fork has copied is told from what is one's own.

#ifndef CURFEW_DETAIL_PROCESS_ID_HPP
#define CURFEW_DETAIL_PROCESS_ID_HPP

#include <curfew/detail/config.hpp>

#if CURFEW_POSIX
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Not cached: a cached number would need a hook at fork, and would be wrong in a child made past that hook.
inline long process_id() noexcept {
#if CURFEW_POSIX
  return static_cast<long>(::getpid());
#else
  return 0;  // no fork, so one number for ever is right
#endif
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_PROCESS_ID_HPP
