// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

#include <curfew/ordered_lifespan.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_time.hpp"
#include "support/lifespan_probe.hpp"
#include "support/park.hpp"

namespace {

using namespace curfew_test;
using curfew::bad_graph;
using curfew::exit_code_policy;
using curfew::lifespan_event;
using curfew::lifespan_event_kind;

// In fake time, so that nothing here depends on how fast the machine is; where a test parks a thread at a named point,
// or looks at a descriptor, in the time of everybody.
using ordered_lifespan = curfew::basic_ordered_lifespan<fake_sync>;
using real_lifespan = curfew::ordered_lifespan;
using parked_lifespan = curfew::basic_ordered_lifespan<park_sync>;
using thread = fake_sync::thread;
using gate = fake_gate;
using hang = fake_hang;

std::string refusal(ordered_lifespan& life) {
  try {
    life.start();
  } catch (const bad_graph& e) {
    return e.what();
  }
  return "accepted";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string join(const std::vector<std::string>& lines) {
  std::string all;
  for (const auto& line : lines) all += line + "\n";
  return all;
}

// --- rule 1: order

TEST(OrderedLifespan, Rule1_StartsByLayersAndInsideThemByRegistration) {
  watchdog dog("rule 1");
  journal log;
  ordered_lifespan life(quiet());
  life.add("c").after("a", "b").start([&] { log("+c"); }).stop([&] { log("-c"); });
  life.add("a").start([&] { log("+a"); }).stop([&] { log("-a"); });
  life.add("d").after(std::string("c")).start([&] { log("+d"); }).stop([&] { log("-d"); });
  life.add("b").start([&] { log("+b"); }).stop([&] { log("-b"); });
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(log.text(), "+a +b +c +d -d -c -b -a");
}

TEST(OrderedLifespan, Rule1_ALayerIsTheLengthOfTheLongestChain) {
  watchdog dog("rule 1");
  journal log;
  ordered_lifespan life(quiet());
  life.add("shallow").after("base").start([&] { log("shallow"); });
  life.add("deep").after("shallow", "base").start([&] { log("deep"); });
  life.add("base").start([&] { log("base"); });
  life.add("free").start([&] { log("free"); });
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(log.text(), "base free shallow deep");
}

TEST(OrderedLifespan, Rule1_BadGraphsAreRefusedBeforeAnyHookAndNameTheCulprit) {
  watchdog dog("rule 1");
  int called = 0;
  const auto hook = [&] { ++called; };
  {
    ordered_lifespan life(quiet());
    life.add("ok").start(hook);
    life.add("").start(hook);
    EXPECT_TRUE(contains(refusal(life), "stage number 2 has an empty name"));
    EXPECT_EQ(life.state(), lifespan_state::idle);
  }
  {
    ordered_lifespan life(quiet());
    life.add("twin").start(hook);
    life.add("twin").start(hook);
    EXPECT_TRUE(contains(refusal(life), "'twin'"));
  }
  {
    ordered_lifespan life(quiet());
    life.add("api").after("nowhere").start(hook);
    const auto text = refusal(life);
    EXPECT_TRUE(contains(text, "'api'") && contains(text, "'nowhere'")) << text;
  }
  {
    ordered_lifespan life(quiet());
    life.add("first").start(hook);
    life.add("a").after("b", "first").start(hook);
    life.add("b").after("c").start(hook);
    life.add("c").after("a").start(hook);
    life.add("behind").after("a").start(hook);
    const auto text = refusal(life);
    EXPECT_TRUE(contains(text, "a -> b -> c -> a")) << text;
  }
  {
    ordered_lifespan life(quiet());
    life.add("self").after("self").start(hook);
    EXPECT_TRUE(contains(refusal(life), "self -> self"));
    EXPECT_THROW(life.run(), bad_graph);
  }
  for (const auto span : {0ms, -5ms}) {
    ordered_lifespan life(quiet());
    life.add("slow").start(hook).budget(lifespan_phase::stop, span);
    const auto text = refusal(life);
    EXPECT_TRUE(contains(text, "'slow'") && contains(text, "stop")) << text;
  }
  EXPECT_EQ(called, 0);
}

TEST(OrderedLifespan, Rule1_BadBudgetsInTheOptionsAreRefusedByName) {
  watchdog dog("rule 1");
  using options = lifespan_options;
  const std::pair<std::chrono::nanoseconds options::*, const char*> positive[] = {
      {&options::start_budget, "start_budget"}, {&options::stop_budget, "stop_budget"},
      {&options::stage_start, "stage_start"},   {&options::stage_close, "stage_close"},
      {&options::stage_drain, "stage_drain"},   {&options::stage_stop, "stage_stop"}};
  for (const auto& [member, name] : positive) {
    for (const auto span : {0ns, -1ns}) {
      auto bad = quiet();
      bad.*member = span;
      ordered_lifespan life(bad);
      EXPECT_TRUE(contains(refusal(life), name)) << name;
    }
  }
  const std::pair<std::chrono::nanoseconds options::*, const char*> not_negative[] = {
      {&options::stage_reserve, "stage_reserve"},
      {&options::hang_grace, "hang_grace"},
      {&options::announce, "announce"},
      {&options::hurried_budget, "hurried_budget"},
      {&options::escalation_guard, "escalation_guard"}};
  for (const auto& [member, name] : not_negative) {
    auto bad = quiet();
    bad.*member = -1ns;
    ordered_lifespan life(bad);
    EXPECT_TRUE(contains(refusal(life), name)) << name;
    auto good = quiet();
    good.*member = 0ns;
    ordered_lifespan fine(good);
    EXPECT_EQ(refusal(fine), "accepted") << name;
  }
}

TEST(OrderedLifespan, Rule1_BudgetsMayLastForEver) {
  watchdog dog("rule 1");
  auto options = quiet();
  options.start_budget = options.stop_budget = options.stage_start = options.stage_stop = options.stage_drain =
      options.stage_reserve = options.hang_grace = options.escalation_guard = std::chrono::nanoseconds::max();
  ordered_lifespan life(options);
  curfew::admission_fence fence("f");
  life.add("a").start([] {}).stop([] {}).fence(fence).budget(lifespan_phase::close, std::chrono::hours::max());
  life.add("b").start([] {}).stop([] {});
  EXPECT_TRUE(life.start());
  EXPECT_EQ(life.stop().exit_code, 0);
}

TEST(OrderedLifespan, Rule1_AStageCannotBeAddedOrChangedAfterTheStart) {
  watchdog dog("rule 1");
  ordered_lifespan life(quiet());
  auto& stage = life.add("a");
  EXPECT_TRUE(life.start());
  EXPECT_THROW(life.add("late"), std::logic_error);
  EXPECT_THROW(stage.stop([] {}), std::logic_error);
  EXPECT_THROW(stage.parallel(), std::logic_error);
}

TEST(OrderedLifespan, Rule1_AnEmptyHookIsRefusedByName) {
  ordered_lifespan life(quiet());
  try {
    life.add("a").drain(std::function<void()>());
    FAIL();
  } catch (const bad_graph& e) {
    EXPECT_TRUE(contains(e.what(), "'a'") && contains(e.what(), "drain"));
  }
}

TEST(OrderedLifespan, Rule1_HooksTakeNothingOrAContextAndNeedNotBeCopyable) {
  watchdog dog("hooks");
  ordered_lifespan life(quiet());
  auto owned = std::make_unique<int>(7);
  int seen = 0;
  life.add("a")
      .start([value = std::move(owned), &seen] { seen += *value; })
      .close([&](const stage_context& context) { seen += context.phase == lifespan_phase::close ? 100 : 0; })
      .stop([&](auto&& context) { seen += context.cause == stop_cause::requested ? 1000 : 0; });
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(seen, 1107);
}

TEST(OrderedLifespan, Rule1_HooksMayBeAnythingThatCanBeCalled) {
  struct counter {
    int* count;  // an aggregate that a null pointer could initialise is no empty hook
    void operator()() const { ++*count; }
    void add() { ++*count; }
  };
  ordered_lifespan life(quiet());
  int count = 0;
  counter bound{&count};
  std::vector<std::unique_ptr<int>> says_it_can_be_copied;
  says_it_can_be_copied.push_back(std::make_unique<int>(1));
  life.add("a")
      .start(std::bind(&counter::add, &bound))
      .close(counter{&count})
      .stop([moved = std::move(says_it_can_be_copied), &count] { count += *moved.front(); });
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(count, 3);
}

TEST(OrderedLifespan, Rule1_OnTheControllerNobodysSliceIsSpentByANeighbour) {
  watchdog dog("parallel on the controller");
  ordered_lifespan life(quiet());
  std::atomic<int> inside{0};
  bool together = false;
  const auto alone = [&] {
    together = together || inside.fetch_add(1) != 0;
    inside.fetch_sub(1);
  };
  life.add("a").parallel().on_controller().stop(alone);
  life.add("b").parallel().on_controller().stop(alone);
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_FALSE(together);
  EXPECT_EQ(report.exit_code, 0);
}

TEST(OrderedLifespan, Children_ARefusedOneIsStillItsOwn) {
  watchdog dog("refused child");
  ordered_lifespan parent(quiet());
  parent.add("a");
  ASSERT_TRUE(parent.start());
  ordered_lifespan child(quiet());
  EXPECT_THROW(parent.add_child("late", child), std::logic_error);
  parent.stop();  // which calls off the start of its children, and of nobody else
  EXPECT_TRUE(child.start());
  child.stop();
}

TEST(OrderedLifespan, Rule1_ALayerRunsTogetherExactlyWhenAllItsMembersAreParallel) {
  watchdog dog("parallel");
  for (const bool all : {true, false}) {
    ordered_lifespan life(quiet());
    std::array<std::atomic<int>, 4> came{};
    std::array<gate, 4> together;
    const auto hook = [&](const stage_context& context) {
      const auto phase = static_cast<std::size_t>(context.phase);
      const int now = came[phase].fetch_add(1) + 1;
      if (!all) {
        EXPECT_EQ(now, 1);
        came[phase].fetch_sub(1);
        return;
      }
      if (now == 3) together[phase].open();
      EXPECT_TRUE(together[phase].wait());
    };
    for (const char* name : {"a", "b", "c"}) {
      auto& stage = life.add(name).start(hook).close(hook).drain(hook).stop(hook);
      if (all || name[0] != 'b') stage.parallel();
    }
    EXPECT_TRUE(life.start());
    EXPECT_EQ(life.stop().exit_code, 0);
  }
}

/// What a hook waits for whose work ends elsewhere. Who completes it first counts; the token of the hook ends the wait
/// too.
class completion {
 public:
  bool complete() {
    const bool first = !done_.exchange(true);
    over_.open();
    return first;
  }
  /// False when the token came first.
  bool wait(const std::stop_token& token) {
    const std::stop_callback cut(token, [this] { over_.open(); });
    EXPECT_TRUE(over_.wait());
    return done_.load();
  }

 private:
  std::atomic<bool> done_{false};
  gate over_;
};

TEST(OrderedLifespan, T44_ACompletionThatComesAfterAnEarlyStopFindsNothingToDo) {
  watchdog dog("T44 early stop");
  completion answer;
  gate asked;
  journal log;
  ordered_lifespan life(quiet());
  life.add("asks")
      .start([&](const stage_context& context) {
        asked.open();
        log(answer.wait(context.token) ? "answered" : "called off");
      })
      .drain([&] { log("~asks"); })
      .stop([&] { log("-asks"); });
  life.add("workers").after("asks").start([&] { answer.complete(); }).stop([&] { log("-workers"); });
  thread stopper([&] {
    EXPECT_TRUE(asked.wait());
    life.request_stop();  // before there is anybody who could complete it
  });
  EXPECT_FALSE(life.start());
  stopper.join();
  EXPECT_EQ(log.text(), "called off ~asks -asks");
  EXPECT_EQ(find(life.report(), "asks", lifespan_phase::start)->took, 0s) << "called off at once";
  const auto before = outcomes(life.report());
  thread late([&] {
    EXPECT_TRUE(answer.complete());
    EXPECT_FALSE(answer.complete());
  });
  late.join();
  EXPECT_EQ(life.state(), lifespan_state::stopped);
  EXPECT_EQ(log.text(), "called off ~asks -asks");
  EXPECT_EQ(outcomes(life.report()), before);
  EXPECT_TRUE(life.reset());
}

TEST(OrderedLifespan, T44_AHookThatAnotherThreadCompletesTwiceEndsOnceAndNothingRunsOnThatThread) {
  watchdog dog("T44 twice");
  completion answer;
  gate asked;
  ordered_lifespan life(quiet());
  int ends = 0;
  std::vector<std::thread::id> ran_on;  // touched by one hook or observer after the other
  life.observe([&](const lifespan_event& event) {
    ran_on.push_back(std::this_thread::get_id());
    if (event.kind == lifespan_event_kind::stage_end && event.phase == lifespan_phase::drain) ++ends;
  });
  life.add("pool").stop([&] { ran_on.push_back(std::this_thread::get_id()); });
  life.add("runs").after("pool").drain([&](const stage_context& context) {
    asked.open();
    EXPECT_TRUE(answer.wait(context.token));
  });
  ASSERT_TRUE(life.start());
  std::thread::id completer;
  thread worker([&] {
    completer = std::this_thread::get_id();
    EXPECT_TRUE(asked.wait());
    EXPECT_TRUE(answer.complete());
    EXPECT_FALSE(answer.complete());
  });
  EXPECT_EQ(life.stop().exit_code, 0);
  worker.join();
  EXPECT_EQ(ends, 1);
  for (const auto& one : ran_on) EXPECT_NE(one, completer);
  EXPECT_EQ(outcomes(life.report()), "runs.drain=ok pool.stop=ok");
}

TEST(OrderedLifespan, T44_AFenceThatIsEmptiedElsewhereAfterAnEarlyStopEndsTheDrainOnceAndOnTheController) {
  watchdog dog("T44 fence");
  using fence_type = curfew::basic_admission_fence<fake_sync>;
  fence_type runs("runs");
  gate up;
  ordered_lifespan life(quiet());
  auto pass = std::make_optional(runs.enter());
  int ends = 0;
  bool elsewhere = false;
  const auto controller = std::this_thread::get_id();
  life.observe([&](const lifespan_event& event) {
    elsewhere = elsewhere || std::this_thread::get_id() != controller;
    if (event.kind == lifespan_event_kind::stage_end && event.phase == lifespan_phase::drain) ++ends;
  });
  life.add("runs").fence(runs).start([&] { life.request_stop(); });
  life.add("workers").after("runs").start([] { ADD_FAILURE() << "started after the stop"; });
  thread worker([&] {
    while (!pass->closing()) fake_sync::sleep_for(1ms);
    pass->release();
    pass->release();
  });
  EXPECT_FALSE(life.start());
  worker.join();
  EXPECT_EQ(ends, 1);
  EXPECT_FALSE(elsewhere);
  EXPECT_EQ(life.state(), lifespan_state::stopped);
  const auto* drain = find(life.report(), "runs", lifespan_phase::drain);
  EXPECT_EQ(drain->outcome, stage_outcome::ok);
  EXPECT_LE(drain->took, 1ms) << "as soon as the fence was empty";
}

TEST(OrderedLifespan, Rule1_AFailureInAParallelLayerLetsTheOthersEnd) {
  watchdog dog("parallel");
  journal log;
  ordered_lifespan life(quiet());
  gate failing;
  life.add("bad").parallel().start([&] {
    failing.open();
    throw std::runtime_error("no");
  });
  life.add("good").parallel().start([&] { EXPECT_TRUE(failing.wait()); }).stop([&] { log("-good"); });
  life.add("never").after("bad").start([&] { log("+never"); });
  EXPECT_FALSE(life.start());
  EXPECT_EQ(log.text(), "-good");
}

// --- rule 2: three barriers

TEST(OrderedLifespan, Rule2_NoDrainBeginsBeforeAllIsClosedAndNoStopBeforeAllIsDrained) {
  watchdog dog("rule 2");
  journal log;
  ordered_lifespan life(quiet());
  for (std::string name : {"a", "b", "c"}) {
    life.add(name)
        .close([&log, name] { log("close:" + name); })
        .drain([&log, name] { log("drain:" + name); })
        .stop([&log, name] { log("stop:" + name); });
  }
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(log.text(), "close:c close:b close:a drain:c drain:b drain:a stop:c stop:b stop:a");
}

template <class Fence>
void fence_follows_the_barriers() {
  watchdog dog("fences");
  journal log;
  ordered_lifespan life(quiet());
  Fence fence("runs");
  auto pass = std::make_optional(fence.enter());
  life.add("provider").stop([&] { log(fence.is_drained() ? "stopped-after-drain" : "stopped-too-early"); });
  life.add("runs")
      .after("provider")
      .fence(fence)
      .close([&] { log(fence.is_closed() ? "closed-before-hook" : "hook-first"); })
      .drain([&] {
        log(fence.is_drained() ? "empty-already" : "drain-hook-first");
        pass.reset();
      });
  life.add("intake").after("runs").close([&] { log(fence.is_closed() ? "closed-too-early" : "still-open"); });
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(log.text(), "still-open closed-before-hook drain-hook-first stopped-after-drain");
  EXPECT_EQ(report.exit_code, 0) << report.to_string();
}
TEST(OrderedLifespan, Rule2_AFenceClosesJustBeforeItsCloseHookAndIsDrainedAfterItsDrainHook) {
  fence_follows_the_barriers<curfew::admission_fence>();
}
TEST(OrderedLifespan, Rule2_AnyKindOfFenceWillDo) {
  fence_follows_the_barriers<curfew::compact_admission_fence>();
  fence_follows_the_barriers<curfew::basic_admission_fence<park_sync>>();
}

TEST(OrderedLifespan, T12_TheProviderStopsAfterTheLastRunHasEnded) {
  watchdog dog("T12");
  journal log;
  ordered_lifespan life(quiet());
  curfew::admission_fence runs("runs");
  gate admitted;
  gate finish;
  thread run([&] {
    auto pass = runs.enter();
    admitted.open();
    EXPECT_TRUE(finish.wait());
    log("run-ended");
  });
  ASSERT_TRUE(admitted.wait());
  life.add("pool").stop([&] { log("pool-stopped"); });
  life.add("runs").after("pool").fence(runs);
  life.add("http").after("runs").close([&] { finish.open(); });
  EXPECT_TRUE(life.start());
  life.stop();
  run.join();
  EXPECT_EQ(log.text(), "run-ended pool-stopped");
}

TEST(OrderedLifespan, Rule2_AFenceLeftOccupiedCountsAsAStopErrorAndIsNamed) {
  watchdog dog("occupied");
  ordered_lifespan life(quiet());
  curfew::admission_fence runs("runs-fence");
  auto pass = std::make_optional(runs.enter());
  int stopped = 0;
  life.add("pool").stop([&] { ++stopped; });
  life.add("runs").after("pool").fence(runs).budget(lifespan_phase::drain, 30ms).stop([&] {
    ++stopped;
    pass.reset();
  });
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(stopped, 2);
  EXPECT_EQ(report.exit_code, 1);
  const auto* drain = find(report, "runs", lifespan_phase::drain);
  ASSERT_NE(drain, nullptr);
  EXPECT_EQ(drain->outcome, stage_outcome::timed_out);
  EXPECT_TRUE(contains(report.to_string(), "'runs-fence' with 1 inside")) << report.to_string();
  EXPECT_TRUE(report.abandoned.empty());
}

TEST(OrderedLifespan, Rule2_SeveralFencesOfOneStageAreAllWaitedFor) {
  watchdog dog("fences");
  ordered_lifespan life(quiet());
  curfew::admission_fence one("one");
  curfew::compact_admission_fence two("two");
  auto first = std::make_optional(one.enter());
  auto second = std::make_optional(two.enter());
  life.add("runs").fence(one).fence(two);
  EXPECT_TRUE(life.start());
  gate closing;
  thread leaver([&] {
    EXPECT_TRUE(eventually([&] { return one.is_closed() && two.is_closed(); }));
    second.reset();
    first.reset();
  });
  EXPECT_EQ(life.stop().exit_code, 0);
  leaver.join();
  EXPECT_TRUE(one.is_drained() && two.is_drained());
}

TEST(OrderedLifespan, Rule2_ResetDoesNotReopenAFence) {
  watchdog dog("fences");
  ordered_lifespan life(quiet());
  curfew::admission_fence fence("f");
  life.add("a").fence(fence);
  for (int run = 0; run != 3; ++run) {
    EXPECT_TRUE(life.start());
    EXPECT_EQ(life.stop().exit_code, 0);
    EXPECT_TRUE(life.reset());
    EXPECT_TRUE(fence.is_closed());
  }
}

// --- rule 3: never skip

TEST(OrderedLifespan, Rule3_T6_EveryHookRunsThoughEveryHookThrows) {
  watchdog dog("T6");
  journal log;
  ordered_lifespan life(quiet());
  for (std::string name : {"a", "b", "c"}) {
    const auto thrower = [&log, name](const stage_context& context) {
      log(name);
      throw std::runtime_error(name + " " + curfew::to_string(context.phase));
    };
    life.add(name).close(thrower).drain(thrower).stop(thrower);
  }
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(log.text(), "c b a c b a c b a");
  EXPECT_EQ(outcomes(report),
            "c.close=failed b.close=failed a.close=failed c.drain=failed b.drain=failed a.drain=failed c.stop=failed "
            "b.stop=failed a.stop=failed");
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_TRUE(contains(report.to_string(), "b drain"));
}

TEST(OrderedLifespan, Rule3_T7_NothingThatIsThrownTerminates) {
  watchdog dog("T7");
  ordered_lifespan life(quiet());
  life.add("int").stop([] { throw 42; });
  life.add("memory").stop([] { throw std::bad_alloc(); });
  life.add("here").on_controller().stop([] { throw std::string("text"); });
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(outcomes(report), "here.stop=failed memory.stop=failed int.stop=failed");
  for (const auto& record : report.records) EXPECT_NE(record.error, nullptr);
}

TEST(OrderedLifespan, Rule3_T8_AThrowEndsTheStageAtOnce) {
  watchdog dog("T8");
  auto options = quiet();
  ordered_lifespan life(options);
  life.add("a").stop([] { throw 1; });
  EXPECT_TRUE(life.start());
  EXPECT_LT(life.stop().total, options.stage_stop);
}

TEST(OrderedLifespan, Rule3_T5_OneHungStopDoesNotCostTheOthersTheirs) {
  watchdog dog("T5");
  journal log;
  hang stuck;
  auto options = quiet();
  options.stop_budget = 400ms;
  options.stage_stop = patience;
  options.stage_reserve = 40ms;
  ordered_lifespan life(options);
  std::vector<std::chrono::nanoseconds> slices;
  for (int i = 0; i != 8; ++i) {
    auto& stage = life.add("s" + std::to_string(i));
    if (i == 7) {
      stage.stop(stuck.hook());
    } else {
      stage.stop([&, i](const stage_context& context) {
        log(std::to_string(i));
        slices.push_back(context.deadline - fake_sync::clock::now());
      });
    }
  }
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(log.text(), "6 5 4 3 2 1 0");
  EXPECT_EQ(report.exit_code, 124);
  ASSERT_EQ(report.abandoned.size(), 1u);
  EXPECT_TRUE(contains(report.abandoned[0], "s7") && contains(report.abandoned[0], "stop")) << report.abandoned[0];
  for (const auto slice : slices) EXPECT_GT(slice, 0ns);
}

// --- rule 4: budgets

TEST(OrderedLifespan, Rule4_ASliceIsTheStageBudgetUnlessTheClockLeavesLess) {
  watchdog dog("rule 4");
  auto options = quiet();
  options.stop_budget = 100s;
  options.stage_reserve = 10s;
  ordered_lifespan life(options);
  std::vector<double> planned;
  const auto measure = [&](const stage_context& context) {
    planned.push_back(std::chrono::duration<double>(context.deadline - fake_sync::clock::now()).count());
  };
  life.add("last").stop(measure).budget(lifespan_phase::stop, 1000s);
  life.add("middle").stop(measure).budget(lifespan_phase::stop, 30s);
  life.add("first").stop(measure).budget(lifespan_phase::stop, 1000s);
  EXPECT_TRUE(life.start());
  life.stop();
  ASSERT_EQ(planned.size(), 3u);
  EXPECT_NEAR(planned[0], 100 - 2 * 10, 9);  // keeps a reserve for two
  EXPECT_NEAR(planned[1], 30, 9);            // its own budget is less
  EXPECT_NEAR(planned[2], 100, 9);           // the last one may have what is left
}

TEST(OrderedLifespan, Rule4_ASpentClockStillLeavesTheReserve) {
  watchdog dog("rule 4");
  auto options = quiet();
  options.stop_budget = 1ms;
  options.stage_reserve = 15s;
  ordered_lifespan life(options);
  int called = 0;
  for (const char* name : {"a", "b", "c"}) {
    life.add(name).stop([&](const stage_context& context) {
      ++called;
      EXPECT_GT(context.deadline - fake_sync::clock::now(), 5s);
    });
  }
  EXPECT_TRUE(life.start());
  EXPECT_EQ(life.stop().exit_code, 0);
  EXPECT_EQ(called, 3);
}

TEST(OrderedLifespan, Rule4_T10_StageBudgetsDoNotAddUpBeyondTheClock) {
  watchdog dog("T10");
  auto options = quiet();
  options.stop_budget = 300ms;
  options.stage_reserve = 5ms;
  options.hang_grace = 0ms;
  ordered_lifespan life(options);
  std::array<hang, 10> stuck;
  for (std::size_t i = 0; i != stuck.size(); ++i) {
    life.add("s" + std::to_string(i)).stop(stuck[i].hook()).budget(lifespan_phase::stop, 270ms);
  }
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(report.abandoned.size(), 10u);
  EXPECT_LT(report.total, 10 * 270ms);
}

TEST(OrderedLifespan, Rule4_DrainsOfOneLayerShareOneClock) {
  watchdog dog("rule 4");
  auto options = quiet();
  options.stage_reserve = 10s;
  ordered_lifespan life(options);
  std::vector<double> planned;
  const auto measure = [&](const stage_context& context) {
    planned.push_back(std::chrono::duration<double>(context.deadline - fake_sync::clock::now()).count());
  };
  for (const char* name : {"a", "b", "c"}) life.add(name).drain(measure).budget(lifespan_phase::drain, 50s);
  EXPECT_TRUE(life.start());
  life.stop();
  ASSERT_EQ(planned.size(), 3u);
  EXPECT_NEAR(planned[0], 50 - 2 * 10, 9);
  EXPECT_NEAR(planned[1], 50 - 10, 9);
  EXPECT_NEAR(planned[2], 50, 9);
}

// --- rule 5: hanging

TEST(OrderedLifespan, Rule5_T40_ASlowHookIsNamedThenToldThenAbandonedAndNamedAgain) {
  watchdog dog("T40");
  journal log;
  hang stuck;
  auto options = quiet();
  options.hang_grace = 20ms;
  ordered_lifespan life(options);
  auto fired = std::make_shared<gate>();
  life.add("stuck")
      .stop([fired, hook = stuck.hook()](const stage_context& context) {
        const std::stop_callback told(context.token, [fired] { fired->open(); });
        hook(context);
      })
      .budget(lifespan_phase::stop, 80ms);
  life.observe([&](const lifespan_event& event) {
    if (event.kind == lifespan_event_kind::stage_slow) log("slow:" + event.stage);
    if (event.kind == lifespan_event_kind::stage_hung) {
      log("hung:" + event.stage + ":" + curfew::to_string(event.phase));
      EXPECT_GE(event.elapsed, 80ms);
    }
  });
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(log.text(), "slow:stuck hung:stuck:stop");
  EXPECT_TRUE(fired->wait());
  EXPECT_EQ(find(report, "stuck", lifespan_phase::stop)->outcome, stage_outcome::abandoned);
  EXPECT_FALSE(life.reset());
  EXPECT_EQ(life.state(), lifespan_state::stopped);
}

TEST(OrderedLifespan, Rule5_AHookThatEndsOnItsTokenIsOk) {
  watchdog dog("rule 5");
  ordered_lifespan life(quiet());
  life.add("waits")
      .stop([](const stage_context& context) { EXPECT_FALSE(nap(context, 2 * patience)); })
      .budget(lifespan_phase::stop, 800ms);
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(outcomes(report), "waits.stop=ok");
  EXPECT_EQ(report.exit_code, 0);
}

TEST(OrderedLifespan, Rule5_WhatAnAbandonedHookUsesOutlivesTheLifespan) {
  watchdog dog("rule 5");
  struct owned {
    explicit owned(bool& gone) : gone_(gone) {}
    ~owned() { gone_ = true; }
    bool& gone_;
  };
  static bool gone = false;
  hang stuck;
  {
    ordered_lifespan life(quiet());
    life.add("stuck")
        .stop([thing = std::make_shared<owned>(gone), hook = stuck.hook()](const stage_context& context) {
          hook(context);
          EXPECT_FALSE(thing->gone_);
        })
        .budget(lifespan_phase::stop, 20ms);
    EXPECT_TRUE(life.start());
  }
  EXPECT_FALSE(gone);
  stuck.let_go();
  EXPECT_TRUE(stuck.wait_left());
  EXPECT_FALSE(gone);
}

TEST(OrderedLifespan, Rule5_AHookThatEndsJustAsItIsAbandonedIsOneOrTheOther) {
  watchdog dog("rule 5");
  for (const bool in_time : {true, false}) {
    park ending("lifespan.hook.ended", "late");
    int ended = 0;
    parked_lifespan life(quiet());
    life.add("other").stop([&] { ++ended; });
    auto left = std::make_shared<curfew_test::gate>();
    life.add("late")
        .stop([left] {
          static thread_local std::optional<role_scope> role;  // until this thread is gone
          role.emplace("late");
          static thread_local struct leaver {
            std::shared_ptr<curfew_test::gate> gone;
            ~leaver() {
              if (gone) gone->open();
            }
          } leaving;
          leaving.gone = left;
        })
        .budget(lifespan_phase::stop, in_time ? std::chrono::milliseconds(patience) : 30ms);
    EXPECT_TRUE(life.start());
    std::thread opener([&] {
      EXPECT_TRUE(ending.wait_arrived());
      if (in_time) ending.open();
    });
    const auto& report = life.stop();
    opener.join();
    EXPECT_EQ(ended, 1);
    EXPECT_EQ(find(report, "late", lifespan_phase::stop)->outcome,
              in_time ? stage_outcome::ok : stage_outcome::abandoned);
    EXPECT_EQ(report.exit_code, in_time ? 0 : 124);
    ending.open();
    EXPECT_TRUE(left->wait());
  }
}

TEST(OrderedLifespan, Rule5_AStopCallbackThatBlocksDoesNotHoldUpTheWatcher) {
  watchdog dog("rule 5");
  hang stuck;
  int stopped = 0;
  ordered_lifespan life(quiet());
  life.add("other").stop([&] { ++stopped; });
  life.add("blocks")
      .stop([hook = stuck.hook()](const stage_context& context) {
        const std::stop_callback blocked(context.token, [&] { hook(context); });
        hook(context);
      })
      .budget(lifespan_phase::stop, 40ms);
  EXPECT_TRUE(life.start());
  EXPECT_EQ(life.stop().exit_code, 124);
  EXPECT_EQ(stopped, 1);
}

TEST(OrderedLifespan, Rule5_OnControllerRunsOnTheCallingThreadAndIsNamedButNotAbandoned) {
  watchdog dog("on_controller");
  journal log;
  ordered_lifespan life(quiet());
  const auto self = std::this_thread::get_id();
  life.add("bound")
      .on_controller()
      .start([&] { EXPECT_EQ(std::this_thread::get_id(), self); })
      .stop([&](const stage_context& context) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        EXPECT_FALSE(nap(context, patience));  // watched although it is the controller that runs
        while (log.count("hung:bound") == 0) fake_sync::sleep_for(1ms);
        fake_sync::sleep_for(1ms);  // past the deadline, not at it
      })
      .budget(lifespan_phase::stop, 40ms);
  life.add("free").stop([&] { EXPECT_NE(std::this_thread::get_id(), self); });
  life.observe([&](const lifespan_event& event) {
    if (event.kind == lifespan_event_kind::stage_hung) log("hung:" + event.stage);
  });
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(find(report, "bound", lifespan_phase::stop)->outcome, stage_outcome::timed_out);
  EXPECT_TRUE(report.abandoned.empty());
  EXPECT_EQ(report.exit_code, 1);
}

// --- rules 6 and 7: rollback, stop during start

TEST(OrderedLifespan, Rule6_AFailedStartIsCleanedUpAndTheOthersStopped) {
  watchdog dog("rule 6");
  journal log;
  ordered_lifespan life(quiet());
  const auto note = [&](std::string line) { return [&log, line] { log(line); }; };
  life.add("a")
      .start(note("+a"))
      .close(note("close-a"))
      .drain(note("drain-a"))
      .stop(note("-a"))
      .cleanup_partial(note("clean-a"));
  life.add("b")
      .start([&] {
        log("+b");
        throw std::runtime_error("no port");
      })
      .close(note("close-b"))
      .stop(note("-b"))
      .cleanup_partial(note("clean-b"));
  life.add("c").start(note("+c")).stop(note("-c"));
  std::vector<lifespan_state> states;
  life.observe([&](const lifespan_event& event) {
    if (event.kind == lifespan_event_kind::state_changed) states.push_back(life.state());
  });
  EXPECT_FALSE(life.start());
  EXPECT_EQ(life.state(), lifespan_state::stopped);
  EXPECT_EQ(log.text(), "+a +b clean-b close-a drain-a -a");
  EXPECT_EQ(states, (std::vector{lifespan_state::starting, lifespan_state::rolling_back, lifespan_state::stopped}));
  const auto& report = life.report();
  EXPECT_EQ(report.cause, stop_cause::start_failed);
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_EQ(outcomes(report),
            "a.start=ok b.start=failed b.cleanup=ok a.close=ok a.drain=ok a.stop=ok b.close=skipped b.stop=skipped "
            "c.start=not_run c.stop=skipped");
  EXPECT_FALSE(life.start());
  EXPECT_EQ(life.wait(), stop_cause::start_failed);
}

TEST(OrderedLifespan, Rule6_T4_TheRollbackIsNotPartOfTheStartBudget) {
  watchdog dog("T4");
  journal log;
  hang stuck;
  auto options = quiet();
  options.start_budget = 60ms;
  options.stage_reserve = 1ms;
  ordered_lifespan life(options);
  life.add("a").stop([&](const stage_context& context) {
    log("-a");
    EXPECT_GT(context.deadline - fake_sync::clock::now(), 1s);
  });
  life.add("b").start(stuck.hook()).stop([&] { log("-b"); }).cleanup_partial([&] { log("clean-b"); });
  EXPECT_FALSE(life.start());
  EXPECT_EQ(log.text(), "-a");  // b's start still runs: nobody cleans up under it
  const auto& report = life.report();
  EXPECT_EQ(find(report, "b", lifespan_phase::start)->outcome, stage_outcome::abandoned);
  EXPECT_EQ(find(report, "b", lifespan_phase::cleanup)->outcome, stage_outcome::not_run);
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_EQ(report.cause, stop_cause::start_failed);
  EXPECT_EQ(report.abandoned.size(), 1u);
}

TEST(OrderedLifespan, Rule6_AnAbandonedStartThatHasEndedByThenIsCleanedUp) {
  watchdog dog("rule 6");
  journal log;
  hang stuck;
  ordered_lifespan life(quiet());
  life.add("b").start(stuck.hook()).budget(lifespan_phase::start, 30ms).cleanup_partial([&] { log("clean-b"); });
  life.observe([&](const lifespan_event& event) {
    if (event.kind != lifespan_event_kind::stage_end || event.outcome != stage_outcome::abandoned) return;
    stuck.let_go();
    EXPECT_TRUE(stuck.wait_left());
    fake_sync::sleep_for(50ms);  // the hook has returned; its thread has a few instructions to go
  });
  EXPECT_FALSE(life.start());
  EXPECT_EQ(log.text(), "clean-b");
}

TEST(OrderedLifespan, Rule7_T1_AStopDuringAStartStopsWhatHasStarted) {
  watchdog dog("T1");
  for (int at = 0; at != 8; ++at) {
    journal log;
    ordered_lifespan life(quiet());
    for (int i = 0; i != 8; ++i) {
      const auto name = std::to_string(i);
      life.add(name)
          .start([&, i, name] {
            log("+" + name);
            if (i == at) {
              EXPECT_TRUE(life.request_stop());
            }
          })
          .stop([&, name] { log("-" + name); })
          .cleanup_partial([&] { log("cleanup"); });
    }
    EXPECT_FALSE(life.start());
    std::string expected;
    for (int i = 0; i <= at; ++i) expected += "+" + std::to_string(i) + " ";
    for (int i = at; i >= 0; --i) expected += "-" + std::to_string(i) + " ";
    expected.pop_back();
    EXPECT_EQ(log.text(), expected);  // the hook that asked has returned normally: its stage has started
    EXPECT_EQ(life.report().cause, stop_cause::requested);
    EXPECT_EQ(life.report().exit_code, 0);
  }
}

TEST(OrderedLifespan, Rule7_T1_AStartThatThrowsOnItsTokenIsCleanedUpAndTheFirstCauseStays) {
  watchdog dog("T1");
  journal log;
  ordered_lifespan life(quiet());
  life.add("a").stop([&] { log("-a"); });
  life.add("b")
      .start([&](const stage_context& context) {
        life.request_stop(stop_cause::requested, 7);
        EXPECT_FALSE(nap(context, patience));
        throw std::runtime_error("cut");
      })
      .stop([&] { log("-b"); })
      .cleanup_partial([&] { log("clean-b"); });
  EXPECT_FALSE(life.start());
  EXPECT_EQ(log.text(), "clean-b -a");
  EXPECT_EQ(life.report().cause, stop_cause::requested);
  EXPECT_EQ(life.report().exit_code, 7);
}

TEST(OrderedLifespan, Rule7_T2_AHungStartIsToldAtOnceAbandonedAndRolledBack) {
  watchdog dog("T2");
  journal log;
  hang stuck;
  auto options = quiet();
  ordered_lifespan life(options);
  auto told = std::make_shared<gate>();
  life.add("a").stop([&] { log("-a"); });
  life.add("b")
      .start([told, hook = stuck.hook()](const stage_context& context) {
        const std::stop_callback fired(context.token, [told] { told->open(); });
        hook(context);
      })
      .budget(lifespan_phase::start, 500ms);
  thread asker([&] {
    EXPECT_TRUE(stuck.wait_came());
    life.simulate_signal(SIGTERM);
  });
  EXPECT_FALSE(life.start());
  asker.join();
  EXPECT_TRUE(told->wait());
  EXPECT_EQ(log.text(), "-a");
  EXPECT_EQ(life.report().cause, stop_cause::signal);
  EXPECT_EQ(life.report().exit_code, 1);
}

TEST(OrderedLifespan, Rule7_T3_AStopBeforeTheStartIsNotForgotten) {
  watchdog dog("T3");
  int called = 0;
  ordered_lifespan life(quiet());
  life.add("a").start([&] { ++called; }).stop([&] { ++called; });
  EXPECT_TRUE(life.request_stop());
  EXPECT_FALSE(life.request_stop());
  EXPECT_FALSE(life.start());
  EXPECT_EQ(called, 0);
  EXPECT_EQ(life.report().cause, stop_cause::requested);
  EXPECT_EQ(outcomes(life.report()), "a.start=not_run a.stop=not_run");
  EXPECT_EQ(life.report().exit_code, 0);
}

TEST(OrderedLifespan, Rule7_T38_TheTokenOfAStartHookFiresAlsoOnTheController) {
  watchdog dog("T38");
  for (const bool here : {false, true}) {
    ordered_lifespan life(quiet());
    auto& stage = life.add("polls");
    if (here) stage.on_controller();
    gate inside;
    stage.start([&](const stage_context& context) {
      inside.open();
      while (nap(context, 1ms)) {
      }
    });
    thread asker([&] {
      EXPECT_TRUE(inside.wait());
      life.simulate_signal(SIGINT);
    });
    EXPECT_FALSE(life.start());
    asker.join();
    EXPECT_EQ(life.report().signal, SIGINT);
  }
}

TEST(OrderedLifespan, Rule7_T39_StopRunsOnlyForWhatStarted) {
  watchdog dog("T39");
  std::mt19937 random(7);
  for (int round = 0; round != 40; ++round) {
    std::atomic<unsigned> up{0};
    std::atomic<unsigned> down{0};
    const unsigned stages = 32;
    const unsigned at = static_cast<unsigned>(random() % stages);
    const bool fails = random() % 2 == 0;
    ordered_lifespan life(quiet());
    for (unsigned i = 0; i != stages; ++i) {
      life.add(std::to_string(i))
          .on_controller()
          .start([&, i] {
            if (i == at && fails) throw 1;
            up |= 1u << i;
            if (i == at) life.request_stop();
          })
          .stop([&, i] { down |= 1u << i; });
    }
    EXPECT_FALSE(life.start());
    EXPECT_EQ(up.load(), down.load());
  }
}

// --- rule 8: escalation

TEST(OrderedLifespan, Rule8_SignalsWithinTheGuardCoalesce) {
  watchdog dog("rule 8");
  ordered_lifespan life([] {
    auto options = quiet();
    options.escalation_guard = std::chrono::hours(1);
    return options;
  }());
  life.add("a").stop([](const stage_context& context) { EXPECT_EQ(context.pressure, urgency::normal); });
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGTERM, 1000);
  EXPECT_EQ(life.wait(), stop_cause::signal);
  const auto& report = life.stop();
  EXPECT_EQ(report.signals.at(SIGTERM), 1000u);
  EXPECT_EQ(report.exit_code, 0);
}

TEST(OrderedLifespan, Rule8_T13_ASecondSignalShortensTheStopAndKeepsItsOrder) {
  watchdog dog("T13");
  journal log;
  auto options = quiet();
  options.escalation_guard = 0ms;
  options.hurried_budget = 15s;
  ordered_lifespan life(options);
  for (std::string name : {"a", "b"}) {
    life.add(name).stop([&, name](const stage_context& context) {
      log("-" + name);
      EXPECT_EQ(context.pressure, urgency::hurried);
      EXPECT_FALSE(context.token.stop_requested());
      EXPECT_LE(context.deadline - fake_sync::clock::now(), 15s);
    });
  }
  life.add("runs").after("b").drain([&](const stage_context& context) {
    EXPECT_EQ(context.pressure, urgency::normal);
    life.simulate_signal(SIGTERM);
    EXPECT_FALSE(nap(context, patience));  // told at once
    log("drained");
  });
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGTERM);
  EXPECT_EQ(life.wait(), stop_cause::signal);
  const auto& report = life.stop();
  EXPECT_EQ(log.text(), "drained -b -a");
  EXPECT_EQ(report.exit_code, 0) << report.to_string();
  EXPECT_EQ(report.signals.at(SIGTERM), 2u);
}

TEST(OrderedLifespan, Rule8_BeingHurriedShortensAlsoTheWaitForAFence) {
  watchdog dog("rule 8");
  auto options = quiet();
  options.escalation_guard = 0ms;
  options.hurried_budget = 50ms;
  ordered_lifespan life(options);
  curfew::admission_fence runs("runs");
  auto pass = std::make_optional(runs.enter());
  gate draining;
  life.add("runs").fence(runs).drain([&] { draining.open(); }).stop([&] { pass.reset(); });
  EXPECT_TRUE(life.start());
  thread impatient([&] {
    EXPECT_TRUE(draining.wait());
    life.simulate_signal(SIGINT);
  });
  const auto& report = life.stop();
  impatient.join();
  EXPECT_EQ(find(report, "runs", lifespan_phase::drain)->outcome, stage_outcome::timed_out);
  EXPECT_LT(report.total, options.stage_drain);
  EXPECT_EQ(report.cause, stop_cause::requested);
  EXPECT_EQ(report.signal, SIGINT);
}

TEST(OrderedLifespan, Rule8_AProgrammaticStopCountsAsTheFirstRung) {
  watchdog dog("rule 8");
  auto options = quiet();
  options.escalation_guard = 0ms;
  ordered_lifespan life(options);
  urgency seen = urgency::normal;
  life.add("second").stop([&](const stage_context& context) { seen = context.pressure; });
  life.add("first").stop([&] { life.simulate_signal(SIGTERM); });
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(seen, urgency::hurried);
}

TEST(OrderedLifespan, Rule8_EscalateGoesOneRungUpWithoutAGuard) {
  watchdog dog("rule 8");
  auto options = quiet();
  options.escalation_guard = std::chrono::hours(1);
  ordered_lifespan life(options);
  urgency seen = urgency::normal;
  life.add("second").stop([&](const stage_context& context) { seen = context.pressure; });
  life.add("first").stop([&](const stage_context& context) {
    EXPECT_TRUE(life.escalate());
    EXPECT_FALSE(nap(context, patience));
  });
  EXPECT_TRUE(life.start());
  EXPECT_TRUE(life.escalate());
  EXPECT_EQ(life.wait(), stop_cause::requested);
  life.stop();
  EXPECT_EQ(seen, urgency::hurried);
  EXPECT_FALSE(life.escalate());
}

TEST(OrderedLifespan, Rule8_G7_NoScheduleOfSignalsChangesTheOrder) {
  watchdog dog("G7");
  std::mt19937 random(20);
  for (int round = 0; round != 300; ++round) {
    journal log;
    auto options = quiet();
    options.escalation_guard = 0ms;
    ordered_lifespan life(options);
    const unsigned stages = 4;
    const unsigned first = static_cast<unsigned>(random() % (3 * stages));
    unsigned step = 0;
    bool second_sent = false;
    const auto maybe = [&] {
      if (step++ == first && !second_sent) {
        second_sent = true;
        life.simulate_signal(random() % 2 == 0 ? SIGTERM : SIGINT);
      }
    };
    for (unsigned i = 0; i != stages; ++i) {
      auto& stage = life.add(std::to_string(i));
      if (random() % 2 == 0) stage.on_controller();
      stage.close([&, i] { log("c" + std::to_string(i)), maybe(); })
          .drain([&, i] { log("d" + std::to_string(i)), maybe(); })
          .stop([&, i] { log("s" + std::to_string(i)), maybe(); });
    }
    EXPECT_TRUE(life.start());
    life.simulate_signal(SIGTERM);
    const auto& report = life.stop();
    EXPECT_EQ(log.text(), "c3 c2 c1 c0 d3 d2 d1 d0 s3 s2 s1 s0");
    EXPECT_EQ(report.exit_code, 0);
  }
}

TEST(OrderedLifespan, Rule8_ASignalNobodyAttendsIsReportedWhenSomebodyDoes) {
  watchdog dog("rule 8");
  auto options = quiet();
  options.escalation_guard = 1ms;
  ordered_lifespan life(options);
  std::vector<int> unattended;
  life.observe([&](const lifespan_event& event) {
    if (event.kind == lifespan_event_kind::unattended) unattended.push_back(event.signal);
  });
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGTERM);
  fake_sync::sleep_for(6ms);
  life.wait();
  life.wait();
  life.stop();
  EXPECT_EQ(unattended, std::vector{SIGTERM});
}

// --- rules 9 and 10: reload, readiness

#if CURFEW_POSIX
TEST(OrderedLifespan, Rule9_AReloadRunsOnTheControllerOnlyWhileRunning) {
  watchdog dog("rule 9");
  journal log;
  auto options = quiet();
  std::thread::id controller;
  gate reloaded;
  ordered_lifespan* self = nullptr;
  options.on_hangup = [&] {
    EXPECT_EQ(std::this_thread::get_id(), controller);
    EXPECT_TRUE(self->ready());
    log("reload");
    reloaded.open();
    throw std::runtime_error("bad file");
  };
  ordered_lifespan life(options);
  self = &life;
  life.add("a").start([&] { life.simulate_signal(SIGHUP, 3); }).stop([&] { life.simulate_signal(SIGHUP); });
  EXPECT_TRUE(life.start());
  EXPECT_EQ(log.text(), "");
  thread waiter([&] {
    controller = std::this_thread::get_id();
    EXPECT_EQ(life.wait(), stop_cause::requested);
  });
  EXPECT_TRUE(reloaded.wait());
  life.request_stop();
  life.simulate_signal(SIGHUP);
  waiter.join();
  const auto& report = life.stop();
  EXPECT_EQ(log.text(), "reload");  // three while starting are one; two after the request are dropped
  EXPECT_EQ(report.signals.at(SIGHUP), 5u);
  EXPECT_EQ(report.cause, stop_cause::requested);
  EXPECT_EQ(report.signal, 0);
  EXPECT_TRUE(contains(join(report.notes), "bad file"));
}
#endif

TEST(OrderedLifespan, Rule10_ReadyFallsBeforeAnyCloseHook) {
  watchdog dog("rule 10");
  ordered_lifespan life(quiet());
  life.add("a").start([&] { EXPECT_FALSE(life.ready() || life.accepting()); }).close([&] {
    EXPECT_FALSE(life.ready() || life.accepting());
  });
  EXPECT_FALSE(life.ready());
  EXPECT_TRUE(life.start());
  EXPECT_TRUE(life.ready() && life.accepting());
  life.request_stop();
  EXPECT_FALSE(life.ready());
  life.stop();
  EXPECT_FALSE(life.ready() || life.accepting());
}

TEST(OrderedLifespan, Rule10_T42_AnnouncingIsNotReadyButStillAccepting) {
  watchdog dog("T42");
  auto options = quiet();
  options.announce = patience;
  options.escalation_guard = std::chrono::hours(1);
  ordered_lifespan life(options);
  bool closed_after_announcing = false;
  bool announced = false;
  life.observe([&](const lifespan_event& event) {
    if (event.kind != lifespan_event_kind::state_changed || life.state() != lifespan_state::announcing) return;
    announced = true;
    EXPECT_TRUE(!life.ready() && life.accepting());
    life.simulate_signal(SIGTERM);  // any further signal ends it, also within the guard
  });
  life.add("a").close([&](const stage_context& context) {
    closed_after_announcing = announced;
    EXPECT_EQ(context.pressure, urgency::normal);
  });
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGTERM);
  const auto& report = life.stop();
  EXPECT_TRUE(closed_after_announcing);
  EXPECT_LT(report.total, options.announce);
}

TEST(OrderedLifespan, Rule10_T42_NothingIsAnnouncedForAnInterrupt) {
  watchdog dog("T42");
  auto options = quiet();
  options.announce = std::chrono::hours(1);
  ordered_lifespan life(options);
  EXPECT_TRUE(life.start());
  life.simulate_signal(SIGINT);
  EXPECT_EQ(life.stop().cause, stop_cause::signal);
}

TEST(OrderedLifespan, Rule10_T42_AnAnnouncementEndsByItself) {
  watchdog dog("T42");
  auto options = quiet();
  options.announce = 20ms;
  ordered_lifespan life(options);
  EXPECT_TRUE(life.start());
  EXPECT_GE(life.stop().total, 20ms);
}

// --- rule 11: exit codes

TEST(OrderedLifespan, Rule11_T19_T20_ExitCodesHaveAnOrder) {
  watchdog dog("rule 11");
  struct row {
    const char* what;
    exit_code_policy policy;
    int signal;  // that asks, 0: request_stop
    int code;    // given with a second request, -1: none
    bool stop_fails;
    bool stage_fails;
    int expected;
  };
  const row table[] = {
      {"clean request", exit_code_policy::zero_when_clean, 0, -1, false, false, 0},
      {"clean signal", exit_code_policy::zero_when_clean, SIGTERM, -1, false, false, 0},
      {"conventional request", exit_code_policy::conventional_128, 0, -1, false, false, 0},
      {"conventional signal", exit_code_policy::conventional_128, SIGINT, -1, false, false, 128 + SIGINT},
      {"stop error", exit_code_policy::conventional_128, SIGTERM, -1, true, false, 1},
      {"failed stage", exit_code_policy::conventional_128, SIGTERM, -1, false, true, 1},
      {"code wins over errors", exit_code_policy::zero_when_clean, SIGTERM, 42, true, true, 42},
      {"code zero wins too", exit_code_policy::conventional_128, SIGTERM, 0, true, false, 0},
  };
  for (const auto& r : table) {
    auto options = quiet();
    options.exit = r.policy;
    ordered_lifespan life(options);
    life.add("a").stop([&] {
      if (r.stop_fails) throw 1;
    });
    EXPECT_TRUE(life.start());
    if (r.signal != 0) {
      life.simulate_signal(r.signal);
    } else {
      life.request_stop();
    }
    if (r.code >= 0) {
      EXPECT_FALSE(life.request_stop(stop_cause::requested, r.code));
      EXPECT_FALSE(life.request_stop(stop_cause::requested, 99));  // only the first code counts
    }
    if (r.stage_fails) life.fail_stage("a", std::make_exception_ptr(std::runtime_error("lost")));
    EXPECT_EQ(life.run(), r.expected) << r.what;
    EXPECT_EQ(life.report().exit_code, r.expected) << r.what;
  }
}

TEST(OrderedLifespan, Rule11_AFailingStageStopsTheLifespanAndIsRecorded) {
  watchdog dog("fail_stage");
  ordered_lifespan life(quiet());
  life.add("db");
  life.add("api").start([&] { life.fail_stage("db", std::make_exception_ptr(std::runtime_error("connection lost"))); });
  EXPECT_EQ(life.run(), 1);
  EXPECT_EQ(life.report().cause, stop_cause::stage_failed);
  EXPECT_TRUE(contains(life.report().to_string(), "connection lost"));
}

// --- rule 12: everything may be called from hooks

TEST(OrderedLifespan, Rule12_T21_AStopFromAHookOnlyAsks) {
  watchdog dog("T21");
  for (const bool here : {false, true}) {
    ordered_lifespan life(quiet());
    const auto hook = [&](const stage_context&) {
      EXPECT_EQ(life.stop().cause, stop_cause::requested);
      EXPECT_NE(life.state(), lifespan_state::stopped);
      EXPECT_FALSE(life.start());
      EXPECT_FALSE(life.reset());
      life.poll_signals();
      EXPECT_TRUE(life.token().stop_requested());
      EXPECT_TRUE(life.report().records.empty());
      EXPECT_EQ(life.wait(), stop_cause::requested);
    };
    auto& stage = life.add("a").start(hook).close(hook).drain(hook).stop(hook);
    if (here) stage.on_controller();
    life.observe([&](const lifespan_event&) { life.request_stop(stop_cause::requested); });
    EXPECT_FALSE(life.start());
    EXPECT_EQ(life.report().exit_code, 0) << life.report().to_string();
  }
}

TEST(OrderedLifespan, Rule12_StopMayBeCalledByAnObserverAndByAStopCallback) {
  watchdog dog("rule 12");
  ordered_lifespan life(quiet());
  int called = 0;
  const std::stop_callback callback(life.token(), [&] {
    ++called;
    life.stop();
  });
  life.observe([&](const lifespan_event& event) {
    if (event.kind == lifespan_event_kind::stage_end && event.stage == "a") life.stop();
    throw std::runtime_error("bad observer");
  });
  life.add("a").start([] {}).stop([] {});
  EXPECT_FALSE(life.start());
  EXPECT_EQ(called, 1);
  EXPECT_GT(life.report().observer_errors, 0u);
  EXPECT_EQ(life.report().exit_code, 0);
}

// --- rules 13 and 14: destruction, report, late callers

TEST(OrderedLifespan, Rule13_TheDestructorStopsWhatRuns) {
  watchdog dog("rule 13");
  journal log;
  {
    ordered_lifespan life(quiet());
    life.add("a").stop(
        [&](const stage_context& context) { log(context.cause == stop_cause::destructor ? "destructor" : "other"); });
    EXPECT_TRUE(life.start());
  }
  EXPECT_EQ(log.text(), "destructor");
  { ordered_lifespan never_started(quiet()); }
}

TEST(OrderedLifespan, Rule14_T11_X13_StopRunsOnceAndLateCallersWaitForItsEnd) {
  watchdog dog("T11");
  int stopped = 0;
  curfew_test::gate inside;
  curfew_test::gate go_on;
  parked_lifespan life(quiet());
  life.add("a").stop([&] {
    ++stopped;
    inside.open();
    EXPECT_TRUE(go_on.wait());
  });
  EXPECT_TRUE(life.start());
  park joiners("lifespan.stop.requested", "", 8);
  std::vector<std::thread> callers;
  std::atomic<int> back{0};
  for (int i = 0; i != 8; ++i) {
    callers.emplace_back([&] {
      const auto& report = life.stop();
      EXPECT_EQ(&report, &life.report());
      EXPECT_EQ(report.records.size(), 1u);
      back.fetch_add(1);
    });
  }
  EXPECT_TRUE(joiners.wait_arrived(8));
  joiners.open();
  EXPECT_TRUE(inside.wait());
  EXPECT_EQ(back.load(), 0);
  go_on.open();
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(stopped, 1);
}

TEST(OrderedLifespan, Rule14_StopDuringAStartByAnotherThreadWaitsForTheRollback) {
  watchdog dog("rule 14");
  journal log;
  ordered_lifespan life(quiet());
  gate inside;
  life.add("a").start([&](const stage_context& context) {
    inside.open();
    EXPECT_FALSE(nap(context, patience));
  });
  life.add("b").start([&] { log("+b"); });
  life.add("c").stop([&] { log("-c"); });
  thread starter([&] { EXPECT_FALSE(life.start()); });
  EXPECT_TRUE(inside.wait());
  const auto& report = life.stop(stop_cause::parent);
  EXPECT_EQ(report.cause, stop_cause::parent);
  EXPECT_EQ(life.state(), lifespan_state::stopped);
  EXPECT_EQ(log.text(), "");
  starter.join();
}

TEST(OrderedLifespan, Rule14_TheReportSaysEverythingAndIsEmptyBefore) {
  watchdog dog("rule 14");
  ordered_lifespan life(quiet());
  life.add("db").start([] {}).stop([] { throw std::runtime_error("socket gone"); });
  EXPECT_EQ(life.report().cause, stop_cause::none);
  EXPECT_TRUE(life.start());
  EXPECT_TRUE(life.report().records.empty());
  life.simulate_signal(SIGINT);
  life.simulate_signal(SIGTERM, 2);
  const auto& report = life.stop();
  EXPECT_EQ(report.signal, SIGINT);
  EXPECT_EQ(report.signals, (std::map<int, unsigned>{{SIGINT, 1}, {SIGTERM, 2}}));
  const auto text = report.to_string();
  for (const char* part : {"signal", "SIGINT", "exit code 1", "db", "start", "ok", "stop", "failed", "socket gone"}) {
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
  }
  EXPECT_EQ(&life.stop(), &report);
  EXPECT_FALSE(life.request_stop());
}

TEST(OrderedLifespan, Rule14_RecordsCountFromTheirOrigins) {
  watchdog dog("rule 14");
  ordered_lifespan life(quiet());
  life.add("a").start([](const stage_context& context) { nap(context, 5ms); });
  life.add("b").start([] {}).stop([](const stage_context& context) { nap(context, 5ms); });
  life.add("c").stop([] {});
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_GE(find(report, "a", lifespan_phase::start)->took, 5ms);
  EXPECT_GE(find(report, "b", lifespan_phase::start)->began, 5ms);
  EXPECT_GE(find(report, "b", lifespan_phase::stop)->took, 5ms);
  EXPECT_GE(report.total, find(report, "b", lifespan_phase::stop)->began + 5ms);
  EXPECT_LT(find(report, "c", lifespan_phase::stop)->began, find(report, "b", lifespan_phase::stop)->began + 1ms);
}

// --- waiting

TEST(OrderedLifespan, WaitReturnsToEveryWaiterAlsoToThoseWhoCameBeforeTheStart) {
  watchdog dog("wait");
  ordered_lifespan life(quiet());
  life.add("a").start([] {}).stop([] {});
  std::vector<thread> waiters;
  for (int i = 0; i != 4; ++i) waiters.emplace_back([&] { EXPECT_EQ(life.wait(), stop_cause::signal); });
  EXPECT_TRUE(life.start());
  for (int i = 0; i != 4; ++i) waiters.emplace_back([&] { EXPECT_EQ(life.wait(), stop_cause::signal); });
  life.simulate_signal(SIGTERM);
  for (auto& waiter : waiters) waiter.join();
  EXPECT_TRUE(life.token().stop_requested());
  life.stop();
  EXPECT_EQ(life.wait(), stop_cause::signal);
}

TEST(OrderedLifespan, T29_T48_ARequestBetweenTheLookAndTheParkIsNotLost) {
  watchdog dog("T29");
  parked_lifespan life(quiet());
  EXPECT_TRUE(life.start());
  park between("wakeup.wait.before_poll");
  std::thread waiter([&] { EXPECT_EQ(life.wait(), stop_cause::signal); });
  EXPECT_TRUE(between.wait_arrived());
  life.simulate_signal(SIGTERM);
  between.open();
  waiter.join();
}

TEST(OrderedLifespan, X11_ASignalWhileALockIsHeldOnlyLatches) {
  watchdog dog("X11");
  ordered_lifespan life(quiet());
  std::mutex providers_lock;
  int stopped = 0;
  life.add("provider").stop([&] {
    const std::lock_guard lock(providers_lock);
    ++stopped;
  });
  EXPECT_TRUE(life.start());
  {
    const std::lock_guard lock(providers_lock);
    life.simulate_signal(SIGTERM);  // as if it had interrupted this thread here
    EXPECT_EQ(stopped, 0);
  }
  life.wait();
  life.stop();
  EXPECT_EQ(stopped, 1);
}

TEST(OrderedLifespan, T15_AThousandSignalsDuringAStopAreCountedAndNothingElse) {
  watchdog dog("T15");
  auto options = quiet();
  options.escalation_guard = std::chrono::hours(1);
  ordered_lifespan life(options);
  for (int i = 0; i != 4; ++i) life.add(std::to_string(i)).stop([&] { life.simulate_signal(SIGTERM, 250); });
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(report.signals.at(SIGTERM), 1000u);
  EXPECT_EQ(report.exit_code, 0);
}

TEST(OrderedLifespan, T14_AFlushIsADrainWithABudgetOfItsOwn) {
  watchdog dog("T14");
  journal log;
  ordered_lifespan life(quiet());
  life.add("store").stop([&] { log("-store"); });
  life.add("updates").after("store").drain([&] { log("flushed"); }).budget(lifespan_phase::drain, 10s);
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_EQ(log.text(), "flushed -store");
}

// --- reset

TEST(OrderedLifespan, ResetAllowsAnotherRun) {
  watchdog dog("reset");
  journal log;
  ordered_lifespan life(quiet());
  life.add("a").start([&] { log("+a"); }).stop([&] { log("-a"); });
  EXPECT_FALSE(life.reset());
  for (int run = 0; run != 3; ++run) {
    EXPECT_TRUE(life.start());
    EXPECT_FALSE(life.reset());
    const auto token = life.token();
    EXPECT_TRUE(life.request_stop(stop_cause::requested, 3));
    EXPECT_EQ(life.run(), 3);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_TRUE(life.reset());
    EXPECT_EQ(life.state(), lifespan_state::idle);
    EXPECT_FALSE(life.token().stop_requested());
    EXPECT_TRUE(life.report().records.empty());
  }
  EXPECT_EQ(log.text(), "+a -a +a -a +a -a");
}

TEST(OrderedLifespan, ResetKeepsASignalThatCameAfterTheStop) {
  watchdog dog("reset");
  ordered_lifespan life(quiet());
  life.add("a").start([] { FAIL() << "nothing starts"; });
  life.simulate_signal(SIGINT);
  EXPECT_FALSE(life.start());
  life.simulate_signal(SIGTERM);
  EXPECT_TRUE(life.reset());
  EXPECT_FALSE(life.start());
  EXPECT_EQ(life.report().signal, SIGTERM);
  EXPECT_EQ(life.report().signals, (std::map<int, unsigned>{{SIGTERM, 1}}));
  EXPECT_TRUE(life.reset());
  EXPECT_EQ(life.state(), lifespan_state::idle);
}

TEST(OrderedLifespan, ResetDoesNotBringBackAReloadThatTheStopDropped) {
  watchdog dog("reset");
  int reloads = 0;
  auto options = quiet();
  options.on_hangup = [&] { ++reloads; };
  ordered_lifespan life(options);
  life.add("a").stop([&] { life.simulate_signal(SIGHUP); });
  EXPECT_TRUE(life.start());
  life.stop();
  EXPECT_TRUE(life.reset());
  EXPECT_TRUE(life.start());
  life.poll_signals();
  EXPECT_EQ(reloads, 0);
  life.stop();
  life.simulate_signal(SIGHUP);  // after it, and so for the next run
  EXPECT_TRUE(life.reset());
  EXPECT_TRUE(life.start());
  life.poll_signals();
  EXPECT_EQ(reloads, 1);
}

TEST(OrderedLifespan, Rule12_AStopByAStopCallbackOnlyRequestsWhoeverAsked) {
  watchdog dog("rule 12");
  ordered_lifespan life(quiet());
  life.add("a");
  EXPECT_TRUE(life.start());
  const std::stop_callback component(life.token(), [&] {
    life.stop();
    EXPECT_EQ(life.state(), lifespan_state::running);
  });
  EXPECT_TRUE(life.request_stop());
  EXPECT_EQ(life.state(), lifespan_state::running);
  EXPECT_EQ(life.stop().exit_code, 0);
}

// --- children

TEST(OrderedLifespan, ChildrenRunInsideTheBarriersOfTheirParent) {
  watchdog dog("children");
  journal log;
  ordered_lifespan parent(quiet());
  ordered_lifespan child(quiet());
  const auto fill = [&](ordered_lifespan & life, const std::string& name) -> auto& {
    return life.add(name)
        .start([&log, name] { log("+" + name); })
        .close([&log, name] { log("c:" + name); })
        .drain([&log, name] { log("d:" + name); })
        .stop([&log, name] { log("-" + name); });
  };
  fill(child, "x");
  fill(child, "y").after("x");
  fill(parent, "a");
  parent.add_child("sub", child).after("a");
  fill(parent, "b").after("sub");
  EXPECT_TRUE(parent.start());
  EXPECT_EQ(child.state(), lifespan_state::running);
  const auto& report = parent.stop();
  EXPECT_EQ(log.text(), "+a +x +y +b c:b c:y c:x c:a d:b d:y d:x d:a -b -y -x -a");
  EXPECT_EQ(report.exit_code, 0) << report.to_string();
  EXPECT_EQ(child.state(), lifespan_state::stopped);
  EXPECT_EQ(child.report().cause, stop_cause::parent);
}

TEST(OrderedLifespan, AFailedChildStartFailsTheStage) {
  watchdog dog("children");
  journal log;
  ordered_lifespan parent(quiet());
  ordered_lifespan child(quiet());
  child.add("x").stop([&] { log("-x"); });
  child.add("y").start([] { throw std::runtime_error("no"); });
  parent.add("a").stop([&] { log("-a"); });
  parent.add_child("sub", child);
  EXPECT_FALSE(parent.start());
  EXPECT_EQ(log.text(), "-x -a");
  EXPECT_EQ(parent.report().exit_code, 1);
  EXPECT_EQ(find(parent.report(), "sub", lifespan_phase::start)->outcome, stage_outcome::failed);
}

TEST(OrderedLifespan, AStopOfTheParentReachesTheHooksOfItsChild) {
  watchdog dog("children");
  auto options = quiet();
  options.escalation_guard = 0ms;
  ordered_lifespan parent(options);
  ordered_lifespan child(options);
  gate inside;
  journal log;
  child.add("x").start([&](const stage_context& context) {
    inside.open();
    EXPECT_FALSE(nap(context, patience));
  });
  child.add("never").start([&] { log("+never"); });
  parent.add_child("sub", child);
  thread asker([&] {
    EXPECT_TRUE(inside.wait());
    parent.request_stop();
  });
  EXPECT_FALSE(parent.start());
  asker.join();
  EXPECT_EQ(log.text(), "");
  EXPECT_EQ(child.report().cause, stop_cause::parent);
  EXPECT_EQ(parent.report().exit_code, 0) << parent.report().to_string();  // called off is not failed
  EXPECT_EQ(find(parent.report(), "sub", lifespan_phase::start)->outcome, stage_outcome::ok);
}

TEST(OrderedLifespan, AHurriedParentHurriesItsChild) {
  watchdog dog("children");
  auto options = quiet();
  options.escalation_guard = 0ms;
  ordered_lifespan parent(options);
  ordered_lifespan child(options);
  urgency seen = urgency::normal;
  child.add("second").stop([&](const stage_context& context) { seen = context.pressure; });
  child.add("first").stop([&](const stage_context& context) {
    parent.simulate_signal(SIGTERM);
    EXPECT_FALSE(nap(context, patience));
  });
  parent.add_child("sub", child);
  EXPECT_TRUE(parent.start());
  EXPECT_EQ(parent.stop().exit_code, 0) << parent.report().to_string() << child.report().to_string();
  EXPECT_EQ(seen, urgency::hurried);
}

TEST(OrderedLifespan, AHungHookOfAChildEndsWithinTheSliceOfItsParent) {
  watchdog dog("children");
  hang stuck;
  journal log;
  ordered_lifespan parent(quiet());
  ordered_lifespan child(quiet());
  child.add("fine").stop([&] { log("-fine"); });
  child.add("stuck").stop(stuck.hook());
  parent.add("a").stop([&] { log("-a"); });
  parent.add_child("sub", child).budget(lifespan_phase::stop, 2s);
  EXPECT_TRUE(parent.start());
  const auto& report = parent.stop();
  EXPECT_EQ(log.text(), "-fine -a");
  EXPECT_EQ(report.exit_code, 124);
  EXPECT_EQ(child.report().abandoned.size(), 1u);
}

TEST(OrderedLifespan, AChildThatStopsOnItsOwnHasItsOwnBudgets) {
  watchdog dog("children");
  ordered_lifespan child(quiet());
  ordered_lifespan parent(quiet());
  std::chrono::nanoseconds slice{0};
  child.add("x").budget(lifespan_phase::stop, 2s).stop([&](const stage_context& context) {
    slice = context.deadline - fake_sync::clock::now();
  });
  parent.add_child("sub", child).budget(lifespan_phase::start, 10ms);
  EXPECT_TRUE(parent.start());
  fake_sync::sleep_for(1h);
  EXPECT_EQ(child.stop().exit_code, 0);
  EXPECT_EQ(slice, 2s);  // and not what the stage of the parent had left for the start
  EXPECT_EQ(parent.stop().exit_code, 0);
}

TEST(OrderedLifespan, AChildIsIdleWithoutAParentAndOwnsNothing) {
  ordered_lifespan parent(quiet());
  ordered_lifespan child(quiet());
  parent.add_child("sub", child);
  EXPECT_THROW(parent.add_child("again", child), std::logic_error);
  EXPECT_THROW(parent.add_child("self", parent), std::logic_error);
}

// --- what cannot be had

/// No threads while `starved`, as when the system has no more.
struct starving_sync : curfew::std_sync {
  static inline std::atomic<bool> starved{false};
  struct thread : std::thread {
    thread() = default;
    template <class F>
    explicit thread(F&& f) : std::thread(make(std::forward<F>(f))) {}
    template <class F>
    static std::thread make(F&& f) {
      if (starved.load()) throw std::system_error(EAGAIN, std::generic_category(), "no thread");
      return std::thread(std::forward<F>(f));
    }
  };
};

TEST(OrderedLifespan, WithoutThreadsHooksRunOnTheControllerAndTheReportSaysSo) {
  watchdog dog("no threads");
  for (const bool from_the_start : {true, false}) {
    journal log;
    curfew::basic_ordered_lifespan<starving_sync> life(quiet());
    curfew::admission_fence fence("f");
    life.add("a").start([&] { log("+a"); }).stop([&] { log("-a"); }).fence(fence);
    life.add("b").on_controller().start([&] { log("+b"); }).drain([&] { log("d:b"); }).stop([&] {
      log("-b");
      throw 1;
    });
    starving_sync::starved = from_the_start;
    EXPECT_TRUE(life.start());
    starving_sync::starved = true;
    const auto& report = life.stop();
    starving_sync::starved = false;
    EXPECT_EQ(log.text(), "+a +b d:b -b -a");
    EXPECT_TRUE(contains(join(report.notes), "'a'")) << report.to_string();
    EXPECT_EQ(find(report, "b", lifespan_phase::stop)->outcome, stage_outcome::failed);
    EXPECT_EQ(report.exit_code, 1);
  }
}

TEST(OrderedLifespan, BadSignalsAreRefusedByNumber) {
  for (const int signo : {0, -1, 65, 1000}) {
    auto options = quiet();
    options.owned_signals = {signo};
    try {
      ordered_lifespan life(options);
      FAIL() << signo;
    } catch (const std::invalid_argument& e) {
      EXPECT_TRUE(contains(e.what(), std::to_string(signo)));
    }
  }
}

// --- event loops

TEST(OrderedLifespan, AnEventLoopPollsTheHandleAndAsksForWhatCame) {
  watchdog dog("native_handle");
  auto options = quiet();
  int reloads = 0;
  options.on_hangup = [&] { ++reloads; };
  options.owned_signals = {};
  real_lifespan life(options);
  EXPECT_TRUE(life.start());
  ASSERT_GE(life.native_handle(), 0);
  const auto readable = [&](int timeout) {
    pollfd entry{life.native_handle(), POLLIN, 0};
    return ::poll(&entry, 1, timeout) == 1;
  };
  life.poll_signals();
  EXPECT_FALSE(readable(0));
  life.simulate_signal(SIGHUP);
  EXPECT_TRUE(readable(20000));
  life.poll_signals();
  EXPECT_EQ(reloads, 1);
  EXPECT_FALSE(life.token().stop_requested());
  life.simulate_signal(SIGTERM);
  EXPECT_TRUE(readable(20000));
  EXPECT_FALSE(life.token().stop_requested());
  life.poll_signals();
  EXPECT_TRUE(life.token().stop_requested());
  EXPECT_FALSE(readable(0));
  life.stop();
}

TEST(OrderedLifespan, PollSignalsDoesNotStealFromAWaiter) {
  watchdog dog("poll_signals");
  for (int round = 0; round != 50; ++round) {
    real_lifespan life(quiet());
    EXPECT_TRUE(life.start());
    std::atomic<bool> over{false};
    std::thread poller([&] {
      while (!over.load()) life.poll_signals();
    });
    std::thread waiter([&] { EXPECT_EQ(life.wait(), stop_cause::signal); });
    life.simulate_signal(SIGTERM);
    waiter.join();
    over = true;
    poller.join();
  }
}

}  // namespace
