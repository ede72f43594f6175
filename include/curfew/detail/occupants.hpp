// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Who is inside a fence: nothing for most fences, and for a traced one a record for each pass out. Records lie in
/// blocks that are kept until the fence goes, so a pass holds a plain pointer to its own and a reader can walk them in
/// small steps, without a lock in between and without memory of its own.

#ifndef CURFEW_DETAIL_OCCUPANTS_HPP
#define CURFEW_DETAIL_OCCUPANTS_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <version>
#if defined(__cpp_lib_source_location)
#include <source_location>
#endif

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE

#if defined(__cpp_lib_source_location)
/// std::source_location; where the compiler has none, a class with the same members.
using source_location = std::source_location;
#else
/// Stands in for std::source_location where the compiler has the means and the library has not (clang++ before 16).
class source_location {
 public:
  constexpr source_location() noexcept = default;
  /// As in std::source_location.
  static constexpr source_location current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                           const char* function = __builtin_FUNCTION()) noexcept {
    source_location here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = line;
    return here;
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }
  constexpr std::uint_least32_t line() const noexcept { return line_; }
  constexpr std::uint_least32_t column() const noexcept { return 0; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  std::uint_least32_t line_ = 0;
};
#endif

/// One pass of a traced fence: where it was taken, by which thread, and when. A clone has a record of its own. The
/// thread is the one that entered; whoever holds the pass now, nobody knows.
template <class Sync>
struct basic_fence_occupant {
  source_location where;
  typename Sync::thread_id thread;
  typename Sync::clock::time_point since;
};
/// What for_each_inside() of a traced_admission_fence hands out.
using fence_occupant = basic_fence_occupant<std_sync>;

namespace detail {

/// For fences that only count: no byte and no instruction.
struct untraced {
  struct site {
    static constexpr site current() noexcept { return {}; }
  };
  struct ticket {};
  static constexpr bool lists = false;
};

template <class Sync>
class occupants {
 public:
  using occupant = basic_fence_occupant<Sync>;
  using site = source_location;
  static constexpr bool lists = true;

 private:
  struct stripe;
  struct record {
    occupant who;
    stripe* home = nullptr;
    record* next_free = nullptr;
    bool taken = false;
  };
  struct block {
    block* next = nullptr;
    std::array<record, 84> records;  // just under four KiB
  };
  struct alignas(cache_line) stripe {
    mutable typename Sync::mutex mutex;
    block* blocks = nullptr;  // grows at the head
    record* unused = nullptr;
  };

 public:
  /// What a pass keeps: null when there was no memory for a record. Such a pass is counted and not listed.
  struct ticket {
    record* mine = nullptr;
  };

  constexpr occupants() noexcept = default;
  occupants(const occupants&) = delete;
  occupants& operator=(const occupants&) = delete;
  ~occupants() {
    for (stripe& each : stripes_) {
      for (block* old = each.blocks; old != nullptr;) delete std::exchange(old, old->next);
    }
  }

  void note(ticket& pass, site where) noexcept {
    const occupant who{where, Sync::self(), Sync::clock::now()};
    stripe& home = stripes_[Sync::stripe() % stripes_.size()];
    std::lock_guard lock(home.mutex);
    record* mine = home.unused;
    if (mine == nullptr && (mine = grow(home)) == nullptr) return;
    home.unused = mine->next_free;
    mine->who = who;
    mine->taken = true;
    pass.mine = mine;
  }

  /// To be called while the pass still counts: after that the fence, and this with it, may be gone.
  void forget(ticket& pass) noexcept {
    record* const mine = std::exchange(pass.mine, nullptr);
    if (mine == nullptr) return;
    std::lock_guard lock(mine->home->mutex);
    if (!mine->taken) return;  // given up by a fork
    mine->taken = false;
    mine->next_free = std::exchange(mine->home->unused, mine);
  }

  /// Calls \p f for each, with no lock held.
  template <class F>
  void for_each(F&& f) const {
    for (const stripe& each : stripes_) {
      std::unique_lock lock(each.mutex);
      const block* some = each.blocks;
      lock.unlock();
      for (; some != nullptr; some = some->next) {
        std::array<occupant, 12> seen;
        for (std::size_t next = 0; next < some->records.size();) {
          std::size_t found = 0;
          lock.lock();
          for (; next < some->records.size() && found < seen.size(); ++next) {
            if (some->records[next].taken) seen[found++] = some->records[next].who;
          }
          lock.unlock();
          for (std::size_t i = 0; i < found; ++i) f(static_cast<const occupant&>(seen[i]));
        }
      }
    }
  }

  /// In a forked child: keeps the calling thread's records. Those of the others are neither listed nor used again,
  /// since a pass that lives on may still point there; what a vanished thread was just changing is given up as well.
  void reset_after_fork() noexcept {
    for (stripe& each : stripes_) {
      ::new (static_cast<void*>(&each.mutex)) typename Sync::mutex;
      each.unused = nullptr;
      for (block* some = each.blocks; some != nullptr; some = some->next) {
        for (record& one : some->records) one.taken = one.taken && one.who.thread == Sync::self();
      }
    }
  }

  /// `file:line (function), thread 0x..., for 1.250 s` in \p text, which a short one cuts.
  static void describe(const occupant& one, char* text, std::size_t size) noexcept {
    std::uint64_t thread = 0;  // what debuggers show
    std::memcpy(&thread, &one.thread, sizeof one.thread < sizeof thread ? sizeof one.thread : sizeof thread);
    const std::chrono::duration<double> age = Sync::clock::now() - one.since;
    std::snprintf(text, size, "%s:%u (%s), thread 0x%llx%s, for %.3f s", one.where.file_name(),
                  static_cast<unsigned>(one.where.line()), one.where.function_name(),
                  static_cast<unsigned long long>(thread), one.thread == Sync::self() ? " (this one)" : "",
                  age.count());
  }

 private:
  static record* grow(stripe& home) noexcept {
    auto* const more = new (std::nothrow) block;
    if (more == nullptr) return nullptr;
    for (std::size_t i = more->records.size(); i-- != 0;) {
      more->records[i].home = &home;
      more->records[i].next_free = std::exchange(home.unused, &more->records[i]);
    }
    more->next = std::exchange(home.blocks, more);
    return home.unused;
  }

  std::array<stripe, 16> stripes_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_OCCUPANTS_HPP
