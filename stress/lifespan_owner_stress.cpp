// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Real signals while ownership changes hands: one thread makes and destroys a lifespan that owns SIGUSR1, another one
// sends that signal to the process. Each must reach the lifespan or the handler that was there before it, and no
// handler may write to the descriptor of a lifespan that is gone, which a pipe in its place would notice.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <curfew/ordered_lifespan.hpp>

#include "stress/support/stress.hpp"

namespace {

using lifespan = curfew::basic_ordered_lifespan<stress::noise_sync>;

std::atomic<unsigned> before{0};

struct scenario {
  static constexpr unsigned roles = 2;

  explicit scenario(stress::rng& random) : signals_(1 + static_cast<unsigned>(random.below(4))) {
    ::signal(SIGUSR1, [](int) { before.fetch_add(1); });
    before.store(0);
    if (::pipe2(ends_, O_NONBLOCK | O_CLOEXEC) != 0) std::abort();
  }
  ~scenario() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  void role(unsigned i) {
    if (i == 1) {
      for (unsigned n = 0; n != signals_; ++n) ::raise(SIGUSR1);  // on this thread: none is merged with another
      return;
    }
    int victim = -1;
    {
      curfew::lifespan_options options;
      options.owned_signals = {SIGUSR1};
      options.escalation_guard = std::chrono::hours(1);
      lifespan life(options);
      victim = life.native_handle();
      const auto& report = life.stop();
      for (const auto& [signo, count] : report.signals) owned_ += count;
    }
    // Whoever still rings there rings here.
    ::dup2(ends_[1], victim);
    for (int look = 0; look != 4; ++look) std::this_thread::yield();
    char byte = 0;
    if (::read(ends_[0], &byte, 1) == 1) hit_.store(true);
    ::close(victim);
  }

  void finish() {
    STRESS_CHECK(!hit_.load());
    STRESS_CHECK(before.load() + owned_ <= signals_);
    struct sigaction now {};
    ::sigaction(SIGUSR1, nullptr, &now);
    STRESS_CHECK(now.sa_handler != SIG_DFL);
    STRESS_CHECK(!curfew::shutdown_owned(SIGUSR1));
    const unsigned known = before.load();
    ::raise(SIGUSR1);
    STRESS_CHECK(before.load() == known + 1);
    stress::count(0, owned_);
    stress::count(1, known);
  }

  const unsigned signals_;
  unsigned owned_ = 0;
  int ends_[2];
  std::atomic<bool> hit_{false};
};

}  // namespace

int main(int argc, char** argv) {
  return stress::run<scenario>(argc, argv, "lifespan_owner");
}
