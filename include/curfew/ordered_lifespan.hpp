// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// `ordered_lifespan` owns a process's start and stop: stages start in the order of what they need, and on SIGTERM,
/// SIGINT or a call they are closed, drained and stopped in exactly the reverse order, each within its slice of one
/// clock, whatever the others do. Design: docs/design/ordered_lifespan.md.

#ifndef CURFEW_ORDERED_LIFESPAN_HPP
#define CURFEW_ORDERED_LIFESPAN_HPP

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <curfew/admission_fence.hpp>
#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_core.hpp>
#include <curfew/detail/lifespan_exit.hpp>
#include <curfew/detail/lifespan_graph.hpp>
#include <curfew/detail/lifespan_report.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/stop_token.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/signals.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// A fence behind the interface that the engine knows. Steps of a wait: idle -> armed -> rung -> left; the last one is
/// the last thing that the leaver of the fence does here.
template <class Fence, class Sync>
class fence_port_of final : public fence_port {
 public:
  explicit fence_port_of(Fence& fence) noexcept : fence_(fence) {}

  void close() noexcept override { fence_.close(); }

  void arm(void (*ring)(void*) noexcept, void* arg) noexcept override {
    ring_ = ring;
    arg_ = arg;
    step_.store(step::armed, std::memory_order_seq_cst);
    hook_.emplace(&fence_port_of::on_drained, this);
    fence_.on_drained(*hook_);
  }
  bool drained() noexcept override {
    if (step_.load(std::memory_order_seq_cst) == step::armed) return false;
    while (step_.load(std::memory_order_seq_cst) != step::left) Sync::yield();
    return true;
  }
  bool disarm() noexcept override {
    if (step_.load(std::memory_order_seq_cst) == step::armed && fence_.cancel(*hook_)) return false;
    while (step_.load(std::memory_order_seq_cst) != step::left) Sync::yield();
    return true;
  }
  std::string occupants() const override {
    return std::string("fence '") + fence_.name() + "' with " + std::to_string(fence_.inside()) + " inside";
  }

 private:
  enum class step : unsigned char { idle, armed, rung, left };

  static void on_drained(void* self) noexcept {
    auto& port = *static_cast<fence_port_of*>(self);
    port.step_.store(step::rung, std::memory_order_seq_cst);
    port.ring_(port.arg_);
    port.step_.store(step::left, std::memory_order_seq_cst);
  }

  Fence& fence_;
  std::optional<drain_hook> hook_;
  void (*ring_)(void*) noexcept = nullptr;
  void* arg_ = nullptr;
  typename Sync::template atomic<step> step_{step::idle};
};

/// A hook takes nothing or a `const stage_context&`, need not be copyable, and its result is ignored unless it is a
/// hook_complaint.
template <class F>
std::function<hook_complaint(const stage_context&)> make_hook(F&& given) {
  using function = std::decay_t<F>;
  constexpr bool takes_context = std::is_invocable_v<function&, const stage_context&>;
  static_assert(takes_context || std::is_invocable_v<function&>,
                "curfew: a hook takes no argument or a const stage_context&");
  const auto call = [](function& f, [[maybe_unused]] const stage_context& context) -> hook_complaint {
    if constexpr (takes_context) {
      // Exactly that type: a user's result may convert to whatever it is asked for.
      if constexpr (std::is_same_v<std::invoke_result_t<function&, const stage_context&>, hook_complaint>) {
        return f(context);
      } else {
        static_cast<void>(f(context));
      }
    } else {
      static_cast<void>(f());
    }
    return {};
  };
  // Shared whatever it is: a type may say that it can be copied and then not compile, as one with a vector of
  // unique_ptr does.
  return [f = std::make_shared<function>(std::forward<F>(given)), call](const stage_context& context) {
    return call(*f, context);
  };
}

/// An empty std::function or a null function pointer.
template <class F>
bool is_empty_hook(const F& given) noexcept {
  if constexpr (requires {
                  { given == nullptr } -> std::convertible_to<bool>;
                }) {
    return given == nullptr;
  } else {
    return false;
  }
}

}  // namespace detail

/// Starts, runs and stops a process, or a part of one, in order.
///
///     int main() {
///       curfew::ordered_lifespan life;                                      // owns SIGTERM and SIGINT from here on
///       life.add("db").start([&] { db.open(); }).stop([&] { db.close(); });
///       life.add("http").after("db").fence(requests).start([&] { http.listen(); }).stop([&] { http.join(); });
///       return life.run();
///     }
///
/// A stop passes three barriers: every stage is *closed*, then every stage is *drained*, then every stage is *stopped*,
/// each time in exact reverse of the start order. A hook that throws, is late or hangs ends only itself.
///
/// *When not to use it.* For objects whose order the language already gives (members, locals). For supervision: it
/// never restarts anything. It does not touch SIGPIPE, SIGCHLD or fatal signals. One per process should own signals;
/// parts of a program use lifespans with empty `owned_signals`, alone or as children.
///
/// *Thread safety.* Everything may be called by any thread at any time, also by hooks and observers, except add(),
/// add_child() and a stage's own functions (before start() only), the constructor, the destructor, and reset() against
/// anything that reads the report. No lock is held while user code runs. Signal handlers may call shutdown_owned()
/// only.
///
/// *Memory ordering.* What a hook did is visible to every hook that begins after it has ended, to whoever start() or
/// stop() return to, and to whoever reads `stopped` from state(). What precedes request_stop() is visible to whoever
/// wait() returns to because of it.
///
/// *Threads.* None while running (one while a reload is). Each hook that is not on_controller() gets a thread of its
/// own, which is joined when it ends (its thread_local destructors count as its own time), or never when it is
/// abandoned. The controller, which is the thread in start() or stop(), watches it. Where no thread can be made the
/// hook runs on the controller, unbounded, and the report says so.
///
/// *Destruction* stops what still runs, with the same bounds, then gives signals back: every disposition that is still
/// ours becomes bit for bit what it was. Not from a hook or an observer, nor, of a static one, by an exit() in those:
/// that terminates with the stage's name. A child that its parent gave up may be destroyed once the parent has stopped;
/// it does not wait for what hangs. In a forked child the destructor does nothing at all. Stages must not refer to
/// fences that are destroyed before the stop.
///
/// *Exceptions.* The constructor: ownership_conflict, std::invalid_argument (not a signal), std::system_error, and
/// std::bad_alloc, with nothing taken. start() and run(): bad_graph and std::bad_alloc before any hook, state
/// unchanged. Exceptions of hooks are in the report and nowhere else; a hook must not end its thread in any other way
/// (pthread_exit). stop() does not throw: all it needs was made by start().
///
/// *Cost.* Idle and running: a descriptor (two where there is no eventfd). A hook costs a thread's creation, about
/// 20 us; on the controller it costs that of a thread that watches.
///
/// *Source.* Signals by counters and a self-pipe; budgets after the shutdown of service managers, with a reserve so
/// that one hang cannot starve the others.
template <class Sync = std_sync>
class basic_ordered_lifespan {
 public:
  class stage;

  /// Owns `options.owned_signals`, and SIGHUP when `options.on_hangup` is set, from here to the destructor.
  explicit basic_ordered_lifespan(lifespan_options options = {})
      : core_(std::make_shared<engine>(std::move(options))) {}
  basic_ordered_lifespan(const basic_ordered_lifespan&) = delete;
  basic_ordered_lifespan& operator=(const basic_ordered_lifespan&) = delete;

  ~basic_ordered_lifespan() {
    if (core_->in_forked_child()) {
      auto& core = *core_;
      detail::leak(core, std::move(core_));
      return;
    }
    if (const auto* frame = core_->own_frame(); frame != nullptr) {
      detail::fail("ordered_lifespan destroyed by its own stage:", frame->what());
    }
    core_->stop(stop_cause::destructor);
    core_->orphan_children();
    core_->hand_back();
    core_->forget_hooks();
    if (const int signo = core_->signal_to_reraise(); signo != 0 && !left_) detail::leave_by_signal<Sync>(signo);
  }

  /// Declares a stage; the reference stays valid. Names must differ; start() checks that.
  stage& add(std::string name) { return handles_.emplace_back(stage(*core_, core_->add(std::move(name)))); }

  /// A stage that is a whole lifespan, idle and without signals of its own: its barriers run inside those of this one,
  /// and within their slices. It must live until this one has stopped.
  stage& add_child(std::string name, basic_ordered_lifespan& child) {
    const std::shared_ptr<engine> core = child.core_;
    core_->adopt(core);
    stage& added = [&]() -> stage& {
      CURFEW_TRY {
        return add(std::move(name));
      }
      CURFEW_CATCH_ALL {
        core_->disown(core);
        CURFEW_RETHROW;
      }
    }();
    const auto under = [core](lifespan_phase barrier) {
      return [core, barrier](const stage_context& above) { return core->stop_under(barrier, above); };
    };
    added.node_->given_up = [core] { core->give_up(); };
    return added.start([core](const stage_context& above) { return core->start_under(above); })
        .close(under(lifespan_phase::close))
        .drain(under(lifespan_phase::drain))
        .stop(under(lifespan_phase::stop));
  }

  /// Starts all stages, unless a stop was requested. True when everything runs; false when it failed or was called off,
  /// and is rolled back already. When somebody else is in start() or stop(), waits for that. From a hook: does nothing.
  bool start() { return core_->start(); }

  /// Returns when a stop has been requested, with the cause of the first request; before start() too.
  stop_cause wait() { return core_->wait(); }

  /// Requests a stop and carries it out, or waits until whoever does so is done. From a hook, an observer or a stop
  /// callback of token() it only requests; of the report, which is being written then, nothing but `cause` may be read.
  /// The same for a hook of a parent, or of another child of that parent, while the parent drives this one: its end
  /// comes after that hook's. For a child that its parent gave up while something in it hangs it returns a report that
  /// says so.
  const lifespan_report& stop(stop_cause cause = stop_cause::requested) noexcept { return core_->stop(cause); }

  /// start(), wait(), stop(). With an abandoned hook it does not return: it flushes stdio and leaves by `_Exit`,
  /// because static destructors must not run under that hook's feet. With `reraise` it dies of the signal. From a hook
  /// or an observer: does nothing, EXIT_FAILURE.
  int run() {
    if (core_->own_frame() != nullptr) return EXIT_FAILURE;
    if (core_->start()) {
      core_->wait(true);
      core_->stop(stop_cause::requested);
    }
    if (core_->in_forked_child()) return EXIT_FAILURE;
    const int code = core_->report().exit_code;
    if (core_->abandoned_anything()) detail::leave_at_once<Sync>(code);
    if (const int signo = core_->signal_to_reraise(); signo != 0) {
      left_ = true;
      core_->hand_back();
      detail::leave_by_signal<Sync>(signo);
    }
    return code;
  }

  /// Makes a stop happen, in any state; before start() nothing will start. True for the first request. The first
  /// \p exit_code given is the exit code, also when it comes with a later request. Stop callbacks of token() run here.
  bool request_stop(stop_cause cause = stop_cause::requested, std::optional<int> exit_code = {}) noexcept {
    return core_->request_stop(cause, exit_code);
  }

  /// One rung up at once: requests, hurries, then leaves the process by `_Exit(128 + SIGTERM)`. False once stopped.
  bool escalate() noexcept { return core_->escalate(); }

  /// A stage has failed while running: recorded, requests a stop, exit code 1.
  void fail_stage(std::string_view name, std::exception_ptr error) noexcept {
    core_->fail_stage(name, std::move(error));
  }

  /// Fires at the first stop request. When a signal asked, that is when somebody is in start(), wait(), poll_signals()
  /// or stop() to notice. Its callbacks must not block.
  std::stop_token token() const noexcept { return core_->token(); }
  /// Where it stands; see lifespan_state for what leads where.
  lifespan_state state() const noexcept { return core_->state(); }

  /// Running, and nobody has asked for a stop. False before the first close hook begins.
  bool ready() const noexcept { return core_->state() == lifespan_state::running && core_->request().rung == 0; }
  /// From the end of the start to the begin of the closing.
  bool accepting() const noexcept {
    const auto now = core_->state();
    return now == lifespan_state::running || now == lifespan_state::announcing;
  }

  /// For an event loop of one's own: when this descriptor is readable call poll_signals(), then look at token(). Do not
  /// read from it. -1 where there are no descriptors.
  int native_handle() const noexcept { return core_->native_handle(); }
  /// What wait() does about what has come, without waiting: fires token(), reloads. Call stop() when token() has fired.
  void poll_signals() { core_->poll_signals(); }

  /// \p observer is told from now on. It must be quick: the controller waits for it. Its exceptions are counted. An
  /// empty function is refused with std::invalid_argument.
  void observe(std::function<void(const lifespan_event&)> observer) { core_->observe(std::move(observer)); }

  /// Counts \p signo \p times times as its handler would, owned or not, without the kernel.
  void simulate_signal(int signo, unsigned times = 1) noexcept { core_->simulate(signo, times); }

  /// Complete once stopped; empty before.
  const lifespan_report& report() const { return core_->report(); }

  /// From stopped to idle, for another start. False, and still stopped, when a hook was abandoned, and when not
  /// stopped. A stop signal counted since the stop counts as a request again. Fences stay closed.
  bool reset() { return core_->reset(); }

 private:
  using engine = detail::lifespan_core<Sync>;

  std::shared_ptr<engine> core_;
  std::deque<stage> handles_;
  bool left_ = false;
};

/// One stage, declared piece by piece. Hooks may be left out; each is called at most once per run. Setting a hook again
/// replaces it.
template <class Sync>
class basic_ordered_lifespan<Sync>::stage {
 public:
  /// Up. Returning normally means started; throwing, or being abandoned, fails the start of the whole lifespan.
  template <class F>
  stage& start(F&& hook) {
    return set(lifespan_phase::start, std::forward<F>(hook));
  }
  /// Refuse what is new. The stage's fences are closed just before.
  template <class F>
  stage& close(F&& hook) {
    return set(lifespan_phase::close, std::forward<F>(hook));
  }
  /// Finish what was admitted. The stage's fences are waited for afterwards, in the same slice.
  template <class F>
  stage& drain(F&& hook) {
    return set(lifespan_phase::drain, std::forward<F>(hook));
  }
  /// Down.
  template <class F>
  stage& stop(F&& hook) {
    return set(lifespan_phase::stop, std::forward<F>(hook));
  }
  /// After a start hook that threw, or was abandoned and has ended by then: undo the half of it.
  template <class F>
  stage& cleanup_partial(F&& hook) {
    return set(lifespan_phase::cleanup, std::forward<F>(hook));
  }

  /// Starts after, and so stops before, the stages with these names, which may be declared later.
  template <class... Names>
  stage& after(Names&&... names) {
    idle();
    (node_->after.emplace_back(std::forward<Names>(names)), ...);
    return *this;
  }
  /// The slice of its hooks in \p phase, in place of the one in the options.
  template <class Rep, class Period>
  stage& budget(lifespan_phase phase, std::chrono::duration<Rep, Period> span) {
    idle();
    node_->budgets[detail::index_of(phase)] = detail::clamped(span);
    return *this;
  }
  /// Runs this stage's hooks on the thread in start() or stop(): for code bound to a thread. It can be named when it
  /// hangs, and its token fires, but it cannot be abandoned.
  stage& on_controller() {
    idle();
    node_->on_controller = true;
    return *this;
  }
  /// When every stage of a layer says so, their hooks run at the same time.
  stage& parallel() {
    idle();
    node_->parallel = true;
    return *this;
  }
  /// Closed in the close barrier, drained in the drain barrier; any kind of fence. It must outlive the stop.
  template <class Fence>
  stage& fence(Fence& admission) {
    idle();
    node_->fences.push_back(std::make_unique<detail::fence_port_of<Fence, Sync>>(admission));
    return *this;
  }

 private:
  friend class basic_ordered_lifespan;
  stage(engine& core, std::shared_ptr<detail::stage_node> node) noexcept : core_(&core), node_(std::move(node)) {}

  void idle() const {
    if (core_->state() != lifespan_state::idle) {
      CURFEW_THROW(std::logic_error("stage '" + node_->name + "' can be changed only before the start"));
    }
  }
  template <class F>
  stage& set(lifespan_phase phase, F&& hook) {
    idle();
    if (detail::is_empty_hook<std::decay_t<F>>(hook)) {
      CURFEW_THROW(bad_graph("stage '" + node_->name + "': the " + to_string(phase) + " hook is an empty function"));
    }
    node_->hooks[detail::index_of(phase)] = detail::make_hook(std::forward<F>(hook));
    return *this;
  }

  engine* core_;
  std::shared_ptr<detail::stage_node> node_;
};

/// The one to use.
using ordered_lifespan = basic_ordered_lifespan<>;

CURFEW_END_NAMESPACE

#endif  // CURFEW_ORDERED_LIFESPAN_HPP
