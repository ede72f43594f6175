// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// aio_provider: sandboxes for owners that come back. One sandbox per owner under an id that every process derives
/// alike, kept warm between two uses, a soft cap, idle ones reaped here, running ones found again after a restart. For
/// a fleet whose server keeps the ids, the cap and the clock, use the e2b provider. See docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_AIO_HPP
#define CURFEW_SANDBOX_AIO_HPP

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/sandbox_pool.hpp>
#include <curfew/signals.hpp>
#include <curfew/slot_ledger.hpp>
#include <curfew/teardown.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

struct aio_options {
  std::size_t replicas = 3;  ///< soft cap: room is made first, and exceeded when none can be made
  std::chrono::nanoseconds idle_timeout = std::chrono::seconds(600);  ///< 0: never reaped
  std::chrono::nanoseconds maintain_interval = std::chrono::seconds(60);
  std::map<std::string, std::string> environment;
  std::chrono::nanoseconds renewal_interval = std::chrono::seconds(30);
  unsigned ttl_multiplier = 4;  ///< a lease in the store lives this many renewal intervals
  std::chrono::nanoseconds orphan_grace = std::chrono::seconds(120);
  std::chrono::nanoseconds shutdown_budget = std::chrono::seconds(20);
  std::chrono::nanoseconds worker_stop = std::chrono::seconds(5);
  std::chrono::nanoseconds destroy_backoff = std::chrono::milliseconds(100);
  unsigned destroy_attempts = 3;
  unsigned destroy_parallelism = 8;
  bool adopt_orphans = true;
  std::string name = "aio";
  std::string owner_id;  ///< who this provider is in the lease store; empty: host:pid:random
  clock_fn clock;
  std::vector<int> fallback_signals;  ///< shut down on these when no lifespan owns them; empty: no handlers at all
};

/// Hands sandboxes to owners, keeps released ones warm, and owns the end of every one it made or adopted.
///
/// Thread safety: every member from any thread; different owners never wait for each other, calls for one owner take
/// turns. Ordering: what a backend's create wrote is visible to whoever is handed the sandbox.
///
/// Nothing runs in the background before `start()`, and everything works without it; then call `sweep_idle`,
/// `reconcile` and nothing renews the leases in the store. `shutdown()` refuses newcomers, waits for the calls that are
/// inside, and ends every sandbox; when it has returned `completed` or `joined`, no acquire succeeds and nothing that
/// was made or adopted here is running. The destructor does the same. It is legal once no other thread calls a member;
/// leases may outlive it. In a forked child every member returns at once and nothing of the parent's is touched.
///
/// Exceptions: acquire throws admission_refused after shutdown or reset, std::invalid_argument for an owner that cannot
/// be one, backend_error(conflict) when the owner's old sandbox cannot be ended or a peer is ending it,
/// identity_conflict, and what the backend's create or the lease store throws. Cost: reuse and reclaim are one probe
/// and one lease store call, whatever the number of sandboxes.
template <backend B, lease_store S = memory_lease_store, class Sync = std_sync>
class aio_provider {
  using pool = sandbox_pool<B, S, Sync>;

 public:
  /// \throws std::invalid_argument naming the option that cannot be one
  explicit aio_provider(std::shared_ptr<B> backend, aio_options options = {}, std::shared_ptr<S> store = nullptr)
      : options_(std::make_shared<const aio_options>(checked(std::move(options), backend != nullptr))),
        pool_(pool::make(std::move(backend), store != nullptr ? std::move(store) : private_store(options_->clock),
                         settings(*options_), [o = options_](pool& self) {
                           reconcile(self, *o);
                           sweep_idle(self, *o);
                         })) {}
  aio_provider(const aio_provider&) = delete;
  aio_provider& operator=(const aio_provider&) = delete;
  ~aio_provider() { pool_->forked() ? pool_->outlive_process() : static_cast<void>(pool_->finish(false)); }

  /// Starts the workers "<name>.maintain", whose first pass begins at once, and "<name>.renew". Repeating it does
  /// nothing. \throws admission_refused after shutdown or reset; std::system_error when no thread can be made
  void start() {
    pool_->start(options_->maintain_interval, options_->renewal_interval, [this] {
      if (!fallbacks_.empty()) return;
      const auto shut_down = [weak = std::weak_ptr<pool>(pool_)](int) {
        if (const auto self = weak.lock()) self->finish(false);
      };
      decltype(fallbacks_) all;  // all of them or none
      for (const int signal : options_->fallback_signals)
        all.emplace_back(std::initializer_list<int>{signal}, shut_down);
      fallbacks_.swap(all);
    });
  }

  /// The owner's sandbox: the one in use, else the warm one, else a running one that is found, else a new one. An owner
  /// with an empty thread is anonymous: always a new one, destroyed by its release.
  lease acquire(const owner_key& owner) {
    check_owner(owner);
    const auto self = pool_;  // a create that returns late still needs it, whatever has become of this provider
    const auto inside = self->enter();
    const bool anonymous = owner.thread.empty();
    const std::string request = anonymous ? detail::random_id() : stable_id(owner);
    const auto key = self->lock(request);
    typename pool::slot place;
    if (const auto known = self->find(request, owner))
      if (self->usable(*known, place)) return self->hand_out(*known, owner);
    const bool beyond = !place && !make_room(*self, place);
    if (const auto found = anonymous ? std::nullopt : self->discover(request))
      if (auto adopted = self->adopt(*found, owner, request, place)) return std::move(*adopted);
    if (beyond) self->state().count(&provider_stats::over_cap);
    return self->create(owner, request, std::move(place), anonymous);
  }

  /// An active sandbox, without asking the backend; counts as activity.
  std::optional<sandbox_info> get(const std::string& id) noexcept { return pool_->get(id); }

  /// As the lease's own release. \throws std::invalid_argument for a lease of another provider, which gets it back
  void release(lease granted) {
    if (granted && !pool_->owns(granted))
      throw std::invalid_argument(options_->name + ": released a lease of another provider, on sandbox " +
                                  granted.id());
  }

  /// Ends a sandbox, leases or not; false when it is not tracked here or its end could not be confirmed.
  bool destroy(const std::string& id) { return pool_->destroy(id); }

  /// Ends this provider as `shutdown` does, but leaves what it adopted and never handed out to a successor.
  void reset() { pool_->finish(true); }
  /// `completed` for the call that did it; `joined` for one that waited for it; `in_progress` from inside it; `failed`
  /// when something is left, which `stats().leftover` names and the next call tries again. Never throws.
  teardown_status shutdown() { return pool_->finish(false); }

  provider_stats stats() const { return pool_->stats(); }
  bool accepting() const noexcept { return pool_->accepting(); }

  /// One pass: ends what has been idle for longer than `idle_timeout`. Returns how many are gone.
  std::size_t sweep_idle() { return sweep_idle(*pool_, *options_); }
  /// One pass: adopts what has run unowned through the grace, and forgets what has vanished.
  reconcile_report reconcile() { return reconcile(*pool_, *options_); }

 private:
  // Room within the cap, or false with a slot beyond it. Room is made by waiting for an end to be confirmed, never by
  // counting on one.
  static bool make_room(pool& self, typename pool::slot& place) {
    auto& slots = self.state().slots;
    if ((place = slots.try_reserve())) return true;
    if ((place = self.take_over()) || (place = slots.try_reserve())) return true;
    if (!(place = slots.exceed())) self.refuse();
    return false;
  }

  static std::size_t sweep_idle(pool& self, const aio_options& options) {
    if (!self.accepting()) return 0;  // also in a forked child, where the lock may be held by a thread that is gone
    self.upkeep().retry_tombstones();
    if (options.idle_timeout == std::chrono::nanoseconds::zero()) return 0;
    return self.upkeep().end_idle({slot_state::active, slot_state::warm}, options.idle_timeout);
  }

  static reconcile_report reconcile(pool& self, const aio_options& options) {
    reconcile_report report;
    if (!self.accepting()) return report;
    auto upkeep = self.upkeep();
    upkeep.retry_tombstones();
    const auto before = self.state().requests_in({slot_state::active, slot_state::warm});
    const listing seen = upkeep.inventory({});
    report.listed = seen.items.size();
    report.complete = seen.complete;
    std::set<std::string> ids;
    for (const auto& item : seen.items) ids.insert(item.id);
    if (options.adopt_orphans)
      report.adopted =
          upkeep.adopt_orphans(seen.items, options.orphan_grace, [&] { return self.state().slots.exceed(); });
    if (seen.complete || !ids.empty()) upkeep.forget_vanished(ids);
    if (seen.complete) report.expired = upkeep.forget_missing(before, ids);
    return report;
  }

  static std::shared_ptr<S> private_store([[maybe_unused]] const clock_fn& clock) {
    if constexpr (std::is_constructible_v<S, const clock_fn&>) {
      return std::make_shared<S>(clock);
    } else {
      return std::make_shared<S>();
    }
  }

  static aio_options checked(aio_options o, bool has_backend) {
    const auto require = [&o](bool holds, const char* what) {
      if (!holds) throw std::invalid_argument("aio_provider \"" + o.name + "\": " + what);
    };
    constexpr auto zero = std::chrono::nanoseconds::zero();
    require(has_backend, "the backend is null");
    require(o.replicas > 0, "replicas is 0");
    require(o.maintain_interval > zero, "maintain_interval must be positive");
    require(o.renewal_interval > zero, "renewal_interval must be positive");
    require(o.ttl_multiplier >= 2, "ttl_multiplier is less than 2");
    require(o.renewal_interval <= std::chrono::nanoseconds::max() / o.ttl_multiplier, "renewal_interval is too long");
    require(o.idle_timeout >= zero, "idle_timeout is negative");
    require(o.orphan_grace >= zero, "orphan_grace is negative");
    require(o.shutdown_budget >= zero && o.worker_stop >= zero, "shutdown_budget or worker_stop is negative");
    require(o.destroy_backoff >= zero, "destroy_backoff is negative");
    require(o.destroy_attempts > 0 && o.destroy_parallelism > 0, "destroy_attempts or destroy_parallelism is 0");
    detail::check_environment(o.environment, "aio_provider");
    if (o.owner_id.empty()) o.owner_id = detail::process_name();
    return o;
  }

  static pool_settings settings(const aio_options& o) {
    return {.name = o.name,
            .owner_id = o.owner_id,
            .clock = o.clock,
            .limit = o.replicas,
            .lease_ttl = o.renewal_interval * o.ttl_multiplier,
            .shutdown_budget = o.shutdown_budget,
            .worker_stop = o.worker_stop,
            .destroy_backoff = o.destroy_backoff,
            .destroy_attempts = o.destroy_attempts,
            .destroy_parallelism = o.destroy_parallelism,
            .environment = o.environment};
  }

  const std::shared_ptr<const aio_options> options_;
  const std::shared_ptr<pool> pool_;
  std::list<basic_fallback_signal_guard<Sync>> fallbacks_;  // last: gone before what its callback uses
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_AIO_HPP
