// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a provider gives out: the lease on a sandbox, its figures, and what a reconcile pass found.

#ifndef CURFEW_SANDBOX_LEASE_HPP
#define CURFEW_SANDBOX_LEASE_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/sandbox/backend.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// What an acquire does that finds a hard cap reached: `wait` in line, for `acquire_timeout` at most; `reject` throws
/// at once; `burst` takes one of `burst_limit` further slots, and throws at once when these are taken, too.
enum class overflow_policy : unsigned char { wait, reject, burst };

/// Figures of one provider, read at one instant.
struct provider_stats {
  // Gauges: how many sandboxes are in each state. Their sum is the number of slots in use.
  std::size_t reserved = 0, active = 0, warm = 0, transitioning = 0, tombstones = 0;

  std::uint64_t created = 0;           ///< sandboxes made, those included that a failed create left behind
  std::uint64_t adopted = 0;           ///< sandboxes found running and taken over
  std::uint64_t reused = 0;            ///< leases on a sandbox that was active already
  std::uint64_t reclaimed = 0;         ///< leases on a warm one
  std::uint64_t replaced = 0;          ///< found dead when it was wanted
  std::uint64_t evicted = 0;           ///< warm ones ended to make room
  std::uint64_t idle_reaped = 0;       ///< ended because nobody used them
  std::uint64_t discarded = 0;         ///< created, and refused at commit
  std::uint64_t destroyed = 0;         ///< confirmed gone; the four above are in here too once they are
  std::uint64_t forgotten = 0;         ///< no longer ours: lost to a peer, or vanished
  std::uint64_t refused = 0;           ///< admission_refused thrown
  std::uint64_t waits = 0;             ///< acquires that waited for a slot
  std::uint64_t over_cap = 0;          ///< creates beyond a soft cap
  std::uint64_t destroy_failures = 0;  ///< single destroy calls that did not confirm
  std::uint64_t backend_errors = 0;    ///< exceptions of the backend or of the lease store

  std::vector<std::string> leftover;  ///< ids of the tombstones; after a failed shutdown, of all that it left
  bool started = false;
  bool shut_down = false;

  /// Sandboxes that take up room.
  std::size_t total() const noexcept { return reserved + active + warm + transitioning + tombstones; }
};

/// What one reconcile pass saw and did. `complete` is false when the inventory was not whole: then nothing was ended or
/// forgotten on the strength of it.
struct reconcile_report {
  std::size_t listed = 0, adopted = 0, duplicates_destroyed = 0, orphans_destroyed = 0, expired = 0;
  bool complete = false;
};

class lease;

/// The side of a lease that its provider implements. A tenancy numbers one sandbox from its tracking to its end, so
/// that a lease never speaks for a later sandbox with the same id.
class lease_host {
 public:
  /// Called by leases, from any thread.
  virtual bool lease_valid(const std::string& id, std::uint64_t tenancy) const noexcept = 0;
  virtual bool touch_lease(const std::string& id, std::uint64_t tenancy) noexcept = 0;
  virtual void end_lease(const std::string& id, std::uint64_t tenancy) noexcept = 0;

 protected:
  ~lease_host() = default;
  /// For hosts: makes a lease, and tells whether a host has made one.
  static lease grant(std::weak_ptr<lease_host> host, sandbox_info&& info, owner_key&& owner,
                     std::uint64_t tenancy) noexcept;
  /// Whether \p host made this lease.
  static bool granted_by(const lease& granted, const std::weak_ptr<lease_host>& host) noexcept;
};

/// The right to use one sandbox, ended by its destructor. Move-only. It may move to any thread and may outlive its
/// provider, which it does not keep alive: then it is not valid, and releasing it does nothing. One lease is used by
/// one thread at a time; several leases of one sandbox are independent of each other, and the last release gives it
/// back.
class lease {
 public:
  lease() noexcept = default;
  lease(lease&& other) noexcept
      : host_(std::exchange(other.host_, {})),
        info_(std::move(other.info_)),
        owner_(std::move(other.owner_)),
        tenancy_(std::exchange(other.tenancy_, 0)) {}
  lease& operator=(lease&& other) noexcept {
    if (this != &other) {
      release();
      host_ = std::exchange(other.host_, {});
      info_ = std::move(other.info_);
      owner_ = std::move(other.owner_);
      tenancy_ = std::exchange(other.tenancy_, 0);
    }
    return *this;
  }
  ~lease() { release(); }

  /// Holds a right that was not released yet, also when the sandbox is gone by now.
  explicit operator bool() const noexcept { return tenancy_ != 0; }

  /// The sandbox is active for this lease; false from the moment its teardown begins.
  bool valid() const noexcept {
    const auto host = host_.lock();
    return host != nullptr && host->lease_valid(info_.id, tenancy_);
  }
  /// Whom and what it is for; of an empty lease, empty.
  const sandbox_info& info() const noexcept { return info_; }
  const std::string& id() const noexcept { return info_.id; }
  const owner_key& owner() const noexcept { return owner_; }

  /// Counts as activity; false when the lease is not valid.
  bool touch() noexcept {
    const auto host = host_.lock();
    return host != nullptr && host->touch_lease(info_.id, tenancy_);
  }

  /// Gives the right back. Waits while another call works on the same sandbox; on an empty lease nothing.
  void release() noexcept {
    const auto host = std::exchange(host_, {}).lock();
    const std::uint64_t tenancy = std::exchange(tenancy_, 0);
    if (host != nullptr && tenancy != 0) host->end_lease(info_.id, tenancy);
  }

 private:
  friend class lease_host;
  lease(std::weak_ptr<lease_host>&& host, sandbox_info&& info, owner_key&& owner, std::uint64_t tenancy) noexcept
      : host_(std::move(host)), info_(std::move(info)), owner_(std::move(owner)), tenancy_(tenancy) {}

  std::weak_ptr<lease_host> host_;
  sandbox_info info_;
  owner_key owner_;
  std::uint64_t tenancy_ = 0;  // 0: empty
};

inline lease lease_host::grant(std::weak_ptr<lease_host> host, sandbox_info&& info, owner_key&& owner,
                               std::uint64_t tenancy) noexcept {
  return lease(std::move(host), std::move(info), std::move(owner), tenancy);
}

inline bool lease_host::granted_by(const lease& granted, const std::weak_ptr<lease_host>& host) noexcept {
  return !granted.host_.owner_before(host) && !host.owner_before(granted.host_);
}

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_LEASE_HPP
