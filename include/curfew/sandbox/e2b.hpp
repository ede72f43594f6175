// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// e2b_provider: sandboxes rented from a service that numbers them itself, ends them itself when their time is up, and
/// allows so many and no more. A hard cap with a line in front of it, time limits begun anew at each use, and an
/// inventory that finds what was lost, within bounds. Where ids are the owner's own and idle ones must be reaped from
/// here, use the aio provider. See docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_E2B_HPP
#define CURFEW_SANDBOX_E2B_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
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

/// Options of an e2b_provider.
struct e2b_options {
  std::size_t replicas = 3;     ///< hard cap: whatever is made, used, kept, ended or could not be ended counts
  std::size_t burst_limit = 0;  ///< so many more under `overflow_policy::burst`
  overflow_policy overflow = overflow_policy::wait;
  std::string name = "e2b";
  std::chrono::nanoseconds acquire_timeout = std::chrono::seconds(30);  ///< in line for a slot
  std::chrono::seconds idle_timeout{1800};  ///< kept by the server; clamped to a day; 0: whatever it does by itself
  std::chrono::nanoseconds maintain_interval = std::chrono::seconds(60);
  std::chrono::nanoseconds orphan_grace = std::chrono::seconds(120);
  std::chrono::nanoseconds orphan_ttl = std::chrono::seconds(3600);  ///< for those that name no request
  list_budget inventory;
  std::map<std::string, std::string> environment;
  std::chrono::nanoseconds renewal_interval = std::chrono::seconds(30);
  unsigned ttl_multiplier = 4;  ///< a lease in the store lives this many renewal intervals
  std::chrono::nanoseconds shutdown_budget = std::chrono::seconds(20);
  std::chrono::nanoseconds worker_stop = std::chrono::seconds(5);
  std::chrono::nanoseconds destroy_backoff = std::chrono::milliseconds(100);
  unsigned destroy_attempts = 3;
  unsigned destroy_parallelism = 8;
  bool adopt_orphans = true;
  std::string owner_id;  ///< who this provider is in the lease store; empty: host:pid:random
  clock_fn clock;
  std::vector<int> fallback_signals;  ///< shut down on these when no lifespan owns them; empty: no handlers at all
};

/// Hands sandboxes to owners and never has more of them than it may. `id` is the server's; `request_id` is derived from
/// the owner, travels in the create request, and is how a sandbox is found again.
///
/// Thread safety: every member from any thread; calls for one owner take turns, and different owners wait for each
/// other only for a slot: first come, first served, until `acquire_timeout`. Whoever releases makes room, since a warm
/// sandbox is ended for an owner who waits. Ordering: what a backend's create wrote is visible to whoever is handed the
/// sandbox.
///
/// A sandbox whose end was not confirmed keeps its slot, and is tried again by whoever needs one, by the workers and by
/// the shutdown. With a backend that has `set_timeout`, every use and the last release begin the server's time limit
/// anew, and one that is gone by then is replaced or forgotten; nothing else extends a life.
///
/// Nothing runs in the background before `start()`. Without it everything else works, but `sweep_idle` and `reconcile`
/// have to be called and nothing renews the leases in the store. `shutdown()` refuses newcomers and those in line,
/// waits for the calls that are inside, and ends every sandbox; when it has returned `completed` or `joined`, no
/// acquire succeeds and nothing that was made or adopted here is running. The destructor does the same. It is legal
/// once no other thread calls a member; leases may outlive it. In a forked child every member returns at once and
/// nothing of the parent's is touched.
///
/// Exceptions: acquire throws capacity_exceeded, admission_refused after shutdown or reset, std::invalid_argument for
/// an owner that cannot be one, backend_error(conflict) when the owner's old sandbox cannot be ended or a peer is
/// ending it, identity_conflict, and what the backend's create or the lease store throws. Cost: reuse and reclaim are
/// one probe, one set_timeout and one lease store call, whatever the number of sandboxes.
template <backend B, lease_store S = memory_lease_store, class Sync = std_sync>
class e2b_provider : public provider_front<B, S, e2b_options, Sync> {
  using front = provider_front<B, S, e2b_options, Sync>;
  using typename front::place;
  using typename front::pool;

 public:
  /// \throws std::invalid_argument naming the option that cannot be one
  explicit e2b_provider(std::shared_ptr<B> backend, e2b_options options = {}, std::shared_ptr<S> store = nullptr)
      : front(std::move(backend), checked(options), std::move(store), hard_cap(options), checked(options).idle_timeout,
              [](pool& self, const e2b_options& o) {
                reconcile(self, o);
                sweep_idle(self, o);
              }) {}

  /// The owner's sandbox: the one in use, else the warm one, else, with a slot, a running one that is found or a new
  /// one. An owner with an empty thread is anonymous: always a new one, destroyed by its release.
  lease acquire(const owner_key& owner) {
    const auto self = this->pool_;  // a create that returns late still needs it, whatever has become of this provider
    return self->acquire(owner, [&self, o = this->options_] { return make_room(*self, *o); });
  }

  /// One pass: ends the warm ones whose time is up, which the server has most likely done. Returns how many are gone.
  std::size_t sweep_idle() { return sweep_idle(*this->pool_, *this->options_); }

  /// One pass over one inventory: adopts what has run unowned through the grace, when a slot is free; and when the
  /// inventory was complete, forgets what has vanished and ends what nobody can be using: second sandboxes of one
  /// request, and those without a request. Begins nothing more when `inventory.max_time` has passed.
  reconcile_report reconcile() { return reconcile(*this->pool_, *this->options_); }

 private:
  using candidates = std::vector<sandbox_info>;  // not tracked, and unowned for long enough

  static place make_room(pool& self, const e2b_options& o) {
    auto room = self.room();
    auto taken = o.overflow == overflow_policy::wait ? room.in_line(o.acquire_timeout) : room.at_once();
    if (taken) return {std::move(taken)};
    if (!self.accepting()) self.refuse();
    const auto reason = o.overflow == overflow_policy::wait     ? capacity_reason::timed_out
                        : o.overflow == overflow_policy::reject ? capacity_reason::rejected
                                                                : capacity_reason::burst_exhausted;
    throw capacity_exceeded(reason, hard_cap(o), std::chrono::seconds(30));
  }

  static std::size_t sweep_idle(pool& self, const e2b_options& o) {
    if (!self.accepting()) return 0;  // also in a forked child, where the lock may be held by a thread that is gone
    self.upkeep().retry_tombstones();
    return o.idle_timeout == o.idle_timeout.zero() ? 0 : self.upkeep().end_idle({slot_state::warm}, o.idle_timeout);
  }

  static reconcile_report reconcile(pool& self, const e2b_options& o) {
    if (!self.accepting()) return {};
    const auto begun = Sync::clock::now();
    const auto until = o.inventory.max_time >= begun.max() - begun ? begun.max() : begun + o.inventory.max_time;
    auto upkeep = self.upkeep();
    auto survey = upkeep.take_survey(o.inventory);
    auto& report = survey.report;
    // What is left of a pass that ran out of time goes on as after an incomplete inventory: it adopts at most.
    const auto whole = [&] {
      report.complete = report.complete && Sync::clock::now() < until;
      return report.complete && self.accepting();
    };
    // A stray that does not answer is looked up in one more inventory: within what the pass has left.
    const auto rest = [&] {
      list_budget left = o.inventory;
      left.max_time = std::clamp<std::chrono::nanoseconds>(until - Sync::clock::now(), {}, left.max_time);
      return left;
    };

    std::map<std::string, candidates> by_request;
    candidates nameless;
    std::set<std::string> owned;
    for (const auto& item : survey.seen.items) {
      if (!self.accepting()) return report;
      using standing = typename decltype(upkeep)::standing;
      const bool named = !item.request_id.empty();
      const auto found = upkeep.watch(item, named ? o.orphan_grace : o.orphan_ttl);
      if (found == standing::owned) owned.insert(item.request_id);
      if (found == standing::ripe) (named ? by_request[item.request_id] : nameless).push_back(item);
    }
    for (auto& [request, ripe] : by_request) {
      // Where a peer has another one of the same request in use, the request is the peer's.
      if (o.adopt_orphans && !owned.contains(request) && adopt_one(self, request, ripe)) ++report.adopted;
      for (const auto& item : ripe)
        if (whole() && upkeep.end_stray(item, true, rest())) ++report.duplicates_destroyed;
    }
    for (const auto& item : nameless)
      if (whole() && upkeep.end_stray(item, false, rest())) ++report.orphans_destroyed;
    if (whole()) report.expired = upkeep.forget_missing(survey, until);
    return report;
  }

  // Alive first, then the smallest id. Into a slot that is free anyway: an orphan evicts nobody and waits for nobody.
  static bool adopt_one(pool& self, const std::string& request, const candidates& ripe) {
    std::map<std::pair<int, std::string>, const sandbox_info*> in_order;
    if (self.state().find(request)) return false;
    for (const auto& item : ripe) {
      const auto found = ripe.size() == 1 ? liveness::alive : self.state().probe(item.id);
      in_order.emplace(std::pair(found == liveness::alive ? 0 : found == liveness::unknown ? 1 : 2, item.id), &item);
    }
    for (const auto& [rank, item] : in_order)
      if (self.upkeep().adopt_warm(*item, self.state().slots.try_reserve())) return true;
    return false;
  }

  static std::size_t hard_cap(const e2b_options& o) {
    const std::size_t more = o.overflow == overflow_policy::burst ? o.burst_limit : 0;
    return o.replicas + more < more ? ~std::size_t{0} : o.replicas + more;
  }

  static e2b_options checked(e2b_options o) {
    constexpr auto zero = std::chrono::nanoseconds::zero();
    front::require(o, o.acquire_timeout > zero, "acquire_timeout must be positive");
    front::require(o, o.orphan_ttl >= zero, "orphan_ttl is negative");
    front::require(o, o.inventory.max_time >= zero, "inventory.max_time is negative");
    o.idle_timeout = std::clamp<std::chrono::seconds>(o.idle_timeout, std::chrono::seconds(0), std::chrono::hours(24));
    return o;
  }
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_E2B_HPP
