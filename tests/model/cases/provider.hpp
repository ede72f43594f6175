// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Race bodies of the sandbox provider, with a backend in memory. No budgets and no workers: what is explored is who
/// ends what, once, and what is still running when a shutdown has returned.

#ifndef CURFEW_TESTS_MODEL_CASES_PROVIDER_HPP
#define CURFEW_TESTS_MODEL_CASES_PROVIDER_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <curfew/sandbox/aio.hpp>
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
    return {request.id, "small://" + request.id};
  }
  bool destroy(const std::string& id) {
    curfew::testing::foreign("destroy");
    const std::lock_guard lock(mutex_);
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

 private:
  mutable typename Sync::mutex mutex_;
  std::set<std::string> running_;
  unsigned creates_ = 0, destroys_ = 0;
};

template <class Sync>
struct provider_case {
  static constexpr unsigned timeouts = 0;
  using backend = small_backend<Sync>;
  using provider = curfew::sandbox::aio_provider<backend, curfew::sandbox::basic_memory_lease_store<Sync>, Sync>;

  explicit provider_case(std::size_t replicas = 3) {
    curfew::sandbox::aio_options chosen;
    chosen.replicas = replicas;
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

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_PROVIDER_HPP
