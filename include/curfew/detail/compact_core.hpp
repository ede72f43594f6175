// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The fence protocol in one word, for one fence per object and millions of objects. Threads that enter share that
/// word's cache line. The lot is touched only when somebody waits.

#ifndef CURFEW_DETAIL_COMPACT_CORE_HPP
#define CURFEW_DETAIL_COMPACT_CORE_HPP

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <curfew/detail/config.hpp>
#include <curfew/detail/drain.hpp>
#include <curfew/detail/lot.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

// word_   bit 0    CLOSED. Entrants are refused.
//         bit 1    WAITERS. Threads or hooks may be registered in the lot. Set only under the lot lock; may stay set
//                  after the last of them has gone, must not be clear while one is there.
//         bits 2.. passes out.
//
// 0                 -> CLOSED|...         close(), drain_*(): one RMW
// CLOSED, n > 0     -> CLOSED             the last leaver, nobody waits: drained by this very subtraction
// CLOSED|WAITERS, n -> CLOSED|WAITERS, 0  the last leaver, or a close() of an empty fence: now it is the signaller
// CLOSED|WAITERS, 0 -> CLOSED             the signaller, under the lot lock, as its last access: drained
// CLOSED            -> 0                  reopen()
// CLOSED, n > 0     -> n                  cancel_close(), under the lot lock
//
// So CLOSED|WAITERS with nobody inside means exactly that a signaller is on its way to the lot lock. It owns the fence
// until it has cleared WAITERS; who comes to wait in between registers and is served by it.
template <class Sync>
class compact_core {
 public:
  using sync = Sync;
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  static constexpr const char* kind = "compact_admission_fence";

  constexpr explicit compact_core(const char* name) noexcept : name_(name != nullptr ? name : "") {}
  compact_core(const compact_core&) = delete;
  compact_core& operator=(const compact_core&) = delete;

  ~compact_core() {
    const std::uint64_t word = look();
    if (count_in(word) != 0) fail_occupied(kind, name_, count_in(word));
    if ((word & waiters) == 0) return;
    drain_visit<Sync> section(process_lot<Sync>, this);
    // Empty, but the last leaver has not been here yet: it still needs the fence.
    if (look() == (closed | waiters)) section.await(time_point::max(), [] { return std::uint64_t{0}; });
    section.drop_hooks();
  }

  bool try_enter() noexcept {
    std::uint64_t word = look();
    do {
      if ((word & closed) != 0) return false;
      Sync::here("compact.enter.checked");
      // order(compact.word, acquire): what preceded the opening, or the closing; pairs with reopen(), close()
    } while (!word_.compare_exchange_weak(word, word + one, std::memory_order_acquire, std::memory_order_acquire));
    return true;
  }

  void clone() noexcept {
    // order(none, relaxed): the pass that is cloned keeps the count above zero, and the caller hands the clone over
    word_.fetch_add(one, std::memory_order_relaxed);
  }

  void leave() noexcept {
    Sync::here("compact.leave.begin");
    // order(compact.word, release): what the pass protected; pairs with settle_locked(), close(), look()
    if (word_.fetch_sub(one, std::memory_order_release) != (one | waiters | closed)) return;
    Sync::here("compact.leave.zero");
    drain_visit<Sync> section(process_lot<Sync>, this);
    settle_locked(section);
    Sync::here("compact.leave.settled");
  }

  bool close() noexcept {
    // order(compact.word, acq_rel): what the closer did, and what the leavers released; pairs with try_enter(), leave()
    const std::uint64_t before = word_.fetch_or(closed, std::memory_order_acq_rel);
    if ((before & closed) != 0) return false;
    Sync::here("compact.close.flagged");
    if (before == waiters) {
      drain_visit<Sync> section(process_lot<Sync>, this);
      settle_locked(section);
    }
    return true;
  }

  /// close() for \p count fences; hooks run when all of a group are closed, since one of them may wait for another
  /// fence.
  template <class At>
  static void close_group(std::size_t count, At at) noexcept {
    struct member {
      compact_core* fence = nullptr;  // when this thread is its signaller; from settling on a mere address
      lot_list hooks;
    };
    for (std::size_t begin = 0; begin < count; begin += group_size) {
      member group[group_size];
      for (std::size_t i = begin; i < count && i < begin + group_size; ++i) {
        // order(compact.word, acq_rel): what the closer did, and what the leavers released; pairs with try_enter(),
        // leave()
        if (at(i).word_.fetch_or(closed, std::memory_order_acq_rel) == waiters) group[i - begin].fence = &at(i);
      }
      for (member& each : group) {
        if (each.fence == nullptr) continue;
        drain_visit<Sync> section(process_lot<Sync>, each.fence);
        section.defer(each.hooks);
        each.fence->settle_locked(section);
      }
      for (member& each : group) {
        if (each.fence != nullptr) drain_visit<Sync>(process_lot<Sync>, each.fence).serve(each.hooks);
      }
    }
  }

  drain_result wait(time_point deadline, bool closing) noexcept {
    drain_visit<Sync> section(process_lot<Sync>, this);
    if (!announce_waiter(section, closing)) return {drain_status::drained, 0};
    return section.await(deadline, [this] {
      const std::uint64_t word = look();
      return word == (closed | waiters) ? 1 : count_in(word);  // 1: the last release is still under way
    });
  }

  bool reopen() noexcept {
    std::uint64_t word = closed;
    // order(compact.word, acq_rel): what preceded the opening, to whoever enters; pairs with try_enter(), leave()
    return word_.compare_exchange_strong(word, 0, std::memory_order_acq_rel, std::memory_order_acquire);
  }

  bool cancel_close() noexcept {
    drain_visit<Sync> section(process_lot<Sync>, this);
    const std::uint64_t keep = section.has_hooks() ? waiters : 0;
    std::uint64_t word = look();
    for (bool open = false; !open;) {
      if ((word & closed) == 0 || count_in(word) == 0) return false;
      const std::uint64_t next = (word & ~(closed | waiters)) | keep;
      // order(compact.word, acq_rel): what preceded the opening, to whoever enters; pairs with try_enter(), leave()
      open = word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_acquire);
    }
    section.complete_reopened(count_in(word));
    return true;
  }

  bool is_closed() const noexcept { return (look() & closed) != 0; }
  bool is_drained() const noexcept { return look() == closed; }
  std::uint64_t inside() const noexcept { return count_in(look()); }

  /// False when the fence is drained already.
  bool enlist(drain_hook& hook) noexcept {
    drain_visit<Sync> section(process_lot<Sync>, this);
    return section.add(hook, !announce_waiter(section, false), name_);
  }

  bool on_drained(drain_hook& hook) noexcept {
    if (enlist(hook)) return true;
    drain_visit<Sync>::call(hook);
    return false;
  }

  bool cancel(drain_hook& hook) noexcept { return drain_visit<Sync>(process_lot<Sync>, this).remove(hook); }

  void reset_after_fork_in_child(std::uint64_t held) noexcept {
    process_lot<Sync>.recreate_in_child();
    // order(none, relaxed): the forked child has one thread
    word_.store((look() & closed) | (held * one), std::memory_order_relaxed);
  }

  const char* name() const noexcept { return name_; }
  lot<Sync>* where() const noexcept { return &process_lot<Sync>; }

 private:
  static constexpr std::size_t group_size = 64;
  static constexpr std::uint64_t closed = 1;
  static constexpr std::uint64_t waiters = 2;
  static constexpr std::uint64_t one = 4;

  static constexpr std::uint64_t count_in(std::uint64_t word) noexcept { return word / one; }

  std::uint64_t look() const noexcept {
    // order(compact.word, acquire): what leavers, closer, signaller did; pairs with leave(), close(), settle_locked()
    return word_.load(std::memory_order_acquire);
  }

  // Under the lot lock. False when the fence is drained, which closing an empty one makes it; otherwise WAITERS is set
  // and the caller must register. One exchange does both: were CLOSED set first, the last leaver could leave between
  // the two, and somebody who saw the fence drained could destroy it under the second.
  bool announce_waiter(drain_visit<Sync>& section, bool closing) noexcept {
    std::uint64_t word = look();
    std::uint64_t next = 0;
    do {
      if (word == closed) return false;
      next = word | (closing ? closed : waiters);
      if (count_in(word) != 0) next |= waiters;
      if (next == word) return true;
      // order(compact.word, acq_rel): that somebody waits, and what the closer did; pairs with leave(), try_enter()
    } while (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel, std::memory_order_acquire));
    Sync::here("compact.wait.announced");
    if (!closing || count_in(word) != 0) return true;
    if ((word & waiters) != 0) settle_locked(section);  // it was this thread that closed it, and found it empty
    return false;
  }

  void settle_locked(drain_visit<Sync>& section) noexcept {
    section.complete_drained();
    // order(compact.word, acq_rel): all releases, to the hooks; the last access here; pairs with leave(), look()
    word_.fetch_and(~waiters, std::memory_order_acq_rel);
  }

  typename Sync::template atomic<std::uint64_t> word_{0};
  const char* name_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_COMPACT_CORE_HPP
