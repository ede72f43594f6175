// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Whole programs in small. Look at the counters, not at Time.
//
// Gateway: a child process in which eight clients send requests as fast as they are answered; each request uses a pool
// for about a microsecond, every 64th for 200 us. After 200 ms the child gets a SIGTERM. The same requests are served
// by a lifespan, a fence and a singleton; by a mutex, a count, a condition variable and a signal flag that the main
// thread polls, written without a mistake; and by the flag alone, as it is often written, where the pool is closed as
// soon as the flag is seen. Each reports how many requests a second it answered, the 99th percentile of one, how long
// it took from the signal until nobody was inside and the pool was closed, how many requests were told to go away, and
// how many were let in and then found the pool closed: those are lost.
//
// Reload: readers that do nothing but read a configuration while it is replaced every millisecond.
//
// Million: a fence for each of 10^6 connections, beside a mutex, a condition variable, a count and a flag for each.

#include <benchmark/benchmark.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>

#include "bench/peers/atomic_shared_ptr.hpp"

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

/// Sorts; the value below which \p part of the sample lies.
template <class Value>
double percentile(std::vector<Value>& sample, double part) {
  if (sample.empty()) return 0;
  const auto at = static_cast<std::size_t>(part * static_cast<double>(sample.size() - 1));
  std::nth_element(sample.begin(), sample.begin() + static_cast<std::ptrdiff_t>(at), sample.end());
  return static_cast<double>(sample[at]);
}

// ---- gateway

struct pool {
  std::atomic<bool> open{true};

  /// False when it was closed meanwhile.
  bool work(std::uint64_t request) const {
    if (!open.load(std::memory_order_relaxed)) return false;
    if (request % 64 == 0) {
      std::this_thread::sleep_for(200us);
    } else {
      for (std::uint64_t i = 0; i != 400; ++i) benchmark::DoNotOptimize(i);
    }
    return open.load(std::memory_order_relaxed);
  }
  void shutdown() { open.store(false, std::memory_order_relaxed); }
};

enum class answer { done, refused, lost };

class by_curfew {
 public:
  answer handle(std::uint64_t request) {
    const auto pass = requests_.try_enter();
    if (!pass) return answer::refused;
    return pools().get()->work(request) ? answer::done : answer::lost;
  }
  template <class Started>
  void serve(Started started) {
    curfew::ordered_lifespan life;
    life.add("pool").start([] { static_cast<void>(pools().get()); }).stop([] { pools().shutdown(); });
    life.add("requests").after("pool").fence(requests_).start(started);
    static_cast<void>(life.run());
  }

 private:
  static curfew::guarded_singleton<pool>& pools() {
    static constinit curfew::guarded_singleton<pool> instance{"pool"};
    return instance;
  }
  curfew::admission_fence requests_{"requests"};
};

volatile std::sig_atomic_t told_to_stop = 0;

void wait_for_the_flag() {
  std::signal(SIGTERM, [](int) { told_to_stop = 1; });
}

class by_mutex {
 public:
  answer handle(std::uint64_t request) {
    std::shared_ptr<pool> mine;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return answer::refused;
      ++inside_;
      mine = pool_;
    }
    const bool good = mine->work(request);
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0 && stopping_) empty_.notify_all();
    return good ? answer::done : answer::lost;
  }
  template <class Started>
  void serve(Started started) {
    wait_for_the_flag();
    started();
    while (told_to_stop == 0) std::this_thread::sleep_for(10ms);
    std::unique_lock lock(mutex_);
    stopping_ = true;
    empty_.wait(lock, [this] { return inside_ == 0; });
    std::exchange(pool_, nullptr)->shutdown();
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::shared_ptr<pool> pool_ = std::make_shared<pool>();
  int inside_ = 0;
  bool stopping_ = false;
};

class by_flag {
 public:
  answer handle(std::uint64_t request) {
    if (stopping_.load(std::memory_order_relaxed)) return answer::refused;
    return pool_.work(request) ? answer::done : answer::lost;
  }
  template <class Started>
  void serve(Started started) {
    wait_for_the_flag();
    started();
    while (told_to_stop == 0) std::this_thread::sleep_for(10ms);
    stopping_.store(true, std::memory_order_relaxed);
    pool_.shutdown();
  }

 private:
  std::atomic<bool> stopping_{false};
  pool pool_;
};

/// What the child tells, in one write.
struct tally {
  double per_second = 0, p99_us = 0;
  std::int64_t stopped = 0;  // of steady_clock, which is one for all processes
  double refused = 0, lost = 0;
};

template <class Gateway>
tally run_gateway(int up) {
  constexpr int clients = 8;
  struct alignas(64) client {
    std::uint64_t refused = 0, lost = 0;
    std::vector<float> took_us;
    std::thread thread;
  };
  Gateway gateway;
  std::vector<client> all(clients);
  std::atomic<bool> over{false};
  clock_type::time_point begin;
  gateway.serve([&] {
    begin = clock_type::now();
    for (auto& one : all) {
      one.thread = std::thread([&] {
        one.took_us.reserve(1 << 18);
        std::uint64_t request = 0;
        while (!over.load(std::memory_order_relaxed)) {
          const auto before = clock_type::now();
          switch (gateway.handle(++request)) {
            case answer::done:
              one.took_us.push_back(std::chrono::duration<float, std::micro>(clock_type::now() - before).count());
              break;
            case answer::refused:
              ++one.refused;
              std::this_thread::sleep_for(1ms);  // a client does not come again at once
              break;
            case answer::lost:
              ++one.lost;
              break;
          }
        }
      });
    }
    if (::write(up, "u", 1) != 1) std::abort();
  });
  const auto stopped = clock_type::now();
  std::this_thread::sleep_for(3ms);  // so that each client hears of it
  over.store(true, std::memory_order_relaxed);
  tally result;
  std::vector<float> took;
  for (auto& one : all) {
    one.thread.join();
    took.insert(took.end(), one.took_us.begin(), one.took_us.end());
    result.refused += static_cast<double>(one.refused);
    result.lost += static_cast<double>(one.lost);
  }
  result.per_second = static_cast<double>(took.size()) / std::chrono::duration<double>(stopped - begin).count();
  result.p99_us = percentile(took, 0.99);
  result.stopped = stopped.time_since_epoch().count();
  return result;
}

template <class Gateway>
void gateway(benchmark::State& state) {
  std::vector<double> stop_us;
  tally sum;
  for (auto _ : state) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t pid = ::fork();
    if (pid == 0) {
      const tally mine = run_gateway<Gateway>(ends[1]);
      ::_exit(::write(ends[1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
    }
    char up = 0;
    if (::read(ends[0], &up, 1) != 1) std::abort();
    std::this_thread::sleep_for(200ms);  // under load
    const auto sent = clock_type::now();
    ::kill(pid, SIGTERM);
    tally one;
    if (::read(ends[0], &one, sizeof one) != static_cast<ssize_t>(sizeof one)) std::abort();
    int status = 0;
    ::waitpid(pid, &status, 0);
    ::close(ends[0]);
    ::close(ends[1]);
    if (status != 0) state.SkipWithError("the gateway did not end well");
    stop_us.push_back(static_cast<double>(one.stopped - sent.time_since_epoch().count()) / 1e3);
    state.SetIterationTime(stop_us.back() / 1e6);
    sum.per_second += one.per_second;
    sum.p99_us += one.p99_us;
    sum.refused += one.refused;
    sum.lost += one.lost;
  }
  const auto average = [](double of) { return benchmark::Counter(of, benchmark::Counter::kAvgIterations); };
  state.counters["per_second"] = average(sum.per_second);
  state.counters["p99_us"] = average(sum.p99_us);
  state.counters["stop_us"] = percentile(stop_us, 0.5);
  state.counters["refused"] = average(sum.refused);
  state.counters["lost"] = average(sum.lost);
}
void run_three_times(benchmark::internal::Benchmark* of) {
  of->Iterations(3)->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(gateway<by_curfew>)->Name("Gateway/Curfew")->Apply(run_three_times);
BENCHMARK(gateway<by_mutex>)->Name("Gateway/MutexAndCount")->Apply(run_three_times);
BENCHMARK(gateway<by_flag>)->Name("Gateway/FlagAlone")->Apply(run_three_times);

// ---- reload

struct configuration {
  std::int64_t made = clock_type::now().time_since_epoch().count();
  std::int64_t again = made;  // equal, or somebody saw it half made or half gone
  ~configuration() { again = 0; }
};

template <bool Set>
class by_singleton {
 public:
  bool read() { return good(*current().get()); }
  void replace() {
    if constexpr (Set) {
      static_cast<void>(current().set(std::make_unique<configuration>()));
    } else {
      current().reset();
    }
  }

 private:
  static bool good(const configuration& of) { return of.made == of.again; }
  static curfew::guarded_singleton<configuration>& current() {
    static constinit curfew::guarded_singleton<configuration> instance{"configuration"};
    return instance;
  }
};

template <class Mutex, class ReadLock>
class by_lock {
 public:
  bool read() {
    std::shared_ptr<configuration> mine;
    {
      const ReadLock lock(mutex_);
      mine = current_;
    }
    return mine->made == mine->again;
  }
  void replace() {
    auto next = std::make_shared<configuration>();
    const std::lock_guard lock(mutex_);
    current_.swap(next);
  }

 private:
  Mutex mutex_;
  std::shared_ptr<configuration> current_ = std::make_shared<configuration>();
};

#if WITH_ATOMIC_SHARED_PTR
class by_atomic_pointer {
 public:
  bool read() {
    const auto mine = current_.load(std::memory_order_acquire);
    return mine->made == mine->again;
  }
  void replace() { current_.store(std::make_shared<configuration>(), std::memory_order_release); }

 private:
  std::atomic<std::shared_ptr<configuration>> current_{std::make_shared<configuration>()};
};
#endif

template <class Way>
void reload(benchmark::State& state) {
  struct alignas(64) reader {
    std::uint64_t reads = 0, bad = 0;
    std::vector<float> took_ns;  // of one in 64
    std::thread thread;
  };
  Way way;
  std::vector<reader> readers(static_cast<std::size_t>(state.range(0)));
  double reloads = 0, seconds = 0;
  for (auto _ : state) {
    std::atomic<bool> over{false};
    const auto begin = clock_type::now();
    for (auto& one : readers) {
      one.thread = std::thread([&] {
        one.took_ns.reserve(1 << 22);
        while (!over.load(std::memory_order_relaxed)) {
          for (int i = 0; i != 63; ++i) one.bad += way.read() ? 0u : 1u;
          const auto before = clock_type::now();
          one.bad += way.read() ? 0u : 1u;
          one.took_ns.push_back(std::chrono::duration<float, std::nano>(clock_type::now() - before).count());
          one.reads += 64;
        }
      });
    }
    while (clock_type::now() - begin < 300ms) {
      std::this_thread::sleep_for(1ms);
      way.replace();
      ++reloads;
    }
    over.store(true, std::memory_order_relaxed);
    for (auto& one : readers) one.thread.join();
    seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
    state.SetIterationTime(seconds);
  }
  std::vector<float> took;
  std::uint64_t reads = 0;
  for (auto& one : readers) {
    if (one.bad != 0) state.SkipWithError("a configuration was seen half made");
    reads += one.reads;
    took.insert(took.end(), one.took_ns.begin(), one.took_ns.end());
  }
  state.counters["reads_per_second"] = static_cast<double>(reads) / seconds;
  state.counters["reloads_per_second"] = reloads / seconds;
  state.counters["p999_ns"] = percentile(took, 0.999);
}
void readers(benchmark::internal::Benchmark* of) {
  of->ArgName("readers")->Arg(1)->Arg(2)->Arg(4)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK(reload<by_singleton<false>>)->Name("Reload/SingletonReset")->Apply(readers);
BENCHMARK(reload<by_singleton<true>>)->Name("Reload/SingletonSet")->Apply(readers);
BENCHMARK(reload<by_lock<std::shared_mutex, std::shared_lock<std::shared_mutex>>>)
    ->Name("Reload/SharedMutex")
    ->Apply(readers);
BENCHMARK(reload<by_lock<std::mutex, std::lock_guard<std::mutex>>>)->Name("Reload/Mutex")->Apply(readers);
#if WITH_ATOMIC_SHARED_PTR
BENCHMARK(reload<by_atomic_pointer>)->Name("Reload/AtomicSharedPtr")->Apply(readers);
#endif

// ---- a million connections

class mutex_and_count {
 public:
  bool enter() {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0 && closed_) empty_.notify_all();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void drain() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    empty_.wait(lock, [this] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  int inside_ = 0;
  bool closed_ = false;
};

// Each connection is entered and left once before: its memory is there.
template <class Gate>
void use_once(Gate& gate) {
  if constexpr (std::is_same_v<Gate, mutex_and_count>) {
    if (gate.enter()) gate.leave();
  } else {
    benchmark::DoNotOptimize(static_cast<bool>(gate.try_enter()));
  }
}

enum class ending { close_each, close_all, drain_each };

template <class Gate, ending How>
void million(benchmark::State& state) {
  constexpr std::size_t count = 1'000'000;
  double took = 0;
  for (auto _ : state) {
    auto gates = std::make_unique<Gate[]>(count);
    std::vector<Gate*> pointers;
    for (std::size_t i = 0; i != count; ++i) use_once(gates[i]);
    if constexpr (How == ending::close_all) {
      for (std::size_t i = 0; i != count; ++i) pointers.push_back(&gates[i]);
    }
    const auto begin = clock_type::now();
    if constexpr (How == ending::close_all) {
      Gate::close_all(pointers);
    } else {
      for (std::size_t i = 0; i != count; ++i) {
        if constexpr (How == ending::close_each) gates[i].close();
        if constexpr (How == ending::drain_each) gates[i].drain();
      }
    }
    const double seconds = std::chrono::duration<double>(clock_type::now() - begin).count();
    state.SetIterationTime(seconds);
    took += seconds;
  }
  state.counters["bytes_each"] = sizeof(Gate);
  state.counters["ns_each"] =
      benchmark::Counter(took * 1e9 / static_cast<double>(count), benchmark::Counter::kAvgIterations);
}
void once(benchmark::internal::Benchmark* of) {
  of->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
}
using compact = curfew::compact_admission_fence;
BENCHMARK(million<compact, ending::close_each>)->Name("Million/CompactFence/close")->Apply(once);
BENCHMARK(million<compact, ending::close_all>)->Name("Million/CompactFence/close_all")->Apply(once);
BENCHMARK(million<compact, ending::drain_each>)->Name("Million/CompactFence/drain")->Apply(once);
BENCHMARK(million<mutex_and_count, ending::close_each>)->Name("Million/MutexAndCount/close")->Apply(once);
BENCHMARK(million<mutex_and_count, ending::drain_each>)->Name("Million/MutexAndCount/drain")->Apply(once);

}  // namespace

BENCHMARK_MAIN();
