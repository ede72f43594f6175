// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A lifespan in an asio event loop: no thread waits for signals, the loop does.

#include <signal.h>
#include <unistd.h>

#include <asio.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <system_error>
#include <thread>

#include <curfew/ordered_lifespan.hpp>

// [loop]
/// Runs \p loop until \p life has stopped. Stages may use the loop to the end: it goes on turning while they stop.
int run_in_loop(curfew::ordered_lifespan& life, asio::io_context& loop) {
  auto keep_turning = asio::make_work_guard(loop);
  asio::posix::stream_descriptor signals(loop, ::dup(life.native_handle()));
  std::thread stopper;
  std::function<void(std::error_code)> on_signal = [&](std::error_code failed) {
    if (failed) return;
    life.poll_signals();  // silences the descriptor, reloads, fires life.token()
    if (!life.token().stop_requested()) {
      signals.async_wait(asio::posix::stream_descriptor::wait_read, on_signal);
      return;
    }
    stopper = std::thread([&] {
      life.stop();
      keep_turning.reset();
    });
  };
  signals.async_wait(asio::posix::stream_descriptor::wait_read, on_signal);
  loop.run();
  if (stopper.joinable()) stopper.join();
  return life.report().exit_code;
}
// [/loop]

int main() {
  curfew::ordered_lifespan life;
  asio::io_context loop;
  asio::steady_timer ticks(loop);
  int count = 0;
  bool stopped = false;  // touched by the loop's thread alone
  std::function<void(std::error_code)> tick = [&](std::error_code cancelled) {
    if (cancelled || stopped) return;
    if (++count == 3) ::raise(SIGTERM);
    ticks.expires_after(std::chrono::milliseconds(1));
    ticks.async_wait(tick);
  };
  life.add("ticks").start([&] { asio::post(loop, [&] { tick({}); }); }).stop([&] {
    // A timer belongs to the loop's thread, so it is cancelled there. cancel() does not reach a tick that has expired
    // and is queued: that one comes without an error, and would wind the timer up again.
    asio::post(loop, asio::use_future([&] {
                 stopped = true;
                 ticks.cancel();
               }))
        .wait();
    std::printf("stopped after at least three ticks: %s\n", count >= 3 ? "yes" : "no");
  });
  if (!life.start()) return life.report().exit_code;
  return run_in_loop(life, loop);
}
