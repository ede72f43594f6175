// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, first part: its state, what excludes what, its calls of backend and store, and the
/// end of one sandbox. The other parts are pool_upkeep.hpp, pool_finish.hpp and sandbox_pool.hpp, which is the one to
/// include. The argument for each rule is in docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_POOL_CORE_HPP
#define CURFEW_SANDBOX_POOL_CORE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/keyed_serializer.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/sandbox_table.hpp>
#include <curfew/slot_ledger.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// What the engine needs to know of a provider's options.
struct pool_settings {
  std::string name, owner_id;
  clock_fn clock;
  std::size_t limit = 1;
  std::chrono::nanoseconds lease_ttl, shutdown_budget, worker_stop, destroy_backoff;
  unsigned destroy_attempts = 1, destroy_parallelism = 1;
  std::map<std::string, std::string> environment;
  std::chrono::seconds time_to_live{0};  // kept by the server, and begun anew at each use; 0: none
  bool store_is_private = false;         // there are no peers
};

/// \throws std::invalid_argument naming the part that is too long or holds a control character
inline void check_owner(const owner_key& owner) {
  for (const auto& [part, text] :
       {std::pair<const char*, const std::string&>("user", owner.user), {"thread", owner.thread}}) {
    const bool control = std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32 || c == 127; });
    if (control) throw std::invalid_argument(std::string("owner ") + part + " holds a control character");
    if (text.size() > 256) throw std::invalid_argument(std::string("owner ") + part + " is longer than 256 bytes");
  }
}

/// What excludes what:
/// - The *key* of a request, held through `keyed_serializer`, is the right to work on that request's sandbox for as
///   long as the backend and store calls take. Only its holder moves an entry to another state or removes it, so what
///   it has found stays.
/// - `mutex` guards everything declared below it, and the fields of entries, for moments: no backend, store, clock or
///   user code runs under it. Lock order: `mutex`, then the one inside the serializer or the ledger.
/// - The *pass* of the fence keeps a shutdown from sweeping before the call that holds it has committed or given up.
/// - Commit asks under `mutex` whether the fence is closed; a sweep reads the table under `mutex` after closing it. So
///   the sweep finds what was committed, or the commit finds the fence closed.
///
/// Open to the other parts of the engine and to nobody else.
template <backend B, lease_store S, class Sync>
struct pool_core {
  using time_point = std::chrono::steady_clock::time_point;
  using counter = std::uint64_t provider_stats::*;
  using serializer = keyed_serializer<std::string, std::hash<std::string>, Sync>;
  using ledger = basic_slot_ledger<Sync>;
  using pass = typename basic_admission_fence<Sync>::pass;
  using sandboxes = sandbox_table<Sync>;
  using slot = typename sandboxes::slot;
  using entry = typename sandboxes::entry;
  using entry_at = typename sandboxes::entry_at;
  using guard = std::lock_guard<typename Sync::mutex>;
  static constexpr time_point no_limit = time_point::max();

  /// The right to work on the sandbox of a request. Whoever waits for a slot is told when it ends: it may have kept an
  /// evictor from a warm sandbox.
  class key {
   public:
    key() noexcept = default;
    key(typename serializer::hold held, ledger& of) noexcept : held_(std::move(held)), slots_(&of) {}
    key(key&&) noexcept = default;
    key& operator=(key&& other) noexcept {
      key old(std::move(*this));
      held_ = std::move(other.held_);
      slots_ = other.slots_;
      return *this;
    }
    ~key() {
      if (!held_) return;
      held_.release();
      slots_->nudge();
    }
    explicit operator bool() const noexcept { return static_cast<bool>(held_); }

   private:
    typename serializer::hold held_;
    ledger* slots_ = nullptr;
  };

  /// An entry that was moved to `transitioning`, with what is needed to move it back.
  struct victim {
    key held;  // empty when the caller holds the key already
    entry_at at;
    slot_state former;
  };
  enum class ending : unsigned char { gone, kept, tombstone };

  pool_core(std::shared_ptr<B> made_by, std::shared_ptr<S> leases, pool_settings given)
      : settings(std::move(given)),
        maker(std::move(made_by)),
        store(std::move(leases)),
        fence(settings.name.c_str()),
        slots(settings.limit) {}

  bool forked() const noexcept { return detail::process_id() != born_in; }
  time_point now() const { return settings.clock ? settings.clock() : Sync::clock::now(); }
  void count(counter which) noexcept {
    const guard lock(mutex);
    ++(counters.*which);
  }

  /// The way in for everything that touches a sandbox. In a forked child nobody gets in, and no lock was touched.
  pass try_enter() noexcept { return forked() ? pass() : fence.try_enter(); }

  key lock(const std::string& request) { return {keys.acquire(request), slots}; }
  key try_lock(const std::string& request) { return {keys.try_acquire(request), slots}; }

  // ---- calls of the backend and the store

  liveness probe(const std::string& id) noexcept {
    try {
      return maker->probe(id);
    } catch (...) {
      count(&provider_stats::backend_errors);
      return liveness::unknown;
    }
  }

  /// Begins the server's time limit anew. False when the sandbox is gone; a throw is no verdict.
  bool extend([[maybe_unused]] const std::string& id) noexcept {
    if constexpr (requires { maker->set_timeout(id, settings.time_to_live); }) try {
        return settings.time_to_live == std::chrono::seconds::zero() || maker->set_timeout(id, settings.time_to_live);
      } catch (...) {
        count(&provider_stats::backend_errors);
      }
    return true;
  }

  /// The lease in the store, before a sandbox is handed out. \throws backend_error(conflict) when a peer is ending it
  void take(const std::string& id) {
    if (!store->take(id, settings.owner_id, settings.lease_ttl)) throw ended_by_peer(id);
  }
  static backend_error ended_by_peer(const std::string& id) {
    return backend_error(backend_fault::conflict, "sandbox " + id + " is being destroyed by another provider");
  }

  bool claim(const std::string& id, bool destroying) noexcept {
    try {
      return store->claim(id, settings.owner_id, settings.lease_ttl, destroying);
    } catch (...) {
      count(&provider_stats::backend_errors);
      return false;
    }
  }

  void release_in_store(const std::string& id) noexcept {
    try {
      store->release(id, settings.owner_id);
    } catch (...) {
      count(&provider_stats::backend_errors);
    }
  }

  enum class holder : unsigned char { nobody, here, a_peer, unknown };
  holder holder_of(const std::string& id) noexcept {
    try {
      const auto owner = store->owner(id);
      return !owner ? holder::nobody : *owner == settings.owner_id ? holder::here : holder::a_peer;
    } catch (...) {
      return holder::unknown;
    }
  }
  /// Whether a peer may end it before its lease has been taken: one that holds the lease, and, when nobody does, one
  /// that still tracks what had this id before. Then only a probe after the taking is an answer: the peer may have
  /// claimed it, ended it and let go of the lease between an earlier one and the taking.
  bool may_be_a_peers(const std::string& id) noexcept {
    return !settings.store_is_private && holder_of(id) != holder::here;
  }

  /// One teardown's calls. Not begun again past \p until.
  bool destroy_repeatedly(const std::string& id, time_point until) noexcept {
    for (unsigned attempt = 1;; ++attempt) {
      try {
        if (maker->destroy(id)) return true;
      } catch (...) {  // a throw is a failed call, counted as such
      }
      count(&provider_stats::destroy_failures);
      const auto now = Sync::clock::now();
      if (attempt >= settings.destroy_attempts || now >= until || settings.destroy_backoff >= until - now) return false;
      Sync::sleep_for(settings.destroy_backoff);
    }
  }

  // ---- what is tracked

  /// What is tracked for a request. With the key held it stays.
  std::optional<entry_at> find(const std::string& request) {
    const guard lock(mutex);
    return table.by_request(request);
  }

  std::vector<std::string> requests_in(std::initializer_list<slot_state> states) const {
    const guard lock(mutex);
    return table.requests_in(states);
  }

  /// No longer ours, and not ended.
  void forget(entry_at at) noexcept {
    const guard lock(mutex);
    ++counters.forgotten;
    table.untrack(at);
  }

  static identity_conflict met_on(const std::string& id) {
    return identity_conflict("sandbox " + id + " belongs to another owner");
  }
  void refuse_tracked(const std::string& id) {
    const guard lock(mutex);
    refuse_tracked_locked(id);
  }
  void refuse_tracked_locked(const std::string& id) {
    if (table.by_id(id)) throw met_on(id);
  }

  sandbox_info call_create(const create_request& what, entry& fresh, slot& place) {
    try {
      return maker->create(what);
    } catch (const backend_error& error) {
      std::optional<victim> late;
      {
        const guard lock(mutex);
        ++counters.backend_errors;
        if (!error.leftover().empty() && !table.by_id(error.leftover())) {
          fresh.info.id = error.leftover();
          const entry_at at = table.track(std::move(fresh), std::move(place), slot_state::tombstone);
          ++counters.created;
          if (swept) late = mark(at);
        }
      }
      if (late) end_for_good(std::move(*late));
      throw;
    } catch (...) {
      count(&provider_stats::backend_errors);
      throw;
    }
  }

  /// Finds an active entry, and counts as activity on it.
  template <class Find, class Act>
  bool used_now(Find find, Act act) noexcept {
    if (forked()) return false;
    try {
      const time_point moment = now();
      const guard lock(mutex);
      const auto at = find();
      if (!at || (*at)->state() != slot_state::active) return false;
      act(**at);
      (*at)->active_at = moment;
      return true;
    } catch (...) {
      return false;
    }
  }

  /// A create under way: what a failed shutdown names while there is no id yet. The key makes the request unique.
  struct making_guard {
    making_guard(pool_core& where, const std::string& request) : pool(where) {
      const guard lock(pool.mutex);
      at = pool.making.insert(request).first;
    }
    ~making_guard() {
      const guard lock(pool.mutex);
      pool.making.erase(at);
    }
    making_guard(const making_guard&) = delete;
    making_guard& operator=(const making_guard&) = delete;
    pool_core& pool;
    std::set<std::string>::iterator at;
  };

  // ---- the end of one

  /// Begins the end of an entry whose key the caller holds. Under `mutex`.
  victim mark(entry_at at, key held = {}) noexcept {
    const slot_state former = at->state();
    table.move(at, slot_state::transitioning);
    return {std::move(held), at, former};
  }

  /// The same for the entry of a request, when its key is free and \p eligible says so: with the key held and the pool
  /// locked, so that no activity can slip in between. \p eligible must be trivial code.
  template <class Predicate>
  std::optional<victim> seize(const std::string& request, Predicate&& eligible) {
    key held = try_lock(request);
    if (!held) return std::nullopt;
    const guard lock(mutex);
    const auto at = table.by_request(request);
    if (!at || !eligible(std::as_const(**at))) return std::nullopt;
    return mark(*at, std::move(held));
  }

  /// What was tried, and when it had been used last: what was in use since then is worth another try.
  using candidacy = std::pair<std::uint64_t, time_point>;

  /// The same for the oldest entry in a state whose key is free and that is not in \p passed_over, where it is added.
  std::optional<victim> seize_oldest(slot_state state, std::vector<candidacy>& passed_over) {
    const guard lock(mutex);
    auto& candidates = table.in(state);
    for (auto at = candidates.begin(); at != candidates.end(); ++at) {
      const candidacy tried(at->tenancy, at->active_at);
      if (std::find(passed_over.begin(), passed_over.end(), tried) != passed_over.end()) continue;
      key held = try_lock(at->request);
      if (!held) continue;
      passed_over.push_back(tried);
      return mark(at, std::move(held));
    }
    return std::nullopt;
  }

  /// Ends a marked sandbox: claim, destroy, untrack, release the claim; in this order, with the key held throughout.
  /// `kept`: the store refused or could not answer, and the entry is back where it was; with \p whatever it is ended
  /// all the same. \p heir receives the slot of what is gone.
  ending end(victim v, counter reason, slot* heir = nullptr, time_point until = no_limit, bool whatever = false) {
    std::string id_after_it;
    const std::string& id = v.at->info.id;  // no copy: without memory the entry would be stuck in transition
    Sync::here("pool.teardown.marked");
    if (!claim(id, true) && !whatever) {
      const guard lock(mutex);
      table.move(v.at, v.former);
      return ending::kept;
    }
    Sync::here("pool.teardown.claimed");
    if (reason != nullptr) count(reason);
    const bool gone = destroy_repeatedly(id, until);
    {
      const guard lock(mutex);
      if (gone) {
        ++counters.destroyed;
        if (heir != nullptr) (*heir = std::move(v.at->place)).become(slot_state::reserved);
        id_after_it = table.untrack(v.at);
      } else {
        table.move(v.at, slot_state::tombstone);
      }
    }
    Sync::here("pool.teardown.untracked");
    release_in_store(gone ? id_after_it : id);
    return gone ? ending::gone : ending::tombstone;
  }

  /// The end of one that nobody will come back to. What the store does not let us end is forgotten when it has become a
  /// peer's. A peer that held it when we claimed and holds it no more when we ask has ended it, or left it to us: then
  /// the claim is made again. Else it becomes a tombstone, so that it is tried again.
  void end_for_good(victim v, time_point until = no_limit) {
    const key held = std::move(v.held);
    const entry_at at = v.at;
    constexpr int claims = 3;  // each but the last was overtaken by a whole tenancy of a peer
    for (int left = claims; end(std::move(v), nullptr, nullptr, until) == ending::kept; v = again(at)) {
      const holder who = holder_of(at->info.id);
      if (who == holder::a_peer) return forget(at);
      if (who == holder::nobody && --left > 0) continue;
      if (who == holder::unknown) count(&provider_stats::backend_errors);
      const guard lock(mutex);
      if (at->state() != slot_state::tombstone) table.move(at, slot_state::tombstone);
      return;
    }
  }
  victim again(entry_at at) noexcept {
    const guard lock(mutex);
    return mark(at);
  }

  provider_stats stats() const {
    if (forked()) return {};
    const guard lock(mutex);
    provider_stats result = counters;
    const slot_census census = slots.census();
    result.reserved = census[slot_state::reserved];
    result.active = census[slot_state::active];
    result.warm = census[slot_state::warm];
    result.transitioning = census[slot_state::transitioning];
    result.tombstones = census[slot_state::tombstone];
    result.shut_down = fence.is_closed();
    for (const auto& e : table.in(slot_state::tombstone)) result.leftover.push_back(e.info.id);
    if (unfinished) {
      for (const auto state : {slot_state::transitioning, slot_state::active, slot_state::warm})
        for (const auto& e : table.in(state)) result.leftover.push_back(e.info.id);
      result.leftover.insert(result.leftover.end(), making.begin(), making.end());
    }
    return result;
  }

  const pool_settings settings;
  const long born_in = detail::process_id();
  const std::shared_ptr<B> maker;
  const std::shared_ptr<S> store;
  basic_admission_fence<Sync> fence;
  ledger slots;
  serializer keys;

  mutable typename Sync::mutex mutex;
  sandboxes table;
  provider_stats counters;                          // the gauges in it are filled in by stats()
  std::set<std::string> making;                     // requests whose create is under way
  std::map<std::string, time_point> unowned_since;  // orphans in their grace
  std::set<std::string> strays;                     // ids that are being ended without ever having been tracked
  bool swept = false;       // a sweep has read the table: who finds the fence closed now cleans up after itself
  bool unfinished = false;  // the last shutdown left something
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_CORE_HPP
