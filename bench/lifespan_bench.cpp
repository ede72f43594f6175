// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// From SIGTERM to the end of the process, what one hung stage costs, and what a hook costs. The first two measure child
// processes by the wall clock, from kill() to the return of wait4(), and report the median and the 99th percentile;
// look at those columns, not at Time. Baselines: a process that dies of SIGTERM by default, and a bare thread.

#include <benchmark/benchmark.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <curfew/ordered_lifespan.hpp>

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

curfew::lifespan_options quiet() {
  curfew::lifespan_options options;
  options.owned_signals = {};
  return options;
}

void report_percentiles(benchmark::State& state, std::vector<double> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  const auto at = [&](double part) {
    return milliseconds[static_cast<std::size_t>(part * static_cast<double>(milliseconds.size() - 1))];
  };
  state.counters["p50_ms"] = at(0.5);
  state.counters["p99_ms"] = at(0.99);
}

/// Forks \p child, which writes a byte when it is up; the time from SIGTERM to its end. Exit code \p expected or else.
template <class Child>
double time_to_exit(Child child, int expected) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child(ends[1]));
  char up = 0;
  if (::read(ends[0], &up, 1) != 1) std::abort();
  std::this_thread::sleep_for(1ms);  // until it is parked
  const auto sent = clock_type::now();
  ::kill(pid, SIGTERM);
  int status = 0;
  ::waitpid(pid, &status, 0);
  const double took = std::chrono::duration<double, std::milli>(clock_type::now() - sent).count();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code != expected) std::abort();
  ::close(ends[0]);
  ::close(ends[1]);
  return took;
}

void tell(int descriptor) {
  if (::write(descriptor, "u", 1) != 1) std::abort();
}

template <class Child>
void measure_exit(benchmark::State& state, int expected, Child child) {
  std::vector<double> all;
  for (auto _ : state) {
    all.push_back(time_to_exit(child, expected));
    state.SetIterationTime(all.back() / 1e3);
  }
  report_percentiles(state, std::move(all));
}

void BM_Baseline_SigtermDefault(benchmark::State& state) {
  measure_exit(state, 128 + SIGTERM, [](int up) {
    tell(up);
    for (;;) ::pause();
    return 0;
  });
}

void BM_Lifespan_SigtermToExit8TrivialStages(benchmark::State& state) {
  measure_exit(state, 0, [](int up) {
    curfew::ordered_lifespan life;
    for (int i = 0; i != 8; ++i) {
      life.add(std::to_string(i)).start([] {}).close([] {}).drain([] {}).stop([] {});
    }
    life.add("up").start([up] { tell(up); });
    return life.run();
  });
}

/// The child itself checks that the seven others ran and that the culprit is named.
void BM_Lifespan_SigtermToExitOneHungOf8Slice100ms(benchmark::State& state) {
  measure_exit(state, 124, [](int up) -> int {
    curfew::ordered_lifespan life;
    int ran = 0;
    for (int i = 0; i != 8; ++i) {
      auto& stage = life.add("stage" + std::to_string(i));
      if (i == 5) {
        stage.stop([] { std::this_thread::sleep_for(1h); }).budget(curfew::lifespan_phase::stop, 100ms);
      } else {
        stage.stop([&] { ++ran; });
      }
    }
    life.add("up").start([up] { tell(up); });
    if (life.start()) life.wait();
    const auto& report = life.stop();
    const bool good =
        ran == 7 && report.abandoned.size() == 1 && report.abandoned[0].find("stage5") != std::string::npos;
    std::_Exit(good ? report.exit_code : 99);
  });
}

void BM_Lifespan_SignalToWait(benchmark::State& state) {
  std::vector<double> all;
  for (auto _ : state) {
    curfew::ordered_lifespan life(quiet());
    life.start();
    clock_type::time_point woke;
    std::thread waiter([&] {
      life.wait();
      woke = clock_type::now();
    });
    std::this_thread::sleep_for(200us);  // until it is parked
    const auto sent = clock_type::now();
    life.simulate_signal(SIGTERM);
    waiter.join();
    all.push_back(std::chrono::duration<double, std::milli>(woke - sent).count());
    state.SetIterationTime(all.back() / 1e3);
  }
  report_percentiles(state, std::move(all));
}

/// The same by the kernel, with `idle` other threads, any of which it may choose to interrupt.
void BM_Lifespan_KillToWait(benchmark::State& state) {
  std::vector<double> all;
  curfew::lifespan_options options;
  options.escalation_guard = 1h;
  curfew::ordered_lifespan life(options);
  std::atomic<bool> over{false};
  std::vector<std::thread> idle;
  for (std::int64_t i = 0; i != state.range(0); ++i) {
    idle.emplace_back([&] { over.wait(false); });
  }
  for (auto _ : state) {
    life.start();
    clock_type::time_point woke;
    std::thread waiter([&] {
      life.wait();
      woke = clock_type::now();
    });
    std::this_thread::sleep_for(200us);  // until it is parked
    const auto sent = clock_type::now();
    ::kill(::getpid(), SIGTERM);
    waiter.join();
    life.stop();
    life.reset();
    all.push_back(std::chrono::duration<double, std::milli>(woke - sent).count());
    state.SetIterationTime(all.back() / 1e3);
  }
  over = true;
  over.notify_all();
  for (auto& one : idle) one.join();
  report_percentiles(state, std::move(all));
}

/// From the third signal to the end of a process whose hooks all spin.
void BM_Lifespan_ThirdSignalToExit(benchmark::State& state) {
  std::vector<double> all;
  for (auto _ : state) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0) {
      curfew::lifespan_options options;
      options.escalation_guard = 0ms;
      options.stop_budget = options.stage_stop = options.hurried_budget = 1h;
      curfew::ordered_lifespan life(options);
      for (int i = 0; i != 8; ++i) {
        life.add(std::to_string(i)).parallel().stop([&](const curfew::stage_context& context) {
          tell(ends[1]);
          while (!context.token.stop_requested()) {
          }
          tell(ends[1]);
          for (;;) {
          }
        });
      }
      life.add("up").after("0").start([&] { tell(ends[1]); });
      ::_exit(life.run());
    }
    const auto hear = [&] {
      char byte = 0;
      if (::read(ends[0], &byte, 1) != 1) std::abort();
    };
    hear();
    ::kill(pid, SIGTERM);
    for (int i = 0; i != 8; ++i) hear();
    ::kill(pid, SIGTERM);
    for (int i = 0; i != 8; ++i) hear();
    const auto sent = clock_type::now();
    ::kill(pid, SIGTERM);
    int status = 0;
    ::waitpid(pid, &status, 0);
    all.push_back(std::chrono::duration<double, std::milli>(clock_type::now() - sent).count());
    state.SetIterationTime(all.back() / 1e3);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 128 + SIGTERM) std::abort();
    ::close(ends[0]);
    ::close(ends[1]);
  }
  report_percentiles(state, std::move(all));
}

void BM_Baseline_ThreadSpawnJoin(benchmark::State& state) {
  for (auto _ : state) std::thread([] {}).join();
}

/// Per hook: one start and one stop of each of `stages` stages.
void measure_hooks(benchmark::State& state, bool on_controller) {
  const auto stages = state.range(0);
  curfew::ordered_lifespan life(quiet());
  for (int i = 0; i != stages; ++i) {
    auto& stage = life.add(std::to_string(i)).start([] {}).stop([] {});
    if (on_controller) stage.on_controller();
  }
  for (auto _ : state) {
    life.start();
    life.stop();
    life.reset();
  }
  state.SetItemsProcessed(state.iterations() * stages * 2);
}
void BM_Lifespan_BoundedHooks(benchmark::State& state) {
  measure_hooks(state, false);
}
void BM_Lifespan_HooksOnController(benchmark::State& state) {
  measure_hooks(state, true);
}

BENCHMARK(BM_Baseline_SigtermDefault)->UseManualTime()->Iterations(200)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Lifespan_SigtermToExit8TrivialStages)->UseManualTime()->Iterations(200)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Lifespan_SigtermToExitOneHungOf8Slice100ms)
    ->UseManualTime()
    ->Iterations(20)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Lifespan_SignalToWait)->UseManualTime()->Iterations(500)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Lifespan_KillToWait)->Arg(0)->Arg(64)->UseManualTime()->Iterations(500)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Lifespan_ThirdSignalToExit)->UseManualTime()->Iterations(50)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Baseline_ThreadSpawnJoin)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Lifespan_BoundedHooks)->Arg(8)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Lifespan_HooksOnController)->Arg(8)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
