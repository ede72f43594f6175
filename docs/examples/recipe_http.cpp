// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// An HTTP server (cpp-httplib) that a real SIGTERM stops in the middle of a request: that one is answered, a later one
// gets 503 until the listener goes.

#include <httplib.h>

#include <csignal>
#include <cstdio>
#include <thread>

#include <curfew/admission_fence.hpp>
#include <curfew/ordered_lifespan.hpp>

int main() {
  curfew::ordered_lifespan life;  // first, so that the server's threads leave SIGTERM to it
  // [server]
  curfew::admission_fence requests{"requests"};
  httplib::Server server;
  const auto admitted = [&](auto handle) {
    return [&requests, handle](const httplib::Request& request, httplib::Response& response) {
      if (const auto pass = requests.try_enter()) {
        handle(request, response, pass);
      } else {
        response.status = 503;
        response.set_header("Connection", "close");
      }
    };
  };
  server.Get("/health",
             [&](const httplib::Request&, httplib::Response& response) { response.status = life.ready() ? 200 : 503; });
  // [/server]
  const int port = server.bind_to_any_port("127.0.0.1");
  if (port < 0) return 1;
  server.Get("/work",
             admitted([](const auto&, auto& response, const auto&) { response.set_content("done", "text/plain"); }));
  server.Get("/slow", admitted([&](const auto&, auto& response, const auto& pass) {
               std::raise(SIGTERM);
               while (!pass.closing()) std::this_thread::yield();
               httplib::Client late("127.0.0.1", port);
               const auto refused = late.Get("/work");
               std::printf("late request: %d\n", refused ? refused->status : 0);
               response.set_content("done", "text/plain");
             }));
  // [stage]
  std::jthread listener;
  life.add("http")
      .fence(requests)
      .start([&] { listener = std::jthread([&] { server.listen_after_bind(); }); })
      .stop([&] {
        server.stop();
        listener.join();
      });
  // [/stage]
  std::jthread client;
  life.add("client")
      .start([&] {
        client = std::jthread([port] {
          httplib::Client ours("127.0.0.1", port);
          const auto answer = ours.Get("/slow");
          std::printf("request under way: %d\n", answer ? answer->status : 0);
        });
      })
      .drain([&] { client.join(); });
  return life.run();
}
