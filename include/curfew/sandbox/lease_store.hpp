// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Who of several providers may use or end a sandbox: the lease store concept and a store for one process. Sandboxes
/// outlive processes and are seen by all of them; a lease says whose one is right now, and a teardown mark on it says
/// that its end has begun and nobody may hand it out any more. Providers in several processes need a store that those
/// share; with a private one a provider knows of nobody else.

#ifndef CURFEW_SANDBOX_LEASE_STORE_HPP
#define CURFEW_SANDBOX_LEASE_STORE_HPP

#include <chrono>
#include <concepts>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/sandbox/backend.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// What a store throws when it cannot answer. Acquiring and destroying then fail closed; renewal keeps what it has.
class CURFEW_VISIBLE lease_store_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How a renewal ended. `lapsed`: nobody holds the lease. `lost`: a peer does.
enum class renewal : unsigned char { renewed, lapsed, lost };

/// What a provider asks of a store. Every member is atomic and may be called from many threads at once; any of them may
/// throw. A lease that is not renewed within its time to live is as good as released, mark included.
///
/// - `take`: for handing out. The lease becomes `who`'s, also from a peer; false only while a teardown mark is in
///   force.
/// - `claim`: for everything else. Only when nobody or `who` holds it. `destroying` sets the teardown mark; without it
///   a mark that is there stays.
/// - `renew`: extends the lease that `who` holds, and changes nothing otherwise.
/// - `release`: clears the lease and the mark when they are `who`'s.
/// - `owner`: who holds it.
template <class S>
concept lease_store = requires(S& s, const std::string& id, const std::string& who, std::chrono::nanoseconds ttl,
                               bool destroying) {
  { s.take(id, who, ttl) } -> std::same_as<bool>;
  { s.claim(id, who, ttl, destroying) } -> std::same_as<bool>;
  { s.renew(id, who, ttl) } -> std::same_as<renewal>;
  { s.release(id, who) } -> std::same_as<void>;
  { s.owner(id) } -> std::same_as<std::optional<std::string>>;
};

/// A store in this process's memory: one mutex, times to live on the given clock. Shared by several providers of one
/// process it arbitrates between them. The clock is called outside the mutex, and never the wall clock: a step of the
/// wall clock would end or immortalise every lease at once. Lapsed leases are dropped as the table grows, so its size
/// follows the leases in force. Destruction: when no provider uses it.
template <class Sync = std_sync>
class basic_memory_lease_store {
 public:
  explicit basic_memory_lease_store(clock_fn clock = {}) : clock_(std::move(clock)) {}

  /// As the concept says, under one mutex.
  bool take(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    if (const record* held = in_force(id, now); held != nullptr && held->destroying) return false;
    put(id, who, now, ttl, false);
    return true;
  }

  /// As the concept says.
  bool claim(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl, bool destroying) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    const record* held = in_force(id, now);
    if (held != nullptr && held->who != who) return false;
    put(id, who, now, ttl, destroying || (held != nullptr && held->destroying));
    return true;
  }

  /// As the concept says.
  renewal renew(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    record* held = in_force(id, now);
    if (held == nullptr) return renewal::lapsed;
    if (held->who != who) return renewal::lost;
    held->until = end_of(now, ttl);
    return renewal::renewed;
  }

  /// As the concept says.
  void release(const std::string& id, const std::string& who) {
    std::lock_guard lock(mutex_);
    if (const auto found = records_.find(id); found != records_.end() && found->second.who == who)
      records_.erase(found);
  }

  /// As the concept says.
  std::optional<std::string> owner(const std::string& id) {
    const auto now = this->now();
    std::lock_guard lock(mutex_);
    const record* held = in_force(id, now);
    return held == nullptr ? std::nullopt : std::optional<std::string>(held->who);
  }

 private:
  using time_point = std::chrono::steady_clock::time_point;
  struct record {
    std::string who;
    time_point until;
    bool destroying = false;
  };

  time_point now() const { return clock_ ? clock_() : Sync::clock::now(); }

  static time_point end_of(time_point now, std::chrono::nanoseconds ttl) noexcept {
    return ttl > time_point::max() - now ? time_point::max() : now + ttl;
  }

  record* in_force(const std::string& id, time_point now) noexcept {
    const auto found = records_.find(id);
    return found != records_.end() && now < found->second.until ? &found->second : nullptr;
  }

  void put(const std::string& id, const std::string& who, time_point now, std::chrono::nanoseconds ttl, bool mark) {
    if (records_.size() >= drop_at_) {
      std::erase_if(records_, [now](const auto& r) { return now >= r.second.until; });
      drop_at_ = 2 * records_.size() + 64;  // amortised: one pass per doubling
    }
    records_.insert_or_assign(id, record{who, end_of(now, ttl), mark});
  }

  const clock_fn clock_;
  mutable typename Sync::mutex mutex_;
  std::unordered_map<std::string, record> records_;
  std::size_t drop_at_ = 64;
};

/// The one to use.
using memory_lease_store = basic_memory_lease_store<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_LEASE_STORE_HPP
