// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A mutex and a condition variable that are constant-initialised and need no destructor, which those of the standard
/// libraries on Windows are not: the kit's process-wide tables must exist before every static constructor and after
/// every static destructor. Empty elsewhere.

#ifndef CURFEW_DETAIL_SYNC_WINDOWS_HPP
#define CURFEW_DETAIL_SYNC_WINDOWS_HPP

#include <chrono>
#include <condition_variable>
#include <mutex>

#include <curfew/detail/config.hpp>

#if defined(_WIN32)

// What windows.h declares, without its macros. The tags are those of its types, so that both may be seen.
struct _RTL_SRWLOCK;
struct _RTL_CONDITION_VARIABLE;
extern "C" {
__declspec(dllimport) void __stdcall AcquireSRWLockExclusive(_RTL_SRWLOCK*);
__declspec(dllimport) void __stdcall ReleaseSRWLockExclusive(_RTL_SRWLOCK*);
__declspec(dllimport) unsigned char __stdcall TryAcquireSRWLockExclusive(_RTL_SRWLOCK*);
__declspec(dllimport) int __stdcall SleepConditionVariableSRW(_RTL_CONDITION_VARIABLE*, _RTL_SRWLOCK*, unsigned long,
                                                              unsigned long);
__declspec(dllimport) void __stdcall WakeConditionVariable(_RTL_CONDITION_VARIABLE*);
__declspec(dllimport) void __stdcall WakeAllConditionVariable(_RTL_CONDITION_VARIABLE*);
}

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A slim lock: one pointer, zero when free.
class slim_mutex {
 public:
  constexpr slim_mutex() noexcept = default;
  slim_mutex(const slim_mutex&) = delete;
  slim_mutex& operator=(const slim_mutex&) = delete;

  void lock() noexcept { ::AcquireSRWLockExclusive(handle()); }
  bool try_lock() noexcept { return ::TryAcquireSRWLockExclusive(handle()) != 0; }
  void unlock() noexcept { ::ReleaseSRWLockExclusive(handle()); }
  _RTL_SRWLOCK* handle() noexcept { return reinterpret_cast<_RTL_SRWLOCK*>(&word_); }

 private:
  void* word_ = nullptr;
};

class slim_condition_variable {
 public:
  constexpr slim_condition_variable() noexcept = default;
  slim_condition_variable(const slim_condition_variable&) = delete;
  slim_condition_variable& operator=(const slim_condition_variable&) = delete;

  void notify_one() noexcept { ::WakeConditionVariable(handle()); }
  void notify_all() noexcept { ::WakeAllConditionVariable(handle()); }

  void wait(std::unique_lock<slim_mutex>& lock) noexcept { sleep(lock, forever); }
  template <class Condition>
  void wait(std::unique_lock<slim_mutex>& lock, Condition condition) {
    while (!condition()) wait(lock);
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(std::unique_lock<slim_mutex>& lock, std::chrono::time_point<Clock, Duration> deadline) {
    const auto left = deadline - Clock::now();
    if (left <= left.zero()) return std::cv_status::timeout;
    const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    sleep(lock, whole < longest ? static_cast<unsigned long>(whole) : longest);
    return Clock::now() >= deadline ? std::cv_status::timeout : std::cv_status::no_timeout;
  }
  template <class Clock, class Duration, class Condition>
  bool wait_until(std::unique_lock<slim_mutex>& lock, std::chrono::time_point<Clock, Duration> deadline,
                  Condition condition) {
    while (!condition()) {
      if (wait_until(lock, deadline) == std::cv_status::timeout) return condition();
    }
    return true;
  }

 private:
  static constexpr unsigned long forever = 0xFFFF'FFFF;
  static constexpr unsigned long longest = 0x7FFF'FFFF;  // then it looks again

  void sleep(std::unique_lock<slim_mutex>& lock, unsigned long milliseconds) noexcept {
    ::SleepConditionVariableSRW(handle(), lock.mutex()->handle(), milliseconds, 0);
  }
  _RTL_CONDITION_VARIABLE* handle() noexcept { return reinterpret_cast<_RTL_CONDITION_VARIABLE*>(&word_); }

  void* word_ = nullptr;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif

#endif  // CURFEW_DETAIL_SYNC_WINDOWS_HPP
