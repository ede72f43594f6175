// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The bell that a signal handler may ring and the place where somebody who waits for it is parked. On POSIX systems
/// that is an eventfd (a pipe elsewhere) and poll(): level-triggered, so that a ring between a look and a park is not
/// lost, usable inside foreign event loops, and one of the few waits in which every sanitizer delivers signals.

#ifndef CURFEW_DETAIL_SIGNAL_WAKEUP_HPP
#define CURFEW_DETAIL_SIGNAL_WAKEUP_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <type_traits>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/sync.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/eventfd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

#if CURFEW_POSIX

/// Async-signal-safe: one write, its failure ignored. A full bell is a bell that rings already; what happened is
/// recorded elsewhere, the bytes only wake.
inline void ring_bell(int descriptor) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(descriptor, &one, sizeof one);
}

/// May be rung by any thread and by signal handlers; at most one thread at a time waits (its owner sees to that).
template <class Sync>
class descriptor_wakeup {
 public:
  using clock = typename Sync::clock;

  descriptor_wakeup() {
#if defined(__linux__)
    ends_[0] = ends_[1] = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ends_[0] < 0) CURFEW_THROW(std::system_error(errno, std::generic_category(), "curfew: eventfd"));
#else
    if (::pipe(ends_) != 0) CURFEW_THROW(std::system_error(errno, std::generic_category(), "curfew: pipe"));
    for (const int end : ends_) {
      ::fcntl(end, F_SETFD, FD_CLOEXEC);
      ::fcntl(end, F_SETFL, O_NONBLOCK);
    }
#endif
  }
  descriptor_wakeup(const descriptor_wakeup&) = delete;
  descriptor_wakeup& operator=(const descriptor_wakeup&) = delete;
  ~descriptor_wakeup() {
    ::close(ends_[0]);
    if (ends_[1] != ends_[0]) ::close(ends_[1]);
  }

  void ring() const noexcept {
    ring_bell(ends_[1]);
  }

  /// Readable while it has been rung and nobody has silenced it.
  int handle() const noexcept {
    return ends_[0];
  }
  int bell() const noexcept {
    return ends_[1];
  }

  void silence() const noexcept {
    unsigned char sink[64];
    while (::read(ends_[0], sink, sizeof sink) == static_cast<ssize_t>(sizeof sink)) {
    }
  }

  /// Parks until rung or until \p deadline; may return earlier. Everything rung before the return is silenced.
  void wait_until(typename clock::time_point deadline) const noexcept {
    Sync::here("wakeup.wait.before_poll");
    ::pollfd entry{ends_[0], POLLIN, 0};
    ::poll(&entry, 1, timeout(deadline));
    silence();
  }

 private:
  /// In milliseconds, rounded up: waking a little late costs less than waking in vain.
  static int timeout(typename clock::time_point deadline) noexcept {
    if (deadline == clock::time_point::max()) return -1;
    const auto now = clock::now();
    if (deadline <= now) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
    return static_cast<int>(std::min<long long>(left, INT_MAX));
  }

  int ends_[2] = {-1, -1};
};

#else

inline void ring_bell(int) noexcept {}

#endif

/// Without descriptors: a flag. There is nothing to hand to a foreign event loop then.
template <class Sync>
class flag_wakeup {
 public:
  using clock = typename Sync::clock;

  void ring() const noexcept {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    rings_.notify_all();
  }
  int handle() const noexcept { return -1; }
  int bell() const noexcept { return -1; }
  void silence() const noexcept {
    const std::lock_guard lock(mutex_);
    rung_ = false;
  }
  void wait_until(typename clock::time_point deadline) const noexcept {
    Sync::here("wakeup.wait.before_poll");
    std::unique_lock lock(mutex_);
    if (deadline == clock::time_point::max()) {
      rings_.wait(lock, [this] { return rung_; });
    } else {
      rings_.wait_until(lock, deadline, [this] { return rung_; });
    }
    rung_ = false;
  }

 private:
  mutable typename Sync::mutex mutex_;
  mutable typename Sync::condition_variable rings_;
  mutable bool rung_ = false;
};

#if CURFEW_POSIX

/// poll() knows one clock; a policy with a clock of its own waits by its own means.
template <class Sync>
using wakeup = std::conditional_t<std::is_same_v<typename Sync::clock, std_sync::clock>, descriptor_wakeup<Sync>,
                                  flag_wakeup<Sync>>;

#else

template <class Sync>
using wakeup = flag_wakeup<Sync>;

#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SIGNAL_WAKEUP_HPP
