// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Everything at once, on two singletons whose factories ask for each other: get, with, try_get, handles cloned, shared
// and sent to other threads, reset, shutdown, set, detach, seal and unseal, overrides, drains, threads that come and
// go, and children that are forked in the middle of it and go on by themselves. Nothing is expected but what always
// holds: no instance is used outside its life, every one ends once, and the books balance, in every snapshot and at the
// end.

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "stress/singleton_scenario.hpp"

// Its allocator may be locked by another thread at the moment of a fork, and the child would wait for that for ever.
#if defined(__SANITIZE_ADDRESS__)
#define STORM_FORKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STORM_FORKS 0
#endif
#endif
#ifndef STORM_FORKS
#define STORM_FORKS 1
#endif

namespace {

using curfew::recursive_creation;
using curfew::singleton_sealed;

struct storm;

struct racing_traits : stress::probe_traits {
  storm* of;
  std::unique_ptr<stress::probe> make();
};
/// Slow and visible outside: one at a time, and started.
struct flying_traits : stress::probe_traits {
  static constexpr curfew::creation_mode creation = curfew::creation_mode::single_flight;
  storm* of;
  std::unique_ptr<stress::probe> make();
  void start(stress::probe& it) {
    it.use();
    stress::noise_sync::here("start");
  }
};

template <class Traits>
struct subject {
  explicit subject(const char* name, storm* of) : it(name, Traits{{&in}, of}) {}
  stress::books in;
  curfew::scoped_singleton<stress::probe, Traits, stress::noise_sync> it;
  using handle = typename decltype(it)::handle;

  void check_books() {
    const auto stats = it.stats();
    STRESS_CHECK(stats.made == stats.torn_down + stats.handed_back + stats.live);
    STRESS_CHECK(stats.live <= 3);
  }
  void settle() {
    STRESS_CHECK(it.drain_for(std::chrono::seconds(0)));
    const auto stats = it.stats();
    STRESS_CHECK(stats.made == stats.torn_down + stats.handed_back + stats.live);
    STRESS_CHECK(stats.live == (it.has_value() ? 1 : 0));
    STRESS_CHECK(in.made.load() == in.destroyed.load() + stats.live);
    STRESS_CHECK(in.torn.load() == stats.torn_down);
  }
};

struct storm {
  static constexpr unsigned roles = 4;
  static constexpr bool any_number_of_roles = true;
  static constexpr unsigned steps = 24;

  explicit storm(stress::rng& random)
      : seed(random.next()), forker(random.one_in(16) ? random.below(roles) : roles), crosswise(random.one_in(4)) {
    racing.in.teardown_throws = flying.in.teardown_throws = random.one_in(3);
  }

  void role(unsigned i) {
    stress::rng random(seed + i);
    bag kept;
    for (unsigned step = 0; step < steps; ++step) {
      if (i == forker && step == steps / 2) fork_child();
      if (random.one_in(2)) {
        act(racing, i, random, kept.racing);
      } else {
        act(flying, i, random, kept.flying);
      }
    }
    if (random.one_in(8)) {  // a thread that lives for a moment, and takes everything along
      std::thread([this, i, random, carried = std::move(kept)]() mutable {
        act(racing, i, random, carried.racing);
        act(flying, i, random, carried.flying);
      }).join();
    }
  }

  void finish() {
    racing.in.teardown_throws = flying.in.teardown_throws = false;
    racing.settle();
    flying.settle();
    stress::count(0, racing.it.stats().made + flying.it.stats().made);
    stress::count(1, racing.it.stats().stale + flying.it.stats().stale);
    stress::count(2, racing.it.stats().lost_races + flying.it.stats().lost_races);
    racing.it.seal();
    flying.it.seal();
    STRESS_CHECK(racing.in.made.load() == racing.in.destroyed.load());
    STRESS_CHECK(flying.in.made.load() == flying.in.destroyed.load());
    stress::quarantine::empty();
  }

  struct bag {
    std::vector<subject<racing_traits>::handle> racing;
    std::vector<subject<flying_traits>::handle> flying;
  };

  template <class Subject>
  void act(Subject& on, unsigned i, stress::rng& random, std::vector<typename Subject::handle>& kept) {
    auto& it = on.it;
    try {
      switch (random.below(20)) {
        case 0:
          it.reset();
          break;
        case 1:
          it.shutdown();
          break;
        case 2:
          kept.push_back(it.set(std::make_unique<stress::probe>(on.in)));
          break;
        case 3:
          kept.push_back(it.detach());
          break;
        case 4:
          it.seal();
          it.unseal();
          break;
        case 5: {
          const std::shared_ptr<stress::probe> shared = it.get().share();
          shared->use();
        } break;
        case 6:
          kept.clear();
          break;
        case 7:
          static_cast<void>(it.drain_for(std::chrono::microseconds(random.below(50))));
          break;
        case 8:
          on.check_books();
          break;
        case 9:
          if (i == 0) override_once(on, random);  // scopes nest, so one thread does them all
          break;
        case 10:
          if (auto peek = it.try_get()) peek->use();
          static_cast<void>(it.has_value());
          static_cast<void>(it.generation());
          break;
        case 11:
          kept.push_back(it.get().clone());
          break;
        case 12:
          std::thread([handed = it.get()]() mutable { handed->use(); }).join();
          break;
        default:
          it.with([](stress::probe& instance) {
            instance.use();
            stress::noise_sync::here("using");
            instance.use();
          });
      }
    } catch (const singleton_sealed&) {
    } catch (const recursive_creation&) {
      STRESS_CHECK(crosswise);
    } catch (int) {
      STRESS_CHECK(on.in.teardown_throws);
    }
    for (const auto& each : kept) {
      if (each) each->use();
    }
  }

  template <class Subject>
  void override_once(Subject& on, stress::rng& random) {
    const auto before = on.it.try_get();
    const bool intervene = random.one_in(2);
    {
      const auto outer = on.it.override_with(std::make_unique<stress::probe>(on.in));
      const auto inner = on.it.override_with(std::make_unique<stress::probe>(on.in));
      if (auto peek = on.it.try_get()) peek->use();
      try {
        if (intervene) on.it.reset();
      } catch (int) {
        STRESS_CHECK(on.in.teardown_throws);
      }
    }
    // It was suspended, and is not wanted back; or somebody had detached it even before.
    if (intervene && before) STRESS_CHECK(on.it.try_get().get() != before.get());
  }

  /// The child has whatever the others have left half done; nothing in it may wait for them.
  void fork_child() {
#if STORM_FORKS
    const pid_t child = ::fork();
    STRESS_CHECK(child >= 0);
    if (child == 0) {
      ::alarm(20);
      crosswise = false;
      racing.it.unseal();
      flying.it.unseal();
      const bool well = go_on(racing) && go_on(flying) && racing.it.seal() && flying.it.seal();
      ::_exit(well ? 0 : 1);
    }
    int status = 0;
    STRESS_CHECK(::waitpid(child, &status, 0) == child);
    STRESS_CHECK(status == 0);
    stress::count(3);
#endif
  }
  template <class Subject>
  bool go_on(Subject& on) {
    on.in.teardown_throws = false;
    for (int i = 0; i < 3; ++i) {
      on.it.get()->use();
      on.it.reset();
      static_cast<void>(on.it.drain_for(std::chrono::seconds(0)));
      on.it.set(std::make_unique<stress::probe>(on.in)).release();
      if (!on.it.shutdown() || on.it.has_value()) return false;
    }
    return true;
  }

  const std::uint64_t seed;
  const std::uint64_t forker;
  bool crosswise;  // constant while threads run
  subject<racing_traits> racing{"racing", this};
  subject<flying_traits> flying{"flying", this};
};

std::unique_ptr<stress::probe> racing_traits::make() {
  if (of->crosswise && in->made.load() % 3 == 0) of->flying.it.get()->use();
  return stress::probe_traits::make();
}
std::unique_ptr<stress::probe> flying_traits::make() {
  of->racing.it.get()->use();
  return stress::probe_traits::make();
}

}  // namespace

int main(int argc, char** argv) {
  return stress::run<storm>(argc, argv, "singleton_storm");
}
