// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `guarded_singleton<T>` and `scoped_singleton<T>`: one current instance, made on demand by racing threads, replaced,
/// reset and shut down while others use it. Protocol and argument: docs/design/guarded_singleton.md.

#ifndef CURFEW_GUARDED_SINGLETON_HPP
#define CURFEW_GUARDED_SINGLETON_HPP

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <curfew/admission_fence.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/singleton_engine.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/teardown.hpp>

CURFEW_BEGIN_NAMESPACE

/// How instances are made and ended. Specialise it, or give `guarded_singleton` a class of your own, which may have
/// state and of which only `make` is required:
///
///     struct pool_traits {
///       static constexpr creation_mode creation = creation_mode::racing;
///       std::unique_ptr<pool> make();                      // null is an error
///       void start(pool&);                                 // winner only, before anybody else can see it
///       void on_reset(pool&);
///       void on_shutdown(pool&, teardown_reason);          // every other end
///       void on_error(std::exception_ptr, teardown_reason) noexcept;   // errors that have no caller
///     };
///
/// All of them run with no lock held, may run on several threads at once, and may call any member of any singleton.
template <class T>
struct singleton_traits {
  /// By `std::make_unique<T>()`.
  static std::unique_ptr<T> make() {
    static_assert(std::is_default_constructible_v<T>,
                  "curfew: T cannot be made by default: give the singleton Traits with a make() of their own");
    return std::make_unique<T>();
  }
  /// `T::start()`, where T has it.
  template <std::same_as<T> U>
  requires requires(U& instance) { instance.start(); }
  static void start(U& instance) { instance.start(); }
  /// `T::reset()`, where T has it.
  template <std::same_as<T> U>
  requires requires(U& instance) { instance.reset(); }
  static void on_reset(U& instance) { static_cast<void>(instance.reset()); }
  /// `T::shutdown()`, where T has it.
  template <std::same_as<T> U>
  requires requires(U& instance) { instance.shutdown(); }
  static void on_shutdown(U& instance, teardown_reason) { static_cast<void>(instance.shutdown()); }
};

namespace detail {

// The fence's protocol without the pass object: a handle names its block, which knows its fence.
template <class Fence>
struct core_of_fence;
template <class Core>
struct core_of_fence<basic_fence<Core>> {
  using type = Core;
};

template <class T, class Traits, class Sync>
using engine_of = singleton_engine<T, Traits, typename core_of_fence<basic_admission_fence<Sync>>::type, Sync>;

/// What both kinds of singleton are: everything but the end of the object itself.
template <class T, class Traits, class Sync>
class singleton_front : private engine_of<T, Traits, Sync> {
  using engine = engine_of<T, Traits, Sync>;
  using core = typename engine::core;
  using block = typename engine::block;

 public:
  /// What get() returns; see basic_singleton_handle.
  using handle = typename engine::handle;
  class [[nodiscard("curfew: the override ends when this does")]] scoped_override;

  /// \p name appears in messages; it is not copied and must outlive the singleton and its handles.
  constexpr explicit singleton_front(const char* name = "",
                                     Traits traits = Traits()) noexcept(std::is_nothrow_move_constructible_v<Traits>)
      : engine(name != nullptr ? name : "", std::move(traits)) {}
  singleton_front(const singleton_front&) = delete;
  singleton_front& operator=(const singleton_front&) = delete;

  /// The current instance, made if there is none. Never empty. Throws what `make` or `start` throw, singleton_sealed,
  /// recursive_creation, std::logic_error when `make` returned null, std::bad_alloc; nothing has changed then.
  ///
  /// A thread that finds an instance takes no lock. One that finds none makes one with nothing locked; when several do,
  /// one candidate is installed, the others are torn down by those who made them (`lost_race`), and all return the
  /// same. A candidate that a reset, shutdown, set, detach, seal or override has overtaken is torn down and the call
  /// starts over.
  [[nodiscard]] handle get() {
    block* found = this->hit();
    if (found == nullptr) [[unlikely]]
      found = this->create();
    return engine::pin(found);
  }

  /// The current instance, or empty. Creates nothing, waits for nobody.
  [[nodiscard("curfew: the handle keeps the instance")]] handle try_get() noexcept { return engine::pin(this->hit()); }

  /// `f(*get())`, pinned while \p f runs. A reference into the instance must not be returned.
  template <class F>
  decltype(auto) with(F&& f) {
    const handle pinned = get();
    return std::invoke(std::forward<F>(f), *pinned);
  }

  /// Takes the current instance away and runs `on_reset` on it, on this thread, before returning; handles may still be
  /// out. True for the one call that took it. A throwing callback reaches the caller, with the instance gone all the
  /// same.
  ///
  /// With no handle out the instance is destroyed before this returns, or else, when a `get` on another thread was just
  /// then taking its look at it, by that `get` a moment later.
  ///
  /// Ordering: a `get` that starts after this returned does not return the old instance, nor one whose making began
  /// before this call, even if there was nothing to take.
  bool reset() { return this->end_current(teardown_reason::reset).ended; }

  /// As `reset`, with `on_shutdown`. Not terminal: a later `get` makes a new instance; see `seal`.
  bool shutdown() { return this->end_current(teardown_reason::shutdown).ended; }

  /// As `shutdown`, and from now on `get` throws singleton_sealed. True for the one call that changed the state.
  bool seal() { return this->end_current(teardown_reason::sealed).sealed; }

  /// True for the one call that changed the state. False while a scoped_singleton is being destroyed.
  bool unseal() {
    core* const c = this->existing();
    if (c == nullptr) return false;
    const section locked(*c->home);
    const bool may = c->is_sealed() && !c->ending;
    if (may) c->set_sealed(false);
    return may;
  }

  /// Makes \p next current and returns the previous instance, not shut down: the caller owns its end. Throws
  /// std::invalid_argument for null; singleton_sealed, with \p next destroyed without a callback; std::bad_alloc.
  handle set(std::unique_ptr<T> next) {
    return engine::pin(this->place(std::move(next), "set", [](core& c, block& filled) {
      ++c.interventions;
      block* const taken = c.install(filled);
      if (taken != nullptr) ++c.stats.handed_back;
      return taken;
    }));
  }

  /// Takes the current instance away without a callback: the caller owns its end. Empty when there was none.
  handle detach() {
    core& c = this->ensured();
    block* taken = nullptr;
    {
      const section locked(*c.home);
      c.outdate();
      ++c.interventions;
      taken = c.detach();
      if (taken != nullptr) ++c.stats.handed_back;
    }
    if (taken != nullptr) c.close(*taken);
    return engine::pin(taken);
  }

  /// Waits until all instances detached before this call, handed back ones included, have been destroyed, or \p limit
  /// has passed; `remaining` counts instances. Who holds a handle waits for itself, and so does a callback, or T's
  /// destructor, of an instance that is still being ended. In a forked child it waits for instances, too, that threads
  /// of the parent had pinned, and which are never destroyed there.
  template <class R, class P>
  drain_result drain_for(std::chrono::duration<R, P> limit) {
    core* const c = this->existing();
    if (c == nullptr) return {drain_status::drained, 0};
    const auto deadline = deadline_after<typename Sync::clock>(limit);
    section locked(*c->home);
    const std::uint64_t ticket = c->last_ticket();
    for (bool waiting = true;;) {
      const std::uint64_t remaining = c->detached_up_to(ticket);
      if (remaining == 0) return {drain_status::drained, 0};
      if (!waiting) return {drain_status::timed_out, remaining};
      Sync::here("singleton.drain.waiting");
      waiting = locked.wait(*c, deadline);
    }
  }

  /// For tests: \p next is the current instance until the returned scope ends, when it is torn down (`override_ended`)
  /// and the one that was current before comes back, unless reset, shutdown, set, detach or seal were called meanwhile:
  /// then nothing comes back, and the suspended one is torn down with `override_ended`. Scopes nest and end in reverse
  /// order; any other order ends the process. Throws as `set` does.
  [[nodiscard("curfew: the override ends when this does")]] scoped_override override_with(std::unique_ptr<T> next) {
    auto record = std::make_unique<override_record>();
    this->place(std::move(next), "override_with", [&record](core& c, block& filled) -> block* {
      c.suspend(*record, filled);
      return nullptr;
    });
    return scoped_override(*this, std::move(record));
  }

  /// Whether there is a current instance just now, and whether `seal` holds.
  bool has_value() const noexcept { return this->current_acquired() != nullptr; }
  [[nodiscard("curfew: only asks, seal() seals")]] bool sealed() const noexcept {
    const core* const c = this->existing();
    return c != nullptr && c->is_sealed();
  }

  /// Grows with every reset, shutdown, set, detach, seal, override begin and end, also when there was no instance.
  std::uint64_t generation() const noexcept {
    const core* const c = this->existing();
    return c != nullptr ? c->generation() : 0;
  }
  /// Counters, taken together.
  singleton_stats stats() const noexcept {
    const core* const c = this->existing();
    if (c == nullptr) return {};
    const section locked(*c->home);
    return c->snapshot();
  }
  /// What the constructor was given.
  const char* name() const noexcept { return this->name_; }

 protected:
  ~singleton_front() = default;

  /// Seals, with errors sent to `on_error`, and leaves what is still pinned to its handles. Traits are not used any
  /// more.
  void end_of_life() noexcept {
    core* const c = this->existing();
    if (c == nullptr) return;
    {
      const section locked(*c->home);
      c->ending = true;  // a callback that unseals would bring an instance to life that nobody ends
    }
    this->take_current(*c, teardown_reason::sealed,
                       [this](T& instance) { this->tear_down_quietly(instance, teardown_reason::sealed); });
    core::orphan(c);
  }

 private:
  using section = typename engine::section;
  using override_record = typename engine::override_record;
};

/// The life of an override. Movable; ends where it is destroyed, at the latest before the singleton. Errors of the
/// teardown go to `on_error`.
template <class T, class Traits, class Sync>
class singleton_front<T, Traits, Sync>::scoped_override {
 public:
  scoped_override(scoped_override&& other) noexcept = default;
  // Assigning a new one over a living one would end the outer before the inner.
  scoped_override& operator=(scoped_override&&) = delete;
  ~scoped_override() {
    if (record_ != nullptr) of_->end_override(*record_);
  }

 private:
  friend class singleton_front;
  scoped_override(singleton_front& of, std::unique_ptr<override_record> record) noexcept
      : of_(&of), record_(std::move(record)) {}

  singleton_front* of_;
  std::unique_ptr<override_record> record_;
};

}  // namespace detail

/// One current T, made on demand.
///
///     constinit curfew::guarded_singleton<pool> pools{"pools"};
///     auto pool = pools.get();        // any thread; pinned while `pool` lives
///     pools.shutdown();               // any thread; runs pool::shutdown() now, frees when the last handle is gone
///
/// *When not to use it.* For an object that lives as long as the program: a function-local static is cheaper to read.
/// For configuration that is only ever swapped: nothing here needs a factory. To serialise the use of the instance: all
/// users have it at the same time, and it may be told to shut down while they do.
///
/// *Thread safety.* Everything may be called by any thread at any time, also from factories, callbacks and T's
/// destructor, all of which run with no lock held. No `get` ever waits for a callback; it waits for another thread only
/// for a `start`, and with `creation_mode::single_flight` for a `make`. A factory must not wait for another thread that
/// calls `get`. Nothing here is for signal handlers.
///
/// *Memory ordering.* Whatever `make` and `start` did is visible to every `get` that returns the instance; whatever the
/// holders of handles did is visible to its destructor.
///
/// *Destruction* is trivial: a static one can be used from constructors and destructors of other statics, from atexit
/// handlers and thread_local destructors, and in a forked child. It, its blocks and its current instance are never
/// freed; use `scoped_singleton` where that matters. Traits must be trivially destructible.
///
/// *After fork* the child goes on as a single thread: instances that were pinned or being started by threads it does
/// not have are leaked, all else works and nothing waits for them. (The kit's own fork handlers are registered when the
/// program is loaded. Handlers of others that are registered before main even begins, and take locks that are also held
/// around calls of singletons, may deadlock.)
///
/// *Exceptions* are described at each member. Errors of callbacks that have no caller go to `on_error` or are
/// swallowed; both are counted in `stats().teardown_errors`.
///
/// *Cost.* `get` on an existing instance: two loads of one word that changes only when the instance does, and one entry
/// of its fence. Detaching: one allocation-free critical section and one fence closing. Per instance alive at the same
/// time: about 1.3 KiB, reused.
///
/// *Source.* Type-stable memory, with run-down protection in place of hazard pointers; instance and teardown rules
/// after the double-checked singletons that had to be repaired for want of them.
template <class T, class Traits = singleton_traits<T>, class Sync = std_sync>
class guarded_singleton : public detail::singleton_front<T, Traits, Sync> {
 public:
  using detail::singleton_front<T, Traits, Sync>::singleton_front;
  ~guarded_singleton() = default;

 private:
  static_assert(std::is_trivially_destructible_v<Traits>,
                "curfew: guarded_singleton is never destroyed and needs trivially destructible Traits");
};

/// The same with an end: for a member of an application object, or a test. The destructor seals, which runs
/// `on_shutdown(sealed)` on the current instance, and returns; handles that are still out stay valid and the last one
/// frees everything. It must not race other members or end inside an override.
template <class T, class Traits = singleton_traits<T>, class Sync = std_sync>
class scoped_singleton : public detail::singleton_front<T, Traits, Sync> {
 public:
  using detail::singleton_front<T, Traits, Sync>::singleton_front;
  ~scoped_singleton() { this->end_of_life(); }
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_GUARDED_SINGLETON_HPP
