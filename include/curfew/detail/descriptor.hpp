// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Descriptors that are owned, closed on exec, and kept away from the standard streams. POSIX only.

#ifndef CURFEW_DETAIL_DESCRIPTOR_HPP
#define CURFEW_DETAIL_DESCRIPTOR_HPP

#include <cerrno>
#include <utility>

#include <curfew/detail/config.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A descriptor that is closed once. Moved-from and default-made ones hold none.
class owned_fd {
 public:
  owned_fd() noexcept = default;
  explicit owned_fd(int fd) noexcept : fd_(fd) {}
  owned_fd(owned_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  owned_fd& operator=(owned_fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~owned_fd() { reset(); }

  void reset() noexcept {
    if (fd_ < 0) return;
    const int kept = errno;
    ::close(std::exchange(fd_, -1));
    errno = kept;
  }
  int release() noexcept { return std::exchange(fd_, -1); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Takes over \p fd and moves it above the standard three, so that a host that has closed its own standard streams
/// does not get a pipe in their place. Empty on failure, with errno set.
inline owned_fd above_standard(int fd) noexcept {
  owned_fd low(fd);
  if (fd < 0 || fd > STDERR_FILENO) return low;
  return owned_fd(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

/// A close-on-exec pipe above the standard three. False on failure, with errno set and both ends empty.
inline bool make_pipe(owned_fd& read_end, owned_fd& write_end) noexcept {
  int ends[2];
#if defined(__linux__)
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
#else
  if (::pipe(ends) != 0) return false;
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
#endif
  read_end = above_standard(ends[0]);
  write_end = above_standard(ends[1]);
  if (read_end && write_end) return true;
  read_end.reset();
  write_end.reset();
  return false;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_DESCRIPTOR_HPP
