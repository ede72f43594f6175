// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Every case runs in a child of its own: what is tested is what happens to a process.

#include <curfew/ordered_lifespan.hpp>
#include <curfew/signals.hpp>

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/at_rest.hpp"
#include "support/lifespan_probe.hpp"
#include "support/park.hpp"

namespace {

using namespace curfew_test;
using curfew::fallback_signal_guard;
using curfew::ordered_lifespan;
using curfew::shutdown_owned;

#define CHILD_CHECK(condition)                                                                \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: not so in a child: %s\n", __FILE__, __LINE__, #condition); \
      ::_exit(99);                                                                            \
    }                                                                                         \
  } while (false)

void nothing(int) {}
std::atomic<int> caught{0};
void count(int) {
  caught.fetch_add(1);
}

auto handler_of(int signo) {
  struct sigaction now {};
  ::sigaction(signo, nullptr, &now);
  return now.sa_handler;
}

/// The signal ends the process, sooner or later. In a wait in which ThreadSanitizer delivers signals.
[[noreturn]] void await_the_end() {
  for (;;) ::poll(nullptr, 0, -1);
}

// --- shutdown_owned

TEST(ShutdownOwned, IsTrueForWhatALifespanOwnsAndForNothingElse) {
  EXPECT_EQ(shell_code(in_child([] {
              for (int signo = -2; signo != 70; ++signo) CHILD_CHECK(!shutdown_owned(signo));
              {
                ordered_lifespan life;
                for (int signo = -2; signo != 70; ++signo) {
                  CHILD_CHECK(shutdown_owned(signo) == (signo == SIGTERM || signo == SIGINT));
                }
                ::signal(SIGTERM, &nothing);  // displaced, and owned all the same
                CHILD_CHECK(shutdown_owned(SIGTERM));
              }
              ::signal(SIGTERM, &nothing);  // a foreign handler alone owns nothing
              CHILD_CHECK(!shutdown_owned(SIGTERM));
              return 0;
            })),
            0);
}

TEST(ShutdownOwned, MayBeAskedInASignalHandler) {
  EXPECT_EQ(shell_code(in_child([] {
              static std::atomic<int> answer{-1};
              ::signal(SIGUSR1, [](int) { answer = shutdown_owned(SIGTERM) ? 1 : 0; });
              ::raise(SIGUSR1);
              CHILD_CHECK(answer == 0);
              ordered_lifespan life;
              ::raise(SIGUSR1);
              CHILD_CHECK(answer == 1);
              return 0;
            })),
            0);
}

/// Another shared object's lifespan, as far as this one can see it: the marker and a handler that is not ours.
void pretend_foreign_owner(pid_t pid, unsigned long long signals) {
  char text[96];
  std::snprintf(text, sizeof text, "%d:%llx:%llx", static_cast<int>(pid), signals,
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(&count)));
  ::setenv("CURFEW_SHUTDOWN_OWNER", text, 1);
}

TEST(ShutdownOwned, RecognisesALifespanOfAnotherSharedObjectByItsMarkerAndItsHandler) {
  EXPECT_EQ(shell_code(in_child([] {
              const auto bits = curfew::detail::signal_bit(SIGTERM) | curfew::detail::signal_bit(SIGINT);
              pretend_foreign_owner(::getpid(), bits);
              CHILD_CHECK(!shutdown_owned(SIGTERM));  // left over from before an exec: the handler is not there
              ::signal(SIGTERM, &count);
              CHILD_CHECK(shutdown_owned(SIGTERM) && shutdown_owned(SIGINT) && !shutdown_owned(SIGHUP));
              try {
                ordered_lifespan life;
                return 1;
              } catch (const curfew::ownership_conflict&) {
              }
              fallback_signal_guard guard({SIGTERM, SIGHUP}, [](int) {});
              CHILD_CHECK(!guard.installed(SIGTERM) && guard.installed(SIGHUP));
              CHILD_CHECK(handler_of(SIGTERM) == &count);
              pretend_foreign_owner(::getpid() + 1, bits);
              CHILD_CHECK(!shutdown_owned(SIGTERM));  // inherited from a parent
              for (const char* broken : {"", ":", "12", "12:", "12:4000:", "12:4000:xyz", "x:4000:1", "12:4000:1:"}) {
                ::setenv("CURFEW_SHUTDOWN_OWNER", broken, 1);
                CHILD_CHECK(!shutdown_owned(SIGTERM));
              }
              return 0;
            })),
            0);
}

TEST(ShutdownOwned, AsTheVeryFirstThingDoesNotHoldUpALifespanThatIsMadeMeanwhile) {
  for (const bool in_fork : {false, true}) {
    EXPECT_EQ(shell_code(in_child([&] {
                if (in_fork) {
                  const ordered_lifespan of_the_parent;
                  const pid_t child = ::fork();
                  if (child != 0) return reap(child);
                  ::alarm(20);
                }
                {
                  std::optional<curfew::detail::environment_scan> asking(std::in_place);
                  std::optional<curfew::detail::disposition_lock> first(std::in_place);
                  first.reset();
                  asking.reset();
                }
                const ordered_lifespan life;
                CHILD_CHECK(shutdown_owned(SIGTERM));
                if (in_fork) std::_Exit(0);
                return 0;
              })),
              0);
  }
}

TEST(ShutdownOwned, T24_AComponentUnderALifespanInstallsNothingButItsHangup) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life;
              const auto term = handler_of(SIGTERM);
              fallback_signal_guard guard({SIGTERM, SIGINT, SIGHUP}, [](int) {});
              CHILD_CHECK(handler_of(SIGTERM) == term);
              CHILD_CHECK(!guard.installed(SIGTERM) && !guard.installed(SIGINT) && guard.installed(SIGHUP));
              CHILD_CHECK(life.start());
              ::raise(SIGTERM);
              CHILD_CHECK(life.wait() == stop_cause::signal);
              const auto& report = life.stop();
              CHILD_CHECK(report.displaced_handlers.empty());
              return report.exit_code;
            })),
            0);
}

// --- fallback_signal_guard

TEST(FallbackSignalGuard, TheCallbackRunsInNormalContextThenTheSignalTakesItsCourse) {
  channel log;
  const int status = in_child([&]() -> int {
    std::mutex lock;
    const auto main_thread = std::this_thread::get_id();
    fallback_signal_guard guard({SIGTERM}, [&](int signo) {
      const std::lock_guard held(lock);  // would hang in a handler, see below
      CHILD_CHECK(signo == SIGTERM && std::this_thread::get_id() != main_thread);
      sigset_t mask;
      ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      CHILD_CHECK(sigismember(&mask, SIGTERM) == 0);  // what it starts inherits no blocked signals
      log.tell('c');
    });
    CHILD_CHECK(guard.installed(SIGTERM));
    {
      const std::lock_guard held(lock);
      errno = ENOTTY;
      ::raise(SIGTERM);
      CHILD_CHECK(errno == ENOTTY);
    }
    await_the_end();
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_EQ(log.hear(), 'c');
}

TEST(FallbackSignalGuard, AnExceptionFromTheCallbackDoesNotStopTheSignal) {
  EXPECT_EQ(shell_code(in_child([]() -> int {
              fallback_signal_guard guard({SIGINT}, [](int) { throw std::runtime_error("cleanup failed"); });
              ::raise(SIGINT);
              await_the_end();
            })),
            128 + SIGINT);
}

TEST(FallbackSignalGuard, APreviousHandlerIsReachedOnceAndStays) {
  EXPECT_EQ(shell_code(in_child([] {
              ::signal(SIGTERM, &count);
              std::atomic<int> called{0};
              fallback_signal_guard guard({SIGTERM}, [&](int) { ++called; });
              ::raise(SIGTERM);
              CHILD_CHECK(eventually([] { return caught.load() == 1; }));
              CHILD_CHECK(called == 1 && !guard.installed(SIGTERM) && handler_of(SIGTERM) == &count);
              ::raise(SIGTERM);
              CHILD_CHECK(caught == 2 && called == 1);
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, AnIgnoredSignalIsLeftAlone) {
  EXPECT_EQ(shell_code(in_child([] {
              ::signal(SIGHUP, SIG_IGN);
              fallback_signal_guard guard({SIGHUP}, [](int) { ::_exit(1); });
              CHILD_CHECK(!guard.installed(SIGHUP) && handler_of(SIGHUP) == SIG_IGN);
              ::raise(SIGHUP);
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, OwnershipThatComesLaterTakesTheSignalAndGivesItBack) {
  channel log;
  EXPECT_EQ(shell_code(in_child([&]() -> int {
              fallback_signal_guard guard({SIGTERM}, [&](int) { log.tell('g'); });
              {
                ordered_lifespan life;
                CHILD_CHECK(!guard.installed(SIGTERM));
                CHILD_CHECK(life.start());
                ::raise(SIGTERM);
                CHILD_CHECK(life.wait() == stop_cause::signal);
                CHILD_CHECK(life.stop().displaced_handlers.empty());
              }
              CHILD_CHECK(guard.installed(SIGTERM));
              log.tell('b');
              ::raise(SIGTERM);
              await_the_end();
            })),
            128 + SIGTERM);
  EXPECT_EQ(log.hear(), 'b');
  EXPECT_EQ(log.hear(), 'g');
}

int threads_of_this_process() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) count += entry.exists() ? 1 : 0;
  return count;
}

TEST(FallbackSignalGuard, OneMadeUnderALifespanWorksOnceThatHasGone) {
  channel log;
  EXPECT_EQ(shell_code(in_child([&]() -> int {
              std::optional<ordered_lifespan> life(std::in_place);
              const int before = threads_of_this_process();
              fallback_signal_guard first({SIGTERM}, [&](int) { log.tell('1'); });
              std::optional<fallback_signal_guard> gone(std::in_place, std::initializer_list<int>{SIGTERM},
                                                        [&](int) { log.tell('x'); });
              fallback_signal_guard second({SIGTERM}, [&](int) { log.tell('2'); });
              CHILD_CHECK(threads_of_this_process() == before);  // waiting costs no thread
              gone.reset();
              CHILD_CHECK(life->start());
              life->stop();
              CHILD_CHECK(!first.installed(SIGTERM) && !second.installed(SIGTERM));
              life.reset();
              CHILD_CHECK(second.installed(SIGTERM) && !shutdown_owned(SIGTERM));
              ::raise(SIGTERM);
              await_the_end();
            })),
            128 + SIGTERM);
  EXPECT_EQ(log.hear(), '2');
  EXPECT_EQ(log.hear(), '1');
  EXPECT_EQ(log.hear(), 0);
}

TEST(FallbackSignalGuard, OneMadeUnderALifespanWaitsForTheNextOneToo) {
  EXPECT_EQ(shell_code(in_child([] {
              std::atomic<int> called{0};
              ::signal(SIGINT, SIG_IGN);
              std::optional<ordered_lifespan> life(std::in_place);
              fallback_signal_guard guard({SIGTERM, SIGINT}, [&](int) { ++called; });
              std::thread([&] { CHILD_CHECK(!guard.installed(SIGTERM)); }).join();
              for (int i = 0; i != 3; ++i) {
                life.reset();
                CHILD_CHECK(guard.installed(SIGTERM));
                CHILD_CHECK(!guard.installed(SIGINT) && handler_of(SIGINT) == SIG_IGN);
                life.emplace();
                CHILD_CHECK(!guard.installed(SIGTERM));
              }
              ::raise(SIGTERM);
              CHILD_CHECK(life->wait() == stop_cause::signal && called == 0);
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, AForkedChildDoesNotInstallWhatWaitsInItsParent) {
  EXPECT_EQ(shell_code(in_child([] {
              ordered_lifespan life;
              fallback_signal_guard guard({SIGTERM}, [](int) { ::_exit(1); });
              if (thread_sanitizer) return 0;
              return shell_code(in_child([] {
                { ordered_lifespan own; }
                CHILD_CHECK(handler_of(SIGTERM) != SIG_DFL);  // what was there when it was forked: the parent's
                ::raise(SIGTERM);                             // steps aside
                return 2;
              }));
            })),
            thread_sanitizer ? 0 : 128 + SIGTERM);
}

// --- a component and a lifespan, in every order in which they can meet

/// Stands for a provider: cleans up on a signal unless somebody owns the shutdown.
struct component {
  explicit component(const channel& log) : log_(log) {}
  const channel& log_;
  fallback_signal_guard guard_{{SIGTERM, SIGHUP}, [this](int signo) { log_.tell(signo == SIGTERM ? 't' : 'h'); }};
};

TEST(Ownership, AComponentBuiltBeforeTheLifespanDoesNotTearDownUnderIt) {
  channel log;
  EXPECT_EQ(shell_code(in_child([&] {
              component early(log);
              ordered_lifespan life;
              life.add("pool").drain([&] { log.tell('d'); }).stop([&] { log.tell('s'); });
              life.add("kill").after("pool").start(send_and_await(SIGTERM));
              const int code = life.run();
              CHILD_CHECK(!early.guard_.installed(SIGTERM) && early.guard_.installed(SIGHUP));
              return code;
            })),
            0);
  EXPECT_EQ(log.hear(), 'd');
  EXPECT_EQ(log.hear(), 's');
  EXPECT_EQ(log.hear(), 0);
}

TEST(Ownership, AComponentBuiltByAStageOrOnAnotherThreadInstallsNothing) {
  channel log;
  EXPECT_EQ(shell_code(in_child([&] {
              ordered_lifespan life;
              std::unique_ptr<component> staged, other;
              life.add("a").start([&] { staged = std::make_unique<component>(log); });
              CHILD_CHECK(life.start());
              std::thread([&] { other = std::make_unique<component>(log); }).join();
              ::raise(SIGTERM);
              CHILD_CHECK(life.wait() == stop_cause::signal);
              const auto& report = life.stop();
              CHILD_CHECK(report.displaced_handlers.empty() && other->guard_.installed(SIGHUP));
              return report.exit_code;
            })),
            0);
  EXPECT_EQ(log.hear(), 0);
}

TEST(Ownership, AComponentBuiltAfterTheLifespanHasEndedIsOnItsOwnAgain) {
  channel log;
  EXPECT_EQ(shell_code(in_child([&]() -> int {
              {
                ordered_lifespan life;
                CHILD_CHECK(life.start());
              }
              component late(log);
              CHILD_CHECK(late.guard_.installed(SIGTERM));
              ::raise(SIGTERM);
              await_the_end();
            })),
            128 + SIGTERM);
  EXPECT_EQ(log.hear(), 't');
}

TEST(Ownership, AHangupInTheMiddleOfADrainIsForTheComponent) {
  channel log;
  EXPECT_EQ(shell_code(in_child([&]() -> int {
              ordered_lifespan life;
              component part(log);
              life.add("runs").drain([&] {
                log.tell('d');
                ::kill(::getpid(), SIGHUP);
                await_the_end();
              });
              CHILD_CHECK(life.start());
              life.stop();
              return 0;
            })),
            128 + SIGHUP);
  EXPECT_EQ(log.hear(), 'd');
  EXPECT_EQ(log.hear(), 'h');
}

TEST(Ownership, IsReleasedAfterAFailedStartAndMayBeTakenAgain) {
  EXPECT_EQ(shell_code(in_child([] {
              const auto before = handler_of(SIGTERM);
              for (int i = 0; i != 3; ++i) {
                ordered_lifespan life;
                life.add("a").start([] { throw 7; });
                CHILD_CHECK(!life.start() && shutdown_owned(SIGTERM));
              }
              CHILD_CHECK(!shutdown_owned(SIGTERM) && handler_of(SIGTERM) == before);
              ordered_lifespan second;
              second.add("up").start(send_and_await(SIGTERM));
              return second.run();
            })),
            0);
}

TEST(FallbackSignalGuard, DestructionRestoresWhatIsStillItsOwnAndNothingElse) {
  EXPECT_EQ(shell_code(in_child([] {
              struct sigaction before {};
              before.sa_handler = &count;
              before.sa_flags = SA_NODEFER;
              ::sigaction(SIGTERM, &before, nullptr);
              ::sigaction(SIGTERM, nullptr, &before);
              {
                fallback_signal_guard guard({SIGTERM, SIGINT}, [](int) {});
                CHILD_CHECK(handler_of(SIGTERM) != &count);
                ::signal(SIGINT, &nothing);
                CHILD_CHECK(!guard.installed(SIGINT));
              }
              struct sigaction now {};
              ::sigaction(SIGTERM, nullptr, &now);
              CHILD_CHECK(now.sa_handler == before.sa_handler && now.sa_flags == before.sa_flags);
              CHILD_CHECK(handler_of(SIGINT) == &nothing);
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, AHandlerMetWithoutItsGuardStepsAside) {
  // The lifespan saved the guard's handler, and puts it back when the guard is gone.
  EXPECT_EQ(shell_code(in_child([]() -> int {
              ::signal(SIGTERM, &count);
              auto guard =
                  std::make_unique<fallback_signal_guard>(std::initializer_list<int>{SIGTERM}, [](int) { ::_exit(1); });
              auto life = std::make_unique<ordered_lifespan>();
              guard.reset();
              life.reset();
              ::raise(SIGTERM);
              CHILD_CHECK(caught == 1 && handler_of(SIGTERM) == &count);
              return 0;
            })),
            0);
  // Somebody calls it from a handler of his own.
  EXPECT_EQ(shell_code(in_child([]() -> int {
              static void (*chained)(int) = nullptr;
              auto guard =
                  std::make_unique<fallback_signal_guard>(std::initializer_list<int>{SIGTERM}, [](int) { ::_exit(1); });
              chained = ::signal(SIGTERM, [](int signo) { chained(signo); });
              guard.reset();
              ::raise(SIGTERM);
              await_the_end();
            })),
            128 + SIGTERM);
}

TEST(FallbackSignalGuard, InAForkedChildTheSignalDoesWhatItDidBeforeTheGuard) {
  if (thread_sanitizer) GTEST_SKIP() << "a guard has a thread, and this sanitizer disables children of threads";
  if (address_sanitizer)
    GTEST_SKIP() << "a guard's thread may be allocating, and this allocator does not survive a fork then";
  EXPECT_EQ(shell_code(in_child([] {
              auto outer = std::make_unique<fallback_signal_guard>(std::initializer_list<int>{SIGTERM, SIGUSR1},
                                                                   [](int) { ::_exit(1); });
              auto inner =
                  std::make_unique<fallback_signal_guard>(std::initializer_list<int>{SIGTERM}, [](int) { ::_exit(2); });
              CHILD_CHECK(shell_code(in_child([&]() -> int {
                            ::raise(SIGTERM);
                            await_the_end();
                          })) == 128 + SIGTERM);
              CHILD_CHECK(shell_code(in_child([&]() -> int {
                            CHILD_CHECK(!inner->installed(SIGTERM));
                            inner.reset();  // nothing to wait for, nothing to restore
                            outer.reset();
                            fallback_signal_guard own({SIGTERM}, [](int) { ::_exit(7); });
                            CHILD_CHECK(own.installed(SIGTERM));
                            ::raise(SIGTERM);
                            await_the_end();
                          })) == 7);
              CHILD_CHECK(inner->installed(SIGTERM) && outer->installed(SIGUSR1));
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, GuardsNestAndTheNewestIsCalledFirst) {
  channel log;
  EXPECT_EQ(shell_code(in_child([&]() -> int {
              fallback_signal_guard outer({SIGTERM}, [&](int) { log.tell('o'); });
              auto middle = std::make_unique<fallback_signal_guard>(std::initializer_list<int>{SIGTERM},
                                                                    [&](int) { log.tell('m'); });
              fallback_signal_guard inner({SIGTERM}, [&](int) { log.tell('i'); });
              CHILD_CHECK(inner.installed(SIGTERM) && !outer.installed(SIGTERM));
              middle.reset();  // out of the middle: the others are not to notice
              CHILD_CHECK(inner.installed(SIGTERM));
              ::raise(SIGTERM);
              await_the_end();
            })),
            128 + SIGTERM);
  EXPECT_EQ(log.hear(), 'i');
  EXPECT_EQ(log.hear(), 'o');
  EXPECT_EQ(log.hear(), 0);
}

TEST(FallbackSignalGuard, WhenTheNewestGoesTheOneBelowIsInstalledAgain) {
  EXPECT_EQ(shell_code(in_child([] {
              fallback_signal_guard outer({SIGTERM}, [](int) { ::_exit(3); });
              for (int i = 0; i != 5; ++i) {
                fallback_signal_guard inner({SIGTERM, SIGTERM}, [](int) { ::_exit(4); });
                CHILD_CHECK(inner.installed(SIGTERM));
              }
              CHILD_CHECK(outer.installed(SIGTERM));
              ::raise(SIGTERM);
              await_the_end();
              return 0;
            })),
            3);
}

TEST(FallbackSignalGuard, TheDestructorWaitsForARunningCallback) {
  EXPECT_EQ(shell_code(in_child([] {
              ::signal(SIGTERM, &count);
              std::atomic<bool> inside{false}, leaving{false}, left{false}, over{false};
              const int here = thread_number();
              {
                fallback_signal_guard guard({SIGTERM}, [&](int) {
                  inside = true;
                  while (!left && !(leaving && at_rest(here))) std::this_thread::yield();  // it waits, or did not wait
                  over = !left;
                });
                ::raise(SIGTERM);
                CHILD_CHECK(eventually([&] { return inside.load(); }));
                leaving = true;
              }
              left = true;
              CHILD_CHECK(over);
              CHILD_CHECK(caught == 1);
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, TheCallbackMayDestroyItsGuardOrLeaveTheProcess) {
  EXPECT_EQ(shell_code(in_child([]() -> int {
              static std::unique_ptr<fallback_signal_guard> guard;
              guard = std::make_unique<fallback_signal_guard>(std::initializer_list<int>{SIGTERM},
                                                              [](int) { guard.reset(); });
              ::raise(SIGTERM);
              await_the_end();
            })),
            128 + SIGTERM);
  EXPECT_EQ(shell_code(in_child([]() -> int {
              static std::unique_ptr<fallback_signal_guard> guard;
              guard = std::make_unique<fallback_signal_guard>(std::initializer_list<int>{SIGTERM},
                                                              [](int) { std::exit(6); });
              ::raise(SIGTERM);
              await_the_end();
            })),
            6);
}

TEST(FallbackSignalGuard, ASignalCaughtButNotServedIsNotLostWithTheGuard) {
  EXPECT_EQ(shell_code(in_child([] {
              ::signal(SIGTERM, &count);
              using parked_guard = curfew::basic_fallback_signal_guard<park_sync>;
              park asleep("wakeup.wait.before_poll");
              auto guard = std::make_unique<parked_guard>(std::initializer_list<int>{SIGTERM, SIGINT}, [](int) {});
              CHILD_CHECK(asleep.wait_arrived());
              ::raise(SIGTERM);
              std::thread opener([&] {
                CHILD_CHECK(eventually([] { return handler_of(SIGTERM) == &count; }));
                asleep.open();
              });
              guard.reset();
              opener.join();
              CHILD_CHECK(eventually([] { return caught.load() == 1; }));
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, T47_ProcessOneLeavesToo) {
  const auto program = own_path();
  const int code = shell_code(in_child([&] {
    ::execlp("unshare", "unshare", "-rpf", "--kill-child", program.c_str(), "--guarded", nullptr);
    return 77;
  }));
  if (code == 77 || code == 1) GTEST_SKIP() << "no process namespaces here";
  EXPECT_EQ(code, 128 + SIGTERM);
}

TEST(FallbackSignalGuard, BadInputIsRefusedAndNothingIsInstalled) {
  EXPECT_EQ(shell_code(in_child([] {
              const auto refused = [](std::initializer_list<int> signals, std::function<void(int)> callback) {
                try {
                  fallback_signal_guard guard(signals, std::move(callback));
                  return std::string();
                } catch (const std::invalid_argument& e) {
                  return std::string(e.what());
                }
              };
              CHILD_CHECK(refused({SIGTERM}, nullptr).find("callback") != std::string::npos);
              CHILD_CHECK(refused({SIGTERM, 0}, [](int) {}).find('0') != std::string::npos);
              CHILD_CHECK(refused({SIGTERM, 1000}, [](int) {}).find("1000") != std::string::npos);
              CHILD_CHECK(refused({SIGTERM, SIGKILL}, [](int) {}).find("signal 9") != std::string::npos);
              CHILD_CHECK(handler_of(SIGTERM) == SIG_DFL);
              fallback_signal_guard none({}, [](int) {});
              CHILD_CHECK(!none.installed(SIGTERM) && !none.installed(-1));
              return 0;
            })),
            0);
}

/// No threads, as when the system has no more.
struct threadless_sync : curfew::std_sync {
  struct thread : std::thread {
    thread() = default;
    template <class F>
    explicit thread(F&&) {
      throw std::system_error(EAGAIN, std::generic_category(), "no thread");
    }
  };
};

TEST(FallbackSignalGuard, WithoutAThreadOrADescriptorTheConstructorThrowsAndTakesNothing) {
  EXPECT_EQ(shell_code(in_child([] {
              try {
                curfew::basic_fallback_signal_guard<threadless_sync> guard({SIGTERM}, [](int) {});
                return 1;
              } catch (const std::system_error& e) {
                CHILD_CHECK(e.code().value() == EAGAIN);
              }
              CHILD_CHECK(handler_of(SIGTERM) == SIG_DFL);
              {
                fallback_signal_guard warm({SIGTERM}, [](int) {});
              }  // a sanitizer looks at types through descriptors
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              const auto full = limit;
              limit.rlim_cur = 3;
              ::setrlimit(RLIMIT_NOFILE, &limit);
              try {
                fallback_signal_guard guard({SIGTERM}, [](int) {});
                return 2;
              } catch (const std::system_error& e) {
                ::setrlimit(RLIMIT_NOFILE, &full);
                CHILD_CHECK(e.code().value() == EMFILE);
              }
              CHILD_CHECK(handler_of(SIGTERM) == SIG_DFL);
              return 0;
            })),
            0);
}

TEST(FallbackSignalGuard, ManySignalsAndManyGuardsAtOnce) {
  EXPECT_EQ(shell_code(in_child([] {
              ::signal(SIGUSR1, &count);
              std::atomic<bool> over{false};
              std::thread sender([&] {
                while (!over) ::kill(::getpid(), SIGUSR1);
              });
              for (int i = 0; i != 200; ++i) {
                fallback_signal_guard one({SIGUSR1, SIGUSR2}, [](int) {});
                fallback_signal_guard two({SIGUSR1}, [](int) {});
                if (i % 3 == 0) {
                  lifespan_options options = quiet();
                  options.owned_signals = {SIGUSR1};
                  options.escalation_guard = std::chrono::hours(1);
                  ordered_lifespan life(options);
                }
              }
              over = true;
              sender.join();
              CHILD_CHECK(handler_of(SIGUSR1) == &count);
              const int before = caught.load();
              ::raise(SIGUSR1);
              CHILD_CHECK(caught.load() > before);
              return 0;
            })),
            0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--guarded") {
    fallback_signal_guard guard({SIGTERM}, [](int) {});
    ::raise(SIGTERM);
    await_the_end();
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
