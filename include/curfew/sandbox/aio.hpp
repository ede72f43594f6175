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
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/pool_front.hpp>
#include <curfew/sandbox/sandbox_pool.hpp>
#include <curfew/slot_ledger.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of an aio_provider.
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
/// Nothing runs in the background before `start()`. Without it everything else works, but `sweep_idle` and `reconcile`
/// have to be called and nothing renews the leases in the store. `shutdown()` refuses newcomers, waits for the calls
/// that are inside, and ends every sandbox; when it has returned `completed` or `joined`, no acquire succeeds and
/// nothing that was made or adopted here is running. The destructor does the same. It is legal once no other thread
/// calls a member; leases may outlive it. In a forked child every member returns at once and nothing of the parent's is
/// touched.
///
/// Exceptions: acquire throws admission_refused after shutdown or reset, std::invalid_argument for an owner that cannot
/// be one, backend_error(conflict) when the owner's old sandbox cannot be ended or a peer is ending it,
/// identity_conflict, and what the backend's create or the lease store throws. Cost: reuse and reclaim are one probe
/// and one lease store call, whatever the number of sandboxes.
template <backend B, lease_store S = memory_lease_store, class Sync = std_sync>
class aio_provider : public provider_front<B, S, aio_options, Sync> {
  using front = provider_front<B, S, aio_options, Sync>;
  using typename front::place;
  using typename front::pool;

 public:
  /// \throws std::invalid_argument naming the option that cannot be one
  explicit aio_provider(std::shared_ptr<B> backend, aio_options options = {}, std::shared_ptr<S> store = nullptr)
      : front(std::move(backend), checked(options), std::move(store), options.replicas, no_limit_by_the_server,
              [](pool& self, const aio_options& o) {
                reconcile(self, o);
                sweep_idle(self, o);
              }) {}

  /// The owner's sandbox: the one in use, else the warm one, else a running one that is found, else a new one. An owner
  /// with an empty thread is anonymous: always a new one, destroyed by its release.
  lease acquire(const owner_key& owner) {
    const auto self = this->pool_;  // a create that returns late still needs it, whatever has become of this provider
    return self->acquire(owner, [&] { return make_room(*self); });
  }

  /// One pass: ends what has been idle for longer than `idle_timeout`. Returns how many are gone.
  std::size_t sweep_idle() { return sweep_idle(*this->pool_, *this->options_); }
  /// One pass: adopts what has run unowned through the grace, and forgets what has vanished.
  reconcile_report reconcile() { return reconcile(*this->pool_, *this->options_); }

 private:
  static constexpr std::chrono::seconds no_limit_by_the_server{0};

  // Room within the cap, or else a slot beyond it. Room is made by waiting for an end to be confirmed, never by
  // counting on one.
  static place make_room(pool& self) {
    if (auto within = self.room().at_once()) return {std::move(within)};
    if (auto beyond = self.state().slots.exceed()) return {std::move(beyond), &provider_stats::over_cap};
    self.refuse();
  }

  static std::size_t sweep_idle(pool& self, const aio_options& options) {
    if (!self.accepting()) return 0;  // also in a forked child, where the lock may be held by a thread that is gone
    self.upkeep().retry_tombstones();
    if (options.idle_timeout == std::chrono::nanoseconds::zero()) return 0;
    return self.upkeep().end_idle({slot_state::active, slot_state::warm}, options.idle_timeout);
  }

  static reconcile_report reconcile(pool& self, const aio_options& options) {
    if (!self.accepting()) return {};
    auto upkeep = self.upkeep();
    auto survey = upkeep.take_survey({});
    if (options.adopt_orphans)
      for (const auto& item : survey.seen.items) {
        if (!self.accepting()) break;
        if (upkeep.watch(item, options.orphan_grace) == decltype(upkeep)::standing::ripe &&
            upkeep.adopt_warm(item, self.state().slots.exceed()))
          ++survey.report.adopted;
      }
    if (survey.seen.complete) survey.report.expired = upkeep.forget_missing(survey);
    return survey.report;
  }

  static aio_options checked(aio_options o) {
    front::require(o, o.idle_timeout >= std::chrono::nanoseconds::zero(), "idle_timeout is negative");
    return o;
  }
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_AIO_HPP
