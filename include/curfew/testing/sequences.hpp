// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Restartable sequences and what stops them, as steps. A sequence reads a gate and, if that admits it, adds to the
/// cell of the processor it runs on; the reading and the adding are two steps. A sequence that is interrupted between
/// them adds nothing: by a restart of all sequences always, for no reason as often as `interruptions` allows.
///
/// *Processors.* A thread stays where it is put, and threads share the few there are; `migrations` bounds how often one
/// may move.
///
/// *Cells.* Adding is not atomic towards other processors, so nobody else may write a cell while a sequence may be
/// adding to it: that is reported as a race. Reading one is allowed and says what reading an atomic says.

#ifndef CURFEW_TESTING_SEQUENCES_HPP
#define CURFEW_TESTING_SEQUENCES_HPP

#include <cstdint>

#include <curfew/detail/config.hpp>
#include <curfew/testing/atomics.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

/// An atomic as the explorer knows it: where it is, which record it has, and its bits.
struct word {
  const void* address;
  identity* id;
  uint64_t bits;
};

class sequences : public atomics {
 public:
  using atomics::atomics;

  /// One restartable sequence: if `admits(bits of the gate, number of the processor)`, then `add(bits)` goes where
  /// `cell(number)` is. False, and nothing added, when it does not, or when the sequence was interrupted.
  template <class Admits, class Cell, class Add>
  bool add_on_processor(word gate, Admits admits, Cell cell, Add add, code_line at) {
    thread_state& self = me();
    const operation& first =
        in_sequence(op_kind::enter, locate(gate.address, *gate.id, place_kind::atomic, gate.bits), false, at);
    place& x = begin(first);
    use(first.uses[0].place, false);
    use(the_sequences, false);
    const order_of acquire(2);
    const unsigned back = pick_store(x, acquire, [](uint64_t) { return true; });
    const uint64_t seen = observe(nth_newest(x, back), acquire);
    const unsigned number = processor();
    const bool admitted = admits(seen, number);
    note(first, true, false, seen, 0, back, admitted ? "" : "refused");
    if (!admitted) return false;
    const word mine = cell(number);
    const operation& last =
        in_sequence(op_kind::commit, locate(mine.address, *mine.id, place_kind::atomic, mine.bits), true, at);
    self.in_sequence = true;
    self.restarted = false;
    announce(last);
    self.in_sequence = false;
    use(the_sequences, false);
    if (self.restarted || interrupted()) {
      note(last, false, false, 0, 0, 0, "interrupted");
      return false;
    }
    commit(last, add);
    return true;
  }

  /// Every sequence that has begun has added, or will not, and sees what the caller has done before.
  void restart_all(code_line at) {
    const bool shows = most_.stale_reads != 0;  // and otherwise everybody sees the newest of everything anyway
    if (shows) demand_restart(orders_all_);
    operation& op = ready(op_kind::restart, the_sequences, true, at);
    if (shows) op.uses[1] = {everything, true};
    begin(op);
    use(the_sequences, true);
    if (shows) {
      use(everything, true);
      show_all();
    }
    for (unsigned i = 0; i < count_; ++i) {
      thread_state& each = threads_[i];
      if (i == running_ || !each.in_sequence || each.restarted) continue;
      each.restarted = true;
      each.pending.uses[0] = {};
    }
    note(op, false, false, 0, 0);
  }

 private:
  operation& in_sequence(op_kind kind, uint16_t number, bool writes, code_line at) noexcept {
    operation& op = ready(kind, number, writes, at);
    op.uses[1] = {the_sequences, false};
    return op;
  }

  unsigned processor() {
    unsigned& mine = me().processor;
    if (most_.processors > 1 && migrations_used_ < most_.migrations && !quiet() && search_.pick_outcome(2) == 1) {
      ++migrations_used_;
      mine = (mine + 1) % most_.processors;
    }
    return mine;
  }

  bool interrupted() {
    if (interruptions_used_ >= most_.interruptions || quiet() || search_.pick_outcome(2) == 0) return false;
    ++interruptions_used_;
    return true;
  }

  template <class Add>
  void commit(const operation& op, Add add) {
    place& x = arrive(op);
    use(op.uses[0].place, true);
    if (!x.of_a_processor) {
      x.of_a_processor = true;
      x.outside_thread = x.newest.thread;
      x.outside_stamp = x.newest.stamp;
    }
    if (!me().hb.knows(x.outside_thread, x.outside_stamp)) {
      fail(fault::data_race, name_of(running_) + " adds to " + describe(x) + " of its processor, which " +
                                 name_of(x.outside_thread) + " has written with nothing to order the two" +
                                 where(op.at));
    }
    const order_of release(3);
    const uint64_t before = x.newest.value;
    const uint64_t after = add(before);
    put(x, after, release, true, true);
    note(op, true, true, before, after);
  }
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_SEQUENCES_HPP
