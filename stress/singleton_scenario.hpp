// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the stress scenarios of guarded_singleton share: an instance that knows when it is used too late, and traits
/// that keep books per round.

#ifndef CURFEW_STRESS_SINGLETON_SCENARIO_HPP
#define CURFEW_STRESS_SINGLETON_SCENARIO_HPP

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>

#include <curfew/guarded_singleton.hpp>

#include "stress/support/stress.hpp"

namespace stress {

/// Memory of destroyed instances is kept to the end of the round, so that a late use reads the mark of death, and not
/// whatever the allocator has put there.
class quarantine {
 public:
  static void bury(void* memory) noexcept {
    auto* mine = static_cast<grave*>(memory);
    mine->next = head_.load(std::memory_order_relaxed);
    while (!head_.compare_exchange_weak(mine->next, mine, std::memory_order_acq_rel, std::memory_order_relaxed)) {
    }
  }
  static void empty() noexcept {
    for (grave* each = head_.exchange(nullptr, std::memory_order_acq_rel); each != nullptr;) {
      grave* const next = each->next;
      std::free(each);
      each = next;
    }
  }

 private:
  struct grave {
    grave* next;
  };
  static inline constinit std::atomic<grave*> head_{nullptr};
};

struct books {
  std::atomic<unsigned> clock{1};
  std::atomic<unsigned> made{0};
  std::atomic<unsigned> torn{0};
  std::atomic<unsigned> destroyed{0};
  std::atomic<int> config{1};
  bool teardown_throws = false;
};

class probe {
 public:
  explicit probe(books& in) : in_(in), born(in.clock.fetch_add(1)), config(in.config.load()), serial(++in.made) {}
  ~probe() {
    STRESS_CHECK(life_.exchange(dead) == alive);
    ++in_.destroyed;
  }
  static void* operator new(std::size_t size) {
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
  }
  static void operator delete(void* memory) noexcept { quarantine::bury(memory); }

  void use() const noexcept { STRESS_CHECK(life_.load() == alive); }
  void tear_down() {
    use();
    STRESS_CHECK(torn_.exchange(true) == false);
    ++in_.torn;
  }
  bool torn() const noexcept { return torn_.load(); }

 private:
  static constexpr unsigned alive = 0xA11'7E11;
  static constexpr unsigned dead = 0xDEAD'0000;

  [[maybe_unused]] void* where_the_grave_link_goes_ = nullptr;  // overwritten after death, unlike what follows
  books& in_;
  std::atomic<unsigned> life_{alive};
  std::atomic<bool> torn_{false};

 public:
  const unsigned born;  // on the clock of the round, taken inside make
  const int config;
  const unsigned serial;
};

struct probe_traits {
  books* in;
  std::unique_ptr<probe> make() {
    auto made = std::make_unique<probe>(*in);
    noise_sync::here("make");
    return made;
  }
  void on_reset(probe& it) { end(it); }
  void on_shutdown(probe& it, curfew::teardown_reason) { end(it); }

  void end(probe& it) {
    it.tear_down();
    noise_sync::here("teardown");
    if (in->teardown_throws) throw 1;
  }
};

using singleton = curfew::scoped_singleton<probe, probe_traits, noise_sync>;

/// The end of every round: nobody is inside, so the books must balance and nothing may be left.
inline void settle(std::unique_ptr<singleton>& subject, books& in) {
  STRESS_CHECK(subject->drain_for(std::chrono::seconds(0)));
  const auto stats = subject->stats();
  STRESS_CHECK(stats.made == stats.torn_down + stats.handed_back + stats.live);
  STRESS_CHECK(in.made.load() == in.destroyed.load() + stats.live);
  STRESS_CHECK(in.torn.load() == stats.torn_down);
  in.teardown_throws = false;
  subject.reset();
  STRESS_CHECK(in.made.load() == in.destroyed.load());
}

/// Many small races in one round of the harness, one after the other: more of them overlap than if each had to be met
/// for.
template <class Race>
struct batch {
  static constexpr unsigned roles = Race::roles;

  explicit batch(rng& random) {
    for (auto& each : races) each = std::make_unique<Race>(random);
  }
  void role(unsigned i) {
    for (auto& each : races) each->role(i);
  }
  void finish() {
    for (auto& each : races) each->finish();
    quarantine::empty();
  }

  std::unique_ptr<Race> races[4];
};

}  // namespace stress

#endif  // CURFEW_STRESS_SINGLETON_SCENARIO_HPP
