// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The words of a counter that each CPU may change without disturbing the others, and that one store can shut.

#ifndef CURFEW_DETAIL_CPU_CELLS_HPP
#define CURFEW_DETAIL_CPU_CELLS_HPP

#include <cstdint>

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// `Sync::add_on_cpu()` adds to `local` of the lane that has the number of the calling thread's CPU, provided that
/// `gate` is above that number, and tests the gate and adds in one restartable sequence. A gate of zero or less admits
/// nowhere. After storing such a gate and then calling `Sync::restart_all()` no `local` changes any more, and the
/// caller sees all changes. `local` is not a target for anything else: the sequences add to it without a bus lock.
///
/// `shared` is for whoever uses the lanes by ordinary atomic operations instead.
template <class Sync>
struct cpu_cells {
  struct alignas(cache_line) lane {
    typename Sync::template atomic<std::uint64_t> shared{0};
    typename Sync::template atomic<std::uint64_t> local{0};
  };
  static constexpr int lane_count = 16;

  typename Sync::template atomic<int> gate{0};
  // What Sync::restartable() returned: where the number of a CPU is found, the same for all who add. Zero turns the
  // sequence away before it begins; where that has been another value before, this is no more than a saving.
  typename Sync::template atomic<std::int64_t> index{0};
  lane lanes[lane_count];
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_CPU_CELLS_HPP
