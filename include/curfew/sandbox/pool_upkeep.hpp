// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, second part: what is done on behalf of nobody. Reaping the idle, retrying what could
/// not be ended, comparing with the backend's inventory, and keeping the leases in the store. Each function is one
/// pass, may run on any thread and at any time, and lets go of the fence between two sandboxes, so that a pass in
/// progress holds up a shutdown no longer than one sandbox takes.

#ifndef CURFEW_SANDBOX_POOL_UPKEEP_HPP
#define CURFEW_SANDBOX_POOL_UPKEEP_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/pool_core.hpp>
#include <curfew/slot_ledger.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// The request that a listed sandbox was made for.
inline const std::string& request_of(const sandbox_info& info) noexcept {
  return info.request_id.empty() ? info.id : info.request_id;
}

template <backend B, lease_store S, class Sync>
class pool_upkeep {
 public:
  using core = pool_core<B, S, Sync>;
  using guard = typename core::guard;
  using entry = typename core::entry;
  using key = typename core::key;

  explicit pool_upkeep(core& pool) noexcept : pool_(pool) {}

  /// Ends what has been inactive for longer than \p limit in the given states. Returns how many are gone.
  std::size_t end_idle(std::initializer_list<slot_state> states, std::chrono::nanoseconds limit) {
    std::size_t gone = 0;
    for (const auto& request : pool_.requests_in(states)) {
      const auto inside = pool_.try_enter();
      if (!inside) break;
      Sync::here("pool.sweep.candidate");
      const auto now = pool_.now();
      auto v = pool_.seize(request, [&](const entry& e) {
        return std::find(states.begin(), states.end(), e.state()) != states.end() && now - e.active_at > limit;
      });
      if (v && pool_.end(std::move(*v), &provider_stats::idle_reaped) == core::ending::gone) ++gone;
    }
    return gone;
  }

  void retry_tombstones() {
    for (const auto& request : pool_.requests_in({slot_state::tombstone})) {
      const auto inside = pool_.try_enter();
      if (!inside) break;
      auto v = pool_.seize(request, [](const entry& e) { return e.state() == slot_state::tombstone; });
      if (v) pool_.end(std::move(*v), nullptr);
    }
  }

  /// What the backend has, within \p budget when it can keep one; empty and incomplete when it throws. Not under a
  /// pass: an inventory that hangs holds up no shutdown, and what it brings after one is not acted on.
  listing inventory([[maybe_unused]] const list_budget& budget) {
    try {
      if constexpr (requires { pool_.maker->list_within(budget); }) {
        listing seen = pool_.maker->list_within(budget);
        if (seen.items.size() > budget.max_items) {
          seen.items.resize(budget.max_items);
          seen.complete = false;
        }
        return seen;
      } else {
        return {pool_.maker->list(), true};
      }
    } catch (...) {
      pool_.count(&provider_stats::backend_errors);
      return {{}, false};
    }
  }

  /// What a reconcile pass starts from: what was tracked before the inventory was taken, and the inventory.
  struct survey {
    std::vector<std::string> before = {};
    listing seen = {};
    std::set<std::string> ids = {};
    reconcile_report report = {};
  };
  survey take_survey(const list_budget& budget) {
    retry_tombstones();
    survey s{.before = pool_.requests_in({slot_state::active, slot_state::warm}), .seen = inventory(budget)};
    std::erase_if(s.seen.items, [](const auto& item) { return item.id.empty(); });
    for (const auto& item : s.seen.items) s.ids.insert(item.id);
    s.report.listed = s.seen.items.size();
    s.report.complete = s.seen.complete;
    // An id that vanished starts its grace over when it comes back. An inventory that brought nothing proves nothing.
    const guard lock(pool_.mutex);
    if (s.seen.complete || !s.ids.empty())
      std::erase_if(pool_.unowned_since, [&](const auto& watched) { return !s.ids.contains(watched.first); });
    return s;
  }

  /// How a listed sandbox stands: tracked here, owned by somebody, or neither and for how long. `ripe`: for the whole
  /// grace without a break, and never at first sight. A store that cannot answer counts as an owner.
  enum class standing : unsigned char { tracked, owned, young, ripe };
  standing watch(const sandbox_info& item, std::chrono::nanoseconds grace) {
    bool owned = true;
    try {
      owned = pool_.store->owner(item.id).has_value();
    } catch (...) {
      pool_.count(&provider_stats::backend_errors);
    }
    const auto now = pool_.now();
    const guard lock(pool_.mutex);
    const bool tracked = pool_.table.by_id(item.id).has_value();
    if (owned || tracked) {
      pool_.unowned_since.erase(item.id);
      return tracked ? standing::tracked : standing::owned;
    }
    const auto [since, first_sight] = pool_.unowned_since.try_emplace(item.id, now);
    return !first_sight && now - since->second >= grace ? standing::ripe : standing::young;
  }

  /// Claims an orphan and keeps it warm in \p place. False when it, or another one for its request, is tracked.
  bool adopt_warm(const sandbox_info& item, typename core::slot place) {
    const auto inside = pool_.try_enter();
    const std::string request = request_of(item);
    const key held = inside && place ? pool_.try_lock(request) : key();
    if (!held || pool_.find(request)) return false;
    entry fresh{.info = item, .request = request, .owner = {}, .active_at = pool_.now(), .never_given = true};
    if (!pool_.claim(item.id, false)) return false;
    Sync::here("pool.adopt.claimed");
    const bool there = pool_.extend(item.id);
    {
      const guard lock(pool_.mutex);
      pool_.unowned_since.erase(item.id);
      if (pool_.table.by_id(item.id)) return false;  // ours by now, and so is its lease in the store
      if (there && !pool_.fence.is_closed()) {
        pool_.table.track(std::move(fresh), std::move(place), slot_state::warm);
        ++pool_.counters.adopted;
        return true;
      }
    }
    pool_.release_in_store(item.id);
    return false;
  }

  /// Claims and ends a sandbox that is not tracked, is still on the watch list, and is in the way of nobody: with
  /// \p duplicate a second one for a request whose own sandbox is in use or warm, else one without a request. It never
  /// had a slot, so it is in no figure of the provider but the failures.
  bool end_stray(const sandbox_info& item, bool duplicate, const list_budget& budget) {
    const auto inside = pool_.try_enter();
    const key held = inside ? pool_.try_lock(request_of(item)) : key();
    if (!held) return false;
    {
      const guard lock(pool_.mutex);
      const auto first = duplicate ? pool_.table.by_request(item.request_id) : std::nullopt;
      const bool in_order = first && ((*first)->state() == slot_state::active || (*first)->state() == slot_state::warm);
      if (in_order != duplicate || pool_.table.by_id(item.id) || !pool_.unowned_since.contains(item.id)) return false;
      pool_.strays.insert(item.id);
    }
    const bool claimed = pool_.claim(item.id, true);
    Sync::here("pool.stray.claimed");
    // A peer may have ended it between our inventory and our claim. What does not answer is looked up once more.
    const bool there = claimed && (pool_.probe(item.id) != liveness::dead || lists(item.id, budget));
    const bool gone = there && pool_.destroy_repeatedly(item.id, core::no_limit);
    {
      const guard lock(pool_.mutex);
      pool_.strays.erase(item.id);
      if (gone || (claimed && !there)) pool_.unowned_since.erase(item.id);
    }
    if (claimed) pool_.release_in_store(item.id);
    return gone;
  }

  /// Forgets what was tracked \p before a complete inventory was taken, is not in it, and probes dead. Returns how
  /// many. Does not begin with another one past \p until.
  std::size_t forget_missing(const survey& s, typename core::time_point until = core::no_limit) {
    std::size_t missing = 0;
    for (const auto& request : s.before) {
      if (Sync::clock::now() >= until) break;
      const auto inside = pool_.try_enter();
      const key held = inside ? pool_.try_lock(request) : key();
      const auto at = held ? pool_.find(request) : std::nullopt;
      if (!at || s.ids.contains((*at)->info.id) || (*at)->state() == slot_state::tombstone) continue;
      const std::string id = (*at)->info.id;
      if (pool_.probe(id) != liveness::dead) continue;
      pool_.forget(*at);
      pool_.release_in_store(id);
      ++missing;
    }
    return missing;
  }

  /// Extends every lease in the store, teardown marks included. When one is not ours any more the store is asked again
  /// with the key held, so that no acquire can be re-taking it at the same time: nobody has it, it is claimed again; a
  /// peer has it, the sandbox is forgotten. A teardown holds its key, so its mark can only be extended here and never
  /// comes back once it was released. Extending enters no fence, since a sweep needs its marks renewed too; the rest
  /// has a pass, since a sweep passes over what is held by a call that outlived the drain, and takes any holder for
  /// one.
  void renew_leases() {
    std::vector<std::pair<std::string, std::string>> all;
    {
      const guard lock(pool_.mutex);
      for (const auto state : {slot_state::active, slot_state::warm, slot_state::transitioning})
        for (const auto& e : pool_.table.in(state)) all.emplace_back(e.info.id, e.request);
      for (const auto& id : pool_.strays) all.emplace_back(id, std::string());
    }
    for (const auto& [id, request] : all) try {
        renew(id, request);
      } catch (...) {  // kept: a store that is away for a moment must not cost a sandbox
        pool_.count(&provider_stats::backend_errors);
      }
  }

 private:
  bool lists(const std::string& id, const list_budget& budget) {
    const auto seen = inventory(budget);
    return std::any_of(seen.items.begin(), seen.items.end(), [&](const auto& item) { return item.id == id; });
  }

  void renew(const std::string& id, const std::string& request) {
    const auto& [who, ttl] = std::tie(pool_.settings.owner_id, pool_.settings.lease_ttl);
    if (pool_.store->renew(id, who, ttl) == renewal::renewed) return;
    if (request.empty()) return;  // a stray: its mark is extended while it is there, and never made here
    Sync::here("pool.renew.verdict");
    const auto inside = pool_.try_enter();
    const key held = inside ? pool_.try_lock(request) : key();
    const auto at = held ? pool_.find(request) : std::nullopt;
    if (!at || (*at)->info.id != id || (*at)->state() == slot_state::tombstone) return;
    const auto owner = pool_.store->owner(id);
    if (!owner) {
      pool_.store->claim(id, who, ttl, false);
    } else if (*owner != who) {
      pool_.forget(*at);
    }
  }

  core& pool_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_UPKEEP_HPP
