// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The fence protocol for everyday use: a counter in sixteen lanes, each on a cache line of its own, in two backends.
/// Where the system has restartable sequences a thread adds to the cell of its CPU, in a sequence that also tests the
/// state, without any bus lock. Elsewhere, and whenever that does not work out, it adds to a stripe with the CLOSED bit
/// inside, so that one atomic operation is both count and verdict. Once closed, releases are redirected to one exact
/// shared counter. docs/design/admission_fence.md has the argument.

#ifndef CURFEW_DETAIL_STRIPED_CORE_HPP
#define CURFEW_DETAIL_STRIPED_CORE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <curfew/detail/config.hpp>
#include <curfew/detail/cpu_cells.hpp>
#include <curfew/detail/drain.hpp>
#include <curfew/detail/lot.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

// state         per_cpu    (the number of lanes) may enter, by the cell of the CPU or by a stripe.
// (cells_.gate) undecided  (zero) may enter; the first one to do so chooses between per_cpu and striped.
//               striped    may enter, by a stripe. This and all that follow are below zero.
//               closed     refused; close() may still be harvesting, passes may be out, or the last leaver may be on
//                          its way to the lot lock.
//               grouped    refused; close_group() owns it and has not harvested yet: all the counts are as when open.
//               drained    refused and empty, and nobody but its owner will touch the fence again.
//               Read first by every entrant. Written only under the lot lock, except from undecided to what was chosen.
//
// lanes[i]      local      entered minus left by sequences on CPU i, modulo 2^64. Changes only while the state is
//                          per_cpu: a sequence tests that and adds in one step, and close() restarts the sequences
//                          that had tested it before. One cell may be negative, as a stripe may.
//               shared     the stripe:
//                 bit 0    CLOSED. An entrant whose add finds it set is refused, a leaver whose subtraction finds it
//                          set goes on to remaining_. Set and cleared only under the lot lock.
//                 bits 1.. entered minus left on this stripe, modulo 2^63. Only the sum over all stripes and cells
//                          means anything. While CLOSED it is garbage that the next opening wipes: a refused entrant
//                          MUST NOT take its add back, since it might do so after that.
//
// remaining_    open       bias + passes carried over a cancel_close() and not yet left.
//               closing    the same minus early redirected leaves: the bias keeps it above zero until the harvest is
//                          in.
//               closed     the number of passes out, exactly. Falls by one for each leaver, rises by one for each
//                          clone (whose original keeps it above zero), so it reaches zero exactly once.
//
// undecided -> per_cpu, striped    the first entry
// any of these three, "open"
//           -> closed    close(), drain_*()   under the lot lock: the state; if it was per_cpu, a restart of all
//                                             sequences and the harvest of the cells; the stripes, bit by bit
//           -> grouped   close_group(), which goes on to closed or drained with no way back: the state alone; then,
//                        with no lock held, one restart for all its fences; then the harvest of each, under its lock
// closed    -> drained   close() if the harvest is zero, else the leaver that takes remaining_ from 1 to 0
// drained   -> open      reopen(), which chooses anew
// closed    -> open      cancel_close(), if remaining_ is not zero; the number is carried over
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
    if (is_ending(state_locked())) section.await(time_point::max(), [] { return std::uint64_t{0}; });
    section.drop_hooks();
  }

  bool try_enter() noexcept {
    if (Sync::template add_on_cpu<1>(cells_)) return true;
    // order(fence.state, acquire): what preceded the closing, if refused, or the opening; pairs with close_locked(),
    // open_locked(), choose()
    const int seen = cells_.gate.load(std::memory_order_acquire);
    return is_open(seen) && enter_elsewhere(seen);
  }

  void clone() noexcept {
    if (Sync::template add_on_cpu<1>(cells_)) [[likely]]
      return;
    // order(none, relaxed): the pass that is cloned keeps the count above zero, and the caller hands the clone over
    if ((own_stripe().fetch_add(one, std::memory_order_relaxed) & closed_bit) == 0) return;
    Sync::here("fence.clone.redirected");
    // order(none, relaxed): as above; the addition only has to be part of the counter's one order of changes
    remaining_.fetch_add(1, std::memory_order_relaxed);
  }

  void leave() noexcept {
    Sync::here("fence.leave.begin");
    if (Sync::template add_on_cpu<-1>(cells_)) [[likely]]
      return;
    leave_stripe();
  }

  bool close() noexcept {
    drain_visit<Sync> section(*lot_, this);
    return close_locked(section);
  }

  /// close() for \p count fences, with one restart for as many of them as group_size instead of one for each. \p at(i)
  /// is the i-th fence.
  template <class At>
  static void close_group(std::size_t count, At at) noexcept {
    for (std::size_t begin = 0; begin < count; begin += group_size) {
      member group[group_size];
      const std::size_t some = count - begin < group_size ? count - begin : group_size;
      bool restart = false;
      for (std::size_t i = 0; i < some; ++i) restart |= at(begin + i).begin_closing(group[i]);
      Sync::here("fence.close_group.flagged");
      if (restart) Sync::restart_all();
      // What is not empty may be gone as soon as it is harvested, and what was closed by somebody else at any time.
      for (member& each : group) {
        if (each.fence != nullptr && !each.fence->end_closing(each)) each.fence = nullptr;
      }
      Sync::here("fence.close_group.harvested");
      for (member& each : group) {
        if (each.fence != nullptr) each.fence->settle_deferring(each.hooks);
      }
      // Last of all, since a hook may wait for another one of the group.
      for (member& each : group) {
        if (each.fence != nullptr) drain_visit<Sync>(*each.where, each.fence).serve(each.hooks);
      }
    }
  }

  drain_result wait(time_point deadline, bool closing) noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (closing) close_locked(section);
    if (state_locked() == drained) return {drain_status::drained, 0};
    return section.await(deadline, [this] {
      const std::uint64_t count = count_locked();
      return count == 0 && is_ending(state_locked()) ? 1 : count;  // the last release is still under way
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
    await_harvest_locked(section);
    if (state_locked() != closed) return false;
    // order(none, relaxed): a first guess for the exchange below
    std::int64_t count = remaining_.load(std::memory_order_relaxed);
    for (bool carried = false; !carried;) {
      if (count == 0) return false;  // a signaller is on its way and will make it drained
      const std::int64_t next = count + bias;
      // order(fence.remaining, acq_rel): passes on what the leavers so far released; pairs with leave_closed()
      carried = remaining_.compare_exchange_weak(count, next, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    Sync::here("fence.cancel.carried");
    open_locked();
    section.complete_reopened(static_cast<std::uint64_t>(count));
    return true;
  }

  bool is_closed() const noexcept {
    // order(fence.state, acquire): what preceded the closing; pairs with close_locked()
    return !is_open(cells_.gate.load(std::memory_order_acquire));
  }

  bool is_drained() const noexcept {
    // order(fence.state, acquire): every release and the signaller's last access; pairs with settle_locked()
    return cells_.gate.load(std::memory_order_acquire) == drained;
  }

  std::uint64_t inside() const noexcept {
    if (!is_closed()) {
      Sync::here("fence.inside.open");
      const std::uint64_t count = estimate();
      if (!is_closed()) return count;  // else a closing may have taken what was there to be counted
    }
    drain_visit<Sync> section(*lot_, this);  // waits for a harvest to end
    await_harvest_locked(section);
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
    const bool was_open = is_open(state_locked());
    for (lane& each : cells_.lanes) {
      // order(none, relaxed): the forked child has one thread
      each.local.store(0, std::memory_order_relaxed);
      // order(none, relaxed): as above
      each.shared.store(was_open ? 0 : closed_bit, std::memory_order_relaxed);
    }
    // order(none, relaxed): as above
    remaining_.store(static_cast<std::int64_t>(held) + (was_open ? bias : 0), std::memory_order_relaxed);
    // order(none, relaxed): as above
    cells_.gate.store(was_open ? undecided : held != 0 ? closed : drained, std::memory_order_relaxed);
  }

  const char* name() const noexcept { return name_; }
  lot<Sync>* where() const noexcept { return lot_; }

 private:
  using cells = cpu_cells<Sync>;
  using lane = typename cells::lane;
  using counter = typename Sync::template atomic<std::uint64_t>;

  static constexpr std::size_t group_size = 64;
  static constexpr int per_cpu = cells::lane_count;
  static constexpr int undecided = 0;
  static constexpr int striped = -1;
  static constexpr int closed = -2;
  static constexpr int drained = -3;
  static constexpr int grouped = -4;
  static constexpr bool is_ending(int state) noexcept { return state == closed || state == grouped; }
  static constexpr bool is_open(int state) noexcept { return state > closed; }

  static constexpr std::uint64_t closed_bit = 1;
  static constexpr std::uint64_t one = 2;
  static constexpr std::int64_t bias = std::int64_t{1} << 62;

  // A fence that close_group() is closing; null when it has no business with it (any more). From settling on a mere
  // address.
  struct member {
    striped_core* fence = nullptr;
    lot<Sync>* where = nullptr;
    bool by_cells = false;
    lot_list hooks;
  };

  // True when the sequences must be restarted.
  bool begin_closing(member& self) noexcept {
    drain_visit<Sync> section(*lot_, this);
    if (!is_open(state_locked())) return false;
    // order(fence.state, release): what the closer did before; pairs with try_enter(), is_closed(), choose()
    const int before = cells_.gate.exchange(grouped, std::memory_order_release);
    self = {this, lot_, before == per_cpu, {}};
    return self.by_cells;
  }

  // True for the signaller.
  bool end_closing(const member& self) noexcept {
    drain_visit<Sync> section(*lot_, this);
    const bool is_empty = harvest_locked(self.by_cells);
    // order(fence.state, release): what the closer did before; pairs with is_closed()
    cells_.gate.store(closed, std::memory_order_release);
    section.tell_harvested();
    return is_empty;
  }

  void settle_deferring(lot_list& hooks) noexcept {
    drain_visit<Sync> section(*lot_, this);
    section.defer(hooks);
    settle_locked(section);
  }

  counter& own_stripe() noexcept { return cells_.lanes[Sync::stripe() % cells::lane_count].shared; }

  // The other way in and out. Not inlined: nothing with a bus lock stands beside the sequences, and who is refused
  // jumps over little. Where there are no sequences inlining gains nothing.
  CURFEW_NOINLINE bool enter_elsewhere(int seen) noexcept { return seen == undecided ? choose() : enter_stripe(); }

  bool enter_stripe() noexcept {
    Sync::here("fence.enter.checked");
    // order(fence.stripe, acquire): an admitted thread sees what preceded the opening; pairs with open_locked()
    return (own_stripe().fetch_add(one, std::memory_order_acquire) & closed_bit) == 0;
  }

  CURFEW_NOINLINE void leave_stripe() noexcept {
    // order(fence.stripe, release): what the pass protected; pairs with close_locked()
    if ((own_stripe().fetch_sub(one, std::memory_order_release) & closed_bit) == 0) return;
    leave_closed();
  }

  // The first to enter chooses for all; a close() that comes first wins. Not under the lot lock, since entering never
  // waits for anybody.
  CURFEW_NOINLINE bool choose() noexcept {
    const int chosen = chosen_backend();
    int before = undecided;
    // order(fence.state, acq_rel): where the cells are, and, if refused, what preceded the closing; pairs with
    // try_enter(), close_locked()
    cells_.gate.compare_exchange_strong(before, chosen, std::memory_order_acq_rel, std::memory_order_acquire);
    return is_open(before) && enter_stripe();
  }

  int chosen_backend() noexcept {
    const std::int64_t index = Sync::template restartable<cells>();
    if (index == 0) return striped;
    // order(none, relaxed): the word is the whole message
    cells_.index.store(index, std::memory_order_relaxed);
    return per_cpu;
  }

  CURFEW_NOINLINE void leave_closed() noexcept {
    Sync::here("fence.leave.redirected");
    // order(fence.remaining, acq_rel): what every pass protected; pairs with leave_closed(), close_locked()
    if (remaining_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Sync::here("fence.leave.zero");
    drain_visit<Sync> section(*lot_, this);
    settle_locked(section);
    Sync::here("fence.leave.settled");
  }

  bool close_locked(drain_visit<Sync>& section) noexcept {
    if (!is_open(state_locked())) return false;
    // Before the first CLOSED bit, so that a thread refused by a stripe is refused here ever after. An exchange, since
    // the first entry may be choosing the backend right now.
    // order(fence.state, release): what the closer did before; pairs with try_enter(), is_closed(), choose()
    const int before = cells_.gate.exchange(closed, std::memory_order_release);
    Sync::here("fence.close.flagged");
    if (before == per_cpu) Sync::restart_all();
    if (harvest_locked(before == per_cpu)) settle_locked(section);
    return true;
  }

  // The state has just ceased to be open, and if it was per_cpu, all sequences have been restarted since. True for the
  // signaller.
  bool harvest_locked(bool by_cells) noexcept {
    std::int64_t harvest = by_cells ? harvest_cells() : 0;
    for (lane& each : cells_.lanes) {
      // order(fence.stripe, acq_rel): what the leavers so far released; pairs with leave_stripe()
      const std::uint64_t word = each.shared.fetch_or(closed_bit, std::memory_order_acq_rel);
      harvest += static_cast<std::int64_t>(word) >> 1;
    }
    Sync::here("fence.close.harvested");
    // order(fence.remaining, acq_rel): the harvest and what it acquired, to the last leaver; pairs with
    // leave_closed()
    const std::int64_t earlier = remaining_.fetch_add(harvest - bias, std::memory_order_acq_rel);
    Sync::here("fence.close.counted");
    return earlier + (harvest - bias) == 0;
  }

  // Leaves the cells wiped.
  std::int64_t harvest_cells() noexcept {
    // order(none, relaxed): turns away those who come now before they try
    cells_.index.store(0, std::memory_order_relaxed);
    Sync::here("fence.close.restarted");
    std::int64_t harvest = 0;
    for (lane& each : cells_.lanes) {
      // order(fence.stripe, acquire): what those released who left by a sequence; pairs with leave()
      harvest += static_cast<std::int64_t>(each.local.load(std::memory_order_acquire));
      // order(none, relaxed): at rest until the gate is opened again
      each.local.store(0, std::memory_order_relaxed);
    }
    return harvest;
  }

  void await_harvest_locked(drain_visit<Sync>& section) const noexcept {
    while (state_locked() == grouped) section.await_harvest();
  }

  void settle_locked(drain_visit<Sync>& section) noexcept {
    section.complete_drained();
    // order(fence.state, release): every release, and that this is the last access; pairs with is_drained()
    cells_.gate.store(drained, std::memory_order_release);
  }

  void open_locked() noexcept {
    for (lane& each : cells_.lanes) {
      // order(fence.stripe, release): what preceded the opening, to whoever enters; pairs with enter_stripe()
      each.shared.exchange(0, std::memory_order_release);
    }
    Sync::here("fence.open.wiped");
    const int chosen = chosen_backend();
    // order(fence.state, release): the wiped lanes, and where the cells are; pairs with try_enter()
    cells_.gate.store(chosen, std::memory_order_release);
  }

  int state_locked() const noexcept {
    // order(none, relaxed): written only under the lot lock, which the caller holds (or makes a guess); a first entry
    // that chooses makes one open state of another
    return cells_.gate.load(std::memory_order_relaxed);
  }

  std::uint64_t count_locked() const noexcept {
    if (is_open(state_locked()) || state_locked() == grouped) return estimate();
    // order(fence.remaining, acquire): whoever reads zero may rely on what the leavers did; pairs with
    // leave_closed()
    return static_cast<std::uint64_t>(remaining_.load(std::memory_order_acquire));
  }

  // Exact when nobody enters or leaves at the same time.
  std::uint64_t estimate() const noexcept {
    const bool by_cells = state_locked() == per_cpu || state_locked() == grouped;  // at rest they are zero
    // order(fence.remaining, acquire): passes carried over, and what their leavers did; pairs with leave_closed()
    std::int64_t sum = remaining_.load(std::memory_order_acquire) - bias;
    for (const lane& each : cells_.lanes) {
      // order(fence.stripe, acquire): whoever reads zero may rely on what the leavers did; pairs with leave()
      sum += static_cast<std::int64_t>(each.shared.load(std::memory_order_acquire)) >> 1;
      if (!by_cells) continue;
      // order(fence.stripe, acquire): the same for those who left by a sequence; pairs with leave()
      sum += static_cast<std::int64_t>(each.local.load(std::memory_order_acquire));
    }
    return sum > 0 ? static_cast<std::uint64_t>(sum) : 0;
  }

  cells cells_;  // the first line of it is read by all and written only by a closing and an opening
  alignas(cache_line) typename Sync::template atomic<std::int64_t> remaining_{bias};
  const char* name_;
  lot<Sync>* lot_ = &process_lot<Sync>;  // through the object, so that all shared objects of a process use the same one
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_STRIPED_CORE_HPP
