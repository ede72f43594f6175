// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Which lifespans the calling thread runs user code for: what a hook or an observer calls must not wait for itself.

#ifndef CURFEW_DETAIL_LIFESPAN_FRAME_HPP
#define CURFEW_DETAIL_LIFESPAN_FRAME_HPP

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Marks, for as long as it lives, that the calling thread runs user code on behalf of a lifespan.
struct lifespan_frame_tag;
template <class Sync>
class lifespan_frame {
 public:
  lifespan_frame(const void* owner, const char* what) noexcept : owner_(owner), what_(what), up_(top()) {
    top() = this;
  }
  lifespan_frame(const lifespan_frame&) = delete;
  lifespan_frame& operator=(const lifespan_frame&) = delete;
  ~lifespan_frame() { top() = up_; }

  /// The innermost frame of \p owner (a predicate) on this thread, null when there is none.
  template <class Owner>
  static const lifespan_frame* find(Owner owner) noexcept {
    for (const lifespan_frame* frame = top(); frame != nullptr; frame = frame->up_) {
      if (owner(frame->owner_)) return frame;
    }
    return nullptr;
  }
  const char* what() const noexcept { return what_; }

 private:
  static lifespan_frame*& top() noexcept { return Sync::template local<lifespan_frame_tag, lifespan_frame*>(); }

  const void* owner_;
  const char* what_;
  lifespan_frame* up_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_FRAME_HPP
