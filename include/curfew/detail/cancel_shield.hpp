// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Keeps pthread_cancel out of a wait. A cancelled condition wait unwinds, and the waits of the kit are in functions
/// that promise not to throw; the request stays pending and is acted on at the caller's next cancellation point.

#ifndef CURFEW_DETAIL_CANCEL_SHIELD_HPP
#define CURFEW_DETAIL_CANCEL_SHIELD_HPP

#include <curfew/detail/config.hpp>

#if CURFEW_POSIX
#include <pthread.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

class cancel_shield {
 public:
#if CURFEW_POSIX && defined(PTHREAD_CANCEL_DISABLE)
  cancel_shield() noexcept {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
  }
  ~cancel_shield() {
    pthread_setcancelstate(before_, nullptr);
  }
#else
  cancel_shield() noexcept {}
  ~cancel_shield() {}
#endif
  cancel_shield(const cancel_shield&) = delete;
  cancel_shield& operator=(const cancel_shield&) = delete;

 private:
  [[maybe_unused]] int before_ = 0;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_CANCEL_SHIELD_HPP
