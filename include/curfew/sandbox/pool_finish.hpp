// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The engine under the providers, third part: the end of all sandboxes, once, within one budget, and with nothing left
/// behind unnamed.

#ifndef CURFEW_SANDBOX_POOL_FINISH_HPP
#define CURFEW_SANDBOX_POOL_FINISH_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/periodic_worker.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/pool_core.hpp>
#include <curfew/slot_ledger.hpp>
#include <curfew/teardown.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Ends a pool. Any number of calls from any threads: `once_teardown` makes one of them do it and the others wait for
/// its end, and makes the next call try again when something was left.
template <backend B, lease_store S, class Sync>
class pool_finish {
 public:
  using core = pool_core<B, S, Sync>;
  using worker = basic_periodic_worker<Sync>;
  using time_point = typename core::time_point;
  using guard = typename core::guard;
  using victim = typename core::victim;

  /// Shutdown; with \p hand_over reset, which leaves what was adopted and never given out to a successor. \p pool is
  /// shared, because a thread that is let go at the end of the budget keeps using it.
  teardown_status run(const std::shared_ptr<core>& pool, worker& upkeep, worker& renewal, bool hand_over) noexcept {
    for (const sweeping* s = sweeping::innermost(); s != nullptr; s = s->outer)
      if (s->pool == pool.get()) return teardown_status::in_progress;
    try {
      return once_.run([&] { end_all(pool, upkeep, renewal, hand_over); });
    } catch (...) {
      return teardown_status::failed;
    }
  }

 private:
  struct left_something {};  // thrown through once_teardown: not done, so the next call tries again

  // Marks a thread that ends sandboxes for a shutdown, so that a backend which calls shutdown from there is told so
  // and does not wait for itself.
  struct sweeping {
    explicit sweeping(const core* which) noexcept : pool(which), outer(innermost()) { innermost() = this; }
    ~sweeping() { innermost() = outer; }
    sweeping(const sweeping&) = delete;
    sweeping& operator=(const sweeping&) = delete;
    static const sweeping*& innermost() noexcept { return Sync::template local<sweeping, const sweeping*>(); }
    const core* pool;
    const sweeping* outer;
  };

  // What a sweep has to end, and who does it: each thread holds a pass, so that waiting for them can be bounded.
  struct batch {
    std::deque<victim> jobs;  // under the pool's mutex
    basic_admission_fence<Sync> sweepers{"sweep"};
  };

  // One clock for the drain and the sweep. The drain leaves the sweep a quarter of it, so that one call that hangs does
  // not keep the others' sandboxes running; when the sweep was quicker, the rest goes to the drain again.
  void end_all(const std::shared_ptr<core>& pool, worker& upkeep, worker& renewal, bool hand_over) {
    const sweeping marked(pool.get());
    pool->fence.close();
    pool->slots.close();
    pool->keys.close();
    Sync::here("pool.finish.closed");
    upkeep.stop(pool->settings.worker_stop);
    const time_point begun = Sync::clock::now();
    const auto budget = pool->settings.shutdown_budget;
    const time_point until = budget >= core::no_limit - begun ? core::no_limit : begun + budget;
    const bool drained(pool->fence.drain_until(until - (until - begun) / 4));
    Sync::here("pool.finish.drained");
    sweep(pool, hand_over, until);
    if (!drained && pool->fence.drain_until(until)) sweep(pool, hand_over, until);
    renewal.stop(pool->settings.worker_stop);  // last: it keeps the teardown marks of the sweep in force
    const bool empty = pool->fence.is_drained();
    const guard lock(pool->mutex);
    pool->unowned_since.clear();
    pool->unfinished = !empty || pool->slots.census().total() != 0;
    if (pool->unfinished) throw left_something{};
  }

  void sweep(const std::shared_ptr<core>& pool, bool hand_over, time_point until) {
    const auto all = std::make_shared<batch>();
    std::vector<std::string> handed_over;
    {
      const guard lock(pool->mutex);
      pool->swept = true;
      // A transition whose key is free was given up for lack of memory.
      for (const auto state :
           {slot_state::transitioning, slot_state::active, slot_state::warm, slot_state::tombstone}) {
        auto& listed = pool->table.in(state);
        for (auto next = listed.begin(); next != listed.end();) {
          const auto at = next++;
          typename core::key held(pool->keys.try_acquire_closed(at->request), pool->slots);
          if (!held) continue;  // under a call that outlived the drain, which will end it
          if (hand_over && at->never_given && state == slot_state::warm) {
            handed_over.push_back(at->info.id);
            ++pool->counters.forgotten;
            pool->table.untrack(at);
          } else {
            all->jobs.push_back(pool->mark(at, std::move(held)));
          }
        }
      }
    }
    for (const auto& id : handed_over) pool->release_in_store(id);
    if (!all->jobs.empty()) end_batch(pool, all, until);
  }

  // The calling thread only waits, so that it can stop waiting at the end of the budget; it works itself when there is
  // to be no other, or can be none.
  void end_batch(const std::shared_ptr<core>& pool, const std::shared_ptr<batch>& all, time_point until) {
    std::vector<typename Sync::thread> threads;
    const std::size_t wanted = std::min<std::size_t>(pool->settings.destroy_parallelism, all->jobs.size());
    if (pool->settings.destroy_parallelism > 1) try {
        threads.reserve(wanted);
        while (threads.size() < wanted)
          threads.emplace_back([pool, all, until, inside = all->sweepers.enter()]() mutable {
            work_off(*pool, *all, until);
            inside.release();
          });
      } catch (const std::exception&) {  // no thread, or no memory for one: those there are do it all
      }
    if (threads.empty()) work_off(*pool, *all, until);
    const bool done(all->sweepers.drain_until(until));
    for (auto& thread : threads) done ? thread.join() : thread.detach();
    const guard lock(pool->mutex);
    for (const auto& v : all->jobs) pool->table.move(v.at, slot_state::tombstone);  // not begun within the budget
    all->jobs.clear();
  }

  // Begins with none past \p until, except with the first.
  static void work_off(core& pool, batch& all, time_point until) noexcept {
    const sweeping marked(&pool);
    for (bool first = true;; first = false) {
      if (!first && Sync::clock::now() >= until) return;
      std::optional<victim> v;
      {
        const guard lock(pool.mutex);
        if (all.jobs.empty()) return;
        v = std::move(all.jobs.front());
        all.jobs.pop_front();
      }
      const auto at = v->at;
      const auto held = std::move(v->held);
      try {
        pool.end_for_good(std::move(*v), until);
        continue;
      } catch (const std::exception&) {  // no memory
      }
      const guard lock(pool.mutex);
      if (at->state() != slot_state::tombstone) pool.table.move(at, slot_state::tombstone);
    }
  }

  basic_once_teardown<Sync> once_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_FINISH_HPP
