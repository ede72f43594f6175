// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What docs/migration.md puts side by side. Both sides compile and run; the left ones are as they are found in the
// wild, with their faults.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/teardown.hpp>

struct pool {
  int query() const { return 42; }
  void shutdown() { down = true; }
  std::atomic<bool> down = false;
};

namespace counted::before {
// [counted_before]
class service {
 public:
  bool serve() {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return false;
      ++inside_;
    }
    work();  // an exception leaves the count as it is: stop() never returns
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
    return true;
  }
  void stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    empty_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  void work() {}
  std::mutex mutex_;  // all threads meet here, twice a request
  std::condition_variable empty_;
  bool stopping_ = false;
  int inside_ = 0;
};
// [/counted_before]
}  // namespace counted::before

namespace counted::after {
// [counted_after]
class service {
 public:
  bool serve() {
    return requests_.run([this] { work(); });
  }
  void stop() { requests_.drain(); }

 private:
  void work() {}
  curfew::admission_fence requests_{"requests"};
};
// [/counted_after]
}  // namespace counted::after

namespace swapped::before {
#if defined(__cpp_lib_atomic_shared_ptr)
// [swapped_before]
std::atomic<std::shared_ptr<pool>> current = std::make_shared<pool>();

int query() {
  const std::shared_ptr<pool> mine = current.load();  // every reader writes the same reference count
  return mine != nullptr ? mine->query() : 0;
}
void shutdown() {
  const std::shared_ptr<pool> last = current.exchange(nullptr);
  if (last != nullptr) last->shutdown();  // and when it is destroyed, on which thread, nobody knows
}
// [/swapped_before]
#endif
}  // namespace swapped::before

namespace swapped::after {
// [swapped_after]
constinit curfew::guarded_singleton<pool> current{"pool"};

int query() {
  return current.get()->query();
}
void shutdown() {
  current.seal();                              // pool::shutdown() runs here, once; later a get() throws
  current.drain_for(std::chrono::seconds(5));  // and here its last user has gone
}
// [/swapped_after]
}  // namespace swapped::after

namespace once::before {
// [once_before]
std::once_flag made;
pool* instance = nullptr;
std::atomic<bool> closed = false;

pool& get() {
  std::call_once(made, [] { instance = new pool; });
  return *instance;
}
void reset_for_tests() {  // a once_flag cannot be set back, so it is made anew under everybody's feet
  delete std::exchange(instance, nullptr);
  made.~once_flag();
  new (&made) std::once_flag;
}
void shutdown() {
  if (closed.exchange(true)) return;  // the second caller is back before the first has shut anything down
  instance->shutdown();
}
// [/once_before]
}  // namespace once::before

namespace once::after {
// [once_after]
constinit curfew::guarded_singleton<pool> instance{"pool"};
curfew::once_teardown closed;

auto get() {
  return instance.get();
}
void reset_for_tests() {
  instance.reset();  // who has the old one keeps it until they let go
}
void shutdown() {
  closed.run([] { instance.seal(); });  // the second caller waits for the first
}
// [/once_after]
}  // namespace once::after

namespace stopped::before {
// [stopped_before]
std::atomic<bool> stopping = false;

int run(pool& database) {
  std::signal(SIGTERM, [](int) { stopping = true; });  // whoever else had a handler has lost it
  while (!stopping) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  database.shutdown();  // requests may be inside; if this hangs, SIGKILL ends it
  return 0;
}
// [/stopped_before]
}  // namespace stopped::before

namespace stopped::after {
// [stopped_after]
int run(pool& database, curfew::admission_fence& requests) {
  curfew::ordered_lifespan life;  // gives the signals back when it goes
  life.add("database").stop([&] { database.shutdown(); });
  life.add("requests").after("database").fence(requests);
  return life.run();  // no request is inside when the database stops; what hangs is named, and bounded
}
// [/stopped_after]
}  // namespace stopped::after

int main() {
  counted::before::service old_one;
  counted::after::service new_one;
  bool good = old_one.serve() && new_one.serve();
  old_one.stop();
  new_one.stop();
  good = good && !old_one.serve() && !new_one.serve();
#if defined(__cpp_lib_atomic_shared_ptr)
  good = good && swapped::before::query() == 42;
  swapped::before::shutdown();
#endif
  good = good && swapped::after::query() == 42;
  swapped::after::shutdown();
  good = good && once::before::get().query() == 42 && once::after::get()->query() == 42;
  once::before::reset_for_tests();
  once::after::reset_for_tests();
  good = good && once::before::get().query() == 42 && once::after::get()->query() == 42;
  once::before::shutdown();
  once::after::shutdown();
  delete once::before::instance;
  curfew::admission_fence requests{"requests"};
  pool first;
  pool second;
  const auto ask_to_stop = [] {  // as soon as there is somebody who listens
    struct sigaction now = {};
    while (::sigaction(SIGTERM, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::this_thread::yield();
    ::kill(::getpid(), SIGTERM);
  };
  {
    const std::jthread supervisor(ask_to_stop);
    good = good && stopped::before::run(first) == 0 && first.down;
  }
  std::signal(SIGTERM, SIG_DFL);
  {
    const std::jthread supervisor(ask_to_stop);
    good = good && stopped::after::run(second, requests) == 0;
  }
  std::puts(good ? "both work" : "one does not");
  return good ? 0 : 1;
}
