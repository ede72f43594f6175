// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Drives the stages: layers up, and down again through three barriers. Whoever is inside start() or stop() is the
/// controller; `busy_` makes that one thread at a time.

#ifndef CURFEW_DETAIL_LIFESPAN_ENGINE_HPP
#define CURFEW_DETAIL_LIFESPAN_ENGINE_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/lifespan_graph.hpp>
#include <curfew/detail/lifespan_hook.hpp>
#include <curfew/detail/lifespan_report.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_engine : public lifespan_runner<Sync> {
 public:
  using runner = lifespan_runner<Sync>;
  using typename runner::call;
  using typename runner::clock;
  using typename runner::time_point;

  using runner::runner;

  std::shared_ptr<stage_node> add(std::string name) {
    if (this->state() != lifespan_state::idle) {
      throw std::logic_error("lifespan '" + options_.name + "': stage '" + name + "' comes too late");
    }
    stages_.push_back(std::make_shared<stage_node>(std::move(name)));
    return stages_.back();
  }

  bool start() {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return false;
    if (this->own_frame() != nullptr) return this->state() == lifespan_state::running;
    if (!claim(lifespan_state::idle)) return this->state() == lifespan_state::running;
    try {
      prepare();
      this->unblock_here();
    } catch (...) {
      calls_.clear();
      let_go();
      throw;
    }
    run_start();
    if (this->state() != lifespan_state::running) roll_back();
    let_go();
    return this->state() == lifespan_state::running;
  }

  const lifespan_report& stop(stop_cause cause) noexcept {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return report_;
    this->request_stop(cause, std::nullopt);
    if (this->own_frame() != nullptr) {
      note_cause();
      return report_;
    }
    Sync::here("lifespan.stop.requested");
    if (!claim_stop()) return report_;
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
    std::stop_source fresh;
    lifespan_report empty;
    {
      const std::lock_guard lock(this->mutex_);
      if (this->busy_ || this->state() != lifespan_state::stopped || abandoned_anything()) return false;
      this->source_.swap(fresh);
      this->failures_.clear();
      this->notes_.clear();
    }
    report_ = std::move(empty);
    calls_.clear();
    started_.clear();
    start_failed_ = stop_failed_ = false;
    told_displaced_ = 0;
    this->told_cause_ = stop_cause::none;
    this->hurried_.store(false, std::memory_order_seq_cst);
    this->parent_hurries_.store(false, std::memory_order_seq_cst);
    this->stage_failed_.store(false, std::memory_order_seq_cst);
    this->unattended_.store(false, std::memory_order_seq_cst);
    this->observer_errors_.store(0, std::memory_order_seq_cst);
    this->code_.store(runner::no_code, std::memory_order_seq_cst);
    baseline_ = counted_;
    this->origin_ = clock::now();
    this->set_state(lifespan_state::idle);
    this->ledger_->forget(counted_);
    return true;
  }

  bool abandoned_anything() const noexcept {
    return this->any_abandoned_ || this->child_abandoned_.load(std::memory_order_seq_cst);
  }

  /// The signal to die of when the policy is reraise and the stop was clean; 0 otherwise.
  int signal_to_reraise() const noexcept {
    const bool due = options_.exit == exit_code_policy::reraise && this->parent_ == nullptr &&
                     report_.cause == stop_cause::signal && report_.signal != 0 && !start_failed_ && !stop_failed_ &&
                     !abandoned_anything() && this->code_.load(std::memory_order_seq_cst) == runner::no_code;
    return due ? report_.signal : 0;
  }

  // --- as a child: driven by hooks of its parent's stage

  void adopt(lifespan_control<Sync>& parent) noexcept { this->parent_ = &parent; }
  bool has_parent() const noexcept { return this->parent_ != nullptr; }

  /// Both are called by a hook of the parent, with that hook's context.
  bool start_under(const stage_context& above) {
    const auto pressed = follow(above);
    return start();
  }
  void stop_under(lifespan_phase barrier, const stage_context& above) {
    const auto keep = this->shared_from_this();
    if (driven_.exchange(true, std::memory_order_seq_cst)) {
      throw std::runtime_error("child lifespan '" + options_.name + "' is still busy with an earlier barrier");
    }
    const std::unique_ptr<typename Sync::template atomic<bool>, decltype([](auto* flag) {
                            flag->store(false, std::memory_order_seq_cst);
                          })>
        leave(&driven_);
    if (barrier == lifespan_phase::close) {
      this->request_stop(stop_cause::parent, std::nullopt);
      led_ = claim_stop();
    }
    if (!led_) return;  // stopped on its own before its parent was
    const auto pressed = follow(above);
    switch (barrier) {
      case lifespan_phase::close:
        open_stop(lifespan_state::closing);
        close_barrier();
        break;
      case lifespan_phase::drain:
        drain_barrier();
        break;
      default:
        stop_barrier();
        finish(false);
        let_go();
        led_ = false;
        if (abandoned_anything()) this->parent_->child_abandoned_.store(true, std::memory_order_seq_cst);
        if (stop_failed_ || abandoned_anything()) {
          throw std::runtime_error("child lifespan '" + options_.name + "' did not stop cleanly");
        }
    }
  }

 private:
  using runner::options_;

  struct presser {
    lifespan_engine* self;
    void operator()() const noexcept {
      const auto* parent = static_cast<const lifespan_runner<Sync>*>(self->parent_);
      self->press(parent->hurried());
    }
  };

  /// While the result lives, whatever cuts the hook above cuts the hooks here, and nothing here outlasts it.
  [[nodiscard]] std::unique_ptr<std::stop_callback<presser>> follow(const stage_context& above) {
    this->parent_cuts_.store(false, std::memory_order_seq_cst);
    const auto left = above.deadline - clock::now();
    this->ceiling_ = above.deadline == time_point::max() ? above.deadline : above.deadline - left / 8;
    if (above.pressure != urgency::normal) this->press(true);
    this->parent_cuts_.store(false, std::memory_order_seq_cst);
    return std::make_unique<std::stop_callback<presser>>(above.token, presser{this});
  }

  // --- who drives

  /// True: the state is \p wanted and the caller drives. False: it is something else, and nobody drives.
  bool claim(lifespan_state wanted) noexcept {
    for (;;) {
      const std::uint64_t seen = this->ticket();
      {
        const std::lock_guard lock(this->mutex_);
        if (!this->busy_) {
          if (this->state() != wanted) return false;
          this->busy_ = true;
          return true;
        }
      }
      this->park(seen, time_point::max());
    }
  }

  /// True: the caller drives the stop. False: it is over.
  bool claim_stop() noexcept {
    for (;;) {
      if (claim(lifespan_state::running) || claim(lifespan_state::idle)) return true;
      if (this->state() == lifespan_state::stopped) return false;
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

  /// Everything that can fail does so here, before the first hook.
  void prepare() {
    check_budgets(options_);
    layers_ = make_layers(stages_);
    calls_.clear();
    calls_.resize(stages_.size());
    started_.assign(stages_.size(), false);
    group_.clear();
    group_.reserve(stages_.size());
    std::size_t records = 0;
    const std::chrono::nanoseconds defaults[phase_count] = {options_.stage_start, options_.stage_close,
                                                            options_.stage_drain, options_.stage_stop,
                                                            options_.stage_stop};
    for (std::size_t i = 0; i != stages_.size(); ++i) {
      for (std::size_t p = 0; p != phase_count; ++p) {
        const auto phase = static_cast<lifespan_phase>(p);
        if (!stages_[i]->takes_part(phase)) continue;
        calls_[i][p] = std::make_shared<call>(stages_[i], phase, stages_[i]->budgets[p].value_or(defaults[p]));
        ++records;
      }
    }
    report_.records.reserve(records);
  }

  bool called_off() const noexcept {
    return this->request().rung != 0 || (this->parent_ != nullptr && this->parent_->request().rung != 0);
  }

  void run_start() {
    this->origin_ = clock::now();
    this->clock_end_ = later_by(this->origin_, options_.start_budget);
    if (called_off()) return;
    this->set_state(lifespan_state::starting);
    this->units_after_ = units(lifespan_phase::start, false);
    for (const auto& layer : layers_) {
      if (layer.parallel) {
        if (called_off()) return;
        gather(layer.members, lifespan_phase::start, false);
        start_group(layer.members);
      } else {
        for (const std::size_t stage : layer.members) {
          if (called_off()) return;
          const std::array<std::size_t, 1> alone{stage};
          gather(alone, lifespan_phase::start, false);
          start_group(alone);
        }
      }
      if (start_failed_) return;
    }
    if (!called_off()) this->set_state(lifespan_state::running);
  }

  template <class Members>
  void start_group(const Members& members) {
    run_one_unit();
    for (const std::size_t stage : members) {
      const auto& one = calls_[stage][index_of(lifespan_phase::start)];
      const bool up = !one || one->record.outcome == stage_outcome::ok || one->record.outcome == stage_outcome::timed_out;
      started_[stage] = up;
      if (!up) start_failed_ = true;
    }
    look_for_displaced("after the start of", members);
    if (start_failed_) this->request_stop(stop_cause::start_failed, std::nullopt);
  }

  // --- down

  void roll_back() noexcept {
    this->attend(this->request());
    if (this->request().rung == 0) this->request_stop(stop_cause::parent, std::nullopt);
    open_stop(lifespan_state::rolling_back);
    clean_up_barrier();
    close_barrier();
    drain_barrier();
    stop_barrier();
    finish(false);
  }

  void run_stop() noexcept {
    this->attend(this->request());
    if (this->state() == lifespan_state::idle) {
      open_stop(std::nullopt);
      finish(true);
      return;
    }
    announce();
    open_stop(lifespan_state::closing);
    close_barrier();
    this->set_state(lifespan_state::draining);
    drain_barrier();
    this->set_state(lifespan_state::stopping);
    stop_barrier();
    finish(false);
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
#if CURFEW_POSIX
        if (options_.on_hangup && signo == SIGHUP) continue;
#endif
        stop_signals += counts[i] - baseline_[i];
      }
      if (stop_signals > known || this->request().rung > 1 || clock::now() >= this->clock_end_) return;
      this->park(seen, this->clock_end_);
    }
  }

  void begin_clock(std::chrono::nanoseconds budget) noexcept {
    const stop_request asked = this->request();
    this->told_cause_ = asked.cause;
    const time_point now = clock::now();
    this->origin_ = std::min(now, stop_ledger<Sync>::moment_of(asked));
    this->clock_end_ = later_by(now, this->hurried() ? std::min(budget, options_.hurried_budget) : budget);
  }

  void open_stop(std::optional<lifespan_state> next) noexcept {
    if (this->state() != lifespan_state::announcing) {
      begin_clock(options_.stop_budget);
    } else {
      this->clock_end_ = later_by(clock::now(), this->hurried() ? std::min(options_.stop_budget, options_.hurried_budget)
                                                                : options_.stop_budget);
    }
    note_cause();
    take_failures();
    look_for_displaced("noticed at the stop of", stages_.size());
    if (!next) return;
    this->units_after_ = units(lifespan_phase::cleanup, true) + units(lifespan_phase::close, true) +
                         units(lifespan_phase::drain, true) + units(lifespan_phase::stop, true);
    this->set_state(*next);
  }

  /// A start that threw left half a stage behind. One that was given up and still runs is left alone: cleaning up under
  /// it would be a race.
  void clean_up_barrier() noexcept {
    for_each_unit(lifespan_phase::cleanup, [&] { run_one_unit(); });
  }
  void close_barrier() noexcept {
    for_each_unit(lifespan_phase::close, [&] { run_one_unit(); });
  }
  void stop_barrier() noexcept {
    for_each_unit(lifespan_phase::stop, [&] { run_one_unit(); });
  }

  void drain_barrier() noexcept {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      gather(layer->members, lifespan_phase::drain, true);
      if (group_.empty()) continue;
      if (this->units_after_ != 0) --this->units_after_;
      std::chrono::nanoseconds budget{0};
      for (const auto& one : group_) budget = std::max(budget, one->budget);
      this->open_layer(budget);
      if (layer->parallel) {
        this->members_after_ = 0;
        run_gathered();
      } else {
        this->members_after_ = group_.size();
        for (auto stage = layer->members.rbegin(); stage != layer->members.rend(); ++stage) {
          const std::array<std::size_t, 1> alone{*stage};
          gather(alone, lifespan_phase::drain, true);
          if (group_.empty()) continue;
          --this->members_after_;
          run_gathered();
        }
      }
      this->close_layer();
    }
  }

  // --- groups

  bool takes_part(std::size_t stage, lifespan_phase phase, bool down) const noexcept {
    const auto& one = calls_[stage][index_of(phase)];
    if (!one) return false;
    if (!down) return true;
    if (phase != lifespan_phase::cleanup) return started_[stage];
    const auto& begun = calls_[stage][index_of(lifespan_phase::start)];
    return begun && begun->called && !started_[stage] &&
           begun->progress.load(std::memory_order_seq_cst) != hook_progress::abandoned;
  }

  /// Fills `group_`, which never grows past what it was made for. On the way down the order is reversed.
  template <class Members>
  void gather(const Members& members, lifespan_phase phase, bool down) noexcept {
    group_.clear();
    for (const std::size_t stage : members) {
      if (takes_part(stage, phase, down)) group_.push_back(calls_[stage][index_of(phase)]);
    }
    if (down) std::reverse(group_.begin(), group_.end());
  }

  std::size_t units(lifespan_phase phase, bool down) const noexcept {
    std::size_t count = 0;
    for (const auto& layer : layers_) {
      std::size_t here = 0;
      for (const std::size_t stage : layer.members) here += takes_part(stage, phase, down) ? 1 : 0;
      const bool as_one = layer.parallel || phase == lifespan_phase::drain;
      count += as_one ? std::min<std::size_t>(here, 1) : here;
    }
    return count;
  }

  template <class Run>
  void for_each_unit(lifespan_phase phase, Run run) noexcept {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      if (layer->parallel) {
        gather(layer->members, phase, true);
        run();
        continue;
      }
      for (auto stage = layer->members.rbegin(); stage != layer->members.rend(); ++stage) {
        const std::array<std::size_t, 1> alone{*stage};
        gather(alone, phase, true);
        run();
      }
    }
  }

  void run_one_unit() noexcept {
    if (group_.empty()) return;
    if (this->units_after_ != 0) --this->units_after_;
    run_gathered();
  }

  void run_gathered() noexcept {
    this->run_group(group_);
    for (const auto& one : group_) {
      const stage_outcome outcome = one->record.outcome;
      const bool counts = outcome == stage_outcome::timed_out ||
                          (outcome == stage_outcome::failed && one->phase != lifespan_phase::start);
      stop_failed_ = stop_failed_ || counts;
      keep_record(one->record);
    }
  }

  // --- the report

  void keep_record(const stage_record& record) noexcept {
    try {
      report_.records.push_back(record);
    } catch (...) {  // the rest of the report is still true
    }
  }

  /// Once, by whoever comes first: a hook that calls stop() may read it while everything else is still being written.
  void note_cause() noexcept {
    const std::lock_guard lock(this->mutex_);
    if (report_.cause == stop_cause::none) report_.cause = this->request().cause;
  }

  void take_failures() noexcept {
    std::vector<stage_record> failures;
    {
      const std::lock_guard lock(this->mutex_);
      failures.swap(this->failures_);
    }
    for (const auto& failure : failures) keep_record(failure);
  }

  template <class Members>
  void look_for_displaced(const char* when, const Members& members) noexcept {
    for (int signo = 1; signo < signal_limit; ++signo) {
      if ((this->wanted_ & signal_bit(signo)) == 0) continue;
      if (!is_displaced(signo)) {
        told_displaced_ &= ~signal_bit(signo);
        continue;
      }
      if ((told_displaced_ & signal_bit(signo)) != 0) continue;
      told_displaced_ |= signal_bit(signo);
      std::string stages;
      try {
        if constexpr (std::is_same_v<Members, std::size_t>) {
          for (const auto& stage : stages_) stages += (stages.empty() ? "'" : ", '") + stage->name + "'";
        } else {
          for (const std::size_t i : members) stages += (stages.empty() ? "'" : ", '") + stages_[i]->name + "'";
        }
        report_.displaced_handlers.push_back("the handler of " + signal_name(signo) + " was replaced, " + when + " " +
                                             stages);
        stages = stages.substr(1, stages.size() - 2);
      } catch (...) {
      }
      this->emit(lifespan_event_kind::handler_displaced, stages, lifespan_phase::start, stage_outcome::not_run, signo,
                 this->elapsed());
    }
  }

  void keep_uncalled(bool never_started) noexcept {
    for (std::size_t i = 0; i != stages_.size(); ++i) {
      for (std::size_t p = 0; p != phase_count; ++p) {
        const auto phase = static_cast<lifespan_phase>(p);
        if (!stages_[i]->takes_part(phase) || (i < calls_.size() && calls_[i][p] && calls_[i][p]->called)) continue;
        if (phase == lifespan_phase::cleanup) {
          const bool owed = i < calls_.size() && calls_[i][index_of(lifespan_phase::start)] &&
                            calls_[i][index_of(lifespan_phase::start)]->called && !started_[i];
          if (!owed) continue;
        }
        const bool skipped = !never_started && phase != lifespan_phase::start && phase != lifespan_phase::cleanup;
        try {
          keep_record({stages_[i]->name, phase, skipped ? stage_outcome::skipped : stage_outcome::not_run, {}, {}, {}});
        } catch (...) {
        }
      }
    }
  }

  void finish(bool never_started) noexcept {
    take_failures();
    keep_uncalled(never_started);
    report_.abandoned = std::move(this->abandoned_);
    report_.signal = this->request().signal;
    counted_ = this->ledger_->snapshot();
    try {
      for (int signo = 1; signo < signal_limit; ++signo) {
        const auto i = static_cast<std::size_t>(signo);
        if (counted_[i] != baseline_[i]) report_.signals[signo] = counted_[i] - baseline_[i];
      }
    } catch (...) {
    }
    {
      const std::lock_guard lock(this->mutex_);
      report_.notes = std::move(this->notes_);
    }
    report_.observer_errors = this->observer_errors_.load(std::memory_order_seq_cst);
    report_.exit_code = exit_code();
    report_.total = this->elapsed();
    Sync::here("lifespan.stop.finished");
    this->set_state(lifespan_state::stopped);
  }

  int exit_code() const noexcept {
    const std::int64_t code = this->code_.load(std::memory_order_seq_cst);
    if (code != runner::no_code) return static_cast<int>(code);
    if (start_failed_) return 1;
    if (abandoned_anything()) return 124;
    if (stop_failed_ || this->stage_failed_.load(std::memory_order_seq_cst)) return 1;
    const bool by_signal = report_.cause == stop_cause::signal && report_.signal != 0;
    return by_signal && options_.exit != exit_code_policy::zero_when_clean ? 128 + report_.signal : 0;
  }

  stage_list stages_;
  std::vector<stage_layer> layers_;
  std::vector<std::array<std::shared_ptr<call>, phase_count>> calls_;
  std::vector<bool> started_;
  hook_group<Sync> group_;
  bool start_failed_ = false;
  bool stop_failed_ = false;
  std::uint64_t told_displaced_ = 0;
  typename stop_ledger<Sync>::counts baseline_{};  // what had been counted when this run began
  typename stop_ledger<Sync>::counts counted_{};   // what had been counted when it was over
  typename Sync::template atomic<bool> driven_{false};
  bool led_ = false;
  lifespan_report report_;
  const lifespan_report nothing_{};
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_ENGINE_HPP
