// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Keeps for ever what must not be destroyed: state that a thread nobody waits for any more still uses, and in a forked
/// child what belongs to its parent.

#ifndef CURFEW_DETAIL_LEAKED_HPP
#define CURFEW_DETAIL_LEAKED_HPP

#include <memory>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A base of what may have to be kept, so that keeping it cannot fail for want of memory.
struct leaked_node {
  leaked_node* next_leaked = nullptr;
  std::shared_ptr<void> itself;
};

// Keeps the leaked reachable, so that leak checkers can tell them from mistakes.
CURFEW_VISIBLE inline constinit std_sync::atomic<leaked_node*> leaked_nodes{nullptr};

/// \p itself owns \p node.
inline void leak(leaked_node& node, std::shared_ptr<void> itself) noexcept {
  node.itself = std::move(itself);
  node.next_leaked = leaked_nodes.load(std::memory_order_seq_cst);
  while (!leaked_nodes.compare_exchange_weak(node.next_leaked, &node, std::memory_order_seq_cst,
                                             std::memory_order_seq_cst)) {
  }
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LEAKED_HPP
