// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Runs one program of the system to its end: its arguments as they are, never a shell; what it writes, bounded; and a
/// limit on its time. For helpers that end by themselves. POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_COMMAND_HPP
#define CURFEW_DETAIL_PROCESS_COMMAND_HPP

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/deadline.hpp>
#include <curfew/detail/descriptor.hpp>
#include <curfew/detail/process_group.hpp>
#include <curfew/detail/process_members.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <unistd.h>

extern char** environ;  // NOLINT: POSIX has no header that declares it

CURFEW_BEGIN_NAMESPACE
namespace detail {

struct command_result {
  int exit_code = -1;      ///< 128 + n when it died of signal n; -1 when that is not to be had
  bool timed_out = false;  ///< it had to be killed; then the exit status is no success
  std::string output, errors;
};

/// What posix_spawn is told: nothing on stdin, pipes on the other two, a process group of its own, so that a Ctrl-C
/// meant for the host does not end what the host is about to need for its shutdown, no signal blocked or ignored, and
/// none of the host's descriptors.
class spawn_settings {
 public:
  spawn_settings(int output, int errors) {
    check(::posix_spawn_file_actions_init(&actions_));
    check(::posix_spawnattr_init(&attributes_));
    check(::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    check(::posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO));
    check(::posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO));
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    check(::posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1));  // elsewhere: what is not cloexec
#endif
    sigset_t all, none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    check(::posix_spawnattr_setsigdefault(&attributes_, &all));
    check(::posix_spawnattr_setsigmask(&attributes_, &none));
    check(::posix_spawnattr_setpgroup(&attributes_, 0));
    check(::posix_spawnattr_setflags(
        &attributes_, static_cast<short>(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK)));
  }
  spawn_settings(const spawn_settings&) = delete;
  spawn_settings& operator=(const spawn_settings&) = delete;
  ~spawn_settings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  /// The program is looked up in the host's PATH and gets the host's environment.
  child_process start(std::vector<std::string> argv) const {
    std::vector<char*> view;
    for (std::string& word : argv) view.push_back(word.data());
    view.push_back(nullptr);
    pid_t pid = 0;
    check(::posix_spawnp(&pid, view.front(), &actions_, &attributes_, view.data(), environ));
    return child_process(pid);
  }

 private:
  static void check(int error) {
    if (error != 0) throw std::system_error(error, std::generic_category());
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

/// Runs \p argv, killed \p timeout after this call began. Throws std::system_error when it cannot be started.
template <class Sync>
command_result run_command(const std::vector<std::string>& argv, std::chrono::nanoseconds timeout) {
  constexpr std::size_t most_output = std::size_t{1} << 20;
  constexpr std::chrono::seconds kill_wait{1};
  const auto until = later(Sync::clock::now(), timeout);
  owned_fd output_pipe, output_end, errors_pipe, errors_end;
  if (!make_pipe(output_pipe, output_end) || !make_pipe(errors_pipe, errors_end))
    throw std::system_error(errno, std::generic_category());
  child_process child = spawn_settings(output_end.get(), errors_end.get()).start(argv);
  output_end.reset();
  errors_end.reset();
  bounded_output output(std::move(output_pipe), most_output), errors(std::move(errors_pipe), most_output);
  Sync::here("process_command.started");
  const exit_wait ending = wait_for_exit<Sync>(child, {&output, &errors}, until - Sync::clock::now(), kill_wait);
  command_result result;
  if (ending != exit_wait::gave_up) result.exit_code = child.reap();
  result.timed_out = result.exit_code < 0 || (ending == exit_wait::killed && result.exit_code == 128 + SIGKILL);
  result.output = output.finish();
  result.errors = errors.finish();
  return result;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_COMMAND_HPP
