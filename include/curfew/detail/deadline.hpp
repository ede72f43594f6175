// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Deadlines that cannot overflow, and what is left of one as poll() wants it.

#ifndef CURFEW_DETAIL_DEADLINE_HPP
#define CURFEW_DETAIL_DEADLINE_HPP

#include <algorithm>
#include <chrono>

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The point \p d after \p now, or the last one there is.
template <class TimePoint>
TimePoint later(TimePoint now, std::chrono::nanoseconds d) noexcept {
  return d > TimePoint::max() - now ? TimePoint::max() : now + d;
}

/// Milliseconds for poll(), rounded up so that a wait never spins, and capped at a minute so that it never overflows.
inline int poll_timeout(std::chrono::nanoseconds left) noexcept {
  using std::chrono::milliseconds;
  if (left <= std::chrono::nanoseconds::zero()) return 0;
  return static_cast<int>(std::min(milliseconds(60'000), std::chrono::ceil<milliseconds>(left)).count());
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_DEADLINE_HPP
