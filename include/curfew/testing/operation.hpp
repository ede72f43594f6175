// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The words of the explorer: what a thread is about to do, what it has done, what is known of it, and what a body is.

#ifndef CURFEW_TESTING_OPERATION_HPP
#define CURFEW_TESTING_OPERATION_HPP

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/testing/fiber.hpp>
#include <curfew/testing/memory.hpp>
#include <curfew/testing/outcome.hpp>
#include <curfew/testing/search.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

enum class op_kind : unsigned char {
  start,
  join_roles,
  join,
  load,
  store,
  exchange,
  modify,
  compare,
  fence,
  barrier,
  lock,
  try_lock,
  unlock,
  wait,
  notify,
  now,
  sleep,
  yield,
  enter,   // a restartable sequence begins: its gate is read
  commit,  // and ends: its cell is added to
  restart  // of every sequence
};

constexpr const char* to_string(op_kind kind) noexcept {
  constexpr const char* names[] = {"start",   "join all", "join",        "load",  "store",    "exchange", "modify",
                                   "compare", "fence",    "heavy fence", "lock",  "try_lock", "unlock",   "wait",
                                   "notify",  "now",      "sleep",       "yield", "enter",    "commit",   "restart"};
  return names[static_cast<unsigned char>(kind)];
}

struct code_line {
  const char* file = "";
  unsigned line = 0;
};

/// ` (file:line)`, without directories: the same on every machine.
inline std::string where(code_line at) {
  if (at.line == 0) return {};
  const std::string path = at.file;
  return " (" + path.substr(path.rfind('/') + 1) + ":" + std::to_string(at.line) + ")";
}

/// What a thread is about to do.
struct operation {
  op_kind kind = op_kind::start;
  unsigned char target = 0;  // of a join
  std::array<footprint, 4> uses{};
  code_line at;
};

/// A line of the story of a run.
struct event {
  unsigned thread;
  op_kind kind;
  place_kind on;
  uint16_t ordinal;
  bool reads, writes;
  uint64_t before, after;
  unsigned stale;  // how many newer stores the value read has
  const char* remark;
  const char* tag;  // the last named point its thread has passed
  code_line at;
};

struct limits {
  unsigned steps = 2000;
  unsigned stale_reads = 0;
  unsigned spurious_wakeups = 0;
  unsigned timeouts = 2;
  unsigned weak_failures = 0;
  unsigned interruptions = 0;
  unsigned migrations = 0;
  unsigned processors = 2;
};

struct finding {
  fault what = fault::none;
  std::string message;
};

/// The roles of a body, and what comes before and after them on the main thread.
struct body {
  virtual ~body() = default;
  virtual unsigned roles() const = 0;
  virtual void set_up() = 0;
  virtual void role(unsigned number) = 0;
  virtual void tear_down() = 0;
  virtual void lost() {}  // a failed run is over, and not unwound
  virtual bool watches() const { return false; }
  virtual void invariant() {}
};

/// One thread of a run.
struct thread_state {
  fiber* stack = nullptr;
  bool in_body = false;
  bool finished = true;
  bool parked = false;
  bool timed_out = false;
  bool in_sequence = false;  // between the two halves of a restartable sequence
  bool restarted = false;    // and it will not get to the second
  unsigned processor = 0;
  int role = -1;
  unsigned held = 0;
  operation pending;
  uint16_t waits_on = 0;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  vector_clock order;                   // for the search: steps that its next one comes after
  vector_clock hb;                      // what happened before
  vector_clock coherent;                // what it cannot fail to see; never less than hb
  vector_clock to_acquire, to_release;  // of fences
  int birth_edge = 0, death_edge = 0;
  const char* tag = "";
  std::function<void()> work;
  std::vector<std::pair<const void*, std::unique_ptr<unsigned char[]>>> locals;
};

/// What a failed run leaves behind is kept, and kept reachable.
inline void keep(void* what) {
  static std::vector<void*>& kept = *new std::vector<void*>;
  kept.push_back(what);
}

/// All that is known of a run.
class run_state {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  run_state(search_state& strategy, limits most) : search_(strategy), most_(most) { places_.resize(64); }
  run_state(const run_state&) = delete;
  run_state& operator=(const run_state&) = delete;

  std::string name_of(unsigned thread) const {
    if (thread == 0) return "main";
    if (threads_[thread].role >= 0) return "role " + std::to_string(threads_[thread].role);
    return "thread " + std::to_string(thread);
  }

  /// What everybody waits for, when nobody can go on.
  finding deadlock() const {
    finding all{fault::deadlock, "nobody can go on:"};
    for (unsigned i = 0; i < count_; ++i) {
      const thread_state& each = threads_[i];
      if (each.finished || (i == 0 && each.pending.kind == op_kind::join_roles)) continue;
      all.message += "\n  " + name_of(i);
      if (each.parked) {
        const bool lost = places_[each.waits_on].lost_notify;
        if (lost) all.what = fault::lost_wakeup;
        all.message += lost ? " waits for a notification, and one came before it waited" : " waits for a notification";
      } else if (each.pending.kind == op_kind::lock) {
        const int owner = places_[each.pending.uses[0].place].owner;
        all.message += " wants a mutex that " + name_of(static_cast<unsigned>(owner)) + " holds";
      } else {
        all.message += std::string(" is at ") + to_string(each.pending.kind);
      }
      all.message += where(each.pending.at);
    }
    return all;
  }

 protected:
  search_state& search_;
  const limits most_;
  std::array<thread_state, max_threads> threads_{};
  unsigned running_ = 0;
  thread_state* self_ = &threads_[0];  // the running one
  unsigned count_ = 0;
  thread_mask unfinished_ = 0;
  thread_mask may_block_ = 0;  // those that want a mutex or the end of a thread
  bool watches_ = false;       // the body has an invariant
  unsigned alive_ = 0;
  bool muted_ = false;
  thread_mask yielded_ = 0;
  std::vector<place> places_;
  std::size_t place_count_ = 0;
  std::array<uint16_t, 8> ordinals_{};
  uint32_t run_ = 0;
  time_point now_{};
  unsigned stale_used_ = 0, spurious_used_ = 0, timeouts_used_ = 0, weak_used_ = 0;
  unsigned interruptions_used_ = 0, migrations_used_ = 0;
  bool orders_all_ = false;
  bool unlock_steps_ = false;
  int next_edge_ = 0;
  int living_ = 0;  // objects made in this run and not yet destroyed
  std::vector<const void*> graves_;
  vector_clock fences_;             // what sequentially consistent fences have made visible,
  vector_clock sequential_stores_;  // and what such stores have
  static inline char edges_[65536];
  static inline char end_edge_ = 0;

  static constexpr uint16_t everything = 1;
  static constexpr uint16_t the_clock = 2;
  static constexpr uint16_t the_sequences = 3;

  body* body_ = nullptr;
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_OPERATION_HPP
