// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Race bodies of the sandbox provider, with a backend in memory. No budgets and no workers: what is explored is who
/// ends what, once, and what is still running when a shutdown has returned.

#ifndef CURFEW_TESTS_MODEL_CASES_PROVIDER_HPP
#define CURFEW_TESTS_MODEL_CASES_PROVIDER_HPP

#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/e2b.hpp>
#include <curfew/testing/outcome.hpp>

namespace curfew_cases {

using curfew::teardown_status;
using curfew::testing::check;
using curfew::testing::close_call;

/// A world that remembers what runs. Every call can be overtaken before it has an effect.
template <class Sync>
class small_backend {
 public:
  curfew::sandbox::sandbox_info create(const curfew::sandbox::create_request& request) {
    curfew::testing::foreign("create");
    const std::lock_guard lock(mutex_);
    ++creates_;
    check(running_.insert(request.id).second, "created once");
    check(running_.size() <= most, "no more run than may");
    return {request.id, "small://" + request.id};
  }
  bool destroy(const std::string& id) {
    curfew::testing::foreign("destroy");
    const std::lock_guard lock(mutex_);
    if (failures != 0) {
      --failures;
      return false;
    }
    ++destroys_;
    running_.erase(id);
    return true;
  }
  curfew::sandbox::liveness probe(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return running_.contains(id) ? curfew::sandbox::liveness::alive : curfew::sandbox::liveness::dead;
  }
  std::vector<curfew::sandbox::sandbox_info> list() { return {}; }

  std::size_t running() const {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }
  bool runs(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    return running_.contains(id);
  }
  unsigned creates() const { return creates_; }
  unsigned destroys() const { return destroys_; }

  // Set before the race.
  std::size_t most = std::numeric_limits<std::size_t>::max();  // may run
  unsigned failures = 0;                                       // of the next destroys

 private:
  mutable typename Sync::mutex mutex_;
  std::set<std::string> running_;
  unsigned creates_ = 0, destroys_ = 0;
};

/// A provider and its books. With `e2b_options` the cap is hard.
template <class Sync, class Options = curfew::sandbox::aio_options>
struct provider_case {
  static constexpr unsigned timeouts = 0;
  static constexpr bool hard_cap = std::is_same_v<Options, curfew::sandbox::e2b_options>;
  using backend = small_backend<Sync>;
  using leases = curfew::sandbox::basic_memory_lease_store<Sync>;
  using provider = std::conditional_t<hard_cap, curfew::sandbox::e2b_provider<backend, leases, Sync>,
                                      curfew::sandbox::aio_provider<backend, leases, Sync>>;

  explicit provider_case(std::size_t replicas = 3, bool patient = true) {
    Options chosen;
    chosen.replicas = replicas;
    if constexpr (hard_cap) {
      chosen.acquire_timeout = std::chrono::nanoseconds::max();
      if (!patient) chosen.overflow = curfew::sandbox::overflow_policy::reject;
      world->most = replicas;
    }
    chosen.destroy_attempts = 1;
    chosen.owner_id = "me";
    chosen.clock = [] { return std::chrono::steady_clock::time_point(std::chrono::hours(1)); };
    chosen.destroy_parallelism = 1;
    chosen.shutdown_budget = std::chrono::nanoseconds::max();
    subject = std::make_unique<provider>(world, chosen);
  }
  curfew::sandbox::lease acquire(const char* who) {
    try {
      auto held = subject->acquire({who, "1"});
      close_call("handed out");
      return held;
    } catch (const curfew::admission_refused&) {
      close_call("refused");
      return {};
    } catch (const curfew::sandbox::capacity_exceeded&) {
      close_call("no room");
      return {};
    }
  }
  /// Whatever it says: when it returns nothing runs.
  void shut_down() {
    const auto status = subject->shutdown();
    check(status == teardown_status::completed || status == teardown_status::joined, "over");
    check(world->running() == 0, "nothing runs when shutdown() returns");
  }
  /// What a lease is valid for runs. For quiet points.
  void runs(const curfew::sandbox::lease& held) const {
    check(!held || !held.valid() || world->runs(held.id()), "a valid lease is for something that runs");
  }
  void balance() {
    shut_down();
    check(subject->stats().total() == 0, "nothing is tracked");
    check(world->creates() == world->destroys(), "every sandbox ended once");
  }

  std::shared_ptr<backend> world = std::make_shared<backend>();
  std::unique_ptr<provider> subject;
};

/// X9. A shutdown while a create is in flight: it is waited for, or its sandbox is ended; nothing is handed out after.
template <class Sync>
struct provider_commit : provider_case<Sync> {
  static constexpr unsigned roles = 2;
  void role(unsigned i) {
    if (i == 0) {
      const auto held = this->acquire("alice");
    } else {
      this->shut_down();
      check(!this->acquire("bob"), "no acquire after a shutdown");
    }
  }
  void finish() { this->balance(); }
};

/// X13. Two shutdowns: neither returns with the teardown unfinished.
template <class Sync>
struct provider_two_shutdowns : provider_case<Sync> {
  static constexpr unsigned roles = 2;
  provider_two_shutdowns() { this->acquire("alice").release(); }
  void role(unsigned) { this->shut_down(); }
  void finish() { this->balance(); }
};

/// A lease that is given back while its sandbox is swept: it ends once, and is not kept warm.
template <class Sync>
struct provider_release_shutdown : provider_case<Sync> {
  static constexpr unsigned roles = 2;
  curfew::sandbox::lease held = this->acquire("alice");
  void role(unsigned i) {
    if (i == 0) {
      held.release();
    } else {
      this->shut_down();
    }
  }
  void finish() { this->balance(); }
};

/// Two callers for one owner take turns: one sandbox for both.
template <class Sync>
struct provider_one_owner : provider_case<Sync> {
  static constexpr unsigned roles = 2;
  curfew::sandbox::lease held[2];
  void role(unsigned i) { held[i] = this->acquire("alice"); }
  void finish() {
    check(held[0] && held[1] && held[0].id() == held[1].id(), "the same");
    check(this->world->creates() == 1 && this->world->runs(held[0].id()), "created once, and running");
    for (auto& each : held) each.release();
    this->balance();
  }
};

/// The same sandbox is destroyed by its id while its owner takes it back from the warm ones: it is handed out and then
/// ended, or ended and then made anew.
template <class Sync>
struct provider_destroy_acquire : provider_case<Sync> {
  static constexpr unsigned roles = 2;
  std::string id;
  curfew::sandbox::lease held;
  provider_destroy_acquire() {
    held = this->acquire("alice");
    id = held.id();
    held.release();
  }
  void role(unsigned i) {
    if (i == 0) {
      held = this->acquire("alice");
    } else {
      check(this->subject->destroy(id), "confirmed gone");
    }
  }
  void finish() {
    this->runs(held);
    held.release();
    this->balance();
  }
};

/// Two callers let go of one sandbox, which is destroyed by its id meanwhile.
template <class Sync>
struct provider_destroy_release : provider_case<Sync> {
  static constexpr unsigned roles = 3;
  curfew::sandbox::lease held[2] = {this->acquire("alice"), this->acquire("alice")};
  const std::string id = held[0].id();
  void role(unsigned i) {
    if (i < 2) {
      held[i].release();
    } else {
      check(this->subject->destroy(id), "confirmed gone");
    }
  }
  void finish() {
    check(!this->world->runs(id), "gone");
    this->balance();
  }
};

/// The only place is taken by a warm sandbox. A stranger evicts it to have the place, its owner comes back for it.
template <class Sync>
struct provider_evict : provider_case<Sync> {
  static constexpr unsigned roles = 2;
  curfew::sandbox::lease held[2];
  provider_evict() : provider_case<Sync>(1) { this->acquire("alice").release(); }
  void role(unsigned i) { held[i] = this->acquire(i == 0 ? "alice" : "bob"); }
  void finish() {
    for (const auto& each : held) {
      check(each && each.valid(), "both got one, and nobody took it away");
      this->runs(each);
    }
    for (auto& each : held) each.release();
    this->balance();
  }
};

/// X8. Two who want the one place: whether there is room and that it is taken is one question.
template <class Sync>
struct provider_cap : provider_case<Sync, curfew::sandbox::e2b_options> {
  static constexpr unsigned roles = 2;
  curfew::sandbox::lease held[2];
  provider_cap() : provider_case<Sync, curfew::sandbox::e2b_options>(1, false) {}
  void role(unsigned i) { held[i] = this->acquire(i == 0 ? "alice" : "bob"); }
  void finish() {
    check(static_cast<bool>(held[0]) != static_cast<bool>(held[1]), "one of them got it");
    for (auto& each : held) each.release();
    this->balance();
  }
};

/// A hard cap of one, and one in line for it while the only sandbox is given back: it becomes warm while its key is
/// held, so that it cannot be ended for who waits; who drops the key must say so.
template <class Sync>
struct provider_line : provider_case<Sync, curfew::sandbox::e2b_options> {
  static constexpr unsigned roles = 2;
  curfew::sandbox::lease held;
  provider_line() : provider_case<Sync, curfew::sandbox::e2b_options>(1) { held = this->acquire("alice"); }
  void role(unsigned i) {
    if (i == 0) {
      held.release();
    } else {
      check(static_cast<bool>(this->acquire("bob")), "served");
    }
  }
  void finish() {
    check(this->world->creates() == 2, "one each");
    this->balance();
  }
};

/// A hard cap of one, and a stop that fails: what could not be ended counts until it is.
template <class Sync>
struct provider_failed_stop : provider_case<Sync, curfew::sandbox::e2b_options> {
  static constexpr unsigned roles = 2;
  curfew::sandbox::lease held;
  provider_failed_stop() : provider_case<Sync, curfew::sandbox::e2b_options>(1, false) {
    held = this->acquire("alice");
    this->world->failures = 1;
  }
  void role(unsigned i) {
    if (i == 0) {
      if (!this->subject->destroy(held.id())) close_call("not confirmed");
    } else {
      const auto other = this->acquire("bob");
    }
  }
  void finish() { this->balance(); }
};

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_PROVIDER_HPP
