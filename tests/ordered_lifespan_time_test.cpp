// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What an ordered_lifespan does when, in a time of its own: durations here are exact, and hours cost nothing.

#include <curfew/ordered_lifespan.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/fake_time.hpp"
#include "support/lifespan_probe.hpp"
#include "support/park.hpp"

namespace {

using namespace curfew_test;
using curfew::lifespan_event;
using curfew::lifespan_event_kind;
using lifespan = curfew::basic_ordered_lifespan<fake_sync>;
using fake_fence = curfew::basic_admission_fence<fake_sync>;

fake_sync::clock::time_point now() {
  return fake_sync::clock::now();
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// The moment of a request is kept in microseconds.
std::chrono::milliseconds whole(std::chrono::nanoseconds span) {
  return std::chrono::floor<std::chrono::milliseconds>(span);
}

/// The options as they are for everybody, without handlers.
lifespan_options plain() {
  lifespan_options options;
  options.owned_signals = {};
  return options;
}

// --- budgets, to the millisecond

TEST(LifespanTime, G4_OneHungStopOfEightCostsItsSliceAndNothingElse) {
  watchdog dog("G4");
  journal log;
  fake_hang stuck;
  lifespan life(plain());
  for (int i = 0; i != 8; ++i) {
    auto& stage = life.add("s" + std::to_string(i));
    if (i == 5) {
      stage.stop(stuck.hook()).budget(lifespan_phase::stop, 300ms);
    } else {
      stage.stop([&log, i] { log(std::to_string(i)); });
    }
  }
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(log.text(), "7 6 4 3 2 1 0");
  EXPECT_EQ(whole(report.total), 300ms);
  EXPECT_EQ(report.exit_code, 124);
  ASSERT_EQ(report.abandoned.size(), 1u);
  EXPECT_TRUE(contains(report.abandoned[0], "'s5'") && contains(report.abandoned[0], "300.0 ms"));
  std::printf("G4: one hung stop of eight, slice 300 ms: stopped after %.1f ms, %zu others ran\n",
              std::chrono::duration<double, std::milli>(report.total).count(), log.lines().size());
}

TEST(LifespanTime, G5_WhenAllEightHangTheStopLastsExactlyItsBudget) {
  watchdog dog("G5");
  std::array<fake_hang, 8> stuck;
  for (const bool in_turn : {true, false}) {
    lifespan life(plain());  // 25 s for the stop, 5 s a hook, 100 ms of it kept for each hook to come
    for (std::size_t i = 0; i != stuck.size(); ++i) {
      auto& stage = life.add("s" + std::to_string(i));
      stage.stop(stuck[i].hook());
      if (!in_turn) stage.parallel();
    }
    EXPECT_TRUE(life.start());
    const auto& report = life.stop();
    EXPECT_EQ(report.abandoned.size(), 8u);
    // Four times 5 s, then what is left but 300 ms, then three reserves; together, one slice.
    EXPECT_EQ(whole(report.total), in_turn ? 25s : 5s) << report.to_string();
    std::printf("G5: eight hung stops %s: stopped after %.1f ms\n", in_turn ? "in turn" : "in parallel",
                std::chrono::duration<double, std::milli>(report.total).count());
  }
}

TEST(LifespanTime, G5_ReservesBoundAStopWhoseClockIsSpent) {
  watchdog dog("G5");
  std::array<fake_hang, 6> stuck;
  auto options = plain();
  options.stop_budget = 150ms;
  lifespan life(options);
  for (std::size_t i = 0; i != 3; ++i) {
    life.add("s" + std::to_string(i)).close(stuck[2 * i].hook()).stop(stuck[2 * i + 1].hook());
  }
  EXPECT_TRUE(life.start());
  EXPECT_EQ(whole(life.stop().total), 600ms);  // six hooks, 100 ms each
}

TEST(LifespanTime, Rule5_SlowAtHalfToldBeforeTheEndAbandonedAtTheEnd) {
  watchdog dog("rule 5");
  std::vector<std::string> told;
  fake_hang stuck;
  auto fired = std::make_shared<std::chrono::nanoseconds>(0);
  lifespan life(plain());
  fake_sync::clock::time_point begin;
  life.observe([&](const lifespan_event& event) {
    if (event.stage.empty()) return;
    const auto at = std::chrono::duration_cast<std::chrono::milliseconds>(event.elapsed).count();
    switch (event.kind) {
      case lifespan_event_kind::stage_begin:
        begin = now();
        break;
      case lifespan_event_kind::stage_slow:
        told.push_back("slow " + std::to_string(at));
        break;
      case lifespan_event_kind::stage_hung:
        told.push_back("hung " + std::to_string(at));
        break;
      default:
        told.push_back(curfew::to_string(event.outcome));
    }
  });
  life.add("x").stop([hook = stuck.hook(), fired](const stage_context& context) {
    const auto from = now();
    const std::stop_callback tell(context.token, [&] { *fired = now() - from; });
    EXPECT_EQ(context.deadline - from, 5s);
    hook(context);
  });
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(told, (std::vector<std::string>{"slow 2500", "hung 5000", "abandoned"}));
  EXPECT_EQ(*fired, 4800ms);  // hang_grace is 200 ms
}

TEST(LifespanTime, Rule5_AHookThatIsAbandonedWithoutGraceIsToldAllTheSame) {
  watchdog dog("rule 5");
  auto options = plain();
  options.hang_grace = 0ms;
  lifespan life(options);
  auto told = std::make_shared<fake_gate>();
  life.add("x").stop([told](const stage_context& context) {
    fake_sync::sleep_for(6s);  // is abandoned meanwhile
    if (context.token.stop_requested()) told->open();
  });
  EXPECT_TRUE(life.start());
  EXPECT_EQ(life.stop().abandoned.size(), 1u);
  EXPECT_TRUE(told->wait(1h));
}

TEST(LifespanTime, Rule7_TheStartHasAClockOfItsOwnAndTheRollbackAnother) {
  watchdog dog("rule 7");
  fake_hang start, stop;
  lifespan life(plain());
  life.add("a").stop(stop.hook());
  life.add("b").start(start.hook());
  EXPECT_FALSE(life.start());
  const auto& report = life.report();
  EXPECT_EQ(find(report, "b", lifespan_phase::start)->took, 15s);
  EXPECT_EQ(find(report, "a", lifespan_phase::stop)->took, 5s);
  EXPECT_EQ(whole(report.total), 5s);  // from the request, which came when the start had failed
  EXPECT_EQ(report.exit_code, 1);
}

TEST(LifespanTime, Rule8_ASignalWithinTheGuardIsCountedAndNoMore) {
  watchdog dog("rule 8");
  for (const auto& [gap, hurried] : {std::pair{499ms, false}, std::pair{500ms, true}}) {
    lifespan life(plain());
    std::vector<urgency> seen;
    life.add("b").stop([&](const stage_context& context) { seen.push_back(context.pressure); });
    life.add("a").stop([&, pause = gap](const stage_context& context) {
      fake_sync::sleep_for(pause);
      life.simulate_signal(SIGINT);
      nap(context, 10ms);
      seen.push_back(context.pressure);
    });
    EXPECT_TRUE(life.start());
    life.simulate_signal(SIGTERM);
    const auto& report = life.stop();
    EXPECT_EQ(seen, (std::vector{urgency::normal, hurried ? urgency::hurried : urgency::normal}));
    EXPECT_EQ(report.signals, (std::map<int, unsigned>{{SIGINT, 1}, {SIGTERM, 1}}));
    EXPECT_EQ(report.signal, SIGTERM);
  }
}

TEST(LifespanTime, Rule8_BeingHurriedCutsTheRestOfTheStopToItsBudget) {
  watchdog dog("rule 8");
  fake_hang stuck, more;
  lifespan life(plain());
  life.add("b").drain(more.hook());
  life.add("a").after("b").drain(stuck.hook());
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGTERM);
  fake_sync::thread second([&] {
    fake_sync::sleep_for(3s);
    life.simulate_signal(SIGTERM);
  });
  const auto& report = life.stop();
  second.join();
  EXPECT_EQ(report.abandoned.size(), 2u);
  EXPECT_EQ(whole(report.total), 5s)
      << report.to_string();  // 3 s until the second signal, and hurried_budget from there
}

TEST(LifespanTime, Rule10_AnAnnouncementIsOutsideOfTheBudget) {
  watchdog dog("rule 10");
  for (const bool again : {false, true}) {
    auto options = plain();
    options.announce = 10s;
    lifespan life(options);
    life.add("x").stop([] {});
    EXPECT_TRUE(life.start());
    life.simulate_signal(SIGTERM);
    fake_sync::thread second([&] {
      fake_sync::sleep_for(2s);
      EXPECT_TRUE(life.accepting() && !life.ready());
      EXPECT_EQ(life.state(), lifespan_state::announcing);
      if (again) life.simulate_signal(SIGTERM);
    });
    EXPECT_EQ(whole(life.stop().total), again ? 2s : 10s);
    second.join();
  }
}

// --- rule 8, G7: no schedule of signals changes the order

/// Three signals at most come at any moments of a stop whose hooks take, throw, hang or return at their token as drawn.
/// What was closed, drained and stopped is in reverse order of the start, barrier by barrier, every time.
TEST(LifespanTime, G7_TenThousandSchedulesOfSecondSignalsAndNoneChangesTheOrder) {
  watchdog dog("G7", 300s);
  constexpr int rounds = thread_sanitizer ? 500 : 10000;
  int hurried = 0;
  int abandoned = 0;
  int violations = 0;
  for (unsigned seed = 0; seed != rounds; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
    journal log;
    auto let_go = std::make_shared<fake_gate>();
    auto options = plain();
    options.stage_stop = options.stage_close = options.stage_drain = 100ms;
    options.stage_reserve = 10ms;
    options.stop_budget = std::chrono::milliseconds(50 + draw(1000));
    options.hurried_budget = std::chrono::milliseconds(draw(200));
    options.escalation_guard = std::chrono::milliseconds(draw(100));
    options.hang_grace = std::chrono::milliseconds(draw(50));
    lifespan life(options);
    const unsigned stages = 2 + draw(2);
    std::string order[3];
    for (unsigned i = 0; i != stages; ++i) {
      auto& stage = life.add(std::to_string(i));
      if (i != 0) stage.after(std::to_string(i - 1));
      for (unsigned p = 0; p != 3; ++p) {
        const std::string line = std::string(1, "cds"[p]) + std::to_string(i) + " ";
        order[p] = line + order[p];
        const auto mood = draw(8);
        const auto span = std::chrono::milliseconds(draw(150));
        const auto hook = [&log, line, mood, span, let_go](const stage_context& context) {
          log(line);
          if (mood == 0) throw std::runtime_error("no");
          if (mood == 1) static_cast<void>(let_go->wait());
          if (mood == 2) nap(context, 1h);
          if (mood == 3) fake_sync::sleep_for(span);
        };
        p == 0 ? stage.close(hook) : p == 1 ? stage.drain(hook) : stage.stop(hook);
      }
    }
    EXPECT_TRUE(life.start());
    life.simulate_signal(SIGTERM);
    fake_sync::thread sender([&life, &options, first = draw(400)] {
      fake_sync::sleep_for(std::chrono::milliseconds(first));
      life.simulate_signal(SIGINT);  // one more past the guard would end the process
      life.simulate_signal(SIGTERM, options.escalation_guard > 0ms ? 3 : 0);
    });
    const auto& report = life.stop();
    sender.join();
    std::string text;
    for (const auto& line : log.lines()) text += line;
    if (text != order[0] + order[1] + order[2]) {
      ++violations;
      ADD_FAILURE() << "seed " << seed << ": " << text;
    }
    hurried += report.total < options.stop_budget && report.signals.count(SIGINT) != 0 ? 1 : 0;
    abandoned += static_cast<int>(report.abandoned.size());
    let_go->open();
    fake_sync::sleep_for(2h);  // for the last of those who were left behind
  }
  EXPECT_GT(hurried, rounds / 20);
  EXPECT_GT(abandoned, rounds / 10);
  std::printf("G7: %d schedules, %d with a second signal in the stop, %d hooks abandoned, %d violations\n", rounds,
              hurried, abandoned, violations);
}

// --- rule 7, G9: a stop at every moment of the start

TEST(LifespanTime, G9_AStopAtEveryMomentOfTheStartOf32StagesLeavesNothingUp) {
  watchdog dog("G9", 120s);
  int moments = 0;
  for (int at = 0; at <= 65; ++at) {
    std::vector<int> up;
    std::vector<int> down;
    lifespan life(plain());
    for (int i = 0; i != 32; ++i) {
      life.add(std::to_string(i))
          .start([&up, i] {
            fake_sync::sleep_for(2ms);
            up.push_back(i);
          })
          .stop([&down, i] { down.push_back(i); });
    }
    fake_sync::thread asker([&] {
      fake_sync::sleep_for(std::chrono::milliseconds(at));
      life.simulate_signal(SIGTERM);
    });
    const bool started = life.start();
    if (started) {
      EXPECT_EQ(life.wait(), stop_cause::signal);
    }
    const auto& report = life.stop();
    asker.join();
    std::reverse(down.begin(), down.end());
    EXPECT_EQ(up, down) << at;
    EXPECT_EQ(report.exit_code, 0);
    ++moments;
  }
  std::printf("G9: stopped at %d moments of a start of 32 stages: what had started was stopped, always\n", moments);
}

// --- a hook's thread that does not end

struct slow_leaver {
  std::shared_ptr<fake_gate> gate;
  ~slow_leaver() {
    if (gate) static_cast<void>(gate->wait());
  }
};

TEST(LifespanTime, Rule5_AThreadLocalDestructorThatHangsIsNamedAndNotWaitedFor) {
  watchdog dog("rule 5");
  auto let_go = std::make_shared<fake_gate>();
  int stopped = 0;
  {
    lifespan life(plain());
    life.add("other").stop([&] { ++stopped; });
    life.add("leaver").stop([let_go] {
      thread_local slow_leaver leaver;
      leaver.gate = let_go;
      fake_sync::sleep_for(10ms);
    });
    EXPECT_TRUE(life.start());
    const auto& report = life.stop();
    EXPECT_EQ(stopped, 1);
    EXPECT_EQ(report.exit_code, 124);
    EXPECT_EQ(whole(report.total), 5s);
    ASSERT_EQ(report.abandoned.size(), 1u);
    EXPECT_TRUE(contains(report.abandoned[0], "'leaver'") && contains(report.abandoned[0], "thread_local"));
    EXPECT_EQ(find(report, "leaver", lifespan_phase::stop)->outcome, stage_outcome::abandoned);
  }
  let_go->open();
}

TEST(LifespanTime, Rule5_AThreadThatEndsWithinTheSliceIsWaitedFor) {
  watchdog dog("rule 5");
  for (const auto linger : {20ms, 5040ms}) {  // the second one past the deadline, but not for longer than the grace
    auto gone = std::make_shared<fake_gate>();
    lifespan life(plain());
    life.add("leaver").stop([gone, linger] {
      struct lingerer {
        std::shared_ptr<fake_gate> gone;
        std::chrono::nanoseconds span{};
        ~lingerer() {
          if (!gone) return;
          fake_sync::sleep_for(span);
          gone->open();
        }
      };
      thread_local lingerer leaver;
      leaver.gone = gone;
      leaver.span = linger > 1s ? 50ms : linger;
      if (linger > 1s) fake_sync::sleep_for(4990ms);
    });
    EXPECT_TRUE(life.start());
    const auto& report = life.stop();
    EXPECT_TRUE(gone->is_open());  // nothing of the hook's thread is left
    EXPECT_EQ(report.exit_code, 0) << report.to_string();
    EXPECT_EQ(whole(report.total), linger > 1s ? 5040ms : 20ms);
  }
}

// --- children that their parent gives up

/// A child with one hook that hangs in a way that cannot be abandoned, so that it is the parent's hook that is.
struct hung_family {
  explicit hung_family(lifespan_phase where) {
    auto& bound = child.add("bound").on_controller();
    auto& other = child.add("other");
    other.close([this] { log("c:other"); }).drain([this] { log("d:other"); }).stop([this] { log("s:other"); });
    switch (where) {
      case lifespan_phase::start:
        bound.start(stuck.hook());
        break;
      case lifespan_phase::close:
        bound.close(stuck.hook());
        break;
      case lifespan_phase::drain:
        bound.drain(stuck.hook());
        break;
      default:
        bound.stop(stuck.hook());
    }
    parent.add("a").stop([this] { log("s:a"); });
    parent.add_child("sub", child);
  }
  journal log;
  fake_hang stuck;
  lifespan child{plain()};
  lifespan parent{plain()};
};

TEST(LifespanTime, Children_OneThatIsGivenUpInItsStartDoesNotHoldUpItsDestructor) {
  watchdog dog("children");
  hung_family family(lifespan_phase::start);
  EXPECT_FALSE(family.parent.start());
  EXPECT_EQ(family.parent.report().exit_code, 1);
  EXPECT_EQ(family.log.text(), "s:a");
  const auto before = now();
  const auto& report = family.child.stop();
  EXPECT_EQ(report.exit_code, 124);
  ASSERT_EQ(report.abandoned.size(), 1u);
  EXPECT_TRUE(contains(report.abandoned[0], "given up"));
  EXPECT_EQ(now() - before, 0ns);
}

TEST(LifespanTime, Children_WhatIsLeftOfOneThatIsGivenUpIsRunWhenTheHangEnds) {
  watchdog dog("children");
  for (const auto where : {lifespan_phase::close, lifespan_phase::drain, lifespan_phase::stop}) {
    hung_family family(where);
    EXPECT_TRUE(family.parent.start());
    const auto& report = family.parent.stop();
    EXPECT_EQ(report.exit_code, 124);
    EXPECT_EQ(family.log.lines().back(), "s:a");
    const auto before = now();
    EXPECT_EQ(family.child.stop().exit_code, 124);
    EXPECT_EQ(now() - before, 0ns);
    EXPECT_NE(family.child.state(), lifespan_state::stopped);
    family.stuck.let_go();
    EXPECT_TRUE(eventually([&] { return family.child.state() == lifespan_state::stopped; }));
    for (const char* line : {"c:other", "d:other", "s:other"}) EXPECT_EQ(family.log.count(line), 1u) << line;
  }
}

TEST(LifespanTime, Children_OneThatComesUpAfterItWasGivenUpGoesDownAgain) {
  watchdog dog("children");
  journal log;
  auto options = plain();
  lifespan child(options);
  lifespan parent(options);
  fake_hang slow;
  child.add("x").on_controller().start(slow.hook()).stop([&] { log("-x"); });
  parent.add_child("sub", child).budget(lifespan_phase::start, 1s);
  EXPECT_FALSE(parent.start());
  slow.let_go();
  EXPECT_TRUE(eventually([&] { return child.state() == lifespan_state::stopped; }));
  EXPECT_EQ(log.text(), "-x");
}

TEST(LifespanTime, Children_AGrandchildIsGivenUpToo) {
  watchdog dog("children");
  fake_hang stuck;
  {
    lifespan grandchild(plain());
    lifespan child(plain());
    lifespan parent(plain());
    grandchild.add("g").on_controller().drain(stuck.hook());
    child.add_child("inner", grandchild).on_controller();
    parent.add_child("outer", child);
    EXPECT_TRUE(parent.start());
    EXPECT_EQ(parent.stop().exit_code, 124);
  }
}

TEST(LifespanTime, Children_AStopOfAChildByAHookOfItsParentOnlyAsksWhileTheParentDrivesIt) {
  watchdog dog("children");
  for (const auto phase : {lifespan_phase::start, lifespan_phase::close, lifespan_phase::drain, lifespan_phase::stop}) {
    journal log;
    lifespan child(plain());
    lifespan sibling(plain());
    lifespan parent(plain());
    child.add("x").stop([&] { log("-x"); });
    const auto ask = [&](const stage_context& context) {
      const auto before = now();
      EXPECT_NE(child.stop().cause, stop_cause::none);
      EXPECT_EQ(now() - before, 0ns) << to_string(context.phase);
      log("asked");
    };
    const auto put = [&](auto& stage) {
      phase == lifespan_phase::start   ? stage.start(ask)
      : phase == lifespan_phase::close ? stage.close(ask)
      : phase == lifespan_phase::drain ? stage.drain(ask)
                                       : stage.stop(ask);
    };
    put(sibling.add("inner"));
    parent.add_child("sub", child);
    put(parent.add("later"));
    parent.add_child("sibling", sibling);
    EXPECT_TRUE(parent.start());
    if (phase == lifespan_phase::start) {
      EXPECT_EQ(child.state(), lifespan_state::stopped);  // nobody drove it then
    }
    const auto& report = parent.stop();
    EXPECT_EQ(report.exit_code, 0) << report.to_string();
    EXPECT_EQ(log.count("-x"), 1u);
    EXPECT_EQ(log.count("asked"), 2u);
    EXPECT_EQ(whole(report.total), 0ns);
    EXPECT_EQ(child.state(), lifespan_state::stopped);
  }
}

// --- observers

TEST(LifespanTime, Observers_AreToldOneAtATimeAndInOrder) {
  watchdog dog("observers");
  auto options = plain();
  options.escalation_guard = 1ms;
  lifespan life(options);
  std::atomic<int> inside{0};
  std::vector<std::string> told;
  fake_gate sent;
  life.observe([&](const lifespan_event& event) {
    EXPECT_EQ(inside.fetch_add(1), 0);
    told.push_back(event.kind == lifespan_event_kind::unattended ? "unattended" : curfew::to_string(life.state()));
    if (life.state() == lifespan_state::running && told.size() == 2) {
      life.simulate_signal(SIGTERM);
      sent.open();
      fake_sync::sleep_for(10ms);  // somebody else has something to say meanwhile
    }
    inside.fetch_sub(1);
  });
  fake_sync::thread poller([&] {
    EXPECT_TRUE(sent.wait());
    fake_sync::sleep_for(5ms);
    life.poll_signals();  // finds that the signal waited for too long
  });
  EXPECT_TRUE(life.start());
  poller.join();
  life.stop();
  EXPECT_EQ(told, (std::vector<std::string>{"starting", "running", "unattended", "closing", "draining", "stopping",
                                            "stopped"}));
}

// --- reload

TEST(LifespanTime, Rule9_AReloadThatHangsDoesNotBlockAStop) {
  watchdog dog("rule 9");
  journal log;
  fake_hang stuck;
  auto options = plain();
  options.on_hangup = [hook = stuck.hook()] { hook({}); };
  lifespan life(options);
  life.add("x").close([&] { log("c"); }).stop([&] { log("s"); });
  EXPECT_TRUE(life.start());
  auto over = std::make_shared<fake_gate>();
  fake_sync::thread waiter([&life, over] {
    EXPECT_EQ(life.wait(), stop_cause::signal);
    over->open();
  });
  const std::stop_callback told(life.token(), [&] { log("told"); });
  life.simulate_signal(SIGHUP);
  fake_sync::sleep_for(1min);
  EXPECT_TRUE(stuck.came());
  EXPECT_EQ(life.state(), lifespan_state::running);
  life.simulate_signal(SIGTERM);
  fake_sync::sleep_for(1s);
  EXPECT_EQ(life.state(), lifespan_state::stopped);  // though nobody but the waiter was there to do it
  EXPECT_EQ(log.text(), "told c s");
  const auto& report = life.report();
  EXPECT_EQ(report.exit_code, 124);
  ASSERT_EQ(report.abandoned.size(), 1u);
  EXPECT_TRUE(contains(report.abandoned[0], "on_hangup"));
  EXPECT_FALSE(over->is_open());
  stuck.let_go();
  EXPECT_TRUE(over->wait());
  waiter.join();
  EXPECT_FALSE(life.reset());
}

TEST(LifespanTime, Rule9_AReloadThatReturnsWithinTheGraceLeavesTheStopToItsThread) {
  watchdog dog("rule 9");
  auto options = plain();
  lifespan* self = nullptr;
  options.on_hangup = [&] {
    fake_gate told;
    const std::stop_callback tell(self->token(), [&] { told.open(); });
    EXPECT_TRUE(told.wait());
    fake_sync::sleep_for(150ms);
  };
  lifespan life(options);
  self = &life;
  std::thread::id stopper, waiter_id;
  life.add("x").on_controller().stop([&] { stopper = fake_sync::self(); });
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGHUP);
  int code = 99;
  fake_sync::thread waiter([&] {
    waiter_id = fake_sync::self();
    life.wait();
    code = life.stop().exit_code;
  });
  fake_sync::sleep_for(1s);
  life.simulate_signal(SIGTERM);
  waiter.join();
  EXPECT_EQ(code, 0) << life.report().to_string();
  EXPECT_EQ(stopper, waiter_id);
}

TEST(LifespanTime, Rule9_AStopByAnotherThreadLetsAReloadEndFirst) {
  watchdog dog("rule 9");
  auto options = plain();
  journal log;
  options.on_hangup = [&] {
    fake_sync::sleep_for(100ms);
    log("reloaded");
  };
  lifespan life(options);
  life.add("x").close([&] { log("closing"); });
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGHUP);
  fake_sync::thread waiter([&] { life.wait(); });
  fake_sync::sleep_for(50ms);
  EXPECT_EQ(life.stop().exit_code, 0);
  waiter.join();
  EXPECT_EQ(log.text(), "reloaded closing");
}

// --- T46: a console, as on Windows, where the system calls from a thread of its own

using console = curfew::detail::console_owner<fake_sync>;
constexpr auto console_signals = curfew::detail::signal_bit(SIGINT) | curfew::detail::signal_bit(SIGTERM);

std::atomic<lifespan*> told_by_console{nullptr};

bool own(console& desk, lifespan& life, std::uint64_t signals = console_signals) {
  return desk.acquire(
      signals, [](int signo) { told_by_console.load()->simulate_signal(signo); }, [](const void*) noexcept {}, nullptr,
      [&life] { told_by_console = &life; });
}

TEST(LifespanTime, T46_WhenTheWindowIsClosedTheProcessLastsUntilTheOrderedStopIsOver) {
  watchdog dog("T46 close");
  using namespace curfew::detail;
  for (const auto event : {console_close, console_logoff, console_shutdown}) {
    journal log;
    console desk;
    fake_gate up;
    fake_sync::thread system([&] {
      EXPECT_TRUE(up.wait());
      const auto began = now();
      EXPECT_TRUE(desk.on_event(event));
      log("the system ends the process");
      EXPECT_EQ(now() - began, 3s);
    });
    {
      lifespan life(plain());
      ASSERT_TRUE(own(desk, life));
      life.add("pool").stop([&] {
        fake_sync::sleep_for(3s);
        log("pool down,");
      });
      ASSERT_TRUE(life.start());
      up.open();
      EXPECT_EQ(life.wait(), stop_cause::signal);
      EXPECT_EQ(life.stop().signal, SIGTERM);
      log("stopped,");
      desk.release();
    }
    system.join();
    EXPECT_EQ(log.text(), "pool down, stopped, the system ends the process");
  }
}

TEST(LifespanTime, T46_AStopThatHangsHoldsTheSystemNoLongerThanItWaits) {
  watchdog dog("T46 hang");
  console desk;
  lifespan life(plain());
  ASSERT_TRUE(own(desk, life));
  const auto began = now();
  EXPECT_TRUE(desk.on_event(curfew::detail::console_close));  // and nobody stops
  EXPECT_EQ(now() - began, curfew::detail::console_patience);
  EXPECT_LT(curfew::detail::console_patience, 5s);
  EXPECT_EQ(life.wait(), stop_cause::signal);
  desk.release();
}

TEST(LifespanTime, T46_CtrlCAndCtrlBreakHoldNobodyUp) {
  watchdog dog("T46 ctrl");
  constexpr unsigned long interrupt = curfew::detail::console_interrupt, control_break = 1;
  console desk;
  lifespan life(plain());
  EXPECT_FALSE(desk.on_event(interrupt) || desk.on_event(curfew::detail::console_close)) << "nobody owns";
  ASSERT_TRUE(own(desk, life));
  EXPECT_EQ(desk.owned(), console_signals);
  lifespan second(plain());
  EXPECT_FALSE(own(desk, second));
  EXPECT_EQ(told_by_console.load(), &life) << "a refused owner has touched nothing";
  const auto began = now();
  EXPECT_TRUE(desk.on_event(control_break));
  EXPECT_TRUE(desk.on_event(interrupt));
  EXPECT_EQ(now(), began);
  EXPECT_EQ(life.stop().signals, (std::map<int, unsigned>{{SIGINT, 1}, {SIGTERM, 1}}));
  desk.release();
  EXPECT_TRUE(own(desk, second, curfew::detail::signal_bit(SIGTERM)));
  EXPECT_FALSE(desk.on_event(interrupt)) << "goes to whoever was there before";
  EXPECT_TRUE(desk.on_event(control_break));
  desk.release();
}

TEST(LifespanTime, T46_TheNextOwnerDoesNotHoldTheEventOfTheLast) {
  watchdog dog("T46 next");
  console desk;
  lifespan first(plain());
  lifespan next(plain());
  ASSERT_TRUE(own(desk, first));
  const auto began = now();
  fake_sync::thread system([&] {
    EXPECT_TRUE(desk.on_event(curfew::detail::console_close));
    EXPECT_EQ(now() - began, 1s);
  });
  fake_sync::sleep_for(1s);  // in that time: until the system's thread is held
  desk.release();
  EXPECT_TRUE(own(desk, next));
  system.join();
  EXPECT_TRUE(next.start());
  EXPECT_EQ(next.stop().signal, 0);
  desk.release();
}

}  // namespace
