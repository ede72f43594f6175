// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The guide's pages on admission_fence.

#include <chrono>
#include <coroutine>
#include <cstdio>
#include <exception>
#include <queue>
#include <string>
#include <thread>
#include <utility>

#include <curfew/admission_fence.hpp>

using namespace std::chrono_literals;

namespace {

// [serve]
class server {
 public:
  /// Any thread. False: we are stopping, and nothing of this request was touched.
  bool serve(const std::string& request) {
    return requests_.run([&] { handle(request); });
  }

  /// When this returns, no request is running, none will, and the server may be destroyed at once.
  void stop() { requests_.drain(); }

 private:
  void handle(const std::string& request) { std::printf("%s\n", request.c_str()); }

  curfew::admission_fence requests_{"requests"};
};
// [/serve]

// [pass]
/// Work that outlives the call that admitted it takes its pass along. It may be released on any thread.
std::thread start_job(curfew::admission_fence& jobs) {
  auto pass = jobs.enter();  // throws admission_refused, naming the fence, when it is closed
  return std::thread([pass = std::move(pass)] {
    for (int step = 0; step < 3; ++step) {
      if (pass.closing()) return;  // somebody waits for us: finish early
    }
  });
}
// [/pass]

// [patience]
/// A bound on the wait. What did not leave in time is named and counted, and the fence stays closed.
bool stop_within(curfew::admission_fence& jobs, std::chrono::milliseconds patience) {
  const curfew::drain_result result = jobs.drain_for(patience);
  if (!result) std::printf("%s: %llu still inside\n", jobs.name(), static_cast<unsigned long long>(result.remaining));
  return static_cast<bool>(result);
}
// [/patience]

// [traced]
/// The same, and who it was: for_each_inside() gives the records themselves.
bool stop_and_tell(curfew::traced_admission_fence& jobs, std::chrono::milliseconds patience) {
  if (jobs.drain_for(patience)) return true;
  std::printf("%s", jobs.describe_inside().c_str());  // file, line, thread and age of each pass
  return false;
}
// [/traced]

struct task {
  struct promise_type {
    task get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};
using queue = std::queue<std::coroutine_handle<>>;

// [coroutine]
/// Goes on when the last one has left, on the thread that `post` is for. Without an argument it goes on in the very
/// release() or close() that emptied the fence. It may destroy the fence then: nobody looks at it again.
task clean_up(curfew::admission_fence& jobs, queue& post) {
  co_await jobs.drained([&post](std::coroutine_handle<> self) noexcept { post.push(self); });
  std::printf("the last job has left\n");
}
// [/coroutine]

}  // namespace

int main() {
  server s;
  if (!s.serve("a")) return 1;
  s.stop();
  if (s.serve("b")) return 2;

  curfew::admission_fence jobs{"jobs"};
  std::thread job = start_job(jobs);
  job.join();
  auto late = jobs.enter();
  if (stop_within(jobs, 10ms)) return 3;
  late.release();
  if (!stop_within(jobs, 10ms)) return 4;

  // [reopen]
  jobs.reopen();  // closed and empty: open again, as a new epoch
  auto one = jobs.enter();
  jobs.close();
  jobs.cancel_close();  // closed with somebody still inside: never mind, carry on
  // [/reopen]
  if (jobs.is_closed()) return 5;

  curfew::traced_admission_fence traced{"traced"};
  auto culprit = traced.enter();
  if (stop_and_tell(traced, 0ms)) return 6;
  culprit.release();

  queue ready;
  clean_up(jobs, ready);
  one.release();
  curfew::admission_fence uploads{"uploads"};
  // [close_all]
  curfew::admission_fence* const all[] = {&jobs, &uploads};
  curfew::admission_fence::close_all(all);  // refuse everywhere first, then wait for each
  // [/close_all]
  if (ready.size() != 1) return 7;
  ready.front().resume();
  return uploads.is_drained() ? 0 : 8;
}
