// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, fourth part: how an acquire comes by a slot. Room is made by ending what nobody
/// uses, and counts only once that end is confirmed.

#ifndef CURFEW_SANDBOX_POOL_ROOM_HPP
#define CURFEW_SANDBOX_POOL_ROOM_HPP

#include <chrono>
#include <optional>
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

/// Used by one acquire, which holds a pass and the key of its own request. Each candidate is tried once: one that could
/// not be ended is not hammered by the same acquire, unless its owner has used it and given it back in between.
///
/// `at_once` hands what it frees to its caller. `in_line` frees it for the head of the line, whoever that is: a
/// newcomer may do the work, but it overtakes nobody.
template <backend B, lease_store S, class Sync>
class pool_room {
 public:
  using core = pool_core<B, S, Sync>;
  using slot = typename core::slot;
  using time_point = typename core::time_point;

  /// Where one sandbox will be, and what to count when it has to be created.
  struct place {
    slot taken = {};
    typename core::counter when_created = nullptr;
  };

  explicit pool_room(core& pool) noexcept : pool_(pool) {}

  /// A slot within the limit, made if need be; empty when there is none to be had now.
  slot at_once() {
    slot taken = pool_.slots.try_reserve();
    if (!taken && !free_one(&taken, core::no_limit)) taken = pool_.slots.try_reserve();
    return taken;
  }

  /// The same, and waits its turn; empty when \p patience has passed or the pool was closed.
  slot in_line(std::chrono::nanoseconds patience) {
    const time_point begun = Sync::clock::now();
    const time_point until = patience >= core::no_limit - begun ? core::no_limit : begun + patience;
    typename core::ledger::ticket mine(pool_.slots);
    for (bool waited = false;;) {
      slot_outcome told = mine.wait_until({});  // looks, and does not wait
      const bool full = told == slot_outcome::timed_out || told == slot_outcome::evictable;
      if (full && !free_one(nullptr, until)) {
        if (!std::exchange(waited, true)) pool_.count(&provider_stats::waits);
        Sync::here("pool.room.waiting");
        told = mine.wait_until(until);
      }
      if (told == slot_outcome::granted) return mine.take();
      if (told == slot_outcome::closed || Sync::clock::now() >= until) return slot();
    }
  }

 private:
  // Retries one tombstone, else ends the oldest warm sandbox that can be ended.
  bool free_one(slot* heir, time_point until) {
    const auto gone = [&](std::optional<typename core::victim> v, typename core::counter reason) {
      return v && pool_.end(std::move(*v), reason, heir, until) == core::ending::gone;
    };
    if (gone(pool_.seize_oldest(slot_state::tombstone, tried_), nullptr)) return true;
    for (;;) {
      auto oldest = pool_.seize_oldest(slot_state::warm, tried_);
      if (!oldest) return false;
      if (gone(std::move(oldest), &provider_stats::evicted)) return true;
    }
  }

  core& pool_;
  std::vector<typename core::candidacy> tried_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_ROOM_HPP
