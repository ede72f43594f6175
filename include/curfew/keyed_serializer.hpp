// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// keyed_serializer: one at a time per key. Use it where a lock per key would be needed but the keys come and go, the
/// work under the lock is slow, and the thread that ends the work is not the one that began it. For a fixed handful of
/// keys and short sections a std::mutex each is simpler and faster. See docs/design/second_tier.md.

#ifndef CURFEW_KEYED_SERIALIZER_HPP
#define CURFEW_KEYED_SERIALIZER_HPP

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/lot.hpp>
#include <curfew/detail/process_id.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE

/// Why a `hold` is held, or is empty.
enum class serializer_outcome : unsigned char { acquired, busy, timed_out, closed };

/// Exclusion per key. Keys are held by move-only `hold` objects, not by threads: a hold may be taken here and dropped
/// there, or stored for hours.
///
/// A key that nobody holds costs nothing: its lane is made by the first holder and erased by the last, so the table is
/// bounded by the keys in use. Waiters of one key are served first come, first served, by handing the key over; keys
/// never wait for each other.
///
///     state of a lane (one per key in the table)
///       absent  nobody holds the key
///       held    one hold is out; `first..last` are the waiters, oldest first
///     absent -> held   acquire*, try_acquire*
///     held -> held     release with a waiter: the key passes to the oldest one
///     held -> absent   release without
///
/// Thread safety: every member from any thread. Ordering: what a holder did before it dropped the key is visible to the
/// next holder. Destruction: when no hold is out and nobody waits; anything else ends the process. In a forked child at
/// any time, and then it only keeps the table; a hold must not be dropped there. Exceptions: only
/// std::bad_alloc and what hashing or comparing a key throws, from the acquiring members, with nothing changed.
/// Cost: one short critical section and one hash per operation. `Hash` and `==` run inside that section, may not call
/// back, and must not throw for a key that is in the table. Acquiring a key twice from one thread waits for ever, as
/// for any lock.
template <class Key, class Hash = std::hash<Key>, class Sync = std_sync>
class keyed_serializer {
  struct waiter {
    explicit waiter(const Key& wanted) : key(wanted) {}
    const Key& key;
    waiter* next = nullptr;
    std::optional<serializer_outcome> verdict;  // written once, under the lock
    typename Sync::condition_variable told;
  };
  struct lane {
    waiter* first = nullptr;
    waiter* last = nullptr;
    std::size_t waiting = 0;
  };
  using table = std::unordered_map<Key, lane, Hash>;

 public:
  /// A time of the steady clock.
  using deadline = std::chrono::steady_clock::time_point;

  /// The right to a key, for as long as it lives. Must not outlive its serializer.
  class hold {
   public:
    hold() noexcept = default;
    hold(hold&& other) noexcept
        : home_(std::exchange(other.home_, nullptr)), held_(other.held_), outcome_(other.outcome_) {}
    hold& operator=(hold&& other) noexcept {
      if (this != &other) {
        release();
        home_ = std::exchange(other.home_, nullptr);
        held_ = other.held_;
        outcome_ = other.outcome_;
      }
      return *this;
    }
    ~hold() { release(); }

    explicit operator bool() const noexcept { return home_ != nullptr; }
    /// Why this hold is empty; `acquired` when it is not, and stays so after a release.
    serializer_outcome outcome() const noexcept { return outcome_; }

    /// Gives the key back, to who has waited longest; nothing for an empty hold.
    void release() noexcept {
      if (home_ != nullptr) std::exchange(home_, nullptr)->pass_on(held_);
    }

   private:
    friend class keyed_serializer;
    explicit hold(serializer_outcome outcome) noexcept : outcome_(outcome) {}
    hold(keyed_serializer* home, typename table::value_type* held) noexcept
        : home_(home), held_(held), outcome_(serializer_outcome::acquired) {}

    keyed_serializer* home_ = nullptr;
    typename table::value_type* held_ = nullptr;
    serializer_outcome outcome_ = serializer_outcome::busy;
  };

  keyed_serializer() : lanes_() {}
  keyed_serializer(const keyed_serializer&) = delete;
  keyed_serializer& operator=(const keyed_serializer&) = delete;
  ~keyed_serializer() {
    if (detail::process_id() != born_in_) return;  // a thread that is not here may have been changing the table
    if (!lanes_.empty()) detail::fail("keyed_serializer destroyed while a key is held");
    std::destroy_at(&lanes_);
  }

  /// Waits for the key. Empty only when the serializer was closed, before or during the wait.
  [[nodiscard("curfew: the key is free again when this ends")]] hold acquire(const Key& key) {
    return wait_for_key(key, std::nullopt);
  }

  /// Waits no longer than the deadline; a wait given up leaves nothing behind and delays nobody.
  [[nodiscard("curfew: the key is free again when this ends")]] hold acquire_until(const Key& key, deadline until) {
    return wait_for_key(key, until);
  }

  /// acquire_until() with a span from now.
  template <class R, class P>
  [[nodiscard("curfew: the key is free again when this ends")]] hold acquire_for(const Key& key,
                                                                                 std::chrono::duration<R, P> limit) {
    const deadline until = detail::deadline_after<typename Sync::clock>(limit);
    return wait_for_key(key, until == deadline::max() ? std::nullopt : std::optional(until));
  }

  /// The key if it is free; never waits.
  [[nodiscard("curfew: the key is free again when this ends")]] hold try_acquire(const Key& key) {
    return take_if_free(key, false);
  }

  /// As `try_acquire`, also after `close()`: for the one that closed it, to clean up under the same exclusion.
  [[nodiscard("curfew: the key is free again when this ends")]] hold try_acquire_closed(const Key& key) {
    return take_if_free(key, true);
  }

  /// Refuses everybody who does not hold a key yet, and wakes all waiters with `closed`. Holds stay valid. True for the
  /// one call that closed it.
  bool close() noexcept {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    closed_ = true;
    for (auto& [key, queue] : lanes_) {
      for (waiter* w = queue.first; w != nullptr;) {
        waiter* const next = w->next;
        tell(*w, serializer_outcome::closed);
        w = next;
      }
      queue = lane{};
    }
    return true;
  }

  /// Whether newcomers are refused.
  [[nodiscard("curfew: only asks, close() closes")]] bool is_closed() const noexcept {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  /// How many keys are held. Stale as soon as it is returned.
  std::size_t was_size() const noexcept {
    std::lock_guard lock(mutex_);
    return lanes_.size();
  }
  /// How many threads wait for the key. Stale as soon as it is returned.
  std::size_t was_waiting(const Key& key) const {
    std::lock_guard lock(mutex_);
    const auto found = lanes_.find(key);
    return found == lanes_.end() ? 0 : found->second.waiting;
  }

 private:
  hold take_if_free(const Key& key, bool even_if_closed) {
    Sync::here("serializer.try_acquire.start");
    std::lock_guard lock(mutex_);
    if (closed_ && !even_if_closed) return hold(serializer_outcome::closed);
    const auto [found, free] = lanes_.try_emplace(key);
    return free ? hold(this, &*found) : hold(serializer_outcome::busy);
  }

  hold wait_for_key(const Key& key, std::optional<deadline> until) {
    Sync::here("serializer.acquire.start");
    std::unique_lock lock(mutex_);
    if (closed_) return hold(serializer_outcome::closed);
    const auto [found, free] = lanes_.try_emplace(key);
    auto* const wanted = &*found;  // stays put: the lane lives until its last waiter was served
    if (free) return hold(this, wanted);

    waiter self(key);
    lane& queue = wanted->second;
    (queue.last != nullptr ? queue.last->next : queue.first) = &self;
    queue.last = &self;
    ++queue.waiting;
    while (!self.verdict) {
      if (!until) {
        self.told.wait(lock);
      } else if (self.told.wait_until(lock, *until) == std::cv_status::timeout && !self.verdict) {
        abandon(queue, self);
        return hold(serializer_outcome::timed_out);
      }
    }
    return *self.verdict == serializer_outcome::acquired ? hold(this, wanted) : hold(*self.verdict);
  }

  void pass_on(typename table::value_type* held) noexcept {
    Sync::here("serializer.release.start");
    std::lock_guard lock(mutex_);
    lane& queue = held->second;
    waiter* const next = queue.first;
    if (next == nullptr) {
      lanes_.erase(lanes_.find(held->first));
      return;
    }
    queue.first = next->next;
    if (queue.first == nullptr) queue.last = nullptr;
    --queue.waiting;
    tell(*next, serializer_outcome::acquired);
  }

  // Notifies under the lock: the waiter must take the lock to leave, so its condition variable cannot die meanwhile.
  static void tell(waiter& w, serializer_outcome verdict) noexcept {
    w.verdict = verdict;
    w.told.notify_one();
  }

  static void abandon(lane& queue, waiter& self) noexcept {
    waiter* before = nullptr;
    for (waiter* w = queue.first; w != &self; w = w->next) before = w;
    (before != nullptr ? before->next : queue.first) = self.next;
    if (queue.last == &self) queue.last = before;
    --queue.waiting;
  }

  mutable typename Sync::mutex mutex_;
  union {
    table lanes_;  // in a union, so that a forked child can leave it as it is
  };
  bool closed_ = false;
  const long born_in_ = detail::process_id();
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_KEYED_SERIALIZER_HPP
