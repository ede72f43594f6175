// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Who asked for the stop, with what, and how urgently: one word that signal handlers and threads write alike, plus a
/// counter per signal. Lock-free, so that the handler of an owned signal does all its work here.

#ifndef CURFEW_DETAIL_LIFESPAN_REQUEST_HPP
#define CURFEW_DETAIL_LIFESPAN_REQUEST_HPP

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include <curfew/detail/config.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/signal_wakeup.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The request word.
///
///     bits 0..1    rung    0 nobody asked, 1 requested, 2 hurried; the third rung is the end of the process
///     bits 2..4    cause   stop_cause of the first request, never changed while rung > 0
///     bits 5..11   signal  first stop signal counted, 0 while there was none
///     bits 12..63  moment  of the last rung, microseconds of the policy's clock
///
/// Transitions: 0 -> 1 ask(), count(); 1 -> 2 count() past the guard, climb(); 2 -> `_Exit` likewise; any -> 0 or 1
/// forget(), by reset() alone. A signal counted within the guard of the last rung only fills in `signal`.
struct stop_request {
  unsigned rung = 0;
  stop_cause cause = stop_cause::none;
  int signal = 0;
  std::uint64_t moment = 0;

  static constexpr stop_request unpack(std::uint64_t word) noexcept {
    return {static_cast<unsigned>(word & 3), static_cast<stop_cause>((word >> 2) & 7),
            static_cast<int>((word >> 5) & 127), word >> 12};
  }
  constexpr std::uint64_t pack() const noexcept {
    return std::uint64_t{rung} | std::uint64_t{static_cast<unsigned>(cause)} << 2 |
           static_cast<std::uint64_t>(signal) << 5 | moment << 12;
  }
};

/// Everything here is sequentially consistent: nothing is hot, and forget() relies on it (see there).
template <class Sync>
class stop_ledger {
 public:
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  using counts = std::array<unsigned, signal_limit>;

  stop_request request() const noexcept { return stop_request::unpack(word_.load(std::memory_order_seq_cst)); }

  unsigned count_of(int signo) const noexcept {
    return is_signal(signo) ? counts_[static_cast<unsigned>(signo)].load(std::memory_order_seq_cst) : 0;
  }
  counts snapshot() const noexcept {
    counts all{};
    for (int signo = 1; signo < signal_limit; ++signo) all[static_cast<unsigned>(signo)] = count_of(signo);
    return all;
  }

  /// A stop that no signal asked for. True when it is the first request.
  bool ask(stop_cause cause) noexcept {
    std::uint64_t word = word_.load(std::memory_order_seq_cst);
    do {
      if (stop_request::unpack(word).rung != 0) return false;
    } while (!swap(word, {1, cause, 0, now()}));
    Sync::here("lifespan.request.latched");
    return true;
  }

  /// What the handler of an owned signal does. Async-signal-safe.
  void count(int signo) noexcept {
    if (!is_signal(signo)) return;
    counts_[static_cast<unsigned>(signo)].fetch_add(1, std::memory_order_seq_cst);
    if (signo != hangup_.load(std::memory_order_seq_cst)) climb(signo, guard_.load(std::memory_order_seq_cst));
  }

  /// One rung up, unless the last one is younger than \p guard microseconds. The third rung does not return.
  void climb(int signo, std::uint64_t guard) noexcept {
    std::uint64_t word = word_.load(std::memory_order_seq_cst);
    stop_request next;
    do {
      next = stop_request::unpack(word);
      const std::uint64_t moment = now();
      if (next.signal == 0) next.signal = signo;
      if (next.rung == 0) {
        next = {1, stop_cause::signal, signo, moment};
      } else if (moment >= next.moment + guard) {
        if (next.rung == 2) std::_Exit(128 + signo);
        next.rung = 2;
        next.moment = moment;
      }
    } while (!swap(word, next));
  }

  /// escalate(): requests, hurries, leaves.
  void force_up() noexcept {
    if (ask(stop_cause::requested)) return;
    std::uint64_t word = word_.load(std::memory_order_seq_cst);
    stop_request next;
    do {
      next = stop_request::unpack(word);
      if (next.rung == 2) std::_Exit(128 + SIGTERM);
      next.rung = 2;
      next.moment = now();
    } while (!swap(word, next));
  }

  /// Back to no request, except that a stop signal counted since \p seen was taken stays latched as a new request. A
  /// handler counts first and looks at the word afterwards; here the word is written first and the counters are looked
  /// at afterwards. In the single order of all these, one of the two sees the other.
  void forget(const counts& seen) noexcept {
    Sync::here("lifespan.request.forgetting");
    word_.store(0, std::memory_order_seq_cst);
    for (int signo = 1; signo < signal_limit; ++signo) {
      if (signo == hangup_.load(std::memory_order_seq_cst)) continue;
      if (count_of(signo) != seen[static_cast<unsigned>(signo)] && request().rung == 0)
        climb(signo, ~std::uint64_t{0} >> 12);
    }
  }

  /// Before anybody can count: \p hangup is the signal that means reload, 0 for none.
  void configure(int hangup, std::chrono::nanoseconds guard) noexcept {
    hangup_.store(hangup, std::memory_order_seq_cst);
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(guard).count();
    guard_.store(micros > 0 ? static_cast<std::uint64_t>(micros) : 0, std::memory_order_seq_cst);
  }

  /// For the next owner of the process-wide ledger.
  void clear() noexcept {
    for (auto& counter : counts_) counter.store(0, std::memory_order_seq_cst);
    word_.store(0, std::memory_order_seq_cst);
  }

  static std::uint64_t now() noexcept { return micros(clock::now()); }
  static time_point moment_of(const stop_request& request) noexcept {
    return time_point(std::chrono::duration_cast<typename clock::duration>(std::chrono::microseconds(request.moment)));
  }

 private:
  static std::uint64_t micros(time_point when) noexcept {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count());
  }
  bool swap(std::uint64_t& word, const stop_request& next) noexcept {
    return word_.compare_exchange_weak(word, next.pack(), std::memory_order_seq_cst, std::memory_order_seq_cst);
  }

  typename Sync::template atomic<std::uint64_t> word_{0};
  typename Sync::template atomic<std::uint64_t> guard_{0};
  typename Sync::template atomic<int> hangup_{0};
  std::array<typename Sync::template atomic<unsigned>, signal_limit> counts_{};
};

#if CURFEW_POSIX

/// The ledger of the lifespan that owns the process's signals. Immortal: a handler may still be running when its
/// lifespan is gone.
template <class Sync>
CURFEW_VISIBLE inline constinit stop_ledger<Sync> process_ledger{};

/// The handler of every owned signal: one write() is its only system call on the normal path.
template <class Sync>
void on_owned_signal(int signo) noexcept {
  const handler_scope scope;
  if (!process_signals.in_owner_process()) {
    step_aside(signo, &on_owned_signal<Sync>);
    return;
  }
  process_ledger<Sync>.count(signo);
  const int bell = process_signals.bell.load(std::memory_order_seq_cst);
  if (bell >= 0) ring_bell(bell);
}

#else

template <class Sync>
inline constinit stop_ledger<Sync> process_ledger{};

template <class Sync>
void on_owned_signal(int signo) noexcept {
  process_ledger<Sync>.count(signo);
}

#endif

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_REQUEST_HPP
