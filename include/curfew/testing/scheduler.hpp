// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The threads of a run, as fibers of one real thread, and who goes on next. A thread announces each operation before
/// it does it; the operation, and everything up to the thread's next announcement, is one step.

#ifndef CURFEW_TESTING_SCHEDULER_HPP
#define CURFEW_TESTING_SCHEDULER_HPP

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/testing/fiber.hpp>
#include <curfew/testing/memory.hpp>
#include <curfew/testing/operation.hpp>
#include <curfew/testing/outcome.hpp>
#include <curfew/testing/search.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

class scheduler : public run_state {
 public:
  using run_state::run_state;

  /// What restarts the exploration: the body turned out to use something that every step must know of.
  bool restart() const noexcept { return restart_; }
  uint64_t steps() const noexcept { return all_steps_; }
  void tell(std::vector<event>* story) noexcept { story_ = story; }

  finding run(body& what) {
    const unobserved scope;
    begin_run(what);
    threads_[0].stack->enter(host_);
    // What a run leaves in static storage is ordered before the next one.
    for (unsigned i = 0; CURFEW_TESTING_TSAN && i < count_; ++i) threads_[i].stack->publish_to(&end_edge_);
    observe(&end_edge_);
    if (finding_.what != fault::none || restart_) abandon();
    all_steps_ += step_count_;
    return std::exchange(finding_, {});
  }

  [[noreturn]] void fail(fault what, std::string message) {
    finding_ = {what, std::move(message)};
    threads_[running_].stack->abandon();
    host_.enter(*threads_[running_].stack);
    std::abort();  // nobody comes back here
  }

  // ---- for the objects that run on it ----

  unsigned self() const noexcept { return running_; }
  const char* self_name() const noexcept { return running_ == 0 ? "main" : "thread"; }
  void pass_tag(const char* tag) noexcept { threads_[running_].tag = tag; }
  unsigned held() const noexcept { return threads_[running_].held; }

  /// Zero-initialised storage of the running thread, one for each key.
  void* local(const void* key, std::size_t size) {
    for (auto& each : threads_[running_].locals) {
      if (each.first == key) return each.second.get();
    }
    auto& added = threads_[running_].locals.emplace_back(key, new unsigned char[size]);
    std::memset(added.second.get(), 0, size);
    return added.second.get();
  }

  /// A number for an address, by order of asking: addresses differ from run to run.
  uint64_t number_of(const void* address) {
    for (std::size_t i = 0; i < numbered_.size(); ++i) {
      if (numbered_[i] == address) return i + 1;
    }
    numbered_.push_back(address);
    return numbered_.size();
  }

  unsigned spawn(std::function<void()> what, int role = -1) {
    thread_state& parent = threads_[running_];
    if (count_ == max_threads) fail(fault::check_failed, "a run may have at most seven threads besides the main one");
    const unsigned number = count_++;
    prepare(number);
    thread_state& child = threads_[number];
    child.work = std::move(what);
    child.role = role;
    child.order = parent.order;
    child.hb.join(parent.hb);
    child.coherent.join(parent.coherent);
    publish(&edges_[static_cast<std::size_t>(next_edge_) % sizeof edges_]);
    child.birth_edge = next_edge_++;
    released(parent);
    ++alive_;
    return number;
  }

  bool finished(unsigned thread) const noexcept { return threads_[thread].finished; }

 protected:
  /// Announces an operation; returns when the thread has been chosen to do it.
  void announce(const operation& next) {
    const bool blocks = next.kind == op_kind::lock || next.kind == op_kind::join;
    may_block_ = blocks ? may_block_ | bit(running_) : may_block_ & ~bit(running_);
    if (alive_ == 1 || muted_) {
      if (!muted_ && ++step_count_ > most_.steps) overrun();
      return;
    }
    end_step();
    const unsigned chosen = choose();
    if (chosen != running_) go_on(chosen);
    begin_step();
  }

  bool alone() const noexcept { return alive_ == 1; }
  bool quiet() const noexcept { return alone() || muted_; }

  /// The running thread has released what it did so far: what it does from now on is not part of it.
  void released(thread_state& me) noexcept { me.coherent.at[running_] = ++me.hb.at[running_]; }
  /// The same for any thread: others know what it did so far, and not what it does from now on.
  void passed(unsigned thread) noexcept { threads_[thread].coherent.at[thread] = ++threads_[thread].hb.at[thread]; }

  void wake(unsigned thread, bool by_time) {
    thread_state& sleeper = threads_[thread];
    sleeper.parked = false;
    sleeper.timed_out = by_time;
    std::erase(places_[sleeper.waits_on].waiters, static_cast<unsigned char>(thread));
  }

  void demand_restart(bool& flag) {
    if (flag) return;
    flag = restart_ = true;
    fail(fault::none, {});
  }

  uint16_t add_place(const void* address, place_kind kind) {
    if (place_count_ == places_.size()) places_.resize(2 * place_count_);
    places_[place_count_].reset(address, kind, ++ordinals_[static_cast<unsigned>(kind)]);
    return static_cast<uint16_t>(place_count_++);
  }

  void note(const operation& op, bool reads, bool writes, uint64_t before, uint64_t after, unsigned stale = 0,
            const char* remark = "") {
    if (story_ == nullptr) return;
    const place& x = places_[op.uses[0].place];
    story_->push_back({running_, op.kind, x.kind, x.ordinal, reads, writes, before, after, stale, remark,
                       threads_[running_].tag, op.at});
  }

 private:
  void begin_run(body& what) {
    run_ = ++last_run_;
    body_ = &what;
    watches_ = what.watches();
    place_count_ = 0;
    ordinals_ = {};
    add_place(nullptr, place_kind::none);
    add_place(nullptr, place_kind::everything);
    add_place(nullptr, place_kind::clock);
    add_place(nullptr, place_kind::everything);
    count_ = alive_ = 1;
    unfinished_ = may_block_ = 0;
    run_on(0);
    roles_left_ = 0;
    step_count_ = 0;
    yielded_ = 0;
    muted_ = restart_ = false;
    now_ = time_point{} + std::chrono::hours(1);
    stale_used_ = spurious_used_ = timeouts_used_ = weak_used_ = interruptions_used_ = migrations_used_ = 0;
    next_edge_ = 0;
    living_ = 0;
    graves_.clear();
    fences_ = sequential_stores_ = {};
    numbered_.clear();
    if (story_ != nullptr) story_->clear();
    search_.begin();
    prepare(0);
    threads_[0].birth_edge = next_edge_++;
    publish(&edges_[threads_[0].birth_edge]);
  }

  void prepare(unsigned number) {
    thread_state& fresh = threads_[number];
    if (fresh.stack == nullptr) {
      owned_[number] = std::make_unique<fiber>(&scheduler::live);
      fresh.stack = owned_[number].get();
    }
    fresh.finished = fresh.parked = fresh.timed_out = fresh.in_sequence = fresh.restarted = false;
    fresh.processor = number % most_.processors;
    fresh.held = 0;
    unfinished_ |= bit(number);
    fresh.pending = {};
    fresh.deadline = time_point::max();
    fresh.order = fresh.hb = fresh.coherent = fresh.to_acquire = fresh.to_release = {};
    fresh.hb.at[number] = fresh.coherent.at[number] = 1;
    fresh.tag = "";
    fresh.locals.clear();
  }

  // A failed run is not unwound: what runs is noexcept in places. Its stacks stay behind.
  void abandon() {
    for (unsigned i = 0; i < count_; ++i) {
      threads_[i].finished = true;
      if (!threads_[i].in_body) continue;
      threads_[i].in_body = false;
      owned_[i]->abandon();
      keep(owned_[i].release());
      threads_[i].stack = nullptr;
      keep(new std::function<void()>(std::move(threads_[i].work)));
      threads_[i].work = nullptr;
    }
  }

  static scheduler*& instance() noexcept {
    static constinit scheduler* current = nullptr;
    return current;
  }

 public:
  /// Where the objects of a body find the run they are part of; null outside of one.
  static scheduler* current() noexcept { return instance(); }
  class activation {
   public:
    explicit activation(scheduler& run) noexcept : before_(std::exchange(instance(), &run)) {}
    ~activation() { instance() = before_; }
    activation(const activation&) = delete;
    activation& operator=(const activation&) = delete;

   private:
    scheduler* before_;
  };

 private:
  // The life of a fiber: one thread of a run after another.
  static void live() noexcept {
    for (;;) {
      scheduler& s = *instance();
      const unsigned me = s.running_;
      thread_state& mine = s.threads_[me];
      mine.in_body = true;
      observe(&edges_[static_cast<std::size_t>(mine.birth_edge) % sizeof edges_]);
      if (me == 0) {
        s.live_main();
        mine.in_body = false;
        s.ended(0);
        s.host_.enter(*mine.stack);
      } else {
        s.begin_step();
        s.guarded([&] { mine.work(); });
        mine.work = nullptr;
        mine.death_edge = s.next_edge_++;
        publish(&edges_[static_cast<std::size_t>(mine.death_edge) % sizeof edges_]);
        s.end_step();
        mine.in_body = false;
        s.ended(me);
        --s.alive_;
        if (mine.role >= 0) --s.roles_left_;
        const unsigned next = s.choose();
        s.run_on(next);
        s.self_->stack->enter(*mine.stack);
      }
    }
  }

  void ended(unsigned thread) noexcept {
    threads_[thread].finished = true;
    unfinished_ &= ~bit(thread);
  }

  template <class F>
  void guarded(F&& f) {
    unobserved::end();
    try {
      f();
    } catch (const std::exception& error) {
      unobserved::begin();
      fail(fault::exception, std::string("an exception left the body: ") + error.what());
    } catch (...) {
      unobserved::begin();
      fail(fault::exception, "an exception left the body");
    }
    unobserved::begin();
  }

  void live_main() {
    guarded([&] { body_->set_up(); });
    const unsigned roles = body_->roles();
    roles_left_ = roles;
    for (unsigned i = 0; i < roles; ++i) spawn([this, i] { body_->role(i); }, static_cast<int>(i));
    thread_state& me = threads_[0];
    me.pending = {};
    me.pending.kind = op_kind::join_roles;
    if (roles != 0) {
      end_step();
      go_on(choose());
      for (unsigned i = 1; i < count_; ++i) {
        if (threads_[i].role < 0) continue;
        me.hb.join(threads_[i].hb);
        me.coherent.join(threads_[i].hb);
        me.order.join(threads_[i].order);
        observe(&edges_[static_cast<std::size_t>(threads_[i].death_edge) % sizeof edges_]);
      }
      if (!alone()) begin_step();
    }
    guarded([&] { body_->tear_down(); });
    if (!alone()) fail(fault::leak, "a thread that the body has started is still running");
    if (living_ != 0) {
      fail(fault::leak,
           std::to_string(living_) + " atomics, mutexes or condition variables made by the body were not destroyed");
    }
  }

  void run_on(unsigned thread) noexcept {
    running_ = thread;
    self_ = &threads_[thread];
  }

  void go_on(unsigned next) {
    fiber& mine = *self_->stack;
    run_on(next);
    self_->stack->enter(mine);
  }

  void begin_step() {
    if (++step_count_ > most_.steps) overrun();
    if (watches_) watch();
    search_.begin_step(running_, self_->order);
    if (orders_all_) search_.use(places_[everything], everything, false, self_->order);
  }

  // What is about to be done stays so, although the invariant has operations of its own.
  CURFEW_NOINLINE void watch() {
    const operation kept = self_->pending;
    muted_ = true;
    guarded([&] { body_->invariant(); });
    muted_ = false;
    self_->pending = kept;
  }

  void end_step() {
    if (search_.samples_operations()) {
      for (unsigned i = 0; i < count_; ++i) {
        if (!threads_[i].finished && (i == running_ || search_.meets(threads_[i].pending.uses))) search_.shuffle(i);
      }
    }
    search_.end_step(
        self_->order, [this](unsigned thread) -> auto& { return threads_[thread].pending.uses; });
  }

  bool can_go_on(const thread_state& thread) const noexcept {
    switch (thread.pending.kind) {
      case op_kind::lock:
        return !thread.parked && places_[thread.pending.uses[0].place].owner < 0;
      case op_kind::join:
        return threads_[thread.pending.target].finished;
      default:
        return true;
    }
  }

  thread_mask able_threads() const noexcept {
    thread_mask able = unfinished_;
    if (roles_left_ != 0) able &= ~bit(0);  // waits for them
    for (thread_mask left = able & may_block_; left != 0; left &= left - 1) {
      if (!can_go_on(threads_[lowest(left)])) able &= ~(left & -left);
    }
    return able;
  }

  unsigned choose() {
    thread_mask able = able_threads();
    while (able == 0) {
      if (!let_time_pass()) stuck();
      able = able_threads();
    }
    if ((able & ~yielded_) != 0) {
      able &= ~yielded_;
    } else {
      yielded_ = 0;
    }
    if ((able & (able - 1)) == 0) {
      search_.only_thread(lowest(able));
      return lowest(able);
    }
    uint32_t print = 0;
    for (thread_mask left = able; left != 0; left &= left - 1) {
      const operation& next = threads_[lowest(left)].pending;
      print = print * 0x01000193u + static_cast<unsigned>(next.kind) + next.uses[0].place * 1024u;
    }
    return search_.pick_thread({able, running_, print});
  }

  // Nobody can go on, but somebody waits with a deadline: the earliest one has passed.
  bool let_time_pass() {
    unsigned first = max_threads;
    for (unsigned i = 0; i < count_; ++i) {
      const thread_state& each = threads_[i];
      if (each.finished || !each.parked || each.deadline == time_point::max()) continue;
      if (first == max_threads || each.deadline < threads_[first].deadline) first = i;
    }
    if (first == max_threads) return false;
    now_ = std::max(now_, threads_[first].deadline);
    wake(first, true);
    for (unsigned i = 0; i < count_; ++i) threads_[first].order.join(threads_[i].order);
    return true;
  }

  [[noreturn]] void overrun() {
    fail(fault::livelock, "more than " + std::to_string(most_.steps) +
                              " steps: the threads keep each other busy, or the body is too long");
  }

  [[noreturn]] void stuck() {
    finding all = deadlock();
    fail(all.what, std::move(all.message));
  }

 private:
  fiber host_;
  std::array<std::unique_ptr<fiber>, max_threads> owned_{};
  unsigned roles_left_ = 0;
  unsigned step_count_ = 0;
  uint64_t all_steps_ = 0;
  bool restart_ = false;
  finding finding_;
  std::vector<event>* story_ = nullptr;
  std::vector<const void*> numbered_;
  static inline constinit uint32_t last_run_ = 0;  // objects outlive runs, and must not take one for another
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_SCHEDULER_HPP
