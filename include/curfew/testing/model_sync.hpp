// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The policy of the explorer: the same members as std_sync, each of which is a step that the explorer schedules.
/// Give it to a class that is written against the policy, and hand the class to explore() inside a body. Outside a
/// run its objects behave like those of a program with one thread.

#ifndef CURFEW_TESTING_MODEL_SYNC_HPP
#define CURFEW_TESTING_MODEL_SYNC_HPP

#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/testing/engine.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing {

// Where an operation stands in the code under test.
#define CURFEW_TESTING_HERE unsigned line = __builtin_LINE(), const char *file = __builtin_FILE()

namespace model {

using engine::explorer_engine;

inline explorer_engine* running() noexcept {
  return explorer_engine::current();
}

/// Announces birth and death of what has an identity.
class object {
 public:
  constexpr object() noexcept {
    if (!std::is_constant_evaluated()) born();
  }
  object(const object&) = delete;
  object& operator=(const object&) = delete;

 protected:
  constexpr ~object() {
    if (!std::is_constant_evaluated()) died();
  }
  mutable engine::identity id_{};

 private:
  void born() noexcept {
    const engine::unobserved scope;
    if (auto* run = running()) run->born(this, id_);
  }
  void died() noexcept {
    const engine::unobserved scope;
    if (auto* run = running()) run->died(this, id_);
  }
};

template <class T>
class atomic : object {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8, "the explorer models atomics of up to eight bytes");

 public:
  using value_type = T;
  constexpr atomic() noexcept : value_{} {}
  constexpr atomic(T value) noexcept : value_(value) {}  // NOLINT: as std::atomic

  T load(std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) const noexcept {
    const engine::unobserved scope;
    auto* run = running();
    return run == nullptr ? value_ : unpack(run->load(this, id_, pack(value_), number(order), {file, line}));
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) noexcept {
    const engine::unobserved scope;
    if (auto* run = running()) run->store(this, id_, pack(value_), pack(value), number(order), {file, line});
    value_ = value;
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) noexcept {
    return change(engine::op_kind::exchange, order, {file, line}, [value](T) { return value; });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure,
                               CURFEW_TESTING_HERE) noexcept {
    return compare(expected, desired, false, success, failure, {file, line});
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure,
                             CURFEW_TESTING_HERE) noexcept {
    return compare(expected, desired, true, success, failure, {file, line});
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst,
                               CURFEW_TESTING_HERE) noexcept {
    return compare(expected, desired, false, order, failing(order), {file, line});
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst,
                             CURFEW_TESTING_HERE) noexcept {
    return compare(expected, desired, true, order, failing(order), {file, line});
  }
  template <class D>
  T fetch_add(D by, std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) noexcept {
    return change(engine::op_kind::modify, order, {file, line},
                  [by](T v) { return static_cast<T>(v + static_cast<T>(by)); });
  }
  template <class D>
  T fetch_sub(D by, std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) noexcept {
    return change(engine::op_kind::modify, order, {file, line},
                  [by](T v) { return static_cast<T>(v - static_cast<T>(by)); });
  }
  T fetch_and(T by, std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) noexcept {
    return change(engine::op_kind::modify, order, {file, line}, [by](T v) { return static_cast<T>(v & by); });
  }
  T fetch_or(T by, std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) noexcept {
    return change(engine::op_kind::modify, order, {file, line}, [by](T v) { return static_cast<T>(v | by); });
  }
  T fetch_xor(T by, std::memory_order order = std::memory_order_seq_cst, CURFEW_TESTING_HERE) noexcept {
    return change(engine::op_kind::modify, order, {file, line}, [by](T v) { return static_cast<T>(v ^ by); });
  }
  bool is_lock_free() const noexcept { return true; }

  /// For the policies: what the explorer is told of a word, and the value that it has settled on.
  engine::word to_word() const noexcept { return {this, &id_, pack(value_)}; }
  static T from_bits(std::uint64_t bits) noexcept { return unpack(bits); }
  std::uint64_t settle(T value) noexcept { return pack(value_ = value); }

  static constexpr bool is_always_lock_free = true;

 private:
  static constexpr int number(std::memory_order order) noexcept { return static_cast<int>(order); }
  static constexpr std::memory_order failing(std::memory_order order) noexcept {
    const int n = number(order);  // what has a release in it cannot be the order of a load
    return static_cast<std::memory_order>(n == 4 ? 2 : n == 3 ? 0 : n);
  }
  static std::uint64_t pack(T value) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
  }
  static T unpack(std::uint64_t bits) noexcept {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  template <class F>
  T change(engine::op_kind kind, std::memory_order order, engine::code_line at, F f) noexcept {
    const engine::unobserved scope;
    auto* run = running();
    if (run == nullptr) return std::exchange(value_, f(value_));
    const auto bits = [&](std::uint64_t before) { return pack(f(unpack(before))); };
    const T before = unpack(run->modify(kind, this, id_, pack(value_), number(order), at, bits));
    value_ = f(before);
    return before;
  }
  bool compare(T& expected, T desired, bool weak, std::memory_order success, std::memory_order failure,
               engine::code_line at) noexcept {
    const engine::unobserved scope;
    auto* run = running();
    if (run == nullptr) {
      const bool same = pack(value_) == pack(expected);
      (same ? value_ : expected) = same ? desired : value_;
      return same;
    }
    std::uint64_t found = pack(expected);
    if (run->compare(this, id_, pack(value_), found, pack(desired), weak, number(success), number(failure), at)) {
      value_ = desired;
      return true;
    }
    expected = unpack(found);
    return false;
  }

  T value_;
};

class mutex : object {
 public:
  constexpr mutex() noexcept = default;
  void lock(CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    if (auto* run = running()) run->lock(this, id_, {file, line});
  }
  bool try_lock(CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    auto* run = running();
    return run == nullptr || run->try_lock(this, id_, {file, line});
  }
  void unlock(CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    if (auto* run = running()) run->unlock(this, id_, {file, line});
  }

 private:
  friend class condition_variable;
};

class condition_variable : object {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  condition_variable() noexcept = default;
  void notify_one(CURFEW_TESTING_HERE) noexcept {
    const engine::unobserved scope;
    if (auto* run = running()) run->notify(this, id_, false, {file, line});
  }
  void notify_all(CURFEW_TESTING_HERE) noexcept {
    const engine::unobserved scope;
    if (auto* run = running()) run->notify(this, id_, true, {file, line});
  }
  void wait(std::unique_lock<mutex>& lock, CURFEW_TESTING_HERE) { sleep(lock, time_point::max(), {file, line}); }
  template <class Predicate>
  requires std::is_invocable_r_v<bool, Predicate&>
  void wait(std::unique_lock<mutex>& lock, Predicate holds, CURFEW_TESTING_HERE) {
    while (!holds()) wait(lock, line, file);
  }
  std::cv_status wait_until(std::unique_lock<mutex>& lock, time_point deadline, CURFEW_TESTING_HERE) {
    return sleep(lock, deadline, {file, line}) ? std::cv_status::timeout : std::cv_status::no_timeout;
  }
  template <class Predicate>
  requires std::is_invocable_r_v<bool, Predicate&>
  bool wait_until(std::unique_lock<mutex>& lock, time_point deadline, Predicate holds, CURFEW_TESTING_HERE) {
    while (!holds()) {
      if (wait_until(lock, deadline, line, file) == std::cv_status::timeout) return holds();
    }
    return true;
  }
  template <class Rep, class Period>
  std::cv_status wait_for(std::unique_lock<mutex>& lock, std::chrono::duration<Rep, Period> span, CURFEW_TESTING_HERE) {
    return wait_until(lock, later(span, {file, line}), line, file);
  }
  template <class Rep, class Period, class Predicate>
  requires std::is_invocable_r_v<bool, Predicate&>
  bool wait_for(std::unique_lock<mutex>& lock, std::chrono::duration<Rep, Period> span, Predicate holds,
                CURFEW_TESTING_HERE) {
    return wait_until(lock, later(span, {file, line}), std::move(holds), line, file);
  }

 private:
  bool sleep(std::unique_lock<mutex>& lock, time_point deadline, engine::code_line at) {
    const engine::unobserved scope;
    auto* run = running();
    return run == nullptr || run->wait(this, id_, lock.mutex(), lock.mutex()->id_, deadline, at);
  }
  template <class Span>
  static time_point later(Span span, engine::code_line at) {
    const engine::unobserved scope;
    auto* run = running();
    return run == nullptr ? time_point{} : run->now(at) + std::chrono::ceil<time_point::duration>(span);
  }
};

/// Data that is not atomic. Every use is checked: two threads may not use it, one of them writing, unless something
/// orders them.
template <class T>
class plain : object {
 public:
  constexpr plain() : value_{} {}
  constexpr plain(T value) : value_(std::move(value)) {}  // NOLINT: stands for a T
  plain& operator=(T value) {
    set(std::move(value), 0, "");
    return *this;
  }
  operator T() const { return get(0, ""); }  // NOLINT: stands for a T
  plain& operator+=(const T& by) { return *this = static_cast<T>(get(0, "") + by); }
  plain& operator++() { return *this = static_cast<T>(get(0, "") + 1); }

  T get(CURFEW_TESTING_HERE) const {
    {
      const engine::unobserved scope;
      if (auto* run = running()) run->plain_read(this, id_, {file, line});
    }
    return value_;
  }
  void set(T value, CURFEW_TESTING_HERE) {
    {
      const engine::unobserved scope;
      if (auto* run = running()) run->plain_write(this, id_, {file, line});
    }
    value_ = std::move(value);
  }

 private:
  T value_;
};

struct thread_id {
  unsigned number = 0;  // 0: no thread
  friend constexpr auto operator<=>(const thread_id&, const thread_id&) = default;
};

/// What the running thread wants called at its end.
struct farewell {
  void (*fn)(void*) noexcept;
  void* arg;
  static farewell& mine(explorer_engine& run) {
    static constinit char key = 0;
    return *static_cast<farewell*>(run.local(&key, sizeof(farewell)));
  }
  static farewell taken() {
    const engine::unobserved scope;
    return std::exchange(mine(*running()), {});
  }
};

class thread {
 public:
  using id = thread_id;

  thread() noexcept = default;
  template <class F, class... Args>
  requires(!std::is_same_v<std::remove_cvref_t<F>, thread>) explicit thread(F&& f, Args&&... args) {
    const engine::unobserved scope;
    auto* run = running();
    if (run == nullptr) detail::fail("testing::model_sync::thread outside a run of the explorer");
    auto call = std::make_shared<std::decay_t<F>>(std::forward<F>(f));
    number_ =
        1 + run->spawn([call = std::move(call), ... rest = std::decay_t<Args>(std::forward<Args>(args))]() mutable {
          std::invoke(std::move(*call), std::move(rest)...);
          call.reset();
          if (const farewell last = farewell::taken(); last.fn != nullptr) last.fn(last.arg);
        });
  }
  thread(thread&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  thread& operator=(thread&& other) noexcept {
    if (joinable()) detail::fail("a joinable thread was assigned to");
    number_ = std::exchange(other.number_, 0);
    return *this;
  }
  ~thread() {
    if (joinable() && running() != nullptr) detail::fail("a joinable thread was destroyed");
  }
  bool joinable() const noexcept { return number_ != 0; }
  id get_id() const noexcept { return {number_}; }
  void join(CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    if (auto* run = running(); run != nullptr && joinable()) run->join(number_ - 1, {file, line});
    number_ = 0;
  }
  void detach() noexcept { number_ = 0; }
  void swap(thread& other) noexcept { std::swap(number_, other.number_); }

 private:
  unsigned number_ = 0;  // one more than the explorer's
};

struct clock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;
  static time_point now(CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    auto* run = running();
    return run == nullptr ? time_point{} : run->now({file, line});
  }
};

}  // namespace model

/// The policy of explore(). Time is virtual: it passes when the explorer lets a deadline pass, which it may do whenever
/// somebody waits for one, and must when nobody can go on otherwise.
struct model_sync : std_sync {
  template <class T>
  using atomic = model::atomic<T>;
  template <class T>
  using plain = model::plain<T>;
  using mutex = model::mutex;
  using condition_variable = model::condition_variable;
  using lasting_condition_variable = model::condition_variable;
  using thread = model::thread;
  using thread_id = model::thread_id;
  using clock = model::clock;

  static thread_id self() noexcept {
    const engine::unobserved scope;
    auto* run = model::running();
    return {run == nullptr ? 1 : run->self() + 1};
  }
  static void yield(CURFEW_TESTING_HERE) noexcept {
    const engine::unobserved scope;
    if (auto* run = model::running()) run->yield({file, line});
  }
  static void pause(CURFEW_TESTING_HERE) noexcept { yield(line, file); }
  static void sleep_for(std::chrono::nanoseconds span, CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    if (auto* run = model::running()) run->sleep(span, {file, line});
  }
  static void name_thread(const char*) noexcept {}
  static unsigned stripe() noexcept {
    const engine::unobserved scope;
    auto* run = model::running();
    return run == nullptr ? 1 : run->self() + 1;
  }
  template <class Tag, class T>
  static T& local() noexcept {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= alignof(std::max_align_t));
    static constinit T outside{};
    static constinit char key = 0;
    const engine::unobserved scope;
    auto* run = model::running();
    return run == nullptr ? outside : *static_cast<T*>(run->local(&key, sizeof(T)));
  }
  static void at_thread_exit(void (*fn)(void*) noexcept, void* arg) noexcept {
    const engine::unobserved scope;
    if (auto* run = model::running()) model::farewell::mine(*run) = {fn, arg};
  }
  static std::uint64_t number_of(const void* address) noexcept {
    const engine::unobserved scope;
    auto* run = model::running();
    return run == nullptr ? reinterpret_cast<std::uintptr_t>(address) : 16 * run->number_of(address);
  }
  static void here(const char* tag) noexcept {
    const engine::unobserved scope;
    if (auto* run = model::running()) run->pass_tag(tag);
  }

  /// std::atomic_thread_fence, and the two halves of an asymmetric one (compiler barrier here, membarrier there).
  static void fence(std::memory_order order, CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    if (auto* run = model::running()) run->fence(static_cast<int>(order), {file, line});
  }
  static void light_fence() noexcept {}
  static void heavy_fence(CURFEW_TESTING_HERE) {
    const engine::unobserved scope;
    if (auto* run = model::running()) run->heavy_fence({file, line});
  }
};

}  // namespace testing
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_MODEL_SYNC_HPP
