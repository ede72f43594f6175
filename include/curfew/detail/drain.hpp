// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the fence kinds share about being drained: the result of a wait, the hook, and the critical section in which
/// waits are ended. The protocols themselves are in striped_core.hpp and compact_core.hpp.

#ifndef CURFEW_DETAIL_DRAIN_HPP
#define CURFEW_DETAIL_DRAIN_HPP

#include <cstdint>
#include <cstdio>
#include <exception>

#include <curfew/detail/config.hpp>
#include <curfew/detail/lot.hpp>

CURFEW_BEGIN_NAMESPACE

namespace detail {
template <class Sync>
class drain_visit;
}  // namespace detail

/// How a wait for a fence, or for instances of a singleton, ended.
enum class drain_status : unsigned char {
  drained,    ///< closed, and nobody is inside
  timed_out,  ///< the deadline passed first
  reopened    ///< cancel_close() admitted again while somebody was still inside
};

/// How a wait ended. True when the fence was drained.
struct drain_result {
  drain_status status;
  std::uint64_t remaining;  ///< passes still out; a release that has not quite finished counts as one
  explicit operator bool() const noexcept { return status == drain_status::drained; }
};

/// A function to be called once, when a fence is closed and empty: on the thread of the last leaver, or of whoever
/// closed an empty fence, with no lock held and after the fence's last access. It may destroy the fence and the hook.
///
/// Intrusive: it must stay where it is from on_drained() until it has run, or until cancel() has returned true.
/// Destroying it earlier ends the process with a message. After it has run it may be registered again.
struct drain_hook : private detail::lot_node {
  explicit drain_hook(void (*fn)(void*) noexcept, void* arg) noexcept : fn_(fn), arg_(arg) {
    if (fn == nullptr) detail::fail("drain_hook without a function");
  }
  drain_hook(const drain_hook&) = delete;
  drain_hook& operator=(const drain_hook&) = delete;
  ~drain_hook() {
    if (enlisted()) detail::fail("drain_hook destroyed while it is registered");
  }

 private:
  template <class Sync>
  friend class detail::drain_visit;

  void (*fn_)(void*) noexcept;
  void* arg_;
};

namespace detail {

/// A critical section of a fence: the lot's bucket is locked from construction on. When it ends it unlocks first and
/// then runs the hooks that came due, which must therefore be the last thing a member function of a fence does.
template <class Sync>
class drain_visit {
 public:
  using time_point = typename Sync::clock::time_point;

  drain_visit(lot<Sync>& where, const void* fence) noexcept : visit_(where, fence) { own_due_.forks = visit_.forks(); }
  drain_visit(const drain_visit&) = delete;
  drain_visit& operator=(const drain_visit&) = delete;

  /// Hooks are unlinked one at a time, under the lock, so that one hook may still cancel the next. One that forks comes
  /// back in the child as well, which has forgotten those that are left (and may have freed them), if it has reset its
  /// fences.
  ~drain_visit() {
    while (!deferred_ && due_->head != nullptr && due_->forks == visit_.forks()) {
      auto& hook = static_cast<drain_hook&>(*due_->head);
      due_->erase(hook);
      visit_.unlock();
      Sync::here("drain.visit.due");
      call(hook);
      visit_.lock();
    }
  }

  static void call(drain_hook& hook) noexcept { hook.fn_(hook.arg_); }

  /// Every thread that waits is told; every hook comes due.
  void complete_drained() noexcept {
    visit_.wake(lot_kind::drainer, told(drain_status::drained), 0);
    visit_.move_to(*due_, lot_kind::hook);
  }

  /// Hooks that come due go to \p list, which serve() runs from a later section on the same fence; or on its address,
  /// for the fence may be gone by then.
  void defer(lot_list& list) noexcept {
    due_ = &list;
    list.forks = visit_.forks();
    deferred_ = true;
  }
  void serve(lot_list& list) noexcept { due_ = &list; }

  /// Every thread that waits is told; hooks stay and are served when the fence is next closed and empty.
  void complete_reopened(std::uint64_t remaining) noexcept {
    visit_.wake(lot_kind::drainer, told(drain_status::reopened), remaining);
  }

  /// Sleeps until one of the two above, or the deadline. \p remaining is asked, under the lock, only in that last case,
  /// in which the fence is certainly alive: it was not drained yet.
  template <class Count>
  drain_result await(time_point deadline, Count remaining) noexcept {
    typename lot<Sync>::sleeper self;
    visit_.enlist(self, lot_kind::drainer);
    Sync::here("drain.await.enlisted");
    if (!visit_.sleep_until(self, deadline)) return {drain_status::timed_out, remaining()};
    return {static_cast<drain_status>(self.verdict - 1), self.count};
  }

  /// Sleeps until somebody calls tell_harvested().
  void await_harvest() noexcept {
    typename lot<Sync>::sleeper self;
    visit_.enlist(self, lot_kind::sleeper);
    Sync::here("drain.harvest.awaited");
    visit_.sleep_until(self, time_point::max());
  }
  void tell_harvested() noexcept { visit_.wake(lot_kind::sleeper, 1, 0); }

  /// Registers the hook, unless it is \p due already. Returns whether it was registered.
  bool add(drain_hook& hook, bool due, const char* fence) noexcept {
    if (hook.enlisted()) {
      visit_.unlock();
      fail("drain_hook registered twice, now with", *fence != '\0' ? fence : "a fence without a name");
    }
    if (!due) visit_.enlist(hook, lot_kind::hook);
    return !due;
  }

  bool remove(drain_hook& hook) noexcept { return visit_.dismiss(hook); }

  /// For a hook whose owner is going. False when it has come due and its call is still to come, here or in another
  /// thread; what the fence or a fork has dropped is no longer anybody's.
  bool retire(drain_hook& hook) noexcept { return visit_.dismiss(hook) || hook.dropped(); }

  bool has_hooks() const noexcept { return visit_.any(lot_kind::hook); }

  /// The fence is about to go: its hooks will never run.
  void drop_hooks() noexcept {
    lot_list dropped;
    visit_.move_to(dropped, lot_kind::hook);
    while (dropped.head != nullptr) dropped.drop(*dropped.head);
  }

  void unlock() noexcept { visit_.unlock(); }

 private:
  static constexpr unsigned told(drain_status status) noexcept { return static_cast<unsigned>(status) + 1; }

  typename lot<Sync>::visit visit_;
  lot_list own_due_;
  lot_list* due_ = &own_due_;
  bool deferred_ = false;
};

CURFEW_COLD inline void report_occupied(const char* kind, const char* name, std::uint64_t count) noexcept {
  std::fprintf(stderr, "curfew: %s destroyed with %llu inside: %s\n", kind, static_cast<unsigned long long>(count),
               *name != '\0' ? name : "(no name)");
}

[[noreturn]] CURFEW_COLD inline void fail_occupied(const char* kind, const char* name, std::uint64_t count) noexcept {
  report_occupied(kind, name, count);
  std::terminate();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_DRAIN_HPP
