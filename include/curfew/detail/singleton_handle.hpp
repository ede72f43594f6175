// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The handle of a singleton: a pass of the fence of one block, and access to the instance in it.

#ifndef CURFEW_DETAIL_SINGLETON_HANDLE_HPP
#define CURFEW_DETAIL_SINGLETON_HANDLE_HPP

#include <memory>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/singleton_core.hpp>

CURFEW_BEGIN_NAMESPACE

namespace detail {
template <class T, class Traits, class FenceCore, class Sync>
class singleton_engine;
}  // namespace detail

/// Pins one instance for as long as it lives: the instance is destroyed when it has been detached and its last handle
/// is gone, on that handle's thread (or on the thread of a `get` that was just then looking at it, which is a pin of a
/// few instructions and may turn out to be the last). Eight bytes, movable to other threads, may be held for hours, and
/// outlives resets, and a `scoped_singleton` too. One handle object must not be used by two threads at once.
template <class T, class FenceCore, class Sync>
class basic_singleton_handle {
 public:
  basic_singleton_handle() noexcept = default;
  basic_singleton_handle(basic_singleton_handle&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  basic_singleton_handle& operator=(basic_singleton_handle&& other) noexcept {
    basic_singleton_handle old(std::exchange(block_, std::exchange(other.block_, nullptr)));
    return *this;
  }
  ~basic_singleton_handle() {
    if (block_ != nullptr) block_->fence.leave();
  }

  /// Access to the instance. An empty handle has none: `get()` is null then, the operators must not be used.
  T& operator*() const noexcept { return *block_->instance; }
  T* operator->() const noexcept { return block_->instance.get(); }
  T* get() const noexcept { return block_ != nullptr ? block_->instance.get() : nullptr; }
  explicit operator bool() const noexcept { return block_ != nullptr; }

  /// One more for the same instance; succeeds also when that is detached. An empty handle makes an empty one.
  basic_singleton_handle clone() const noexcept {
    if (block_ != nullptr) block_->fence.clone();
    return basic_singleton_handle(block_);
  }

  /// The same pin as a shared pointer. A weak pointer made from it pins nothing. Throws std::bad_alloc, and keeps the
  /// handle then.
  std::shared_ptr<T> share() && {
    if (block_ == nullptr) return nullptr;
    T* const instance = get();
    return std::shared_ptr<T>(std::make_shared<basic_singleton_handle>(std::move(*this)), instance);
  }

  /// Whether the instance has been reset, shut down, replaced or handed back, so that idle users can move on. False for
  /// an empty handle. An instance suspended by an override is not detached. Certain once the call that took it away has
  /// returned; `get` may return another one slightly earlier.
  bool detached() const noexcept { return block_ != nullptr && block_->fence.is_closed(); }

  /// Lets go. May run the instance's destructor.
  void release() noexcept {
    if (block* const pinned = std::exchange(block_, nullptr); pinned != nullptr) pinned->fence.leave();
  }

 private:
  template <class, class, class, class>
  friend class detail::singleton_engine;
  using block = detail::singleton_block<T, FenceCore, Sync>;

  explicit basic_singleton_handle(block* pinned) noexcept : block_(pinned) {}

  block* block_ = nullptr;
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SINGLETON_HANDLE_HPP
