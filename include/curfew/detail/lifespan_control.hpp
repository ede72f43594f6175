// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The part of a lifespan that any thread may use at any time: requests, waiting, observers, the state, ownership of
/// signals. What drives the stages is in lifespan_engine.hpp.
///
/// Lock discipline: `mutex_` guards what its comment says, is a leaf, and is never held while a hook, an observer, a
/// stop callback or a system call runs.

#ifndef CURFEW_DETAIL_LIFESPAN_CONTROL_HPP
#define CURFEW_DETAIL_LIFESPAN_CONTROL_HPP

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/leaked.hpp>
#include <curfew/detail/lifespan_frame.hpp>
#include <curfew/detail/lifespan_observers.hpp>
#include <curfew/detail/lifespan_report.hpp>
#include <curfew/detail/lifespan_request.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/signal_owner.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/signal_wakeup.hpp>
#include <curfew/detail/stop_token.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE

/// A second lifespan wants to own signals while another one does. what() names the signals and both sides.
struct CURFEW_VISIBLE ownership_conflict : std::logic_error {
  using std::logic_error::logic_error;
};

namespace detail {

template <class Sync>
class lifespan_control : public leaked_node {
 public:
  using clock = typename Sync::clock;
  using time_point = typename clock::time_point;
  static_assert(std::is_same_v<time_point, std::chrono::steady_clock::time_point>,
                "curfew: a policy's clock must share the time points of std::chrono::steady_clock");

  explicit lifespan_control(lifespan_options options) : options_(std::move(options)), pid_(process_id()) {
    for (const int signo : options_.owned_signals) {
      if (!is_signal(signo)) {
        CURFEW_THROW(
            std::invalid_argument("lifespan '" + options_.name + "': there is no signal " + std::to_string(signo)));
      }
      wanted_ |= signal_bit(signo);
    }
    const int hangup = options_.on_hangup ? hangup_signal : 0;
    wanted_ |= signal_bit(hangup);
    own_ledger_.configure(hangup, options_.escalation_guard);
    if (wanted_ != 0) take_ownership(hangup);
  }
  lifespan_control(const lifespan_control&) = delete;
  lifespan_control& operator=(const lifespan_control&) = delete;

  /// What the lifespan itself has not given back: it may have failed right after taking it.
  ~lifespan_control() {
    if (!in_forked_child()) hand_back();
  }

  bool owns_signals() const noexcept { return wanted_ != 0; }

  /// A forked child has a copy of everything and a right to nothing.
  bool in_forked_child() const noexcept { return process_id() != pid_; }

  lifespan_state state() const noexcept {
    // order(lifespan.state, acquire): everything done before the state was entered; pairs with set_state()
    return state_.load(std::memory_order_acquire);
  }

  stop_request request() const noexcept { return ledger_->request(); }
  bool called_off_above() const noexcept {
    const lifespan_control* above = parent();
    return above != nullptr && above->request().rung != 0;
  }

  bool request_stop(stop_cause cause, std::optional<int> code) noexcept {
    if (in_forked_child() || state() == lifespan_state::stopped) return false;
    if (code) {
      std::int64_t none = no_code;
      code_.compare_exchange_strong(none, *code, std::memory_order_seq_cst, std::memory_order_seq_cst);
    }
    const bool first = ledger_->ask(cause == stop_cause::none ? stop_cause::requested : cause);
    fire_token();
    wake_.ring();
    return first;
  }

  bool escalate() noexcept {
    if (in_forked_child() || state() == lifespan_state::stopped) return false;
    ledger_->force_up();
    fire_token();
    wake_.ring();
    return true;
  }

  void simulate(int signo, unsigned times) noexcept {
    if (in_forked_child()) return;
    for (; times != 0; --times) {
      ledger_->count(signo);
      wake_.ring();
    }
  }

  void fail_stage(std::string_view stage, std::exception_ptr error) noexcept {
    if (in_forked_child() || state() == lifespan_state::stopped) return;
    CURFEW_TRY {
      stage_record record{std::string(stage), lifespan_phase::start, stage_outcome::failed, {}, {}, std::move(error)};
      const std::lock_guard lock(mutex_);
      failures_.push_back(std::move(record));
    }
    CURFEW_CATCH_ALL {  // no memory for the record: the stop and its exit code still come
    }
    stage_failed_.store(true, std::memory_order_seq_cst);
    request_stop(stop_cause::stage_failed, std::nullopt);
  }

  std::stop_token token() const noexcept {
    const std::lock_guard lock(mutex_);
    return source_.get_token();
  }

  int native_handle() const noexcept { return wake_.handle(); }

  void observe(std::function<void(const lifespan_event&)> observer) {
    if (!observer) {
      CURFEW_THROW(std::invalid_argument("lifespan '" + options_.name + "': the observer is an empty function"));
    }
    observers_.add(std::move(observer));
  }

  lifespan_control* parent() const noexcept { return parent_.load(std::memory_order_seq_cst); }

  /// The frame in which the calling thread runs code of this lifespan, or of a child of it; null otherwise.
  const lifespan_frame<Sync>* own_frame() const noexcept {
    return lifespan_frame<Sync>::find(
        [this](const void* owner) { return static_cast<const lifespan_control*>(owner)->is_or_is_below(this); });
  }

  /// Whether the calling thread runs code of this lifespan or of one that has a parent, near or far, in common with it.
  bool in_family_frame() const noexcept {
    return lifespan_frame<Sync>::find([this](const void* owner) {
             for (auto* one = static_cast<const lifespan_control*>(owner); one != nullptr; one = one->parent()) {
               if (is_or_is_below(one)) return true;
             }
             return false;
           }) != nullptr;
  }

  bool is_or_is_below(const void* other) const noexcept {
    for (const lifespan_control* one = this; one != nullptr; one = one->parent()) {
      if (one == other) return true;
    }
    return false;
  }

  /// Gives the signals back and, where this thread's mask was changed, the mask.
  void hand_back() noexcept {
    if (wanted_ == 0 || handed_back_) return;
    handed_back_ = true;
    release_signals();
    const std::lock_guard lock(mutex_);
    for (const auto& [thread, bits] : masks_) {
      if (thread == Sync::self()) block_signals(bits);
    }
  }

  void ring() const noexcept { wake_.ring(); }

  /// A child has abandoned a hook: this process must not run static destructors either.
  void adopt_abandoned() noexcept { child_abandoned_.store(true, std::memory_order_seq_cst); }

 protected:
  static constexpr std::int64_t no_code = std::numeric_limits<std::int64_t>::min();

  // --- waiting: one thread polls the bell, the others wait for it to tell them

  /// To be taken before looking at whatever one waits for, and given to park() afterwards.
  std::uint64_t ticket() const noexcept {
    const std::lock_guard lock(mutex_);
    return rings_;
  }

  /// Returns when the bell has been rung since \p seen was taken, or at \p deadline, or earlier.
  void park(std::uint64_t seen, time_point deadline) {
    std::unique_lock lock(mutex_);
    if (rings_ != seen) return;
    if (polling_) {
      if (deadline == time_point::max()) {
        parked_.wait(lock);
      } else {
        parked_.wait_until(lock, deadline);
      }
      return;
    }
    polling_ = true;
    lock.unlock();
    wake_.wait_until(deadline);
    lock.lock();
    polling_ = false;
    ++rings_;
    parked_.notify_all();
  }

  // --- telling

  void emit(lifespan_event_kind kind, const std::string& stage, lifespan_phase phase, stage_outcome outcome, int signo,
            std::chrono::nanoseconds elapsed) noexcept {
    observers_.tell(this, kind, stage, phase, outcome, signo, elapsed, state());
  }

  void set_state(lifespan_state next) noexcept {
    // order(lifespan.state, release): the controller's work so far; pairs with state()
    state_.store(next, std::memory_order_release);
    Sync::here("lifespan.state.changed");
    emit(lifespan_event_kind::state_changed, {}, lifespan_phase::start, stage_outcome::not_run, request().signal,
         elapsed());
  }

  std::chrono::nanoseconds elapsed() const noexcept { return clock::now() - origin_; }

  void add_note(std::initializer_list<std::string_view> parts) noexcept {
    CURFEW_TRY {
      std::string text;
      for (const auto part : parts) text += part;
      const std::lock_guard lock(mutex_);
      notes_.push_back(std::move(text));
    }
    CURFEW_CATCH_ALL {  // a remark is not worth more than that
    }
  }

  /// Lets every holder of token() know. Stop callbacks run here, on the thread that asks or the one that notices.
  void fire_token() noexcept {
    std::stop_source source(std::nostopstate);
    {
      const std::lock_guard lock(mutex_);
      source = source_;
    }
    const lifespan_frame<Sync> frame(this, "a stop callback");
    source.request_stop();
  }

  /// What whoever drives or waits does about a request it sees.
  void attend(const stop_request& seen) noexcept {
    if (seen.rung == 0) return;
    fire_token();
    if (seen.cause != stop_cause::signal || unattended_.exchange(true, std::memory_order_seq_cst)) return;
    const auto late = clock::now() - stop_ledger<Sync>::moment_of(seen);
    if (late > options_.escalation_guard && seen.rung == 1) {
      emit(lifespan_event_kind::unattended, {}, lifespan_phase::start, stage_outcome::not_run, seen.signal, late);
    }
  }

  void unblock_here() {
    if (wanted_ == 0) return;
    const std::uint64_t bits = unblock_signals(wanted_);
    if (bits == 0) return;
    CURFEW_TRY {
      const std::lock_guard lock(mutex_);
      masks_.emplace_back(Sync::self(), bits);
    }
    CURFEW_CATCH_ALL {
      block_signals(bits);
      CURFEW_RETHROW;
    }
  }

  const lifespan_options options_;
  const long pid_;
  const wakeup<Sync> wake_;
  lifespan_observers<Sync> observers_;
  stop_ledger<Sync> own_ledger_;
  stop_ledger<Sync>* ledger_ = &own_ledger_;
  std::uint64_t wanted_ = 0;  // signals owned, one bit each
  bool handed_back_ = false;
  // Of a child; set before it starts, and cleared when its parent goes and no thread can be inside it any more.
  typename Sync::template atomic<lifespan_control*> parent_{nullptr};

  typename Sync::template atomic<lifespan_state> state_{lifespan_state::idle};
  typename Sync::template atomic<std::int64_t> code_{no_code};
  typename Sync::template atomic<bool> stage_failed_{false};
  typename Sync::template atomic<bool> unattended_{false};  // said, or found not to be so
  typename Sync::template atomic<bool> child_abandoned_{false};

  // What times are counted from: start(), then the stop request. Written by the controller between its hooks.
  time_point origin_ = clock::now();

  mutable typename Sync::mutex mutex_;
  typename Sync::condition_variable parked_;
  // Guarded by mutex_:
  std::uint64_t rings_ = 0;  // how often somebody has come back from the bell
  bool polling_ = false;     // somebody is at the bell
  bool busy_ = false;        // somebody is inside start() or stop(), and drives
  bool reloading_ = false;   // somebody is inside on_hangup
  unsigned reloaded_ = 0;
  std::stop_source source_;
  std::vector<stage_record> failures_;
  std::vector<std::string> notes_;
  std::vector<std::pair<typename Sync::thread_id, std::uint64_t>> masks_;

 private:
  void take_ownership(int hangup) {
    int culprit = 0;
    const acquisition result = acquire_signals(wanted_, &on_owned_signal<Sync>, wake_, culprit, [&] {
      process_ledger<Sync>.clear();
      process_ledger<Sync>.configure(hangup, options_.escalation_guard);
    });
    if (result == acquisition::taken) {
      ledger_ = &process_ledger<Sync>;
      return;
    }
    const int reason = errno;
    std::string signals;
    for (int signo = 1; signo < signal_limit; ++signo) {
      if ((wanted_ & signal_bit(signo)) != 0) signals += (signals.empty() ? "" : ", ") + signal_name(signo);
    }
    if (result == acquisition::conflict) {
      CURFEW_THROW(ownership_conflict("lifespan '" + options_.name + "' cannot own " + signals +
                                      ": another lifespan of this process owns its signals"));
    }
    const std::string what =
        "lifespan '" + options_.name + "' cannot own " + (culprit != 0 ? signal_name(culprit) : signals);
    if (reason == EINVAL) CURFEW_THROW(std::invalid_argument(what));
    CURFEW_THROW(std::system_error(reason, std::generic_category(), what));
  }
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_CONTROL_HPP
