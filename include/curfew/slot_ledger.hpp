// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// slot_ledger: a capacity whose every unit is a move-only object in exactly one named state. Use it where a unit stays
/// taken while the thing in it changes hands, is being ended, or could not be ended. Where a unit is just taken and
/// given back, std::counting_semaphore is enough. See docs/design/second_tier.md.

#ifndef CURFEW_SLOT_LEDGER_HPP
#define CURFEW_SLOT_LEDGER_HPP

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/process_id.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE

/// What the thing in a slot is doing. Every state counts as taken: capacity is free only when the slot is gone.
enum class slot_state : unsigned char { reserved, active, warm, transitioning, tombstone };

/// What a `ticket` was told. `evictable`: a warm slot has appeared that the waiter may try to take over.
enum class slot_outcome : unsigned char { granted, evictable, timed_out, closed };

/// Slots per state, counted at one instant.
struct slot_census {
  std::array<std::size_t, 5> count{};
  std::size_t operator[](slot_state state) const noexcept { return count[static_cast<std::size_t>(state)]; }
  /// Slots in any state.
  std::size_t total() const noexcept { return count[0] + count[1] + count[2] + count[3] + count[4]; }
};

/// Hands out slots up to a limit, and says atomically which request was over it.
///
/// - `try_reserve` is the hard cap: no slot beyond `limit`.
/// - `try_burst` is the second hard cap, `limit + burst`.
/// - `exceed` is the soft cap's way out: a slot in any case.
/// - `ticket` waits in line, first come, first served; a slot that is freed goes to the head of the line and to nobody
///   else, so that a newcomer cannot overtake.
///
///     absent -> reserved            try_reserve, try_burst, exceed, a ticket that was granted
///     reserved .. tombstone         slot::become, any to any: which changes make sense is the owner's rule
///     any -> absent, or -> reserved slot::release: freed, or handed to the head of the line
///
/// Thread safety: the ledger from any thread; one slot or ticket from one thread at a time. Ordering: what was done
/// before a slot was released is visible to whoever is granted it. Destruction: with no slot and no ticket out; else
/// the process ends. In a forked child at any time; slots and tickets must be left alone there. Exceptions: none after
/// construction. Cost: one short critical section per operation, no allocation.
template <class Sync = std_sync>
class basic_slot_ledger {
 public:
  /// A time of the steady clock.
  using deadline = std::chrono::steady_clock::time_point;

  /// One unit of the capacity, taken while it lives. Must not outlive its ledger.
  class slot {
   public:
    slot() noexcept = default;
    slot(slot&& other) noexcept : home_(std::exchange(other.home_, nullptr)), state_(other.state_) {}
    slot& operator=(slot&& other) noexcept {
      if (this != &other) {
        release();
        home_ = std::exchange(other.home_, nullptr);
        state_ = other.state_;
      }
      return *this;
    }
    ~slot() { release(); }

    explicit operator bool() const noexcept { return home_ != nullptr; }
    /// The state it is in now.
    slot_state state() const noexcept { return state_; }

    /// Moves the slot to another state; on an empty slot nothing.
    void become(slot_state next) noexcept {
      if (home_ == nullptr) return;
      home_->move(state_, next);
      state_ = next;
    }
    /// Gives the capacity back; on an empty slot nothing.
    void release() noexcept {
      if (home_ != nullptr) std::exchange(home_, nullptr)->free(state_);
    }

   private:
    friend class basic_slot_ledger;
    explicit slot(basic_slot_ledger* home) noexcept : home_(home) {}

    basic_slot_ledger* home_ = nullptr;
    slot_state state_ = slot_state::reserved;
  };

  /// A place in the line. Its destructor leaves the line and gives back a grant that was not taken.
  class ticket {
   public:
    explicit ticket(basic_slot_ledger& home) noexcept : home_(home) { home_.join_line(*this); }
    ticket(const ticket&) = delete;
    ticket& operator=(const ticket&) = delete;
    ~ticket() { home_.leave_line(*this); }

    /// Waits until there is something to tell. After `evictable` the caller tries to evict and, when that failed, waits
    /// again without having lost its place; a later warm slot is told again.
    [[nodiscard("curfew: only a granted ticket has a slot to take")]] slot_outcome wait_until(deadline until) noexcept {
      return home_.wait(*this, until);
    }

    /// The granted slot; empty before `granted`, and the second time.
    [[nodiscard("curfew: the slot is given back when this ends")]] slot take() noexcept {
      std::lock_guard lock(home_.mutex_);
      return std::exchange(granted_, false) ? slot(&home_) : slot();
    }

   private:
    friend class basic_slot_ledger;
    basic_slot_ledger& home_;
    ticket* next_ = nullptr;
    ticket* previous_ = nullptr;
    bool in_line_ = false;
    bool granted_ = false;
    bool evictable_ = false;
    typename Sync::condition_variable told_;
  };

  /// \throws std::invalid_argument when the limit is 0
  explicit basic_slot_ledger(std::size_t limit, std::size_t burst = 0) : limit_(limit), burst_(burst) {
    if (limit == 0) CURFEW_THROW(std::invalid_argument("slot_ledger: the limit must not be 0"));
  }
  basic_slot_ledger(const basic_slot_ledger&) = delete;
  basic_slot_ledger& operator=(const basic_slot_ledger&) = delete;
  ~basic_slot_ledger() {
    if (census_.total() == 0 && first_ == nullptr) return;
    // In a forked child they belong to the parent: what threads wait on is in their tickets, which are not touched.
    if (detail::process_id() == born_in_) detail::fail("slot_ledger destroyed while a slot is taken");
  }

  /// A slot within the limit; empty when there is none, or when closed.
  [[nodiscard("curfew: the slot is given back when this ends")]] slot try_reserve() noexcept {
    return grant_below(limit_);
  }
  /// A slot within limit and burst together.
  [[nodiscard("curfew: the slot is given back when this ends")]] slot try_burst() noexcept {
    return grant_below(limit_ + burst_ < limit_ ? ~std::size_t{0} : limit_ + burst_);
  }
  /// A slot whatever the limit; empty only when closed.
  [[nodiscard("curfew: the slot is given back when this ends")]] slot exceed() noexcept {
    return grant_below(~std::size_t{0});
  }

  /// Refuses every request from now on and wakes everybody in line with `closed`. Slots that are out stay valid. True
  /// for the one call that closed it.
  bool close() noexcept {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    closed_ = true;
    for (ticket* t = first_; t != nullptr; t = t->next_) t->told_.notify_one();
    return true;
  }

  /// Tells the head of the line again that a warm slot may be free to evict: for a caller that parked one, and has only
  /// now let go of whatever kept an evictor from it.
  void nudge() noexcept {
    std::lock_guard lock(mutex_);
    announce_warm();
  }

  /// How many slots are in each state, at one moment; what the limit is; whether newcomers are refused.
  slot_census census() const noexcept {
    std::lock_guard lock(mutex_);
    return census_;
  }
  std::size_t limit() const noexcept { return limit_; }
  [[nodiscard("curfew: only asks, close() closes")]] bool is_closed() const noexcept {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  /// How many tickets wait. Stale as soon as it is returned.
  std::size_t was_waiting() const noexcept {
    std::lock_guard lock(mutex_);
    std::size_t n = 0;
    for (const ticket* t = first_; t != nullptr; t = t->next_) ++n;
    return n;
  }

 private:
  std::size_t& count(slot_state state) noexcept { return census_.count[static_cast<std::size_t>(state)]; }

  slot grant_below(std::size_t cap) noexcept {
    Sync::here("ledger.reserve.start");
    std::lock_guard lock(mutex_);
    if (closed_ || census_.total() >= cap) return slot();
    ++count(slot_state::reserved);
    return slot(this);
  }

  void move(slot_state from, slot_state to) noexcept {
    std::lock_guard lock(mutex_);
    --count(from);
    ++count(to);
    if (to == slot_state::warm && from != slot_state::warm) announce_warm();
  }

  void free(slot_state from) noexcept {
    Sync::here("ledger.release.start");
    std::lock_guard lock(mutex_);
    --count(from);
    serve_line();
  }

  // Grants while there is room, so that a line and room never stand side by side: a newcomer that finds room overtakes
  // nobody.
  void serve_line() noexcept {
    while (!closed_ && first_ != nullptr && census_.total() < limit_) {
      ticket& head = *first_;
      unlink(head);
      ++count(slot_state::reserved);
      head.granted_ = true;
      head.told_.notify_one();
      if (head.evictable_) announce_warm();  // the head will not use what it was told; the next one may
    }
  }

  void announce_warm() noexcept {
    if (count(slot_state::warm) == 0) return;
    for (ticket* t = first_; t != nullptr; t = t->next_) {
      if (t->evictable_) continue;
      t->evictable_ = true;
      t->told_.notify_one();
      return;
    }
  }

  void join_line(ticket& t) noexcept {
    std::lock_guard lock(mutex_);
    t.previous_ = last_;
    (last_ != nullptr ? last_->next_ : first_) = &t;
    last_ = &t;
    t.in_line_ = true;
    t.evictable_ = count(slot_state::warm) != 0;
    serve_line();
  }

  void leave_line(ticket& t) noexcept {
    std::lock_guard lock(mutex_);
    const bool unused = t.evictable_;
    if (t.in_line_) unlink(t);
    if (t.granted_) {
      --count(slot_state::reserved);
      serve_line();
    }
    if (unused) announce_warm();
  }

  void unlink(ticket& t) noexcept {
    (t.previous_ != nullptr ? t.previous_->next_ : first_) = t.next_;
    (t.next_ != nullptr ? t.next_->previous_ : last_) = t.previous_;
    t.next_ = t.previous_ = nullptr;
    t.in_line_ = false;
  }

  slot_outcome wait(ticket& t, deadline until) noexcept {
    Sync::here("ledger.wait.start");
    std::unique_lock lock(mutex_);
    for (;;) {
      if (t.granted_) return slot_outcome::granted;
      if (closed_) return slot_outcome::closed;
      if (std::exchange(t.evictable_, false)) return slot_outcome::evictable;
      if (t.told_.wait_until(lock, until) == std::cv_status::timeout && !t.granted_ && !closed_ && !t.evictable_)
        return slot_outcome::timed_out;
    }
  }

  mutable typename Sync::mutex mutex_;
  slot_census census_;
  const std::size_t limit_;
  const std::size_t burst_;
  ticket* first_ = nullptr;
  ticket* last_ = nullptr;
  bool closed_ = false;
  const long born_in_ = detail::process_id();
};

/// The one to use.
using slot_ledger = basic_slot_ledger<>;

CURFEW_END_NAMESPACE

#endif  // CURFEW_SLOT_LEDGER_HPP
