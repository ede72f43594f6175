// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The thread that forks. On Linux a child can ask to be killed when its parent dies, but the kernel means the parent
/// *thread*: a child made by a thread of some pool would die with that thread. So all children are made by one thread
/// that lives as long as their owner. POSIX only.

#ifndef CURFEW_DETAIL_PROCESS_FORKER_HPP
#define CURFEW_DETAIL_PROCESS_FORKER_HPP

#include <cerrno>
#include <mutex>
#include <optional>

#include <curfew/detail/config.hpp>
#include <curfew/detail/process_group.hpp>
#include <curfew/detail/process_spawn.hpp>
#include <curfew/detail/sync.hpp>

#if CURFEW_POSIX
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class process_forker {
 public:
  process_forker() = default;
  process_forker(const process_forker&) = delete;
  process_forker& operator=(const process_forker&) = delete;

  /// Ends the thread; children that still live are then killed by the kernel.
  ~process_forker() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_one();
    thread_.join();
  }

  /// Forks a child that becomes what \p plan says and waits until it has, or has failed to. Returns an empty child on
  /// failure, with \p failed naming the call and \p error its errno; then nothing is left of it.
  ///
  /// Throws what starting the thread throws, on the first call. Any number of threads may call; forks go one after the
  /// other, waiting for the exec does not.
  child_process spawn(spawn_plan& plan, const char*& failed, int& error) {
    owned_fd report, write_end;
    if (!make_pipe(report, write_end)) {
      failed = "pipe", error = errno;
      return {};
    }
    plan.report = write_end.get();
    plan.host = ::getpid();
    Sync::here("process_forker.spawn.ready");
    order mine{&plan};
    {
      std::unique_lock lock(mutex_);
      if (!thread_.joinable()) thread_ = typename Sync::thread([this] { serve(); });
      mine.next = first_;
      first_ = &mine;
      work_.notify_one();
      done_.wait(lock, [&] { return mine.done; });
    }
    write_end.reset();  // now only the child holds it
    if (mine.pid < 0) {
      failed = "fork", error = mine.error;
      return {};
    }
    child_process child(mine.pid);
    ::setpgid(mine.pid, plan.group);  // both sides set it: the group exists for whichever looks first
    const std::optional<spawn_report> bad = read_report(report.get());
    if (!bad) return child;
    failed = bad->what(), error = bad->error;
    // It has reported and is about to exit; or it hangs, and has to be made to.
    child.signal(SIGKILL);
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    child.reap();
    return {};
  }

 private:
  struct order {
    const spawn_plan* plan;
    order* next = nullptr;
    pid_t pid = -1;
    int error = 0;
    bool done = false;
  };

  /// Nothing when the exec succeeded. A child that does not get there within half a minute counts as failed: a host
  /// that forked at the wrong moment on its own may hold the pipe open, and the file system below the directory may
  /// hang.
  static std::optional<spawn_report> read_report(int fd) noexcept {
    constexpr int patience_ms = 30'000;
    pollfd entry{fd, POLLIN, 0};
    int ready;
    do {
      ready = ::poll(&entry, 1, patience_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) return spawn_report{spawn_report::exec, ETIMEDOUT};
    spawn_report text{};
    ssize_t got;
    do {
      got = ::read(fd, &text, sizeof text);
    } while (got < 0 && errno == EINTR);
    if (got == static_cast<ssize_t>(sizeof text)) return text;
    return std::nullopt;
  }

  void serve() noexcept {
    // The child inherits this mask: no handler of the host may run in it before the dispositions are reset.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return stopping_ || first_ != nullptr; });
      if (first_ == nullptr) return;
      order* const mine = first_;
      first_ = mine->next;
      lock.unlock();
      const pid_t pid = ::fork();
      const int error = errno;
      if (pid == 0) mine->plan->become();
      lock.lock();
      mine->pid = pid;
      mine->error = error;
      mine->done = true;
      done_.notify_all();
    }
  }

  typename Sync::mutex mutex_;
  typename Sync::condition_variable work_, done_;
  order* first_ = nullptr;
  bool stopping_ = false;
  typename Sync::thread thread_;
};

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_PROCESS_FORKER_HPP
