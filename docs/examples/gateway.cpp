// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A small gateway that survives a real SIGTERM. Runs arrive; each gets a sandbox and works in it: a child process by
// default, in which it executes a real command, or a container, or one that a service rents out. One lifespan owns the
// signals, a fence counts the runs, a singleton holds the sandbox provider. When it is told to stop it refuses new
// runs, lets the running ones finish, and only then takes the sandboxes away.
//
// Every line it prints is led by the milliseconds since its start. All times are rounded up: then the sum of a time and
// a duration never looks earlier than what happened after both.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
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
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/e2b.hpp>

#include "gateway_sandboxes.hpp"

namespace {

using namespace std::chrono_literals;
using curfew::lifespan_phase;
using gateway_example::workshop;
using milliseconds = std::chrono::milliseconds;
// With the first, runs beyond `--replicas` go over a soft cap; with the second they wait for one of others to end.
using soft_cap = curfew::sandbox::aio_provider<workshop>;
using hard_cap = curfew::sandbox::e2b_provider<workshop>;

// ---- what was asked for

struct settings {
  int runs = 6;
  int run_ms = 400;
  int replicas = 3;
  int arrive_ms = 50;
  int hang_run = 0;  // 0: none
  int fork_run = 0;  // 0: none
  gateway_example::workshop_choice sandboxes = {};
};

constexpr const char* usage =
    "usage: gateway [--runs N=6] [--run-ms MS=400] [--replicas N=3] [--arrive-ms MS=50] [--hang-run K]"
    " [--fork-run K]"
    " [--provider aio|e2b] [--backend process|docker|rest] [--docker COMMAND] [--url URL]\n";

std::optional<settings> parse(const std::vector<std::string_view>& words) {
  settings result;
  const struct {
    std::string_view flag;
    int* value;
    int least;
  } known[] = {{"--runs", &result.runs, 1},         {"--run-ms", &result.run_ms, 0},
               {"--replicas", &result.replicas, 1}, {"--arrive-ms", &result.arrive_ms, 0},
               {"--hang-run", &result.hang_run, 1}, {"--fork-run", &result.fork_run, 1}};
  std::string provider = "aio";
  auto& [backend, docker, url, e2b] = result.sandboxes;
  const struct {
    std::string_view flag;
    std::string* value;
  } names[] = {{"--provider", &provider}, {"--backend", &backend}, {"--docker", &docker}, {"--url", &url}};
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto named = std::find_if(std::begin(names), std::end(names), [&](auto& n) { return n.flag == words[i]; });
    if (named != std::end(names) && i + 1 < words.size()) {
      *named->value = words[i + 1];
      continue;
    }
    const auto found = std::find_if(std::begin(known), std::end(known), [&](auto& k) { return k.flag == words[i]; });
    if (found == std::end(known) || i + 1 == words.size()) return std::nullopt;
    const std::string_view text = words[i + 1];
    constexpr int most = 1'000'000;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *found->value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    if (*found->value < found->least || *found->value > most) return std::nullopt;
  }
  e2b = provider == "e2b";
  const bool rest = backend == "rest";
  if (result.hang_run > result.runs || result.fork_run > result.runs || (!e2b && provider != "aio") ||
      rest == url.empty() || docker.empty() || (!rest && backend != "process" && backend != "docker"))
    return std::nullopt;
  return result;
}

// ---- what is said

class journal {
 public:
  static long long rounded_up(std::chrono::nanoseconds span) { return std::chrono::ceil<milliseconds>(span).count(); }

  void say(const std::string& text) {
    const std::lock_guard lock(mutex_);
    const auto since = rounded_up(std::chrono::steady_clock::now() - start_);
    std::printf("+%lld %s\n", since, text.c_str());
    std::fflush(stdout);
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
};

std::string run_line(int number, const std::string& what) {
  return "run " + std::to_string(number) + " " + what;
}

// ---- the sandboxes

// The backend outlives the provider, so that runs can work through it.
std::shared_ptr<workshop> backend;
settings config;

template <class Provider, class Options>
struct provider_traits : curfew::singleton_traits<Provider> {
  static std::unique_ptr<Provider> make() {
    Options options;
    options.replicas = static_cast<std::size_t>(config.replicas);
    options.name = "sandboxes";
    return std::make_unique<Provider>(backend, options);
  }
};

template <class Provider, class Options>
constinit curfew::guarded_singleton<Provider, provider_traits<Provider, Options>> providers{"sandboxes"};

// ---- the runs

/// Threads for runs: as many as there are runs at once, each kept for the next one.
class run_pool {
 public:
  using work = std::function<void(int number, const std::stop_token& token)>;

  explicit run_pool(work each) : each_(std::move(each)) {}
  ~run_pool() { stop(); }

  /// Takes the run and its pass, which is released when the run has ended. Throws when no thread is left to be had.
  void add(int number, curfew::admission_fence::pass pass) {
    const std::lock_guard lock(mutex_);
    if (idle_ <= waiting_.size()) threads_.emplace_back([this] { serve(); });
    waiting_.push_back({number, std::move(pass)});
    more_.notify_one();
  }

  /// Fires the tokens of all runs and waits for their threads.
  void stop() {
    token_.request_stop();
    std::vector<std::thread> threads;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      threads.swap(threads_);
    }
    more_.notify_all();
    for (std::thread& one : threads) one.join();
  }

 private:
  struct admitted {
    int number;
    curfew::admission_fence::pass pass;
  };

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      more_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      admitted run = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      each_(run.number, token_.get_token());
      run.pass.release();
      lock.lock();
    }
  }

  work each_;
  std::stop_source token_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<admitted> waiting_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

bool sleep_or_stop(const std::stop_token& token, std::chrono::nanoseconds span) {
  std::mutex mutex;
  std::condition_variable_any fired;
  std::unique_lock lock(mutex);
  return !fired.wait_for(lock, token, span, [] { return false; }) && !token.stop_requested();
}

// ---- the gateway

template <class Provider, class Options>
class gateway {
 public:
  gateway(journal& out, curfew::ordered_lifespan& life) : out_(out), life_(life) {
    life_.add("sandboxes")
        .start([this] { open_sandboxes(); })
        .stop([this] { close_sandboxes(); })
        .budget(lifespan_phase::stop, 21s);
    // The intake's thread has stopped when this stage closes, and its fence is closed already: who still comes is told
    // no.
    life_.add("runs").after("sandboxes").fence(runs_fence_).close([this] { turn_away(); }).stop([this] {
      pool_.stop();
    });
    life_.add("intake").after("runs").start([this] { start_intake(); }).close([this] { stop_intake(); });
    life_.observe([this](const curfew::lifespan_event& event) { announce(event); });
  }
  ~gateway() { life_.stop(); }  // its hooks call into this object

  int serve() {
    if (life_.start()) {
      out_.say("ready pid=" + std::to_string(::getpid()));
      open_door();
      life_.wait();
    }
    const curfew::lifespan_report& report = life_.stop();
    for (const curfew::stage_record& one : report.records)
      out_.say("timeline stage=" + one.stage + " phase=" + to_string(one.phase) + " outcome=" + to_string(one.outcome) +
               " began=" + std::to_string(journal::rounded_up(one.began)) +
               " took=" + std::to_string(journal::rounded_up(one.took)));
    if (::isatty(STDOUT_FILENO) != 0) draw(report);

    out_.say("proof created=" + std::to_string(stats_.created) + " destroyed=" + std::to_string(stats_.destroyed) +
             " adopted=" + std::to_string(stats_.adopted) + " " + left_);
    int code = report.exit_code;
    if (code == 0 && (failed_ || !left_.ends_with("=0") || stats_.created + stats_.adopted != stats_.destroyed))
      code = 1;
    out_.say("exit " + std::to_string(code));
    if (!report.abandoned.empty()) std::_Exit(code);  // a hook still runs and uses what a return would destroy
    return code;
  }

 private:
  // -- stage "sandboxes"

  void open_sandboxes() {
    static_cast<void>(providers_.get());  // makes and starts it; here and not under the first run
  }

  void close_sandboxes() {
    auto held = providers_.try_get();
    providers_.seal();  // runs the provider's shutdown once, and no later get() makes another
    if (held) stats_ = held->stats();
    held.release();
    left_ = backend->what_is_left();
    backend.reset();
  }

  // -- stage "runs"

  void offer(int number) {
    auto pass = runs_fence_.try_enter();  // before it is queued: from here on a drain waits for it
    try {
      if (pass) return pool_.add(number, std::move(pass));
    } catch (const std::system_error&) {  // no thread for it
    }
    out_.say(run_line(number, "refused"));
    ended();
  }

  void turn_away() {
    while (next_ <= config.runs) offer(next_++);
  }

  void run(int number, const std::stop_token& token) {
    try {
      auto sandboxes = providers_.get();
      auto lease = sandboxes->acquire({"gateway", "run-" + std::to_string(number)});
      out_.say(run_line(number, "started sandbox=" + lease.id() + " " + backend->describe(lease.info())));
      backend->work_in(lease.info());
      if (number == config.fork_run) out_.say(run_line(number, "forked " + in_a_child(sandboxes, lease)));
      const auto length = number == config.hang_run ? std::chrono::hours(24) : milliseconds(config.run_ms);
      const bool whole = sleep_or_stop(token, length);
      // A sandbox that had died under its run would show here.
      if (whole && (!lease.valid() || backend->probe(lease.id()) == curfew::sandbox::liveness::dead))
        throw std::runtime_error("its sandbox died");
      lease.release();
      out_.say(run_line(number, whole ? "finished" : "cut"));
    } catch (const curfew::admission_refused&) {
      out_.say(run_line(number, "refused"));
    } catch (const curfew::singleton_sealed&) {
      out_.say(run_line(number, "refused"));
    } catch (const std::exception& error) {
      out_.say(run_line(number, std::string("failed: ") + error.what()));
      const std::lock_guard lock(mutex_);
      failed_ = true;
    }
    ended();
  }

  /// What a run that forks can do by mistake: its child throws away all it inherited. None of it is the child's, so
  /// nothing happens to the sandboxes. Returns how the child ended.
  template <class Held, class Lease>
  std::string in_a_child(Held& sandboxes, Lease& lease) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);  // it hangs, where something waits for a thread that only the parent has
      int wrong = 0;
      try {
        static_cast<void>(sandboxes->acquire({"gateway", "child"}));
        wrong |= 1;
      } catch (const curfew::admission_refused&) {
      }
      if (lease.valid() || sandboxes->destroy(lease.id())) wrong |= 2;
      lease.release();
      sandboxes->shutdown();
      sandboxes.release();
      providers_.seal();
      backend.reset();
      ::_exit(wrong);
    }
    int status = -1;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return "status=" + std::to_string(status);
  }

  void ended() {
    bool all = false;
    {
      const std::lock_guard lock(mutex_);
      all = ++ended_ == config.runs;
    }
    if (all) life_.request_stop();
  }

  // -- stage "intake"

  void start_intake() {
    intake_ = std::jthread([this](const std::stop_token& token) {
      {
        std::unique_lock lock(mutex_);
        if (!door_.wait(lock, token, [this] { return door_open_; })) return;
      }
      while (next_ <= config.runs && sleep_or_stop(token, milliseconds(config.arrive_ms))) offer(next_++);
    });
  }

  void open_door() {
    {
      const std::lock_guard lock(mutex_);
      door_open_ = true;
    }
    door_.notify_all();
  }

  void stop_intake() {
    intake_.request_stop();
    if (intake_.joinable()) intake_.join();
  }

  // -- what a person sees

  void announce(const curfew::lifespan_event& event) {
    using curfew::lifespan_state;
    const lifespan_state now = life_.state();
    if (event.kind != curfew::lifespan_event_kind::state_changed || announced_) return;
    if (now != lifespan_state::closing && now != lifespan_state::rolling_back) return;
    announced_ = true;
    const curfew::stop_cause cause = life_.stop().cause;  // from within: the report as far as it goes
    const std::string signal = cause == curfew::stop_cause::signal ? " signal=" + std::to_string(event.signal) : "";
    out_.say(std::string("stopping cause=") + to_string(cause) + signal +
             " in_flight=" + std::to_string(runs_fence_.inside()));
  }

  static void draw(const curfew::lifespan_report& report) {
    constexpr int width = 48;
    std::printf("\n  from the request to stop to the end: %lld ms\n", journal::rounded_up(report.total));
    const auto column = [&](std::chrono::nanoseconds at) {
      const auto total = std::max<std::chrono::nanoseconds>(report.total, 1ns);
      return std::clamp(static_cast<int>(width * at.count() / total.count()), 0, width);
    };
    for (const curfew::stage_record& one : report.records) {
      if (one.phase == lifespan_phase::start || one.outcome == curfew::stage_outcome::skipped ||
          one.outcome == curfew::stage_outcome::not_run)
        continue;
      const int from = std::min(column(one.began), width - 1);
      const int length = std::max(1, column(one.began + one.took) - from);
      const std::string bar =
          std::string(static_cast<std::size_t>(from), ' ') + std::string(static_cast<std::size_t>(length), '#');
      std::printf("  %-10s %-6s |%-*s| %s\n", one.stage.c_str(), to_string(one.phase), width, bar.c_str(),
                  to_string(one.outcome));
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  journal& out_;
  curfew::ordered_lifespan& life_;
  curfew::guarded_singleton<Provider, provider_traits<Provider, Options>>& providers_ = providers<Provider, Options>;
  curfew::admission_fence runs_fence_{"runs"};
  bool announced_ = false;                 // observers are called one at a time
  curfew::sandbox::provider_stats stats_;  // this and the next: written by the last hook, read after the stop
  std::string left_ = "processes_left=0";
  int next_ = 1;  // the intake's, and turn_away()'s once the intake has stopped

  std::mutex mutex_;  // of all that follows up to the pool
  std::condition_variable_any door_;
  bool door_open_ = false;
  bool failed_ = false;
  int ended_ = 0;

  run_pool pool_{[this](int number, const std::stop_token& token) { run(number, token); }};
  std::jthread intake_;
};

}  // namespace

int main(int argc, char** argv) {
  curfew::lifespan_options options;
  options.name = "gateway";
  options.stage_close = 3s;
  options.stage_drain = 3s;
  options.stage_reserve = 500ms;           // even a hurried drain leaves the sandboxes time for an orderly end
  curfew::ordered_lifespan life(options);  // owns SIGTERM and SIGINT from here on
  journal out;

  const auto parsed = parse(std::vector<std::string_view>(argv + 1, argv + argc));
  if (!parsed) {
    std::fputs(usage, stderr);
    return 2;
  }
  config = *parsed;
  std::signal(SIGPIPE, SIG_IGN);  // who reads our lines may leave; the runs still end in order
  try {
    backend = gateway_example::open_workshop(config.sandboxes);
    if (config.sandboxes.e2b) return gateway<hard_cap, curfew::sandbox::e2b_options>(out, life).serve();
    return gateway<soft_cap, curfew::sandbox::aio_options>(out, life).serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gateway: %s\n", error.what());
    return 1;
  }
}
