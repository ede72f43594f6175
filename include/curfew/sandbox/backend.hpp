// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a sandbox backend is: the types that travel between a provider and its backend, the concept, the errors, and
/// the identity of an owner. A backend makes and ends sandboxes and knows nothing of leases, warm pools or capacity;
/// those belong to the providers. Value types only: nothing here locks, waits or starts a thread.

#ifndef CURFEW_SANDBOX_BACKEND_HPP
#define CURFEW_SANDBOX_BACKEND_HPP

#include <algorithm>
#include <array>
#include <chrono>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sha256.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

constexpr bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

enum class colon : bool { refused, allowed };

/// An id that is safe as one path component, one argument and one url segment. The pattern excludes the slash, and a
/// leading dot is refused, so neither `..` nor a hidden name passes.
constexpr bool is_sandbox_id(std::string_view id, colon rule) noexcept {
  const auto fits = [rule](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-' || (c == ':' && rule == colon::allowed);
  };
  return !id.empty() && id.size() <= 128 && id.front() != '.' && std::all_of(id.begin(), id.end(), fits);
}

/// Throws std::invalid_argument naming the culprit when a variable could not be passed to a program as it stands.
inline void check_environment(const std::map<std::string, std::string>& environment, const char* who) {
  for (const auto& [name, value] : environment) {
    const bool fits = !name.empty() && !is_digit(name.front()) && std::all_of(name.begin(), name.end(), [](char c) {
      return is_letter(c) || is_digit(c) || c == '_';
    });
    if (!fits) throw std::invalid_argument(std::string(who) + ": bad environment variable name \"" + name + "\"");
    if (value.find('\0') != std::string::npos)
      throw std::invalid_argument(std::string(who) + ": the value of environment variable " + name + " holds a NUL");
  }
}

}  // namespace detail

namespace sandbox {

/// Where ages (idle, warm, grace, time to live) are read. Empty means steady_clock::now; it is never the wall clock.
using clock_fn = std::function<std::chrono::steady_clock::time_point()>;

/// What a probe found. `unknown` is not `dead`: it keeps a sandbox in use.
enum class liveness : unsigned char { alive, dead, unknown };

/// Who a sandbox belongs to. An empty `thread` is an anonymous owner, whose sandbox is never shared or kept warm.
struct owner_key {
  std::string user;
  std::string thread;
  auto operator<=>(const owner_key&) const = default;
};

/// One sandbox as its backend names it.
struct sandbox_info {
  std::string id;
  std::string endpoint;
  std::string request_id = {};  ///< the create_request::id it was made for; empty: the same as `id`
};

/// What a backend is asked to make.
struct create_request {
  std::string id;
  owner_key owner;
  std::map<std::string, std::string> environment;
  std::chrono::seconds time_to_live{0};  ///< 0: no limit kept by the server is asked for
};

/// What every backend offers. Every member may be called from many threads at once.
///
/// - `create` may be slow, throws backend_error, and leaves nothing behind except what `leftover()` names.
/// - `destroy` is true only when the sandbox is confirmed gone, also when it was gone before; it may be repeated, and a
///   throw counts as false.
/// - A throwing `probe` counts as `unknown`; a throwing `list` makes the inventory incomplete.
///
/// Optional members, used when a backend has them:
/// - `bool set_timeout(const std::string& id, std::chrono::seconds)`: false means gone.
/// - `std::optional<sandbox_info> find(const std::string& request_id)`: discovery without `list`.
/// - `listing list_within(const list_budget&)`: a bounded inventory; without it `list` counts as complete.
template <class B>
concept backend = requires(B& b, const create_request& request, const std::string& id) {
  { b.create(request) } -> std::same_as<sandbox_info>;
  { b.destroy(id) } -> std::same_as<bool>;
  { b.probe(id) } -> std::same_as<liveness>;
  { b.list() } -> std::same_as<std::vector<sandbox_info>>;
};

/// The three bounds of one inventory; each of them is a bound on the whole pass.
struct list_budget {
  std::size_t max_pages = 10;
  std::size_t max_items = 200;
  std::chrono::nanoseconds max_time = std::chrono::seconds(15);
};

/// An inventory; not `complete` when a bound or a fault cut it short, and then absence from it means nothing.
struct listing {
  std::vector<sandbox_info> items;
  bool complete = true;
};

/// What kind of failure a backend met. `ambiguous`: whether the request was carried out is not known.
enum class backend_fault : unsigned char {
  unavailable,
  timed_out,
  rejected,
  conflict,
  not_found,
  bad_response,
  spawn_failed,
  ambiguous
};

/// What a backend throws. `leftover()` names what to `destroy` later when something may have been left behind.
class CURFEW_VISIBLE backend_error : public std::runtime_error {
 public:
  backend_error(backend_fault fault, const std::string& message, std::string leftover = {}, int status = 0)
      : std::runtime_error(message), leftover_(std::move(leftover)), status_(status), fault_(fault) {}

  /// What happened, the status of HTTP (0: none), and what to `destroy` later (empty: nothing).
  backend_fault fault() const noexcept { return fault_; }
  int status() const noexcept { return status_; }
  const std::string& leftover() const noexcept { return leftover_; }

  /// Whether the same call may succeed later without anything being changed.
  bool retryable() const noexcept {
    return fault_ == backend_fault::unavailable || fault_ == backend_fault::timed_out ||
           fault_ == backend_fault::ambiguous || status_ == 429;
  }

 private:
  std::string leftover_;
  int status_;
  backend_fault fault_;
};

/// Why there was no slot.
enum class capacity_reason : unsigned char { rejected, timed_out, burst_exhausted };

/// Thrown by an acquire that found every slot taken and was not allowed, or not able, to wait for one.
class CURFEW_VISIBLE capacity_exceeded : public std::runtime_error {
 public:
  capacity_exceeded(capacity_reason reason, std::size_t limit, std::chrono::milliseconds retry_after)
      : std::runtime_error("sandbox capacity of " + std::to_string(limit) + " exceeded (" + text(reason) +
                           "), retry after " + std::to_string(retry_after.count()) + " ms"),
        limit_(limit),
        retry_after_(retry_after),
        reason_(reason) {}

  /// Why, of how many, and when it may be worth asking again.
  capacity_reason reason() const noexcept { return reason_; }
  std::size_t limit() const noexcept { return limit_; }
  std::chrono::milliseconds retry_after() const noexcept { return retry_after_; }

 private:
  static const char* text(capacity_reason reason) noexcept {
    if (reason == capacity_reason::rejected) return "rejected";
    return reason == capacity_reason::timed_out ? "timed out waiting for a slot" : "burst exhausted";
  }

  std::size_t limit_;
  std::chrono::milliseconds retry_after_;
  capacity_reason reason_;
};

/// Two owners met on one sandbox id. The newcomer is refused; the first tenant keeps its sandbox untouched.
class CURFEW_VISIBLE identity_conflict : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The sandbox id of an owner: the same in every process, so that a restarted or a peer process finds it again.
/// The length in front makes the hashed text injective: {"ab","c"} and {"a","bc"} differ.
inline std::string stable_id(const owner_key& owner) {
  const auto digest = detail::sha256(std::to_string(owner.user.size()) + ":" + owner.user + owner.thread);
  std::string id(16, '0');
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = "0123456789abcdef"[digest[i / 8] >> (28 - 4 * (i % 8)) & 0xf];
  return id;
}

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_BACKEND_HPP
