// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the explorer knows about memory: vector clocks, the stores of an atomic that may still be read, and one record
/// for every object that threads meet at. docs/design/explorer.md has the rules.

#ifndef CURFEW_TESTING_MEMORY_HPP
#define CURFEW_TESTING_MEMORY_HPP

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

using std::uint16_t;
using std::uint32_t;
using std::uint64_t;

/// The main thread, which sets up and finishes, and up to seven others.
inline constexpr unsigned max_threads = 8;
using thread_mask = unsigned;
constexpr thread_mask bit(unsigned thread) noexcept {
  return 1u << thread;
}
/// The first thread of a mask that has one.
constexpr unsigned lowest(thread_mask mask) noexcept {
  return static_cast<unsigned>(std::countr_zero(mask));
}

/// For every thread, how much of what it did is known.
struct vector_clock {
  std::array<uint16_t, max_threads> at{};

  void join(const vector_clock& other) noexcept {
#if defined(__GNUC__)  // the same in two instructions, which compilers do not find by themselves
    using lanes [[gnu::vector_size(sizeof at)]] = uint16_t;
    lanes mine, theirs;
    std::memcpy(&mine, at.data(), sizeof at);
    std::memcpy(&theirs, other.at.data(), sizeof at);
    mine = mine < theirs ? theirs : mine;
    std::memcpy(at.data(), &mine, sizeof at);
#else
    for (unsigned i = 0; i < max_threads; ++i) at[i] = at[i] < other.at[i] ? other.at[i] : at[i];
#endif
  }
  bool knows(unsigned thread, uint16_t stamp) const noexcept {
    return stamp <= at[thread];
  }
};

/// Orders as sets of what they do. The numbers of std::memory_order are those of the standard's enumeration.
struct order_of {
  bool acquires;
  bool releases;
  bool sequential;
  constexpr explicit order_of(int order) noexcept
      : acquires(order == 1 || order == 2 || order >= 4), releases(order >= 3), sequential(order >= 5) {}
};

/// One store of an atomic. The order of the records is the modification order.
struct store_record {
  uint64_t value = 0;
  vector_clock message;  // what an acquiring reader learns
  uint16_t stamp = 0;    // the storing thread's own time; 0 for an initial value, which all know
  uint16_t thread = 0;
  bool sequential = false;
  std::array<uint16_t, max_threads> seen{};  // when each thread first read it
  int edge = -1;                             // the latest publication of the release sequence, for ThreadSanitizer
};

enum class place_kind : unsigned char { none, everything, clock, atomic, mutex, condition, plain, thread };

/// One object that threads meet at. Valid for one run.
struct place {
  const void* address = nullptr;
  place_kind kind = place_kind::none;
  bool destroyed = false;
  bool lost_notify = false;     // somebody notified when nobody waited
  bool of_a_processor = false;  // an atomic that restartable sequences add to
  signed char owner = -1;       // of a mutex
  uint16_t ordinal = 0;         // of its kind

  // For the search: who used it last, in steps of the run.
  int last_write = -1;
  int last_lock = -1;
  thread_mask readers = 0;  // since last_write
  std::array<int, max_threads> last_read{};
  vector_clock after_write;
  vector_clock after_reads;
  vector_clock after_unlock;

  // For the checks: when each thread last used it, in its own time.
  std::array<uint16_t, max_threads> used{};

  // Atomic: the newest store. Mutex: its last unlock. Plain data: its last write.
  store_record newest;
  std::vector<store_record> older;  // kept only where stale reads are explored
  std::array<uint16_t, max_threads> read_at{};
  std::vector<unsigned char> waiters;  // of a condition variable, in order of arrival

  // Of a cell that sequences add to: the last write by somebody who is in none, and when each thread last added.
  uint16_t outside_thread = 0, outside_stamp = 0;
  std::array<uint16_t, max_threads>& added_at() noexcept { return read_at; }

  void reset(const void* where, place_kind what, uint16_t number) noexcept {
    address = where;
    kind = what;
    ordinal = number;
    destroyed = lost_notify = of_a_processor = false;
    owner = -1;
    last_write = last_lock = -1;
    readers = 0;
    after_write = after_reads = after_unlock = {};
    used = {};
    newest = {};
    older.clear();
    read_at = {};
    waiters.clear();
  }
};

/// Whether \p store is known to have happened, to somebody with the coherence clock \p known: then nothing older can be
/// read any more.
inline bool settled(const store_record& store, const vector_clock& known) noexcept {
  if (known.knows(store.thread, store.stamp)) return true;
  for (unsigned i = 0; i < max_threads; ++i) {
    if (store.seen[i] != 0 && store.seen[i] <= known.at[i]) return true;
  }
  return false;
}

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_MEMORY_HPP
