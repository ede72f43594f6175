// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A lease store in Redis, for providers of several processes that share sandboxes. One of the two headers of the kit
/// that need a package, so it is not in the umbrella: include it, and link hiredis.

#ifndef CURFEW_SANDBOX_REDIS_LEASE_STORE_HPP
#define CURFEW_SANDBOX_REDIS_LEASE_STORE_HPP

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <curfew/detail/config.hpp>
#include <curfew/detail/process_id.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/detail/text.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/lease_store.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Where the server is, and how long an answer may take.
struct redis_options {
  std::string host = "127.0.0.1";
  int port = 6379;
  std::string username = {};  ///< with the password; empty: the default user
  std::string password = {};
  std::string key_prefix = "curfew:sandbox:owner:";
  std::chrono::milliseconds timeout = std::chrono::seconds(5);  ///< for connecting, and for each answer
};

/// Leases as Redis keys that expire by themselves. Each call is one script, so it happens as a whole or not at all; the
/// server's clock alone decides when a lease has lapsed, so the clocks of the hosts do not matter, and a process that
/// is stopped for a while finds out from `renew` what has become of its leases. Times to live are rounded up to whole
/// milliseconds.
///
/// A call that gets no answer throws lease_store_error. It may have happened: the contract of a store holds all the
/// same, since `take`, `claim`, `renew` and `release` by the same owner may be repeated. A broken connection is
/// dropped, and the next call makes a new one. A server that forgets (a restart without persistence, a fail-over) makes
/// leases lapse, and their owners claim them again with the next renewal.
///
/// Thread safety: any number of threads. There is a connection for each call that runs at once; they are kept, so their
/// number is that of the most calls there have been at once. The mutex guards that list and nothing waits under it.
/// Fork: a child makes connections of its own. Destruction: when no provider uses it.
template <class Sync = std_sync>
class basic_redis_lease_store {
 public:
  /// Connects to nobody yet. \throws std::invalid_argument for a port or a timeout that cannot be one
  explicit basic_redis_lease_store(redis_options options = {}) : options_(std::move(options)) {
    if (options_.port < 1 || options_.port > 65535 || options_.host.empty())
      throw std::invalid_argument("redis_lease_store: bad host or port");
    if (options_.timeout <= std::chrono::milliseconds::zero())
      throw std::invalid_argument("redis_lease_store: the timeout is not positive");
  }
  basic_redis_lease_store(const basic_redis_lease_store&) = delete;
  basic_redis_lease_store& operator=(const basic_redis_lease_store&) = delete;

  /// As the concept lease_store says, each in one script on the server; lease_store_error when it cannot be asked.
  bool take(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    return number(run(take_script, id, {who, milliseconds(ttl)})) == 1;
  }
  /// As take().
  bool claim(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl, bool destroying) {
    return number(run(claim_script, id, {who, milliseconds(ttl), destroying ? "1" : "0"})) == 1;
  }
  /// As take().
  renewal renew(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    const long long verdict = number(run(renew_script, id, {who, milliseconds(ttl)}));
    return verdict == 1 ? renewal::renewed : verdict == 0 ? renewal::lapsed : renewal::lost;
  }
  void release(const std::string& id, const std::string& who) { number(run(release_script, id, {who})); }

  /// As take().
  std::optional<std::string> owner(const std::string& id) {
    const reply answer = run(owner_script, id, {});
    if (answer->type == REDIS_REPLY_NIL) return {};
    if (answer->type != REDIS_REPLY_STRING) fail("an answer of another type");
    return std::string(answer->str, answer->len);
  }

 private:
  // A lease is "own:<who>", or "del:<who>" with the teardown mark. A key that is gone is a lease that has lapsed.
  static constexpr const char* take_script =
      "local held = redis.call('GET', KEYS[1]) "
      "if held and string.sub(held, 1, 4) == 'del:' then return 0 end "
      "redis.call('SET', KEYS[1], 'own:' .. ARGV[1], 'PX', ARGV[2]) return 1";
  static constexpr const char* claim_script =
      "local held = redis.call('GET', KEYS[1]) "
      "if held and string.sub(held, 5) ~= ARGV[1] then return 0 end "
      "local mark = 'own:' "
      "if ARGV[3] == '1' or (held and string.sub(held, 1, 4) == 'del:') then mark = 'del:' end "
      "redis.call('SET', KEYS[1], mark .. ARGV[1], 'PX', ARGV[2]) return 1";
  static constexpr const char* renew_script =
      "local held = redis.call('GET', KEYS[1]) "
      "if not held then return 0 end "
      "if string.sub(held, 5) ~= ARGV[1] then return 2 end "
      "redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1";
  static constexpr const char* release_script =
      "local held = redis.call('GET', KEYS[1]) "
      "if held and string.sub(held, 5) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1";
  static constexpr const char* owner_script =
      "local held = redis.call('GET', KEYS[1]) "
      "if held then return string.sub(held, 5) end return false";

  using connection = std::unique_ptr<redisContext, decltype(&::redisFree)>;
  struct free_reply {
    void operator()(redisReply* r) const noexcept { ::freeReplyObject(r); }
  };
  using reply = std::unique_ptr<redisReply, free_reply>;

  [[noreturn]] static void fail(const std::string& what) { throw lease_store_error("redis_lease_store: " + what); }

  /// At least one, since Redis refuses a time to live of nothing; and not beyond what it can add to its clock.
  static std::string milliseconds(std::chrono::nanoseconds ttl) {
    constexpr long long most = std::numeric_limits<std::int32_t>::max() * 1000LL;  // in milliseconds: 68 years
    const long long count = std::chrono::ceil<std::chrono::milliseconds>(ttl).count();
    return std::to_string(std::clamp(count, 1LL, most));
  }

  static long long number(const reply& answer) {
    if (answer->type != REDIS_REPLY_INTEGER) fail("an answer of another type");
    return answer->integer;
  }

  timeval patience() const noexcept {
    const auto ms = options_.timeout.count();
    timeval t{};
    t.tv_sec = static_cast<decltype(t.tv_sec)>(ms / 1000);
    t.tv_usec = static_cast<decltype(t.tv_usec)>(ms % 1000 * 1000);
    return t;
  }

  reply command(redisContext& to, std::initializer_list<std::string_view> words) const {
    std::vector<const char*> text;
    std::vector<std::size_t> size;
    for (const std::string_view word : words) text.push_back(word.data()), size.push_back(word.size());
    void* const got = ::redisCommandArgv(&to, static_cast<int>(text.size()), text.data(), size.data());
    reply answer(static_cast<redisReply*>(got));
    if (answer == nullptr) fail(to.errstr);
    if (answer->type == REDIS_REPLY_ERROR) fail(detail::printable(std::string(answer->str, answer->len)));
    return answer;
  }

  connection connect() const {
    connection fresh(::redisConnectWithTimeout(options_.host.c_str(), options_.port, patience()), &::redisFree);
    if (fresh == nullptr) fail("out of memory");
    if (fresh->err != 0) fail(fresh->errstr);
    if (::redisSetTimeout(fresh.get(), patience()) != REDIS_OK) fail("no timeout for the connection");
    if (!options_.username.empty()) {
      command(*fresh, {"AUTH", options_.username, options_.password});
    } else if (!options_.password.empty()) {
      command(*fresh, {"AUTH", options_.password});
    }
    return fresh;
  }

  /// Whether the server has closed it, or said something that nobody asked for.
  static bool is_stale(const redisContext& idle) noexcept {
    char byte = 0;
    return ::recv(idle.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

  /// A kept connection that is still good, or null.
  connection kept() {
    const std::lock_guard lock(mutex_);
    if (process_ != detail::process_id()) {  // the parent's: closed here without a word to the server
      idle_.clear();
      process_ = detail::process_id();
    }
    while (!idle_.empty()) {
      connection last = std::move(idle_.back());
      idle_.pop_back();
      if (!is_stale(*last)) return last;
    }
    return connection(nullptr, &::redisFree);
  }

  /// One call on a connection of its own, kept for the next one when it succeeded. A stale one is not written to: after
  /// a first write to it a second one would raise SIGPIPE.
  reply run(const char* script, const std::string& id, std::initializer_list<std::string> arguments) {
    const std::string key = options_.key_prefix + id;
    std::vector<std::string> a(arguments);
    a.resize(3);  // what a script does not ask for does not matter to it
    connection to = kept();
    if (to == nullptr) to = connect();
    reply answer = command(*to, {"EVAL", script, "1", key, a[0], a[1], a[2]});
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(to));
    return answer;
  }

  const redis_options options_;
  typename Sync::mutex mutex_;
  std::vector<connection> idle_;
  long process_ = detail::process_id();
};

/// The one to use.
using redis_lease_store = basic_redis_lease_store<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_REDIS_LEASE_STORE_HPP
