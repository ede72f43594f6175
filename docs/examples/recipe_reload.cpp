// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Configuration that SIGHUP replaces while requests use it. A request keeps the one it began with; a broken file
// changes nothing.

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>

// [config]
struct config {
  int version;
  std::string greeting;
};

/// Stands in for reading a file. Throws when it makes no sense.
std::unique_ptr<config> load(int version) {
  if (version == 2) throw std::runtime_error("line 7: expected a number");
  return std::make_unique<config>(config{version, "hello"});
}

struct config_traits {
  static std::unique_ptr<config> make() { return load(1); }
};
constinit curfew::guarded_singleton<config, config_traits> settings{"settings"};
// [/config]

int main() {
  int next = 2;
  std::atomic<int> failures = 0;
  // [reload]
  curfew::lifespan_options options;
  options.on_hangup = [&] {  // on the thread in run(), one at a time, never inside the handler
    try {
      settings.set(load(next++));  // the handle of the old one goes at once; whoever still reads it keeps it alive
    } catch (const std::exception& broken) {
      std::printf("kept the old one: %s\n", broken.what());
      ++failures;
    }
  };
  curfew::ordered_lifespan life(options);
  // [/reload]
  std::jthread client;
  life.add("server")
      .start([&] {
        client = std::jthread([&] {
          const auto request = settings.get();  // pinned: the same for the whole request
          std::raise(SIGHUP);
          while (failures == 0) std::this_thread::yield();
          std::raise(SIGHUP);
          while (!request.detached()) std::this_thread::yield();
          std::printf("this request: version %d, the next one: version %d\n", request->version,
                      settings.get()->version);
          std::raise(SIGTERM);
        });
      })
      .stop([&] { client.join(); });
  const int code = life.run();
  settings.shutdown();
  return code;
}
