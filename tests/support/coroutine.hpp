// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The two least coroutines that a test needs: one that its owner destroys, and one that destroys itself at its end.
/// Both run at once until they first suspend.

#ifndef CURFEW_TESTS_SUPPORT_COROUTINE_HPP
#define CURFEW_TESTS_SUPPORT_COROUTINE_HPP

#include <coroutine>
#include <exception>
#include <utility>

namespace curfew_test {

class [[nodiscard]] owned_coroutine {
 public:
  struct promise_type {
    owned_coroutine get_return_object() noexcept {
      return owned_coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };

  owned_coroutine() noexcept = default;
  owned_coroutine(owned_coroutine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  owned_coroutine& operator=(owned_coroutine&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~owned_coroutine() { destroy(); }

  bool done() const noexcept { return handle_.done(); }
  void destroy() noexcept {
    if (handle_) std::exchange(handle_, nullptr).destroy();
  }

 private:
  explicit owned_coroutine(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

struct detached_coroutine {
  struct promise_type {
    detached_coroutine get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_COROUTINE_HPP
