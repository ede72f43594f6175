// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A schedule in which the process would die is a result like any other: the signal of a broken access, or of an abort
/// (the heap's complaint about a second free), becomes a finding, with its story and its replay string.

#ifndef CURFEW_TESTING_CRASH_HPP
#define CURFEW_TESTING_CRASH_HPP

#include <csignal>
#include <cstddef>
#include <memory>

#include <curfew/detail/config.hpp>
#include <curfew/testing/fiber.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

/// While it lives, such a signal calls \p tell on a stack of its own, and \p tell does not come back: the explorer
/// leaves the fiber for good. That is why nothing is blocked there. The heap may be broken by then; what is still to be
/// done is to say so. Sanitizers have handlers that say more, and keep them. One at a time in a process.
class crash_watch {
 public:
  explicit crash_watch(void (*tell)(int signo)) {
    if constexpr (CURFEW_TESTING_ASAN != 0 || CURFEW_TESTING_TSAN != 0) return;
    told() = tell;
    place_ = std::make_unique<unsigned char[]>(stack_size);
    stack_t mine{};
    mine.ss_sp = place_.get();
    mine.ss_size = stack_size;
    ::sigaltstack(&mine, &old_stack_);
    struct sigaction how {};
    how.sa_handler = [](int signo) { told()(signo); };
    how.sa_flags = SA_ONSTACK | SA_NODEFER;
    ::sigemptyset(&how.sa_mask);
    for (std::size_t i = 0; i != count; ++i) ::sigaction(signals[i], &how, &old_[i]);
  }
  crash_watch(const crash_watch&) = delete;
  crash_watch& operator=(const crash_watch&) = delete;
  ~crash_watch() {
    if (!place_) return;
    for (std::size_t i = 0; i != count; ++i) ::sigaction(signals[i], &old_[i], nullptr);
    ::sigaltstack(&old_stack_, nullptr);
  }

 private:
  static constexpr std::size_t count = 5;
  static constexpr int signals[count] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  static constexpr std::size_t stack_size = 256 * 1024;  // the finding is put into words there

  static void (*&told())(int) {
    static void (*tell)(int) = nullptr;
    return tell;
  }

  std::unique_ptr<unsigned char[]> place_;
  stack_t old_stack_{};
  struct sigaction old_[count] {};
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_CRASH_HPP
