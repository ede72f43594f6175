// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The guide's page on teardown.

#include <cstdio>
#include <functional>
#include <mutex>
#include <string>

#include <curfew/teardown.hpp>

namespace {

// [detach]
class subscription {
 public:
  explicit subscription(std::function<void(std::string)> on_end) : on_end_(std::move(on_end)) {}

  /// From any thread, also from within the callback: whoever comes first calls it, with no lock held.
  bool end(const std::string& why) {
    return curfew::detach_then(mutex_, on_end_, [&](std::function<void(std::string)> callback) { callback(why); });
  }

 private:
  std::mutex mutex_;
  std::function<void(std::string)> on_end_;
};
// [/detach]

// [slot]
struct connection {
  std::string peer;
};

/// At most one connection. Whatever takes it out says why, and it is hung up exactly once.
class line {
 public:
  bool connect(connection c) { return slot_.try_install(std::move(c)); }
  bool switch_to(connection c) { return slot_.replace(std::move(c)); }
  void close_for_good() { slot_.seal(); }

 private:
  struct hang_up {
    void operator()(connection& c, curfew::teardown_reason) const { std::printf("bye, %s\n", c.peer.c_str()); }
  };
  curfew::detach_slot<connection, hang_up> slot_{hang_up{}};
};
// [/slot]

// [once]
class service {
 public:
  /// However many threads call this, the work is done once, and nobody returns before it is done.
  void shutdown() {
    shutdown_.run([&] { std::printf("shut down\n"); });
  }

 private:
  curfew::once_teardown shutdown_;
};
// [/once]

}  // namespace

int main() {
  int calls = 0;
  subscription s{[&](std::string) {
    ++calls;
    if (s.end("again")) calls = 100;
  }};
  if (!s.end("done") || s.end("late") || calls != 1) return 1;

  line l;
  if (!l.connect({"ada"}) || l.connect({"bob"}) || !l.switch_to({"bob"})) return 2;
  l.close_for_good();
  if (l.connect({"cyd"})) return 3;

  service v;
  v.shutdown();
  v.shutdown();
  return 0;
}
