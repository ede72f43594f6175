// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Restartable sequences and what stops them, as steps. A sequence reads a gate and, if that lets it, adds to the cell
/// of the processor it runs on; the reading and the adding are two steps, and whoever restarts all sequences between
/// them sends it back to the reading.
///
/// *Processors.* A thread stays where it is put, and threads share the few there are; how often one may move is bounded
/// like stale reads are. A thread that is preempted inside a sequence begins again on the real thing. Here it need not:
/// beginning again is the same as having begun later, which is explored anyway.
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

/// How a restartable sequence ended.
enum class sequence_end : unsigned char {
  added,     ///< the gate let it, and the cell was added to
  refused,   ///< the gate did not
  elsewhere  ///< the processor has no cell
};

class sequences : public atomics {
 public:
  using atomics::atomics;

  /// `refuses(bits of the gate)`; `cell(number)` is the word of one of \p cells; `add(bits)` is what goes there.
  template <class Refuses, class Cell, class Add>
  sequence_end add_on_processor(word gate, unsigned cells, Refuses refuses, Cell cell, Add add, code_line at) {
    thread_state& self = me();
    const operation first =
        in_sequence(op_kind::enter, locate(gate.address, *gate.id, place_kind::atomic, gate.bits), false, at);
    self.begun = announced(first);
    announce(self.begun);
    for (;;) {
      place& x = arrive(first);
      self.in_sequence = true;
      self.restarted = false;
      use(first.uses[0].place, false);
      use(the_sequences, false);
      const order_of acquire(2);
      const unsigned back = pick_store(x, acquire, [](uint64_t) { return true; });
      const uint64_t seen = observe(nth_newest(x, back), acquire);
      const unsigned number = processor();
      const bool refused = refuses(seen);
      note(first, true, false, seen, 0, back, refused ? "refused" : "");
      if (refused || number >= cells) {
        self.in_sequence = false;
        return refused ? sequence_end::refused : sequence_end::elsewhere;
      }
      const word mine = cell(number);
      const operation last =
          in_sequence(op_kind::commit, locate(mine.address, *mine.id, place_kind::atomic, mine.bits), true, at);
      announce(announced(last));
      if (self.restarted) continue;
      commit(last, add);
      self.in_sequence = false;
      return sequence_end::added;
    }
  }

  /// Every sequence that has begun has added, or begins again and sees what the caller has done before.
  void restart_all(code_line at) {
    const bool shows = most_.stale_reads != 0;  // and otherwise everybody sees the newest of everything anyway
    if (shows) demand_restart(orders_all_);
    operation op = ready(op_kind::restart, the_sequences, true, at);
    if (shows) op.uses[1] = {everything, true};
    begin(op);
    use(the_sequences, true);
    if (shows) {
      use(everything, true);
      show_all();
    }
    for (unsigned i = 0; i < count_; ++i) {
      thread_state& each = threads_[i];
      if (i == running_ || !each.in_sequence) continue;
      each.restarted = true;
      each.pending = each.begun;
    }
    note(op, false, false, 0, 0);
  }

 private:
  static operation in_sequence(op_kind kind, uint16_t number, bool writes, code_line at) noexcept {
    operation op = ready(kind, number, writes, at);
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

  template <class Add>
  void commit(const operation& op, Add add) {
    place& x = arrive(op);
    use(op.uses[0].place, true);
    use(the_sequences, false);
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
    const order_of acq_rel(3);
    const uint64_t before = x.newest.value;
    const uint64_t after = add(before);
    put(x, after, acq_rel, true, true);
    note(op, true, true, before, after);
  }
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_SEQUENCES_HPP
