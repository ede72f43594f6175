// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Starting one program in a child process: the plan that is complete before the fork, and what the child
/// does between fork and exec. Everything the child touches is prepared by the parent, because a child of a threaded
/// program may only make async-signal-safe calls: the heap lock may be held by a thread that does not exist there.
/// POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_SPAWN_HPP
#define CURFEW_DETAIL_PROCESS_SPAWN_HPP

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/descriptor.hpp>
#include <curfew/detail/text.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Throws std::invalid_argument when \p argv could not be passed to a program as it stands.
inline void check_command(const std::vector<std::string>& argv, const char* who) {
  if (argv.empty() || argv.front().empty()) throw std::invalid_argument(std::string(who) + ": empty command");
  for (const std::string& word : argv)
    if (word.find('\0') != std::string::npos)
      throw std::invalid_argument(std::string(who) + ": NUL in an argument of " + printable(argv.front()));
}

using limit_name = decltype(RLIMIT_CORE);  // an enumeration in one C library, int in another

/// What a child that could not become its program sends through the close-on-exec pipe. Smaller than PIPE_BUF, so it
/// arrives whole or not at all; an end of file without it means that the exec succeeded.
struct spawn_report {
  enum step : int { group, parent, directory, limits, streams, exec };
  int at;
  int error;

  const char* what() const noexcept {
    switch (at) {
      case group:
        return "setpgid";
      case parent:
        return "prctl";
      case directory:
        return "fchdir";
      case limits:
        return "setrlimit";
      case streams:
        return "dup2";
      default:
        return "exec";
    }
  }
};

/// Everything a child needs, in memory that is complete before the fork.
class spawn_plan {
 public:
  /// \p environment is the whole environment of the program. A program name without a slash is looked up in its PATH,
  /// not in the host's.
  spawn_plan(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment)
      : argv_(argv) {
    for (const auto& [name, value] : environment) environment_.push_back(name + "=" + value);
    if (argv.front().find('/') != std::string::npos) {
      candidates_.push_back(argv.front());
    } else {
      const auto path = environment.find("PATH");
      std::string_view rest = path != environment.end() ? std::string_view(path->second) : std::string_view();
      for (bool more = true; more;) {
        const std::size_t colon = rest.find(':');
        const std::string_view part = rest.substr(0, colon);
        candidates_.push_back((part.empty() ? std::string(".") : std::string(part)) + "/" + argv.front());
        more = colon != std::string_view::npos;
        if (more) rest.remove_prefix(colon + 1);
      }
    }
    for (std::string& text : argv_) argv_view_.push_back(text.data());
    for (std::string& text : environment_) environment_view_.push_back(text.data());
    argv_view_.push_back(nullptr);
    environment_view_.push_back(nullptr);
    struct rlimit open_files {};
    if (::getrlimit(RLIMIT_NOFILE, &open_files) == 0)
      highest_fd_ = static_cast<int>(std::min<rlim_t>(open_files.rlim_cur, 1 << 20));
  }

  spawn_plan(const spawn_plan&) = delete;
  spawn_plan& operator=(const spawn_plan&) = delete;

  /// Soft and hard limit become \p value, or the host's hard limit where that is lower: nobody can raise that.
  void limit(limit_name name, std::uint64_t value) {
    struct rlimit now {};
    if (::getrlimit(name, &now) != 0) now.rlim_max = RLIM_INFINITY;
    const rlim_t wanted = std::min(static_cast<rlim_t>(value), now.rlim_max);
    limits_.push_back({name, {wanted, wanted}});
  }

  int directory = -1;  ///< becomes the working directory
  pid_t group = 0;     ///< the process group to join; 0: lead a new one
  int input = -1;      ///< become the standard streams; these three lie above them
  int output = -1;
  int report = -1;  ///< close-on-exec write end
  pid_t host = 0;   ///< the process that forks

  /// The child's side. Async-signal-safe calls only. All signals are blocked when it begins.
  [[noreturn]] void become() const noexcept {
    if (::setpgid(0, group) != 0) give_up(spawn_report::group);
#if defined(__linux__)
    // The parent may have died before the request was in place; then nobody would ever send the signal.
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(spawn_report::parent);
    if (::getppid() != host) ::_exit(127);
#endif
    // A Ctrl-C that came while this child was still in the host's group is pending by now, and the new program would
    // die of it. Ignoring a signal for a moment discards it; whoever means this child waits until it has been
    // announced.
    struct sigaction ignored {
    }, fallback{};
    ignored.sa_handler = SIG_IGN;
    fallback.sa_handler = SIG_DFL;
    for (int signo = 1; signo < NSIG; ++signo) {  // KILL and STOP refuse: fine
      ::sigaction(signo, &ignored, nullptr);
      ::sigaction(signo, &fallback, nullptr);
    }

    if (::fchdir(directory) != 0) give_up(spawn_report::directory);
    if (::dup2(input, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 || ::dup2(output, STDERR_FILENO) < 0)
      give_up(spawn_report::streams);
    close_between(STDERR_FILENO + 1, report - 1);
    close_from(report + 1);
    for (const limit_entry& entry : limits_)
      if (::setrlimit(entry.name, &entry.value) != 0) give_up(spawn_report::limits);

    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    int error = ENOENT;
    for (const std::string& program : candidates_) {
      ::execve(program.c_str(), argv_view_.data(), environment_view_.data());
      // A directory of PATH without the program says nothing; a program that may not be run is worth reporting.
      if (errno != ENOENT && errno != ENOTDIR) error = errno;
      if (error != ENOENT && error != EACCES) break;
    }
    errno = error;
    give_up(spawn_report::exec);
  }

 private:
  struct limit_entry {
    limit_name name;
    struct rlimit value;
  };

  [[noreturn]] void give_up(spawn_report::step at) const noexcept {
    const spawn_report text{at, errno};
    // Nobody is left to tell when this fails; the parent then sees the exit status alone.
    [[maybe_unused]] const ssize_t sent = ::write(report, &text, sizeof text);
    ::_exit(127);
  }

  // The host may have descriptors above its soft limit, if it lowered that after opening them.
  void close_from(int first) const noexcept {
#if defined(__linux__) && defined(SYS_close_range)
    if (::syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
    close_between(first, highest_fd_);
  }
  static void close_between(int first, int last) noexcept {
    if (first > last) return;
#if defined(__linux__) && defined(SYS_close_range)
    if (::syscall(SYS_close_range, static_cast<unsigned>(first), static_cast<unsigned>(last), 0U) == 0) return;
#endif
    for (int fd = first; fd <= last; ++fd) ::close(fd);
  }

  std::vector<std::string> argv_, environment_, candidates_;
  std::vector<char*> argv_view_, environment_view_;
  std::vector<limit_entry> limits_;
  int highest_fd_ = 1 << 16;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_SPAWN_HPP
