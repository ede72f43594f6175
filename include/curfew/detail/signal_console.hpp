// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Where signals are events of a console: Ctrl-C counts as SIGINT; Ctrl-Break, the closing of the window, and the end
/// of the session or of the system count as SIGTERM. The system calls the handler on a thread of its own, so it may
/// lock. What is done about an event is the same everywhere, so that it can be tested everywhere; asking the system for
/// events is for Windows only.

#ifndef CURFEW_DETAIL_SIGNAL_CONSOLE_HPP
#define CURFEW_DETAIL_SIGNAL_CONSOLE_HPP

#include <chrono>
#include <csignal>
#include <cstdint>
#include <mutex>

#include <curfew/detail/config.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The numbers by which the system calls its events; Ctrl-Break is 1.
enum console_event : unsigned long {
  console_interrupt = 0,
  console_close = 2,
  console_logoff = 5,
  console_shutdown = 6
};

constexpr int signal_of(unsigned long event) noexcept {
  return event == console_interrupt ? SIGINT : SIGTERM;
}
/// When the handler returns from one of these the process is ended, and it is ended anyway after about five seconds.
constexpr bool ends_process(unsigned long event) noexcept {
  return event == console_close || event == console_logoff || event == console_shutdown;
}
inline constexpr std::chrono::milliseconds console_patience{4500};

/// Whose bell a console event rings.
///
///     owned_ == 0  nobody's: events go to whoever was there before
///     owned_ != 0  that of a lifespan, which lives until release()
///
/// An event that ends the process is held here until the lifespan that was told of it has been destroyed: `releases_`
/// has moved on then, also when somebody else owns by the time the held thread looks again.
template <class Sync>
class console_owner {
 public:
  console_owner() = default;
  console_owner(const console_owner&) = delete;
  console_owner& operator=(const console_owner&) = delete;

  /// On the system's thread. False: not ours, the next handler is asked. Handler and bell are called under the lock,
  /// so that neither outlives release(); neither may wait.
  bool on_event(unsigned long event) noexcept {
    std::unique_lock lock(mutex_);
    if ((owned_ & signal_bit(signal_of(event))) == 0) return false;
    handler_(signal_of(event));
    ring_(bell_);
    if (ends_process(event)) {
      const std::uint64_t told = releases_;
      gone_.wait_until(lock, Sync::clock::now() + console_patience, [&] { return releases_ != told; });
    }
    return true;
  }

  /// False when somebody owns already; otherwise as acquire_signals().
  template <class Prepare>
  bool acquire(std::uint64_t wanted, signal_handler handler, void (*ring)(const void*) noexcept, const void* bell,
               Prepare prepare) {
    const std::lock_guard lock(mutex_);
    if (owned_ != 0) return false;
    prepare();
    owned_ = wanted;
    handler_ = handler;
    ring_ = ring;
    bell_ = bell;
    return true;
  }

  void release() noexcept {
    const std::lock_guard lock(mutex_);
    owned_ = 0;
    ++releases_;
    gone_.notify_all();
  }

  std::uint64_t owned() noexcept {
    const std::lock_guard lock(mutex_);
    return owned_;
  }

 private:
  typename Sync::mutex mutex_;
  typename Sync::condition_variable gone_;
  // Guarded by mutex_:
  std::uint64_t owned_ = 0;
  std::uint64_t releases_ = 0;
  signal_handler handler_ = nullptr;
  void (*ring_)(const void*) noexcept = nullptr;
  const void* bell_ = nullptr;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#if defined(_WIN32)

// What windows.h declares, without its macros.
extern "C" __declspec(dllimport) int __stdcall SetConsoleCtrlHandler(int(__stdcall*)(unsigned long), int);

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Never destroyed: the system's thread may come at any time.
inline console_owner<std_sync>& process_console() noexcept {
  static auto* one = new console_owner<std_sync>;
  return *one;
}

inline int __stdcall on_console_event(unsigned long event) {
  return process_console().on_event(event) ? 1 : 0;
}

template <class Prepare>
bool acquire_console(std::uint64_t wanted, signal_handler handler, void (*ring)(const void*) noexcept, const void* bell,
                     Prepare prepare) {
  if (!process_console().acquire(wanted, handler, ring, bell, prepare)) return false;
  ::SetConsoleCtrlHandler(&on_console_event, 1);
  return true;
}

inline void release_console() noexcept {
  process_console().release();
  ::SetConsoleCtrlHandler(&on_console_event, 0);
}

inline std::uint64_t owned_by_console() noexcept {
  return process_console().owned();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif

#endif  // CURFEW_DETAIL_SIGNAL_CONSOLE_HPP
