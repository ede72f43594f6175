// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a singleton does with its core: the hit path, creation by racing threads, and the order of every detach. The
/// public face is guarded_singleton.hpp.

#ifndef CURFEW_DETAIL_SINGLETON_ENGINE_HPP
#define CURFEW_DETAIL_SINGLETON_ENGINE_HPP

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/singleton_core.hpp>
#include <curfew/detail/singleton_domain.hpp>
#include <curfew/detail/singleton_handle.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/detail/teardown_reason.hpp>

CURFEW_BEGIN_NAMESPACE

/// Thrown by `get`, `set` and `override_with` after `seal`. what() carries the singleton's name.
class CURFEW_VISIBLE singleton_sealed : public std::runtime_error {
 public:
  explicit singleton_sealed(const char* name)
      : std::runtime_error(std::string("curfew: singleton is sealed: ") + (*name != '\0' ? name : "(unnamed)")) {}
};

/// Thrown by a `get` that could only be answered by the creation that it is part of. what() names the chain, `a -> b ->
/// a`.
class CURFEW_VISIBLE recursive_creation : public std::logic_error {
 public:
  explicit recursive_creation(const std::string& chain) : std::logic_error("curfew: recursive creation: " + chain) {}
};

/// What threads do that find no instance while another one is making it.
enum class creation_mode : unsigned char {
  racing,         ///< make their own; one is installed, the others are torn down. No thread waits for a factory.
  single_flight,  ///< wait. For factories that are too expensive, or too visible outside, to run twice.
};

namespace detail {

template <class T, class Traits, class FenceCore, class Sync>
class singleton_engine {
 public:
  using handle = basic_singleton_handle<T, FenceCore, Sync>;
  using core = singleton_core<T, FenceCore, Sync>;
  using block = typename core::block;
  using section = typename core::section;
  using spare = typename core::spare;
  using override_record = typename core::override_record;
  using domain = singleton_domain<Sync>;
  using creation = creation_scope<Sync>;

  constexpr singleton_engine(const char* name, Traits&& traits) : name_(name), traits_(std::move(traits)) {}
  singleton_engine(const singleton_engine&) = delete;
  singleton_engine& operator=(const singleton_engine&) = delete;

  static constexpr bool has_start = requires(Traits & traits, T& instance) { traits.start(instance); };
  static constexpr bool has_on_reset = requires(Traits & traits, T& instance) { traits.on_reset(instance); };
  static constexpr bool has_on_shutdown = requires(Traits & traits, T& instance) {
    traits.on_shutdown(instance, teardown_reason::shutdown);
  };
  static constexpr bool has_on_error = requires(Traits & traits, std::exception_ptr error) {
    traits.on_error(error, teardown_reason::shutdown);
  };

  static constexpr creation_mode mode() noexcept {
    if constexpr (requires { Traits::creation; }) {
      return Traits::creation;
    } else {
      return creation_mode::racing;
    }
  }

  struct end_result {
    bool ended;   // an instance was detached
    bool sealed;  // the state changed
  };

  /// Takes over the pass that the caller has on that block.
  static handle pin(block* entered) noexcept { return handle(entered); }

  block* current_acquired() const noexcept {
    // order(singleton.current, acquire): the instance, made and started; pairs with show()
    return current_.load(std::memory_order_acquire);
  }

  /// Enters the fence of the current block, or null when there is none. A refusal, or another block being current
  /// afterwards, means that somebody has moved the pointer since: look again. The second look is what makes an entry
  /// count: between the first one and the entry the block may have been suspended, or have been emptied and opened for
  /// another instance that is not installed yet.
  block* hit() noexcept {
    for (;;) {
      block* const seen = current_acquired();
      if (seen == nullptr) return nullptr;
      Sync::here("singleton.hit.loaded");
      if (!seen->fence.try_enter()) continue;
      Sync::here("singleton.hit.entered");
      if (current_acquired() == seen) [[likely]]
        return seen;
      give_back(*seen);
    }
  }
  CURFEW_COLD static void give_back(block& overtaken) noexcept { overtaken.fence.leave(); }

  core* existing() const noexcept {
    // order(singleton.core, acquire): the core as built; pairs with ensured()
    return core_.load(std::memory_order_acquire);
  }

  // Asked from members, and not of the class: a header may name `guarded_singleton<T>`, or its handle, where T is only
  // declared, and T may have one of itself as a static member. What T has is not known there.
  static constexpr void check_traits() noexcept {
    static_assert(sizeof(T) > 0, "curfew: T must be complete where its singleton is used");
    // A callback that is there under its name, but cannot be called as it would be, is a mistake and not a wish.
    static_assert(
        has_start || !requires { &Traits::start; }, "curfew: Traits::start must be callable as start(T&)");
    static_assert(
        has_on_reset || !requires { &Traits::on_reset; }, "curfew: Traits::on_reset must be callable as on_reset(T&)");
    static_assert(
        has_on_shutdown || !requires { &Traits::on_shutdown; },
        "curfew: Traits::on_shutdown must be callable as on_shutdown(T&, teardown_reason)");
    static_assert(
        has_on_error || !requires { &Traits::on_error; },
        "curfew: Traits::on_error must be callable as on_error(std::exception_ptr, teardown_reason)");
  }

  core& ensured() {
    check_traits();
    if (core* const c = existing(); c != nullptr) return *c;
    auto fresh = std::make_unique<core>(name_, current_);
    core* first = nullptr;
    // order(singleton.core, acq_rel): the core as built; pairs with existing()
    if (core_.compare_exchange_strong(first, fresh.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
      return *fresh.release();
    }
    return *first;
  }

  /// The miss. Entered, like what hit() returns, and not yet a handle: one that came from here through memory would
  /// have to live in memory on the hit path, too.
  CURFEW_COLD block* create() {
    core& c = ensured();
    Sync::here("singleton.create.missed");
    for (;;) {
      creation mine(c);
      creation_chain circle;
      bool sealed_now = false;
      std::uint64_t birth = 0;
      {
        section locked(*c.home);
        if (block* const found = c.enter_current(); found != nullptr) return found;
        auto& me = c.home->self();
        sealed_now = c.is_sealed();
        if (!sealed_now) circle = domain::recursion_locked(me, c);
        if (!sealed_now && circle.empty() && c.flight != nullptr) {
          circle = domain::cycle_locked(me, c);
          if (circle.empty()) {
            me.waiting_for = &c;
            Sync::here("singleton.create.waiting");
            locked.wait(c, core::time_point::max());
            me.waiting_for = nullptr;
            continue;
          }
        }
        if (!sealed_now && circle.empty()) {
          birth = c.count();
          mine.begin(me);
          if constexpr (mode() == creation_mode::single_flight) mine.fly_locked();
        }
      }
      if (sealed_now) CURFEW_THROW(singleton_sealed(name_));
      if (!circle.empty()) CURFEW_THROW(recursive_creation(circle.to_string()));

      Sync::here("singleton.create.begun");
      spare candidate(c);
      candidate->instance = traits_.make();
      if (!candidate->instance) CURFEW_THROW(std::logic_error(std::string("curfew: make returned null: ") + name_));
      Sync::here("singleton.create.made");
      if (block* const made = conclude(c, candidate, mine, birth); made != nullptr) return made;
    }
  }

  /// Installs the candidate, or ends it. Null when there is nothing to return and `get` has to start over.
  block* conclude(core& c, spare& candidate, creation& mine, std::uint64_t birth) {
    std::exception_ptr failure;
    teardown_reason fate{};
    block* winner = nullptr;
    for (bool started = !has_start;; started = true) {
      {
        const section locked(*c.home);
        if (failure) {
          fate = teardown_reason::start_failed;
        } else if (c.count() != birth) {
          fate = c.outdated_by_seal(birth) ? teardown_reason::sealed : teardown_reason::stale;
          if (fate == teardown_reason::stale) ++c.stats.stale;
        } else if (c.current() != nullptr || (c.flight != nullptr && !mine.flies_locked())) {
          fate = teardown_reason::lost_race;
          ++c.stats.lost_races;
          winner = c.enter_current();
        } else if (started) {
          ++c.stats.made;
          mine.land_locked();
          c.install(candidate.installed());
          return c.enter_current();
        } else {
          mine.fly_locked();
        }
        if (started || !mine.flies_locked()) {
          ++c.stats.made;
          ++c.stats.torn_down;
          break;
        }
      }
      if constexpr (has_start) {
        Sync::here("singleton.create.starting");
        CURFEW_TRY {
          traits_.start(*candidate->instance);
        }
        CURFEW_CATCH_ALL {
          failure = std::current_exception();
        }
        Sync::here("singleton.create.started");
      }
    }
    mine.end();
    tear_down_quietly(*candidate->instance, fate);
    if (failure) std::rethrow_exception(failure);
    return winner;
  }

  template <class Callback>
  end_result take_current(core& c, teardown_reason reason, Callback&& callback) {
    bool sealed_now = false;
    block* taken = nullptr;
    {
      const section locked(*c.home);
      c.outdate();
      ++c.interventions;
      if (reason == teardown_reason::sealed) {
        sealed_now = !c.is_sealed();
        c.set_sealed(true);
      }
      taken = c.detach();
      if (taken != nullptr) ++c.stats.torn_down;
    }
    if (taken == nullptr) return {false, sealed_now};
    c.close(*taken);
    const handle pinned(taken);
    callback(*pinned);
    return {true, sealed_now};
  }

  end_result end_current(teardown_reason reason) {
    return take_current(ensured(), reason, [&](T& instance) { tear_down(instance, reason); });
  }

  void end_override(override_record& record) noexcept {
    core& c = *existing();
    bool in_order = false;
    block* taken = nullptr;
    {
      const section locked(*c.home);
      in_order = c.innermost(record);
      if (in_order) {
        c.outdate();
        taken = c.resume(record);
        if (taken != nullptr) ++c.stats.torn_down;
      }
    }
    if (!in_order) fail("override ended out of order on", name_);
    if (taken == nullptr) return;
    c.close(*taken);
    const handle pinned(taken);
    tear_down_quietly(*pinned, teardown_reason::override_ended);
  }

  /// Makes \p next current the way \p install says, which also says what that detached.
  template <class Install>
  block* place(std::unique_ptr<T> next, const char* what, Install install) {
    if (!next) CURFEW_THROW(std::invalid_argument(std::string("curfew: ") + what + " was given null: " + name_));
    core& c = ensured();
    spare filled(c);
    filled->instance = std::move(next);
    block* taken = nullptr;
    bool refused = false;
    {
      const section locked(*c.home);
      refused = c.is_sealed();
      if (!refused) {
        c.outdate();
        ++c.stats.made;
        taken = install(c, filled.installed());
      }
    }
    if (refused) CURFEW_THROW(singleton_sealed(name_));
    if (taken != nullptr) c.close(*taken);
    return taken;
  }

  void tear_down(T& instance, teardown_reason reason) {
    CURFEW_TRY {
      if (reason == teardown_reason::reset) {
        if constexpr (has_on_reset) traits_.on_reset(instance);
      } else {
        if constexpr (has_on_shutdown) traits_.on_shutdown(instance, reason);
      }
    }
    CURFEW_CATCH_ALL {
      {
        core& c = *existing();
        const section locked(*c.home);
        ++c.stats.teardown_errors;
      }
      CURFEW_RETHROW;
    }
  }

  void tear_down_quietly(T& instance, teardown_reason reason) noexcept {
    CURFEW_TRY {
      tear_down(instance, reason);
    }
    CURFEW_CATCH_ALL {
      if constexpr (has_on_error) traits_.on_error(std::current_exception(), reason);
    }
  }

  // Both are written once or rarely, and read by every get.
  typename Sync::template atomic<block*> current_{nullptr};
  typename Sync::template atomic<core*> core_{nullptr};
  const char* name_;
  [[no_unique_address]] Traits traits_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_ENGINE_HPP
