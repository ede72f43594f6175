// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The policy of the race harness: real threads and the standard objects, with a seeded delay before each atomic
/// operation and at each named point. Most delays are none, some are a few spins, few give the core away.

#ifndef CURFEW_TESTING_NOISE_SYNC_HPP
#define CURFEW_TESTING_NOISE_SYNC_HPP

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/testing/search.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing {

using engine::random_source;

namespace engine {

/// What disturbs one thread in one round.
struct noise_plan {
  std::uint64_t state = 0;    // 0: nothing does
  unsigned starve_after = 0;  // so many points from now the thread loses half a millisecond; 0: it does not
};

inline noise_plan& noise() noexcept {
  static constinit thread_local noise_plan mine{};
  return mine;
}

inline void disturb() noexcept {
  noise_plan& mine = noise();
  if (mine.state == 0) return;
  random_source chance(mine.state);
  mine.state = chance.next() | 1;
  const std::uint64_t dice = chance.next();
  if (mine.starve_after != 0 && --mine.starve_after == 0) {
    std_sync::sleep_for(std::chrono::microseconds(50 + dice % 450));
  } else if (dice % 8 == 0) {
    for (std::uint64_t i = (dice >> 8) % 256; i != 0; --i) std_sync::pause();
  } else if (dice % 32 == 1) {
    std_sync::yield();
  } else if (dice % 512 == 2) {
    std_sync::sleep_for(std::chrono::microseconds(1));
  }
}

}  // namespace engine

/// std_sync with seeded delays before its operations, for stress.
struct noise_sync : std_sync {
  template <class T>
  class atomic {
   public:
    constexpr atomic() noexcept = default;
    constexpr atomic(T value) noexcept : word_(value) {}  // NOLINT: as std::atomic
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;

    T load(std::memory_order order = std::memory_order_seq_cst) const noexcept {
      engine::disturb();
      return word_.load(order);
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      word_.store(value, order);
    }
    T exchange(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      return word_.exchange(value, order);
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order order, std::memory_order failing) noexcept {
      engine::disturb();
      return word_.compare_exchange_strong(expected, desired, order, failing);
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order order, std::memory_order failing) noexcept {
      engine::disturb();
      return word_.compare_exchange_weak(expected, desired, order, failing);
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      return word_.compare_exchange_strong(expected, desired, order);
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      return word_.compare_exchange_weak(expected, desired, order);
    }
    // As the standard's own parameter is: of the value's type, or a difference of pointers.
    template <class D>
    static auto step(D by) noexcept {
      if constexpr (std::is_integral_v<T>) {
        return static_cast<T>(by);
      } else {
        return static_cast<std::ptrdiff_t>(by);
      }
    }
    template <class D>
    T fetch_add(D by, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      return word_.fetch_add(step(by), order);
    }
    template <class D>
    T fetch_sub(D by, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      return word_.fetch_sub(step(by), order);
    }
    T fetch_and(T by, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      return word_.fetch_and(by, order);
    }
    T fetch_or(T by, std::memory_order order = std::memory_order_seq_cst) noexcept {
      engine::disturb();
      return word_.fetch_or(by, order);
    }

   private:
    std_sync::atomic<T> word_{};
  };

  static void here(const char*) noexcept { engine::disturb(); }
};

}  // namespace testing
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_NOISE_SYNC_HPP
