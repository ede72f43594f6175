// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A sandbox world in memory: a backend that counts, remembers what runs, and can be told what to do at each call. The
/// world outlives its backends, so that several providers, or one after another, can look at the same sandboxes.

#ifndef CURFEW_TESTS_SUPPORT_FAKE_BACKEND_HPP
#define CURFEW_TESTS_SUPPORT_FAKE_BACKEND_HPP

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease_store.hpp>

namespace curfew_test {

namespace sb = curfew::sandbox;

/// A clock that stands still until it is told otherwise.
class manual_clock {
 public:
  sb::clock_fn fn() {
    return [this] { return now(); };
  }
  std::chrono::steady_clock::time_point now() const {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns_.load(std::memory_order_seq_cst)));
  }
  void advance(std::chrono::nanoseconds d) { ns_.fetch_add(d.count(), std::memory_order_seq_cst); }

 private:
  std::atomic<std::int64_t> ns_{1'000'000'000'000};
};

/// Set the hooks before threads run. They are called with nothing locked, and may block or throw.
class fake_backend {
  template <class F>
  auto read(F f) const {
    std::lock_guard lock(mutex_);
    return f();
  }

 public:
  std::function<void(const sb::create_request&)> on_create;            // before the sandbox runs
  std::function<sb::sandbox_info(const sb::create_request&)> name_it;  // what create answers
  std::function<void(const std::string&)> after_create;                // it runs, create has not returned
  std::function<bool(const std::string&)> on_destroy;                  // false: not confirmed, keeps running
  std::function<sb::liveness(const std::string&)> on_probe;            // default: alive iff it runs
  std::function<void()> on_list;

  sb::sandbox_info create(const sb::create_request& request) {
    bump(creates_);
    if (on_create) on_create(request);
    sb::sandbox_info info = name_it ? name_it(request) : sb::sandbox_info{request.id, "fake://" + request.id};
    if (!info.id.empty()) run(info);
    if (after_create) after_create(info.id);
    return info;
  }
  bool destroy(const std::string& id) {
    {
      std::lock_guard lock(mutex_);
      destroy_calls_.push_back(id);
      peak_destroys_ = std::max(peak_destroys_, ++destroys_now_);
    }
    struct leave {
      fake_backend& self;
      ~leave() {
        std::lock_guard lock(self.mutex_);
        --self.destroys_now_;
      }
    } const leaving{*this};
    if (on_destroy && !on_destroy(id)) return false;
    stop(id);
    return true;
  }
  sb::liveness probe(const std::string& id) {
    bump(probes_);
    if (on_probe) return on_probe(id);
    return runs(id) ? sb::liveness::alive : sb::liveness::dead;
  }
  std::vector<sb::sandbox_info> list() {
    bump(lists_);
    if (on_list) on_list();
    return everything();
  }

  // The world
  void run(const sb::sandbox_info& info) {
    std::lock_guard lock(mutex_);
    running_[info.id] = info;
    peak_ = std::max(peak_, running_.size());
  }
  void run(const std::string& id) { run(sb::sandbox_info{id, "fake://" + id}); }
  void stop(const std::string& id) {
    std::lock_guard lock(mutex_);
    running_.erase(id);
  }
  std::vector<sb::sandbox_info> everything() const {
    std::lock_guard lock(mutex_);
    std::vector<sb::sandbox_info> all;
    for (const auto& [id, info] : running_) all.push_back(info);
    return all;
  }
  bool runs(const std::string& id) const {
    std::lock_guard lock(mutex_);
    return running_.contains(id);
  }
  std::size_t running() const {
    return read([&] { return running_.size(); });
  }
  std::size_t peak() const {
    return read([&] { return peak_; });
  }
  std::size_t peak_destroys() const {
    return read([&] { return peak_destroys_; });
  }
  std::size_t creates() const {
    return read([&] { return creates_; });
  }
  std::size_t probes() const {
    return read([&] { return probes_; });
  }
  std::size_t lists() const {
    return read([&] { return lists_; });
  }
  std::vector<std::string> destroys() const {
    return read([&] { return destroy_calls_; });
  }
  std::size_t calls() const { return creates() + probes() + lists() + destroys().size(); }

 private:
  void bump(std::size_t& counter) {
    std::lock_guard lock(mutex_);
    ++counter;
  }

  mutable std::mutex mutex_;
  std::map<std::string, sb::sandbox_info> running_;
  std::size_t peak_ = 0, peak_destroys_ = 0, destroys_now_ = 0, creates_ = 0, probes_ = 0, lists_ = 0;
  std::vector<std::string> destroy_calls_;
};

/// A lease store that counts, can throw, and can be watched. Hooks run before the call, with nothing locked.
class fake_store {
 public:
  explicit fake_store(sb::clock_fn clock = {}) : store_(std::move(clock)) {}

  std::function<void(const std::string& verb, const std::string& id)> before;

  bool take(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    note("take", id);
    return store_.take(id, who, ttl);
  }
  bool claim(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl, bool destroying) {
    note(destroying ? "claim!" : "claim", id);
    return store_.claim(id, who, ttl, destroying);
  }
  sb::renewal renew(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    note("renew", id);
    return store_.renew(id, who, ttl);
  }
  void release(const std::string& id, const std::string& who) {
    note("release", id);
    store_.release(id, who);
  }
  std::optional<std::string> owner(const std::string& id) {
    note("owner", id);
    return store_.owner(id);
  }

  sb::memory_lease_store& raw() { return store_; }
  std::vector<std::string> log() const {
    std::lock_guard lock(mutex_);
    return log_;
  }
  std::size_t calls() const { return log().size(); }

 private:
  void note(const char* verb, const std::string& id) {
    {
      std::lock_guard lock(mutex_);
      log_.push_back(std::string(verb) + " " + id);
    }
    if (before) before(verb, id);
  }

  sb::memory_lease_store store_;
  mutable std::mutex mutex_;
  std::vector<std::string> log_;
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_FAKE_BACKEND_HPP
