// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What each operation of a modelled atomic does: to memory, to what the threads know of each other, and to the search.
/// Every operation first announces itself, and is done when its thread is chosen.

#ifndef CURFEW_TESTING_ATOMICS_HPP
#define CURFEW_TESTING_ATOMICS_HPP

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include <curfew/detail/config.hpp>
#include <curfew/testing/scheduler.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

/// Carried by every modelled object: which record it has in which run.
struct identity {
  uint32_t run = 0;
  uint16_t number = 0;  // 0: none yet
};

class atomics : public scheduler {
 public:
  using scheduler::scheduler;

  void born(const void* address, identity& id) {
    id = {run_, 0};
    ++living_;
    if (!graves_.empty()) std::erase(graves_, address);
  }

  void died(const void* address, identity& id) {
    if (id.run != run_) return;
    --living_;
    graves_.push_back(address);
    if (id.number == 0) return;
    place& x = places_[id.number];
    if (x.destroyed) fail(fault::use_after_destroy, describe(x) + " is destroyed twice");
    for (unsigned i = 0; i < count_; ++i) {
      if (!me().hb.knows(i, x.used[i])) {
        fail(fault::destroyed_in_use, describe(x) + " is destroyed by " + name_of(running_) +
                                          " while nothing says that the last use by " + name_of(i) + " is over");
      }
    }
    if (x.owner >= 0)
      fail(fault::destroyed_in_use,
           describe(x) + " is destroyed while " + name_of(static_cast<unsigned>(x.owner)) + " holds it");
    if (!x.waiters.empty())
      fail(fault::destroyed_in_use, describe(x) + " is destroyed while " + name_of(x.waiters.front()) + " waits on it");
    // No use for the search to know: a thread that may still come is found out above, whatever the schedule.
    x.destroyed = true;
  }

  // ---- atomics ----

  uint64_t load(const void* address, identity& id, uint64_t initial, int order, code_line at) {
    const operation& op = ready(op_kind::load, locate(address, id, place_kind::atomic, initial), false, at);
    place& x = begin(op);
    use(op.uses[0].place, false);
    const unsigned back = pick_store(x, order_of(order), [](uint64_t) { return true; });
    const uint64_t value = observe(nth_newest(x, back), order_of(order));
    note(op, true, false, value, 0, back);
    return value;
  }

  void store(const void* address, identity& id, uint64_t initial, uint64_t value, int order, code_line at) {
    const operation& op = ready(op_kind::store, locate(address, id, place_kind::atomic, initial), true, at);
    place& x = begin(op);
    use(op.uses[0].place, true);
    put(x, value, order_of(order), false);
    note(op, false, true, 0, value);
  }

  /// Reads the newest value and puts \p change of it in its place.
  template <class Change>
  uint64_t modify(op_kind kind, const void* address, identity& id, uint64_t initial, int order, code_line at,
                  Change change) {
    const operation& op = ready(kind, locate(address, id, place_kind::atomic, initial), true, at);
    place& x = begin(op);
    use(op.uses[0].place, true);
    const uint64_t before = observe(x.newest, order_of(order));
    const uint64_t after = change(before);
    put(x, after, order_of(order), true);
    note(op, true, true, before, after);
    return before;
  }

  bool compare(const void* address, identity& id, uint64_t initial, uint64_t& expected, uint64_t desired, bool weak,
               int success, int failure, code_line at) {
    const operation& op = ready(op_kind::compare, locate(address, id, place_kind::atomic, initial), true, at);
    place& x = begin(op);
    bool equal = x.newest.value == expected;
    const uint64_t wanted = expected;
    const unsigned back = pick_store(x, order_of(failure), [wanted](uint64_t value) { return value != wanted; });
    if (back != 0) equal = false;
    if (equal && weak && weak_used_ < most_.weak_failures && !quiet() && search_.pick_outcome(2) == 1) {
      ++weak_used_;
      equal = false;
    }
    use(op.uses[0].place, equal);
    if (!equal) {
      expected = observe(nth_newest(x, back), order_of(failure));
      note(op, true, false, expected, 0, back, "fails");
      return false;
    }
    observe(x.newest, order_of(success));
    put(x, desired, order_of(success), true);
    note(op, true, true, wanted, desired);
    return true;
  }

  /// std::atomic_thread_fence, for bodies that have one.
  void fence(int order, code_line at) {
    demand_restart(orders_all_);
    const operation& op = ready(op_kind::fence, everything, true, at);
    begin(op);
    use(everything, true);
    const order_of does(order);
    if (does.acquires) {
      me().hb.join(me().to_acquire);
      me().coherent.join(me().to_acquire);
    }
    if (does.sequential) {
      me().coherent.join(fences_);
      me().coherent.join(sequential_stores_);
      fences_.join(me().coherent);
    }
    if (does.releases) {
      me().to_release = me().hb;
      released(me());
    }
    note(op, false, false, 0, 0);
  }

  /// membarrier: every thread, wherever it is, has now executed a full fence.
  void heavy_fence(code_line at) {
    demand_restart(orders_all_);
    const operation& op = ready(op_kind::barrier, everything, true, at);
    begin(op);
    use(everything, true);
    show_all();
    note(op, false, false, 0, 0);
  }

 protected:
  thread_state& me() noexcept { return *self_; }

  /// What the running thread is about to do. There until it has something else to do.
  operation& ready(op_kind kind, uint16_t number, bool writes, code_line at) noexcept {
    operation& op = self_->pending;
    op.kind = kind;
    op.uses[0] = {number, writes};
    op.uses[1] = op.uses[2] = {};
    op.uses[3] = {orders_all_ ? everything : uint16_t{0}, false};
    op.at = at;
    return op;
  }

  place& begin(const operation& op) {
    announce(op);
    return arrive(op);
  }

  /// The thread has been chosen to do what it has announced.
  place& arrive(const operation& op) {
    place& x = places_[op.uses[0].place];
    if (x.destroyed) [[unlikely]]
      gone(x, op.at);
    x.used[running_] = me().hb.at[running_];
    return x;
  }

  void use(uint16_t number, bool writes) {
    if (quiet()) return;
    search_.use(places_[number], number, writes, me().order);
    if (writes) yielded_ &= bit(running_);
  }

  uint16_t locate(const void* address, identity& id, place_kind kind, uint64_t initial) {
    if (id.run == run_ && id.number != 0 && id.number < place_count_) [[likely]] {
      const place& x = places_[id.number];
      if (x.address == address && x.kind == kind && !x.destroyed) return id.number;
    }
    return found(address, id, kind, initial);
  }

  CURFEW_NOINLINE uint16_t found(const void* address, identity& id, place_kind kind, uint64_t initial) {
    if (id.run == run_ && id.number != 0 && id.number < place_count_) {
      fail(fault::use_after_destroy, name_of(running_) + " uses an object that was destroyed");
    }
    if (std::find(graves_.begin(), graves_.end(), address) != graves_.end()) {
      fail(fault::use_after_destroy, name_of(running_) + " uses an object that was destroyed");
    }
    id = {run_, add_place(address, kind)};
    places_[id.number].newest.value = initial;
    return id.number;
  }

  // ---- memory ----

  static store_record& nth_newest(place& x, unsigned back) noexcept {
    return back == 0 ? x.newest : x.older[x.older.size() - back];
  }

  /// 0 for the newest store, or how far back the store is that is read instead.
  template <class Accept>
  unsigned pick_store(place& x, order_of order, Accept accept) {
    if (stale_used_ >= most_.stale_reads || x.older.empty() || quiet()) return 0;
    const vector_clock& known = me().coherent;
    const auto last = [&](const store_record& s) {
      return settled(s, known) || (order.sequential && (s.sequential || fences_.knows(s.thread, s.stamp)));
    };
    unsigned candidates[16];
    unsigned found = 0;
    for (unsigned back = 1; back <= x.older.size() && found < 16 && !last(nth_newest(x, back - 1)); ++back) {
      if (accept(nth_newest(x, back).value)) candidates[found++] = back;
    }
    if (found == 0) return 0;
    const unsigned chosen = search_.pick_outcome(found + 1);
    if (chosen == 0) return 0;
    ++stale_used_;
    return candidates[chosen - 1];
  }

  uint64_t observe(store_record& from, order_of order) {
    thread_state& self = me();
    if (most_.stale_reads != 0 && from.seen[running_] == 0) from.seen[running_] = self.hb.at[running_];
    if (order.acquires) {
      self.hb.join(from.message);
      self.coherent.join(from.message);
      for (int edge = from.edge; CURFEW_TESTING_TSAN && edge >= 0; edge = links_[static_cast<std::size_t>(edge)]) {
        observe_edge(edge);
      }
    } else if (orders_all_) {
      self.to_acquire.join(from.message);
    }
    return from.value;
  }

  /// Everybody has seen everything: no store made so far hides an older one from anybody.
  void show_all() noexcept {
    vector_clock all;
    for (unsigned i = 0; i < count_; ++i) all.join(threads_[i].coherent);
    for (unsigned i = 0; i < count_; ++i) {
      threads_[i].coherent.join(all);
      passed(i);
    }
  }

  void put(place& x, uint64_t value, order_of order, bool modifies, bool in_sequence = false) {
    thread_state& self = me();
    if (x.of_a_processor) written(x, in_sequence);
    const int before = modifies ? x.newest.edge : -1;
    if (most_.stale_reads != 0) x.older.push_back(x.newest);
    store_record& next = x.newest;
    const vector_clock sequence = next.message;
    next.value = value;
    next.stamp = self.hb.at[running_];
    next.thread = static_cast<uint16_t>(running_);
    next.sequential = order.sequential;
    next.message = order.releases ? self.hb : self.to_release;
    if (modifies) next.message.join(sequence);  // continues the release sequence
    next.edge = order.releases ? publish_edge(before) : before;
    if (most_.stale_reads != 0) {
      next.seen = {};
      next.seen[running_] = next.stamp;
    }
    if (order.sequential && most_.stale_reads != 0) {
      sequential_stores_.at[running_] = std::max(sequential_stores_.at[running_], next.stamp);
    }
    if (order.releases) released(self);
  }

  int publish_edge(int before) {
    if constexpr (CURFEW_TESTING_TSAN) {
      const int edge = next_edge_++;
      links_.resize(static_cast<std::size_t>(next_edge_), -1);
      links_[static_cast<std::size_t>(edge)] = before;
      publish(&edges_[static_cast<std::size_t>(edge) % sizeof edges_]);
      return edge;
    } else {
      return before;
    }
  }
  static void observe_edge(int edge) noexcept {
    if (edge >= 0) engine::observe(&edges_[static_cast<std::size_t>(edge) % sizeof edges_]);
  }

  static std::string describe(const place& x) {
    constexpr const char* names[] = {"nothing", "everything",         "the clock",  "atomic",
                                     "mutex",   "condition variable", "plain data", "thread"};
    return std::string(names[static_cast<unsigned>(x.kind)]) + " #" + std::to_string(x.ordinal);
  }

 private:
  [[noreturn]] CURFEW_COLD void gone(const place& x, code_line at) {
    fail(fault::use_after_destroy, name_of(running_) + " uses " + describe(x) + " after its destruction" + where(at));
  }

  // Sequences do not disturb each other, whatever processor they share; everybody else must know that they are over.
  void written(place& x, bool in_sequence) {
    const uint16_t now = me().hb.at[running_];
    if (in_sequence) {
      x.added_at()[running_] = now;
      return;
    }
    for (unsigned i = 0; i < count_; ++i) {
      if (!me().hb.knows(i, x.added_at()[i])) {
        fail(fault::data_race, name_of(running_) + " writes " + describe(x) + ", which " + name_of(i) +
                                   " has added to on its processor with nothing to order the two");
      }
    }
    x.outside_thread = static_cast<uint16_t>(running_);
    x.outside_stamp = now;
  }

  std::vector<int> links_;
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_ATOMICS_HPP
