// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the kernel says about child processes and process groups: has this child exited, which groups still have a
/// living member. A process id is only safe to signal while it cannot be given to somebody else, so a child is looked
/// at without being reaped, and reaping is a step of its own that the owner takes when it will never signal it again.
/// POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_GROUP_HPP
#define CURFEW_DETAIL_PROCESS_GROUP_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/descriptor.hpp>
#include <curfew/detail/process_spawn.hpp>

#if CURFEW_POSIX
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// One child of this process, identified by a number that stays its own until `reap()`.
class child_process {
 public:
  child_process() noexcept = default;
  explicit child_process(pid_t pid) noexcept : pid_(pid) {
#if defined(__linux__) && defined(SYS_pidfd_open)
    watch_ = owned_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));  // close-on-exec by definition
#endif
  }
  child_process(child_process&& other) noexcept
      : watch_(std::move(other.watch_)), pid_(std::exchange(other.pid_, 0)), reaped_(other.reaped_) {}
  child_process& operator=(child_process&&) noexcept = default;

  pid_t pid() const noexcept {
    return pid_;
  }
  bool reaped() const noexcept {
    return reaped_;
  }

  /// A descriptor that becomes readable when the child exits; -1 where the system has none, then one has to look.
  int watch() const noexcept {
    return watch_.get();
  }

  /// Whether it has exited, as a zombie or reaped. A child that somebody else has reaped counts as exited.
  bool exited() const noexcept {
    if (pid_ == 0 || reaped_) return true;
    siginfo_t info{};
    int result;
    do {
      result = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    } while (result != 0 && errno == EINTR);
    return result != 0 || info.si_pid != 0;
  }

  /// Collects an exited child; its number may belong to somebody else afterwards. Returns the exit status, 128 + n for
  /// one that died of signal n, -1 when the status is not to be had: the host ignores SIGCHLD, or waited for any child.
  int reap() noexcept {
    if (pid_ == 0 || reaped_) return -1;
    reaped_ = true;
    watch_.reset();
    int status = 0;
    pid_t got;
    do {
      got = ::waitpid(pid_, &status, WNOHANG);
    } while (got < 0 && errno == EINTR);
    if (got != pid_) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// Signals this child alone. No effect once it was reaped.
  void signal(int signo) const noexcept {
    if (pid_ > 0 && !reaped_) ::kill(pid_, signo);
  }

 private:
  owned_fd watch_;
  pid_t pid_ = 0;
  bool reaped_ = false;
};

/// One look at every process of the system: which process groups have a member that still runs. Zombies do not run.
class group_census {
 public:
  /// Takes the census. A process that vanishes while it is looked up is gone. `exact()` is false where the system
  /// cannot be asked (no /proc, no descriptor left for it); then `lives()` falls back to a question per group, to which
  /// a leader that was not reaped yet answers like a living member.
  group_census() noexcept {
#if defined(__linux__)
    DIR* const processes = ::opendir("/proc");
    if (processes == nullptr) return;
    exact_ = true;
    try {
      for (errno = 0; const dirent* entry = ::readdir(processes); errno = 0)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && !look(::dirfd(processes), entry->d_name))
          exact_ = false;
      if (errno != 0) exact_ = false;
    } catch (...) {  // no memory for the list
      exact_ = false;
    }
    ::closedir(processes);
#endif
  }

  bool exact() const noexcept {
    return exact_;
  }

  bool lives(pid_t group) const noexcept {
    if (exact_) return std::find(living_.begin(), living_.end(), group) != living_.end();
    return ::kill(-group, 0) == 0 || errno == EPERM;
  }

 private:
  /// False when the process is there but cannot be read.
  bool look(int processes, const char* pid) {
    char path[32];
    std::snprintf(path, sizeof path, "%.20s/stat", pid);
    const owned_fd file(::openat(processes, path, O_RDONLY | O_CLOEXEC));
    if (!file) return errno == ENOENT || errno == ESRCH || errno == EACCES;  // EACCES: hidden, another user's
    char text[1024];
    const ssize_t size = ::read(file.get(), text, sizeof text - 1);
    if (size <= 0) return size == 0 || errno == ESRCH || errno == ENOENT;
    text[size] = '\0';
    // pid (name) state ppid pgrp ... with the thread count as 18th field after the name, which may hold anything.
    const char* const after = std::strrchr(text, ')');
    if (after == nullptr) return true;
    char state = 0;
    int group = 0;
    long threads = 0;
    const int found = std::sscanf(after + 1, " %c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
                                  &state, &group, &threads);
    if (found != 3) return true;
    // A main thread that ended before its siblings shows as a zombie of a process that runs on.
    const bool ended = (state == 'Z' && threads <= 1) || state == 'X' || state == 'x';
    if (!ended) living_.push_back(group);
    return true;
  }

  std::vector<pid_t> living_;
  bool exact_ = false;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_GROUP_HPP
