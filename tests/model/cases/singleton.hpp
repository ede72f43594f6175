// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Race bodies of the guarded singleton. The instance knows when it is used before its start, after its end, or torn
/// down twice; the callbacks say when they run under a lock.

#ifndef CURFEW_TESTS_MODEL_CASES_SINGLETON_HPP
#define CURFEW_TESTS_MODEL_CASES_SINGLETON_HPP

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <curfew/guarded_singleton.hpp>
#include <curfew/testing/outcome.hpp>

namespace curfew_cases {

using curfew::teardown_reason;
using curfew::testing::check;
using curfew::testing::close_call;
using namespace std::chrono_literals;

/// Counts of one body. Not part of the race: plain counters that no thread decides by.
template <class Sync>
struct ledger {
  std::atomic<int> made{0}, started{0}, torn{0}, destroyed{0}, errors{0};
  std::atomic<int> config{1};
  typename Sync::template plain<int>* grave = nullptr;  // written by the destructor, in a body with one instance

  static void count(std::atomic<int>& what) noexcept { what.fetch_add(1, std::memory_order_relaxed); }
};

template <class Sync>
struct probe {
  explicit probe(ledger<Sync>& in) : in_(in), config(in.config.load(std::memory_order_relaxed)) {
    ledger<Sync>::count(in.made);
  }
  probe(const probe&) = delete;
  probe& operator=(const probe&) = delete;
  ~probe() {
    curfew::testing::foreign("destructor");
    check(life_ != dead, "destroyed once");
    life_ = dead;
    if (in_.grave != nullptr) *in_.grave = 1;
    ledger<Sync>::count(in_.destroyed);
  }
  void start() {
    check(life_ == made, "started once, before anybody sees it");
    life_ = running;
    ledger<Sync>::count(in_.started);
  }
  void use() { check(life_ == running, "in use between start and destruction only"); }
  void tear_down() {
    check(!torn_, "torn down once");
    torn_ = true;
    ledger<Sync>::count(in_.torn);
  }

 private:
  static constexpr int made = 1, running = 2, dead = 3;
  ledger<Sync>& in_;
  typename Sync::template plain<int> life_{made};
  typename Sync::template plain<bool> torn_{false};

 public:
  const int config;
};

template <class Sync, curfew::creation_mode Mode = curfew::creation_mode::racing>
struct probe_traits {
  static constexpr curfew::creation_mode creation = Mode;
  ledger<Sync>* in = nullptr;
  bool teardown_throws = false;

  std::unique_ptr<probe<Sync>> make() {
    curfew::testing::foreign("make");
    return std::make_unique<probe<Sync>>(*in);
  }
  void start(probe<Sync>& it) {
    curfew::testing::foreign("start");
    it.start();
  }
  void on_reset(probe<Sync>& it) {
    curfew::testing::foreign("on_reset");
    it.tear_down();
  }
  void on_shutdown(probe<Sync>& it, teardown_reason) {
    curfew::testing::foreign("on_shutdown");
    it.tear_down();
    if (teardown_throws) throw std::runtime_error("teardown");
  }
  void on_error(std::exception_ptr, teardown_reason) noexcept { ledger<Sync>::count(in->errors); }
};

/// A singleton and its books, which must balance at the end.
template <class Sync, curfew::creation_mode Mode = curfew::creation_mode::racing>
struct singleton_case {
  using traits = probe_traits<Sync, Mode>;
  using singleton = curfew::scoped_singleton<probe<Sync>, traits, Sync>;
  using handle = typename singleton::handle;

  explicit singleton_case(bool warm, bool teardown_throws = false)
      : subject(std::make_unique<singleton>("subject", traits{&books, teardown_throws})), seen(subject.get()) {
    if (warm) subject->get()->use();
  }
  std::unique_ptr<probe<Sync>> ready() {
    auto made = std::make_unique<probe<Sync>>(books);
    made->start();
    return made;
  }
  void balance() {
    if (subject != nullptr) {
      const auto stats = subject->stats();
      check(stats.made == stats.torn_down + stats.handed_back + stats.live, "made == torn down + handed back + live");
      check(static_cast<int>(stats.torn_down) == books.torn.load(), "every teardown ran");
      check(stats.live <= 1, "one at most");
    }
    subject.reset();
    check(books.made.load() == books.destroyed.load(), "every instance was destroyed");
  }

  ledger<Sync> books;
  std::unique_ptr<singleton> subject;
  singleton* const seen;
};

/// S1, S5, X6. Rule 2. Racing cold start: one instance for all, every loser torn down once.
template <class Sync>
struct singleton_cold_start : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  typename singleton_case<Sync>::handle got[2];
  singleton_cold_start() : singleton_case<Sync>(false) {}
  void role(unsigned i) {
    got[i] = this->seen->get();
    got[i]->use();
  }
  void finish() {
    check(got[0].get() == got[1].get(), "all get the same");
    check(this->books.started.load() == 1, "only the winner is started");
    for (auto& each : got) each.release();
    this->balance();
  }
};

/// X4. Rule 2, the loser's error: it does not reach a caller that has a healthy winner.
template <class Sync>
struct singleton_loser_throws : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_loser_throws() : singleton_case<Sync>(false, true) {}
  void role(unsigned) { this->seen->get()->use(); }
  void finish() {
    const int losers = this->books.made.load() - 1;
    check(this->books.errors.load() == losers, "each error went to on_error");
    this->subject.reset();
    check(this->books.made.load() == this->books.destroyed.load(), "every instance was destroyed");
  }
};

/// S2, S3. Rule 5. The object lives until the last handle is gone, whatever happens to the singleton.
template <class Sync>
struct singleton_get_reset : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_get_reset() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      const auto mine = this->seen->try_get();
      if (mine) mine->use();
    } else {
      check(this->seen->reset(), "the one call that detached");
    }
  }
  void finish() {
    check(this->books.torn.load() == 1, "torn down once");
    this->balance();
  }
};

/// Rule 5. Two at once: one of them did it.
template <class Sync>
struct singleton_two_resets : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  bool did[2] = {};
  singleton_two_resets() : singleton_case<Sync>(true) {}
  void role(unsigned i) { did[i] = i == 0 ? this->seen->reset() : this->seen->shutdown(); }
  void finish() {
    check(did[0] != did[1], "exactly one detached");
    check(this->books.torn.load() == 1, "torn down once");
    check(this->books.destroyed.load() == 1, "destroyed by then, as no handle was out");
    this->balance();
  }
};

/// X1, X2. Rule 3. A candidate whose making began before a shutdown is never installed, also when the slot was empty
/// then.
template <class Sync>
struct singleton_in_flight : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_in_flight() : singleton_case<Sync>(false) {}
  void role(unsigned i) {
    if (i == 0) {
      this->seen->get()->use();
    } else {
      this->books.config.store(2, std::memory_order_relaxed);
      this->seen->shutdown();
      close_call("shut down");
      const auto now = this->seen->try_get();
      if (now) check(now->config == 2, "made after the shutdown began");
    }
  }
  void finish() {
    const auto now = this->seen->try_get();
    if (now) check(now->config == 2, "made after the shutdown began");
    auto last = this->seen->detach();
    last.release();
  }
};

/// X3. Rule 3. Sealed is final.
template <class Sync>
struct singleton_seal : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  bool refused = false;
  singleton_seal() : singleton_case<Sync>(false) {}
  void role(unsigned i) {
    if (i == 1) {
      check(this->seen->seal(), "changed the state");
      return;
    }
    try {
      this->seen->get()->use();
    } catch (const curfew::singleton_sealed&) {
      refused = true;
    }
  }
  void finish() {
    check(!this->seen->has_value() && this->seen->sealed(), "empty and sealed");
    check(this->books.torn.load() == this->books.made.load(), "whatever was made was torn down");
    this->balance();
  }
};

/// A getter has loaded the block of an instance that is then reset; the block is used again for one that is made, but
/// not started or not installed yet. The getter must not come by it.
template <class Sync>
struct singleton_recycle : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_recycle() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      const auto mine = this->seen->try_get();
      if (mine) mine->use();
    } else {
      this->seen->reset();
      this->seen->get()->use();
    }
  }
  void finish() { this->balance(); }
};

/// Stale getter against recycle against install. The getter has loaded the block of an instance that is then reset; the
/// block is opened for the next one, which is made and started but not installed: whoever has been given that one finds
/// it installed when looking again.
template <class Sync>
struct singleton_recycle_seen : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_recycle_seen() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      const auto first = this->seen->try_get();
      const bool installed = this->seen->has_value();
      if (first && first->config == 2) {
        close_call("the new one");
        check(installed, "what get() returns is installed");
      }
    } else {
      this->seen->reset();
      this->books.config.store(2, std::memory_order_relaxed);
      this->seen->get()->use();
    }
  }
  void finish() { this->balance(); }
};

/// The same with three: two blocks go round.
template <class Sync>
struct singleton_recycle_three : singleton_case<Sync> {
  static constexpr unsigned roles = 3;
  singleton_recycle_three() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      const auto mine = this->seen->try_get();
      if (mine) mine->use();
    } else if (i == 1) {
      this->seen->reset();
    } else {
      this->seen->get()->use();
    }
  }
  void finish() { this->balance(); }
};

/// Rule 4. After set() has returned, nobody gets the old instance.
template <class Sync>
struct singleton_set : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_set() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      this->seen->get()->use();
      return;
    }
    this->books.config.store(2, std::memory_order_relaxed);
    auto old = this->seen->set(this->ready());
    old->use();
    check(old->config == 1 && old.detached(), "the previous one");
    check(this->seen->get()->config == 2, "the new one");
  }
  void finish() {
    check(this->books.torn.load() == 0, "handed back, not torn down");
    this->balance();
  }
};

/// S4. There is an instance before, during and after a set().
template <class Sync>
struct singleton_set_never_empty : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_set_never_empty() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      const auto mine = this->seen->try_get();
      check(static_cast<bool>(mine), "never empty");
      mine->use();
    } else {
      this->seen->set(this->ready()).release();
    }
  }
  void finish() { this->balance(); }
};

/// An override comes and goes under a user.
template <class Sync>
struct singleton_override : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_override() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      this->seen->get()->use();
      return;
    }
    this->books.config.store(2, std::memory_order_relaxed);
    {
      const auto scope = this->seen->override_with(this->ready());
      check(this->seen->get()->config == 2, "the override");
    }
    check(this->seen->get()->config == 1, "the one before is back");
  }
  void finish() { this->balance(); }
};

/// A reset before, inside or after an override: the instance it meets is gone, and nothing comes back in its place.
template <class Sync>
struct singleton_override_reset : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  singleton_override_reset() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      check(this->seen->reset(), "there is always one");
    } else {
      const auto scope = this->seen->override_with(this->ready());
    }
  }
  void finish() {
    check(!this->seen->has_value(), "nothing is put back");
    this->balance();
  }
};

/// The destructor of a scoped one leaves what is pinned to its handles.
template <class Sync>
struct singleton_destroyed_with_handle : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  typename singleton_case<Sync>::handle pinned = this->seen->get();
  singleton_destroyed_with_handle() : singleton_case<Sync>(true) {}
  void role(unsigned i) {
    if (i == 0) {
      pinned->use();
      pinned.release();
    } else {
      this->subject.reset();
    }
  }
  void finish() {
    check(this->books.torn.load() == 1 && this->books.destroyed.load() == 1, "torn down and destroyed once");
  }
};

/// drain_for() waits for the instances that were detached before.
template <class Sync>
struct singleton_drain : singleton_case<Sync> {
  static constexpr unsigned roles = 2;
  typename Sync::template plain<int> grave{0};
  typename singleton_case<Sync>::handle pinned = this->seen->get();
  singleton_drain() : singleton_case<Sync>(true) { this->books.grave = &grave; }
  void role(unsigned i) {
    if (i == 0) {
      pinned.release();
      return;
    }
    this->seen->reset();
    if (this->seen->drain_for(1h)) {
      check(grave == 1, "the destructor has ended");
    } else {
      close_call("timed out");
    }
  }
  void finish() { this->balance(); }
};

/// One make at a time.
template <class Sync>
struct singleton_single_flight : singleton_case<Sync, curfew::creation_mode::single_flight> {
  static constexpr unsigned roles = 2;
  singleton_single_flight() : singleton_case<Sync, curfew::creation_mode::single_flight>(false) {}
  void role(unsigned) { this->seen->get()->use(); }
  void finish() {
    check(this->books.made.load() == 1, "made once");
    this->balance();
  }
};

/// One make at a time, outdated while it flies: it starts over.
template <class Sync>
struct singleton_flight_outdated : singleton_case<Sync, curfew::creation_mode::single_flight> {
  static constexpr unsigned roles = 2;
  singleton_flight_outdated() : singleton_case<Sync, curfew::creation_mode::single_flight>(false) {}
  void role(unsigned i) {
    if (i == 1) {
      this->seen->shutdown();
    } else {
      this->seen->get()->use();
    }
  }
  void finish() { this->balance(); }
};

/// X5, with two threads. Rule 7. Two factories that want each other: an exception, not a hang.
template <class Sync>
struct singleton_crosswise {
  static constexpr unsigned roles = 2;
  struct item {};
  struct traits {
    static constexpr curfew::creation_mode creation = curfew::creation_mode::single_flight;
    singleton_crosswise* all = nullptr;
    unsigned number = 0;
    std::unique_ptr<item> make() {
      static_cast<void>(all->at(1 - number).get());
      return std::make_unique<item>();
    }
  };
  using singleton = curfew::scoped_singleton<item, traits, Sync>;
  singleton left{"left", traits{this, 0}};
  singleton right{"right", traits{this, 1}};
  bool refused[2] = {};

  singleton& at(unsigned i) { return i == 0 ? left : right; }
  void role(unsigned i) {
    try {
      static_cast<void>(at(i).get());
    } catch (const curfew::recursive_creation&) {
      refused[i] = true;
    }
  }
  void finish() { check(refused[0] || refused[1], "the cycle was noticed"); }
};

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_SINGLETON_HPP
