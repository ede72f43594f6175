// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `admission_fence` answers two questions about a piece of work that many threads may be doing: may I still come in,
/// and is everybody out? Entering is one atomic verdict, closing refuses all who come later, draining waits for those
/// who came before. `compact_admission_fence` is the same in 16 bytes, `traced_admission_fence` the same with a list of
/// who is inside. Protocols: docs/design/admission_fence.md.

#ifndef CURFEW_ADMISSION_FENCE_HPP
#define CURFEW_ADMISSION_FENCE_HPP

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <curfew/detail/compact_core.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/drain.hpp>
#include <curfew/detail/drain_awaitable.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/occupants.hpp>
#include <curfew/detail/striped_core.hpp>
#include <curfew/detail/sync.hpp>

CURFEW_BEGIN_NAMESPACE

/// Thrown by enter() when the fence is closed. what() carries the fence's name.
class CURFEW_VISIBLE admission_refused : public std::runtime_error {
 public:
  explicit admission_refused(const char* fence)
      : std::runtime_error(*fence != '\0' ? std::string("admission refused: \"") + fence + "\" is closed"
                                          : std::string("admission refused: the fence is closed")) {}
};

/// A gate with a counter. Use it through its aliases, such as `admission_fence`.
///
///     constinit curfew::admission_fence requests{"requests"};
///     if (auto pass = requests.try_enter()) serve();          // any thread
///     if (!requests.drain_for(5s)) log("still inside");       // shutdown: refuse newcomers, wait for the others
///
/// *When not to use it.* To make newcomers wait instead of turning them away: use a reader-writer lock. To protect data
/// between the threads inside: it excludes nobody who was admitted. For a number of tasks known in advance: std::latch.
///
/// *Thread safety.* Every member may be called from any thread at any time, also from inside and from hooks, except
/// the constructor, the destructor and reset_after_fork_in_child(). A thread that waits in drain() while it holds a
/// pass itself waits for itself. try_enter(), clone(), closing() and a release that is not the last one after a closing
/// never lock and may be used in signal handlers, except those of a traced fence.
///
/// *Memory ordering.* For a thread X that releases a pass and a thread Y that is told "drained" (by drain*, by
/// wait_drained_*, by a hook, in a coroutine, or by is_drained()): whatever X did before the release is visible to Y.
/// Whatever preceded the construction, reopen() or cancel_close() that opened the fence is visible to every thread it
/// admits, and whatever preceded close() to every thread it refuses.
///
/// *Destruction* is legal as soon as somebody has been told "drained", on the spot and while the call that released the
/// last pass, or the call that closed it, has not returned yet: neither touches the fence again. It is also legal
/// whenever nobody is inside and nobody waits. With somebody inside the destructor prints name and count (of a traced
/// fence also the sites), and terminates. Hooks that are still registered then never run, coroutines that still wait
/// never go on.
///
/// *Exceptions.* enter() throws admission_refused (or std::bad_alloc, for want of memory for its text), run() and
/// for_each_inside() what their function throws, describe_inside() std::bad_alloc; nothing else throws.
///
/// *Cost.* admission_fence: about 1.1 KiB. Where the process has restartable sequences (Linux on x86-64, glibc 2.35,
/// outside sanitizers) a pass costs two plain additions on a cache line of the CPU, and close() one membarrier;
/// elsewhere, or with CURFEW_FORCE_PORTABLE or CURFEW_FENCE_BACKEND=portable in the environment, a pass costs two
/// atomic additions on a line the thread rarely shares. The first entry of a process looks at the environment and asks
/// the kernel. compact_admission_fence: 16 bytes; a pass costs two read-modify-writes on one line that all share;
/// waiting for one that lives in several shared objects which do not share symbols is not supported. No heap, no
/// thread, no registration of threads. An entry that is refused after close() has returned stores nothing.
///
/// *Source.* The kernel's percpu_ref, with restartable sequences and an expedited membarrier in the place of disabled
/// preemption and a grace period; striped run-down protection with the closed bit inside each stripe.
template <class Core, class Trace = detail::untraced>
class basic_fence : Trace {
  static constexpr const char* kind = Trace::lists ? "traced_admission_fence" : Core::kind;

 public:
  /// Deadlines are of this clock: the steady one.
  using time_point = typename Core::time_point;
  using site = typename Trace::site;  // where a pass was taken: a source_location, or nothing
  class [[nodiscard("curfew: the pass is the admission")]] pass;

  /// Without a name. Not explicit, so that `= {}` makes an array of fences, or an aggregate with one among its members.
  constexpr basic_fence() noexcept : core_("") {}

  /// \p name appears in messages; it is not copied and must outlive the fence.
  constexpr explicit basic_fence(const char* name) noexcept : core_(name) {}
  basic_fence(const basic_fence&) = delete;
  basic_fence& operator=(const basic_fence&) = delete;
  ~basic_fence() {
    if constexpr (Trace::lists) {
      if (const std::uint64_t count = core_.inside(); count != 0) fail_listing(count);
    }
  }

  /// An empty pass when closed. Never blocks; a pass already held does not help, see pass::clone().
  [[nodiscard("curfew: the pass is the admission")]] pass try_enter(site where = site::current()) noexcept {
    return pass(core_.try_enter() ? this : nullptr, where);
  }

  /// Throws admission_refused when closed.
  [[nodiscard("curfew: the pass is the admission")]] pass enter(site where = site::current()) {
    if (!core_.try_enter()) refuse();
    return pass(this, where);
  }

  /// Calls \p f inside; false, and no call, when closed. The pass is given back when f returns or throws.
  template <class F>
  bool run(F&& f, site where = site::current()) {
    const pass inside = try_enter(where);
    if (!inside) return false;
    static_cast<void>(std::forward<F>(f)());
    return true;
  }

  /// Refuses every entry that happens after this returned. True for the one call that closed it.
  bool close() noexcept { return core_.close(); }

  /// Closes each as close() does; where that restarts the sequences of all threads, once for up to 64 fences. Hooks
  /// and coroutines that come due run when all of them are closed; of more than 64 fences, those of each 64 before the
  /// next 64 are closed, so that they must not wait for these. The pointers must not be null.
  static void close_all(std::span<basic_fence* const> fences) noexcept {
    for (basic_fence* fence : fences) {
      if (fence == nullptr) detail::fail("close_all: null pointer to a fence");
    }
    Core::close_group(fences.size(), [fences](std::size_t i) noexcept -> Core& { return fences[i]->core_; });
  }

  /// Closes, then waits until nobody is inside. Returns early only if cancel_close() admits again meanwhile; where that
  /// can happen use drain_for(), which tells.
  void drain() noexcept { static_cast<void>(core_.wait(time_point::max(), true)); }

  /// Closes, then waits at most \p span; a span that is not positive closes and looks once. Every one of any number of
  /// callers learns about the closing it saw, even if the fence has been reopened before it gets to run again.
  template <class Rep, class Period>
  drain_result drain_for(std::chrono::duration<Rep, Period> span) noexcept {
    return core_.wait(detail::deadline_after<typename Core::clock>(span), true);
  }
  drain_result drain_until(time_point deadline) noexcept { return core_.wait(deadline, true); }

  /// Waits until the fence is closed and empty, but leaves the closing to somebody else.
  template <class Rep, class Period>
  drain_result wait_drained_for(std::chrono::duration<Rep, Period> span) noexcept {
    return core_.wait(detail::deadline_after<typename Core::clock>(span), false);
  }
  drain_result wait_drained_until(time_point deadline) noexcept { return core_.wait(deadline, false); }

  /// From drained to open, which begins a new epoch. False, and no effect, unless is_drained().
  bool reopen() noexcept { return core_.reopen(); }

  /// From closed to open while somebody is inside; their passes stay counted. Threads that wait for this epoch get
  /// `reopened`, hooks stay. False, and no effect, when open or when the last one has left.
  bool cancel_close() noexcept { return core_.cancel_close(); }

  /// Whether entries are refused now.
  [[nodiscard("curfew: only asks, close() closes")]] bool is_closed() const noexcept { return core_.is_closed(); }

  /// Closed, nobody inside, and the last leaver is done with the fence.
  [[nodiscard("curfew: only asks, drain() waits")]] bool is_drained() const noexcept { return core_.is_drained(); }

  /// Passes out. Exact when closed; an estimate while threads enter and leave.
  std::uint64_t inside() const noexcept { return core_.inside(); }

  /// What the constructor was given.
  const char* name() const noexcept { return core_.name(); }

  /// Calls \p f with the occupant of each pass out, at any time and with no lock held: f may enter and release. Who
  /// stays inside meanwhile is seen once, who comes or goes may be missed; a pass for whose record there was no memory
  /// is not seen. Whatever f throws passes through.
  template <class F>
  requires(Trace::lists) void for_each_inside(F&& f) const { Trace::for_each(f); }

  /// For logs, say when a drain has timed out: name and count, and for a traced fence a line for each pass, with its
  /// site, the thread that took it and its age. May throw std::bad_alloc.
  std::string describe_inside() const {
    std::string text = (*name() != '\0' ? name() : "(no name)") + (": " + std::to_string(inside())) + " inside\n";
    if constexpr (Trace::lists) {
      for_each_inside([&text](const auto& one) {
        char line[512];
        Trace::describe(one, line, sizeof line);
        ((text += "  ") += line) += '\n';
      });
    }
    return text;
  }

  /// Registers \p hook for the next time the fence is closed and empty; it may come before close(). When that is so
  /// already it runs right here and the result is false. Registering one twice terminates.
  bool on_drained(drain_hook& hook) noexcept { return core_.on_drained(hook); }

  /// True when \p hook was registered here and will now never run. False says that it has run, is running or is about
  /// to run (or was never registered): it must then not be destroyed before it has itself told that it has run.
  bool cancel(drain_hook& hook) noexcept { return core_.cancel(hook); }

  /// `co_await fence.drained()` goes on when the fence is next closed and empty, at once if it is now; it closes
  /// nothing. What was said about hooks holds: it may be awaited before close(), stays across a cancel_close(), goes on
  /// even if the fence is reopened before it gets to run, and the coroutine may destroy the fence, and itself, as soon
  /// as it goes on. Destroying the suspended coroutine ends the wait; that must not be done while it may be about to go
  /// on, so by somebody who holds a pass, or before anybody closes. Nothing is allocated.
  ///
  /// It goes on in the release, close() or drain*() that emptied the fence, with no lock held. With \p resume, which is
  /// called there with the coroutine's handle instead and must not throw, it goes on wherever that sends it; as it is
  /// moved from by then, what this returned must not be awaited again.
  [[nodiscard("curfew: nothing waits before it is awaited")]] auto drained() noexcept {
    return drained(detail::resume_here{});
  }
  template <class Resume>
  requires std::is_nothrow_invocable_v<Resume&, std::coroutine_handle<>> && std::is_nothrow_move_constructible_v<Resume>
  [[nodiscard("curfew: nothing waits before it is awaited")]] auto drained(Resume resume) noexcept {
    return detail::drain_awaitable<Core, Resume>(core_, std::move(resume));
  }

  /// To be called in a forked child, for each fence, before anything else is done with fences and before the child has
  /// a second thread: forgets the threads that the child does not have, and every hook. \p held_by_caller is the number
  /// of passes that live on in the forking thread. Without it a child may only `_exit` or exec.
  void reset_after_fork_in_child(std::uint64_t held_by_caller) noexcept {
    if constexpr (Trace::lists) Trace::reset_after_fork();
    core_.reset_after_fork_in_child(held_by_caller);
  }

 private:
  [[noreturn]] CURFEW_COLD void refuse() const { CURFEW_THROW(admission_refused(name())); }

  [[noreturn]] CURFEW_COLD void fail_listing(std::uint64_t count) const noexcept {
    detail::report_occupied(kind, name(), count);
    for_each_inside([](const auto& one) noexcept {
      char line[512];
      Trace::describe(one, line, sizeof line);
      std::fprintf(stderr, "  %s\n", line);
    });
    std::terminate();
  }

  Core core_;
};

/// The right to be inside, given back by the destructor. Movable, from any thread; moved-from is empty. One pass object
/// must not be used by two threads at once. Must not outlive its fence (which sees to it).
template <class Core, class Trace>
class basic_fence<Core, Trace>::pass : Trace::ticket {
  using ticket = typename Trace::ticket;

 public:
  pass() noexcept = default;
  pass(pass&& other) noexcept : ticket(other), fence_(std::exchange(other.fence_, nullptr)) {}
  pass& operator=(pass&& other) noexcept {
    pass taken(std::move(other));  // before the old one goes, for what is assigned to itself
    std::swap(static_cast<ticket&>(*this), static_cast<ticket&>(taken));
    std::swap(fence_, taken.fence_);
    return *this;
  }
  // Not made empty first, as release() does for a hook that looks at the pass while it runs in there: nobody may use,
  // or end again, an object whose destructor has begun, and leaving does not look at it either.
  ~pass() {
    if (fence_ != nullptr) give_back(fence_);
  }

  /// One more for the same fence. Succeeds also when that is closed: it fans out work that was already admitted. An
  /// empty pass makes an empty one.
  pass clone(site where = site::current()) const noexcept {
    if (fence_ != nullptr) fence_->core_.clone();
    return pass(fence_, where);
  }

  /// Gives the pass back; nothing for an empty one. The fence may be gone when this returns, and this pass with it.
  void release() noexcept {
    if (basic_fence* fence = std::exchange(fence_, nullptr); fence != nullptr) give_back(fence);
  }

  /// Whether the fence is closed, so that idle insiders can leave early. False for an empty pass.
  bool closing() const noexcept { return fence_ != nullptr && fence_->core_.is_closed(); }

  explicit operator bool() const noexcept { return fence_ != nullptr; }

 private:
  friend class basic_fence;
  pass(basic_fence* fence, [[maybe_unused]] site where) noexcept : fence_(fence) {
    if constexpr (Trace::lists) {
      Core::sync::here("fence.traced.counted");
      if (fence != nullptr) fence->note(*this, where);
    }
  }

  // The last that is done with this pass.
  void give_back(basic_fence* fence) noexcept {
    if constexpr (Trace::lists) fence->forget(*this);
    fence->core_.leave();
  }

  basic_fence* fence_ = nullptr;
};

/// admission_fence over another seam, for tests.
template <class Sync = std_sync>
using basic_admission_fence = basic_fence<detail::striped_core<Sync>>;

/// compact_admission_fence over another seam.
template <class Sync = std_sync>
using basic_compact_admission_fence = basic_fence<detail::compact_core<Sync>>;

/// traced_admission_fence over another seam.
template <class Sync = std_sync>
using basic_traced_admission_fence = basic_fence<detail::striped_core<Sync>, detail::occupants<Sync>>;

/// For the fences of a program: few, entered often and from many threads.
using admission_fence = basic_admission_fence<>;

/// For one fence per object and millions of objects.
using compact_admission_fence = basic_compact_admission_fence<>;

/// An admission_fence that knows who is inside: for_each_inside(), and the sites in describe_inside() and in the
/// message of a destructor that finds somebody. Costs a lock that few threads share and 48 bytes of heap for each pass,
/// kept until the fence goes; none of it is for signal handlers. For the fence whose drain hangs, not for the one that
/// is hot.
using traced_admission_fence = basic_traced_admission_fence<>;

static_assert(sizeof(compact_admission_fence) == 16 || sizeof(void*) != 8, "curfew: one word and a name");
static_assert(sizeof(admission_fence) <= 1536 || detail::cache_line != 64, "curfew: at most 1.5 KiB");
static_assert(sizeof(traced_admission_fence::pass) == 2 * sizeof(void*));
static_assert(sizeof(admission_fence::pass) == sizeof(void*) && sizeof(compact_admission_fence::pass) == sizeof(void*));

CURFEW_END_NAMESPACE

#endif  // CURFEW_ADMISSION_FENCE_HPP
