// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the singletons of a process share: one short lock for everything that is not the hit path, the per-thread
/// record of what is being created, the waits for another thread's creation, and the fork handlers. Nothing here
/// depends on the type of an instance. The argument is in docs/design/guarded_singleton.md.

#ifndef CURFEW_DETAIL_SINGLETON_DOMAIN_HPP
#define CURFEW_DETAIL_SINGLETON_DOMAIN_HPP

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

#include <curfew/detail/cancel_shield.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/lot.hpp>
#include <curfew/detail/sync.hpp>

#if CURFEW_POSIX
#include <pthread.h>
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class singleton_domain;
template <class Sync>
struct singleton_node;
template <class Sync>
struct creation_frame;

/// Registers the fork handlers while whatever uses singletons is being loaded, and not only when the first one is used:
/// of handlers that take locks, those that were registered first take theirs last. Those of a program that also calls
/// singletons with its locks held have to take them before ours, so ours have to be older.
template <class Sync>
struct fork_handlers {
  static const bool registered_at_load;
};

/// One per thread, zero at birth. Fields are written by their own thread; `waiting_for` only under the domain lock,
/// under which other threads read it while they look for a cycle.
template <class Sync>
struct creation_thread {
  creation_frame<Sync>* innermost;    // what this thread is creating, innermost first
  singleton_node<Sync>* waiting_for;  // whose flight it sleeps for
  const void* forking;                // it is between the fork handlers of this domain, and has its lock
};

/// One creation in progress, in the stack frame of the thread that does it.
template <class Sync>
struct creation_frame {
  singleton_node<Sync>* of = nullptr;
  creation_thread<Sync>* thread = nullptr;
  creation_frame* outer = nullptr;
};

template <class Sync>
struct singleton_waiter {
  typename Sync::condition_variable wake;
  bool woken = false;
  singleton_waiter* next = nullptr;
};

/// The part of a singleton's state that the domain works on. Guarded by the domain lock, except for what never changes.
template <class Sync>
struct singleton_node {
  singleton_node(singleton_domain<Sync>& domain, const char* label, void (*recover)(singleton_node&) noexcept) noexcept
      : home(&domain), name(label), after_fork(recover) {}
  singleton_node(const singleton_node&) = delete;
  singleton_node& operator=(const singleton_node&) = delete;

  singleton_domain<Sync>* const home;  // through the object: two shared objects may each have a domain of their own
  const char* const name;
  void (*const after_fork)(singleton_node&) noexcept;
  creation_frame<Sync>* flight = nullptr;     // the one creation that others wait for
  singleton_waiter<Sync>* waiters = nullptr;  // threads to wake at the next change
  singleton_node* next_node = nullptr;
  singleton_node* prev_node = nullptr;
};

/// The names along a cycle of creations, gathered under the lock and put into words after it.
class creation_chain {
 public:
  void add(const char* name) noexcept {
    names_[size_ < capacity ? size_ : capacity - 1] = name;  // the last one is where the cycle closes
    ++size_;
  }
  void reverse() noexcept { std::reverse(names_, names_ + shown()); }
  bool empty() const noexcept { return size_ == 0; }

  /// `a -> b -> a`
  std::string to_string() const {
    std::string text;
    for (unsigned i = 0; i < shown(); ++i) {
      text.append(label(names_[i])).append(" -> ");
      if (i == 0 && size_ > capacity) text.append("... -> ");
    }
    return text.append(label(names_[0]));
  }

 private:
  unsigned shown() const noexcept { return size_ < capacity ? size_ : capacity; }
  static const char* label(const char* name) noexcept { return *name != '\0' ? name : "(unnamed)"; }
  static constexpr unsigned capacity = 16;
  const char* names_[capacity] = {""};
  unsigned size_ = 0;
};

// Lock order: the domain lock, then a bucket of the lot (a fence is reopened under it). Neither is ever held across
// user code, an allocation, or a wait; no thread holds two domain locks.
template <class Sync>
class singleton_domain {
  struct thread_tag;

 public:
  using thread = creation_thread<Sync>;
  using frame = creation_frame<Sync>;
  using node = singleton_node<Sync>;
  using waiter = singleton_waiter<Sync>;
  using time_point = typename Sync::clock::time_point;

  constexpr singleton_domain() noexcept = default;
  singleton_domain(const singleton_domain&) = delete;
  singleton_domain& operator=(const singleton_domain&) = delete;

  /// The calling thread's record. Through the object, like everything that must be unique: another shared object that
  /// uses a singleton of this domain may have thread-locals of its own.
  thread& self() const noexcept { return self_(); }

  /// A critical section. Between the fork handlers the forking thread has the lock already: handlers of others that
  /// run in between may use singletons, too.
  class section {
   public:
    explicit section(singleton_domain& domain) noexcept : lock_(domain.mutex_, std::defer_lock) {
      if (domain.self().forking == &domain) {
        domain.recover_if_child();
      } else {
        lock_.lock();
      }
    }
    section(const section&) = delete;
    section& operator=(const section&) = delete;

    /// Sleeps until somebody changes \p what; false when \p deadline comes first.
    bool wait(node& what, time_point deadline) noexcept {
      const cancel_shield uncancelled;
      waiter mine;
      mine.next = what.waiters;
      what.waiters = &mine;
      while (!mine.woken) {
        const bool bounded = deadline != time_point::max();
        if (!lock_.owns_lock() || (bounded && Sync::clock::now() >= deadline)) {
          for (waiter** link = &what.waiters; *link != nullptr; link = &(*link)->next) {
            if (*link != &mine) continue;
            *link = mine.next;
            break;
          }
          return false;
        }
        if (bounded) {
          mine.wake.wait_until(lock_, deadline);
        } else {
          mine.wake.wait(lock_);
        }
      }
      return true;
    }

   private:
    std::unique_lock<typename Sync::mutex> lock_;
  };

  /// Makes \p what known to the fork handlers. Registers them if that has not happened yet: a constructor of another
  /// static object may come here before its own translation unit's turn, and memory may have been short.
  void enlist(node& what) noexcept {
    if (!fork_handlers<Sync>::registered_at_load) install_fork_handlers();
    const section locked(*this);
    what.next_node = first_;
    if (first_ != nullptr) first_->prev_node = &what;
    first_ = &what;
  }
  void delist(node& what) noexcept {
    const section locked(*this);
    (what.prev_node != nullptr ? what.prev_node->next_node : first_) = what.next_node;
    if (what.next_node != nullptr) what.next_node->prev_node = what.prev_node;
  }

  /// False when memory is short, or there is no fork here.
  static bool install_fork_handlers() noexcept;

  // The rest is called with the lock held.

  /// Lets every waiter of \p what look again. Notified under the lock: a waiter's condition variable dies with its
  /// frame.
  static void wake_locked(node& what) noexcept {
    for (waiter* each = what.waiters; each != nullptr;) {
      waiter* const next = each->next;
      each->woken = true;
      each->wake.notify_one();
      each = next;
    }
    what.waiters = nullptr;
  }

  /// The chain from \p what back to itself, when this thread is creating it already; otherwise empty.
  static creation_chain recursion_locked(const thread& me, const node& what) noexcept {
    creation_chain chain;
    for (const frame* each = me.innermost; each != nullptr; each = each->outer) {
      chain.add(each->of->name);
      if (each->of != &what) continue;
      chain.reverse();
      return chain;
    }
    return {};
  }

  /// The cycle that would close if this thread waited for the flight of \p what: each flight's thread waits for the
  /// next flight, the last of which is this thread's own. Empty when there is none. A thread that cannot wait at all,
  /// because it holds everything up between the fork handlers, gets the short cycle.
  static creation_chain cycle_locked(const thread& me, const node& what) noexcept {
    creation_chain chain;
    for (const node* each = &what; each != nullptr && each->flight != nullptr;) {
      chain.add(each->name);
      if (each->flight->thread == &me || me.forking != nullptr) return chain;
      each = each->flight->thread->waiting_for;
    }
    return {};
  }

 private:
  void recover_if_child() noexcept {
#if CURFEW_POSIX
    if (unrecovered_ && forked_from_ != ::getpid()) recover();
#endif
  }

  void recover() noexcept {
#if CURFEW_POSIX
    // The first process of a new PID namespace may have its parent's number, and that may have recreated the lot, too.
    process_lot<Sync>.recreate_in_child(forked_from_ == ::getpid());
    forked_from_ = ::getpid();
    unrecovered_ = false;
#endif
    for (node* each = first_; each != nullptr; each = each->next_node) {
      // The threads are gone, and their stacks may be given to new ones.
      each->waiters = nullptr;
      if (each->flight != nullptr && each->flight->thread != &self()) each->flight = nullptr;
      each->after_fork(*each);
    }
  }

  static thread& own_record() noexcept {
    return Sync::template local<thread_tag, thread>();
  }

  typename Sync::mutex mutex_;
  thread& (*const self_)() noexcept = &own_record;
  node* first_ = nullptr;
  typename Sync::template atomic<bool> handlers_installed_{false};
#if CURFEW_POSIX
  // Guarded by the lock.
  pid_t forked_from_ = 0;
  unsigned fork_depth_ = 0;   // handlers of this domain that have run before the fork and not yet after it
  bool unrecovered_ = false;  // between the handlers: true still in the parent, and in the child until it is put right
#endif
};

/// Says that this thread is making an instance of \p of: to its own nested calls and, as a flight, to threads that
/// wait.
template <class Sync>
class creation_scope {
 public:
  explicit creation_scope(singleton_node<Sync>& of) noexcept { frame_.of = &of; }
  creation_scope(const creation_scope&) = delete;
  creation_scope& operator=(const creation_scope&) = delete;
  ~creation_scope() { end(); }

  void begin(creation_thread<Sync>& me) noexcept {
    frame_.thread = &me;
    frame_.outer = std::exchange(me.innermost, &frame_);
  }
  /// Leaves the chain, and lets those who wait go on. What follows, teardown included, may call `get` again.
  void end() noexcept {
    if (flew_) {
      const typename singleton_domain<Sync>::section locked(*frame_.of->home);
      land_locked();
    }
    if (frame_.thread != nullptr) std::exchange(frame_.thread, nullptr)->innermost = frame_.outer;
  }

  void fly_locked() noexcept {
    frame_.of->flight = &frame_;
    flew_ = true;
  }
  bool flies_locked() const noexcept { return frame_.of->flight == &frame_; }
  void land_locked() noexcept {
    flew_ = false;
    if (!flies_locked()) return;  // never flew, or was outdated
    frame_.of->flight = nullptr;
    singleton_domain<Sync>::wake_locked(*frame_.of);
  }

 private:
  creation_frame<Sync> frame_;
  bool flew_ = false;
};

template <class Sync>
CURFEW_VISIBLE inline constinit singleton_domain<Sync> process_singletons{};

template <class Sync>
const bool fork_handlers<Sync>::registered_at_load = singleton_domain<Sync>::install_fork_handlers();

// The lock is taken over a fork, so that the child finds no transition half done and no lock held by nobody. Two
// threads that come here first together may both register: the handlers count, and only the outermost of them acts.
// Nobody is let through before a registration is complete.
template <class Sync>
bool singleton_domain<Sync>::install_fork_handlers() noexcept {
#if CURFEW_POSIX
  // order(none, relaxed): saves registering once more, guards nothing
  if (process_singletons<Sync>.handlers_installed_.load(std::memory_order_relaxed)) return true;
  const int error = ::pthread_atfork(
      [] {
        auto& domain = process_singletons<Sync>;
        if (domain.self().forking != &domain) {
          domain.mutex_.lock();
          domain.forked_from_ = ::getpid();
          domain.unrecovered_ = true;
          domain.self().forking = &domain;
        }
        ++domain.fork_depth_;
      },
      [] {
        auto& domain = process_singletons<Sync>;
        if (--domain.fork_depth_ != 0) return;
        domain.unrecovered_ = false;
        domain.self().forking = nullptr;
        domain.mutex_.unlock();
      },
      [] {
        auto& domain = process_singletons<Sync>;
        // Whatever its number: the first process of a new PID namespace may have its parent's.
        if (domain.unrecovered_) domain.recover();
        if (--domain.fork_depth_ != 0) return;
        domain.self().forking = nullptr;
        domain.mutex_.unlock();
      });
  // Out of memory: forking works as in any program with a lock, and the next singleton tries again.
  // order(none, relaxed): as above
  if (error == 0) process_singletons<Sync>.handlers_installed_.store(true, std::memory_order_relaxed);
  return error == 0;
#else
  return false;
#endif
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_DOMAIN_HPP
