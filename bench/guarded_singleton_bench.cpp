// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What it costs to reach the instance, beside what else one could write; and how long get() takes while a callback that
// lasts 100 ms runs on another thread.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include <curfew/guarded_singleton.hpp>

#include "bench/peers/atomic_shared_ptr.hpp"
#include "bench/peers/threads.hpp"

namespace {

using namespace std::chrono_literals;

struct service {
  int value = 1;
};

constinit curfew::guarded_singleton<service> subject{"bench"};

void BM_GuardedSingleton_GetUseRelease(benchmark::State& state) {
  static_cast<void>(subject.get());
  for (auto _ : state) {
    const auto pinned = subject.get();
    benchmark::DoNotOptimize(pinned->value);
  }
}
BENCHMARK(BM_GuardedSingleton_GetUseRelease)->Apply(peers::threads);

void BM_GuardedSingleton_CloneRelease(benchmark::State& state) {
  const auto pinned = subject.get();
  for (auto _ : state) benchmark::DoNotOptimize(pinned.clone().get());
}
BENCHMARK(BM_GuardedSingleton_CloneRelease)->Apply(peers::threads);

// The floor: what cannot be reset.
void BM_Baseline_AcquireLoad(benchmark::State& state) {
  static service instance;
  static constinit std::atomic<service*> pointer{&instance};
  for (auto _ : state) benchmark::DoNotOptimize(pointer.load(std::memory_order_acquire)->value);
}
BENCHMARK(BM_Baseline_AcquireLoad)->Apply(peers::threads);

service& meyers() {
  static service& instance = *new service;
  return instance;
}
void BM_Baseline_MeyersStatic(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(meyers().value);
}
BENCHMARK(BM_Baseline_MeyersStatic)->Apply(peers::threads);

void BM_Baseline_SharedPtrCopy(benchmark::State& state) {
  static const auto instance = std::make_shared<service>();
  for (auto _ : state) {
    const auto copy = instance;
    benchmark::DoNotOptimize(copy->value);
  }
}
BENCHMARK(BM_Baseline_SharedPtrCopy)->Apply(peers::threads);

void BM_Baseline_SharedMutexSharedPtr(benchmark::State& state) {
  static std::shared_mutex mutex;
  static const auto instance = std::make_shared<service>();
  for (auto _ : state) {
    std::shared_ptr<service> copy;
    {
      const std::shared_lock<std::shared_mutex> lock(mutex);
      copy = instance;
    }
    benchmark::DoNotOptimize(copy->value);
  }
}
BENCHMARK(BM_Baseline_SharedMutexSharedPtr)->Apply(peers::threads);

#if WITH_ATOMIC_SHARED_PTR
void BM_Baseline_AtomicSharedPtr(benchmark::State& state) {
  static std::atomic<std::shared_ptr<service>> pointer{std::make_shared<service>()};
  for (auto _ : state) {
    const auto copy = pointer.load(std::memory_order_acquire);
    benchmark::DoNotOptimize(copy->value);
  }
}
BENCHMARK(BM_Baseline_AtomicSharedPtr)->Apply(peers::threads);
#endif

void BM_GuardedSingleton_ResetAndRecreate(benchmark::State& state) {
  static constinit curfew::guarded_singleton<service> own{"recreate"};
  for (auto _ : state) {
    own.reset();
    benchmark::DoNotOptimize(own.get()->value);
  }
}
BENCHMARK(BM_GuardedSingleton_ResetAndRecreate)->UseRealTime();

/// The same one by one, while another thread uses the instance without a pause.
void BM_GuardedSingleton_ResetAndRecreateWithAReader(benchmark::State& state) {
  static constinit curfew::guarded_singleton<service> own{"recreate with a reader"};
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop.load(std::memory_order_relaxed)) benchmark::DoNotOptimize(own.get()->value);
  });
  std::vector<std::int64_t> samples;
  for (auto _ : state) {
    const auto before = std::chrono::steady_clock::now();
    own.reset();
    benchmark::DoNotOptimize(own.get()->value);
    samples.push_back((std::chrono::steady_clock::now() - before).count());
  }
  stop.store(true, std::memory_order_relaxed);
  reader.join();
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  state.counters["p50_ns"] = static_cast<double>(*middle);
}
BENCHMARK(BM_GuardedSingleton_ResetAndRecreateWithAReader)->UseRealTime();

void BM_GuardedSingleton_ResetOfAnEmptySlot(benchmark::State& state) {
  static constinit curfew::guarded_singleton<service> own{"empty"};
  for (auto _ : state) benchmark::DoNotOptimize(own.reset());
}
BENCHMARK(BM_GuardedSingleton_ResetOfAnEmptySlot);

struct slow_traits {
  std::unique_ptr<service> make() { return std::make_unique<service>(); }
  void on_shutdown(service&, curfew::teardown_reason) { std::this_thread::sleep_for(100ms); }
};

/// The 99.9th percentile of get() + use + release, one by one, until \p stop.
double tail_ns(curfew::guarded_singleton<service, slow_traits>& of, const std::atomic<bool>& stop) {
  std::vector<std::int64_t> samples;
  samples.reserve(1 << 22);
  while (!stop.load(std::memory_order_acquire) && samples.size() < samples.capacity()) {
    const auto before = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(of.get()->value);
    samples.push_back((std::chrono::steady_clock::now() - before).count());
  }
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() * 999 / 1000);
  std::nth_element(samples.begin(), at, samples.end());
  return static_cast<double>(*at);
}

void BM_GuardedSingleton_GetDuringSlowCallback(benchmark::State& state) {
  static constinit curfew::guarded_singleton<service, slow_traits> own{"slow"};
  double quiet = 0, during = 0;
  for (auto _ : state) {
    for (const bool detaching : {false, true}) {
      static_cast<void>(own.get());
      std::atomic<bool> stop{false};
      std::thread other([&] {
        if (detaching) {
          own.shutdown();  // 100 ms
        } else {
          std::this_thread::sleep_for(100ms);
        }
        stop.store(true, std::memory_order_release);
      });
      (detaching ? during : quiet) += tail_ns(own, stop);
      other.join();
    }
  }
  state.counters["p99.9_quiet_ns"] = benchmark::Counter(quiet, benchmark::Counter::kAvgIterations);
  state.counters["p99.9_during_ns"] = benchmark::Counter(during, benchmark::Counter::kAvgIterations);
}
BENCHMARK(BM_GuardedSingleton_GetDuringSlowCallback)->Iterations(5)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
