// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `testing::race` runs a body on real threads, many times, in a way that makes its roles meet. A body is a struct with
/// `roles`, `role(i)` and `finish()`, as for explore(); it is made anew for each round.
///
///     const auto result = curfew::testing::race<two_increments<curfew::std_sync>>({.name = "two_increments"});
///     if (!result) std::puts(result.summary().c_str());
///
/// *Why not just a barrier.* Threads that leave a barrier together rarely overlap: on two cores in a few of a hundred
/// rounds. Here most rounds meet at one instant of the clock, with offsets swept over the rounds, the others at a
/// barrier; the overlap that really happened is measured, and a run with too little of it is inconclusive, not passed.
///
/// *Isolation.* The rounds run in a forked child, so that a crash or a hang is a result. What the body does must not
/// depend on threads that the parent has. Where there is no fork the rounds run in the process itself.
///
/// *What it cannot do.* It samples; it sees neither every schedule nor what the machine does not reorder. When it finds
/// something, hand the same body to explore(), which says how it comes about.

#ifndef CURFEW_TESTING_RACE_HPP
#define CURFEW_TESTING_RACE_HPP

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/testing/noise_sync.hpp>
#include <curfew/testing/outcome.hpp>

#if CURFEW_POSIX
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace testing {

/// Options of one race().
struct race_options {
  const char* name = "body";
  double seconds = 1.0;                    ///< of rounds, for each number of threads
  std::uint64_t seed = 0;                  ///< 0: taken from the clock, and printed
  std::uint64_t quota = 50;                ///< rounds that must have overlapped; fewer are inconclusive
  std::vector<std::string> must_see = {};  ///< close calls that must have happened; if not, the run is inconclusive
  double patience = 2.0;                   ///< seconds without the end of a round that are a hang
  bool print = true;                       ///< what went wrong, to stderr
};

/// What a race() found. True when nothing went wrong and enough rounds overlapped.
struct race_result {
  fault what = fault::none;
  std::string message;
  std::uint64_t seed = 0;
  std::uint64_t rounds = 0;
  std::uint64_t overlapped = 0;  ///< rounds in which two roles really ran at the same time
  std::uint64_t on_time = 0;     ///< rounds in which all roles made their rendezvous
  std::vector<std::pair<std::string, std::uint64_t>> close_calls;
  std::string replay;  ///< how to ask for the same input again

  explicit operator bool() const noexcept { return what == fault::none; }
  /// One line, and one with the message if there is one.
  std::string summary() const {
    std::string text = what == fault::none ? "passed" : to_string(what);
    text += ": " + std::to_string(rounds) + " rounds, " + std::to_string(overlapped) + " overlapped, " +
            std::to_string(on_time) + " on time";
    for (const auto& each : close_calls) text += ", " + each.first + " " + std::to_string(each.second);
    if (!message.empty()) text += "\n  " + message;
    return text;
  }
};

namespace engine {

/// What a child tells its parent, in memory that both have.
struct race_board {
  struct counter {
    std_sync::atomic<int> claimed{0};  // 1: being named, 2: has a name
    char name[40] = {};
    std_sync::atomic<std::uint64_t> count{0};
  };
  std_sync::atomic<std::uint64_t> rounds{0};
  std_sync::atomic<std::uint64_t> overlapped{0};
  std_sync::atomic<std::uint64_t> on_time{0};
  std_sync::atomic<int> failed{0};
  counter counters[8];
  char message[400] = {};

  void count(const char* what) noexcept {
    for (counter& each : counters) {
      int state = each.claimed.load(std::memory_order_seq_cst);
      if (state == 0) {
        int expected = 0;
        if (each.claimed.compare_exchange_strong(expected, 1, std::memory_order_seq_cst)) {
          std::snprintf(each.name, sizeof each.name, "%s", what);
          each.claimed.store(2, std::memory_order_seq_cst);
        }
      }
      while ((state = each.claimed.load(std::memory_order_seq_cst)) == 1) std_sync::yield();
      if (std::strncmp(each.name, what, sizeof each.name - 1) != 0) continue;
      each.count.fetch_add(1, std::memory_order_seq_cst);
      return;
    }
  }
};

inline constinit race_board* racing = nullptr;

inline std::int64_t nanoseconds() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std_sync::clock::now().time_since_epoch()).count();
}

/// Rounds of one body with one number of threads.
template <class Case>
class race_rounds {
 public:
  race_rounds(unsigned threads, std::uint64_t seed, double seconds)
      : threads_(threads), chance_(seed), seconds_(seconds), slots_(threads) {}

  void run() {
    std::vector<std_sync::thread> workers;
    for (unsigned i = 0; i < threads_; ++i) workers.emplace_back([this, i] { work(i); });
    const std::int64_t end = nanoseconds() + static_cast<std::int64_t>(seconds_ * 1e9);
    // Doubling, so that a run which is stopped from outside has still ended whole batches.
    for (unsigned batch = 1; nanoseconds() < end; batch = std::min(2 * batch, 1024u)) {
      for (unsigned i = 0; i < batch && nanoseconds() < end; ++i) round();
    }
    stop_.store(true, std::memory_order_seq_cst);
    turn_.fetch_add(1, std::memory_order_seq_cst);
    for (auto& worker : workers) worker.join();
  }

 private:
  struct alignas(curfew::detail::cache_line) slot {
    std::int64_t meet = 0, begin = 0, end = 0;
    noise_plan noise;
  };

  std::unique_ptr<Case> make() {
    if constexpr (std::is_constructible_v<Case, unsigned, random_source&>) {
      return std::make_unique<Case>(threads_, chance_);
    } else if constexpr (std::is_constructible_v<Case, random_source&>) {
      return std::make_unique<Case>(chance_);
    } else {
      return std::make_unique<Case>();
    }
  }

  void round() {
    const std::unique_ptr<Case> fixture = make();
    current_ = fixture.get();
    static constexpr unsigned spreads[] = {1, 100, 400, 1500};
    const unsigned spread = spreads[chance_.below(4)];
    const bool rendezvous = chance_.below(4) != 0;
    const unsigned victim = chance_.below(16) == 0 ? chance_.below(threads_) : threads_;
    const std::int64_t meet = rendezvous ? nanoseconds() + 12'000 : 0;
    for (unsigned i = 0; i < threads_; ++i) {
      slots_[i].meet = meet + (rendezvous ? chance_.below(spread) : 0);
      slots_[i].noise = {chance_.next(), i == victim ? 1 + chance_.below(24) : 0};
    }
    done_.store(0, std::memory_order_seq_cst);
    turn_.fetch_add(1, std::memory_order_seq_cst);
    await([this] { return done_.load(std::memory_order_seq_cst) == threads_; });
    fixture->finish();
    racing->rounds.fetch_add(1, std::memory_order_seq_cst);
    bool overlap = threads_ == 1, late = !rendezvous;
    for (unsigned a = 0; a < threads_; ++a) {
      late = late || slots_[a].begin > slots_[a].meet + 1000;
      for (unsigned b = a + 1; b < threads_; ++b) {
        overlap = overlap || (slots_[a].begin < slots_[b].end && slots_[b].begin < slots_[a].end);
      }
    }
    if (overlap) racing->overlapped.fetch_add(1, std::memory_order_seq_cst);
    if (!late) racing->on_time.fetch_add(1, std::memory_order_seq_cst);
  }

  void work(unsigned i) {
    for (std::uint64_t seen = 0;;) {
      await([&] { return turn_.load(std::memory_order_seq_cst) != seen; });
      ++seen;
      if (stop_.load(std::memory_order_seq_cst)) return;
      slot& mine = slots_[i];
      noise() = mine.noise;
      while (nanoseconds() < mine.meet) std_sync::pause();
      mine.begin = nanoseconds();
      current_->role(i);
      mine.end = nanoseconds();
      done_.fetch_add(1, std::memory_order_seq_cst);
    }
  }

  template <class Condition>
  static void await(Condition condition) {
    for (unsigned i = 0; !condition(); ++i) {
      if (i < 200) {
        std_sync::pause();
      } else {
        std_sync::yield();
      }
    }
  }

  const unsigned threads_;
  random_source chance_;
  const double seconds_;
  std::vector<slot> slots_;
  Case* current_ = nullptr;
  std_sync::atomic<std::uint64_t> turn_{0};
  std_sync::atomic<unsigned> done_{0};
  std_sync::atomic<bool> stop_{false};
};

[[noreturn]] inline void end_child(int status) noexcept {
#if CURFEW_POSIX
  std::fflush(nullptr);
  ::_exit(status);
#else
  std::_Exit(status);
#endif
}

/// Runs \p rounds in a child and watches it. Fills in all of the result that does not depend on the body.
template <class Rounds>
void race_isolated(Rounds rounds, const race_options& options, race_result& result) {
#if CURFEW_POSIX
  void* const shared = ::mmap(nullptr, sizeof(race_board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::bad_alloc();
#else
  void* const shared = ::operator new(sizeof(race_board));
#endif
  race_board* const board = ::new (shared) race_board;
  const auto body = [&] {
    racing = board;
    listening = {.check_failed =
                     [](const char* text, const char* file, unsigned line) {
                       int first = 0;
                       if (racing->failed.compare_exchange_strong(first, 1, std::memory_order_seq_cst)) {
                         std::snprintf(racing->message, sizeof racing->message, "%s (%s:%u)", text, file, line);
                         end_child(1);
                       }
                       for (;;) std_sync::sleep_for(std::chrono::seconds(1));
                     },
                 .foreign = nullptr,
                 .close_call = [](const char* what) { racing->count(what); }};
    rounds();
    listening = {};
  };
#if CURFEW_POSIX
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    end_child(0);
  }
  int status = 0;
  std::uint64_t seen = ~std::uint64_t{0};
  std::int64_t changed = nanoseconds();
  for (bool ended = false; !ended && child > 0;) {
    ended = ::waitpid(child, &status, WNOHANG) == child;
    const std::uint64_t now = board->rounds.load(std::memory_order_seq_cst);
    if (now != seen) {
      seen = now;
      changed = nanoseconds();
    } else if (!ended && static_cast<double>(nanoseconds() - changed) > options.patience * 1e9) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      result.what = fault::hang;
      result.message =
          "no round ended for " + std::to_string(options.patience) + " s, after round " + std::to_string(now);
      break;
    }
    if (!ended) std_sync::sleep_for(std::chrono::milliseconds(2));
  }
  if (child < 0) {
    result.what = fault::inconclusive;
    result.message = "fork failed";
  } else if (result.what == fault::none && board->failed.load(std::memory_order_seq_cst) != 0) {
    result.what = fault::check_failed;
    result.message = board->message;
  } else if (result.what == fault::none && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
    result.what = fault::crash;
    result.message = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                         : "exit status " + std::to_string(WEXITSTATUS(status));
  }
#else
  body();
#endif
  result.rounds += board->rounds.load(std::memory_order_seq_cst);
  result.overlapped += board->overlapped.load(std::memory_order_seq_cst);
  result.on_time += board->on_time.load(std::memory_order_seq_cst);
  for (const auto& each : board->counters) {
    if (each.claimed.load(std::memory_order_seq_cst) != 2) continue;
    const auto known = std::find_if(result.close_calls.begin(), result.close_calls.end(),
                                    [&](const auto& call) { return call.first == each.name; });
    const std::uint64_t count = each.count.load(std::memory_order_seq_cst);
    if (known == result.close_calls.end()) {
      result.close_calls.emplace_back(each.name, count);
    } else {
      known->second += count;
    }
  }
  std::destroy_at(board);
#if CURFEW_POSIX
  ::munmap(shared, sizeof(race_board));
#else
  ::operator delete(shared);
#endif
}

}  // namespace engine

/// Races \p Case. With `roles == 0` the body takes any number of threads, from `Case(unsigned threads,
/// random_source&)`: it is run with two, with as many as there are cores, and with four more. Otherwise it is made by
/// `Case()` or by `Case(random_source&)`, whose numbers come from the seed.
template <class Case>
race_result race(const race_options& options = {}) {
  race_result result;
  result.seed = options.seed != 0 ? options.seed : static_cast<std::uint64_t>(engine::nanoseconds());
  std::vector<unsigned> counts = {Case::roles};
  if (Case::roles == 0) {
    const unsigned cores = std::max(2u, std_sync::thread::hardware_concurrency());
    counts = {2, cores, cores + 4};
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  }
  for (const unsigned threads : counts) {
    engine::race_isolated([&] { engine::race_rounds<Case>(threads, result.seed, options.seconds).run(); }, options,
                          result);
    if (result.what != fault::none) break;
  }
  if (result.what == fault::none && result.overlapped < options.quota) {
    result.what = fault::inconclusive;
    result.message = "fewer than " + std::to_string(options.quota) + " rounds overlapped";
  }
  for (const std::string& wanted : options.must_see) {
    const auto seen = std::find_if(result.close_calls.begin(), result.close_calls.end(),
                                   [&](const auto& call) { return call.first == wanted; });
    if (result.what != fault::none || seen != result.close_calls.end()) continue;
    result.what = fault::inconclusive;
    result.message = "never came close: " + wanted;
  }
  result.replay = std::string("race ") + options.name + " seed=" + std::to_string(result.seed);
  if (options.print && result.what != fault::none) {
    std::fprintf(stderr, "%s: %s\n  replay: %s\n", options.name, result.summary().c_str(), result.replay.c_str());
  }
  return result;
}

}  // namespace testing
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_RACE_HPP
