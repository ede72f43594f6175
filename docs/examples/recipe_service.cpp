// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The shape of an RPC service, as generated code would call it: unary calls, a stream, health, and a stop in order.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/ordered_lifespan.hpp>

// [service]
enum class status { ok, unavailable, not_serving };

/// What stands between the server and every method: an interceptor.
class gate {
 public:
  template <class Method>
  status call(Method&& method, curfew::source_location where = curfew::source_location::current()) {
    const auto pass = calls_.try_enter(where);
    if (!pass) return status::unavailable;  // a client takes this as: try another replica
    return method(pass);
  }
  curfew::traced_admission_fence& fence() { return calls_; }

 private:
  curfew::traced_admission_fence calls_{"calls"};  // a report names what holds up the stop
};

class greeter {
 public:
  greeter(gate& calls, const curfew::ordered_lifespan& life) : calls_(calls), life_(life) {}

  status say_hello(std::string& reply) {
    return calls_.call([&](const auto&) {
      reply = "hello";
      return status::ok;
    });
  }

  /// A stream has no end of its own, so it looks whether it should come to one.
  status watch(const std::function<void(int)>& send) {
    return calls_.call([&](const auto& pass) {
      for (int event = 1; !pass.closing(); ++event) send(event);
      return status::ok;
    });
  }

  /// For the load balancer: turns before the first call is refused, by `announce` in the options.
  status check() const { return life_.ready() ? status::ok : status::not_serving; }

 private:
  gate& calls_;
  const curfew::ordered_lifespan& life_;
};
// [/service]

int main() {
  gate calls;
  // [life]
  curfew::lifespan_options options;
  options.announce = std::chrono::milliseconds(5);  // as long as the load balancer needs to notice
  curfew::ordered_lifespan life(options);
  greeter service(calls, life);
  std::vector<std::jthread> transport;  // the server's threads, which a real one has inside
  life.add("database").stop([] { std::puts("database closed, after the last call"); });
  life.add("rpc")
      .after("database")
      .fence(calls.fence())
      .start([&] {
        transport.emplace_back([&] {
          int events = 0;
          const status end = service.watch([&](int event) {
            events = event;
            if (event == 3) std::raise(SIGTERM);
            std::this_thread::yield();
          });
          std::printf("stream ended %s\n", end == status::ok && events >= 3 ? "well" : "badly");
        });
        transport.emplace_back([&] {
          std::string reply;
          while (service.say_hello(reply) == status::ok) std::this_thread::yield();
          if (service.check() != status::not_serving) std::puts("still advertised");
        });
      })
      .stop([&] { transport.clear(); });
  return life.run();
  // [/life]
}
