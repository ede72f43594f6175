// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The stages of one lifespan as they are driven: the three barriers, who takes part in each, and the report. In what
/// order and on whose demand is in lifespan_engine.hpp. Everything here belongs to the controller.

#ifndef CURFEW_DETAIL_LIFESPAN_PLAN_HPP
#define CURFEW_DETAIL_LIFESPAN_PLAN_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_graph.hpp>
#include <curfew/detail/lifespan_hook.hpp>
#include <curfew/detail/lifespan_report.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/signal_owner.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_plan : public lifespan_runner<Sync> {
 public:
  using runner = lifespan_runner<Sync>;
  using typename runner::call;

  using runner::runner;

  bool abandoned_anything() const noexcept {
    return this->any_abandoned_ || this->child_abandoned_.load(std::memory_order_seq_cst);
  }

 protected:
  using runner::options_;

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
    const std::chrono::nanoseconds defaults[phase_count] = {
        options_.stage_start, options_.stage_close, options_.stage_drain, options_.stage_stop, options_.stage_stop};
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

  // --- the barriers

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
          gather({&*stage, 1}, lifespan_phase::drain, true);
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
  void gather(std::span<const std::size_t> members, lifespan_phase phase, bool down) noexcept {
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
        gather({&*stage, 1}, phase, true);
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
      keep_record(std::move(one->record));
    }
  }

  // --- the report

  void keep_record(stage_record&& record) noexcept {
    CURFEW_TRY {
      report_.records.push_back(std::move(record));
    }
    CURFEW_CATCH_ALL {  // the rest of the report is still true
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
    for (auto& failure : failures) keep_record(std::move(failure));
  }

  /// \p suspects: the stages that may have done it, all of them when the span is empty.
  void look_for_displaced(const char* when, std::span<const std::size_t> suspects) noexcept {
    for (int signo = 1; signo < signal_limit; ++signo) {
      if ((this->wanted_ & signal_bit(signo)) == 0) continue;
      if (!is_displaced(signo)) {
        told_displaced_ &= ~signal_bit(signo);
        continue;
      }
      if ((told_displaced_ & signal_bit(signo)) != 0) continue;
      told_displaced_ |= signal_bit(signo);
      std::string names;
      CURFEW_TRY {
        const std::size_t count = suspects.empty() ? stages_.size() : suspects.size();
        for (std::size_t i = 0; i != count; ++i) {
          names += (i == 0 ? "" : ", ") + stages_[suspects.empty() ? i : suspects[i]]->name;
        }
        report_.displaced_handlers.push_back("the handler of " + signal_name(signo) + " was replaced, " + when + ": " +
                                             names);
      }
      CURFEW_CATCH_ALL {  // no memory: the event below still says so
      }
      this->emit(lifespan_event_kind::handler_displaced, names, lifespan_phase::start, stage_outcome::not_run, signo,
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
        CURFEW_TRY {
          keep_record({stages_[i]->name, phase, skipped ? stage_outcome::skipped : stage_outcome::not_run, {}, {}, {}});
        }
        CURFEW_CATCH_ALL {}
      }
    }
  }

  void finish(bool never_started) noexcept {
    take_failures();
    keep_uncalled(never_started);
    report_.abandoned = std::move(this->abandoned_);
    report_.signal = this->request().signal;
    counted_ = this->ledger_->snapshot();
    CURFEW_TRY {
      for (int signo = 1; signo < signal_limit; ++signo) {
        const auto i = static_cast<std::size_t>(signo);
        if (counted_[i] != baseline_[i]) report_.signals[signo] = counted_[i] - baseline_[i];
      }
    }
    CURFEW_CATCH_ALL {  // no memory: the counts stay out of the report
    }
    report_.observer_errors = this->observers_.errors();
    {
      const std::lock_guard lock(this->mutex_);
      report_.notes = std::move(this->notes_);
    }
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
  lifespan_report report_;
  typename stop_ledger<Sync>::counts baseline_{};  // what had been counted when this run began
  typename stop_ledger<Sync>::counts counted_{};   // what had been counted when it was over
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_PLAN_HPP
