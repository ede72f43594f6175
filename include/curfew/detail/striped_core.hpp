// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The fence protocol for everyday use: a counter in sixteen stripes, each on a cache line of its own with the CLOSED
/// bit inside, so that entering threads do not share a line and one atomic operation is both count and verdict.
/// Once closed, releases are redirected to one exact shared counter. docs/design/admission_fence.md has the argument.

#ifndef CURFEW_DETAIL_STRIPED_CORE_HPP
#define CURFEW_DETAIL_STRIPED_CORE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <curfew/detail/config.hpp>
#include <curfew/detail/drain.hpp>
#include <curfew/detail/lot.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

// state_        open      may enter. Read first by every entrant, written only under the lot lock.
//               closed    refused; close() may still be harvesting, passes may be out, or the last leaver may be on its
//                         way to the lot lock.
//               drained   refused and empty, and nobody but its owner will touch the fence again.
//
// stripes_[i]   bit 0     CLOSED. An entrant whose add finds it set is refused, a leaver whose subtraction finds it set
//                         goes on to remaining_. Set and cleared only under the lot lock.
//               bits 1..  entered minus left on this stripe, modulo 2^63. One stripe may be negative (entered on
//               another
//                         one); only the sum over all stripes means anything. While CLOSED it is garbage that the next
//                         opening wipes: a refused entrant MUST NOT take its add back, since it might do so after that.
//
// remaining_    open      bias + passes carried over a cancel_close() and not yet left.
//               closing   the same minus early redirected leaves: the bias keeps it above zero until the harvest is in.
//               closed    the number of passes out, exactly. Falls by one for each leaver, rises by one for each
//                         clone (whose original keeps it above zero), so it reaches zero exactly once.
//
// open    -> closed    close(), drain_*()           under the lot lock, bit by bit over the stripes, then the harvest
// closed  -> drained   close() if the harvest is zero, else the leaver that takes remaining_ from 1 to 0
// drained -> open      reopen()
// closed  -> open      cancel_close(), if remaining_ is not zero; the number is carried over
//
// The signaller (who makes remaining_ zero) owns the fence until it has stored `drained` under the lot lock, which is
// its last access. Nobody may take remaining_ == 0 for drained.
template <class Sync>
class striped_core {
 public:
  using sync = Sync;
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  static constexpr const char* kind = "admission_fence";

  constexpr explicit striped_core(const char* name) noexcept : name_(name != nullptr ? name : "") {}
  striped_core(const striped_core&) = delete;
  striped_core& operator=(const striped_core&) = delete;

  ~striped_core() {
    drain_visit<Sync> section(*lot_, this);
    if (const std::uint64_t count = count_locked(); count != 0) {
      section.unlock();
      fail_occupied(kind, name_, count);
    }
    // Empty, but the last leaver has not been here yet: it still needs the fence.
    if (state_locked() == closed) section.await(time_point::max(), [] { return std::uint64_t{0}; });
    section.drop_hooks();
  }

  bool try_enter() noexcept {
    // order(fence.state, acquire): what preceded the closing, if refused; pairs with close_locked(), open_locked()
    if (state_.load(std::memory_order_acquire) != open) return false;
    Sync::here("fence.enter.checked");
    // order(fence.stripe, acquire): an admitted thread sees what preceded the opening; pairs with open_locked()
    return (own_stripe().fetch_add(one, std::memory_order_acquire) & closed_bit) == 0;
  }

  void clone() noexcept {
    // order(none, relaxed): the pass that is cloned keeps the count above zero, and the caller hands the clone over
    if ((own_stripe().fetch_add(one, std::memory_order_relaxed) & closed_bit) == 0) return;
    Sync::here("fence.clone.redirected");
    // order(none, relaxed): as above; the addition only has to be part of the counter's one order of changes
    remaining_.fetch_add(1, std::memory_order_relaxed);
  }

  void leave() noexcept {
    Sync::here("fence.leave.begin");
    // order(fence.stripe, release): what the pass protected; pairs with close_locked()
    if ((own_stripe().fetch_sub(one, std::memory_order_release) & closed_bit) == 0) return;
    Sync::here("fence.leave.redirected");
    // order(fence.remaining, acq_rel): what every pass protected; pairs with leave(), close_locked()
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Sync::here("fence.leave.zero");
    drain_visit<Sync> section(*lot_, this);
    settle_locked(section);
    Sync::here("fence.leave.settled");
  }

  bool close() noexcept {
    drain_visit<Sync> section(*lot_, this);
    return close_locked(section);
  }

  drain_result wait(time_point deadline, bool closing) noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (closing) close_locked(section);
    if (state_locked() == drained) return {drain_status::drained, 0};
    return section.await(deadline, [this] {
      const std::uint64_t count = count_locked();
      return count == 0 && state_locked() == closed ? 1 : count;  // the last release is still under way
    });
  }

  bool reopen() noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (state_locked() != drained) return false;
    // order(none, relaxed): zero and at rest: the signaller has been here, under the lock that is held now
    remaining_.store(bias, std::memory_order_relaxed);
    open_locked();
    return true;
  }

  bool cancel_close() noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (state_locked() != closed) return false;
    // order(none, relaxed): a first guess for the exchange below
    std::int64_t count = remaining_.load(std::memory_order_relaxed);
    for (bool carried = false; !carried;) {
      if (count == 0) return false;  // a signaller is on its way and will make it drained
      const std::int64_t next = count + bias;
      // order(fence.remaining, acq_rel): passes on what the leavers so far released; pairs with leave()
      carried = remaining_.compare_exchange_weak(count, next, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    Sync::here("fence.cancel.carried");
    open_locked();
    section.complete_reopened(static_cast<std::uint64_t>(count));
    return true;
  }

  bool is_closed() const noexcept {
    // order(fence.state, acquire): what preceded the closing; pairs with close_locked()
    return state_.load(std::memory_order_acquire) != open;
  }

  bool is_drained() const noexcept {
    // order(fence.state, acquire): every release and the signaller's last access; pairs with settle_locked()
    return state_.load(std::memory_order_acquire) == drained;
  }

  std::uint64_t inside() const noexcept {
    if (!is_closed()) return estimate();
    drain_visit<Sync> section(*lot_, this);  // waits for a harvest to end
    return count_locked();
  }

  /// False when the fence is drained already.
  bool enlist(drain_hook& hook) noexcept {
    drain_visit<Sync> section(*lot_, this);
    return section.add(hook, state_locked() == drained, name_);
  }

  bool on_drained(drain_hook& hook) noexcept {
    if (enlist(hook)) return true;
    drain_visit<Sync>::call(hook);
    return false;
  }

  bool cancel(drain_hook& hook) noexcept { return drain_visit<Sync>(*lot_, this).remove(hook); }

  void reset_after_fork_in_child(std::uint64_t held) noexcept {
    lot_->recreate_in_child();
    const bool was_open = state_locked() == open;
    // order(none, relaxed): the forked child has one thread
    for (stripe& each : stripes_) each.word.store(was_open ? 0 : closed_bit, std::memory_order_relaxed);
    // order(none, relaxed): as above
    remaining_.store(static_cast<std::int64_t>(held) + (was_open ? bias : 0), std::memory_order_relaxed);
    // order(none, relaxed): as above
    state_.store(was_open ? open : held != 0 ? closed : drained, std::memory_order_relaxed);
  }

  const char* name() const noexcept { return name_; }
  lot<Sync>* where() const noexcept { return lot_; }

 private:
  enum state : unsigned { open, closed, drained };
  using counter = typename Sync::template atomic<std::uint64_t>;
  struct alignas(cache_line) stripe {
    counter word{0};
  };

  static constexpr unsigned stripe_count = 16;
  static constexpr std::uint64_t closed_bit = 1;
  static constexpr std::uint64_t one = 2;
  static constexpr std::int64_t bias = std::int64_t{1} << 62;

  counter& own_stripe() noexcept { return stripes_[Sync::stripe() % stripe_count].word; }

  bool close_locked(drain_visit<Sync>& section) noexcept {
    if (state_locked() != open) return false;
    // Before the first CLOSED bit, so that a thread refused by a stripe is refused here ever after.
    // order(fence.state, release): what the closer did before; pairs with try_enter(), is_closed()
    state_.store(closed, std::memory_order_release);
    Sync::here("fence.close.flagged");
    std::int64_t harvest = 0;
    for (stripe& each : stripes_) {
      // order(fence.stripe, acq_rel): what the leavers so far released; pairs with leave()
      const std::uint64_t word = each.word.fetch_or(closed_bit, std::memory_order_acq_rel);
      harvest += static_cast<std::int64_t>(word) >> 1;
    }
    Sync::here("fence.close.harvested");
    // order(fence.remaining, acq_rel): the harvest and what it acquired, to the last leaver; pairs with leave()
    const std::int64_t before = remaining_.fetch_add(harvest - bias, std::memory_order_acq_rel);
    Sync::here("fence.close.counted");
    if (before + (harvest - bias) == 0) settle_locked(section);
    return true;
  }

  void settle_locked(drain_visit<Sync>& section) noexcept {
    section.complete_drained();
    // order(fence.state, release): every release, and that this is the last access; pairs with is_drained()
    state_.store(drained, std::memory_order_release);
  }

  void open_locked() noexcept {
    for (stripe& each : stripes_) {
      // order(fence.stripe, release): what preceded the opening, to whoever enters; pairs with try_enter()
      each.word.exchange(0, std::memory_order_release);
    }
    Sync::here("fence.open.wiped");
    // order(fence.state, release): the wiped stripes; pairs with try_enter()
    state_.store(open, std::memory_order_release);
  }

  state state_locked() const noexcept {
    // order(none, relaxed): written only under the lot lock, which the caller holds
    return state_.load(std::memory_order_relaxed);
  }

  std::uint64_t count_locked() const noexcept {
    if (state_locked() == open) return estimate();
    // order(fence.remaining, acquire): whoever reads zero may rely on what the leavers did; pairs with leave()
    return static_cast<std::uint64_t>(remaining_.load(std::memory_order_acquire));
  }

  // Exact when nobody enters or leaves at the same time.
  std::uint64_t estimate() const noexcept {
    // order(fence.remaining, acquire): passes carried over, and what their leavers did; pairs with leave()
    std::int64_t sum = remaining_.load(std::memory_order_acquire) - bias;
    for (const stripe& each : stripes_) {
      // order(fence.stripe, acquire): whoever reads zero may rely on what the leavers did; pairs with leave()
      sum += static_cast<std::int64_t>(each.word.load(std::memory_order_acquire)) >> 1;
    }
    return sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
  }

  // Read by all, written only by a closing and an opening.
  alignas(cache_line) typename Sync::template atomic<state> state_{open};
  const char* name_;
  lot<Sync>* lot_ = &process_lot<Sync>;  // through the object, so that all shared objects of a process use the same one

  alignas(cache_line) typename Sync::template atomic<std::int64_t> remaining_{bias};
  stripe stripes_[stripe_count];
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_STRIPED_CORE_HPP
