// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Which schedule comes next. Every decision of a run (who goes on, which of several outcomes) is asked for here, and
/// each strategy is a way to answer: all of them, all with few preemptions, one of each class of equivalent ones
/// (dynamic partial-order reduction with source sets and sleep sets), or samples.

#ifndef CURFEW_TESTING_SEARCH_HPP
#define CURFEW_TESTING_SEARCH_HPP

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/testing/memory.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing {

/// How schedules are chosen.
enum class search : unsigned char {
  reduced,    ///< every outcome, each class of equivalent schedules about once; ends by itself for bounded bodies
  all,        ///< every schedule; for checking the others
  preempted,  ///< every schedule with at most `bound` switches away from a thread that could go on
  random,     ///< samples: any thread that can, with equal chance
  priority,   ///< samples: fixed random priorities, lowered at `bound - 1` random steps (PCT)
  pending,    ///< samples: a random priority for each operation, drawn again when it meets another (POS)
  replay      ///< the one schedule of a replay string
};

namespace engine {

/// A decision of a run: the thread that went on, or the number of the outcome.
using choice = unsigned char;

class random_source {
 public:
  explicit random_source(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept {
    uint64_t z = (state_ += 0x9E37'79B9'7F4A'7C15u);
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBu;
    return z ^ (z >> 31);
  }
  unsigned below(uint64_t n) noexcept { return static_cast<unsigned>(next() % n); }

 private:
  uint64_t state_;
};

/// What the search must know about the operation that a thread is about to do, or has done.
struct footprint {
  uint16_t place = 0;
  bool writes = false;
};

class search_state {
 public:
  struct step {
    unsigned char thread;
    int node;            // the decision that let it go on; -1 when there was no choice
    vector_clock order;  // steps before it that it depends on, and itself
  };
  struct situation {
    thread_mask enabled;
    unsigned previous;  // who did the last step
    uint32_t print;     // a number that is the same when the run comes here again
  };

  search_state(search how, unsigned bound, uint64_t seed) : how_(how), bound_(bound), seed_(seed), random_(seed) {}

  void replay(std::vector<choice> choices) {
    how_ = search::replay;
    script_ = std::move(choices);
  }

  /// From the beginning, because the rules have changed.
  void restart() {
    nodes_.clear();
    changed_ = 0;
  }

  // ---- one run ----

  void begin() {
    at_ = 0;
    taken_.clear();
    step_count_ = 0;
    sleeping_ = 0;
    touched_.clear();
    redundant_ = diverged_ = false;
    preemptions_ = 0;
    print_ = 0;
    if (how_ == search::random || how_ == search::priority || how_ == search::pending) deal();
  }

  /// Picks one of several threads that can go on.
  unsigned pick_thread(const situation& now) {
    print_ = print_ * 31 + now.print + now.enabled;
    const bool can_stay = (now.enabled & bit(now.previous)) != 0;
    const unsigned stay = can_stay ? now.previous : lowest(now.enabled);
    unsigned next = stay;
    node_ = -1;
    if (how_ == search::replay) {
      if (taken_.size() < script_.size()) next = script_[taken_.size()];
      if (next >= max_threads || (now.enabled & bit(next)) == 0) {
        diverged_ = true;
        next = stay;
      }
    } else if (how_ == search::random) {
      next = nth(now.enabled, random_.below(static_cast<unsigned>(std::popcount(now.enabled))));
    } else if (how_ == search::priority || how_ == search::pending) {
      next = highest(now.enabled);
      for (unsigned& point : change_points_) {
        if (point != taken_.size()) continue;
        priority_[next] = static_cast<uint64_t>(&point - change_points_.data());
        next = highest(now.enabled);
        break;
      }
    } else if (!redundant_) {
      next = searched_thread(now, stay);
    }
    if (can_stay && next != now.previous) ++preemptions_;
    taken_.push_back(static_cast<choice>(next));
    return next;
  }

  /// The only thread that can go on.
  void only_thread(unsigned thread) noexcept {
    node_ = -1;
    if (how_ == search::reduced && (sleeping_ & bit(thread)) != 0) redundant_ = true;
  }

  /// Picks one of \p n outcomes; 0 is the ordinary one.
  unsigned pick_outcome(unsigned n) {
    print_ = print_ * 31 + n;
    unsigned next = 0;
    if (how_ == search::replay) {
      if (taken_.size() < script_.size()) next = script_[taken_.size()];
      if (next >= n) {
        diverged_ = true;
        next = 0;
      }
    } else if (how_ == search::random || how_ == search::priority || how_ == search::pending) {
      next = random_.below(2) == 0 ? 0 : random_.below(n);
    } else if (!redundant_) {
      if (at_ == nodes_.size()) nodes_.push_back({.outcomes = static_cast<unsigned char>(n)});
      node& here = nodes_[at_++];
      if (here.outcomes != n) diverged_ = true;
      next = here.chosen;
    }
    taken_.push_back(static_cast<choice>(next));
    return next;
  }

  // ---- the order of steps, for the reduction ----

  bool reduces() const noexcept { return how_ == search::reduced && !redundant_; }
  bool samples_operations() const noexcept { return how_ == search::pending; }

  /// A step of \p thread begins, with what it knows so far of the order.
  void begin_step(unsigned thread, vector_clock& order) {
    if (how_ != search::reduced) return;
    before_ = order;
    if (step_count_ == steps_.size()) steps_.resize(2 * step_count_ + 64);
    step& next = steps_[step_count_++];
    next.thread = static_cast<unsigned char>(thread);
    next.node = node_;
    order.at[thread] = static_cast<uint16_t>(step_count_);
  }

  /// The step that is going on uses \p x. Marks where it should have come earlier, and orders it after what it met.
  void use(place& x, uint16_t number, bool writes, vector_clock& order) {
    touched_.push_back({number, writes});
    if (how_ != search::reduced) return;
    const unsigned thread = steps_[step_count_ - 1].thread;
    order.join(x.after_write);
    if (writes) order.join(x.after_reads);
    if (fresh()) {
      if (writes) {
        thread_mask others = x.readers & ~bit(thread);
        if (x.readers == 0 && x.last_write >= 0) reverse(x.last_write, thread, order);
        for (; others != 0; others &= others - 1) reverse(x.last_read[lowest(others)], thread, order);
      } else if (x.last_write >= 0) {
        reverse(x.last_write, thread, order);
      }
    }
    if (writes) {
      x.last_write = current();
      x.readers = 0;
      x.after_write = order;
      x.after_reads = {};
    } else {
      x.last_read[thread] = current();
      x.readers |= bit(thread);
      x.after_reads.join(order);
    }
  }

  /// Locking is special: the unlocking before it cannot be overtaken, only the locking before that.
  void use_lock(place& x, uint16_t number, vector_clock& order) {
    touched_.push_back({number, true});
    if (how_ != search::reduced) return;
    const unsigned thread = steps_[step_count_ - 1].thread;
    order.join(x.after_write);
    order.join(x.after_reads);
    order.join(x.after_unlock);
    if (fresh()) {
      if (x.last_lock >= 0) reverse(x.last_lock, thread, order);
      for (thread_mask others = x.readers & ~bit(thread); others != 0; others &= others - 1) {
        reverse(x.last_read[lowest(others)], thread, order);
      }
    }
    x.last_write = current();
    x.readers = 0;
    x.after_write = order;
    x.after_reads = {};
  }

  /// The step is over. \p pending says what each sleeping thread is about to do.
  template <class Pending>
  void end_step(const vector_clock& order, Pending pending) {
    if (step_count_ != 0) steps_[step_count_ - 1].order = order;
    for (thread_mask left = sleeping_; left != 0; left &= left - 1) {
      const unsigned sleeper = lowest(left);
      if (meets(pending(sleeper))) sleeping_ &= ~bit(sleeper);
    }
    touched_.clear();
  }

  /// Whether the step that is ending has met what \p next is about to do.
  bool meets(const std::array<footprint, 4>& next) const noexcept {
    for (const footprint& mine : touched_) {
      for (const footprint& other : next) {
        if (mine.place == other.place && other.place != 0 && (mine.writes || other.writes)) return true;
      }
    }
    return false;
  }

  void shuffle(unsigned thread) noexcept { priority_[thread] = (random_.next() >> 1) + max_threads; }

  // ---- between runs ----

  /// Prepares the next run. False when there is none.
  bool advance() {
    longest_ = taken_.size() > longest_ ? taken_.size() : longest_;
    switch (how_) {
      case search::replay:
        return false;
      case search::random:
      case search::priority:
      case search::pending:
        return true;
      default:
        break;
    }
    for (; !nodes_.empty(); nodes_.pop_back()) {
      node& top = nodes_.back();
      if (top.outcomes != 0) {
        if (++top.chosen < top.outcomes) break;
        continue;
      }
      top.sleeping |= bit(top.chosen);
      const thread_mask left = candidates(top);
      if (left == 0) continue;
      top.chosen = static_cast<unsigned char>(lowest(left));
      break;
    }
    changed_ = nodes_.size();
    return !nodes_.empty();
  }

  const std::vector<choice>& taken() const noexcept { return taken_; }
  bool redundant() const noexcept { return redundant_; }
  bool diverged() const noexcept { return diverged_; }
  unsigned preemptions() const noexcept { return preemptions_; }
  uint32_t print() const noexcept { return print_; }
  int current() const noexcept { return static_cast<int>(step_count_) - 1; }

 private:
  struct node {
    unsigned char chosen = 0;
    unsigned char outcomes = 0;  // 0 for a choice of threads
    unsigned char previous = 0;
    unsigned char preemptions = 0;
    thread_mask enabled = 0;
    thread_mask wanted = 0;    // threads to try here
    thread_mask sleeping = 0;  // threads not to try: done, or covered by what was done before
    uint32_t print = 0;
  };

  static unsigned nth(thread_mask mask, unsigned n) noexcept {
    while (n-- != 0) mask &= mask - 1;
    return lowest(mask);
  }
  unsigned highest(thread_mask mask) const noexcept {
    unsigned best = lowest(mask);
    for (; mask != 0; mask &= mask - 1) {
      if (priority_[lowest(mask)] > priority_[best]) best = lowest(mask);
    }
    return best;
  }

  unsigned searched_thread(const situation& now, unsigned stay) {
    node_ = static_cast<int>(at_);
    if (at_ == nodes_.size()) {
      node fresh_node;
      fresh_node.previous = static_cast<unsigned char>(now.previous);
      fresh_node.preemptions = static_cast<unsigned char>(preemptions_);
      fresh_node.enabled = now.enabled;
      fresh_node.print = now.print;
      unsigned first = stay;
      if (how_ == search::reduced) {
        fresh_node.sleeping = sleeping_;
        const thread_mask awake = now.enabled & ~sleeping_;
        if (awake == 0) {  // every way on from here was covered: go on for the destructors' sake
          redundant_ = true;
          node_ = -1;
          return stay;
        }
        if ((awake & bit(stay)) == 0) first = lowest(awake);
        fresh_node.wanted = bit(first);
      } else {
        fresh_node.wanted = now.enabled;
      }
      fresh_node.chosen = static_cast<unsigned char>(first);
      nodes_.push_back(fresh_node);
    }
    node& here = nodes_[at_++];
    if (here.enabled != now.enabled || here.print != now.print || here.outcomes != 0) diverged_ = true;
    sleeping_ = here.sleeping;
    return here.chosen;
  }

  thread_mask candidates(const node& from) const noexcept {
    const thread_mask left = from.wanted & ~from.sleeping;
    if (how_ != search::preempted || from.preemptions < bound_) return left;
    // No preemption left: only a thread that had to stop may be followed by another one.
    return (from.enabled & bit(from.previous)) != 0 ? left & bit(from.previous) : left;
  }

  // Steps before the last change of a decision have been looked at in an earlier run.
  bool fresh() const noexcept { return reduces() && at_ >= changed_; }

  /// The step \p earlier and the current step of \p thread could have come the other way round: sees to it that a run
  /// is made in which they do. \p order is what the current step comes after, the earlier one included.
  void reverse(int earlier, unsigned thread, const vector_clock& order) {
    const step& early = steps_[static_cast<std::size_t>(earlier)];
    if (early.thread == thread || before_.knows(early.thread, static_cast<uint16_t>(earlier + 1)) || early.node < 0) {
      return;
    }
    // Of what came after the earlier step without depending on it: the threads that could be first.
    thread_mask first = 0;
    std::array<uint16_t, max_threads> begins{};
    for (std::size_t i = static_cast<std::size_t>(earlier) + 1; i + 1 < step_count_; ++i) {
      const step& later = steps_[i];
      if (later.order.knows(early.thread, static_cast<uint16_t>(earlier + 1)) || begins[later.thread] != 0) continue;
      begins[later.thread] = static_cast<uint16_t>(i + 1);
      if (independent(later.order, begins, later.thread)) first |= bit(later.thread);
    }
    if (begins[thread] == 0 && independent(order, begins, thread)) first |= bit(thread);
    node& at = nodes_[static_cast<std::size_t>(early.node)];
    if ((first & (at.wanted | at.sleeping)) != 0) return;
    first &= at.enabled;
    at.wanted |= first == 0 ? at.enabled : (first & bit(thread)) != 0 ? bit(thread) : bit(lowest(first));
  }

  static bool independent(const vector_clock& order, const std::array<uint16_t, max_threads>& begins,
                          unsigned thread) noexcept {
    for (unsigned i = 0; i < max_threads; ++i) {
      if (i != thread && begins[i] != 0 && order.knows(i, begins[i])) return false;
    }
    return true;
  }

  void deal() noexcept {
    random_ = random_source(seed_++);
    for (unsigned i = 0; i < max_threads; ++i) shuffle(i);
    change_points_.clear();
    if (how_ != search::priority) return;
    for (unsigned i = 0; i + 1 < bound_; ++i) change_points_.push_back(random_.below(longest_ + 1));
  }

  search how_;
  unsigned bound_;
  uint64_t seed_;
  random_source random_;

  std::vector<node> nodes_;
  std::size_t at_ = 0;
  std::size_t changed_ = 0;
  int node_ = -1;
  std::vector<choice> taken_;
  std::vector<choice> script_;
  std::vector<step> steps_;  // the first step_count_ are of this run
  std::size_t step_count_ = 0;
  vector_clock before_;
  thread_mask sleeping_ = 0;
  std::vector<footprint> touched_;
  bool redundant_ = false;
  bool diverged_ = false;
  unsigned preemptions_ = 0;
  uint32_t print_ = 0;
  std::size_t longest_ = 40;
  std::array<uint64_t, max_threads> priority_{};
  std::vector<unsigned> change_points_;
};

}  // namespace engine
}  // namespace testing
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_SEARCH_HPP
