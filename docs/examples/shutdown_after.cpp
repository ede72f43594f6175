// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The same server under an ordered_lifespan.

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/signals.hpp>

using namespace std::chrono_literals;

// [pool]
struct pool {
  std::atomic<bool> open{false};
  bool query() const { return open; }
  void start() { open = true; }
  void shutdown() { open = false; }

  // For programs that have no lifespan. Under one it does nothing, so the pool is not taken away under anybody.
  curfew::fallback_signal_guard on_term{{SIGTERM}, [this](int) { shutdown(); }};
};
// [/pool]

// [server]
struct server {
  pool& database;
  curfew::admission_fence requests{"requests"};

  std::string handle(int request) {
    const auto pass = requests.try_enter();
    if (!pass) return "request " + std::to_string(request) + ": 503, try another one";
    if (!database.query()) return "request " + std::to_string(request) + ": 500, the pool is closed";
    work(pass);
    if (!database.query()) return "request " + std::to_string(request) + ": 500, the pool was closed under it";
    return "request " + std::to_string(request) + ": 200";
  }

  // As before: under way when SIGTERM comes, and goes on for 40 ms.
  static void work(const curfew::admission_fence::pass& pass) {
    while (!pass.closing()) std::this_thread::yield();
    std::this_thread::sleep_for(40ms);
  }
};
// [/server]

/// What the clients get. The third of them comes while the server drains.
class clients {
 public:
  explicit clients(server& http) : http_(http) {}
  void begin(std::size_t request) {
    threads_.emplace_back([this, request] {
      auto answer = http_.handle(static_cast<int>(request));
      const std::lock_guard lock(mutex_);
      answers_[request] = std::move(answer);
    });
  }
  void print() {
    for (auto& one : threads_) one.join();
    for (const auto& answer : answers_) std::puts(answer.c_str());
  }

 private:
  server& http_;
  std::mutex mutex_;
  std::array<std::string, 3> answers_;
  std::vector<std::thread> threads_;
};

// [main]
int main() {
  curfew::lifespan_options options;
  options.stop_budget = 25s;  // less than what the supervisor grants: 30 s in Kubernetes, TimeoutStopSec in systemd
  curfew::ordered_lifespan life(options);  // before anything that may want a signal, or start a thread

  pool database;
  server http{database};
  clients all(http);

  life.add("pool").start([&] { database.start(); }).stop([&] { database.shutdown(); });
  life.add("http")
      .after("pool")         // so it is stopped before it
      .fence(http.requests)  // nobody new from the first barrier on; the second one waits for those inside
      .drain([&] { all.begin(2); })
      .budget(curfew::lifespan_phase::drain, 10s);
  // [/main]

  life.add("two requests, and a SIGTERM").after("http").start([&] {
    all.begin(0);
    all.begin(1);
    while (http.requests.inside() != 2) std::this_thread::yield();
    std::raise(SIGTERM);
  });

  // [run]
  const int code = life.run();
  all.print();
  for (const auto& record : life.report().records) {
    std::printf("%s %s: %s\n", record.stage.c_str(), to_string(record.phase), to_string(record.outcome));
  }
  std::fputs(life.report().to_string().c_str(), stderr);  // with times, for a person
  return code;
}
// [/run]
