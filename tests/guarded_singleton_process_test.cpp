// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// guarded_singleton at the edges of a process: threads that are still at work when it ends, objects of static and of
// thread storage that outlive what they use elsewhere. Each test body ends a process of its own.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include <curfew/guarded_singleton.hpp>

#if CURFEW_POSIX
#include <sys/wait.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace {

using curfew::guarded_singleton;
using curfew::teardown_reason;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::_Exit(86);
}

struct service {
  ~service() { mark = 0; }
  int mark = 7;
};
struct service_traits {
  static inline constinit std::atomic<int> made{0}, ended{0};
  std::unique_ptr<service> make() {
    ++made;
    return std::make_unique<service>();
  }
  void on_reset(service&) { ++ended; }
  void on_shutdown(service&, teardown_reason) { ++ended; }
};

/// Static, and constructed before the singleton: destroyed when it would have been, if it had a destructor to speak of.
struct very_end {
  void (*then)() = nullptr;
  ~very_end() {
    if (then != nullptr) then();
  }
};
very_end after_everything;

constinit guarded_singleton<service, service_traits> shared{"shared"};

void use() {
  if (shared.get()->mark != 7) die("not a living instance");
}

/// What a thread does that nobody ends: everything, for ever.
void churn(unsigned seed) {
  for (unsigned dice = seed;; dice = dice * 1664525 + 1013904223) {
    use();
    switch ((dice >> 16) % 8) {
      case 0:
        shared.reset();
        break;
      case 1:
        shared.shutdown();
        break;
      case 2: {
        const auto previous = shared.set(std::make_unique<service>());
        if (previous && previous->mark != 7) die("previous instance is gone");
      } break;
      case 3:
        static_cast<void>(shared.stats());
        break;
      default:
        break;
    }
  }
}

struct GuardedSingletonProcess : testing::Test {
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

#if CURFEW_POSIX

TEST_F(GuardedSingletonProcess, Rule9_DetachedThreadsMayUseItWhileTheProcessExits) {
  EXPECT_EXIT(
      {
        ::alarm(30);
        // Keeps the exit going for a while, with the threads at work.
        after_everything.then = [] {
          for (int i = 0; i < 2000; ++i) use();
        };
        for (unsigned i = 1; i <= 3; ++i) std::thread(&churn, i).detach();
        while (service_traits::made < 100) std::this_thread::yield();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(GuardedSingletonProcess, Rule9_NothingIsTornDownByTheExitOfTheProcess) {
  EXPECT_EXIT(
      {
        after_everything.then = [] {
          if (service_traits::ended != 0 || !shared.has_value()) die("ended by the exit");
        };
        use();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

// The order in which a thread's objects are destroyed is the reverse of their construction: these two are on either
// side of the singleton's own thread-local, which has no destructor for them to come too late for.
struct at_thread_end {
  bool armed = false;
  ~at_thread_end() {
    if (!armed) return;
    use();
    shared.reset();
    use();
    auto kept = shared.detach();
    if (kept && kept->mark != 7) die("detached instance is gone");  // empty when another thread came first
  }
};
thread_local at_thread_end constructed_before;
thread_local at_thread_end constructed_after;

TEST_F(GuardedSingletonProcess, Rule9_UsableFromThreadLocalDestructorsOfManyThreadsAtOnce) {
  EXPECT_EXIT(
      {
        ::alarm(30);
        std::vector<std::thread> threads;
        for (int i = 0; i < 16; ++i) {
          threads.emplace_back([] {
            constructed_before.armed = true;
            use();
            constructed_after.armed = true;
          });
        }
        for (auto& each : threads) each.join();
        // The main thread's are destroyed by exit, before static objects are.
        constructed_before.armed = true;
        use();
        constructed_after.armed = true;
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

// A handle in static storage is let go after main; its instance has been detached, so that ends it.
TEST_F(GuardedSingletonProcess, AHandleOfStaticStorageMayBeTheLastOne) {
  EXPECT_EXIT(
      {
        static decltype(shared)::handle kept;
        kept = shared.get();
        shared.shutdown();
        if (kept->mark != 7 || !kept.detached()) die("not pinned");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(GuardedSingletonProcess, QuickExitAndTerminateHandlersMayUseIt) {
  EXPECT_EXIT(
      {
        std::at_quick_exit([] { use(); });
        std::quick_exit(3);
      },
      testing::ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        std::set_terminate([] {
          use();
          std::_Exit(4);
        });
        std::terminate();
      },
      testing::ExitedWithCode(4), "");
}

#if defined(__linux__)
// Two processes in a row that are the first of their PID namespaces: a number does not tell a child from its parent.
TEST_F(GuardedSingletonProcess, Rule9_AForkedChildMayHaveTheNumberOfItsParent) {
  // In a child, so that this process, whose end sanitizers look at, stays where it is.
  const pid_t apart = ::fork();
  ASSERT_GE(apart, 0);
  if (apart == 0) {
    ::alarm(60);
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) ::_exit(77);
    auto pinned = shared.get();
    shared.reset();
    const auto as_first = [](auto f) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(30);
        ::_exit(::getpid() == 1 && f() ? 0 : 1);
      }
      int status = -1;
      ::waitpid(child, &status, 0);
      return status == 0;
    };
    ::_exit(as_first([&] {
      return ::unshare(CLONE_NEWPID) == 0 && as_first([&] {
               pinned.release();
               return static_cast<bool>(shared.drain_for(std::chrono::seconds(0)));
             });
    })
                ? 0
                : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(apart, &status, 0), apart);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no process namespaces here";
  EXPECT_EQ(status, 0);
}
#endif

#endif  // CURFEW_POSIX

}  // namespace
