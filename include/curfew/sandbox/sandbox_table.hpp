// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The sandboxes that a provider tracks: one entry each, found by id or by request, listed by state. Plain data under
/// its owner's mutex; the owner is sandbox_pool.

#ifndef CURFEW_SANDBOX_SANDBOX_TABLE_HPP
#define CURFEW_SANDBOX_SANDBOX_TABLE_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/slot_ledger.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Entries, each holding one slot whose state is the entry's state:
///
///     active         handed out, or about to be given back
///     warm           given back or adopted, ready to be handed out; listed by age, oldest first
///     transitioning  its end has begun: nobody may be given it, or be told that it is there
///     tombstone      its end could not be confirmed; it may still be running and keeps its slot
///     (reserved: a slot without an entry, held by the acquire that will fill it)
///
/// Who moves an entry from which state to which is the table in docs/design/sandbox_pool.md. An entry is a node in the
/// list of its state, so that a move is a splice: it allocates nothing and cannot fail. No member calls foreign code.
/// At most one entry has a given id, and at most one a given request.
template <class Sync>
class sandbox_table {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using slot = typename basic_slot_ledger<Sync>::slot;

  struct entry {
    sandbox_info info;    // fixed
    std::string request;  // fixed
    owner_key owner;      // of the last hand-out
    time_point active_at;
    std::uint64_t tenancy = 0;  // fixed; numbers entries for ever, so that a lease never speaks for a later one
    std::size_t leases = 0;
    bool anonymous = false;    // ended by the last release
    bool never_given = false;  // adopted, and not handed out yet
    slot place = {};
    slot_state state() const noexcept { return place.state(); }
  };
  using entry_at = typename std::list<entry>::iterator;

  std::optional<entry_at> by_id(const std::string& id) const { return lookup(ids_, id); }
  std::optional<entry_at> by_request(const std::string& request) const { return lookup(requests_, request); }
  std::list<entry>& in(slot_state state) noexcept { return listed_[static_cast<std::size_t>(state)]; }
  const std::list<entry>& in(slot_state state) const noexcept { return listed_[static_cast<std::size_t>(state)]; }

  /// The active entry that a lease was granted for.
  std::optional<entry_at> leased(const std::string& id, std::uint64_t tenancy) const {
    const auto found = by_id(id);
    const bool same = found && (*found)->tenancy == tenancy && (*found)->state() == slot_state::active;
    return same && (*found)->leases > 0 ? found : std::nullopt;
  }

  std::vector<std::string> requests_in(std::initializer_list<slot_state> states) const {
    std::vector<std::string> result;
    for (const slot_state state : states)
      for (const entry& e : in(state)) result.push_back(e.request);
    return result;
  }

  /// Adds an entry in \p state. Changes nothing when it throws, and \p place is moved from only when it does not.
  entry_at track(entry&& fresh, slot&& place, slot_state state) {
    std::list<entry> node;
    const entry_at at = node.insert(node.end(), std::move(fresh));
    ids_.emplace(at->info.id, at);
    try {
      requests_.emplace(at->request, at);
    } catch (...) {
      ids_.erase(at->info.id);
      throw;
    }
    at->tenancy = ++last_tenancy_;
    at->place = std::move(place);
    at->place.become(state);
    in(state).splice(position(at, state), node);
    return at;
  }

  /// Removes an entry, and frees its slot unless that was moved out before. Returns the id.
  std::string untrack(entry_at at) noexcept {
    ids_.erase(ids_.find(at->info.id));
    requests_.erase(requests_.find(at->request));
    std::string id = std::move(at->info.id);
    listed_[static_cast<std::size_t>(at->state())].erase(at);
    return id;
  }

  void move(entry_at at, slot_state to) noexcept {
    std::list<entry>& from = in(at->state());
    at->place.become(to);
    in(to).splice(position(at, to), from, at);
  }

 private:
  using index = std::unordered_map<std::string, entry_at>;

  static std::optional<entry_at> lookup(const index& where, const std::string& what) {
    const auto found = where.find(what);
    return found == where.end() ? std::nullopt : std::optional<entry_at>(found->second);
  }

  // The end, but by age among the warm. What is parked now is the youngest, so this seldom takes a step.
  entry_at position(entry_at at, slot_state to) noexcept {
    std::list<entry>& target = in(to);
    auto before = target.end();
    if (to != slot_state::warm) return before;
    while (before != target.begin() && std::prev(before)->active_at > at->active_at) --before;
    return before;
  }

  std::array<std::list<entry>, 5> listed_;
  index ids_;
  index requests_;
  std::uint64_t last_tenancy_ = 0;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_SANDBOX_TABLE_HPP
