// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Race bodies of the admission fence, for both kinds. Each is a struct with roles, role(i) and finish(), templates on
/// the fence and its policy: the same body runs in the explorer, under noise, and on real threads.

#ifndef CURFEW_TESTS_MODEL_CASES_FENCE_HPP
#define CURFEW_TESTS_MODEL_CASES_FENCE_HPP

#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <curfew/admission_fence.hpp>
#include <curfew/testing/outcome.hpp>

namespace curfew_cases {

using curfew::testing::check;
using curfew::testing::close_call;
using namespace std::chrono_literals;

/// Rules 1 and 5. Whoever is inside may use the resource; who has drained the fence owns it alone.
template <class Fence, class Sync>
struct fence_enter_close {
  static constexpr unsigned roles = 3;
  Fence fence{"requests"};
  typename Sync::template plain<int> resource{1};

  void role(unsigned i) {
    if (i == 2) {
      fence.drain();
      resource = 0;
      return;
    }
    if (auto pass = fence.try_enter()) {
      check(resource == 1, "the resource lives while somebody is inside");
    } else {
      close_call("refused");
    }
  }
  void finish() {
    check(fence.is_drained() && fence.inside() == 0, "drained");
    check(resource == 0, "closed down");
  }
};

/// Rule 6. The drainer destroys the fence on the spot; the last leaver is perhaps still on its way out.
template <class Fence, class Sync>
struct fence_destroyed_by_drainer {
  static constexpr unsigned roles = 2;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("short-lived");
  typename Fence::pass pass = fence->try_enter();
  Fence* const seen = fence.get();

  void role(unsigned i) {
    if (i == 0) {
      pass.release();
    } else {
      seen->drain();
      fence.reset();
    }
  }
  void finish() { check(fence == nullptr, "gone"); }
};

/// Rule 6 for the closer: somebody else drains and destroys while close() has not returned yet.
template <class Fence, class Sync>
struct fence_destroyed_under_closer {
  static constexpr unsigned roles = 2;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("short-lived");
  Fence* const seen = fence.get();

  void role(unsigned i) {
    if (i == 0) {
      seen->close();
    } else if (seen->is_closed()) {
      close_call("close under way");
      seen->drain();
      fence.reset();
    }
  }
  void finish() { fence.reset(); }
};

/// Rule 6 by polling: is_drained() says the same as drain().
template <class Fence, class Sync>
struct fence_destroyed_by_poller {
  static constexpr unsigned roles = 2;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("short-lived");
  typename Fence::pass pass = fence->try_enter();
  Fence* const seen = fence.get();
  typename Sync::template plain<int> work{0};

  void role(unsigned i) {
    if (i == 0) {
      work = 1;
      pass.release();
      return;
    }
    seen->close();
    while (!seen->is_drained()) Sync::yield();
    check(work == 1, "what the leaver did is visible");
    fence.reset();
  }
  void finish() { check(fence == nullptr, "gone"); }
};

/// Rule 9. Nobody is inside any more, but the last leaver has not finished: the destructor waits for it.
template <class Fence, class Sync>
struct fence_destructor_waits {
  static constexpr unsigned roles = 2;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("short-lived");
  typename Fence::pass pass = fence->try_enter();
  Fence* const seen = fence.get();

  void role(unsigned i) {
    if (i == 0) {
      pass.release();
      return;
    }
    seen->close();
    static_cast<void>(seen->wait_drained_for(0s));
    if (seen->inside() == 0) fence.reset();
  }
  void finish() { fence.reset(); }
};

/// Rule 2. A thread once refused stays refused, on whatever stripe it comes back.
template <class Fence, class Sync>
struct fence_refused_stays_refused {
  static constexpr unsigned roles = 3;
  Fence fence{"requests"};
  typename Sync::template atomic<bool> refused{false};

  void role(unsigned i) {
    if (i == 0) {
      check(fence.close(), "the one call that closes");
    } else if (i == 1) {
      if (!fence.try_enter()) refused.store(true, std::memory_order_release);
    } else if (refused.load(std::memory_order_acquire)) {
      close_call("refusal seen");
      check(!fence.try_enter(), "refused once, refused ever after");
    }
  }
  void finish() { check(fence.is_drained(), "drained"); }
};

/// Rule 2. What happens after close() returned is refused.
template <class Fence, class Sync>
struct fence_refused_after_close {
  static constexpr unsigned roles = 2;
  Fence fence{"requests"};
  typename Sync::template atomic<bool> closed{false};

  void role(unsigned i) {
    if (i == 0) {
      fence.close();
      closed.store(true, std::memory_order_release);
    } else if (closed.load(std::memory_order_acquire)) {
      check(!fence.try_enter(), "refused");
    }
  }
  void finish() {}
};

/// Rules 4 and 5. Passes are given back by other threads than took them; the drainer sees what each of them did.
template <class Fence, class Sync>
struct fence_leavers_publish {
  static constexpr unsigned roles = 3;
  Fence fence{"work"};
  typename Fence::pass passes[2] = {fence.try_enter(), fence.try_enter()};
  typename Sync::template plain<int> done[2];

  void role(unsigned i) {
    if (i == 2) {
      fence.drain();
      check(done[0] == 1 && done[1] == 1, "both have finished");
    } else {
      done[i] = 1;
      passes[i].release();
    }
  }
  void finish() { check(fence.is_drained(), "drained"); }
};

/// Rule 3. A clone of a live pass counts, also when the fence is closing.
template <class Fence, class Sync>
struct fence_clone_while_closing {
  static constexpr unsigned roles = 2;
  Fence fence{"work"};
  typename Fence::pass pass = fence.try_enter();
  typename Sync::template plain<int> resource{1};

  void role(unsigned i) {
    if (i == 0) {
      auto second = pass.clone();
      check(static_cast<bool>(second), "clone succeeds");
      pass.release();
      check(resource == 1, "the clone holds the fence");
    } else {
      fence.drain();
      resource = 0;
    }
  }
  void finish() { check(fence.is_drained() && fence.inside() == 0, "drained"); }
};

/// Rule 8. A slow last leaver of one epoch never completes the next one.
template <class Fence, class Sync>
struct fence_reopen_slow_leaver {
  static constexpr unsigned roles = 2;
  Fence fence{"epochs"};
  typename Fence::pass pass = fence.try_enter();

  void role(unsigned i) {
    if (i == 0) {
      pass.release();
      return;
    }
    fence.close();
    if (!fence.reopen() && !fence.cancel_close()) return;
    auto again = fence.try_enter();
    check(static_cast<bool>(again), "open");
    fence.close();
    check(!fence.is_drained(), "not drained while somebody is inside");
    again.release();
    fence.drain();
    check(fence.is_drained() && fence.inside() == 0, "drained");
  }
  void finish() {}
};

/// The same when the fence has been waited for, so that its last leaver has somebody to tell.
template <class Fence, class Sync>
struct fence_reopen_slow_signaller {
  static constexpr unsigned roles = 2;
  Fence fence{"epochs"};
  typename Fence::pass pass = fence.try_enter();

  void role(unsigned i) {
    if (i == 0) {
      pass.release();
      return;
    }
    static_cast<void>(fence.drain_for(0s));
    if (!fence.reopen() && !fence.cancel_close()) return;
    auto again = fence.try_enter();
    check(static_cast<bool>(again), "open");
    static_cast<void>(fence.drain_for(0s));
    check(!fence.is_drained(), "not drained while somebody is inside");
    again.release();
    fence.drain();
    check(fence.is_drained() && fence.inside() == 0, "drained");
  }
  void finish() {}
};

/// The same with somebody who waits in the second epoch: what the slow signaller of the first has to say is not for it.
template <class Fence, class Sync>
struct fence_reopen_slow_signaller_told {
  static constexpr unsigned roles = 2;
  Fence fence{"epochs"};
  typename Fence::pass pass = fence.try_enter();

  void role(unsigned i) {
    if (i == 0) {
      pass.release();
      return;
    }
    static_cast<void>(fence.drain_for(0s));
    if (!fence.reopen()) return;
    auto again = fence.try_enter();
    check(static_cast<bool>(again), "open");
    check(!fence.drain_for(5ms), "not drained while somebody is inside");
    again.release();
    fence.drain();
  }
  void finish() {}
};

/// Rule 6 for a drainer that is told by nobody: somebody else sees the fence drained and destroys it.
template <class Fence, class Sync>
struct fence_destroyed_under_drainer {
  static constexpr unsigned roles = 2;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("short-lived");
  Fence* const seen = fence.get();

  void role(unsigned i) {
    if (i == 0) {
      seen->drain();
    } else if (seen->is_drained()) {
      close_call("seen drained");
      fence.reset();
    }
  }
  void finish() { fence.reset(); }
};

/// Rule 8. Reopened by one thread while another one takes back what it was never given.
template <class Fence, class Sync>
struct fence_reopen_late_entrant {
  static constexpr unsigned roles = 2;
  Fence fence{"epochs"};
  typename Sync::template plain<int> resource{1};

  void role(unsigned i) {
    if (i == 0) {
      if (auto pass = fence.try_enter()) check(resource == 1, "alive inside");
      return;
    }
    fence.drain();
    check(fence.reopen(), "drained, so it opens");
    fence.drain();
    check(fence.inside() == 0, "empty");
    resource = 0;
  }
  void finish() { check(fence.is_drained(), "drained"); }
};

/// What precedes reopen() is visible to whoever is admitted after.
template <class Fence, class Sync>
struct fence_reopen_publishes {
  static constexpr unsigned roles = 2;
  Fence fence{"configuration"};
  typename Sync::template plain<int> version{1};

  void role(unsigned i) {
    if (i == 0) {
      fence.drain();
      version = 2;
      fence.reopen();
    } else if (auto pass = fence.try_enter()) {
      const int seen = version;
      check(seen == 1 || seen == 2, "one of the two");
    }
  }
  void finish() { check(!fence.is_closed() && fence.inside() == 0, "open and empty"); }
};

/// Rule 8. cancel_close() carries the passes over that are still out.
template <class Fence, class Sync>
struct fence_cancel_carries_over {
  static constexpr unsigned roles = 2;
  Fence fence{"epochs"};
  typename Fence::pass pass = fence.try_enter();
  typename Sync::template plain<int> resource{1};

  void role(unsigned i) {
    if (i == 0) {
      check(resource == 1, "alive inside");
      pass.release();
      return;
    }
    fence.close();
    if (fence.cancel_close()) close_call("cancelled");
    fence.drain();
    resource = 0;
  }
  void finish() { check(fence.is_drained() && fence.inside() == 0, "drained"); }
};

/// Rule 7. Two drainers, one leaver: both are told.
template <class Fence, class Sync>
struct fence_two_drainers {
  static constexpr unsigned roles = 3;
  Fence fence{"work"};
  typename Fence::pass pass = fence.try_enter();
  typename Sync::template plain<int> done{0};

  void role(unsigned i) {
    if (i == 0) {
      done = 1;
      pass.release();
    } else {
      fence.drain();
      check(done == 1, "the leaver has finished");
    }
  }
  void finish() {}
};

/// Rule 7. A drainer is told about its own epoch, even if the fence has been reopened before it runs again.
template <class Fence, class Sync>
struct fence_drainer_misses_nothing {
  static constexpr unsigned roles = 2;
  Fence fence{"epochs"};
  typename Fence::pass pass = fence.try_enter();

  void role(unsigned i) {
    if (i == 0) {
      pass.release();
      if (fence.reopen()) close_call("reopened");
    } else {
      const auto result = fence.drain_until(curfew::std_sync::clock::time_point::max());
      check(result.status == curfew::drain_status::drained, "drained, whatever came after");
    }
  }
  void finish() {}
};

/// Two calls to close(): one of them did it.
template <class Fence, class Sync>
struct fence_two_closers {
  static constexpr unsigned roles = 3;
  Fence fence{"requests"};
  bool first[2] = {};

  void role(unsigned i) {
    if (i == 2) {
      static_cast<void>(fence.try_enter());
    } else {
      first[i] = fence.close();
    }
  }
  void finish() {
    check(first[0] != first[1], "exactly one closed it");
    check(fence.is_drained() && fence.inside() == 0, "drained");
  }
};

/// A deadline that passes leaves nothing behind; the fence can be drained, and destroyed, later.
template <class Fence, class Sync>
struct fence_drain_times_out {
  static constexpr unsigned roles = 2;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("slow");
  typename Fence::pass pass = fence->try_enter();
  Fence* const seen = fence.get();

  void role(unsigned i) {
    if (i == 0) {
      pass.release();
      return;
    }
    const auto result = seen->drain_for(5ms);
    if (result) {
      check(result.remaining == 0, "nobody remains");
    } else {
      close_call("timed out");
      check(result.remaining == 1, "one remains");
      seen->drain();
    }
    fence.reset();
  }
  void finish() {}
};

/// Rule 10. The hook runs once, with no lock held and after the last access: here it destroys the fence.
template <class Fence, class Sync>
struct fence_hook_destroys {
  static constexpr unsigned roles = 2;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("hooked");
  typename Fence::pass pass = fence->try_enter();
  curfew::drain_hook hook{&run, this};
  Fence* const seen = fence.get();
  int runs = 0;

  static void run(void* self) noexcept {
    curfew::testing::foreign("drain hook");
    auto& mine = *static_cast<fence_hook_destroys*>(self);
    ++mine.runs;
    mine.fence.reset();
  }
  fence_hook_destroys() { fence->on_drained(hook); }
  void role(unsigned i) {
    if (i == 0) {
      pass.release();
    } else {
      seen->close();
    }
  }
  void finish() { check(runs == 1 && fence == nullptr, "ran once"); }
};

/// cancel() is true only if the hook will never run.
template <class Fence, class Sync>
struct fence_hook_cancelled {
  static constexpr unsigned roles = 2;
  Fence fence{"hooked"};
  typename Fence::pass pass = fence.try_enter();
  curfew::drain_hook hook{&run, this};
  typename Sync::template atomic<int> runs{0};
  bool cancelled = false;

  static void run(void* self) noexcept {
    curfew::testing::foreign("drain hook");
    static_cast<fence_hook_cancelled*>(self)->runs.fetch_add(1, std::memory_order_release);
  }
  fence_hook_cancelled() { fence.on_drained(hook); }
  void role(unsigned i) {
    if (i == 0) {
      fence.close();
      pass.release();
    } else {
      cancelled = fence.cancel(hook);
    }
  }
  void finish() { check(runs.load(std::memory_order_acquire) == (cancelled ? 0 : 1), "either or"); }
};

/// A coroutine that runs at once, is not waited for, and is destroyed by its owner or by its end.
struct fence_waiter {
  struct promise_type {
    fence_waiter get_return_object() noexcept { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
  std::coroutine_handle<> handle;
};

/// Rules 5, 6 and 10. The coroutine sees what the leavers did, and destroys the fence as soon as it goes on, be that in
/// the last release, in close(), or because it had nothing to wait for.
template <class Fence, class Sync>
struct fence_coroutine_destroys {
  static constexpr unsigned roles = 3;
  std::unique_ptr<Fence> fence = std::make_unique<Fence>("awaited");
  typename Fence::pass passes[2] = {fence->try_enter(), fence->try_enter()};
  Fence* const seen = fence.get();
  typename Sync::template plain<int> work{0};
  int resumed = 0;

  fence_waiter waits() {
    co_await seen->drained();
    curfew::testing::foreign("resumed coroutine");
    check(work == 1, "what the leaver did is visible");
    ++resumed;
    fence.reset();
  }
  void role(unsigned i) {
    if (i == 0) {
      work = 1;
      passes[0].release();
    } else if (i == 1) {
      seen->close();
      passes[1].release();
    } else {
      waits();
    }
  }
  void finish() { check(resumed == 1 && fence == nullptr, "went on once"); }
};

/// Destroying the suspended frame ends the wait, whatever the others are doing: here its owner holds a pass meanwhile.
template <class Fence, class Sync>
struct fence_coroutine_abandoned {
  static constexpr unsigned roles = 2;
  Fence fence{"awaited"};
  typename Fence::pass passes[2] = {fence.try_enter(), fence.try_enter()};
  bool resumed = false;

  fence_waiter waits() {
    co_await fence.drained();
    resumed = true;
  }
  void role(unsigned i) {
    if (i == 0) {
      fence.close();
    } else {
      const std::coroutine_handle<> frame = waits().handle;
      check(!resumed, "somebody is inside");
      frame.destroy();
    }
    passes[i].release();
  }
  void finish() { check(!resumed && fence.is_drained(), "drained without it"); }
};

/// Looking at who is inside, while one of them leaves, another enters and a third stays.
template <class Fence, class Sync>
struct fence_listed {
  static constexpr unsigned roles = 3;
  Fence fence{"listed"};
  typename Fence::pass leaves = fence.try_enter(), stays = fence.try_enter();

  void role(unsigned i) {
    if (i == 0) {
      leaves.release();
    } else if (i == 1) {
      static_cast<void>(fence.try_enter());
    } else {
      check(listed() >= 1, "who stays is seen");
    }
  }
  unsigned listed() const {
    unsigned seen = 0;
    fence.for_each_inside([&](const auto& one) {
      curfew::testing::foreign("for_each_inside");
      check(one.thread == Sync::self() || one.where.line() != 0, "a whole record");
      ++seen;
    });
    return seen;
  }
  void finish() {
    check(listed() == 1, "one stayed");
    stays.release();
    check(listed() == 0, "all have left");
  }
};

/// close_all() for fences of a type derived from the real one, too.
template <class Core, class Trace, class... More>
void close_together(curfew::basic_fence<Core, Trace>* first, More*... more) {
  curfew::basic_fence<Core, Trace>* const all[] = {first, more...};
  curfew::basic_fence<Core, Trace>::close_all(all);
}

/// Two fences closed together, one of them listed twice, while somebody is inside, somebody enters, and somebody waits
/// for one and destroys it as soon as it is drained.
template <class Fence, class Sync>
struct fence_closed_together {
  static constexpr unsigned roles = 3;
  std::unique_ptr<Fence> first = std::make_unique<Fence>("first");
  Fence second{"second"};
  Fence* const seen = first.get();
  typename Fence::pass pass = seen->try_enter();
  typename Sync::template plain<int> resource{1};

  void role(unsigned i) {
    if (i == 0) {
      close_together(seen, &second);
      check(second.is_closed() && !second.try_enter(), "closed");
    } else if (i == 1) {
      if (auto other = second.try_enter()) check(resource == 1, "inside");
      pass.release();
    } else {
      second.drain();
      resource = 0;
      if (seen->wait_drained_for(1h)) first.reset();
    }
  }
  void finish() {
    check(second.is_drained() && second.inside() == 0 && (first == nullptr || first->is_drained()), "drained");
  }
};

/// The least of it: who got in before is waited for.
template <class Fence, class Sync>
struct fence_closed_together_entered {
  static constexpr unsigned roles = 2;
  Fence first{"first"}, second{"second"};
  typename Sync::template plain<int> resource{1};

  void role(unsigned i) {
    if (i == 0) {
      close_together(&first, &second);
      first.drain();
      resource = 0;
    } else if (auto pass = first.try_enter()) {
      check(resource == 1, "the resource lives while somebody is inside");
    }
  }
  void finish() { check(first.is_drained() && second.is_drained(), "drained"); }
};

/// cancel_close() and inside() meet a fence that is being closed with another one.
template <class Fence, class Sync>
struct fence_closed_together_cancelled {
  static constexpr unsigned roles = 2;
  Fence first{"first"}, second{"second"};
  typename Fence::pass pass = first.try_enter();

  void role(unsigned i) {
    if (i == 0) {
      close_together(&second, &first);
    } else if (first.is_closed()) {
      close_call("closing seen");
      check(first.cancel_close(), "one is inside, so it can be cancelled");
      check(static_cast<bool>(first.try_enter()), "open again");
    } else if (second.is_closed()) {
      check(second.inside() == 0, "nobody is inside");
    }
  }
  void finish() {
    first.close();
    pass.release();
    check(first.is_drained() && second.is_drained(), "drained");
  }
};

/// A hook of one of a group waits for another one.
template <class Fence, class Sync>
struct fence_closed_together_hooks {
  static constexpr unsigned roles = 2;
  Fence first{"first"}, second{"second"};
  curfew::drain_hook hook{&run, this};
  bool ran = false;

  static void run(void* self) noexcept {
    auto& mine = *static_cast<fence_closed_together_hooks*>(self);
    mine.second.drain();
    mine.ran = true;
  }
  fence_closed_together_hooks() { first.on_drained(hook); }
  void role(unsigned i) {
    if (i == 0) {
      close_together(&first, &second, &first);
    } else {
      static_cast<void>(second.try_enter());
    }
  }
  void finish() { check(ran && first.is_drained() && second.is_drained(), "both, and the hook has run"); }
};

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_FENCE_HPP
