// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The policy of the explorer for protocols that count on each processor by itself, in restartable sequences.
/// Everything else is as in model_sync, under which such a protocol is told that there are no sequences, and takes its
/// other way.

#ifndef CURFEW_TESTING_RESTARTABLE_MODEL_SYNC_HPP
#define CURFEW_TESTING_RESTARTABLE_MODEL_SYNC_HPP

#include <cstdint>
#include <type_traits>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/testing/model_sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing {
namespace model {

/// A restartable sequence: if `admits(gate, number of this processor)`, adds \p delta to `cell(number)`. False when it
/// does not, or is interrupted: then nothing was added.
template <class T, class Admits, class Cell>
bool add_on_processor(const atomic<T>& gate, Admits admits, Cell cell, int delta, CURFEW_TESTING_HERE) noexcept {
  using value = typename std::remove_reference_t<std::invoke_result_t<Cell, unsigned>>::value_type;
  const engine::unobserved scope;
  auto* run = running();
  if (run == nullptr) return false;
  unsigned chosen = 0;
  return run->add_on_processor(
      gate.to_word(),
      [admits](std::uint64_t bits, unsigned number) { return admits(atomic<T>::from_bits(bits), number); },
      [&](unsigned number) { return cell(chosen = number).to_word(); },
      [&](std::uint64_t bits) {
        return cell(chosen).settle(static_cast<value>(atomic<value>::from_bits(bits) + static_cast<value>(delta)));
      },
      {file, line});
}

}  // namespace model

/// model_sync on a machine with restartable sequences: for the fence backend that uses them.
struct restartable_model_sync : model_sync {
  template <class Cells>
  static constexpr std::int64_t restartable() noexcept {
    return 1;
  }
  template <int Delta, class Cells>
  static bool add_on_cpu(Cells& cells, CURFEW_TESTING_HERE) noexcept {
    return model::add_on_processor(
        cells.gate, [](int gate, unsigned number) { return gate > static_cast<int>(number); },
        [&cells](unsigned number) -> auto& { return cells.lanes[number].local; }, Delta, line, file);
  }
  /// A membarrier that also interrupts every restartable sequence that has begun and not ended.
  static void restart_all(CURFEW_TESTING_HERE) noexcept {
    const engine::unobserved scope;
    if (auto* run = model::running()) run->restart_all({file, line});
  }
};

}  // namespace testing
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_RESTARTABLE_MODEL_SYNC_HPP
