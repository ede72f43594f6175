// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A thread pool whose shutdown finishes what was accepted, refuses what comes later, and leaves no task behind.

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/teardown.hpp>

// [pool]
class thread_pool {
 public:
  using pass = curfew::admission_fence::pass;
  using work = std::function<void(const pass& mine)>;

  explicit thread_pool(unsigned threads) {
    while (threads-- > 0) threads_.emplace_back([this] { serve(); });
  }
  ~thread_pool() { shutdown(); }

  /// False once shutdown() has begun. Otherwise \p f will run before shutdown() returns.
  bool submit(work f) {
    pass mine = accepted_.try_enter();
    if (!mine) return false;
    enqueue(std::move(mine), std::move(f));
    return true;
  }

  /// For work that is a part of other work: accepted also while the pool shuts down, since what it belongs to was.
  void submit_part(const pass& whole, work f) { enqueue(whole.clone(), std::move(f)); }

  /// Any thread but those of the pool, any number of times: returns when all is done and every thread has ended.
  void shutdown() {
    once_.run([this] {
      accepted_.drain();  // queued tasks hold a pass each, so this waits for them, too
      {
        const std::lock_guard lock(mutex_);
        ended_ = true;
      }
      changed_.notify_all();
      threads_.clear();
    });
  }

 private:
  struct task {
    pass mine;
    work f;
  };

  void enqueue(pass mine, work f) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({std::move(mine), std::move(f)});
    }
    changed_.notify_one();
  }

  void serve() {
    for (;;) {
      task next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
        if (queue_.empty()) return;
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      next.f(next.mine);
    }
  }

  curfew::admission_fence accepted_{"thread pool"};
  curfew::once_teardown once_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<task> queue_;
  bool ended_ = false;
  std::vector<std::jthread> threads_;
};
// [/pool]

int main() {
  std::atomic<int> done = 0;
  int accepted = 0;
  thread_pool pool(2);
  for (; accepted < 100; ++accepted) {
    if (!pool.submit([&](const thread_pool::pass& mine) {
          pool.submit_part(mine, [&](const thread_pool::pass&) { ++done; });
        })) {
      return 1;
    }
  }
  pool.shutdown();
  std::printf("%d accepted, %d done, then: %s\n", accepted, done.load(),
              pool.submit([](const thread_pool::pass&) {}) ? "accepted" : "refused");
}
