// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Where signals are events of a console: Ctrl-C counts as SIGINT; Ctrl-Break, the closing of the window, and the end
/// of the session or of the system count as SIGTERM. The system calls the handler on a thread of its own, so it may
/// lock. Empty elsewhere.

#ifndef CURFEW_DETAIL_SIGNAL_CONSOLE_HPP
#define CURFEW_DETAIL_SIGNAL_CONSOLE_HPP

#include <chrono>
#include <csignal>
#include <cstdint>
#include <mutex>

#include <curfew/detail/config.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/sync.hpp>

#if defined(_WIN32)

// What windows.h declares, without its macros.
extern "C" __declspec(dllimport) int __stdcall SetConsoleCtrlHandler(int(__stdcall*)(unsigned long), int);

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Whose bell a console event rings. Never destroyed: the system's thread may come at any time.
struct console_owner {
  std_sync::mutex mutex;
  std_sync::condition_variable gone;
  // Guarded by mutex:
  std::uint64_t owned = 0;
  signal_handler handler = nullptr;
  void (*ring)(const void*) noexcept = nullptr;
  const void* bell = nullptr;

  static console_owner& get() noexcept {
    static auto* one = new console_owner;
    return *one;
  }
};

/// When this returns from the last three events the process is ended, and it is ended anyway after about five seconds.
inline constexpr std::chrono::milliseconds console_patience{4500};

inline int __stdcall on_console_event(unsigned long event) {
  constexpr unsigned long interrupt = 0, close = 2, logoff = 5, shutdown = 6;
  const int signo = event == interrupt ? SIGINT : SIGTERM;
  auto& owner = console_owner::get();
  std::unique_lock lock(owner.mutex);
  if ((owner.owned & signal_bit(signo)) == 0) return 0;  // to whoever was there before
  owner.handler(signo);
  owner.ring(owner.bell);
  if (event == close || event == logoff || event == shutdown) {
    owner.gone.wait_until(lock, std_sync::clock::now() + console_patience, [&] { return owner.owned == 0; });
  }
  return 1;
}

/// False when somebody owns already; both are as acquire_signals() and release_signals().
inline bool acquire_console(std::uint64_t wanted, signal_handler handler, void (*ring)(const void*) noexcept,
                            const void* bell) noexcept {
  auto& owner = console_owner::get();
  const std::lock_guard lock(owner.mutex);
  if (owner.owned != 0) return false;
  owner.owned = wanted;
  owner.handler = handler;
  owner.ring = ring;
  owner.bell = bell;
  ::SetConsoleCtrlHandler(&on_console_event, 1);
  return true;
}

inline void release_console() noexcept {
  auto& owner = console_owner::get();
  const std::lock_guard lock(owner.mutex);
  owner.owned = 0;
  owner.gone.notify_all();
  ::SetConsoleCtrlHandler(&on_console_event, 0);
}

inline std::uint64_t owned_by_console() noexcept {
  auto& owner = console_owner::get();
  const std::lock_guard lock(owner.mutex);
  return owner.owned;
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif

#endif  // CURFEW_DETAIL_SIGNAL_CONSOLE_HPP
