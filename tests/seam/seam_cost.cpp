// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What the policy costs when it is std_sync: nothing. Each `policy_` function is the member of a primitive, each
// `hand_` function the same protocol on a bare std::atomic; check_seam.cmake compares the machine code of the two. The
// types are compared here.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>

#include <curfew/detail/compact_core.hpp>
#include <curfew/detail/sync.hpp>

using curfew::std_sync;
using core = curfew::detail::compact_core<std_sync>;

static_assert(std::is_same_v<std_sync::atomic<int>, std::atomic<int>>);
static_assert(std::is_same_v<std_sync::plain<int>, int>);
static_assert(std::is_same_v<std_sync::mutex, std::mutex>);
static_assert(std::is_same_v<std_sync::condition_variable, std::condition_variable>);
static_assert(std::is_same_v<std_sync::thread, std::thread>);
static_assert(std::is_same_v<std_sync::clock, std::chrono::steady_clock>);
static_assert(std::is_empty_v<std_sync>);

namespace {

struct by_hand {
  std::atomic<std::uint64_t> word{0};
  const char* name = "";
};
static_assert(sizeof(core) == sizeof(by_hand) && alignof(core) == alignof(by_hand));

}  // namespace

extern "C" {

bool policy_try_enter(core& fence) {
  return fence.try_enter();
}
bool hand_try_enter(by_hand& fence) {
  std::uint64_t seen = fence.word.load(std::memory_order_acquire);
  do {
    if ((seen & 1) != 0) return false;
  } while (!fence.word.compare_exchange_weak(seen, seen + 4, std::memory_order_acquire, std::memory_order_acquire));
  return true;
}

void policy_clone(core& fence) {
  fence.clone();
}
void hand_clone(by_hand& fence) {
  fence.word.fetch_add(4, std::memory_order_relaxed);
}

bool policy_reopen(core& fence) {
  return fence.reopen();
}
bool hand_reopen(by_hand& fence) {
  std::uint64_t expected = 1;
  return fence.word.compare_exchange_strong(expected, 0, std::memory_order_acq_rel, std::memory_order_acquire);
}

bool policy_is_closed(const core& fence) {
  return fence.is_closed();
}
bool hand_is_closed(const by_hand& fence) {
  return (fence.word.load(std::memory_order_acquire) & 1) != 0;
}

bool policy_is_drained(const core& fence) {
  return fence.is_drained();
}
bool hand_is_drained(const by_hand& fence) {
  return fence.word.load(std::memory_order_acquire) == 1;
}

std::uint64_t policy_inside(const core& fence) {
  return fence.inside();
}
std::uint64_t hand_inside(const by_hand& fence) {
  return fence.word.load(std::memory_order_acquire) / 4;
}

#if defined(CURFEW_SEAM_TWIN)
// A seam that costs something, which the check must notice.
void policy_twin(core& fence) {
  fence.clone();
  static_cast<void>(fence.is_drained());
  asm volatile("nop");
}
void hand_twin(by_hand& fence) {
  fence.word.fetch_add(4, std::memory_order_relaxed);
}
#endif
}
