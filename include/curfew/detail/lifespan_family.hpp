// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Lifespans inside lifespans. A child is driven by the hooks of its stage in the parent, one barrier at a time; when
/// the parent gives such a hook up, what is left of the child is for the thread that is still inside.

#ifndef CURFEW_DETAIL_LIFESPAN_FAMILY_HPP
#define CURFEW_DETAIL_LIFESPAN_FAMILY_HPP

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_engine.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/stop_token.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_family : public lifespan_engine<Sync> {
 public:
  using engine = lifespan_engine<Sync>;
  using typename engine::clock;
  using typename engine::time_point;

  using engine::engine;

  void adopt(std::shared_ptr<lifespan_family> child) {
    if (child->owns_signals()) {
      CURFEW_THROW(ownership_conflict("lifespan '" + options_.name + "': its child '" + child->options_.name +
                                      "' must not own signals"));
    }
    if (this->state() != lifespan_state::idle || this->is_or_is_below(child.get()) || child->parent() != nullptr ||
        child->state() != lifespan_state::idle) {
      CURFEW_THROW(
          std::logic_error("lifespan '" + options_.name + "': '" + child->options_.name + "' cannot become its child"));
    }
    lifespan_report lost;
    lost.cause = stop_cause::parent;
    lost.exit_code = 124;
    lost.abandoned.push_back("lifespan '" + child->options_.name + "': given up by its parent '" + options_.name +
                             "' while a hook was still running");
    children_.push_back(child);
    child->lost_ = std::move(lost);
    child->parent_.store(this, std::memory_order_seq_cst);
  }

  /// Takes back the last adopt().
  void disown(const std::shared_ptr<lifespan_family>& child) noexcept {
    child->parent_.store(nullptr, std::memory_order_seq_cst);
    children_.pop_back();
  }

  /// Before this lifespan goes; its children may outlive it. One that was given up keeps its parent: a thread may still
  /// be inside it, and that thread keeps the parent's core alive.
  void orphan_children() noexcept {
    for (const auto& child : children_) {
      if (!child->given_up()) child->parent_.store(nullptr, std::memory_order_seq_cst);
    }
    children_.clear();
  }

  // --- as a child; called by a hook of the parent, with that hook's context

  hook_complaint start_under(const stage_context& above) {
    const auto keep = this->shared_from_this();
    face(above);
    const std::stop_callback pressed(above.token, presser{this});
    if (this->start()) return {};
    tell_abandoned();
    // Called off by the parent, not failed: it is down again, and the later barriers will find nothing to do.
    if (this->called_off_above() && report_.cause == stop_cause::parent && clean()) return {};
    return {"child lifespan '" + options_.name + "' did not start"};
  }

  hook_complaint stop_under(lifespan_phase barrier, const stage_context& above) {
    const auto keep = this->shared_from_this();
    bool inside = true;
    {
      const std::lock_guard lock(this->mutex_);
      inside = std::exchange(inside_, true);
      owed_ = barrier;
    }
    if (inside) return {"child lifespan '" + options_.name + "' is still busy with an earlier barrier"};
    face(above);
    const std::stop_callback pressed(above.token, presser{this});
    bool clean = pass(barrier);
    while (falls_due(barrier)) clean = pass(barrier);
    if (clean) return {};
    return {"child lifespan '" + options_.name + "' did not stop cleanly"};
  }

  /// The parent has abandoned the hook that drives this. Nobody may wait for that thread from now on, here or below.
  void give_up() noexcept {
    {
      const std::lock_guard lock(this->mutex_);
      this->given_up_ = true;
    }
    this->ring();
    for (const auto& child : children_) child->give_up();
  }

 protected:
  using engine::options_;
  using engine::report_;

 private:
  using typename engine::claimed;

  struct presser {
    lifespan_family* self;
    void operator()() const noexcept { self->press(static_cast<const lifespan_family*>(self->parent())->hurried()); }
  };

  /// Nothing here is to outlast the hook above, so an eighth of its time is kept back.
  void face(const stage_context& above) noexcept {
    this->parent_cuts_.store(false, std::memory_order_seq_cst);
    if (above.pressure != urgency::normal) this->parent_hurries_.store(true, std::memory_order_seq_cst);
    const bool bounded = above.deadline != time_point::max();
    this->ceiling_ = bounded ? above.deadline - (above.deadline - clock::now()) / 8 : above.deadline;
  }

  /// The parent went on to later barriers while \p barrier was running: they are run now, late, each hook with its
  /// reserve. False when there is none.
  bool falls_due(lifespan_phase& barrier) noexcept {
    const std::lock_guard lock(this->mutex_);
    if (barrier == owed_) {
      inside_ = false;
      return false;
    }
    barrier = barrier == lifespan_phase::close ? lifespan_phase::drain : lifespan_phase::stop;
    return true;
  }

  /// False when the stop is over and was not clean.
  bool pass(lifespan_phase barrier) noexcept {
    if (barrier == lifespan_phase::close) {
      this->request_stop(stop_cause::parent, std::nullopt);
      if (this->claim_stop() != claimed::yes) {  // stopped on its own before its parent was
        tell_abandoned();
        return true;
      }
      lead(true);
      this->attend(this->request());
      this->open_stop(lifespan_state::closing);
      this->close_barrier();
    } else if (led() && barrier == lifespan_phase::drain) {
      this->set_state(lifespan_state::draining);
      this->drain_barrier();
    } else if (led()) {
      this->set_state(lifespan_state::stopping);
      this->stop_barrier();
      this->finish(false);
      const bool well = clean();
      tell_abandoned();
      lead(false);
      this->let_go();
      return well;
    }
    return true;
  }

  /// A child that is stopped may have left a hook behind, under whose feet its parent's process must not end either.
  void tell_abandoned() noexcept {
    if (this->state() == lifespan_state::stopped && this->abandoned_anything()) this->parent()->adopt_abandoned();
  }

  bool clean() const noexcept { return !this->start_failed_ && !this->stop_failed_ && !this->abandoned_anything(); }

  bool led() const noexcept {
    const std::lock_guard lock(this->mutex_);
    return this->led_;
  }
  /// Rings, because who waits for this to be over may have to know that he must not.
  void lead(bool now) noexcept {
    {
      const std::lock_guard lock(this->mutex_);
      this->led_ = now;
    }
    this->ring();
  }

  std::vector<std::shared_ptr<lifespan_family>> children_;
  // Guarded by mutex_:
  bool inside_ = false;                          // a barrier is under way
  lifespan_phase owed_ = lifespan_phase::start;  // the last barrier that the parent has come to
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_FAMILY_HPP
