// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The members of one process group that this process knows by number, waiting until several groups are empty, and
/// collecting what a command writes. POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_MEMBERS_HPP
#define CURFEW_DETAIL_PROCESS_MEMBERS_HPP

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/deadline.hpp>
#include <curfew/detail/descriptor.hpp>
#include <curfew/detail/process_group.hpp>
#include <curfew/detail/process_spawn.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A leader, the commands that have joined its group, and those that nobody waits for any more. The owner's lock guards
/// all of it, except that whoever waits for a command may look at that one and is the one who reaps it.
///
/// The leader is reaped only once the group is known to be empty: until then its zombie keeps the number that signals
/// go to from becoming somebody else's.
struct process_members {
  child_process leader;
  std::list<child_process> commands, abandoned;
  bool empty = false;  ///< no living member, and never again one: the number is not ours any more

  bool all_exited() const noexcept {
    const auto exited = [](const child_process& one) { return one.exited(); };
    return leader.exited() && std::all_of(commands.begin(), commands.end(), exited) &&
           std::all_of(abandoned.begin(), abandoned.end(), exited);
  }

  /// To the group, and to each command, also one that has left the group.
  void signal(int signo) const noexcept {
    if (leader.pid() > 0 && !empty) ::kill(-leader.pid(), signo);
    for (const auto* list : {&commands, &abandoned})
      for (const child_process& one : *list) one.signal(signo);
  }

  /// Settles by a census that was taken after everybody had been told to go whether the group is empty, and reaps if
  /// so.
  bool reap_if_empty(const group_census& census) noexcept {
    if (empty) return true;
    if (!all_exited()) return false;
    if (!census.exact()) leader.reap();  // its zombie would answer for the group
    if (leader.pid() > 0 && census.lives(leader.pid())) return false;
    empty = true;
    // A member may have forked behind the census and exited before it came by. Its child cannot outlive this.
    if (leader.pid() > 0 && !leader.reaped()) ::kill(-leader.pid(), SIGKILL);
    leader.reap();
    for (child_process& one : abandoned) one.reap();
    return true;
  }
};

/// Waits at most \p budget until the groups in \p left are empty. Those that are get cleared with no lock held and
/// leave the list. `Owner` has a process_members as `members`, guarded by \p mutex.
template <class Sync, class Owner, class Clear>
void wait_until_empty(typename Sync::mutex& mutex, std::vector<Owner*>& left, std::chrono::nanoseconds budget,
                      const Clear& clear) {
  using std::chrono::nanoseconds;
  constexpr nanoseconds longest_nap = std::chrono::milliseconds(20);
  const auto until = later(Sync::clock::now(), budget);
  for (nanoseconds nap = std::chrono::milliseconds(1);; nap = std::min(nap * 2, longest_nap)) {
    std::vector<pollfd> leaders;  // no group is empty before its leader has exited
    bool look = false;
    {
      const std::lock_guard lock(mutex);
      for (const Owner* one : left) {
        look = look || one->members.all_exited();
        const child_process& leader = one->members.leader;
        if (!leader.exited() && leader.watch() >= 0) leaders.push_back({leader.watch(), POLLIN, 0});
      }
    }
    if (look) {
      const group_census census;
      std::erase_if(left, [&](Owner* one) {
        {
          const std::lock_guard lock(mutex);
          if (!one->members.reap_if_empty(census)) return false;
        }
        clear(*one);
        return true;
      });
    }
    const nanoseconds rest = until - Sync::clock::now();
    if (left.empty() || rest <= nanoseconds::zero()) return;
    const bool all_watched = leaders.size() == left.size();
    ::poll(leaders.data(), static_cast<nfds_t>(leaders.size()), poll_timeout(all_watched ? rest : std::min(rest, nap)));
  }
}

struct group_signal {
  int signo;
  std::chrono::nanoseconds wait;
};

/// Sends each signal to the groups that are left by then and waits after it. True when none is left.
template <class Sync, class Owner, class Clear>
bool end_groups(typename Sync::mutex& mutex, std::vector<Owner*>& left, std::initializer_list<group_signal> ladder,
                const Clear& clear) {
  for (const group_signal& rung : ladder) {
    {
      const std::lock_guard lock(mutex);
      for (const Owner* one : left) one->members.signal(rung.signo);
    }
    Sync::here(rung.signo == SIGKILL ? "process_members.end.killed" : "process_members.end.asked");
    wait_until_empty<Sync>(mutex, left, rung.wait, clear);
    if (left.empty()) return true;
  }
  return left.empty();
}

/// Reads what a command writes and keeps the first \p bound bytes. The rest is read too, so that the writer goes on.
class bounded_output {
 public:
  bounded_output(owned_fd pipe, std::size_t bound) : pipe_(std::move(pipe)), bound_(bound) {
    ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  }

  /// To be polled for POLLIN; -1, which poll() ignores, after the end of file.
  int fd() const noexcept { return pipe_.get(); }

  /// Takes at most about \p most bytes of what is there, without waiting.
  void collect(std::size_t most = std::size_t{1} << 18) {
    std::array<char, 16384> chunk;
    while (pipe_ && most > 0) {
      const ssize_t got = ::read(pipe_.get(), chunk.data(), std::min(most, chunk.size()));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return pipe_.reset();
      const auto size = static_cast<std::size_t>(got);
      text_.append(chunk.data(), std::min(size, bound_ - text_.size()));
      most -= size;
    }
  }

  /// Takes what was written by now, and no more: whoever else holds the pipe may go on writing for ever.
  std::string finish() {
    int written = 0;
    if (pipe_ && ::ioctl(pipe_.get(), FIONREAD, &written) == 0 && written > 0)
      collect(static_cast<std::size_t>(written));
    return std::move(text_);
  }

 private:
  owned_fd pipe_;
  std::size_t bound_;
  std::string text_;
};

enum class exit_wait : unsigned char { exited, killed, gave_up };

/// Waits until \p command has exited and reads what it writes meanwhile. Kills it, and it alone, at \p timeout, and
/// gives up \p kill_wait later. Nobody else may reap it.
template <class Sync>
exit_wait wait_for_exit(const child_process& command, std::initializer_list<bounded_output*> outputs,
                        std::chrono::nanoseconds timeout, std::chrono::nanoseconds kill_wait) {
  constexpr int unwatched_nap_ms = 5;
  bool killed = false;
  for (auto until = later(Sync::clock::now(), timeout); !command.exited();) {
    const auto now = Sync::clock::now();
    if (now >= until) {
      if (std::exchange(killed, true)) return exit_wait::gave_up;
      command.signal(SIGKILL);
      until = later(now, kill_wait);
    }
    std::vector<pollfd> events{{command.watch(), POLLIN, 0}};
    for (const bounded_output* one : outputs) events.push_back({one->fd(), POLLIN, 0});
    const int patience = poll_timeout(until - now);
    ::poll(events.data(), static_cast<nfds_t>(events.size()),
           command.watch() >= 0 ? patience : std::min(patience, unwatched_nap_ms));
    std::size_t at = 1;
    for (bounded_output* one : outputs)
      if (events[at++].revents != 0) one->collect();
  }
  return killed ? exit_wait::killed : exit_wait::exited;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_MEMBERS_HPP
