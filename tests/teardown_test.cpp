// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// teardown.hpp: taking a thing away, running its callback exactly once, with no lock held.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <curfew/teardown.hpp>

#include "support/at_rest.hpp"
#include "support/park.hpp"

#if CURFEW_POSIX
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace {

using curfew::detach_slot;
using curfew::detach_then;
using curfew::once_teardown;
using curfew::teardown_reason;
using curfew::teardown_status;
using curfew_test::at_rest;
using curfew_test::eventually;
using curfew_test::gate;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::start_gate;
using curfew_test::thread_number;
using curfew_test::watchdog;
using namespace std::chrono_literals;

// True when the mutex can be taken by another thread: the calling one holds it nowhere up its stack either.
template <class Mutex>
bool is_free(Mutex& mutex) {
  bool got = false;
  std::thread([&] {
    got = mutex.try_lock();
    if (got) mutex.unlock();
  }).join();
  return got;
}

// ---- detach_then ----

TEST(DetachThen, CallbackRunsWithTheMutexReleasedAndTheSlotEmpty) {
  std::mutex mutex;
  auto slot = std::make_unique<int>(7);
  bool called = false;
  EXPECT_TRUE(detach_then(mutex, slot, [&](std::unique_ptr<int> value) {
    called = true;
    EXPECT_TRUE(is_free(mutex));
    EXPECT_EQ(slot, nullptr);
    EXPECT_EQ(*value, 7);
  }));
  EXPECT_TRUE(called);
}

TEST(DetachThen, EmptySlotCallsNothing) {
  std::mutex mutex;
  std::unique_ptr<int> slot;
  EXPECT_FALSE(detach_then(mutex, slot, [](auto) { ADD_FAILURE() << "called"; }));
  EXPECT_TRUE(is_free(mutex));
}

template <class T>
void takes_once(T full, T empty) {
  std::shared_mutex mutex;  // anything that locks
  T slot = std::move(full);
  int calls = 0;
  EXPECT_TRUE(detach_then(mutex, slot, [&](T&&) { ++calls; }));
  EXPECT_FALSE(detach_then(mutex, slot, [&](T&&) { ++calls; }));
  EXPECT_EQ(calls, 1);
  if constexpr (std::equality_comparable<T>) {
    EXPECT_TRUE(slot == empty);
  }
}

TEST(DetachThen, EveryKindOfSlotHasAnEmptyState) {
  int object = 0;
  takes_once<int*>(&object, nullptr);
  takes_once<std::unique_ptr<int>>(std::make_unique<int>(1), nullptr);
  takes_once<std::shared_ptr<int>>(std::make_shared<int>(1), nullptr);
  takes_once<std::optional<std::string>>("x", std::nullopt);
  takes_once<std::optional<int>>(0, std::nullopt);  // a value that is false is a value
  takes_once<std::function<void()>>([] {}, {});
  takes_once<std::string>("text", {});  // no bool, but equality
  takes_once<std::vector<int>>({1, 2}, {});
}

TEST(DetachThen, ThrowingCallbackReachesTheCallerWithTheSlotConsistent) {
  std::mutex mutex;
  auto slot = std::make_unique<int>(1);
  EXPECT_THROW(detach_then(mutex, slot, [](auto) { throw std::runtime_error("teardown"); }), std::runtime_error);
  EXPECT_TRUE(is_free(mutex));
  EXPECT_EQ(slot, nullptr);
  EXPECT_FALSE(detach_then(mutex, slot, [](auto) {}));
}

TEST(DetachThen, ValueThatTheCallbackLeavesIsDestroyedWithTheMutexReleased) {
  struct nosy {
    std::mutex* mutex;
    explicit nosy(std::mutex* m) : mutex(m) {}
    ~nosy() { const std::lock_guard<std::mutex> lock(*mutex); }
  };
  const watchdog dog("destructor takes the mutex");
  std::mutex mutex;
  auto slot = std::make_unique<nosy>(&mutex);
  EXPECT_TRUE(detach_then(mutex, slot, [](auto&&) {}));
}

TEST(DetachThen, CallbackMayInstallASuccessor) {
  std::mutex mutex;
  auto slot = std::make_unique<int>(1);
  EXPECT_TRUE(detach_then(mutex, slot, [&](auto) {
    const std::lock_guard<std::mutex> lock(mutex);
    slot = std::make_unique<int>(2);
  }));
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(*slot, 2);
}

TEST(DetachThen, OneOfManyRacersGetsTheValue) {
  const watchdog dog("racing detach");
  for (int round = 0; round < 200; ++round) {
    std::mutex mutex;
    auto slot = std::make_unique<int>(1);
    std::atomic<int> calls{0}, winners{0};
    start_gate start(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        if (detach_then(mutex, slot, [&](auto) { ++calls; })) ++winners;
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(calls.load(), 1);
    ASSERT_EQ(winners.load(), 1);
  }
}

// ---- detach_slot ----

struct log_entry {
  int value;
  teardown_reason reason;
  friend bool operator==(const log_entry&, const log_entry&) = default;
};
using int_ptr = std::unique_ptr<int>;
using callback = std::function<void(int_ptr&, teardown_reason)>;
using slot_type = detach_slot<int_ptr, callback>;

struct slot_fixture : testing::Test {
  std::vector<log_entry> log;
  std::function<void()> during;
  slot_type slot{[this](int_ptr& value, teardown_reason reason) {
    log.push_back({*value, reason});
    if (during) during();
  }};
};
using DetachSlot = slot_fixture;

TEST_F(DetachSlot, InstallFillsAnEmptySlotOnly) {
  EXPECT_FALSE(slot.has_value());
  EXPECT_TRUE(slot.try_install(std::make_unique<int>(1)));
  EXPECT_TRUE(slot.has_value());
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(slot.try_install(std::move(second)));
  ASSERT_NE(second, nullptr) << "a refused value is left untouched";
  EXPECT_EQ(*second, 2);
  EXPECT_TRUE(log.empty());
}

TEST_F(DetachSlot, TearDownRunsTheCallbackOnceWithReasonReset) {
  EXPECT_FALSE(slot.tear_down());
  slot.try_install(std::make_unique<int>(1));
  EXPECT_TRUE(slot.tear_down());
  EXPECT_FALSE(slot.tear_down());
  EXPECT_EQ(log, (std::vector<log_entry>{{1, teardown_reason::reset}}));
  EXPECT_TRUE(slot.try_install(std::make_unique<int>(2))) << "the place is free again";
}

TEST_F(DetachSlot, ReplaceTearsTheOldOneDown) {
  EXPECT_TRUE(slot.replace(std::make_unique<int>(1)));
  EXPECT_TRUE(log.empty());
  EXPECT_TRUE(slot.replace(std::make_unique<int>(2)));
  EXPECT_EQ(log, (std::vector<log_entry>{{1, teardown_reason::replaced}}));
  EXPECT_EQ(**slot.take(), 2);
}

TEST_F(DetachSlot, TakeHandsTheValueOverWithoutACallback) {
  EXPECT_FALSE(slot.take().has_value());
  slot.try_install(std::make_unique<int>(1));
  auto taken = slot.take();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(**taken, 1);
  EXPECT_FALSE(slot.has_value());
  EXPECT_TRUE(log.empty());
}

TEST_F(DetachSlot, SealTearsDownAndRefusesForEver) {
  slot.try_install(std::make_unique<int>(1));
  EXPECT_TRUE(slot.seal());
  EXPECT_FALSE(slot.seal());
  EXPECT_TRUE(slot.sealed());
  EXPECT_EQ(log, (std::vector<log_entry>{{1, teardown_reason::sealed}}));
  auto late = std::make_unique<int>(2);
  EXPECT_FALSE(slot.try_install(std::move(late)));
  EXPECT_FALSE(slot.replace(std::move(late)));
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(*late, 2);
}

TEST_F(DetachSlot, SealOfAnEmptySlotRefusesForEver) {
  EXPECT_FALSE(slot.seal()) << "no callback ran";
  EXPECT_TRUE(slot.sealed());
  EXPECT_FALSE(slot.try_install(std::make_unique<int>(1)));
}

TEST_F(DetachSlot, DestructorSeals) {
  {
    slot_type inner{[this](int_ptr& value, teardown_reason reason) { log.push_back({*value, reason}); }};
    inner.try_install(std::make_unique<int>(5));
  }
  EXPECT_EQ(log, (std::vector<log_entry>{{5, teardown_reason::sealed}}));
}

TEST_F(DetachSlot, DestructorDropsAnExceptionThatHasNoCaller) {
  bool ran = false;
  {
    slot_type inner{[&](int_ptr&, teardown_reason) {
      ran = true;
      throw std::runtime_error("late");
    }};
    inner.try_install(std::make_unique<int>(1));
  }
  EXPECT_TRUE(ran);
}

TEST_F(DetachSlot, EveryMemberMayBeCalledFromTheCallback) {
  const watchdog dog("re-entry from the callback");
  bool first = true;
  during = [&] {
    if (!std::exchange(first, false)) return;
    EXPECT_FALSE(slot.has_value()) << "unlinked before the callback";
    EXPECT_FALSE(slot.sealed());
    EXPECT_FALSE(slot.tear_down());
    EXPECT_FALSE(slot.take().has_value());
    EXPECT_TRUE(slot.try_install(std::make_unique<int>(2)));
    EXPECT_TRUE(slot.replace(std::make_unique<int>(3)));
    EXPECT_TRUE(slot.seal());
  };
  slot.try_install(std::make_unique<int>(1));
  EXPECT_TRUE(slot.tear_down());
  EXPECT_EQ(log, (std::vector<log_entry>{
                     {1, teardown_reason::reset}, {2, teardown_reason::replaced}, {3, teardown_reason::sealed}}));
}

struct nosy_value {
  std::function<void()> at_end;
  explicit nosy_value(std::function<void()> f) : at_end(std::move(f)) {}
  nosy_value(nosy_value&& other) noexcept : at_end(std::exchange(other.at_end, nullptr)) {}
  ~nosy_value() {
    if (at_end) at_end();
  }
};

TEST(DetachSlotLifetime, EveryMemberMayBeCalledFromTheDestructorOfTheValue) {
  const watchdog dog("re-entry from the destructor");
  detach_slot<nosy_value, void (*)(nosy_value&, teardown_reason)> slot([](nosy_value&, teardown_reason) {});
  int ended = 0;
  const auto poke = [&] {
    ++ended;
    static_cast<void>(slot.has_value());
    static_cast<void>(slot.sealed());
    slot.tear_down();
    slot.take();
  };
  slot.try_install(nosy_value(poke));
  slot.tear_down();
  slot.replace(nosy_value(poke));
  slot.replace(nosy_value(poke));
  slot.take();
  slot.try_install(nosy_value(poke));
  slot.seal();
  EXPECT_EQ(ended, 4);
}

TEST_F(DetachSlot, ThrowingCallbackReachesTheCallerThatDetached) {
  during = [] { throw std::runtime_error("teardown"); };
  slot.try_install(std::make_unique<int>(1));
  EXPECT_THROW(slot.tear_down(), std::runtime_error);
  EXPECT_FALSE(slot.has_value()) << "consumed";
  slot.try_install(std::make_unique<int>(2));
  EXPECT_THROW(slot.replace(std::make_unique<int>(3)), std::runtime_error);
  EXPECT_TRUE(slot.has_value()) << "the new value is in place";
  EXPECT_THROW(slot.seal(), std::runtime_error);
  EXPECT_TRUE(slot.sealed());
  EXPECT_EQ(log, (std::vector<log_entry>{
                     {1, teardown_reason::reset}, {2, teardown_reason::replaced}, {3, teardown_reason::sealed}}));
  during = nullptr;
}

struct throwing_move {
  bool armed = false;
  throwing_move() = default;
  throwing_move(throwing_move&& other) : armed(other.armed) {
    if (armed) throw std::runtime_error("move");
  }
};

TEST(DetachSlotLifetime, ThrowingMoveLeavesTheSlotAsItWas) {
  int ended = 0;
  auto count = [&](throwing_move&, teardown_reason) { ++ended; };
  detach_slot<throwing_move, decltype(count)> slot(count);
  throwing_move bomb;
  bomb.armed = true;
  EXPECT_THROW(slot.try_install(std::move(bomb)), std::runtime_error);
  EXPECT_FALSE(slot.has_value());
  EXPECT_TRUE(slot.try_install(throwing_move{}));
  EXPECT_THROW(slot.replace(std::move(bomb)), std::runtime_error);
  EXPECT_TRUE(slot.has_value());
  EXPECT_EQ(ended, 0);
}

TEST(DetachSlotLifetime, ThrowingMoveLeavesWhatWasToBeTaken) {
  int ended = 0;
  struct armed_by_it {
    bool* armed;
    explicit armed_by_it(bool* flag) : armed(flag) {}
    armed_by_it(armed_by_it&& other) : armed(other.armed) {
      if (*armed) throw std::runtime_error("move");
    }
  };
  bool armed = false;
  auto count = [&](armed_by_it&, teardown_reason) { ++ended; };
  detach_slot<armed_by_it, decltype(count)> slot(count);
  EXPECT_TRUE(slot.try_install(armed_by_it{&armed}));
  armed = true;
  EXPECT_THROW(slot.take(), std::runtime_error);
  EXPECT_TRUE(slot.has_value());
  EXPECT_TRUE(slot.tear_down());
  EXPECT_EQ(ended, 1) << "handed over, or called back";
}

// What callbacks return is of no interest, and a teardown may be somebody else's.
struct [[nodiscard]] code {
  int value = 0;
};
TEST(DetachSlotLifetime, CallbacksMayReturnWhatMustNotBeDiscarded) {
  std::mutex mutex;
  int number = 7, ended = 0;
  EXPECT_TRUE(detach_then(mutex, number, [](int value) { return code{value}; }));
  auto end = [&](int&, teardown_reason) { return code{++ended}; };
  detach_slot<int, decltype(end)&> slot(end);
  EXPECT_TRUE(slot.try_install(1));
  EXPECT_TRUE(slot.seal());
  EXPECT_EQ(ended, 1);
  once_teardown once;
  EXPECT_EQ(once.run([] { return code{}; }), teardown_status::completed);
}

TEST(DetachSlotRace, EveryValueEndsExactlyOnceWhateverRaces) {
  const watchdog dog("slot storm");
  std::atomic<int> ended{0};
  auto count = [&](int_ptr& value, teardown_reason) {
    ++ended;
    value.reset();
  };
  int installed = 0, taken = 0;
  std::mutex sum;
  {
    detach_slot<int_ptr, decltype(count)> slot(count);
    start_gate start(4);
    std::vector<std::thread> threads;
    for (unsigned id = 0; id < 4; ++id) {
      threads.emplace_back([&, id] {
        int in = 0, out = 0;
        start.arrive_and_wait();
        for (unsigned i = 0; i < 4000; ++i) {
          switch ((i + id) % 4) {
            case 0:
              in += slot.try_install(std::make_unique<int>(1));
              break;
            case 1:
              in += slot.replace(std::make_unique<int>(1));
              break;
            case 2:
              slot.tear_down();
              break;
            default:
              out += slot.take().has_value();
          }
        }
        const std::lock_guard<std::mutex> lock(sum);
        installed += in;
        taken += out;
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(installed, taken + ended.load());
}

TEST(DetachSlotRace, SealWinsOrLosesAgainstAnInstallButNothingIsLeftBehind) {
  const watchdog dog("seal against install");
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> ended{0};
    auto count = [&](int_ptr&, teardown_reason) { ++ended; };
    detach_slot<int_ptr, decltype(count)> slot(count);
    start_gate start(2);
    bool installed = false;
    std::thread other([&] {
      start.arrive_and_wait();
      installed = slot.try_install(std::make_unique<int>(1));
    });
    start.arrive_and_wait();
    slot.seal();
    other.join();
    ASSERT_FALSE(slot.has_value());
    ASSERT_EQ(ended.load(), installed ? 1 : 0);
  }
}

// ---- once_teardown ----

TEST(OnceTeardown, FirstCallerRunsTheOthersJoin) {
  once_teardown once;
  EXPECT_FALSE(once.started());
  EXPECT_FALSE(once.done());
  int runs = 0;
  EXPECT_EQ(once.run([&] { ++runs; }), teardown_status::completed);
  EXPECT_TRUE(once.started());
  EXPECT_TRUE(once.done());
  EXPECT_EQ(once.run([&] { ++runs; }), teardown_status::joined);
  EXPECT_EQ(once.run_for(0s, [&] { ++runs; }), teardown_status::joined);
  EXPECT_EQ(runs, 1);
}

TEST(OnceTeardown, JoinerReturnsOnlyWhenTheTeardownHasEnded) {
  const watchdog dog("joiner waits");
  curfew::basic_once_teardown<park_sync> once;
  park joining("once.join.waiting");
  gate running, finish;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    EXPECT_EQ(once.run([&] {
      running.open();
      EXPECT_TRUE(finish.wait());
      ended = true;
    }),
              teardown_status::completed);
  });
  ASSERT_TRUE(running.wait());
  EXPECT_TRUE(once.started());
  EXPECT_FALSE(once.done());
  std::thread joiner([&] {
    EXPECT_EQ(once.run([] { ADD_FAILURE() << "ran twice"; }), teardown_status::joined);
    EXPECT_TRUE(ended.load());
  });
  ASSERT_TRUE(joining.wait_arrived());
  joining.open();
  finish.open();
  runner.join();
  joiner.join();
}

TEST(OnceTeardown, ReentryFromTheTearingThreadAnswersInProgress) {
  const watchdog dog("re-entry");
  once_teardown once;
  EXPECT_EQ(once.run([&] {
    EXPECT_TRUE(once.started());
    EXPECT_FALSE(once.done());
    EXPECT_EQ(once.run([] { ADD_FAILURE(); }), teardown_status::in_progress);
    EXPECT_EQ(once.run_for(1h, [] { ADD_FAILURE(); }), teardown_status::in_progress);
  }),
            teardown_status::completed);
}

TEST(OnceTeardown, ThrowReachesTheRunnerWaitersGetFailedAndALaterRunRetries) {
  const watchdog dog("failed attempt");
  curfew::basic_once_teardown<park_sync> once;
  park joining("once.join.waiting");
  gate running, finish;
  std::thread runner([&] {
    EXPECT_THROW(once.run([&] {
      running.open();
      EXPECT_TRUE(finish.wait());
      throw std::runtime_error("disk full");
    }),
                 std::runtime_error);
    // A retry that succeeds at once must not turn the waiting joiner's answer into `joined`.
    EXPECT_EQ(once.run([] {}), teardown_status::completed);
  });
  ASSERT_TRUE(running.wait());
  std::thread joiner([&] { EXPECT_EQ(once.run([] { ADD_FAILURE(); }), teardown_status::failed); });
  ASSERT_TRUE(joining.wait_arrived());
  joining.open();
  finish.open();
  runner.join();
  joiner.join();
  EXPECT_TRUE(once.done());
}

// A policy that shows what a joiner and a notifier do around the condition variable: the joiner passes a point after it
// was woken and before it has the mutex again, and a notification tells whether it was given under a mutex.
struct watched_sync : park_sync {
  static inline constinit thread_local int held = 0;
  static inline std::atomic<int> notified{0}, notified_without{0};

  class mutex {
   public:
    void lock() {
      mutex_.lock();
      ++held;
    }
    void unlock() {
      --held;
      mutex_.unlock();
    }

   private:
    std::mutex mutex_;
  };
  class condition_variable {
   public:
    void wait(std::unique_lock<mutex>& lock) {
      woken_.wait(lock);
      lock.unlock();
      here("woken");
      lock.lock();
    }
    template <class Time>
    void wait_until(std::unique_lock<mutex>& lock, const Time& deadline) {
      woken_.wait_until(lock, deadline);
    }
    void notify_all() {
      ++notified;
      notified_without += held == 0;
      woken_.notify_all();
    }

   private:
    std::condition_variable_any woken_;
  };
  using lasting_condition_variable = condition_variable;
};

TEST(OnceTeardown, AJoinerBelongsToTheAttemptItMetAlsoWhenARetryHasSucceededBeforeItRuns) {
  const watchdog dog("late joiner");
  curfew::basic_once_teardown<watched_sync> once;
  park joining("once.join.waiting"), woken("woken");
  gate running, finish;
  std::thread runner([&] {
    EXPECT_THROW(once.run([&] {
      running.open();
      EXPECT_TRUE(finish.wait());
      throw std::runtime_error("disk full");
    }),
                 std::runtime_error);
  });
  ASSERT_TRUE(running.wait());
  std::thread joiner([&] { EXPECT_EQ(once.run([] { ADD_FAILURE(); }), teardown_status::failed); });
  ASSERT_TRUE(joining.wait_arrived());
  joining.open();
  finish.open();
  ASSERT_TRUE(woken.wait_arrived());
  EXPECT_EQ(once.run([] {}), teardown_status::completed);
  woken.open();
  joiner.join();
  runner.join();
  EXPECT_EQ(once.run([] { ADD_FAILURE(); }), teardown_status::joined) << "and the next call meets the success";
}

// The last access of the runner must be the unlocking: a joiner may have destroyed everything after it.
TEST(OnceTeardown, JoinersAreNotifiedUnderTheLock) {
  const watchdog dog("notified joiner");
  watched_sync::notified = watched_sync::notified_without = 0;
  curfew::basic_once_teardown<watched_sync> once;
  park joining("once.join.waiting");
  gate running, finish;
  std::thread runner([&] {
    once.run([&] {
      running.open();
      EXPECT_TRUE(finish.wait());
    });
  });
  ASSERT_TRUE(running.wait());
  std::thread joiner([&] { EXPECT_EQ(once.run_for(30s, [] { ADD_FAILURE(); }), teardown_status::joined); });
  ASSERT_TRUE(joining.wait_arrived());  // with the mutex, which it gives up by waiting
  joining.open();
  finish.open();
  joiner.join();
  runner.join();
  EXPECT_EQ(watched_sync::notified, 1);
  EXPECT_EQ(watched_sync::notified_without, 0);
}

// Whatever it is: nothing may be swallowed, and everything be as after any other exception.
struct no_exception {
  int code;
};
TEST(OnceTeardown, ItsFunctionMayThrowWhatIsNoException) {
  once_teardown once;
  EXPECT_THROW(once.run([] { throw no_exception{3}; }), no_exception);
  EXPECT_THROW(once.run_for(1s, [] { throw "text"; }), const char*);
  EXPECT_EQ(once.run([] {}), teardown_status::completed);
}
TEST(DetachThen, CallbackMayThrowWhatIsNoException) {
  std::mutex mutex;
  auto slot = std::make_unique<int>(7);
  EXPECT_THROW(detach_then(mutex, slot, [](std::unique_ptr<int>) { throw no_exception{3}; }), no_exception);
  EXPECT_EQ(slot, nullptr);
  EXPECT_TRUE(is_free(mutex));
}
TEST(DetachSlotLifetime, CallbackMayThrowWhatIsNoException) {
  int calls = 0;
  {
    detach_slot<int, std::function<void(int&, teardown_reason)>> slot([&](int&, teardown_reason) {
      ++calls;
      throw no_exception{3};
    });
    EXPECT_TRUE(slot.try_install(1));
    EXPECT_THROW(slot.tear_down(), no_exception);
    EXPECT_FALSE(slot.has_value());
    EXPECT_TRUE(slot.try_install(2));
    EXPECT_THROW(slot.replace(3), no_exception);
    EXPECT_TRUE(slot.has_value()) << "the new one is in place";
    EXPECT_THROW(slot.seal(), no_exception);
    EXPECT_TRUE(slot.sealed());
  }
  {
    detach_slot<int, std::function<void(int&, teardown_reason)>> slot([&](int&, teardown_reason) {
      ++calls;
      throw no_exception{3};
    });
    EXPECT_TRUE(slot.try_install(4));
  }
  EXPECT_EQ(calls, 4) << "the destructor's was dropped";
}

TEST(OnceTeardown, FailedAttemptLeavesItUnstarted) {
  once_teardown once;
  EXPECT_THROW(once.run([] { throw 1; }), int);
  EXPECT_FALSE(once.started());
  EXPECT_FALSE(once.done());
  EXPECT_EQ(once.run_for(0s, [] {}), teardown_status::completed) << "a limit bounds joiners only";
}

TEST(OnceTeardown, RunForBoundsTheJoinerNotTheRunner) {
  const watchdog dog("bounded join");
  once_teardown once;
  gate running, finish;
  std::thread runner([&] {
    EXPECT_EQ(once.run_for(1ns,
                           [&] {
                             running.open();
                             EXPECT_TRUE(finish.wait());
                           }),
              teardown_status::completed);
  });
  ASSERT_TRUE(running.wait());
  const auto never = [] { ADD_FAILURE() << "ran twice"; };
  EXPECT_EQ(once.run_for(0s, never), teardown_status::timed_out);
  EXPECT_EQ(once.run_for(-5s, never), teardown_status::timed_out);
  EXPECT_EQ(once.run_for(std::chrono::nanoseconds::min(), never), teardown_status::timed_out);
  EXPECT_EQ(once.run_for(2ms, never), teardown_status::timed_out);
  EXPECT_EQ(once.run_for(std::chrono::duration<double>(0.001), never), teardown_status::timed_out);
  std::vector<std::thread> joiners;  // limits that would overflow the clock are no limits
  joiners.emplace_back([&] { EXPECT_EQ(once.run_for(std::chrono::hours::max(), never), teardown_status::joined); });
  joiners.emplace_back(
      [&] { EXPECT_EQ(once.run_for(std::chrono::duration<double>(1e300), never), teardown_status::joined); });
  finish.open();
  runner.join();
  for (auto& joiner : joiners) joiner.join();
}

TEST(OnceTeardown, WhatTheRunnerDidIsVisibleToEveryJoiner) {
  const watchdog dog("visibility");
  for (int round = 0; round < 300; ++round) {
    once_teardown once;
    int plain = 0;  // a race here is for the thread sanitizer to see
    start_gate start(4);
    std::atomic<int> completed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        if (once.run([&] { plain = 42; }) == teardown_status::completed) ++completed;
        ASSERT_EQ(plain, 42);
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(completed.load(), 1);
  }
}

TEST(OnceTeardown, JoinerMayDestroyItAtOnce) {
  const watchdog dog("destroyed by a joiner");
  for (int round = 0; round < 500; ++round) {
    auto once = std::make_unique<once_teardown>();
    gate running;
    std::thread runner([&, raw = once.get()] {
      raw->run([&] { running.open(); });
      // From here on the joiner below may have destroyed it.
    });
    ASSERT_TRUE(running.wait());
    ASSERT_EQ(once->run([] {}), teardown_status::joined);
    once.reset();
    runner.join();
  }
}

#if CURFEW_POSIX
TEST(DetachSlotLifetime, AForkedChildMayDestroyItAlthoughAThreadOfTheParentHadItsLock) {
  const watchdog dog("destroyed in the child");
  static gate moving, finish;
  struct slow {
    slow() = default;
    slow(slow&&) noexcept {
      moving.open();
      EXPECT_TRUE(finish.wait());
    }
  };
  auto ignore = [](slow&, teardown_reason) {};
  std::optional<detach_slot<slow, decltype(ignore)>> slot(std::in_place, ignore);
  std::thread installer([&] { EXPECT_TRUE(slot->try_install(slow{})); });
  ASSERT_TRUE(moving.wait());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    slot.reset();
    ::_exit(0);
  }
  finish.open();
  installer.join();
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it hung, or crashed";
}

TEST(OnceTeardown, AForkedChildMayDestroyItAlthoughThreadsOfTheParentHadJoined) {
  const watchdog dog("destroyed in the child");
  auto once = std::make_unique<once_teardown>();
  gate running, finish;
  std::thread runner([&] {
    once->run([&] {
      running.open();
      EXPECT_TRUE(finish.wait());
    });
  });
  ASSERT_TRUE(running.wait());
  EXPECT_EQ(once->run_for(1ms, [] {}), teardown_status::timed_out);
  std::atomic<int> joining{0};
  std::thread joiner([&] {
    joining = thread_number();
    EXPECT_EQ(once->run([] {}), teardown_status::joined);
  });
  ASSERT_TRUE(eventually([&] { return joining != 0 && at_rest(joining); }));  // in its wait
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    once.reset();
    ::_exit(0);
  }
  finish.open();
  joiner.join();
  runner.join();
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it hung, or crashed";
}

TEST(OnceTeardown, JoiningIsNotACancellationPoint) {
  const watchdog dog("cancelled joiner");
  once_teardown once;
  gate running, finish, joined;
  std::thread runner([&] {
    once.run([&] {
      running.open();
      EXPECT_TRUE(finish.wait());
    });
  });
  ASSERT_TRUE(running.wait());
  std::atomic<bool> cancelled{false};
  std::atomic<int> joining{0};
  std::thread joiner([&] {
    while (!cancelled) std::this_thread::yield();
    joining = thread_number();
    EXPECT_EQ(once.run([] { ADD_FAILURE(); }), teardown_status::joined);
    joined.open();
  });
  ASSERT_EQ(::pthread_cancel(joiner.native_handle()), 0);
  cancelled = true;
  ASSERT_TRUE(
      eventually([&] { return joining != 0 && at_rest(joining); }));  // or gone, if the wait acted on the request
  finish.open();
  EXPECT_TRUE(joined.wait());  // the request is acted on later, if at all
  joiner.join();
  runner.join();
}
#endif

}  // namespace
