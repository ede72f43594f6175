// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The waiting place. A fixed table of buckets, hashed by address, each one a mutex, a condition variable and a list of
/// nodes. Nodes live in the waiter's stack frame or in the waiter's own object, so waiting allocates nothing; the table
/// lives as long as the process, so that whoever ends a wait never touches the memory of the object that was waited
/// for, and can notify after it has unlocked.

#ifndef CURFEW_DETAIL_LOT_HPP
#define CURFEW_DETAIL_LOT_HPP

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <ratio>
#include <type_traits>
#include <utility>

#include <curfew/detail/cancel_shield.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/process_id.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// What a node waits for. Two protocols that use one address as their key do not see each other's nodes.
enum class lot_kind : unsigned char { sleeper, drainer, hook };

struct lot_list;

/// Intrusive and doubly linked. Every field is guarded by the mutex of the bucket that the key belongs to.
struct lot_node {
  lot_node* next = nullptr;
  lot_node* prev = nullptr;
  lot_list* home = nullptr;         // the list this node is on; null when on none
  const void* key = nullptr;        // what it waits for
  const unsigned* forks = nullptr;  // the lot's fork counter, and
  unsigned forks_seen = 0;          // its value when the node was enlisted
  lot_kind kind = lot_kind::sleeper;

  /// Whether a list still points here. A forked child that has recreated the lot has dropped all its parent's nodes.
  bool enlisted() const noexcept { return home != nullptr && *forks == forks_seen; }

  /// Whether it was taken off for good, by drop() or by a fork. To be asked under the lock.
  bool dropped() const noexcept { return home != nullptr ? *forks != forks_seen : key == nullptr; }
};

/// First in, first out. All zero when empty, so that the table of a process costs no relocations.
struct lot_list {
  lot_node* head = nullptr;
  lot_node* tail = nullptr;
  unsigned forks = 0;  // of a list that outlives a section: the lot's fork counter when it was filled

  void push_back(lot_node& node) noexcept {
    node.home = this;
    node.next = nullptr;
    node.prev = tail;
    (tail != nullptr ? tail->next : head) = &node;
    tail = &node;
  }
  void erase(lot_node& node) noexcept {
    (node.prev != nullptr ? node.prev->next : head) = node.next;
    (node.next != nullptr ? node.next->prev : tail) = node.prev;
    node.home = nullptr;
  }
  void drop(lot_node& node) noexcept {
    erase(node);
    node.key = nullptr;
  }
};

/// `now + span`, with `time_point::max()` for "no deadline" where that would overflow and `time_point::min()` for a
/// span that is not positive (or not a number).
template <class Clock, class Rep, class Period>
typename Clock::time_point deadline_after(std::chrono::duration<Rep, Period> span) noexcept {
  using time_point = typename Clock::time_point;
  constexpr double forever = 1.5e9;  // half a century in seconds: waits of 32-bit systems hold no more than 68 years
  const double seconds = std::chrono::duration_cast<std::chrono::duration<double>>(span).count();
  if (!(span > span.zero())) return time_point::min();
  if (seconds >= forever) return time_point::max();
  using clock_span = typename Clock::duration;
  if constexpr (std::is_integral_v<Rep> && std::ratio_divide<Period, typename Clock::period>::den == 1) {
    return Clock::now() + std::chrono::duration_cast<clock_span>(span);  // exact, and cannot overflow below that
  } else {
    const double ticks = std::ceil(std::chrono::duration<double, typename Clock::period>(span).count());
    return Clock::now() + clock_span(static_cast<typename clock_span::rep>(ticks));
  }
}

/// The table. Threads park on an address until a predicate holds; protocols that need more open a `visit`.
///
/// Locking: at most one bucket is ever held by a thread, nothing is called back under it except predicates of the kit,
/// and it is never held across a fork on purpose (see recreate_in_child()).
template <class Sync>
class lot {
  struct alignas(cache_line) bucket {
    typename Sync::mutex mutex;
    typename Sync::lasting_condition_variable wake;  // for all who sleep here, whatever their key
    lot_list nodes;
  };

 public:
  using time_point = typename Sync::clock::time_point;

  /// A thread that waits. `verdict` is 0 while it does.
  struct sleeper : lot_node {
    unsigned verdict = 0;
    std::uint64_t count = 0;
  };

  /// One critical section on the bucket of one key. It refers to the table alone: the object that the key points to may
  /// be gone by the time it ends.
  class visit {
   public:
    visit(lot& where, const void* key) noexcept
        : lot_(where), bucket_(where.bucket_of(key)), key_(key), lock_(bucket_.mutex) {}
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;
    ~visit() {
      if (lock_.owns_lock()) unlock();
    }

    /// Changes in a child that has made the lot anew, and so has dropped what was on any list.
    unsigned forks() const noexcept { return lot_.forks_; }

    void lock() noexcept { lock_.lock(); }

    /// Notifies whom wake() has told, and only now: a thread that is notified under the lock runs into it, and has to
    /// be woken a second time. By now those threads, their nodes and the object may be gone; the bucket never is.
    void unlock() noexcept {
      lock_.unlock();
      if (std::exchange(told_, false)) bucket_.wake.notify_all();
    }

    void enlist(lot_node& node, lot_kind kind) noexcept {
      node.key = key_;
      node.kind = kind;
      node.forks = &lot_.forks_;
      node.forks_seen = lot_.forks_;
      bucket_.nodes.push_back(node);
    }

    /// Takes the node off the list it is on, be it the bucket's or one that move_to() filled. False when it was on
    /// none.
    bool dismiss(lot_node& node) noexcept {
      if (!node.enlisted() || node.key != key_) return false;
      node.home->erase(node);
      return true;
    }

    bool any(lot_kind kind) const noexcept {
      for (const lot_node* node = bucket_.nodes.head; node != nullptr; node = node->next) {
        if (node->key == key_ && node->kind == kind) return true;
      }
      return false;
    }

    /// Moves every node of this key and kind to \p out, in order.
    void move_to(lot_list& out, lot_kind kind) noexcept {
      for (lot_node *node = bucket_.nodes.head, *next; node != nullptr; node = next) {
        next = node->next;
        if (node->key != key_ || node->kind != kind) continue;
        bucket_.nodes.erase(*node);
        out.push_back(*node);
      }
    }

    /// Ends the wait of every thread of this key and kind. Their nodes are not touched again.
    void wake(lot_kind kind, unsigned verdict, std::uint64_t count) noexcept {
      for (lot_node *node = bucket_.nodes.head, *next; node != nullptr; node = next) {
        next = node->next;
        if (node->key != key_ || node->kind != kind) continue;
        bucket_.nodes.erase(*node);
        auto& thread = static_cast<sleeper&>(*node);
        thread.verdict = verdict;
        thread.count = count;
        told_ = true;
      }
    }

    /// Waits, with the lock released, until somebody has called wake(). False when the deadline came first; the node is
    /// on no list in either case. A deadline that has passed already means: look once, do not wait. Not for a section
    /// that has called wake() itself, whose notification it would delay.
    bool sleep_until(sleeper& self, time_point deadline) noexcept {
      const cancel_shield uncancelled;
      while (self.verdict == 0) {
        if (deadline == time_point::max()) {
          bucket_.wake.wait(lock_);
        } else if (deadline == time_point::min() || Sync::clock::now() >= deadline) {
          bucket_.nodes.erase(self);
          return false;
        } else {
          bucket_.wake.wait_until(lock_, deadline);
        }
      }
      return true;
    }

   private:
    lot& lot_;
    bucket& bucket_;
    const void* key_;
    bool told_ = false;  // somebody's wait was ended, and the notification is owed
    std::unique_lock<typename Sync::mutex> lock_;
  };

  constexpr lot() noexcept = default;
  lot(const lot&) = delete;
  lot& operator=(const lot&) = delete;

  /// Blocks until \p holds() is true or the deadline has passed; returns what \p holds() said last. It is called with
  /// the bucket locked, so it must be short and must not come back here. Whoever makes it true calls unpark_all()
  /// after.
  template <class Predicate>
  bool park(const void* key, Predicate holds, time_point deadline = time_point::max()) noexcept {
    visit section(*this, key);
    while (!holds()) {
      sleeper self;
      section.enlist(self, lot_kind::sleeper);
      Sync::here("lot.park.enlisted");
      if (!section.sleep_until(self, deadline)) return holds();
    }
    return true;
  }

  /// Lets every thread parked on \p key look at its predicate again. Touches nothing behind \p key.
  void unpark_all(const void* key) noexcept { visit(*this, key).wake(lot_kind::sleeper, 1, 0); }

  /// For the single thread of a forked child: mutexes that vanished threads held are made anew, their nodes forgotten.
  void recreate() noexcept {
    for (bucket& each : buckets_) ::new (static_cast<void*>(&each)) bucket;
    ++forks_;
  }

  /// The same, once in each child however many fences and singletons ask for it: what has been registered in the child
  /// since the first call must not be forgotten by the next one. \p surely: where the number of the process does not
  /// tell.
  void recreate_in_child(bool surely = false) noexcept {
    if (const long self = process_id(); surely || recreated_in_ != self) {
      recreated_in_ = self;
      recreate();
    }
  }

 private:
  static constexpr unsigned bucket_bits = 7;

  bucket& bucket_of(const void* key) noexcept {
    const std::uint64_t address = Sync::number_of(key);
    return buckets_[((address >> 4) * 0x9E37'79B9'7F4A'7C15u) >> (64 - bucket_bits)];
  }

  bucket buckets_[std::size_t{1} << bucket_bits];
  // Both change only in a child that has a single thread.
  unsigned forks_ = 0;
  long recreated_in_ = 0;
};

static_assert(std::is_trivially_destructible_v<lot<std_sync>>, "curfew: the lot must outlive every static destructor");

/// One table for each policy and process.
template <class Sync>
CURFEW_VISIBLE inline constinit lot<Sync> process_lot{};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LOT_HPP
