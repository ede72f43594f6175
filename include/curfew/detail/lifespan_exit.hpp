// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Leaving the process without the help of threads that may hang.

#ifndef CURFEW_DETAIL_LIFESPAN_EXIT_HPP
#define CURFEW_DETAIL_LIFESPAN_EXIT_HPP

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Writes out what stdio holds, but does not wait for a stream that somebody who hangs has locked.
template <class Sync>
void flush_stdio(std::chrono::milliseconds limit = std::chrono::milliseconds(100)) noexcept {
  struct progress {
    typename Sync::mutex mutex;
    typename Sync::condition_variable ended;
    bool over = false;
  };
  CURFEW_TRY {
    const auto shared = std::make_shared<progress>();
    typename Sync::thread([shared] {
      std::fflush(stdout);
      std::fflush(nullptr);
      const std::lock_guard lock(shared->mutex);
      shared->over = true;
      shared->ended.notify_all();
    }).detach();
    std::unique_lock lock(shared->mutex);
    shared->ended.wait_until(lock, Sync::clock::now() + limit, [&] { return shared->over; });
  }
  CURFEW_CATCH_ALL {  // no thread: better to lose a line than not to leave
  }
}

/// Past static destructors, which must not run under the feet of a hook that was given up.
template <class Sync>
[[noreturn]] void leave_at_once(int code) noexcept {
  flush_stdio<Sync>();
  std::_Exit(code);
}

template <class Sync>
[[noreturn]] void leave_by_signal(int signo) noexcept {
  flush_stdio<Sync>();
  die_by_signal(signo);
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_EXIT_HPP
