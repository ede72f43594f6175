// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What those who wait for signals do about them: in wait(), or in an event loop by poll_signals().

#ifndef CURFEW_DETAIL_LIFESPAN_CORE_HPP
#define CURFEW_DETAIL_LIFESPAN_CORE_HPP

#include <chrono>
#include <exception>
#include <mutex>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_exit.hpp>
#include <curfew/detail/lifespan_family.hpp>
#include <curfew/detail/lifespan_frame.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/signal_table.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

template <class Sync>
class lifespan_core final : public lifespan_family<Sync> {
 public:
  using family = lifespan_family<Sync>;
  using typename family::clock;
  using typename family::time_point;

  using family::family;

  /// \p in_run: the caller is run(), and will do nothing but stop and leave.
  stop_cause wait(bool in_run = false) {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return this->request().cause;
    this->unblock_here();
    for (;;) {
      const std::uint64_t seen = this->ticket();
      const stop_request now = this->request();
      if (now.rung != 0 || this->state() == lifespan_state::stopped) {
        this->attend(now);
        return now.cause;
      }
      reload(in_run);
      this->park(seen, time_point::max());
    }
  }

  void poll_signals() {
    const auto keep = this->shared_from_this();
    if (this->in_forked_child()) return;
    this->wake_.silence();
    bool somebody_parked = false;
    {
      const std::lock_guard lock(this->mutex_);
      ++this->rings_;
      this->parked_.notify_all();
      somebody_parked = this->polling_;
    }
    if (somebody_parked) this->wake_.ring();  // what was silenced here may have been meant for there
    this->attend(this->request());
    reload(false);
  }

 private:
  using family::options_;

  /// SIGHUP: once for any number of them, only while running and before any stop request.
  void reload(bool in_run) noexcept {
    if (!options_.on_hangup || hangup_signal == 0) return;
    for (;;) {
      const unsigned count = this->ledger_->count_of(hangup_signal);
      if (this->request().rung != 0 || this->state() != lifespan_state::running) return;
      {
        const std::lock_guard lock(this->mutex_);
        if (this->reloading_ || this->reloaded_ == count) return;
        this->reloading_ = true;
        this->reloaded_ = count;
      }
      typename Sync::thread watcher;
      CURFEW_TRY {
        watcher = typename Sync::thread([this, in_run] { watch_reload(in_run); });
      }
      CURFEW_CATCH_ALL {
        this->add_note({"no thread to watch the reload function"});
      }
      perform_reload();
      {
        const std::lock_guard lock(this->mutex_);
        this->reloading_ = false;
      }
      this->ring();
      if (watcher.joinable()) watcher.join();
    }
  }

  void perform_reload() noexcept {
    CURFEW_TRY {
      const lifespan_frame<Sync> frame(static_cast<const lifespan_control<Sync>*>(this), "the reload function");
      options_.on_hangup();
    }
    CURFEW_CATCH(std::exception, e) {
      this->add_note({"reload failed: ", e.what()});
    }
    CURFEW_CATCH_ALL {
      this->add_note({"reload failed"});
    }
  }

  /// Sees to signals while the thread that would is inside the reload function. When that does not return within the
  /// grace after a stop request, the stop is carried out from here, and where nothing else was to follow, the process
  /// is left from here too.
  void watch_reload(bool in_run) noexcept {
    time_point until = time_point::max();
    for (;;) {
      const std::uint64_t seen = this->ticket();
      {
        const std::lock_guard lock(this->mutex_);
        if (!this->reloading_) return;
      }
      const stop_request now = this->request();
      if (now.rung != 0) {
        this->attend(now);
        if (until == time_point::max()) until = later_by(clock::now(), options_.hang_grace);
        if (clock::now() >= until) break;
      }
      this->park(seen, until);
    }
    this->stop(stop_cause::requested);
    if (in_run) leave_at_once<Sync>(this->report().exit_code);
  }
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_CORE_HPP
