// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the tests of ordered_lifespan share: a journal of what happened in which order, hooks that hang until they are
/// let go, and children in which a real signal may do its worst.

#ifndef CURFEW_TESTS_SUPPORT_LIFESPAN_PROBE_HPP
#define CURFEW_TESTS_SUPPORT_LIFESPAN_PROBE_HPP

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/ordered_lifespan.hpp>

#include "support/park.hpp"

namespace curfew_test {

using curfew::lifespan_options;
using curfew::lifespan_phase;
using curfew::lifespan_report;
using curfew::lifespan_state;
using curfew::stage_context;
using curfew::stage_outcome;
using curfew::stage_record;
using curfew::stop_cause;
using curfew::urgency;

/// ThreadSanitizer delivers signals only in waits that it knows, and not at all in the forked child of a process with
/// threads, in which it does not allow threads either.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif
#else
inline constexpr bool thread_sanitizer = false;
#endif

/// AddressSanitizer's allocator does not survive a fork while another thread allocates.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool address_sanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif
#else
inline constexpr bool address_sanitizer = false;
#endif

/// A hook that sends its process a signal and stays until that has been noticed. For the kernel any thread may take it,
/// also one that is ending, and ThreadSanitizer drops what a thread takes in its last steps; so nobody ends meanwhile.
inline auto send_and_await(int signo) {
  return [signo](const stage_context& context) {
    ::kill(::getpid(), signo);
    context.sleep_or_stop(patience);
  };
}

/// Calls \p tell on the controller when \p life runs, and no thread of its start hooks is left to take a signal.
template <class Lifespan, class Tell>
void when_running(Lifespan& life, Tell tell) {
  life.observe([&life, tell](const curfew::lifespan_event& event) {
    if (event.kind == curfew::lifespan_event_kind::state_changed && life.state() == lifespan_state::running) tell();
  });
}

/// One turn of a busy loop.
inline void spin() {
  if (thread_sanitizer) std::this_thread::sleep_for(1us);
  curfew::std_sync::pause();
}

class journal {
 public:
  void operator()(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  std::string text() const {
    std::string all;
    for (const auto& line : lines()) all += (all.empty() ? "" : " ") + line;
    return all;
  }
  std::size_t count(std::string_view line) const {
    const auto all = lines();
    return static_cast<std::size_t>(std::count(all.begin(), all.end(), line));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// A hook that hangs until the test is over. Shared, because the lifespan keeps an abandoned hook for ever.
class hang {
 public:
  hang() : inside_(std::make_shared<state>()) {}
  ~hang() {
    inside_->let_go.open();
    if (inside_->came.is_open() && !inside_->left.wait()) std::abort();
  }
  hang(const hang&) = delete;
  hang& operator=(const hang&) = delete;

  auto hook() const {
    return [inside = inside_](const stage_context&) {
      inside->came.open();
      static_cast<void>(inside->let_go.wait());
      inside->left.open();
    };
  }
  bool wait_came() const { return inside_->came.wait(); }
  void let_go() { inside_->let_go.open(); }
  bool wait_left() const { return inside_->left.wait(); }

 private:
  struct state {
    gate came, let_go, left;
  };
  std::shared_ptr<state> inside_;
};

/// No signals, and budgets that a loaded machine cannot exhaust by accident.
inline lifespan_options quiet() {
  lifespan_options options;
  options.owned_signals = {};
  options.stage_close = options.stage_stop = options.stage_drain = options.stage_start = patience;
  options.start_budget = options.stop_budget = 4 * patience;
  return options;
}

inline const stage_record* find(const lifespan_report& report, std::string_view stage, lifespan_phase phase) {
  for (const auto& record : report.records) {
    if (record.stage == stage && record.phase == phase) return &record;
  }
  return nullptr;
}

/// "stage.phase=outcome ..." in the order of the report.
inline std::string outcomes(const lifespan_report& report) {
  std::string all;
  for (const auto& record : report.records) {
    all += (all.empty() ? "" : " ") + record.stage + "." + curfew::to_string(record.phase) + "=" +
           curfew::to_string(record.outcome);
  }
  return all;
}

/// What a child starts with must not depend on how the tests were started: a job in the background ignores SIGINT.
inline void start_afresh() {
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
    if (::signal(signo, SIG_DFL) == SIG_ERR) std::abort();
  }
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

inline const pid_t test_process = ::getpid();

/// Forks a child that runs \p body and leaves with what that returns. A child of the tests starts afresh; a child of
/// such a child has what it inherits.
template <class Body>
pid_t spawn_child(Body body) {
  const bool first = ::getpid() == test_process;
  const pid_t child = ::fork();
  if (child == 0) {
    if (first) start_afresh();
    ::alarm(60);
    int code = 125;
    try {
      code = body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
    }
    std::fflush(nullptr);
    ::_exit(code);
  }
  return child;
}

/// Runs \p body in a forked child, which is killed when it takes too long. The result is a wait status.
template <class Body>
int in_child(Body body) {
  const pid_t child = spawn_child(std::move(body));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// What a shell would say about it: the exit code, or 128 + signal.
inline int shell_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : -1;
}

/// A pipe over which a child tells its parent how far it is.
class channel {
 public:
  channel() {
    if (::pipe(ends_) != 0) std::abort();
  }
  ~channel() {
    for (const int end : ends_) {
      if (end >= 0) ::close(end);
    }
  }
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;

  void tell(char word) const {
    if (::write(ends_[1], &word, 1) != 1) ::_exit(126);
  }
  /// The next word, 0 when the other side has gone.
  char hear() {
    if (ends_[1] >= 0) ::close(std::exchange(ends_[1], -1));
    char word = 0;
    for (;;) {
      const auto got = ::read(ends_[0], &word, 1);
      if (got == 1) return word;
      if (got == 0 || errno != EINTR) return 0;
    }
  }
  int reader() const { return ends_[0]; }

 private:
  int ends_[2] = {-1, -1};
};

/// This program, for starting it again by way of another one.
inline std::string own_path() {
  char path[4096];
  const auto length = ::readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : std::string();
}

inline int reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return shell_code(status);
}

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_LIFESPAN_PROBE_HPP
