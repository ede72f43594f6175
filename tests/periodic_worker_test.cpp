// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <curfew/periodic_worker.hpp>

#include <tests/support/park.hpp>

namespace {

using namespace std::chrono_literals;
using curfew::periodic_worker;
using curfew_test::eventually;
using curfew_test::gate;
using curfew_test::watchdog;

TEST(PeriodicWorker, TicksUntilItIsStopped) {
  watchdog dog("ticks");
  std::atomic<int> ticks{0};
  periodic_worker worker("ticker", [&] { ++ticks; });
  EXPECT_FALSE(worker.running());
  EXPECT_TRUE(worker.start(1ms));
  ASSERT_TRUE(eventually([&] { return ticks >= 3; }));
  EXPECT_TRUE(worker.running());
  EXPECT_TRUE(worker.stop());
  EXPECT_FALSE(worker.running());
  EXPECT_EQ(worker.ticks(), static_cast<std::uint64_t>(ticks.load()));
}

TEST(PeriodicWorker, IsNeverStartedTwice) {
  watchdog dog("never started twice");
  periodic_worker worker("once", [] {});
  EXPECT_TRUE(worker.start(1h));
  EXPECT_FALSE(worker.start(1h));
  EXPECT_TRUE(worker.stop());
  EXPECT_TRUE(worker.stop());
  EXPECT_FALSE(worker.start(1h)) << "stopped is final";
}

TEST(PeriodicWorker, AStopBeforeAnyStartIsFinal) {
  periodic_worker worker("never", [] { FAIL(); });
  EXPECT_TRUE(worker.stop());
  EXPECT_FALSE(worker.start(1ms, 0ns));
}

TEST(PeriodicWorker, NoExceptionLeavesATick) {
  watchdog dog("no exception leaves");
  std::atomic<int> seen{0};
  periodic_worker worker(
      "thrower", [] { throw std::runtime_error("tick"); },
      [&](std::exception_ptr error) {
        try {
          std::rethrow_exception(error);
        } catch (const std::runtime_error&) {
          ++seen;
        }
        throw 7;  // swallowed
      });
  worker.start(1ms);
  ASSERT_TRUE(eventually([&] { return seen >= 3; })) << "the next tick runs";
  worker.stop();
  EXPECT_EQ(worker.errors(), static_cast<std::uint64_t>(seen.load()));
}

TEST(PeriodicWorker, StopsWithinItsBoundThoughATickHangs) {
  watchdog dog("stop bound");
  auto release = std::make_shared<gate>();
  auto arrived = std::make_shared<gate>();
  auto alive = std::make_shared<int>(0);
  std::weak_ptr<int> watched = alive;
  {
    periodic_worker worker(
        "hanger",
        [release, arrived, alive] {
          arrived->open();
          static_cast<void>(release->wait());
        },
        {}, 1ms);
    worker.start(1h, 0ns);
    ASSERT_TRUE(arrived->wait());
    EXPECT_FALSE(worker.stop(1ms));
  }  // lets it go
  alive.reset();
  EXPECT_FALSE(watched.expired()) << "the function lives as long as its tick";
  release->open();
  ASSERT_TRUE(eventually([&] { return watched.expired(); })) << "and is destroyed after it";
}

TEST(PeriodicWorker, TheTokenFiresWhenAStopIsAsked) {
  watchdog dog("token");
  gate arrived;
  periodic_worker worker("token", [&](std::stop_token token) {
    gate stopped;
    std::stop_callback on_stop(token, [&] { stopped.open(); });
    arrived.open();
    EXPECT_TRUE(stopped.wait());
  });
  worker.start(1h, 0ns);
  ASSERT_TRUE(arrived.wait());
  EXPECT_TRUE(worker.stop());
}

TEST(PeriodicWorker, ATickMayStopItsOwnWorker) {
  watchdog dog("stop from a tick");
  periodic_worker* self = nullptr;
  gate asked;
  periodic_worker worker("self", [&] {
    EXPECT_FALSE(self->stop(1h)) << "asks and does not wait for itself";
    asked.open();
  });
  self = &worker;
  worker.start(1ms, 0ns);
  ASSERT_TRUE(asked.wait());
  EXPECT_TRUE(worker.stop());
  EXPECT_EQ(worker.ticks(), 1u);
}

TEST(PeriodicWorker, APokeBringsTheNextTickForward) {
  watchdog dog("poke");
  std::atomic<int> ticks{0};
  periodic_worker worker("poked", [&] { ++ticks; });
  worker.start(std::chrono::nanoseconds::max());
  worker.poke();
  EXPECT_TRUE(eventually([&] { return ticks == 1; }));
}

TEST(PeriodicWorker, RacingStoppersAllReturnAfterTheLastTick) {
  watchdog dog("racing stoppers");
  for (int round = 0; round < 50; ++round) {
    std::atomic<bool> in_tick{false};
    periodic_worker worker("raced", [&] {
      in_tick = true;
      std::this_thread::yield();
      in_tick = false;
    });
    worker.start(1us, 0ns);
    std::thread other([&] {
      EXPECT_TRUE(worker.stop());
      EXPECT_FALSE(in_tick);
    });
    EXPECT_TRUE(worker.stop());
    EXPECT_FALSE(in_tick);
    other.join();
  }
}

TEST(PeriodicWorker, ItsThreadCarriesItsName) {
#ifdef __linux__
  watchdog dog("name");
  std::string name;
  gate read;
  periodic_worker worker("named.worker", [&] {
    std::ifstream("/proc/thread-self/comm") >> name;
    read.open();
  });
  worker.start(1h, 0ns);
  ASSERT_TRUE(read.wait());
  worker.stop();
  EXPECT_EQ(name, "named.worker");
  EXPECT_EQ(worker.name(), "named.worker");
#endif
}

TEST(PeriodicWorker, BadArgumentsAreNamed) {
  try {
    periodic_worker worker("nameless", std::function<void(std::stop_token)>());
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("nameless"), std::string::npos);
  }
  EXPECT_THROW(periodic_worker("w", std::function<void()>()), std::invalid_argument);
  EXPECT_THROW(periodic_worker("w", static_cast<void (*)()>(nullptr)), std::invalid_argument);
  periodic_worker worker("w", [] {});
  EXPECT_THROW(worker.start(0ns), std::invalid_argument);
  EXPECT_TRUE(worker.start(1h)) << "nothing was half started";
}

struct no_threads : curfew_test::park_sync {
  struct thread : std::thread {
    thread() = default;
    template <class F>
    explicit thread(F&&) {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
  };
};

TEST(PeriodicWorker, AThreadThatCannotBeMadeIsReportedAndTheWorkerStaysIdle) {
  curfew::basic_periodic_worker<no_threads> worker("poor", [] {});
  EXPECT_THROW(worker.start(1ms), std::system_error);
  EXPECT_FALSE(worker.running());
  EXPECT_THROW(worker.start(1ms), std::system_error) << "not started, so it may be tried again";
  EXPECT_TRUE(worker.stop());
}

TEST(PeriodicWorker, IsInertAfterFork) {
  watchdog dog("fork");
  std::atomic<int> ticks{0};
  auto worker = std::make_unique<periodic_worker>("forked", [&] { ++ticks; });
  worker->start(1ms);
  ASSERT_TRUE(eventually([&] { return ticks >= 1; }));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(10);
    bool inert = !worker->running() && worker->stop() && !worker->start(1ms) && worker->ticks() == 0;
    worker->poke();
    worker.reset();
    ::_exit(inert ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(worker->running()) << "the parent's goes on";
}

}  // namespace
