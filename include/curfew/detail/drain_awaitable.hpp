// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What `co_await fence.drained()` waits with. It lives in the coroutine's frame and brings its own hook, so waiting
/// allocates nothing; destroying the suspended frame takes the hook off the list again.

#ifndef CURFEW_DETAIL_DRAIN_AWAITABLE_HPP
#define CURFEW_DETAIL_DRAIN_AWAITABLE_HPP

#include <coroutine>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/drain.hpp>
#include <curfew/detail/lot.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Resumes where the wait ends: on the thread of the last leaver, or of whoever closed the empty fence.
struct resume_here {
  void operator()(std::coroutine_handle<> coroutine) const noexcept { coroutine.resume(); }
};

template <class Core, class Resume>
class [[nodiscard]] drain_awaitable {
  using sync = typename Core::sync;

 public:
  drain_awaitable(Core& core, Resume resume) noexcept : core_(&core), lot_(core.where()), resume_(std::move(resume)) {}
  drain_awaitable(const drain_awaitable&) = delete;
  drain_awaitable& operator=(const drain_awaitable&) = delete;

  /// Neither the fence nor the lot's list may be relied on here: the fence may have been destroyed while the coroutine
  /// was waiting for it, which takes the hook off as well.
  ~drain_awaitable() {
    if (!waiting_) return;
    drain_visit<sync> section(*lot_, core_);
    if (!section.retire(hook_)) {
      section.unlock();
      fail("a coroutine was destroyed while drained() was resuming it");
    }
  }

  bool await_ready() const noexcept { return core_->is_drained(); }

  /// From the moment the hook is on the list another thread may resume the coroutine, which may destroy itself and the
  /// fence. Not inlined: compilers have put the temporaries of an inlined await_suspend() into the frame.
  CURFEW_NOINLINE bool await_suspend(std::coroutine_handle<> coroutine) noexcept {
    coroutine_ = coroutine;
    waiting_ = true;
    const bool suspended = core_->enlist(hook_);
    sync::here("drain.awaitable.enlisted");
    if (!suspended) waiting_ = false;  // drained meanwhile: nobody else knows of this coroutine
    return suspended;
  }

  void await_resume() const noexcept {}

 private:
  static void come_due(void* arg) noexcept {
    auto& self = *static_cast<drain_awaitable*>(arg);
    self.waiting_ = false;
    const std::coroutine_handle<> coroutine = self.coroutine_;
    Resume resume(std::move(self.resume_));  // the frame may go before resume() has returned
    resume(coroutine);
  }

  Core* core_;
  lot<sync>* lot_;
  std::coroutine_handle<> coroutine_;
  bool waiting_ = false;  // enlisted, and not yet come due
  Resume resume_;
  drain_hook hook_{&come_due, this};
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_DRAIN_AWAITABLE_HPP
