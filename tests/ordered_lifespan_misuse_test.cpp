// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Bad input, hooks that do what hooks should not do, and what the report says about it.

#include <curfew/ordered_lifespan.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include "support/lifespan_probe.hpp"
#include "support/park.hpp"

namespace {

using namespace curfew_test;
using curfew::bad_graph;
using curfew::ordered_lifespan;

/// What is thrown by \p f as a bad_graph, "accepted" when nothing is.
std::string refusal(const std::function<void(ordered_lifespan&)>& f, bool start = true) {
  ordered_lifespan life(quiet());
  try {
    f(life);
    if (start) life.start();
  } catch (const bad_graph& e) {
    return e.what();
  }
  return "accepted";
}

TEST(LifespanMisuse, BadGraphsAreRefusedBeforeAnyHookAndTheLifespanStaysUsable) {
  watchdog dog("misuse");
  using life = ordered_lifespan;
  EXPECT_EQ(refusal([](life& l) { l.add(""); }), "stage number 1 has an empty name");
  EXPECT_EQ(refusal([](life& l) { l.add("a"), l.add("a"); }), "two stages are called 'a'");
  EXPECT_EQ(refusal([](life& l) { l.add("a").after("b"); }), "stage 'a' comes after 'b', which does not exist");
  EXPECT_EQ(refusal([](life& l) { l.add("a").after(""); }), "stage 'a' comes after '', which does not exist");
  EXPECT_EQ(refusal([](life& l) { l.add("a").after("a"); }), "stages form a cycle: a -> a");
  EXPECT_EQ(refusal([](life& l) {
              l.add("a").after("b");
              l.add("b").after("c");
              l.add("c").after("a");
            }),
            "stages form a cycle: a -> b -> c -> a");
  EXPECT_NE(refusal([](life& l) { l.add("a").budget(lifespan_phase::stop, -1s); }), "accepted");
  EXPECT_NE(refusal([](life& l) { l.add("a").budget(lifespan_phase::start, 0s); }), "accepted");
  EXPECT_EQ(refusal([](life& l) { l.add("a").after("b", "b").parallel(), l.add("b"); }), "accepted");
  EXPECT_NE(refusal([](life& l) { l.add("a").stop(std::function<void()>()); }, false), "accepted");
  EXPECT_NE(refusal([](life& l) { l.add("a").stop(static_cast<void (*)()>(nullptr)); }, false), "accepted");

  ordered_lifespan life_again(quiet());
  int started = 0;
  life_again.add("a").after("later").start([&] { ++started; });
  EXPECT_THROW(life_again.start(), bad_graph);
  EXPECT_EQ(life_again.state(), lifespan_state::idle);
  EXPECT_EQ(started, 0);
  life_again.add("later");
  EXPECT_TRUE(life_again.start());
  EXPECT_EQ(started, 1);
}

TEST(LifespanMisuse, ADurationThatIsNoNumberIsRefusedAndNobodySleepsForIt) {
  watchdog dog("misuse");
  const std::chrono::duration<double> nan(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(curfew::detail::clamped(nan), -std::chrono::nanoseconds::max());
  EXPECT_EQ(refusal([&](ordered_lifespan& l) { l.add("a").budget(lifespan_phase::drain, nan); }),
            "stage 'a': the drain budget must be positive");
  EXPECT_EQ(refusal([](ordered_lifespan& l) {
              l.add("a").budget(lifespan_phase::stop,
                                std::chrono::duration<double>(-std::numeric_limits<double>::infinity()));
            }),
            "stage 'a': the stop budget must be positive");
  ordered_lifespan life(quiet());
  life.add("a")
      .budget(lifespan_phase::start, std::chrono::duration<double>(std::numeric_limits<double>::infinity()))
      .start([&](const stage_context& context) { EXPECT_TRUE(context.sleep_or_stop(nan)); });
  EXPECT_TRUE(life.start());
}

TEST(LifespanMisuse, AnEmptyObserverIsRefused) {
  ordered_lifespan life(quiet());
  EXPECT_THROW(life.observe(nullptr), std::invalid_argument);
  EXPECT_THROW(life.observe(std::function<void(const curfew::lifespan_event&)>()), std::invalid_argument);
  EXPECT_TRUE(life.start());
  EXPECT_EQ(life.stop().observer_errors, 0u);
}

TEST(LifespanMisuse, NullNamesAreRefusedByTheStandardLibrary) {
  ordered_lifespan life(quiet());
  const char* nothing = nullptr;
  EXPECT_THROW(life.add("a").after(nothing), std::logic_error);
}

TEST(LifespanMisuse, NothingCanBeAddedOrChangedOnceItHasStarted) {
  watchdog dog("misuse");
  ordered_lifespan life(quiet());
  ordered_lifespan child(quiet());
  curfew::admission_fence fence("f");
  auto& stage = life.add("a").start([&] {
    EXPECT_THROW(life.add("b"), std::logic_error);
    EXPECT_THROW(life.add_child("c", child), std::logic_error);
  });
  EXPECT_TRUE(life.start());
  EXPECT_THROW(stage.stop([] {}), std::logic_error);
  EXPECT_THROW(stage.after("b"), std::logic_error);
  EXPECT_THROW(stage.fence(fence), std::logic_error);
  EXPECT_THROW(stage.budget(lifespan_phase::stop, 1s), std::logic_error);
  EXPECT_THROW(stage.parallel().on_controller(), std::logic_error);
  life.stop();
  EXPECT_THROW(life.add("late"), std::logic_error);
  ordered_lifespan other(quiet());
  other.add_child("free again", child);  // what was refused is still its own
}

TEST(LifespanMisuse, AChildHasOneParentAndNoCircleAndNoSignals) {
  watchdog dog("misuse");
  ordered_lifespan child(quiet());
  ordered_lifespan middle(quiet());
  ordered_lifespan top(quiet());
  middle.add_child("child", child);
  EXPECT_THROW(middle.add_child("child again", child), std::logic_error);
  EXPECT_THROW(top.add_child("child", child), std::logic_error);
  EXPECT_THROW(top.add_child("top", top), std::logic_error);
  top.add_child("middle", middle);
  EXPECT_THROW(child.add_child("top", top), std::logic_error);
  auto options = quiet();
  options.owned_signals = {SIGUSR2};
  ordered_lifespan owner(options);
  EXPECT_THROW(top.add_child("owner", owner), curfew::ownership_conflict);
  ordered_lifespan running(quiet());
  EXPECT_TRUE(running.start());
  EXPECT_THROW(top.add_child("running", running), std::logic_error);
  EXPECT_TRUE(top.start());
  EXPECT_EQ(child.state(), lifespan_state::running);
}

TEST(LifespanMisuse, CallsInTheWrongOrderDoNothing) {
  watchdog dog("misuse");
  ordered_lifespan life(quiet());
  int started = 0;
  life.add("a").start([&] { ++started; });
  EXPECT_FALSE(life.reset());
  EXPECT_TRUE(life.start());
  EXPECT_TRUE(life.start());  // it is running, and that is all that is said
  EXPECT_FALSE(life.reset());
  life.stop();
  EXPECT_FALSE(life.start());
  EXPECT_FALSE(life.request_stop());
  EXPECT_FALSE(life.escalate());
  life.fail_stage("a", nullptr);
  life.poll_signals();
  life.simulate_signal(0);
  life.simulate_signal(-1);
  life.simulate_signal(1000);
  life.simulate_signal(SIGTERM, 0);
  EXPECT_EQ(life.wait(), stop_cause::requested);
  EXPECT_EQ(life.stop().exit_code, 0);
  EXPECT_EQ(started, 1);
}

TEST(LifespanMisuse, HooksMayThrowAnything) {
  watchdog dog("misuse");
  ordered_lifespan life(quiet());
  struct odd {};
  life.add("int").stop([] { throw 7; });
  life.add("memory").stop([] { throw std::bad_alloc(); });
  life.add("odd").stop([] { throw odd(); });
  life.add("pointer").stop([] { throw static_cast<const char*>(nullptr); });
  life.add("on the controller").on_controller().stop([] { throw 7; });
  life.observe([](const curfew::lifespan_event&) { throw 8; });
  EXPECT_TRUE(life.start());
  const auto& report = life.stop();
  EXPECT_EQ(report.records.size(), 5u);
  for (const auto& record : report.records) {
    EXPECT_EQ(record.outcome, stage_outcome::failed);
    EXPECT_TRUE(record.error);
  }
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_GT(report.observer_errors, 0u);
  EXPECT_NE(report.to_string().find("an exception that is not a std::exception"), std::string::npos);
}

TEST(LifespanMisuse, EverythingMayBeCalledByAHook) {
  watchdog dog("misuse");
  for (const bool on_controller : {false, true}) {
    int calls = 0;
    ordered_lifespan life(quiet());
    const auto everything = [&](const stage_context& context) {
      EXPECT_EQ(life.start(), false);
      EXPECT_EQ(life.reset(), false);
      EXPECT_EQ(life.run(), EXIT_FAILURE);
      if (context.phase != lifespan_phase::start) {
        EXPECT_EQ(life.stop().cause, stop_cause::requested);
        EXPECT_EQ(life.wait(), stop_cause::requested);
        EXPECT_FALSE(life.request_stop());
      }
      EXPECT_TRUE(life.report().records.empty());
      life.poll_signals();
      life.observe([](const curfew::lifespan_event&) {});
      static_cast<void>(life.token());
      ++calls;
    };
    auto& stage = life.add("a").start(everything).close(everything).drain(everything).stop(everything);
    if (on_controller) stage.on_controller();
    EXPECT_TRUE(life.start());
    EXPECT_EQ(life.stop().exit_code, 0) << life.report().to_string();
    EXPECT_EQ(calls, 4);
  }
}

TEST(LifespanMisuse, AHookThatAsksForTheStopOrHurriesItGetsWhatItAskedFor) {
  watchdog dog("misuse");
  ordered_lifespan life(quiet());
  std::string log;
  urgency last = urgency::normal;
  life.add("b").stop([&](const stage_context& context) { last = context.pressure; });
  life.add("a").after("b").start([&] { EXPECT_TRUE(life.request_stop(stop_cause::requested, 5)); }).close([&] {
    EXPECT_TRUE(life.escalate());
  });
  EXPECT_FALSE(life.start());
  EXPECT_EQ(life.report().exit_code, 5);
  EXPECT_EQ(last, urgency::hurried);
}

TEST(LifespanMisuse, AHookOfItsParentMayDestroyAChild) {
  watchdog dog("misuse");
  int stopped = 0;
  auto child = std::make_unique<ordered_lifespan>(quiet());
  ordered_lifespan parent(quiet());
  child->add("x").stop([&] { ++stopped; });
  parent.add_child("sub", *child);
  parent.add("rude").close([&] { child.reset(); });
  EXPECT_TRUE(parent.start());
  EXPECT_EQ(parent.stop().exit_code, 0) << parent.report().to_string();
  EXPECT_EQ(stopped, 1);  // once, by whoever was at it
}

TEST(LifespanMisuse, WhatHooksAndObserversHoldGoesWithTheLifespanAlsoWhenAStopCallbackIsStillRunning) {
  watchdog dog("misuse");
  gate go;
  gate gone;
  std::optional<std::stop_callback<std::function<void()>>> slow;
  std::weak_ptr<int> held;
  {
    ordered_lifespan life(quiet());
    const auto resource = std::make_shared<int>(1);
    held = resource;
    life.observe([resource](const curfew::lifespan_event&) {});
    life.add("a").start([resource] {}).stop([&](const stage_context& context) {
      slow.emplace(context.token, [&] {
        EXPECT_TRUE(go.wait());
        gone.open();
      });
      life.escalate();
      EXPECT_FALSE(context.sleep_or_stop(patience));
    });
    EXPECT_TRUE(life.start());
    EXPECT_EQ(life.stop().exit_code, 0);
  }
  EXPECT_TRUE(held.expired());
  go.open();
  EXPECT_TRUE(gone.wait());
}

TEST(LifespanMisuse, HooksThatLeaveTheProcessLeaveIt) {
  watchdog dog("misuse");
  if (thread_sanitizer) GTEST_SKIP() << "threads in a forked child";
  const auto child = [](const std::function<void(ordered_lifespan&)>& act) {
    return shell_code(in_child([&] {
      ordered_lifespan life(quiet());
      life.add("a").stop([&] { act(life); });
      life.start();
      life.stop();
      return 1;
    }));
  };
  EXPECT_EQ(child([](ordered_lifespan&) { std::_Exit(7); }), 7);
  EXPECT_EQ(child([](ordered_lifespan&) { std::exit(8); }), 8);
  // One with static storage would be destroyed by exit(), under its own hook.
  EXPECT_EQ(shell_code(in_child([] {
              static ordered_lifespan life(quiet());
              life.add("a").stop([] { std::exit(9); });
              life.start();
              life.stop();
              return 1;
            })),
            128 + SIGABRT);
  EXPECT_EQ(child([](ordered_lifespan& life) {
              life.escalate();
              life.escalate();
            }),
            128 + SIGTERM);
}

TEST(LifespanMisuse, AReloadThatHangsUnderRunEndsTheProcessAllTheSame) {
  watchdog dog("misuse");
  if (thread_sanitizer) GTEST_SKIP() << "threads in a forked child";
  channel log;
  EXPECT_EQ(shell_code(in_child([&] {
              lifespan_options options;
              options.on_hangup = [] {
                ::kill(::getpid(), SIGTERM);
                for (;;) std::this_thread::sleep_for(1h);
              };
              ordered_lifespan life(options);
              life.add("a").start([] { ::kill(::getpid(), SIGHUP); }).stop([&] { log.tell('s'); });
              return life.run();
            })),
            124);
  EXPECT_EQ(log.hear(), 's');
}

// --- what a hook returns

struct converts_to_anything {
  template <class T>
  operator T() const {
    throw std::logic_error("nobody is to ask for it");
  }
};

TEST(LifespanMisuse, AResultThatConvertsToAnythingIsIgnoredLikeAnyOther) {
  lifespan_options options;
  options.owned_signals = {};
  ordered_lifespan life(options);
  life.add("a").start([](const curfew::stage_context&) { return converts_to_anything{}; }).stop([] {
    return converts_to_anything{};
  });
  EXPECT_TRUE(life.start());
  EXPECT_EQ(life.stop().exit_code, 0);
}

// --- the report as JSON

TEST(LifespanReport, ToJsonHasEverythingOnOneLine) {
  curfew::lifespan_report report;
  EXPECT_EQ(report.to_json(), R"({"cause":"none","signal":0,"exit_code":0,"total_ns":0,"records":[],"abandoned":[],)"
                              R"("displaced_handlers":[],"signals":{},"notes":[],"observer_errors":0})");
  report.cause = stop_cause::signal;
  report.signal = SIGTERM;
  report.exit_code = 124;
  report.total = 1500ms;
  report.records.push_back({"db", lifespan_phase::stop, stage_outcome::ok, 5ns, 7us, nullptr});
  report.records.push_back({"a \"b\"\\\n\x01", lifespan_phase::close, stage_outcome::failed, 0ns, 0ns,
                            std::make_exception_ptr(std::runtime_error("no\tway"))});
  report.abandoned = {"x", "y"};
  report.displaced_handlers = {"z"};
  report.signals = {{SIGINT, 2}, {SIGTERM, 1}};
  report.notes = {"n"};
  report.observer_errors = 3;
  EXPECT_EQ(report.to_json(),
            R"({"cause":"signal","signal":15,"exit_code":124,"total_ns":1500000000,"records":[)"
            R"({"stage":"db","phase":"stop","outcome":"ok","began_ns":5,"took_ns":7000,"error":null},)"
            R"({"stage":"a \"b\"\\\u000a\u0001","phase":"close","outcome":"failed","began_ns":0,"took_ns":0,)"
            R"("error":"no\u0009way"}],"abandoned":["x","y"],"displaced_handlers":["z"],)"
            R"("signals":{"2":2,"15":1},"notes":["n"],"observer_errors":3})");
}

TEST(LifespanReport, ToJsonIsValidUtf8WhateverStagesAreCalled) {
  using curfew::detail::json_string;
  EXPECT_EQ(json_string("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"), "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
  const char* bad[] = {
      "\x80",         "\xc0\xaf",         "\xc3",     "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
      "\xf8\x88\x80", "\xf0\x8f\xbf\xbf", "\xe2\x82", "\xff"};
  for (const char* text : bad) {
    const std::string quoted = json_string(text);
    EXPECT_EQ(quoted.substr(0, 7), "\"\\ufffd") << quoted;
    for (const char c : quoted) EXPECT_GE(c, 0x20) << quoted;
  }
  EXPECT_EQ(json_string(std::string_view("\0", 1)), "\"\\u0000\"");
}

}  // namespace
