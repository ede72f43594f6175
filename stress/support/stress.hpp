// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Runs one race many times. A scenario is a struct:
///
///     struct my_race {
///       static constexpr unsigned roles = 2;          // threads that race in one round
///       explicit my_race(stress::rng& random);        // the fixture of one round
///       void role(unsigned i);                        // what thread i does, all roles at once
///       void finish();                                // alone, after every role has ended: STRESS_CHECK(...)
///     };
///     int main(int argc, char** argv) { return stress::run<my_race>(argc, argv, "my_race"); }
///
/// Each round the roles meet at one instant of the steady clock, with small offsets swept over the rounds, since
/// threads that merely leave a barrier together rarely overlap. The rounds run in a forked child, so that a crash or a
/// hang is a result and not the end of the test. Exit status: 0 passed, 1 failed, 77 inconclusive (too little overlap
/// to mean anything, which ctest reports as skipped).
///
/// Compiled with CURFEW_STRESS_TWIN the sense is turned round: the program runs against a deliberately broken copy of
/// the headers, exits 0 when the harness caught it (by a check, a crash, a sanitizer or a hang) and 77 when the time
/// ran out first.

#ifndef CURFEW_STRESS_SUPPORT_STRESS_HPP
#define CURFEW_STRESS_SUPPORT_STRESS_HPP

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/detail/sync.hpp>

namespace stress {

#ifdef CURFEW_STRESS_TWIN
inline constexpr bool is_twin = true;
#else
inline constexpr bool is_twin = false;
#endif

/// splitmix64: small, seedable, good enough to choose delays.
class rng {
 public:
  explicit rng(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) noexcept { return next() % n; }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

namespace detail {

/// Lives in memory that the child shares with its parent.
struct board {
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<std::uint64_t> overlapped{0};
  std::atomic<std::uint64_t> counters[8]{};
  std::atomic<int> failed{0};
  char message[256]{};
};

inline board* shared = nullptr;
inline constinit thread_local std::uint64_t noise_state = 0;

inline std::int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[noreturn]] inline void fail(const char* what, const char* file, int line) noexcept {
  // The first failing thread writes the message; the process ends at once, because its state is not to be trusted.
  if (shared != nullptr && shared->failed.exchange(1) == 0) {
    std::snprintf(shared->message, sizeof shared->message, "%s:%d: %s", file, line, what);
    ::_exit(1);
  }
  for (;;) ::pause();
}

}  // namespace detail

#define STRESS_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::stress::detail::fail(#condition, __FILE__, __LINE__))

/// Adds to one of eight numbers that are printed at the end: evidence that the interesting path was taken.
inline void count(unsigned which, std::uint64_t n = 1) noexcept {
  if (detail::shared != nullptr) detail::shared->counters[which].fetch_add(n, std::memory_order_relaxed);
}

/// The production policy with seeded delays at its named points.
struct noise_sync : curfew::std_sync {
  static void here(const char*) noexcept {
    rng random(detail::noise_state);
    detail::noise_state = random.next();
    const std::uint64_t dice = detail::noise_state;
    if (dice % 8 == 0) {
      for (std::uint64_t i = (dice >> 8) % 256; i != 0; --i) curfew::std_sync::pause();
    } else if (dice % 32 == 1) {
      std::this_thread::yield();
    } else if (dice % 512 == 2) {
      ::usleep(1);
    }
  }
};

/// Storage that keeps the bytes of a destroyed T, marked, so that a write after destruction is seen without a
/// sanitizer.
template <class T>
class graveyard {
 public:
  template <class... Args>
  T& make(Args&&... args) {
    return *(object_ = ::new (static_cast<void*>(bytes_)) T(std::forward<Args>(args)...));
  }
  T& get() noexcept { return *object_; }
  void bury() noexcept {
    object_->~T();
    std::memset(bytes_, mark, sizeof bytes_);
  }
  bool disturbed() const noexcept {
    return std::any_of(std::begin(bytes_), std::end(bytes_), [](unsigned char b) { return b != mark; });
  }

 private:
  static constexpr unsigned char mark = 0xdb;
  alignas(T) unsigned char bytes_[sizeof(T)]{};
  T* object_ = nullptr;
};

struct options {
  std::uint64_t seed = 0;
  double seconds = 1.0;
  unsigned threads = 0;  // 0: as many roles as the scenario has
};

namespace detail {

inline options parse(int argc, char** argv) {
  options result;
  result.seed = static_cast<std::uint64_t>(now_ns());
  for (int i = 1; i < argc; i += 2) {
    const std::string_view arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value != nullptr && arg == "--seed") {
      result.seed = std::strtoull(value, nullptr, 0);
    } else if (value != nullptr && arg == "--seconds") {
      result.seconds = std::strtod(value, nullptr);
    } else if (value != nullptr && arg == "--threads") {
      result.threads = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
    } else {
      std::fprintf(stderr, "usage: %s [--seed N] [--seconds S] [--threads N]\n", argv[0]);
      std::exit(2);
    }
  }
  return result;
}

inline void spin_until(std::int64_t deadline) noexcept {
  while (now_ns() < deadline) curfew::std_sync::pause();
}

/// Waits for another thread's word without taking the only core away from it.
template <class Condition>
void spin_for(Condition condition) noexcept {
  for (unsigned i = 0; !condition(); ++i) {
    if (i < 200) {
      curfew::std_sync::pause();
    } else {
      std::this_thread::yield();
    }
  }
}

template <class Scenario>
class round_runner {
 public:
  round_runner(options chosen, unsigned roles) : options_(chosen), roles_(roles), windows_(roles) {}

  void run() {
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < roles_; ++i) workers.emplace_back([this, i] { work(i); });
    rng random(options_.seed);
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(options_.seconds * 1e9);
    while (now_ns() < end) {
      round(random);
      shared->rounds.fetch_add(1, std::memory_order_relaxed);
    }
    stop_.store(true, std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    for (auto& worker : workers) worker.join();
  }

 private:
  struct alignas(64) window {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t start_at = 0;
    std::uint64_t noise = 0;
  };

  void round(rng& random) {
    auto fixture = std::make_unique<Scenario>(random);
    current_ = fixture.get();
    static constexpr std::uint64_t spreads[] = {1, 100, 400, 1500};
    const std::uint64_t spread = spreads[random.below(4)];
    const bool rendezvous = !random.one_in(4);
    const std::int64_t meet = rendezvous ? now_ns() + 12'000 : 0;
    for (auto& w : windows_) {
      w.start_at = meet + (rendezvous ? static_cast<std::int64_t>(random.below(spread)) : 0);
      w.noise = random.next();
    }
    done_.store(0, std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    spin_for([this] { return done_.load(std::memory_order_acquire) == roles_; });
    current_ = nullptr;
    fixture->finish();
    bool overlap = roles_ == 1;
    for (unsigned a = 0; a < roles_ && !overlap; ++a) {
      for (unsigned b = a + 1; b < roles_ && !overlap; ++b) {
        overlap = windows_[a].begin < windows_[b].end && windows_[b].begin < windows_[a].end;
      }
    }
    if (overlap) shared->overlapped.fetch_add(1, std::memory_order_relaxed);
  }

  void work(unsigned i) {
    std::uint64_t seen = 0;
    for (;;) {
      spin_for([&] { return turn_.load(std::memory_order_acquire) != seen; });
      ++seen;
      if (stop_.load(std::memory_order_relaxed)) return;
      auto& mine = windows_[i];
      noise_state = mine.noise;
      spin_until(mine.start_at);
      mine.begin = now_ns();
      current_->role(i);
      mine.end = now_ns();
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  options options_;
  unsigned roles_;
  std::vector<window> windows_;
  Scenario* current_ = nullptr;
  std::atomic<std::uint64_t> turn_{0};
  std::atomic<unsigned> done_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace detail

/// Runs \p Scenario for the time asked for. `roles` may be overridden by --threads when the scenario says so with
/// `static constexpr bool any_number_of_roles = true`.
template <class Scenario>
int run(int argc, char** argv, const char* name) {
  const options chosen = detail::parse(argc, argv);
  unsigned roles = Scenario::roles;
  if constexpr (requires { Scenario::any_number_of_roles; }) {
    if (chosen.threads != 0) roles = chosen.threads;
  }
  std::printf("%s seed=%llu threads=%u seconds=%g\n", name, static_cast<unsigned long long>(chosen.seed), roles,
              chosen.seconds);
  std::fflush(stdout);

  void* memory = ::mmap(nullptr, sizeof(detail::board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 2;
  }
  detail::shared = ::new (memory) detail::board;
  const pid_t child = ::fork();
  if (child < 0) {
    std::perror("fork");
    return 2;
  }
  if (child == 0) {
    detail::round_runner<Scenario>(chosen, roles).run();
    std::fflush(nullptr);
    std::_Exit(0);
  }

  // The parent only watches: no progress for `still` is a hang.
  const auto still = is_twin ? std::chrono::seconds(3) : std::chrono::seconds(30);
  std::uint64_t last_rounds = 0;
  auto last_change = std::chrono::steady_clock::now();
  int status = 0;
  bool hung = false;
  for (;;) {
    const pid_t got = ::waitpid(child, &status, WNOHANG);
    if (got == child) break;
    const std::uint64_t rounds = detail::shared->rounds.load(std::memory_order_relaxed);
    const auto now = std::chrono::steady_clock::now();
    if (rounds != last_rounds) {
      last_rounds = rounds;
      last_change = now;
    } else if (now - last_change > still) {
      hung = true;
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      break;
    }
    ::usleep(2000);
  }

  const auto& board = *detail::shared;
  const std::uint64_t rounds = board.rounds.load();
  const std::uint64_t overlapped = board.overlapped.load();
  const bool clean = !hung && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const char* verdict = hung ? "hang" : clean ? "pass" : board.failed.load() != 0 ? "check failed" : "crash";
  std::printf("%s: %s rounds=%llu overlapped=%llu", name, verdict, static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(overlapped));
  for (unsigned i = 0; i < 8; ++i) {
    if (const std::uint64_t n = board.counters[i].load(); n != 0) {
      std::printf(" c%u=%llu", i, static_cast<unsigned long long>(n));
    }
  }
  std::printf("\n");
  if (!clean) {
    if (board.message[0] != '\0') std::printf("  %s\n", board.message);
    std::printf("  replay: %s --seed %llu --seconds %g --threads %u\n", argv[0],
                static_cast<unsigned long long>(chosen.seed), chosen.seconds, roles);
  }
  if constexpr (is_twin) {
    std::printf(clean ? "twin NOT caught within its budget\n" : "twin caught\n");
    return clean ? 77 : 0;
  } else {
    if (!clean) return 1;
    constexpr std::uint64_t quota = 50;
    if (overlapped < quota) {
      std::printf("inconclusive: fewer than %llu rounds overlapped\n", static_cast<unsigned long long>(quota));
      return 77;
    }
    return 0;
  }
}

}  // namespace stress

#endif  // CURFEW_STRESS_SUPPORT_STRESS_HPP
