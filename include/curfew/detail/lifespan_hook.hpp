// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// One call of one hook, with its deadline: on a thread of its own, so that giving it up means no more than to stop
/// waiting, or on the controller for code that is bound to a thread, which can be named when it hangs but not given up.

#ifndef CURFEW_DETAIL_LIFESPAN_HOOK_HPP
#define CURFEW_DETAIL_LIFESPAN_HOOK_HPP

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_control.hpp>
#include <curfew/detail/lifespan_graph.hpp>
#include <curfew/detail/lifespan_report.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/stop_token.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Progress of a call:
///
///     running -> finished    the hook's thread, when the hook has returned or thrown
///     running -> abandoned   the watcher, at the deadline
///     abandoned -> late      the hook's thread, if the hook ends after all
///     left                   the same thread, after its thread_local destructors; only then is it joined
///
/// Whoever leaves `running` first wins; `error`, `complaint` and `ended` are written before `finished` and read after
/// it.
inline constexpr std::chrono::milliseconds thread_exit_grace{100};

enum class hook_progress : unsigned char { running, finished, abandoned, late };

/// Made before the first hook runs, so that a stop has nothing left to allocate.
template <class Sync>
struct hook_call : leaked_node {
  using time_point = typename Sync::clock::time_point;

  hook_call(std::shared_ptr<stage_node> its_stage, lifespan_phase its_phase, std::chrono::nanoseconds its_budget)
      : stage(std::move(its_stage)), phase(its_phase), budget(its_budget) {
    record.stage = stage->name;
    record.phase = phase;
  }

  const std::shared_ptr<stage_node> stage;
  const lifespan_phase phase;
  const std::chrono::nanoseconds budget;
  std::stop_source cut;
  stage_context context{};
  typename Sync::template atomic<hook_progress> progress{hook_progress::running};
  time_point ended{};
  std::exception_ptr error;
  hook_complaint complaint;

  // While a thread runs the hook: what it needs even after everybody else has gone, its hold on this, and whether it
  // has nothing left to do but to end.
  std::shared_ptr<lifespan_control<Sync>> owner;
  std::shared_ptr<hook_call> held_by_thread;
  typename Sync::template atomic<bool> left{false};
  typename Sync::thread thread;

  // Of the watcher:
  time_point began{}, slow_at{}, soft_at{}, deadline{};
  bool told_slow = false, told_hung = false, cut_fired = false, hook_over = false, armed = false, settled = false;

  // Of the controller:
  bool here = false;    // runs on the controller
  bool called = false;  // has begun
  stage_record record;
};

template <class Sync>
using hook_group = std::vector<std::shared_ptr<hook_call<Sync>>>;

/// Runs hooks in groups and holds each to its slice of one clock.
template <class Sync>
class lifespan_runner : public lifespan_control<Sync>, public std::enable_shared_from_this<lifespan_runner<Sync>> {
 public:
  using base = lifespan_control<Sync>;
  using typename base::clock;
  using typename base::time_point;
  using call = hook_call<Sync>;
  using group = hook_group<Sync>;

  using base::base;

  /// For a child: its parent is in a hurry, or means to cut the hook that drives the child. Any thread.
  void press(bool hurry) noexcept {
    if (hurry) parent_hurries_.store(true, std::memory_order_seq_cst);
    parent_cuts_.store(true, std::memory_order_seq_cst);
    this->ring();
  }
  bool hurried() const noexcept { return hurried_.load(std::memory_order_seq_cst); }

 protected:
  using base::options_;

  /// slice = min(budget, max(reserve, what is left - reserve for each unit still to come)).
  std::chrono::nanoseconds slice_until(time_point end, std::size_t after, std::chrono::nanoseconds budget,
                                       time_point now) const noexcept {
    std::chrono::nanoseconds left = end - now;
    const auto reserve = options_.stage_reserve;
    if (end != time_point::max()) {
      // In floating point, so that reserves as long as the age of the world do not overflow.
      const double kept = static_cast<double>(reserve.count()) * static_cast<double>(after);
      const double rest = static_cast<double>(left.count()) - kept;
      left = rest <= static_cast<double>(reserve.count()) ? reserve : left - reserve * static_cast<long>(after);
    }
    return std::min(budget, std::max(reserve, left));
  }
  std::chrono::nanoseconds slice(std::chrono::nanoseconds budget, time_point now) const noexcept {
    if (layer_budget_ != std::chrono::nanoseconds::zero()) return slice_until(layer_end_, members_after_, budget, now);
    return slice_until(std::min(clock_end_, ceiling_), units_after_, budget, now);
  }

  /// Drains of one layer share a slice.
  void open_layer(std::chrono::nanoseconds budget) noexcept {
    const time_point now = clock::now();
    layer_end_ = later_by(now, slice(budget, now));
    layer_budget_ = budget;
  }
  void close_layer() noexcept { layer_budget_ = std::chrono::nanoseconds::zero(); }

  /// Calls every hook of \p calls, concurrently if they are several; returns when each has ended or was given up.
  void run_group(const group& calls) {
    if (calls.empty()) return;
    look_at_pressure(clock::now());
    for (const auto& one : calls) begin(*one);
    for (const auto& one : calls) {
      one->here = !one->hook_over && (one->stage->on_controller || !launch(one));
    }
    typename Sync::thread watcher;
    if (std::any_of(calls.begin(), calls.end(), [](const auto& one) { return one->here; })) {
      CURFEW_TRY {
        watcher = typename Sync::thread([&] { watch(calls); });
      }
      CURFEW_CATCH_ALL {
        this->add_note({"no thread to watch the hooks that run on the controller"});
      }
      for (const auto& one : calls) {
        if (!one->here) continue;
        perform(*one, this);
        this->ring();
      }
    }
    if (watcher.joinable()) {
      watcher.join();
    } else {
      watch(calls);
    }
  }

  std::size_t units_after_ = 0;    // hooks, or layers of drains, that still want a share of the clock
  std::size_t members_after_ = 0;  // drains still to come in the layer that is open
  time_point clock_end_ = time_point::max();
  time_point ceiling_ = time_point::max();  // when the hook that drives this child is given up
  stop_cause told_cause_ = stop_cause::none;
  typename Sync::template atomic<bool> hurried_{false};
  typename Sync::template atomic<bool> parent_hurries_{false};
  typename Sync::template atomic<bool> parent_cuts_{false};
  std::vector<std::string> abandoned_;
  bool any_abandoned_ = false;

 private:
  void begin(call& one) noexcept {
    const time_point now = clock::now();
    const auto span = slice(one.budget, now);
    one.called = true;
    one.began = now;
    one.deadline = later_by(now, span);
    one.slow_at = later_by(now, span / 2);
    one.soft_at =
        one.deadline == time_point::max() ? one.deadline : one.deadline - std::min(options_.hang_grace, span / 4);
    one.context = stage_context{one.cut.get_token(), one.deadline, one.phase, told_cause_,
                                hurried() ? urgency::hurried : urgency::normal};
    this->emit(lifespan_event_kind::stage_begin, one.stage->name, one.phase, stage_outcome::not_run, 0, {});
    if (one.phase == lifespan_phase::close) {
      for (const auto& fence : one.stage->fences) fence->close();
    }
    if (!one.stage->has_hook(one.phase)) {
      one.hook_over = true;
      one.ended = clock::now();
    }
  }

  /// When there is no thread to be had the hook runs on the controller: late and unbounded beats not at all.
  bool launch(const std::shared_ptr<call>& one) noexcept {
    one->owner = this->shared_from_this();
    CURFEW_TRY {
      one->thread = typename Sync::thread([one] {
        one->held_by_thread = one;
        Sync::at_thread_exit(&lifespan_runner::leave, one.get());
        perform(*one, one->owner.get());
      });
      return true;
    }
    CURFEW_CATCH(std::exception, e) {
      one->owner.reset();
      this->add_note({"stage '", one->stage->name, "': no thread for its ", to_string(one->phase),
                      " hook, it ran on the controller (", e.what(), ")"});
      return false;
    }
  }

  static void perform(call& one, const base* owner) noexcept {
    {
      const lifespan_frame<Sync> frame(owner, one.stage->name.c_str());
      CURFEW_TRY {
        one.complaint = one.stage->hooks[index_of(one.phase)](one.context);
      }
      CURFEW_CATCH_ALL {
        one.error = std::current_exception();
      }
    }
    one.ended = clock::now();
    Sync::here("lifespan.hook.ended");
    hook_progress running = hook_progress::running;
    if (!one.progress.compare_exchange_strong(running, hook_progress::finished, std::memory_order_seq_cst,
                                              std::memory_order_seq_cst)) {
      one.progress.store(hook_progress::late, std::memory_order_seq_cst);
    }
  }

  /// The hook's thread, after its thread_local objects have gone. Whoever sees `left` joins the thread, so `owner` is
  /// there to the end.
  static void leave(void* call_of_thread) noexcept {
    auto& one = *static_cast<call*>(call_of_thread);
    const auto held = std::move(one.held_by_thread);
    const base* owner = one.owner.get();
    one.left.store(true, std::memory_order_seq_cst);
    owner->ring();
  }

  /// On the controller, or beside it while it runs a hook itself.
  void watch(const group& calls) noexcept {
    for (;;) {
      const std::uint64_t seen = this->ticket();
      const stop_request request = this->request();
      this->attend(request);
      const time_point now = clock::now();
      const bool hurry = look_at_pressure(now);
      const bool cut = parent_cuts_.load(std::memory_order_seq_cst);
      time_point next = time_point::max();
      bool all = true;
      for (const auto& one : calls) {
        if (one->settled) continue;
        if (hurry) {
          one->deadline = std::min(one->deadline, later_by(now, slice(one->budget, now)));
          one->soft_at = now;
        }
        if (cut || (request.rung != 0 && one->phase == lifespan_phase::start))
          one->soft_at = std::min(one->soft_at, now);
        step(one, now);
        if (one->settled) continue;
        all = false;
        next = std::min(next, next_look(*one));
      }
      if (all) return;
      this->park(seen, next);
    }
  }

  /// True when the stop has become hurried since the last look; the clock is shorter then.
  bool look_at_pressure(time_point now) noexcept {
    const bool hurry = this->request().rung >= 2 || parent_hurries_.load(std::memory_order_seq_cst);
    if (!hurry || hurried_.exchange(true, std::memory_order_seq_cst)) return false;
    clock_end_ = std::min(clock_end_, later_by(now, options_.hurried_budget));
    if (layer_budget_ != std::chrono::nanoseconds::zero()) {
      const auto budget = std::exchange(layer_budget_, std::chrono::nanoseconds::zero());
      layer_end_ = std::min(layer_end_, later_by(now, slice(budget, now)));
      layer_budget_ = budget;
    }
    return true;
  }

  /// A hook that only its own return can end is looked at again when that rings.
  static time_point next_look(const call& one) noexcept {
    time_point next = one.told_hung ? time_point::max() : one.deadline;
    if (one.owner && one.progress.load(std::memory_order_seq_cst) == hook_progress::finished) next = gone_by(one);
    if (!one.told_slow) next = std::min(next, one.slow_at);
    if (!one.cut_fired && !one.hook_over) next = std::min(next, one.soft_at);
    return next;
  }

  /// When the thread of a hook that has returned is to be gone; even of one that returned in the last moment.
  static time_point gone_by(const call& one) noexcept {
    return std::max(one.deadline, later_by(one.ended, thread_exit_grace));
  }

  void step(const std::shared_ptr<call>& one, time_point now) noexcept {
    if (!one->hook_over) {
      if (now >= one->deadline && one->owner) {
        hook_progress running = hook_progress::running;
        if (one->progress.compare_exchange_strong(running, hook_progress::abandoned, std::memory_order_seq_cst,
                                                  std::memory_order_seq_cst)) {
          abandon(one, now, " hook still running after ");
          return;
        }
      }
      if (one->progress.load(std::memory_order_seq_cst) == hook_progress::finished) {
        if (!one->owner) {
          one->hook_over = true;
        } else if (one->left.load(std::memory_order_seq_cst)) {
          one->thread.join();
          one->owner.reset();
          one->hook_over = true;
        } else if (now >= gone_by(*one)) {
          abandon(one, now, " hook has returned, but a thread_local destructor of its thread is still running after ");
          return;
        }
      }
    }
    if (one->hook_over && fences_settled(*one, now)) return;
    const auto running = now - one->began;
    if (!one->told_slow && now >= one->slow_at) {
      one->told_slow = true;
      this->emit(lifespan_event_kind::stage_slow, one->stage->name, one->phase, stage_outcome::not_run, 0, running);
    }
    if (!one->cut_fired && !one->hook_over && now >= one->soft_at) fire(one);
    if (!one->told_hung && now >= one->deadline) {  // on the controller: named, not given up
      one->told_hung = true;
      this->emit(lifespan_event_kind::stage_hung, one->stage->name, one->phase, stage_outcome::not_run, 0, running);
    }
  }

  /// After its hook, a drain waits for the stage's fences within the same slice. True when the call is over.
  bool fences_settled(call& one, time_point now) noexcept {
    if (one.phase != lifespan_phase::drain || one.stage->fences.empty()) {
      settle(one, outcome_of(one, one.ended));
      return true;
    }
    const time_point hook_ended = one.ended;
    if (!one.armed) {
      one.armed = true;
      const auto ring = [](void* self) noexcept { static_cast<const lifespan_runner*>(self)->ring(); };
      for (const auto& fence : one.stage->fences) fence->arm(ring, this);
    }
    bool all = true;
    for (const auto& fence : one.stage->fences) all = fence->drained() && all;
    if (!all && now < one.deadline) return false;
    std::string inside;
    for (const auto& fence : one.stage->fences) {
      if (fence->disarm()) continue;
      CURFEW_TRY {
        inside += (inside.empty() ? "not drained: " : ", ") + fence->occupants();
      }
      CURFEW_CATCH_ALL {}
      all = false;
    }
    const stage_outcome of_hook = outcome_of(one, hook_ended);
    one.ended = clock::now();
    if (all) {
      settle(one, of_hook);
      return true;
    }
    if (of_hook != stage_outcome::failed) set_error(one, inside);
    this->emit(lifespan_event_kind::stage_hung, one.stage->name, one.phase, stage_outcome::timed_out, 0,
               one.ended - one.began);
    settle(one, of_hook == stage_outcome::failed ? of_hook : stage_outcome::timed_out);
    return true;
  }

  static stage_outcome outcome_of(const call& one, time_point ended) noexcept {
    if (one.error || !one.complaint.text.empty()) return stage_outcome::failed;
    return ended > one.deadline ? stage_outcome::timed_out : stage_outcome::ok;
  }

  /// Where there are no exceptions nobody could look at one, so the report gets the text as a note.
  void set_error(call& one, const std::string& text) noexcept {
    if constexpr (CURFEW_EXCEPTIONS == 0) {
      this->add_note({"stage '", one.stage->name, "', ", to_string(one.phase), ": ", text});
    } else {
      CURFEW_TRY {
        one.error = std::make_exception_ptr(std::runtime_error(text));
      }
      CURFEW_CATCH_ALL {}
    }
  }

  void settle(call& one, stage_outcome outcome) noexcept {
    one.settled = true;
    if (!one.complaint.text.empty()) set_error(one, one.complaint.text);
    one.record.outcome = outcome;
    one.record.began = one.began - this->origin_;
    one.record.took = one.ended - one.began;
    one.record.error = one.error;
    this->emit(lifespan_event_kind::stage_end, one.stage->name, one.phase, outcome, 0, one.record.took);
  }

  void abandon(const std::shared_ptr<call>& one, time_point now, const char* what) noexcept {
    one->thread.detach();
    leak(*one, one);
    any_abandoned_ = true;
    if (!one->cut_fired) fire(one);  // there was no grace; a hook that listens should end all the same
    if (one->stage->given_up) one->stage->given_up();
    const auto running = now - one->began;
    CURFEW_TRY {
      abandoned_.push_back("stage '" + one->stage->name + "': " + to_string(one->phase) + what +
                           milliseconds_text(running));
    }
    CURFEW_CATCH_ALL {}
    this->emit(lifespan_event_kind::stage_hung, one->stage->name, one->phase, stage_outcome::abandoned, 0, running);
    one->settled = true;
    one->record.outcome = stage_outcome::abandoned;
    one->record.began = one->began - this->origin_;
    one->record.took = running;
    this->emit(lifespan_event_kind::stage_end, one->stage->name, one->phase, stage_outcome::abandoned, 0, running);
  }

  /// Stop callbacks are user code and may block; the watcher must not, so they get a thread. When there is none they
  /// run here.
  void fire(const std::shared_ptr<call>& one) noexcept {
    one->cut_fired = true;
    CURFEW_TRY {
      typename Sync::thread([one, self = this->shared_from_this()] {
        const lifespan_frame<Sync> frame(static_cast<const base*>(self.get()), one->stage->name.c_str());
        one->cut.request_stop();
      }).detach();
    }
    CURFEW_CATCH_ALL {
      const lifespan_frame<Sync> frame(static_cast<const base*>(this), one->stage->name.c_str());
      one->cut.request_stop();
    }
  }

  // Guarded by nobody: the controller writes these between groups, the watcher during one.
  time_point layer_end_ = time_point::max();
  std::chrono::nanoseconds layer_budget_{0};  // of the layer that is open, 0 when none is
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_HOOK_HPP
