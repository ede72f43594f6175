// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The seam: the only header that names std::atomic, std::mutex, threads and clocks. Every primitive takes them from a
/// policy, its last and defaulted template parameter, so that the same code also runs under seeded delays, under named
/// park points in the tests, and under a model checker. Users never spell the policy.

#ifndef CURFEW_DETAIL_SYNC_HPP
#define CURFEW_DETAIL_SYNC_HPP

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>

#include <curfew/detail/config.hpp>
#include <curfew/detail/rseq.hpp>
#include <curfew/detail/sync_windows.hpp>

CURFEW_BEGIN_NAMESPACE

/// The policy of production code: aliases of the standard library, nothing added.
///
/// A policy of one's own derives from this one and hides what it changes. What each member must do:
/// - `atomic`, `mutex`, `condition_variable`, `thread`: the standard meaning.
/// - `lasting_condition_variable`: constant-initialised and never destroyed. To be notified only after
///   somebody has waited on it; a policy that hides `mutex` hides this one too.
/// - `plain<T>`: data that is not atomic and that the protocol itself must protect; a checker may watch it for races.
/// - `clock`: monotonic. `self()`: names the calling thread. `yield()`, `pause()`: give way, as a hint only.
/// - `sleep_for(d)`: at least that long. `name_thread(name)`: names the calling thread for debuggers, as a hint only.
/// - `stripe()`: a small number that stays the same for the life of the calling thread and differs between threads as
///   far as possible. Spreads contention; correctness never depends on it.
/// - `local<Tag, T>()`: one zero-initialised T per thread and Tag; T is trivially destructible, so that it can be
///   reached from the destructors of other thread_local objects. No dynamic initialiser runs on any access.
/// - `at_thread_exit(fn, arg)`: calls fn(arg) when the calling thread ends, after the destructors of those of its
///   thread_local objects that were made later. At most one per thread.
/// - `number_of(address)`: spreads objects over a table. Here the address; a checker whose runs must be alike gives
///   each object a number of its own instead.
/// - `restartable<Cells>()`: not zero where threads of this process may call the next two on a detail::cpu_cells of
///   this policy: what its `index` has to be then. May be asked again at any time, from any thread, also in a signal
///   handler.
/// - `add_on_cpu<Delta>(cells)`: one restartable sequence that adds to the cell of this CPU unless the gate is shut
/// (see
///   detail::cpu_cells). False when nothing was added, be it shut or not: there must always be another way. What the
///   calling thread did before is visible to whoever sees the addition.
/// - `restart_all()`: every sequence begun before has either committed, visibly to the caller with all that preceded
/// it,
///   or starts over and sees what the caller did before.
/// - `here(tag)`: a named point inside a protocol. Does nothing here; tests park threads there.
struct CURFEW_VISIBLE std_sync {
  template <class T>
  using atomic = std::atomic<T>;
  template <class T>
  using plain = T;
#if defined(_WIN32)
  using mutex = detail::slim_mutex;
  using condition_variable = detail::slim_condition_variable;
#else
  using mutex = std::mutex;
  using condition_variable = std::condition_variable;
#endif
  class lasting_condition_variable;
  using thread = std::thread;
  using thread_id = std::thread::id;
  using clock = std::chrono::steady_clock;

  static thread_id self() noexcept {
    return std::this_thread::get_id();
  }
  static void yield() noexcept {
    std::this_thread::yield();
  }
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static void sleep_for(std::chrono::nanoseconds d) {
    std::this_thread::sleep_for(d);
  }
  static void name_thread([[maybe_unused]] const char* name) noexcept {
#if defined(__linux__)
    char cut[16] = {};  // what the kernel keeps of it
    for (std::size_t i = 0; i + 1 < sizeof cut && name[i] != '\0'; ++i) cut[i] = name[i];
    static_cast<void>(pthread_setname_np(pthread_self(), cut));
#endif
  }

  static unsigned stripe() noexcept {
    const unsigned mine = stripe_;
    return mine != 0 ? mine : assign_stripe();
  }

  template <class Tag, class T>
  static T& local() noexcept {
    static_assert(std::is_trivially_destructible_v<T>, "curfew: a thread-local slot must not need a destructor");
    static constinit thread_local T value{};
    return value;
  }

  static void at_thread_exit(void (*fn)(void*) noexcept, void* arg) noexcept {
    struct bell {
      void (*fn)(void*) noexcept = nullptr;
      void* arg = nullptr;
      ~bell() {
        if (fn != nullptr) fn(arg);
      }
    };
    thread_local bell rings;
    rings.fn = fn;
    rings.arg = arg;
  }

  static std::uintptr_t number_of(const void* address) noexcept {
    return reinterpret_cast<std::uintptr_t>(address);
  }
  static constexpr void here(const char*) noexcept {}

  template <class Cells>
  static std::int64_t restartable() noexcept {
    if constexpr (CURFEW_MAY_USE_RSEQ != 0 && is_raw<Cells>) {
      // order(none, relaxed): the word is the whole message, and everybody would write the same
      const std::int64_t found = cpu_number_.load(std::memory_order_relaxed);
      return found == unknown ? find_cpu_number() : found;
    } else {
      return 0;
    }
  }

  template <int Delta, class Cells>
  CURFEW_ALWAYS_INLINE static bool add_on_cpu([[maybe_unused]] Cells& cells) noexcept {
#if CURFEW_MAY_USE_RSEQ
    if constexpr (is_raw<Cells>) {
      // order(none, relaxed): the word is the whole message
      const std::int64_t index = cells.index.load(std::memory_order_relaxed);
      // Who leaves has most likely come in this way, who comes in may well find it shut.
      if (Delta < 0 ? __builtin_expect(index == 0, 0) : index == 0) return false;
      return detail::rseq_add<Delta>(cells, index);
    }
#endif
    return false;
  }

  static void restart_all() noexcept {
#if CURFEW_HAS_RSEQ
    if (!detail::rseq_restart_all()) [[unlikely]]
      restart_refused();
#endif
  }

 private:
  // The sequence is written for these; a policy with atomics of its own brings its own, or does without.
  template <class Cells>
  static constexpr bool is_raw = std::is_same_v<decltype(Cells::gate), std::atomic<int>>;

#if CURFEW_HAS_RSEQ
  CURFEW_COLD static std::int64_t find_cpu_number() noexcept {
    const std::int64_t found = detail::rseq_probe();
    // order(none, relaxed): see restartable()
    cpu_number_.store(found, std::memory_order_relaxed);
    return found;
  }

  // The system call worked once, or there would be no sequences to restart: a filter was installed since. What comes
  // now is slower by orders of magnitude, so that nothing new is to depend on it, and it is not to go unnoticed.
  CURFEW_COLD static void restart_refused() noexcept {
    // order(none, relaxed): see restartable()
    if (cpu_number_.exchange(0, std::memory_order_relaxed) != 0) {
      std::fputs("curfew: membarrier is refused; fences opened from now on use the portable backend\n", stderr);
    }
    if (!detail::rseq_visit_all_cpus()) {
      detail::fail("a fence cannot be closed: the system refuses membarrier and sched_setaffinity");
    }
  }

#else
  static std::int64_t find_cpu_number() noexcept {
    return 0;
  }
#endif
  static constexpr std::int64_t unknown = -1;  // fields are aligned, so no offset
  static inline constinit std::atomic<std::int64_t> cpu_number_{unknown};

  CURFEW_COLD static unsigned assign_stripe() noexcept {
    // order(none, relaxed): hands out distinct numbers, guards nothing
    unsigned next = next_stripe_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (next == 0) next = 1;  // 0 means unassigned
    return stripe_ = next;
  }

  static inline constinit thread_local unsigned stripe_ = 0;
  static inline constinit std::atomic<unsigned> next_stripe_{0};
};

/// The standard one can neither be constant-initialised nor go without its destructor. This one is made by the first
/// wait, under the mutex that all who wait hold; whoever notifies has held it after that.
class std_sync::lasting_condition_variable {
 public:
  constexpr lasting_condition_variable() noexcept = default;
  lasting_condition_variable(const lasting_condition_variable&) = delete;
  lasting_condition_variable& operator=(const lasting_condition_variable&) = delete;

  void wait(std::unique_lock<mutex>& lock) { made().wait(lock); }
  void wait_until(std::unique_lock<mutex>& lock, clock::time_point deadline) { made().wait_until(lock, deadline); }
  void notify_all() noexcept { self()->notify_all(); }

 private:
  condition_variable& made() {
    if (!made_) ::new (static_cast<void*>(place_)) condition_variable;
    made_ = true;
    return *self();
  }
  condition_variable* self() noexcept { return std::launder(reinterpret_cast<condition_variable*>(place_)); }

  alignas(condition_variable) unsigned char place_[sizeof(condition_variable)]{};
  bool made_ = false;
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_SYNC_HPP
