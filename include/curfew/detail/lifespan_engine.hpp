// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Drives the stages: layers up, and down again through three barriers. Whoever is inside start() or stop() is the
/// controller; `busy_` makes that one thread at a time.

#ifndef CURFEW_DETAIL_LIFESPAN_ENGINE_HPP
#define CURFEW_DETAIL_LIFESPAN_ENGINE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_graph.hpp>
#include <curfew/detail/lifespan_plan.hpp>
#include <curfew/detail/lifespan_report.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/stop_token.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_engine : public lifespan_plan<Sync> {
 public:
  using plan = lifespan_plan<Sync>;
  using typename plan::clock;
  using typename plan::time_point;

  using plan::plan;

  std::shared_ptr<stage_node> add(std::string name) {
    if (this->state() != lifespan_state::idle) {
      CURFEW_THROW(std::logic_error("lifespan '" + options_.name + "': stage '" + name + "' comes too late"));
    }
    stages_.push_back(std::make_shared<stage_node>(std::move(name)));
    return stages_.back();
  }

  bool start() {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return false;
    if (this->own_frame() != nullptr) return this->state() == lifespan_state::running;
    if (claim(lifespan_state::idle) != claimed::yes) return this->state() == lifespan_state::running;
    CURFEW_TRY {
      this->prepare();
      this->unblock_here();
    }
    CURFEW_CATCH_ALL {
      calls_.clear();
      let_go();
      CURFEW_RETHROW;
    }
    const bool up = run_start();
    let_go();
    return up;
  }

  const lifespan_report& stop(stop_cause cause) noexcept {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return report_;
    this->request_stop(cause, std::nullopt);
    if (this->own_frame() != nullptr) {
      this->note_cause();
      return report_;
    }
    Sync::here("lifespan.stop.requested");
    switch (claim_stop()) {
      case claimed::yes:
        break;
      case claimed::refused:
        return report_;
      case claimed::hopeless:
        return given_up() ? lost_ : report_;
    }
    Sync::here("lifespan.stop.claimed");
    run_stop();
    let_go();
    return report_;
  }

  const lifespan_report& report() const noexcept {
    return this->state() == lifespan_state::stopped ? report_ : nothing_;
  }

  bool reset() {
    if (this->in_forked_child() || this->own_frame() != nullptr) return false;
    const auto keep = this->shared_from_this();
    std::stop_source fresh;
    std::vector<stage_record> failures;  // destroyed without the lock: their exceptions are user code
    if (claim(lifespan_state::stopped) != claimed::yes) return false;
    if (this->abandoned_anything()) {
      let_go();
      return false;
    }
    report_ = {};
    calls_.clear();
    started_.clear();
    start_failed_ = stop_failed_ = false;
    told_displaced_ = 0;
    baseline_ = counted_;
    this->told_cause_ = stop_cause::none;
    this->clock_end_ = this->ceiling_ = time_point::max();
    this->origin_ = clock::now();
    for (auto* flag :
         {&this->hurried_, &this->parent_hurries_, &this->parent_cuts_, &this->stage_failed_, &this->unattended_}) {
      flag->store(false, std::memory_order_seq_cst);
    }
    this->observers_.forget_errors();
    this->code_.store(plan::no_code, std::memory_order_seq_cst);
    this->ledger_->forget(counted_);
    {
      const std::lock_guard lock(this->mutex_);
      this->source_.swap(fresh);
      this->reloaded_ = counted_[hangup_signal];  // those that came while it stopped asked for nothing any more
      this->failures_.swap(failures);
      this->notes_.clear();
    }
    this->set_state(lifespan_state::idle);
    let_go();
    return true;
  }

  /// The last thing a lifespan does that left nothing running: what its hooks and observers hold goes now, on this
  /// thread, and not when the last thread of a stop callback lets go of the rest.
  void forget_hooks() noexcept {
    if (this->state() != lifespan_state::stopped || this->any_abandoned_) return;
    for (const auto& stage : stages_) {
      for (auto& hook : stage->hooks) hook = nullptr;
      stage->fences.clear();
    }
    this->observers_.forget_all();
  }

  /// The signal to die of when the policy is reraise and the stop was clean; 0 otherwise.
  int signal_to_reraise() const noexcept {
    const bool due = options_.exit == exit_code_policy::reraise && this->parent() == nullptr &&
                     report_.cause == stop_cause::signal && report_.signal != 0 && !start_failed_ && !stop_failed_ &&
                     !this->stage_failed_.load(std::memory_order_seq_cst) && !this->abandoned_anything() &&
                     this->code_.load(std::memory_order_seq_cst) == plan::no_code;
    return due ? report_.signal : 0;
  }

 protected:
  using plan::baseline_;
  using plan::calls_;
  using plan::counted_;
  using plan::layers_;
  using plan::options_;
  using plan::report_;
  using plan::stages_;
  using plan::start_failed_;
  using plan::started_;
  using plan::stop_failed_;
  using plan::told_displaced_;

  // --- who drives

  /// What came of the wish to drive. `refused`: the state is another one, and nobody drives. `hopeless`: somebody
  /// drives whose end the caller must not wait for.
  enum class claimed : unsigned char { yes, refused, hopeless };

  claimed claim(lifespan_state wanted) noexcept {
    const bool relative = this->in_family_frame();
    for (;;) {
      const std::uint64_t seen = this->ticket();
      Sync::here("lifespan.claim.looking");
      {
        const std::lock_guard lock(this->mutex_);
        if (!this->busy_) {
          if (this->state() != wanted) return claimed::refused;
          this->busy_ = true;
          return claimed::yes;
        }
        if (given_up_ || (led_ && relative)) return claimed::hopeless;
      }
      this->park(seen, time_point::max());
    }
  }

  /// `yes`: the caller drives the stop. `refused`: it is over.
  claimed claim_stop() noexcept {
    for (;;) {
      for (const auto state : {lifespan_state::running, lifespan_state::idle}) {
        const claimed result = claim(state);
        if (result != claimed::refused) return result;
      }
      if (this->state() == lifespan_state::stopped) return claimed::refused;
    }
  }

  void let_go() noexcept {
    {
      const std::lock_guard lock(this->mutex_);
      this->busy_ = false;
    }
    this->ring();
  }

  // --- up

  bool called_off() const noexcept { return this->request().rung != 0 || this->called_off_above(); }

  /// Whether everything is up. If not, it is down again.
  bool run_start() noexcept {
    this->origin_ = clock::now();
    this->clock_end_ = later_by(this->origin_, options_.start_budget);
    if (called_off()) {
      take_over_request();
      open_stop(std::nullopt);
      this->finish(true);
      return false;
    }
    this->set_state(lifespan_state::starting);
    if (start_layers()) {
      this->set_state(lifespan_state::running);
      return true;
    }
    take_over_request();
    open_stop(lifespan_state::rolling_back);
    this->clean_up_barrier();
    this->close_barrier();
    this->drain_barrier();
    this->stop_barrier();
    this->finish(false);
    return false;
  }

  bool start_layers() noexcept {
    this->units_after_ = this->units(lifespan_phase::start, false);
    for (const auto& layer : layers_) {
      const std::size_t step = layer.parallel ? layer.members.size() : 1;
      for (std::size_t i = 0; i != layer.members.size(); i += step) {
        if (called_off() || !start_stages({layer.members.data() + i, step})) return false;
      }
    }
    return !called_off();
  }

  /// One unit: a stage, or a layer of parallel ones.
  bool start_stages(std::span<const std::size_t> members) noexcept {
    this->gather(members, lifespan_phase::start, false);
    this->run_one_unit();
    for (const std::size_t stage : members) {
      const auto& one = calls_[stage][index_of(lifespan_phase::start)];
      started_[stage] =
          !one || one->record.outcome == stage_outcome::ok || one->record.outcome == stage_outcome::timed_out;
      if (!started_[stage]) start_failed_ = true;
    }
    this->look_for_displaced("after the start of", members);
    if (start_failed_) this->request_stop(stop_cause::start_failed, std::nullopt);
    return !start_failed_;
  }

  // --- down

  /// A stop that nobody asked this lifespan for was asked of its parent.
  void take_over_request() noexcept {
    if (this->request().rung == 0) this->request_stop(stop_cause::parent, std::nullopt);
    this->attend(this->request());
  }

  /// Asked for here: what a parent allowed for the start, when there is one, is no bound of this.
  void run_stop() noexcept {
    this->ceiling_ = time_point::max();
    this->parent_cuts_.store(false, std::memory_order_seq_cst);
    this->attend(this->request());
    let_reload_end();
    if (this->state() == lifespan_state::idle) {
      open_stop(std::nullopt);
      this->finish(true);
      return;
    }
    announce();
    open_stop(lifespan_state::closing);
    this->close_barrier();
    this->set_state(lifespan_state::draining);
    this->drain_barrier();
    this->set_state(lifespan_state::stopping);
    this->stop_barrier();
    this->finish(false);
  }

  /// A reload belongs to the running state. It is told by token() and has the grace of any other hook.
  void let_reload_end() noexcept {
    const time_point until = later_by(clock::now(), options_.hang_grace);
    for (;;) {
      const std::uint64_t seen = this->ticket();
      {
        const std::lock_guard lock(this->mutex_);
        if (!this->reloading_) return;
      }
      if (clock::now() >= until) break;
      this->park(seen, until);
    }
    this->any_abandoned_ = true;
    CURFEW_TRY {
      this->abandoned_.push_back("the reload function (on_hangup): still running after the stop was requested");
    }
    CURFEW_CATCH_ALL {}
  }

  /// Stays up, but not ready, for a while: only for the two requests that leave time for it.
  void announce() noexcept {
    const stop_request asked = this->request();
    const bool polite =
        asked.cause == stop_cause::requested || (asked.cause == stop_cause::signal && asked.signal == SIGTERM);
    if (!polite || options_.announce == std::chrono::nanoseconds::zero()) return;
    const unsigned known = asked.cause == stop_cause::signal ? 1 : 0;
    begin_clock(options_.announce);
    this->set_state(lifespan_state::announcing);
    for (;;) {
      const std::uint64_t seen = this->ticket();
      const auto counts = this->ledger_->snapshot();
      unsigned stop_signals = 0;
      for (int signo = 1; signo < signal_limit; ++signo) {
        const auto i = static_cast<std::size_t>(signo);
        if (options_.on_hangup && signo == hangup_signal) continue;
        stop_signals += counts[i] - baseline_[i];
      }
      if (stop_signals > known || this->request().rung > 1 || clock::now() >= this->clock_end_) return;
      this->park(seen, this->clock_end_);
    }
  }

  void begin_clock(std::chrono::nanoseconds budget) noexcept {
    const time_point now = clock::now();
    if (this->hurried()) budget = std::min(budget, options_.hurried_budget);
    this->clock_end_ = later_by(now, budget);
    if (this->told_cause_ != stop_cause::none) return;  // the announcement was part of it
    const stop_request asked = this->request();
    this->told_cause_ = asked.cause;
    this->origin_ = std::min(now, stop_ledger<Sync>::moment_of(asked));
  }

  void open_stop(std::optional<lifespan_state> next) noexcept {
    begin_clock(options_.stop_budget);
    this->note_cause();
    this->take_failures();
    this->look_for_displaced("noticed at the stop of", {});
    if (!next) return;
    this->units_after_ = 0;
    for (const auto phase :
         {lifespan_phase::cleanup, lifespan_phase::close, lifespan_phase::drain, lifespan_phase::stop}) {
      this->units_after_ += this->units(phase, true);
    }
    this->set_state(*next);
  }

  bool given_up() const noexcept {
    const std::lock_guard lock(this->mutex_);
    return given_up_;
  }

  // Guarded by mutex_; of a child, see lifespan_family.hpp.
  bool led_ = false;       // a stop is under way barrier by barrier, driven by the parent
  bool given_up_ = false;  // the parent has abandoned a hook that drives this; never reset

  const lifespan_report nothing_{};
  lifespan_report lost_;  // what stop() returns when it is hopeless; written before the start
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_ENGINE_HPP
