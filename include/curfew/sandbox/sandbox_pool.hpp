// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers: the steps of an acquire, leases, and the workers. A provider adds the policy: how
/// room is made, what is idle, what may be adopted. See
/// docs/design/sandbox_pool.md.

#ifndef CURFEW_SANDBOX_SANDBOX_POOL_HPP
#define CURFEW_SANDBOX_SANDBOX_POOL_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/periodic_worker.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/pool_core.hpp>
#include <curfew/sandbox/pool_finish.hpp>
#include <curfew/sandbox/pool_room.hpp>
#include <curfew/sandbox/pool_upkeep.hpp>
#include <curfew/slot_ledger.hpp>
#include <curfew/teardown.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// All sandboxes of one provider. Made by `make`; kept alive by its provider and by the calls under way in it, which is
/// why a create that returns after its provider has gone still finds what it needs to destroy what it made.
///
/// Thread safety: every member from any thread. Where a step asks for a pass and a key, the caller keeps both from
/// before the first step to after the last.
template <backend B, lease_store S, class Sync = std_sync>
class sandbox_pool final : public lease_host, public std::enable_shared_from_this<sandbox_pool<B, S, Sync>> {
  using core = pool_core<B, S, Sync>;
  using worker = basic_periodic_worker<Sync>;
  using guard = typename core::guard;
  using counter = typename core::counter;
  using entry = typename core::entry;
  using victim = typename core::victim;
  using ending = typename core::ending;
  using time_point = typename core::time_point;

 public:
  using key = typename core::key;
  using pass = typename core::pass;
  using slot = typename core::slot;
  using entry_at = typename core::entry_at;

  static std::shared_ptr<sandbox_pool> make(std::shared_ptr<B> backend, std::shared_ptr<S> store,
                                            pool_settings settings, std::function<void(sandbox_pool&)> upkeep) {
    std::shared_ptr<sandbox_pool> pool(new sandbox_pool(std::move(backend), std::move(store), std::move(settings)));
    pool->add_worker(pool->maintain_, ".maintain", std::move(upkeep));
    pool->add_worker(pool->renew_, ".renew", [](sandbox_pool& self) { self.upkeep().renew_leases(); });
    return pool;
  }

  bool forked() const noexcept { return core_.forked(); }
  bool accepting() const noexcept { return !core_.forked() && !core_.fence.is_closed(); }
  provider_stats stats() const { return core_.stats(); }
  pool_upkeep<B, S, Sync> upkeep() noexcept { return pool_upkeep<B, S, Sync>(core_); }
  pool_room<B, S, Sync> room() noexcept { return pool_room<B, S, Sync>(core_); }
  core& state() noexcept { return core_; }

  /// Counts and throws admission_refused.
  [[noreturn]] void refuse() {
    if (!forked()) core_.count(&provider_stats::refused);
    throw admission_refused(core_.settings.name.c_str());
  }
  pass enter() {
    pass inside = core_.try_enter();
    if (!inside) refuse();
    return inside;
  }

  /// Runs \p before and starts the workers; false when that was done already. No backend call on the calling thread.
  template <class Before>
  bool start(std::chrono::nanoseconds maintain_every, std::chrono::nanoseconds renew_every, Before&& before) {
    const pass inside = enter();
    {
      const guard lock(core_.mutex);
      if (std::exchange(core_.counters.started, true)) return false;
    }
    try {
      before();
      renew_->start(renew_every);
      maintain_->start(maintain_every, std::chrono::nanoseconds::zero());
    } catch (...) {  // a renewal that did start goes on and refuses a second start; it does no harm
      const guard lock(core_.mutex);
      core_.counters.started = false;
      throw;
    }
    return true;
  }

  teardown_status finish(bool hand_over) noexcept {
    if (forked()) return teardown_status::completed;
    return finish_.run({this->shared_from_this(), &core_}, *maintain_, *renew_, hand_over);
  }

  /// For a forked child, which must not run the destructor: threads of the parent may wait in there.
  void outlive_process() noexcept { self_ = this->shared_from_this(); }

  // ---- acquire

  /// The owner's sandbox: the one in use, else the warm one, else a running one that is found, else a new one.
  /// \p make_room returns a `pool_room::place`, or throws; it is called with the pass and the key held.
  template <class MakeRoom>
  lease acquire(const owner_key& owner, MakeRoom&& make_room) {
    check_owner(owner);
    const auto inside = enter();
    const bool anonymous = owner.thread.empty();
    const std::string request = anonymous ? detail::random_id() : stable_id(owner);
    const key held = core_.lock(request);
    if (!held) refuse();  // a shutdown came first
    typename pool_room<B, S, Sync>::place room;
    if (const auto known = find(request, owner))
      if (auto again = hand_out(*known, owner, room.taken)) return std::move(*again);
    if (!room.taken) room = make_room();
    if (const auto found = anonymous ? std::nullopt : discover(request))
      if (auto adopted = adopt(*found, owner, request, room.taken)) return std::move(*adopted);
    if (room.when_created != nullptr) core_.count(room.when_created);
    return create(owner, request, std::move(room.taken), anonymous);
  }

  /// Ends the sandbox with this id, waiting for whoever works on it. True when it is confirmed gone.
  bool destroy(const std::string& id) {
    const pass inside = core_.try_enter();
    if (!inside) return false;
    std::string request;
    {
      const guard lock(core_.mutex);
      const auto at = core_.table.by_id(id);
      if (!at) return false;
      request = (*at)->request;
    }
    key held = core_.lock(request);
    if (!held) return false;
    std::optional<victim> v;
    {
      const guard lock(core_.mutex);
      const auto at = core_.table.by_id(id);
      if (!at || (*at)->request != request) return false;
      v = core_.mark(*at);
    }
    return core_.end(std::move(*v), nullptr) == ending::gone;
  }

  // ---- leases

  std::optional<sandbox_info> get(const std::string& id) noexcept {
    std::optional<sandbox_info> info;
    core_.used_now([&] { return core_.table.by_id(id); }, [&](entry& e) { info = e.info; });
    return info;
  }
  bool lease_valid(const std::string& id, std::uint64_t tenancy) const noexcept override {
    if (forked()) return false;
    const guard lock(core_.mutex);
    return core_.table.leased(id, tenancy).has_value();
  }
  bool touch_lease(const std::string& id, std::uint64_t tenancy) noexcept override {
    return core_.used_now([&] { return core_.table.leased(id, tenancy); }, [](entry&) {});
  }
  bool owns(const lease& granted) { return granted_by(granted, this->weak_from_this()); }

  /// The last lease of a sandbox parks it, in the critical section that finds the fence open. What a closed fence
  /// leaves active is for the sweep.
  void end_lease(const std::string& id, std::uint64_t tenancy) noexcept override {
    const pass inside = core_.try_enter();
    if (!inside) return;
    try {
      std::string request;
      const auto leased = [&] { return core_.table.leased(id, tenancy); };
      const auto leave = [&request](entry& e) {
        if (e.leases == 1) {
          request = e.request;
        } else {
          --e.leases;  // not the last, so nobody needs to be kept out
        }
      };
      if (!core_.used_now(leased, leave) || request.empty()) return;
      const key held = core_.lock(request);
      if (!held) return;
      Sync::here("pool.release.keyed");
      const bool to_park = last_of_its_owner(id, tenancy);
      const bool gone = to_park && !core_.extend(id);
      const time_point now = core_.now();
      std::optional<victim> v;
      {
        const guard lock(core_.mutex);
        const auto at = leased();
        if (!at || --(*at)->leases > 0) return;
        (*at)->active_at = now;
        const bool closed = core_.fence.is_closed();
        if (gone) {
          ++core_.counters.forgotten;
          core_.table.untrack(*at);
        } else if ((*at)->anonymous || (closed && core_.swept)) {
          v = core_.mark(*at);
        } else if (!closed) {
          core_.table.move(*at, slot_state::warm);
        }
      }
      if (gone) core_.release_in_store(id);
      if (v) core_.end_for_good(std::move(*v));
    } catch (...) {  // no memory, or a throwing clock: the sandbox stays active, and is ended when it has been idle
      core_.count(&provider_stats::backend_errors);
    }
  }

 private:
  // What a lease is made of, copied before the critical section that may not throw.
  struct grantee {
    sandbox_info info = {};
    owner_key owner = {}, whose = {};
    time_point at = {};
  };

  // ---- the steps of an acquire: the pass and the key of the request are held throughout

  /// What is tracked for a request. \throws identity_conflict when it is another owner's: ids are hashes
  std::optional<entry_at> find(const std::string& request, const owner_key& owner) {
    const guard lock(core_.mutex);
    const auto at = core_.table.by_request(request);
    if (at && !(*at)->never_given && (*at)->owner != owner) throw core::met_on((*at)->info.id);
    return at;
  }

  /// Reuse, or reclaim when it is warm. Empty when it cannot be handed out and was ended: then \p place is its slot.
  std::optional<lease> hand_out(entry_at at, const owner_key& owner, slot& place) {
    const std::string id = at->info.id;
    const bool failed_before = at->state() == slot_state::tombstone, contested = core_.may_be_a_peers(id);
    bool gone = failed_before || core_.probe(id) == liveness::dead;
    if (!gone) {
      core_.take(id);
      Sync::here("pool.acquire.taken");
      gone = (contested && core_.probe(id) == liveness::dead) || !core_.extend(id);
    }
    if (gone) {
      replaced(id, core_.end(mark(at), failed_before ? nullptr : &provider_stats::replaced, &place));
      return std::nullopt;
    }
    grantee to{at->info, owner, owner, core_.now()};
    std::optional<victim> late;
    {
      const guard lock(core_.mutex);
      if (!core_.fence.is_closed()) {
        ++(at->state() == slot_state::warm ? core_.counters.reclaimed : core_.counters.reused);
        return occupy(at, std::move(to));
      }
      if (core_.swept) late = core_.mark(at);
    }
    if (late) core_.end_for_good(std::move(*late));
    refuse();
  }

  /// A running sandbox that was made for this request, as far as the backend can tell.
  std::optional<sandbox_info> discover(const std::string& request) {
    try {
      if constexpr (requires { core_.maker->find(request); }) {
        if (auto found = core_.maker->find(request); found && !found->id.empty()) return found;
      } else {
        for (auto& item : core_.maker->list())
          if (!item.id.empty() && request_of(item) == request) return std::move(item);
      }
    } catch (...) {
      core_.count(&provider_stats::backend_errors);
    }
    return std::nullopt;
  }

  /// Takes a discovered sandbox over. Empty when it was gone and was ended: then \p place is the slot again.
  std::optional<lease> adopt(const sandbox_info& found, const owner_key& owner, const std::string& request,
                             slot& place) {
    core_.refuse_tracked(found.id);
    core_.take(found.id);
    Sync::here("pool.discover.taken");
    const bool gone = core_.probe(found.id) == liveness::dead || !core_.extend(found.id);
    grantee to{found, owner, owner, core_.now()};
    entry fresh{.info = found, .request = request, .owner = owner, .active_at = to.at};
    std::optional<victim> replaceable;
    {
      const guard lock(core_.mutex);
      core_.refuse_tracked_locked(found.id);
      if (!core_.fence.is_closed()) {
        const auto at = core_.table.track(std::move(fresh), std::move(place), slot_state::transitioning);
        ++core_.counters.adopted;
        if (!gone) return occupy(at, std::move(to));
        replaceable.emplace(victim{{}, at, slot_state::active});
      }
    }
    if (!replaceable) {  // it was not made here, so what runs is left to whoever asks next
      core_.release_in_store(found.id);
      refuse();
    }
    replaced(found.id, core_.end(std::move(*replaceable), &provider_stats::replaced, &place, core::no_limit, true));
    return std::nullopt;
  }

  /// Makes a sandbox and commits it. Whatever goes wrong, nothing is left that is not tracked. When a probe calls one
  /// dead that has just been made, it is looked up as well: a service may answer before it knows what it has begun.
  lease create(const owner_key& owner, const std::string& request, slot place, bool anonymous) {
    const typename core::making_guard in_flight(core_, request);
    entry fresh{.info = {}, .request = request, .owner = owner, .active_at = core_.now(), .anonymous = anonymous};
    grantee to{.owner = owner, .whose = owner};
    const bool contested = core_.may_be_a_peers(request);
    std::string spare = request;  // from the moment it runs until it is tracked, what fails ends it
    to.info =
        core_.call_create({request, owner, core_.settings.environment, core_.settings.time_to_live}, fresh, place);
    Sync::here("pool.acquire.created");
    const bool unnamed = to.info.id.empty();
    if (unnamed || to.info.id != request) (unnamed ? to.info.id : to.info.request_id) = std::move(spare);
    const std::string& id = to.info.id;
    std::exception_ptr unanswered;
    bool taken = false;
    std::optional<victim> unwanted;
    try {
      core_.refuse_tracked(id);
      try {
        taken = !unnamed && core_.store->take(id, core_.settings.owner_id, core_.settings.lease_ttl);
        Sync::here("pool.acquire.taken");
        // A peer that was ending the last one of this id may have met the new one, and be done by now.
        if (taken && contested && id == request) taken = core_.probe(id) != liveness::dead || discover(request);
        to.at = core_.now();
      } catch (...) {  // the store, or the clock; what was made is ended first
        unanswered = std::current_exception();
        core_.count(&provider_stats::backend_errors);
      }
      fresh.info = to.info;
      const guard lock(core_.mutex);
      core_.refuse_tracked_locked(id);
      const auto at = core_.table.track(std::move(fresh), std::move(place), slot_state::transitioning);
      ++core_.counters.created;
      if (taken && !unanswered && !core_.fence.is_closed()) return occupy(at, std::move(to));
      if (!unnamed) ++core_.counters.discarded;
      unwanted.emplace(victim{{}, at, slot_state::active});
    } catch (const identity_conflict&) {
      throw;                           // it is somebody else's
    } catch (const std::bad_alloc&) {  // nothing was tracked, so it must go now
      static_cast<void>(core_.destroy_repeatedly(id, core::no_limit));
      core_.release_in_store(id);
      throw;
    }
    core_.end(std::move(*unwanted), nullptr, nullptr, core::no_limit, true);
    if (unnamed) throw backend_error(backend_fault::bad_response, "create answered without a sandbox id");
    if (unanswered) std::rethrow_exception(unanswered);
    if (!taken) throw core::ended_by_peer(id);
    refuse();
  }

  sandbox_pool(std::shared_ptr<B> backend, std::shared_ptr<S> store, pool_settings settings)
      : core_(std::move(backend), std::move(store), std::move(settings)) {}

  // A worker knows the pool weakly: one that was let go in the middle of a tick must not keep it for ever.
  void add_worker(std::optional<worker>& to, const char* suffix, std::function<void(sandbox_pool&)> work) {
    const auto weak = this->weak_from_this();
    auto tick = [weak, work = std::move(work)] {
      if (const auto self = weak.lock()) work(*self);
    };
    auto counted = [weak](std::exception_ptr) {
      if (const auto self = weak.lock()) self->core_.count(&provider_stats::backend_errors);
    };
    to.emplace(core_.settings.name + suffix, std::move(tick), std::move(counted), core_.settings.worker_stop);
  }

  // With the key held nobody adds a lease, so what is the last one now stays the last.
  bool last_of_its_owner(const std::string& id, std::uint64_t tenancy) {
    const guard lock(core_.mutex);
    const auto at = core_.table.leased(id, tenancy);
    return at && (*at)->leases == 1 && !(*at)->anonymous;
  }
  victim mark(entry_at at) {
    const guard lock(core_.mutex);
    return core_.mark(at);
  }
  static void replaced(const std::string& id, ending how) {
    if (how != ending::gone)
      throw backend_error(backend_fault::conflict, "sandbox " + id + " could not be ended to be replaced");
  }
  // Under the pool's mutex, and nothing in it can fail.
  lease occupy(entry_at at, grantee&& to) noexcept {
    if (at->state() != slot_state::active) core_.table.move(at, slot_state::active);
    at->owner = std::move(to.owner);
    at->active_at = to.at;
    at->never_given = false;
    ++at->leases;
    return grant(this->weak_from_this(), std::move(to.info), std::move(to.whose), at->tenancy);
  }

  core core_;
  pool_finish<B, S, Sync> finish_;
  std::optional<worker> maintain_;
  std::optional<worker> renew_;
  std::shared_ptr<sandbox_pool> self_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_SANDBOX_POOL_HPP
