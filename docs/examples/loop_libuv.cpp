// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A lifespan in a libuv event loop: no thread waits for signals, the loop does.

#include <signal.h>
#include <uv.h>

#include <cstdio>
#include <thread>

#include <curfew/ordered_lifespan.hpp>

// [loop]
/// Watches a lifespan from a loop. The loop ends when the lifespan has stopped and nothing else is active in it.
class lifespan_in_loop {
 public:
  lifespan_in_loop(curfew::ordered_lifespan& life, uv_loop_t* loop) : life_(life) {
    uv_poll_init(loop, &signals_, life.native_handle());
    uv_async_init(loop, &stopped_,
                  [](uv_async_t* handle) { uv_close(reinterpret_cast<uv_handle_t*>(handle), nullptr); });
    signals_.data = this;
    uv_poll_start(&signals_, UV_READABLE,
                  [](uv_poll_t* handle, int, int) { static_cast<lifespan_in_loop*>(handle->data)->on_signal(); });
  }
  /// After the loop has ended.
  ~lifespan_in_loop() {
    if (stopper_.joinable()) stopper_.join();
  }
  lifespan_in_loop(const lifespan_in_loop&) = delete;
  lifespan_in_loop& operator=(const lifespan_in_loop&) = delete;

 private:
  void on_signal() {
    life_.poll_signals();  // silences the descriptor, reloads, fires life.token()
    if (!life_.token().stop_requested()) return;
    uv_close(reinterpret_cast<uv_handle_t*>(&signals_), nullptr);
    // The loop goes on turning meanwhile, so that stages may use it to their end.
    stopper_ = std::thread([this] {
      life_.stop();
      uv_async_send(&stopped_);
    });
  }

  curfew::ordered_lifespan& life_;
  uv_poll_t signals_;
  uv_async_t stopped_;
  std::thread stopper_;
};
// [/loop]

int main() {
  curfew::ordered_lifespan life;
  uv_loop_t* loop = uv_default_loop();
  uv_timer_t timer;
  uv_timer_init(loop, &timer);
  life.add("work").stop([] { std::printf("stopped\n"); });
  if (!life.start()) return life.report().exit_code;
  {
    lifespan_in_loop watch(life, loop);
    uv_timer_start(
        &timer,
        [](uv_timer_t* handle) {
          uv_close(reinterpret_cast<uv_handle_t*>(handle), nullptr);
          ::raise(SIGTERM);
        },
        3, 0);
    uv_run(loop, UV_RUN_DEFAULT);
  }
  uv_loop_close(loop);
  return life.report().exit_code;
}
