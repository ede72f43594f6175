// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A server as it is often written. SIGTERM arrives while two requests are running.

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

// [parts]
struct pool {
  std::atomic<bool> open{true};
  bool query() const { return open; }
  void shutdown() { open = false; }
};

struct server {
  pool& database;
  std::atomic<bool> stopping{false};
  std::atomic<int> at_work{0};

  std::string handle(int request) {
    if (!database.query()) return "request " + std::to_string(request) + ": 500, the pool is closed";
    work();
    if (!database.query()) return "request " + std::to_string(request) + ": 500, the pool was closed under it";
    return "request " + std::to_string(request) + ": 200";
  }

  // Stands for what takes its time: it is under way when SIGTERM comes, and goes on for 40 ms.
  void work() {
    ++at_work;
    while (!stopping) std::this_thread::yield();
    std::this_thread::sleep_for(40ms);
  }
};
// [/parts]

// [handler]
pool* the_pool = nullptr;
server* the_server = nullptr;

// Two mistakes in two lines: it runs on whatever thread it interrupts, with whatever lock that thread holds, and it
// takes the pool away before the requests that use it have ended.
void on_term(int) {
  the_pool->shutdown();
  the_server->stopping = true;
}
// [/handler]

// [main]
int main() {
  pool database;
  server http{database};
  the_pool = &database;
  the_server = &http;
  std::signal(SIGTERM, on_term);

  std::string answers[3];
  std::vector<std::thread> requests;
  for (int i = 0; i != 2; ++i) requests.emplace_back([&, i] { answers[i] = http.handle(i); });
  while (http.at_work != 2) std::this_thread::yield();
  std::raise(SIGTERM);
  answers[2] = http.handle(2);  // nobody keeps new ones out
  for (auto& one : requests) one.join();
  for (const auto& answer : answers) std::puts(answer.c_str());
}
// [/main]
