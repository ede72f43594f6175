// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Every detector of the explorer, on a class as a user would write it: with the mistake it is found, confirmed by two
// replays, and found again from the string alone; without it the same body is clean.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include <curfew/testing/explore.hpp>

namespace {

using namespace std::chrono_literals;
using curfew::testing::check;
using curfew::testing::exploration;
using curfew::testing::explore;
using curfew::testing::explore_options;
using curfew::testing::fault;
using curfew::testing::model_sync;
using curfew::testing::search;

// Fails with that fault, is confirmed, and fails in the same way when all there is is its replay string.
template <class Case>
exploration expect_found(fault what, explore_options options = {}) {
  options.print = false;
  options.name = "case";
  const exploration found = explore<Case>(options);
  EXPECT_EQ(found.what, what) << to_string(found.what) << ": " << found.message << "\n" << found.summary();
  EXPECT_TRUE(found.confirmed) << found.story;
  EXPECT_LE(found.choices, 40u) << found.story;
  EXPECT_NE(found.story.find(to_string(what)), std::string::npos);
  options.replay = found.replay;
  const exploration again = explore<Case>(options);
  EXPECT_EQ(again.what, what) << again.message;
  EXPECT_TRUE(again.confirmed);
  EXPECT_EQ(again.message, found.message);
  return found;
}

template <class Case>
void expect_clean(explore_options options = {}) {
  const exploration found = explore<Case>(options);
  EXPECT_EQ(found.what, fault::none) << found.story;
  EXPECT_TRUE(found.complete) << found.summary();
}

// ---- deadlock: two accounts, locked in the order of the transfer ----

template <bool Broken, class Sync = model_sync>
struct transfers {
  static constexpr unsigned roles = 2;
  struct account {
    typename Sync::mutex mutex;
    int balance = 10;
  };
  account accounts[2];
  void role(unsigned i) {
    const bool swapped = Broken && i == 1;
    const std::lock_guard first(accounts[swapped ? 1 : 0].mutex);
    const std::lock_guard second(accounts[swapped ? 0 : 1].mutex);
    accounts[i].balance -= 1;
    accounts[1 - i].balance += 1;
  }
  void finish() { check(accounts[0].balance + accounts[1].balance == 20, "no money lost"); }
};

TEST(Detects, Deadlock) {
  const auto found = expect_found<transfers<true>>(fault::deadlock);
  EXPECT_NE(found.message.find("role 0"), std::string::npos) << found.message;
  EXPECT_EQ(found.preemptions, 1u) << found.story;
  expect_clean<transfers<false>>();
}

// ---- lost wake-up: a queue whose consumer looks before it locks ----

template <bool Broken, class Sync = model_sync>
struct mailbox {
  static constexpr unsigned roles = 2;
  typename Sync::mutex mutex;
  typename Sync::condition_variable filled;
  typename Sync::template atomic<int> letters{0};
  void role(unsigned i) {
    if (i == 0) {
      letters.store(1);
      if constexpr (!Broken) {
        const std::lock_guard lock(mutex);
      }
      filled.notify_one();
    } else {
      std::unique_lock lock(mutex);
      while (letters.load() == 0) filled.wait(lock);
    }
  }
  void finish() {}
};

TEST(Detects, LostWakeup) {
  const auto found = expect_found<mailbox<true>>(fault::lost_wakeup);
  EXPECT_NE(found.message.find("one came before it waited"), std::string::npos) << found.message;
  expect_clean<mailbox<false>>({.spurious_wakeups = 1});
}

// ---- believing a wake-up: the same queue with an if ----

template <bool Broken, class Sync = model_sync>
struct gate {
  static constexpr unsigned roles = 2;
  typename Sync::mutex mutex;
  typename Sync::condition_variable opened;
  bool open = false;
  void role(unsigned i) {
    std::unique_lock lock(mutex);
    if (i == 0) {
      open = true;
      opened.notify_one();
    } else if (Broken) {
      if (!open) opened.wait(lock);
      check(open, "the gate is open");
    } else {
      opened.wait(lock, [this] { return open; });
      check(open, "the gate is open");
    }
  }
  void finish() {}
};

TEST(Detects, SpuriousWakeup) {
  expect_clean<gate<true>>();  // not without
  expect_found<gate<true>>(fault::check_failed, {.spurious_wakeups = 1});
  expect_clean<gate<false>>({.spurious_wakeups = 2});
}

// ---- a mutex taken twice, and by the wrong thread ----

template <class Sync = model_sync>
struct reentrant {
  static constexpr unsigned roles = 1;
  typename Sync::mutex mutex;
  void size() { const std::lock_guard lock(mutex); }
  void role(unsigned) {
    const std::lock_guard lock(mutex);
    size();
  }
  void finish() {}
};

template <class Sync = model_sync>
struct handed_over {
  static constexpr unsigned roles = 2;
  typename Sync::mutex mutex;
  typename Sync::template atomic<bool> locked{false};
  void role(unsigned i) {
    if (i == 0) {
      mutex.lock();
      locked.store(true);
    } else if (locked.load()) {
      mutex.unlock();
    }
  }
  void finish() {
    if (mutex.try_lock()) mutex.unlock();
  }
};

TEST(Detects, MutexMisuse) {
  expect_found<reentrant<>>(fault::self_relock);
  expect_found<handed_over<>>(fault::unowned_unlock);
}

// ---- a callback under a lock ----

template <bool Broken, class Sync = model_sync>
struct observers {
  static constexpr unsigned roles = 2;
  typename Sync::mutex mutex;
  std::function<void()> observer = [] { curfew::testing::foreign("observer"); };
  void role(unsigned) {
    std::unique_lock lock(mutex);
    const auto call = observer;
    if constexpr (!Broken) lock.unlock();
    call();
  }
  void finish() {}
};

TEST(Detects, CallbackUnderLock) {
  expect_found<observers<true>>(fault::callback_under_lock);
  expect_clean<observers<false>>();
}

// ---- a race on plain data: publication without release ----

template <bool Broken, class Sync = model_sync>
struct publication {
  static constexpr unsigned roles = 2;
  typename Sync::template plain<int> value{0};
  typename Sync::template atomic<bool> ready{false};
  void role(unsigned i) {
    if (i == 0) {
      value = 42;
      ready.store(true, Broken ? std::memory_order_relaxed : std::memory_order_release);
    } else if (ready.load(std::memory_order_acquire)) {
      check(value == 42, "published");
    }
  }
  void finish() {}
};

TEST(Detects, DataRace) {
  expect_found<publication<true>>(fault::data_race);
  expect_clean<publication<false>>();
  expect_clean<publication<false>>({.stale_reads = 2});
}

// ---- a missing seq_cst: two flags, each looked at after the other is set ----

template <bool Broken, class Sync = model_sync>
struct dekker {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<bool> wants[2] = {false, false};
  bool inside[2] = {};
  void role(unsigned i) {
    wants[i].store(true, Broken ? std::memory_order_release : std::memory_order_seq_cst);
    inside[i] = !wants[1 - i].load(Broken ? std::memory_order_acquire : std::memory_order_seq_cst);
  }
  void finish() { check(!(inside[0] && inside[1]), "one at most"); }
};

TEST(Detects, MissingSequentialConsistency) {
  expect_clean<dekker<true>>();  // every interleaving is fine: it takes a stale read
  expect_found<dekker<true>>(fault::check_failed, {.stale_reads = 1});
  expect_clean<dekker<false>>({.stale_reads = 2});
}

// ---- use after destroy: the last reference is counted, but not the use after it ----

template <bool Broken, class Sync = model_sync>
struct counted {
  static constexpr unsigned roles = 2;
  struct node {
    typename Sync::template atomic<int> references{2};
    typename Sync::template atomic<int> hits{0};
  };
  std::unique_ptr<node> shared = std::make_unique<node>();
  node* const seen = shared.get();
  void role(unsigned) {
    if constexpr (!Broken) seen->hits.fetch_add(1);
    const bool last = seen->references.fetch_sub(1) == 1;
    if (last) {
      shared.reset();
    } else if constexpr (Broken) {
      seen->hits.fetch_add(1);
    }
  }
  void finish() {}
};

// A reader's reference is dropped without an order: whoever destroys does not know that it is done.
template <bool Broken, class Sync = model_sync>
struct counted_relaxed {
  static constexpr unsigned roles = 2;
  struct node {
    typename Sync::template atomic<int> references{2};
    typename Sync::template plain<int> payload{1};
  };
  std::unique_ptr<node> shared = std::make_unique<node>();
  node* const seen = shared.get();
  void role(unsigned) {
    check(seen->payload == 1, "alive");
    if (seen->references.fetch_sub(1, Broken ? std::memory_order_relaxed : std::memory_order_acq_rel) == 1) {
      shared.reset();
    }
  }
  void finish() {}
};

// Whoever sees that a connection is closed writes its statistics down, from the connection.
template <bool Broken, class Sync = model_sync>
struct connection_report {
  static constexpr unsigned roles = 2;
  struct connection {
    typename Sync::template atomic<int> bytes{7};
  };
  std::optional<connection> open{std::in_place};  // its memory stays: AddressSanitizer would be first otherwise
  connection* const seen = &*open;
  typename Sync::template atomic<int> total{0};
  typename Sync::template atomic<bool> closed{false};
  void role(unsigned i) {
    if (i == 0) {
      if constexpr (!Broken) total.store(open->bytes.load());
      open.reset();
      closed.store(true, std::memory_order_release);
    } else if (closed.load(std::memory_order_acquire)) {
      if constexpr (Broken) total.store(seen->bytes.load());
      check(total.load() == 7, "written down");
    }
  }
  void finish() {}
};

TEST(Detects, UseAfterDestroy) {
  expect_found<connection_report<true>>(fault::use_after_destroy);
  expect_clean<connection_report<false>>();
  expect_found<counted<true>>(fault::destroyed_in_use);
  expect_clean<counted<false>>();
  expect_found<counted_relaxed<true>>(fault::destroyed_in_use);
  expect_clean<counted_relaxed<false>>();
}

// ---- ABA: a free list that compares pointers only ----

template <bool Broken, class Sync = model_sync>
struct free_list {
  static constexpr unsigned roles = 2;
  // Indices in place of pointers, with a version above them unless it is broken.
  typename Sync::template atomic<unsigned> head{1};
  typename Sync::template atomic<unsigned> next[4] = {0, 2, 3, 0};
  int taken[4] = {};

  static constexpr unsigned index(unsigned word) { return word & 0xff; }
  static constexpr unsigned bump(unsigned word, unsigned to) { return Broken ? to : ((word & ~0xffu) + 0x100u) | to; }
  unsigned pop() {
    unsigned seen = head.load();
    while (index(seen) != 0) {
      const unsigned after = next[index(seen)].load();
      if (head.compare_exchange_strong(seen, bump(seen, after))) return index(seen);
    }
    return 0;
  }
  void push(unsigned item) {
    unsigned seen = head.load();
    do next[item].store(index(seen));
    while (!head.compare_exchange_strong(seen, bump(seen, item)));
  }
  void role(unsigned i) {
    const unsigned first = pop();
    if (first != 0) ++taken[first];
    if (i == 0) return;
    const unsigned second = pop();
    if (second != 0) ++taken[second];
    if (first != 0) {
      --taken[first];
      push(first);
    }
  }
  void finish() {
    for (unsigned item = pop(); item != 0; item = pop()) ++taken[item];
    for (unsigned i = 1; i < 4; ++i) check(taken[i] == 1, "every item is in one place");
  }
};

TEST(Detects, Aba) {
  expect_found<free_list<true>>(fault::check_failed);
  expect_clean<free_list<false>>();
}

// ---- leaks ----

template <bool Broken, class Sync = model_sync>
struct cache {
  static constexpr unsigned roles = 2;
  struct entry {
    typename Sync::template atomic<int> uses{0};
  };
  typename Sync::template atomic<entry*> slot{nullptr};
  void role(unsigned) {
    if (slot.load(std::memory_order_acquire) != nullptr) return;
    auto made = std::make_unique<entry>();
    entry* none = nullptr;
    if (Broken) {
      slot.store(made.release(), std::memory_order_release);
    } else if (slot.compare_exchange_strong(none, made.get(), std::memory_order_acq_rel)) {
      static_cast<void>(made.release());
    }
  }
  void finish() { delete slot.load(std::memory_order_acquire); }
};

// A thread that outlives the body.
template <bool Broken, class Sync = model_sync>
struct left_running {
  static constexpr unsigned roles = 1;
  typename Sync::template atomic<int> stop{0};
  typename Sync::thread worker;
  void role(unsigned) {
    worker = typename Sync::thread([this] {
      while (stop.load() == 0) Sync::yield();
    });
  }
  void finish() {
    if (Broken) {
      worker.detach();
    } else {
      stop.store(1);
      worker.join();
    }
  }
};

TEST(Detects, Leak) {
#if !CURFEW_TESTING_ASAN  // the leak is real
  expect_found<cache<true>>(fault::leak);
#endif
  expect_clean<cache<false>>();
  expect_clean<left_running<false>>();
}

// ---- livelock ----

template <bool Broken, class Sync = model_sync>
struct spinning {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<int> turn{0};
  void role(unsigned i) {
    if (Broken && i == 1) return;
    if (i == 1) {
      turn.store(1);
    } else {
      while (turn.load() == 0) Sync::yield();
    }
  }
  void finish() {}
};

TEST(Detects, Livelock) {
  const auto found = explore<spinning<true>>({.steps = 300, .shorten = false, .print = false});
  EXPECT_EQ(found.what, fault::livelock) << found.message;
  expect_clean<spinning<false>>();
  expect_clean<spinning<false>>({.stale_reads = 2});
}

// ---- exceptions and std::terminate ----

template <class Sync = model_sync>
struct throwing {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<int> first{0};
  void role(unsigned) {
    if (first.fetch_add(1) == 1) throw std::runtime_error("second");
  }
  void finish() {}
};

template <class Sync = model_sync>
struct terminating {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<int> first{0};
  void count() {
    if (first.fetch_add(1) == 1) throw std::runtime_error("second");
  }
  void careless() noexcept { count(); }
  void role(unsigned) { careless(); }
  void finish() {}
};

// ---- crash: a check of a pointer, then its use ----

template <bool Broken, class Sync = model_sync>
struct cleared {
  static constexpr unsigned roles = 2;
  int value = 7;
  typename Sync::template atomic<int*> shared{&value};
  void role(unsigned i) {
    if (i == 0) {
      shared.store(nullptr);
    } else if (int* const seen = shared.load(); seen != nullptr) {
      const int* const used = Broken ? shared.load() : seen;
      check(*static_cast<const volatile int*>(used) == 7, "the value");
    }
  }
  void finish() {}
};

// An exception in flight on one thread is none of another's business.
template <class Sync = model_sync>
struct catching {
  static constexpr unsigned roles = 3;
  typename Sync::mutex mutex;
  typename Sync::template atomic<int> caught{0};
  void role(unsigned i) {
    try {
      const std::lock_guard lock(mutex);
      caught.fetch_add(0);
      throw static_cast<int>(i);
    } catch (const int mine) {
      caught.fetch_add(1);
      check(mine == static_cast<int>(i), "my own exception");
      check(std::uncaught_exceptions() == 0, "none in flight here");
    }
  }
  void finish() { check(caught.load() == 3, "all caught"); }
};

TEST(Detects, ExceptionsAndTerminate) {
  expect_found<throwing<>>(fault::exception);
  expect_found<terminating<>>(fault::terminated);
  expect_clean<catching<>>();
}

// ---- nondeterminism ----

template <class Sync = model_sync>
struct moody {
  static constexpr unsigned roles = 2;
  static inline unsigned runs = 0;
  typename Sync::template atomic<int> x{0}, y{0};
  moody() { ++runs; }
  void role(unsigned i) {
    if (runs % 3 == 0 && i == 0) y.store(1);
    x.fetch_add(1);
    x.load();
  }
  void finish() {}
};

TEST(Detects, Nondeterminism) {
  const auto found = explore<moody<>>({.print = false});
  EXPECT_EQ(found.what, fault::nondeterminism) << to_string(found.what);
}

// ---- timed waits, threads of the body, invariants ----

template <bool Broken, class Sync = model_sync>
struct impatient {
  static constexpr unsigned roles = 2;
  typename Sync::mutex mutex;
  typename Sync::condition_variable done;
  bool ready = false;
  void role(unsigned i) {
    std::unique_lock lock(mutex);
    if (i == 0) {
      ready = true;
      done.notify_all();
      return;
    }
    const auto before = Sync::clock::now();
    while (!ready) {
      if (done.wait_until(lock, before + 10ms) == std::cv_status::timeout) {
        check(Sync::clock::now() >= before + 10ms, "time has passed");
        check(Broken ? ready : true, "a timeout is not an answer");
        return;
      }
    }
  }
  void finish() {}
};

TEST(Models, Timeouts) {
  expect_found<impatient<true>>(fault::check_failed);
  expect_clean<impatient<false>>();
}

template <class Sync = model_sync>
struct parent {
  static constexpr unsigned roles = 1;
  typename Sync::template plain<int> result{0};
  void role(unsigned) {
    typename Sync::thread child([this] { result = 7; });
    child.join();
    check(result == 7, "join publishes");
    result = 8;
  }
  void finish() { check(result == 8, "written last"); }
};

template <class Sync = model_sync>
struct watched {
  static constexpr unsigned roles = 2;
  typename Sync::template atomic<int> in{0}, out{0};
  void role(unsigned) {
    out.fetch_add(1);
    in.fetch_add(1);
  }
  void invariant() { check(in.load() >= out.load(), "in before out"); }
  void finish() {}
};

TEST(Models, ThreadsOfTheBody) {
  expect_clean<parent<>>();
}
TEST(Models, Invariants) {
  expect_found<watched<>>(fault::check_failed);
}

// ---- every way to search finds it, and every replay string is taken apart again ----

TEST(Searches, AllFindADeadlock) {
  for (const search how :
       {search::reduced, search::all, search::preempted, search::random, search::priority, search::pending}) {
    expect_found<transfers<true>>(fault::deadlock, {.how = how, .schedules = 20'000});
  }
}

TEST(Searches, BoundZeroDoesNotPreempt) {
  const auto found = explore<transfers<true>>({.how = search::preempted, .bound = 0});
  EXPECT_EQ(found.what, fault::none);
  EXPECT_TRUE(found.complete);
}

#if !CURFEW_TESTING_ASAN && !CURFEW_TESTING_TSAN  // these have handlers of their own, and end the process
TEST(Detects, Crash) {
  expect_clean<cleared<false>>();
  const auto found = expect_found<cleared<true>>(fault::crash);
  EXPECT_NE(found.message.find(std::to_string(SIGSEGV)), std::string::npos) << found.message;
  expect_found<cleared<true>>(fault::crash);  // the next one is found just as well
}
#endif

TEST(Searches, SamplesAreReproducible) {
  const auto once = explore<transfers<true>>({.how = search::random, .schedules = 5000, .seed = 7, .print = false});
  const auto again = explore<transfers<true>>({.how = search::random, .schedules = 5000, .seed = 7, .print = false});
  EXPECT_EQ(once.failed_at, again.failed_at);
  EXPECT_EQ(once.replay, again.replay);
}

TEST(Replay, StringsSurviveARoundTrip) {
  curfew::testing::engine::replay_text text;
  text.body = "some_body";
  text.most.stale_reads = 2;
  text.print = 0xdeadbeef;
  for (const unsigned n : {0u, 1u, 1u, 1u, 2u, 7u, 7u, 0u}) text.choices.push_back(static_cast<unsigned char>(n));
  text.choices.insert(text.choices.end(), 70, 3);
  const auto parsed = curfew::testing::engine::replay_text::parse(text.to_string());
  EXPECT_EQ(parsed.body, text.body);
  EXPECT_EQ(parsed.choices, text.choices);
  EXPECT_EQ(parsed.most.stale_reads, 2u);
  EXPECT_EQ(parsed.print, text.print);
}

TEST(Replay, BadStringsAreNamed) {
  for (const char* bad : {"", "mx1:a:b", "mx2:a:s0p0t2w0:1:0", "mx1:a:x0:1:0", "mx1:a:s0p0t2w0:A:0",
                          "mx1:a:s0p0t2w0:-:0", "mx1:a:s0p0t2w0:1:zz"}) {
    EXPECT_THROW(static_cast<void>(curfew::testing::engine::replay_text::parse(bad)), std::invalid_argument) << bad;
  }
}

TEST(Replay, AStringOfAnotherBodyIsNoticed) {
  const auto found = explore<transfers<true>>({.print = false});
  const auto other = explore<mailbox<false>>({.print = false, .replay = found.replay});
  EXPECT_EQ(other.what, fault::nondeterminism);
}

}  // namespace
