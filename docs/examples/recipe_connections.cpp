// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A fence in every connection: whoever finds a connection may use it, whoever hangs up does not wait, and the last one
// out frees it. No reference count, no lock held while it is used.

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <curfew/admission_fence.hpp>

// [connection]
std::atomic<int> alive = 0;

struct connection {
  explicit connection(int number) : id(number) { ++alive; }
  ~connection() { --alive; }  // closes the socket

  int id;
  std::atomic<int> sent = 0;
  curfew::compact_admission_fence uses{"connection"};  // 16 bytes
  curfew::drain_hook last_out{[](void* self) noexcept { delete static_cast<connection*>(self); }, this};
};

class connections {
 public:
  using pass = curfew::compact_admission_fence::pass;

  void add(int id) {
    const std::lock_guard lock(mutex_);
    table_.emplace(id, new connection(id));
  }

  /// Calls \p f with the connection, and no lock held. False when there is none of that number.
  template <class F>
  bool use(int id, F&& f) {
    connection* found = nullptr;
    pass mine;
    {
      const std::lock_guard lock(mutex_);  // for the look-up: what is in the table is not closed yet
      const auto at = table_.find(id);
      if (at == table_.end()) return false;
      found = at->second;
      mine = found->uses.try_enter();
    }
    f(*found);
    return true;
  }

  /// Never waits. Nobody finds the connection from here on; it is freed when the last user is out, which may be here.
  bool hang_up(int id) {
    connection* gone = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto at = table_.find(id);
      if (at == table_.end()) return false;
      gone = at->second;
      table_.erase(at);
    }
    gone->uses.on_drained(gone->last_out);  // first, because the connection may be gone once it is closed
    gone->uses.close();
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<int, connection*> table_;
};
// [/connection]

int main() {
  connections all;
  for (int id = 0; id < 1000; ++id) all.add(id);
  std::atomic<int> uses = 0;
  std::vector<std::jthread> senders;
  for (int i = 0; i < 2; ++i) {
    senders.emplace_back([&] {
      for (int id = 0; id < 1000; ++id) {
        while (all.use(id, [&](connection& c) { c.sent += 1, uses += 1; })) std::this_thread::yield();
      }
    });
  }
  for (int id = 0; id < 1000; ++id) {
    all.use(id, [&](connection& c) {
      all.hang_up(id);  // from inside: returns at once
      c.sent += 1;      // still there
    });
  }
  senders.clear();
  std::printf("%d connections left\n", alive.load());
  return alive == 0 ? 0 : 1;
}
