// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `testing::explore` runs a body under every schedule that matters, on one real thread, and shows the first one that
/// goes wrong: a story that can be replayed from a string of a few dozen characters.
///
///     template <class Sync>
///     struct two_increments {
///       static constexpr unsigned roles = 2;               // threads; at most seven
///       typename Sync::template atomic<int> counter{0};
///       void role(unsigned) { counter.store(counter.load() + 1); }
///       void finish() { check(counter.load() == 2, "both count"); }   // alone, after all roles
///     };
///     const auto result = explore<two_increments<model_sync>>({.name = "two_increments"});
///
/// *What it explores.* Everything that goes through the policy: atomics, mutexes, condition variables, threads, time.
/// What is not written against the policy runs, but is one indivisible piece of a step. docs/design/explorer.md says
/// what the model of memory covers and what it misses.
///
/// *What it finds* is listed at `fault`. *What it cannot see:* a body that does not end by itself under some schedule
/// is cut at `steps`; a body that depends on addresses, on real time or on chance is reported as nondeterministic.
///
/// *Threads.* One exploration at a time in a process; it uses the calling thread alone and takes std::terminate over
/// while it runs. A failed run is not unwound: its memory stays behind.

#ifndef CURFEW_TESTING_EXPLORE_HPP
#define CURFEW_TESTING_EXPLORE_HPP

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/lot.hpp>
#include <curfew/testing/crash.hpp>
#include <curfew/testing/model_sync.hpp>
#include <curfew/testing/outcome.hpp>
#include <curfew/testing/restartable_model_sync.hpp>
#include <curfew/testing/story.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing {

/// Options of one explore(). The bounds are per schedule.
struct explore_options {
  std::string name = "body";            ///< in replay strings; without colons
  search how = search::reduced;         ///< see `search`
  unsigned bound = 2;                   ///< preemptions, or the depth of `search::priority`
  std::uint64_t schedules = 2'000'000;  ///< at most so many
  std::uint64_t seed = 1;               ///< of samples
  unsigned steps = 2000;                ///< more in one schedule are a livelock
  unsigned stale_reads = 0;             ///< loads in one schedule that may return an older value than the newest
  unsigned spurious_wakeups = 0;        ///< in one schedule
  unsigned timeouts = 2;                ///< deadlines that pass in one schedule while somebody could still go on
  unsigned weak_failures = 0;           ///< of compare_exchange_weak, for no reason, in one schedule
  unsigned interruptions = 0;           ///< of restartable sequences, for no reason, in one schedule
  unsigned migrations = 0;              ///< of threads to another processor, before a restartable sequence
  unsigned processors = 2;              ///< that restartable sequences run on
  bool shorten = true;                  ///< looks for a shorter schedule with the same fault
  bool print = true;                    ///< the story, to stderr
  /// Called with the events of every complete schedule that did not fail; slow, for tests of the explorer.
  std::function<void(const std::vector<engine::event>&)> visit = {};
  std::string replay = {};  ///< not empty: only this one; the environment's CURFEW_REPLAY does the same
};

/// What explore() found. True when nothing went wrong; `complete` says whether that is a proof.
struct exploration {
  fault what = fault::none;
  std::string message;
  bool complete = false;        ///< nothing is left to explore
  bool confirmed = false;       ///< the schedule failed in the same way in two replays
  std::uint64_t schedules = 0;  ///< that were run, those cut short as redundant among them
  std::uint64_t redundant = 0;
  std::uint64_t steps = 0;
  std::uint64_t failed_at = 0;  ///< number of the schedule that failed first
  unsigned preemptions = 0;     ///< in the schedule shown
  std::size_t choices = 0;      ///< in the schedule shown
  double seconds = 0;           ///< of the search, without replays
  std::string replay;
  std::string story;

  explicit operator bool() const noexcept { return what == fault::none; }
  /// One line.
  std::string summary() const {
    char line[160];
    std::snprintf(line, sizeof line, "%s, %llu schedules (%llu redundant), %.1f steps each, %.0f schedules/s%s",
                  complete ? "complete" : "not complete", static_cast<unsigned long long>(schedules),
                  static_cast<unsigned long long>(redundant),
                  schedules != 0 ? static_cast<double>(steps) / static_cast<double>(schedules) : 0.0,
                  seconds > 0 ? static_cast<double>(schedules) / seconds : 0.0,
                  what == fault::none ? "" : ", failed: ");
    return what == fault::none ? line : std::string(line) + to_string(what);
  }
};

namespace engine {

// libstdc++ counts references without atomics in a process that has never had a second thread, which to ThreadSanitizer
// is a race between fibers.
inline void be_multithreaded() {
  if constexpr (CURFEW_TESTING_TSAN) {
    static const bool once = (std_sync::thread([] {}).join(), true);
    static_cast<void>(once);
  }
}

template <class Case>
class case_body final : public body {
 public:
  unsigned roles() const override { return Case::roles; }
  void set_up() override {
    if constexpr (std::is_constructible_v<Case, random_source&>) {
      random_source chance(1);
      case_ = new Case(chance);
    } else {
      case_ = new Case();
    }
  }
  void role(unsigned number) override { case_->role(number); }
  void tear_down() override {
    case_->finish();
    delete std::exchange(case_, nullptr);
  }
  void lost() override {
    if (case_ != nullptr) keep(std::exchange(case_, nullptr));
  }
  bool watches() const override {
    return requires(Case & c) {
      c.invariant();
    };
  }
  void invariant() override {
    if constexpr (requires(Case & c) { c.invariant(); }) case_->invariant();
  }

 private:
  Case* case_ = nullptr;
};

class exploring {
 public:
  exploring(body& what, const explore_options& chosen) : body_(what), options_(chosen) {
    listening = {.check_failed =
                     [](const char* text, const char* file, unsigned line) {
                       const unobserved scope;
                       auto& run = *explorer_engine::current();
                       run.fail(fault::check_failed, std::string(text) + where({file, line}));
                     },
                 .foreign =
                     [](const char* text, const char* file, unsigned line) {
                       const unobserved scope;
                       explorer_engine::current()->callback(text, {file, line});
                     },
                 .close_call = nullptr};
    terminate_ = std::set_terminate([] {
      const unobserved scope;
      if (auto* run = explorer_engine::current()) run->fail(fault::terminated, reason());
      std::abort();
    });
  }
  ~exploring() {
    std::set_terminate(terminate_);
    listening = {};
  }
  exploring(const exploring&) = delete;
  exploring& operator=(const exploring&) = delete;

  exploration operator()() {
    std::string replay = options_.replay;
    if (const char* given = std::getenv("CURFEW_REPLAY"); replay.empty() && given != nullptr) {
      if (replay_text::parse(given).body == options_.name) replay = given;
    }
    warm_up();
    if (!replay.empty()) return shown(replay_text::parse(replay), {}, true);

    const limits most{options_.steps,         options_.stale_reads,   options_.spurious_wakeups, options_.timeouts,
                      options_.weak_failures, options_.interruptions, options_.migrations,       options_.processors};
    exploration result;
    auto found = search_for(options_.how, options_.bound, options_.schedules, most, fault::none, &result);
    if (!found) return result;
    if (options_.shorten && found->what != fault::nondeterminism) shorten(*found, most);
    exploration seen = shown({options_.name, most, found->choices, found->print}, *found, false);
    seen.schedules = result.schedules;
    seen.redundant = result.redundant;
    seen.steps = result.steps;
    seen.failed_at = result.failed_at;
    seen.seconds = result.seconds;
    return seen;
  }

 private:
  struct failure {
    fault what = fault::none;
    std::string message;
    std::vector<choice> choices;
    uint32_t print = 0;
    unsigned preemptions = 0;
  };

  // One engine, with its strategy and its stacks.
  struct machine {
    machine(search how, unsigned bound, uint64_t seed, limits most) : strategy(how, bound, seed), run(strategy, most) {}
    search_state strategy;
    explorer_engine run;
  };

  finding run_once(machine& m) {
    for (;;) {
      finding found = [&] {
        const scheduler::activation active(m.run);
        return m.run.run(body_);
      }();
      if (found.what == fault::none && m.strategy.diverged() && !m.run.restart() && !tolerant_) {
        found = {fault::nondeterminism,
                 "the same choices led somewhere else: the body depends on more than the schedule"};
      }
      if (found.what != fault::none || m.run.restart()) {
        body_.lost();
        // What waited there is gone.
        curfew::detail::process_lot<model_sync>.recreate();
        curfew::detail::process_lot<restartable_model_sync>.recreate();
      }
      if (!m.run.restart()) return found;
      m.strategy.restart();
    }
  }

  /// What a body initialises once in a process is done in a run that does not count.
  void warm_up() {
    tolerant_ = true;
    machine m(search::replay, 0, 0, with_steps({}));
    static_cast<void>(run_once(m));
    tolerant_ = false;
  }

  std::optional<failure> search_for(search how, unsigned bound, uint64_t most_schedules, limits most, fault wanted,
                                    exploration* account) {
    machine m(how, bound, options_.seed, most);
    std::vector<event> events;
    if (options_.visit) m.run.tell(&events);
    std::optional<machine> checker;
    const auto begun = std_sync::clock::now();
    std::optional<failure> result;
    uint64_t count = 0, redundant = 0;
    bool more = true;
    while (more && count < most_schedules) {
      const finding found = run_once(m);
      ++count;
      if (m.strategy.redundant()) {
        ++redundant;
      } else if (options_.visit && found.what == fault::none) {
        options_.visit(events);
      }
      if (found.what != fault::none && (wanted == fault::none || found.what == wanted)) {
        result = failure{found.what, found.message, m.strategy.taken(), m.strategy.print(), m.strategy.preemptions()};
        break;
      }
      if (wanted == fault::none && count % 1024 == 0) {
        if (!checker) checker.emplace(search::replay, 0u, 0u, most);
        checker->strategy.replay(m.strategy.taken());
        const finding again = run_once(*checker);
        if (again.what != fault::none || checker->strategy.print() != m.strategy.print()) {
          result = failure{fault::nondeterminism, "a schedule that was repeated went another way", m.strategy.taken(),
                           m.strategy.print(), 0};
          break;
        }
      }
      more = m.strategy.advance();
    }
    if (account != nullptr) {
      const auto ended = std_sync::clock::now();
      account->seconds = std::chrono::duration<double>(ended - begun).count();
      account->schedules = count;
      account->redundant = redundant;
      account->steps = m.run.steps();
      account->complete = !more && !result;
      account->failed_at = result ? count : 0;
    }
    return result;
  }

  /// Fewer preemptions first: a search that allows none, one, two. Then each decision that can be left out is.
  void shorten(failure& found, limits most) {
    for (unsigned bound = 0; bound < found.preemptions && bound < 3; ++bound) {
      if (const auto better = search_for(search::preempted, bound, 20'000, most, found.what, nullptr)) {
        found = *better;
        break;
      }
    }
    tolerant_ = true;
    unsigned attempts = 0;
    for (std::size_t i = found.choices.size(); i-- > 0 && attempts < 400;) {
      if (i >= found.choices.size()) continue;
      std::vector<choice> without = found.choices;
      without[i] = 0xff;  // go on as before
      machine m(search::replay, 0, 0, most);
      m.strategy.replay(without);
      const finding again = run_once(m);
      ++attempts;
      if (again.what != found.what || m.strategy.taken() == found.choices) continue;
      const unsigned preemptions = m.strategy.preemptions();
      if (preemptions > found.preemptions ||
          (preemptions == found.preemptions && m.strategy.taken().size() >= found.choices.size())) {
        continue;
      }
      found = failure{again.what, again.message, m.strategy.taken(), m.strategy.print(), preemptions};
    }
    tolerant_ = false;
  }

  /// Runs a schedule twice more and writes its story down.
  exploration shown(const replay_text& text, const failure& expected, bool given) {
    exploration result;
    std::vector<event> events;
    std::vector<std::string> names;
    bool same = true;
    for (int attempt = 0; attempt < 2; ++attempt) {
      machine m(search::replay, 0, 0, with_steps(text.most));
      m.strategy.replay(text.choices);
      m.run.tell(&events);
      const finding again = run_once(m);
      const fault before = attempt == 0 ? expected.what : result.what;
      if ((attempt != 0 || !given) && again.what != before) same = false;
      if (m.strategy.print() != text.print) same = false;
      result.what = again.what;
      result.message = again.message;
      result.preemptions = m.strategy.preemptions();
      names.clear();
      for (unsigned i = 0; i < max_threads; ++i) names.push_back(m.run.name_of(i));
    }
    result.schedules = given ? 1 : 0;
    if (!same) {
      result.message = std::string("a replay went another way than the run that failed with ") +
                       to_string(expected.what) + ": " + expected.message;
      result.what = fault::nondeterminism;
    }
    result.confirmed = same;
    result.choices = text.choices.size();
    result.replay = text.to_string();
    if (result.what != fault::none) {
      result.story = std::string(to_string(result.what)) + ": " + result.message + "\n" +
                     story_table::draw(events, names) + "  replay: CURFEW_REPLAY=" + result.replay + "\n";
      if (options_.print) std::fputs(result.story.c_str(), stderr);
    }
    return result;
  }

  limits with_steps(limits most) const {
    most.steps = options_.steps;
    return most;
  }

  static std::string reason() {
    if (const std::exception_ptr thrown = std::current_exception()) {
      try {
        std::rethrow_exception(thrown);
      } catch (const std::exception& error) {
        return std::string("std::terminate was called for an exception: ") + error.what();
      } catch (...) {
      }
    }
    return "std::terminate was called";
  }

  body& body_;
  const explore_options& options_;
  std::terminate_handler terminate_ = nullptr;
  const crash_watch crashes_{[](int signo) {
    const unobserved scope;
    if (auto* run = explorer_engine::current()) {
      run->fail(fault::crash, "the process would have died of signal " + std::to_string(signo));
    }
    std::signal(signo, SIG_DFL);
    std::raise(signo);
  }};
  bool tolerant_ = false;
};

}  // namespace engine

/// Explores \p Case, which is made anew for each schedule: `roles`, `role(i)`, `finish()`, and if it likes
/// `invariant()`, which is called between any two steps and must not wait.
template <class Case>
exploration explore(const explore_options& options = {}) {
  const engine::unobserved scope;
  engine::be_multithreaded();
  engine::case_body<Case> what;
  return engine::exploring(what, options)();
}

}  // namespace testing
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_EXPLORE_HPP
