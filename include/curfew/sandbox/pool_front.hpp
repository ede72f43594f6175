// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What all providers are to their callers: options checked, an engine made of them, and the members that do not depend
/// on a policy. Not a type to name: name the provider.

#ifndef CURFEW_SANDBOX_POOL_FRONT_HPP
#define CURFEW_SANDBOX_POOL_FRONT_HPP

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/sandbox_pool.hpp>
#include <curfew/signals.hpp>
#include <curfew/teardown.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// The base of a provider with the given options. \p Options has the fields that aio_options and e2b_options share.
template <backend B, lease_store S, class Options, class Sync>
class provider_front {
 public:
  provider_front(const provider_front&) = delete;
  provider_front& operator=(const provider_front&) = delete;

  /// Starts the workers "<name>.maintain", whose first pass begins at once, and "<name>.renew". Repeating it does
  /// nothing. \throws admission_refused after shutdown or reset; std::system_error when no thread can be made
  void start() {
    pool_->start(options_->maintain_interval, options_->renewal_interval, [this] {
      if (!fallbacks_.empty()) return;
      const auto shut_down = [weak = std::weak_ptr<pool>(pool_)](int) {
        if (const auto self = weak.lock()) self->finish(false);
      };
      decltype(fallbacks_) all;  // all of them or none
      for (const int signal : options_->fallback_signals)
        all.emplace_back(std::initializer_list<int>{signal}, shut_down);
      fallbacks_.swap(all);
    });
  }

  /// An active sandbox, without asking the backend; counts as activity.
  std::optional<sandbox_info> get(const std::string& id) noexcept { return pool_->get(id); }

  /// As the lease's own release. \throws std::invalid_argument for a lease of another provider, which gets it back
  void release(lease granted) {
    if (granted && !pool_->owns(granted))
      throw std::invalid_argument(options_->name + ": released a lease of another provider, on sandbox " +
                                  granted.id());
  }

  /// Ends a sandbox, leases or not; false when it is not tracked here or its end could not be confirmed.
  bool destroy(const std::string& id) { return pool_->destroy(id); }

  /// Ends this provider as `shutdown` does, but leaves what it adopted and never handed out to a successor.
  void reset() { pool_->finish(true); }
  /// `completed` for the call that did it; `joined` for one that waited for it; `in_progress` from inside it; `failed`
  /// when something is left, which `stats().leftover` names and the next call tries again. Never throws.
  teardown_status shutdown() { return pool_->finish(false); }

  /// What has happened so far, and whether an acquire has a chance: neither shut down nor in a forked child.
  provider_stats stats() const { return pool_->stats(); }
  bool accepting() const noexcept { return pool_->accepting(); }

 protected:
  using pool = sandbox_pool<B, S, Sync>;
  using place = typename pool_room<B, S, Sync>::place;

  /// \p tick is one pass of the maintain worker. It gets the options as they were checked, and may outlive this object.
  provider_front(std::shared_ptr<B> made_by, Options options, std::shared_ptr<S> store, std::size_t limit,
                 std::chrono::seconds time_to_live, void (*tick)(pool&, const Options&))
      : options_(std::make_shared<const Options>(checked(std::move(options), made_by != nullptr))),
        pool_(pool::make(std::move(made_by), store != nullptr ? store : private_store(options_->clock),
                         settings(*options_, limit, time_to_live, store == nullptr && in_this_process),
                         [o = options_, tick](pool& self) { tick(self, *o); })) {}
  ~provider_front() { pool_->forked() ? pool_->outlive_process() : static_cast<void>(pool_->finish(false)); }

  static void require(const Options& o, bool holds, const char* what) {
    if (!holds) throw std::invalid_argument("provider \"" + o.name + "\": " + what);
  }

  const std::shared_ptr<const Options> options_;
  const std::shared_ptr<pool> pool_;

 private:
  static constexpr bool in_this_process = std::is_constructible_v<S, const clock_fn&>;

  static std::shared_ptr<S> private_store([[maybe_unused]] const clock_fn& clock) {
    if constexpr (in_this_process) {
      return std::make_shared<S>(clock);
    } else if constexpr (std::is_default_constructible_v<S>) {
      return std::make_shared<S>();
    } else {  // an interface, or one that must be told where its server is
      throw std::invalid_argument("provider: the store is null, and one of its type cannot be made here");
    }
  }

  static Options checked(Options o, bool has_backend) {
    constexpr auto zero = std::chrono::nanoseconds::zero();
    require(o, has_backend, "the backend is null");
    require(o, o.replicas > 0, "replicas is 0");
    require(o, o.maintain_interval > zero, "maintain_interval must be positive");
    require(o, o.renewal_interval > zero, "renewal_interval must be positive");
    require(o, o.ttl_multiplier >= 2, "ttl_multiplier is less than 2");
    require(o, o.renewal_interval <= std::chrono::nanoseconds::max() / o.ttl_multiplier,
            "renewal_interval is too long");
    require(o, o.orphan_grace >= zero, "orphan_grace is negative");
    require(o, o.shutdown_budget >= zero && o.worker_stop >= zero, "shutdown_budget or worker_stop is negative");
    require(o, o.destroy_backoff >= zero, "destroy_backoff is negative");
    require(o, o.destroy_attempts > 0 && o.destroy_parallelism > 0, "destroy_attempts or destroy_parallelism is 0");
    detail::check_environment(o.environment, o.name.c_str());
    if (o.owner_id.empty()) o.owner_id = detail::process_name();
    return o;
  }

  static pool_settings settings(const Options& o, std::size_t limit, std::chrono::seconds time_to_live,
                                bool private_store) {
    return {.name = o.name,
            .owner_id = o.owner_id,
            .clock = o.clock,
            .limit = limit,
            .lease_ttl = o.renewal_interval * o.ttl_multiplier,
            .shutdown_budget = o.shutdown_budget,
            .worker_stop = o.worker_stop,
            .destroy_backoff = o.destroy_backoff,
            .destroy_attempts = o.destroy_attempts,
            .destroy_parallelism = o.destroy_parallelism,
            .environment = o.environment,
            .time_to_live = time_to_live,
            .store_is_private = private_store};
  }

  std::list<basic_fallback_signal_guard<Sync>> fallbacks_;  // last: gone before what its callback uses
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_POOL_FRONT_HPP
