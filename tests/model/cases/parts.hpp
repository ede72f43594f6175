// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Race bodies of the smaller parts: teardown, the serializer, the ledger, the worker, and the waiting place.

#ifndef CURFEW_TESTS_MODEL_CASES_PARTS_HPP
#define CURFEW_TESTS_MODEL_CASES_PARTS_HPP

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <curfew/detail/lot.hpp>
#include <curfew/keyed_serializer.hpp>
#include <curfew/periodic_worker.hpp>
#include <curfew/slot_ledger.hpp>
#include <curfew/teardown.hpp>
#include <curfew/testing/outcome.hpp>

namespace curfew_cases {

using curfew::teardown_reason;
using curfew::teardown_status;
using curfew::testing::check;
using curfew::testing::close_call;
using namespace std::chrono_literals;

/// What is torn down says so, and when.
struct ending {
  int* count = nullptr;
  teardown_reason* why = nullptr;
  void operator()(int&, teardown_reason reason) const {
    curfew::testing::foreign("teardown");
    ++*count;
    if (why != nullptr) *why = reason;
  }
};

/// Two parties end one value: one of them runs the callback.
template <class Sync>
struct slot_two_teardowns {
  static constexpr unsigned roles = 2;
  int count = 0;
  curfew::detach_slot<int, ending, Sync> slot{ending{&count, nullptr}};
  bool did[2] = {};
  slot_two_teardowns() { slot.try_install(7); }
  void role(unsigned i) { did[i] = i == 0 ? slot.tear_down() : slot.seal(); }
  void finish() { check(count == 1 && did[0] != did[1], "exactly once"); }
};

/// Installed before the seal: torn down by it. After: refused.
template <class Sync>
struct slot_install_seal {
  static constexpr unsigned roles = 2;
  int count = 0;
  curfew::detach_slot<int, ending, Sync> slot{ending{&count, nullptr}};
  bool installed = false, sealed = false;
  void role(unsigned i) { i == 0 ? installed = slot.try_install(7) : sealed = slot.seal(); }
  void finish() {
    check(installed == sealed && count == (installed ? 1 : 0), "either or");
    check(!slot.has_value() && slot.sealed(), "empty and sealed");
  }
};

/// A replacement meets somebody who takes: every value ends in one way.
template <class Sync>
struct slot_replace_take {
  static constexpr unsigned roles = 2;
  int count = 0;
  curfew::detach_slot<int, ending, Sync> slot{ending{&count, nullptr}};
  std::optional<int> taken;
  slot_replace_take() { slot.try_install(1); }
  void role(unsigned i) {
    if (i == 0) {
      check(slot.replace(2), "replaced");
    } else {
      taken = slot.take();
    }
  }
  void finish() {
    check(taken.has_value(), "there was always one");
    check(*taken == 1 ? count == 0 && slot.has_value() : count == 1 && !slot.has_value(), "no value lost or doubled");
  }
};

template <class Sync>
struct detach_then_once {
  static constexpr unsigned roles = 2;
  typename Sync::mutex mutex;
  std::unique_ptr<int> slot = std::make_unique<int>(7);
  int count = 0;
  bool did[2] = {};
  void role(unsigned i) {
    did[i] = curfew::detach_then(mutex, slot, [this](std::unique_ptr<int> value) {
      curfew::testing::foreign("callback");
      count += *value;
    });
  }
  void finish() { check(count == 7 && did[0] != did[1], "exactly once"); }
};

/// The late caller comes back when it is shut down, not before.
template <class Sync>
struct once_joined {
  static constexpr unsigned roles = 2;
  curfew::basic_once_teardown<Sync> once;
  typename Sync::template plain<int> work{0};
  teardown_status got[2] = {};
  void role(unsigned i) {
    got[i] = once.run([this] {
      curfew::testing::foreign("teardown");
      work = work + 1;
    });
    check(work == 1, "done when run() returns");
  }
  void finish() {
    check((got[0] == teardown_status::completed) != (got[1] == teardown_status::completed), "one ran it");
    check(once.done(), "done");
  }
};

/// The runner throws: its joiners are told, and a retry runs again.
template <class Sync>
struct once_retried {
  static constexpr unsigned roles = 2;
  curfew::basic_once_teardown<Sync> once;
  int runs = 0;
  bool failed[2] = {};
  void role(unsigned i) {
    try {
      failed[i] = once.run([this] {
        if (++runs == 1) throw std::runtime_error("first attempt");
      }) == teardown_status::failed;
    } catch (const std::runtime_error&) {
      failed[i] = true;
    }
  }
  void finish() {
    check(failed[0] || failed[1], "the first attempt failed");
    check(once.done() == (runs == 2), "done only after a good one");
  }
};

/// A joiner that has returned may destroy the object.
template <class Sync>
struct once_destroyed_by_joiner {
  static constexpr unsigned roles = 2;
  std::unique_ptr<curfew::basic_once_teardown<Sync>> once = std::make_unique<curfew::basic_once_teardown<Sync>>();
  curfew::basic_once_teardown<Sync>* const seen = once.get();
  typename Sync::template atomic<bool> entered{false};
  void role(unsigned i) {
    if (i == 0) {
      seen->run([this] { entered.store(true, std::memory_order_release); });
    } else if (entered.load(std::memory_order_acquire) && seen->run([] {}) == teardown_status::joined) {
      close_call("joined");
      once.reset();
    }
  }
  void finish() { once.reset(); }
};

/// A joiner with a deadline leaves, or joins; nothing else.
template <class Sync>
struct once_joined_for {
  static constexpr unsigned roles = 2;
  curfew::basic_once_teardown<Sync> once;
  typename Sync::template plain<int> work{0};
  void role(unsigned i) {
    const auto body = [this] { work = work + 1; };
    const auto got = i == 0 ? once.run(body) : once.run_for(5ms, body);
    if (got == teardown_status::joined || got == teardown_status::completed) check(work == 1, "done");
  }
  void finish() { check(once.done() && work == 1, "done once"); }
};

// ---- keyed_serializer ----

/// One at a time per key, taken here and given back there.
template <class Sync>
struct serializer_excludes {
  static constexpr unsigned roles = 3;
  curfew::keyed_serializer<int, std::hash<int>, Sync> keys;
  typename Sync::template plain<int> value{0};
  void role(unsigned) {
    auto hold = keys.acquire(1);
    check(static_cast<bool>(hold), "never closed");
    value = value + 1;
  }
  void finish() { check(value == 3 && keys.was_size() == 0, "all came in, nothing is left"); }
};

/// Closing wakes who waits, and refuses newcomers; a holder stays.
template <class Sync>
struct serializer_closed {
  static constexpr unsigned roles = 2;
  curfew::keyed_serializer<int, std::hash<int>, Sync> keys;
  typename curfew::keyed_serializer<int, std::hash<int>, Sync>::hold mine = keys.acquire(1);
  void role(unsigned i) {
    if (i == 0) {
      check(!keys.acquire(1), "the holder never lets go");
    } else {
      check(keys.close(), "the one call that closed");
    }
  }
  void finish() {
    mine.release();
    check(keys.was_size() == 0, "nothing is left");
  }
};

/// A wait that is given up while the key is handed over: it goes to one of the two.
template <class Sync>
struct serializer_abandoned {
  static constexpr unsigned roles = 3;
  curfew::keyed_serializer<int, std::hash<int>, Sync> keys;
  typename curfew::keyed_serializer<int, std::hash<int>, Sync>::hold mine = keys.acquire(1);
  typename Sync::template plain<int> value{0};
  void role(unsigned i) {
    if (i == 0) {
      value = value + 1;
      mine.release();
    } else if (i == 1) {
      auto hold = keys.acquire_for(1, 5ms);
      if (hold) value = value + 1;
    } else {
      auto hold = keys.acquire(1);
      value = value + 1;
    }
  }
  void finish() { check(keys.was_size() == 0 && value >= 2, "nothing is left"); }
};

// ---- slot_ledger ----

/// A freed slot goes to the head of the line.
template <class Sync>
struct ledger_line {
  static constexpr unsigned roles = 3;
  using ledger_type = curfew::basic_slot_ledger<Sync>;
  ledger_type slots{1};
  typename ledger_type::slot mine = slots.try_reserve();
  typename Sync::template plain<int> value{0};
  void role(unsigned i) {
    if (i == 0) {
      value = value + 1;
      mine.release();
      return;
    }
    typename ledger_type::ticket ticket(slots);
    check(ticket.wait_until(curfew::std_sync::clock::time_point::max()) == curfew::slot_outcome::granted, "granted");
    auto slot = ticket.take();
    check(static_cast<bool>(slot), "a slot");
    value = value + 1;
  }
  void finish() { check(slots.census().total() == 0 && value == 3, "all served, nothing taken"); }
};

/// A ticket gives up while a slot is freed: the slot is not lost.
template <class Sync>
struct ledger_gives_up {
  static constexpr unsigned roles = 3;
  using ledger_type = curfew::basic_slot_ledger<Sync>;
  ledger_type slots{1};
  typename ledger_type::slot mine = slots.try_reserve();
  void role(unsigned i) {
    if (i == 0) {
      mine.release();
      return;
    }
    typename ledger_type::ticket ticket(slots);
    const auto until =
        i == 1 ? curfew::std_sync::clock::time_point{} + 1h + 5ms : curfew::std_sync::clock::time_point::max();
    const auto got = ticket.wait_until(until);
    check(i == 1 || got == curfew::slot_outcome::granted, "who waits for ever is granted");
  }
  void finish() { check(slots.census().total() == 0, "nothing taken"); }
};

/// Closing tells everybody in line.
template <class Sync>
struct ledger_closed {
  static constexpr unsigned roles = 3;
  using ledger_type = curfew::basic_slot_ledger<Sync>;
  ledger_type slots{1};
  typename ledger_type::slot mine = slots.try_reserve();
  void role(unsigned i) {
    if (i == 0) {
      check(slots.close(), "the one call that closed");
      return;
    }
    typename ledger_type::ticket ticket(slots);
    check(ticket.wait_until(curfew::std_sync::clock::time_point::max()) == curfew::slot_outcome::closed, "closed");
  }
  void finish() { mine.release(); }
};

/// The cap holds.
template <class Sync>
struct ledger_cap {
  static constexpr unsigned roles = 3;
  using ledger_type = curfew::basic_slot_ledger<Sync>;
  ledger_type slots{2};
  typename ledger_type::slot got[3];
  void role(unsigned i) { got[i] = slots.try_reserve(); }
  void finish() {
    check(got[0].operator bool() + got[1].operator bool() + got[2].operator bool() == 2, "two of three");
    for (auto& each : got) each.release();
  }
};

// ---- periodic_worker ----

/// What ran in a tick is visible after stop().
template <class Sync>
struct worker_stopped {
  static constexpr unsigned roles = 1;
  typename Sync::template plain<int> work{0};
  curfew::basic_periodic_worker<Sync> worker{"worker", [this] {
                                               curfew::testing::foreign("tick");
                                               work = work + 1;
                                             }};
  void role(unsigned) {
    check(worker.start(1ms), "started");
    worker.poke();
    if (worker.stop(std::chrono::nanoseconds::max())) {
      const int done = work;
      check(done == static_cast<int>(worker.ticks()), "every tick is visible");
    }
  }
  void finish() { check(worker.stop(std::chrono::nanoseconds::max()), "stopped"); }
};

/// Two stoppers, one of whom joins.
template <class Sync>
struct worker_two_stops {
  static constexpr unsigned roles = 2;
  curfew::basic_periodic_worker<Sync> worker{"worker", [] {}};
  worker_two_stops() { worker.start(1h); }
  void role(unsigned) { check(worker.stop(std::chrono::nanoseconds::max()), "stopped"); }
  void finish() { check(!worker.running(), "not running"); }
};

// ---- the lot ----

template <class Sync>
struct lot_parked {
  static constexpr unsigned roles = 3;
  typename Sync::template atomic<int> word{0};
  typename Sync::template plain<int> value{0};
  void role(unsigned i) {
    auto& lot = curfew::detail::process_lot<Sync>;
    if (i == 0) {
      value = 1;
      word.store(1, std::memory_order_release);
      lot.unpark_all(&word);
    } else {
      lot.park(&word, [this] { return word.load(std::memory_order_acquire) == 1; });
      check(value == 1, "what preceded it is visible");
    }
  }
  void finish() {}
};

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_PARTS_HPP
