// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The guide's pages on admission_fence.

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

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
  return jobs.is_closed() ? 5 : 0;
}
