// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The rest of what a modelled object can do: mutexes, condition variables, plain data, threads, time.

#ifndef CURFEW_TESTING_ENGINE_HPP
#define CURFEW_TESTING_ENGINE_HPP

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include <curfew/detail/config.hpp>
#include <curfew/testing/sequences.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

class explorer_engine : public sequences {
 public:
  using sequences::sequences;

  static explorer_engine* current() noexcept { return static_cast<explorer_engine*>(scheduler::current()); }

  // ---- mutexes and condition variables ----

  void lock(const void* address, identity& id, code_line at) {
    const uint16_t number = locate(address, id, place_kind::mutex, 0);
    if (places_[number].owner == static_cast<int>(running_)) {
      fail(fault::self_relock,
           describe(places_[number]) + " is locked by " + name_of(running_) + ", which holds it already" + where(at));
    }
    take(ready(op_kind::lock, number, true, at));
  }

  bool try_lock(const void* address, identity& id, code_line at) {
    demand_restart(unlock_steps_);
    const operation& op = ready(op_kind::try_lock, locate(address, id, place_kind::mutex, 0), true, at);
    place& x = begin(op);
    const bool free = x.owner < 0;
    use(op.uses[0].place, free);  // unlike a lock, it can come before the unlock that it met
    if (free) own(x);
    note(op, true, free, 0, 0, 0, free ? "gets it" : "is refused");
    return free;
  }

  void unlock(const void* address, identity& id, code_line at) {
    const uint16_t number = locate(address, id, place_kind::mutex, 0);
    place& x = places_[number];
    if (x.owner != static_cast<int>(running_)) {
      fail(fault::unowned_unlock,
           describe(x) + " is unlocked by " + name_of(running_) + ", which does not hold it" + where(at));
    }
    const operation& op = ready(op_kind::unlock, number, true, at);
    if (unlock_steps_ && !quiet()) {
      begin(op);
      use(number, true);
    }
    let_go(x);
    note(op, false, true, 0, 0);
  }

  /// Releases the mutex and sleeps in one step, then takes the mutex again. True when it was time that ended it.
  bool wait(const void* address, identity& id, const void* mutex_address, identity& mutex_id, time_point deadline,
            code_line at) {
    const uint16_t number = locate(address, id, place_kind::condition, 0);
    const uint16_t mutex = locate(mutex_address, mutex_id, place_kind::mutex, 0);
    if (places_[mutex].owner != static_cast<int>(running_)) {
      fail(fault::unowned_unlock, name_of(running_) + " waits with a mutex that it does not hold" + where(at));
    }
    const bool timed = deadline != time_point::max();
    operation& op = ready(op_kind::wait, number, true, at);
    op.uses[1] = {mutex, true};
    if (timed) op.uses[2] = {the_clock, true};
    place& x = begin(op);
    use(number, true);
    bool by_time = timed && deadline <= now_;
    if (timed) use(the_clock, false);
    const bool may_pass = timed && !by_time && timeouts_used_ < most_.timeouts && !quiet();
    const bool may_wake = spurious_used_ < most_.spurious_wakeups && !quiet();
    const unsigned outcome = may_pass || may_wake ? search_.pick_outcome(1u + may_pass + may_wake) : 0;
    const bool passes = may_pass && outcome == 1;
    const bool spurious = may_wake && outcome == 1u + may_pass;
    if (passes) {
      ++timeouts_used_;
      by_time = true;
      now_ = std::max(now_, deadline);
      use(the_clock, true);
    }
    if (spurious) ++spurious_used_;
    note(op, false, false, 0, 0, 0, by_time ? "times out" : spurious ? "wakes spuriously" : "");
    let_go(places_[mutex]);
    thread_state& self = me();
    self.timed_out = by_time;
    if (!by_time && !spurious) {
      self.parked = true;
      self.waits_on = number;
      self.deadline = deadline;
      x.waiters.push_back(static_cast<unsigned char>(running_));
      if (alone()) wait_alone(at);
    }
    take(ready(op_kind::lock, mutex, true, at));
    return me().timed_out;
  }

  void notify(const void* address, identity& id, bool all, code_line at) {
    const operation& op = ready(op_kind::notify, locate(address, id, place_kind::condition, 0), true, at);
    place& x = begin(op);
    use(op.uses[0].place, true);
    if (x.waiters.empty()) x.lost_notify = true;
    const char* remark = x.waiters.empty() ? "nobody waits" : all ? "all" : "one";
    while (!x.waiters.empty()) {
      const auto n = static_cast<unsigned>(x.waiters.size());
      const unsigned chosen = all || n == 1 ? 0 : search_.pick_outcome(n);
      const unsigned thread = x.waiters[chosen];
      wake(thread, false);
      threads_[thread].order.join(me().order);
      if (!all) break;
    }
    note(op, false, true, 0, 0, 0, remark);
  }

  // ---- plain data ----

  void plain_read(const void* address, identity& id, code_line at) {
    place& x = plain_place(address, id);
    if (!me().hb.knows(x.newest.thread, x.newest.stamp)) race(x, x.newest.thread, "written", "reads", at);
    x.read_at[running_] = x.used[running_] = me().hb.at[running_];
  }
  void plain_write(const void* address, identity& id, code_line at) {
    place& x = plain_place(address, id);
    if (!me().hb.knows(x.newest.thread, x.newest.stamp)) race(x, x.newest.thread, "written", "writes", at);
    for (unsigned i = 0; i < count_; ++i) {
      if (!me().hb.knows(i, x.read_at[i])) race(x, i, "read", "writes", at);
    }
    x.newest.thread = static_cast<uint16_t>(running_);
    x.newest.stamp = x.used[running_] = me().hb.at[running_];
  }

  // ---- threads and time ----

  void join(unsigned thread, code_line at) {
    operation& op = ready(op_kind::join, 0, false, at);
    op.target = static_cast<unsigned char>(thread);
    if (alone() && !threads_[thread].finished) fail(fault::deadlock, "a thread joins itself" + where(at));
    begin(op);
    thread_state& self = me();
    const thread_state& other = threads_[thread];
    self.hb.join(other.hb);
    self.coherent.join(other.hb);
    self.order.join(other.order);
    observe_edge(other.death_edge);
    note(op, false, false, 0, 0);
  }

  time_point now(code_line at) {
    const operation& op = ready(op_kind::now, the_clock, false, at);
    begin(op);
    use(the_clock, false);
    return now_;
  }

  void sleep(std::chrono::nanoseconds span, code_line at) {
    const operation& op = ready(op_kind::sleep, the_clock, true, at);
    begin(op);
    use(the_clock, true);
    if (span.count() > 0) now_ += span;
    give_way();
    note(op, false, false, 0, 0);
  }

  void yield(code_line at) {
    const operation& op = ready(op_kind::yield, 0, false, at);
    begin(op);
    give_way();
  }

  void callback(const char* what, code_line at) {
    if (me().held != 0) {
      fail(fault::callback_under_lock,
           std::string(what) + " runs on " + name_of(running_) + " with a mutex held" + where(at));
    }
  }

 private:
  // ---- locks ----

  void take(const operation& op) {
    place& x = begin(op);
    if (x.owner >= 0)
      fail(fault::deadlock, name_of(running_) + " waits for a mutex that nobody else can release" + where(op.at));
    if (!quiet()) search_.use_lock(x, op.uses[0].place, me().order);
    own(x);
    note(op, false, true, 0, 0);
  }

  void own(place& x) {
    thread_state& self = me();
    x.last_lock = search_.current();
    yielded_ &= bit(running_);
    x.owner = static_cast<signed char>(running_);
    ++self.held;
    self.hb.join(x.newest.message);
    self.coherent.join(x.newest.message);
    observe_edge(x.newest.edge);
  }

  void let_go(place& x) {
    thread_state& self = me();
    x.owner = -1;
    --self.held;
    x.used[running_] = self.hb.at[running_];
    x.newest.message = self.hb;
    x.newest.edge = publish_edge(-1);
    x.after_unlock = self.order;
    yielded_ &= bit(running_);
    released(self);
  }

  void wait_alone(code_line at) {
    thread_state& self = me();
    if (self.deadline == time_point::max()) {
      const bool lost = places_[self.waits_on].lost_notify;
      fail(lost ? fault::lost_wakeup : fault::deadlock,
           name_of(running_) + " waits, and there is nobody left to notify it" + where(at));
    }
    now_ = std::max(now_, self.deadline);
    wake(running_, true);
  }

  void give_way() {
    if (quiet()) return;
    yielded_ |= bit(running_);
    thread_state& self = me();
    for (unsigned i = 0; i < count_; ++i) {
      self.coherent.at[i] = threads_[i].hb.at[i];
      passed(i);
    }
  }

  place& plain_place(const void* address, identity& id) { return places_[locate(address, id, place_kind::plain, 0)]; }

  [[noreturn]] void race(const place& x, unsigned other, const char* did, const char* does, code_line at) {
    fail(fault::data_race, name_of(running_) + " " + does + " " + describe(x) + ", which was " + did + " by " +
                               name_of(other) + " with nothing to order the two" + where(at));
  }
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_ENGINE_HPP
