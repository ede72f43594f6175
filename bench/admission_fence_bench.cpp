// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What a pass costs, next to the least that any counter shared by threads costs and to what people use instead. Times
// are CPU time per thread; compare rows of one run. Loops are the same shape everywhere: acquire, use, give back.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

#include <curfew/admission_fence.hpp>

#include "bench/peers/threads.hpp"

namespace {

struct alignas(64) counter {
  std::atomic<std::uint64_t> word{0};
};

constexpr std::uint64_t closed = 1;
constexpr std::uint64_t one = 2;

curfew::admission_fence striped{"striped"};
curfew::compact_admission_fence compact{"compact"};
curfew::traced_admission_fence traced{"traced"};
std::array<counter, 16> own_lines;
counter shared_line;
alignas(64) std::atomic<bool> open_state{true};
std::mutex plain_mutex;
std::uint64_t plain_count = 0;
bool plain_closed = false;
std::shared_mutex reader_writer;

template <class Fence>
void enter_and_release(benchmark::State& state, Fence& fence) {
  for (auto _ : state) {
    auto pass = fence.try_enter();
    benchmark::DoNotOptimize(pass);
  }
}

void BM_AdmissionFence_EnterRelease(benchmark::State& state) {
  enter_and_release(state, striped);
}
void BM_CompactAdmissionFence_EnterRelease(benchmark::State& state) {
  enter_and_release(state, compact);
}
void BM_TracedAdmissionFence_EnterRelease(benchmark::State& state) {
  enter_and_release(state, traced);
}

// What a program with one thread would write. The rest is what several threads cost.
void BM_Baseline_PlainCount(benchmark::State& state) {
  static thread_local std::uint64_t count = 0;
  for (auto _ : state) {
    ++count;
    benchmark::DoNotOptimize(count);
    --count;
    benchmark::DoNotOptimize(count);
  }
}

// Without rseq: two atomic additions on a line that no other thread uses, and no verdict.
void BM_Baseline_XaddPair(benchmark::State& state) {
  auto& mine = own_lines[static_cast<std::size_t>(state.thread_index()) % own_lines.size()].word;
  for (auto _ : state) {
    mine.fetch_add(one, std::memory_order_acquire);
    mine.fetch_sub(one, std::memory_order_release);
  }
}

// The same with what makes it a gate, in the loop of the fence: a state that is read first, a verdict, and a token that
// gives back and that the loop keeps in memory, as it does a pass. What comes after a locked instruction waits for it,
// so that the rest is not hidden.
void BM_Baseline_XaddGate(benchmark::State& state) {
  struct token {
    std::atomic<std::uint64_t>* word = nullptr;
    ~token() {
      if (word != nullptr) word->fetch_sub(one, std::memory_order_release);
    }
  };
  auto& mine = own_lines[static_cast<std::size_t>(state.thread_index()) % own_lines.size()].word;
  for (auto _ : state) {
    token inside;
    if (open_state.load(std::memory_order_acquire) && (mine.fetch_add(one, std::memory_order_acquire) & closed) == 0) {
      inside.word = &mine;
    }
    benchmark::DoNotOptimize(inside);
  }
}

// A closed bit and a count in one word, entered by compare-exchange: the usual hand-written gate.
void BM_Baseline_PackedCasWord(benchmark::State& state) {
  for (auto _ : state) {
    std::uint64_t word = shared_line.word.load(std::memory_order_acquire);
    while ((word & closed) == 0 &&
           !shared_line.word.compare_exchange_weak(word, word + one, std::memory_order_acquire)) {
    }
    benchmark::DoNotOptimize(word);
    if (shared_line.word.fetch_sub(one, std::memory_order_acq_rel) == (one | closed)) benchmark::ClobberMemory();
  }
}

void BM_Baseline_MutexAndCount(benchmark::State& state) {
  for (auto _ : state) {
    bool admitted = false;
    {
      std::lock_guard lock(plain_mutex);
      if (!plain_closed) {
        ++plain_count;
        admitted = true;
      }
    }
    benchmark::DoNotOptimize(admitted);
    std::lock_guard lock(plain_mutex);
    --plain_count;
  }
}

void BM_Baseline_SharedMutex(benchmark::State& state) {
  for (auto _ : state) {
    std::shared_lock lock(reader_writer, std::try_to_lock);
    benchmark::DoNotOptimize(lock);
  }
}

template <class Fence>
void refused(benchmark::State& state) {
  static Fence fence;
  if (state.thread_index() == 0) fence.close();
  for (auto _ : state) {
    auto pass = fence.try_enter();
    benchmark::DoNotOptimize(pass);
  }
}
void BM_AdmissionFence_Refused(benchmark::State& state) {
  refused<curfew::admission_fence>(state);
}
void BM_CompactAdmissionFence_Refused(benchmark::State& state) {
  refused<curfew::compact_admission_fence>(state);
}

void BM_AdmissionFence_CloneRelease(benchmark::State& state) {
  const auto pass = striped.enter();
  for (auto _ : state) {
    auto clone = pass.clone();
    benchmark::DoNotOptimize(clone);
  }
}

// One cycle: closing an empty fence, and opening it again.
template <class Fence>
void close_and_reopen(benchmark::State& state) {
  Fence fence;
  for (auto _ : state) {
    fence.close();
    fence.reopen();
  }
}
void BM_AdmissionFence_CloseReopen(benchmark::State& state) {
  close_and_reopen<curfew::admission_fence>(state);
}
void BM_CompactAdmissionFence_CloseReopen(benchmark::State& state) {
  close_and_reopen<curfew::compact_admission_fence>(state);
}

// close() alone, of an open fence with nobody inside.
template <class Fence>
void close_only(benchmark::State& state) {
  Fence fence;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    fence.close();
    const auto end = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
    fence.reopen();
  }
}
void BM_AdmissionFence_Close(benchmark::State& state) {
  close_only<curfew::admission_fence>(state);
}
void BM_CompactAdmissionFence_Close(benchmark::State& state) {
  close_only<curfew::compact_admission_fence>(state);
}

// Each close() of an open fence while a thread on another processor enters and leaves it, one by one: of such a sample
// the mean says little, so the percentiles are reported.
template <class Fence>
void close_beside_an_entrant(benchmark::State& state) {
  using clock = std::chrono::steady_clock;
  Fence fence;
  std::atomic<bool> stop{false};
  std::thread entrant([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      auto pass = fence.try_enter();
      benchmark::DoNotOptimize(pass);
    }
  });
  std::vector<double> took;
  for (auto _ : state) {
    const auto begin = clock::now();
    fence.close();
    took.push_back(std::chrono::duration<double, std::micro>(clock::now() - begin).count());
    fence.drain();
    fence.reopen();
  }
  stop.store(true, std::memory_order_relaxed);
  entrant.join();
  std::sort(took.begin(), took.end());
  state.counters["close_p50_us"] = took[took.size() / 2];
  state.counters["close_p99_us"] = took[took.size() * 99 / 100];
}
void BM_AdmissionFence_CloseBesideAnEntrant(benchmark::State& state) {
  close_beside_an_entrant<curfew::admission_fence>(state);
}
void BM_CompactAdmissionFence_CloseBesideAnEntrant(benchmark::State& state) {
  close_beside_an_entrant<curfew::compact_admission_fence>(state);
}

#if CURFEW_HAS_RSEQ
// The one system call in it by itself, beside a thread that only runs: what a close() can cost at least.
void BM_Baseline_MembarrierBesideAThread(benchmark::State& state) {
  using clock = std::chrono::steady_clock;
  if (curfew::detail::rseq_probe() == 0) {
    state.SkipWithError("no restartable sequences here");
    return;
  }
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop.load(std::memory_order_relaxed)) benchmark::DoNotOptimize(stop);
  });
  std::vector<double> took;
  for (auto _ : state) {
    const auto begin = clock::now();
    benchmark::DoNotOptimize(curfew::detail::rseq_restart_all());
    took.push_back(std::chrono::duration<double, std::micro>(clock::now() - begin).count());
  }
  stop.store(true, std::memory_order_relaxed);
  other.join();
  std::sort(took.begin(), took.end());
  state.counters["close_p50_us"] = took[took.size() / 2];
  state.counters["close_p99_us"] = took[took.size() * 99 / 100];
}
#endif

// Sixty-four fences that have been entered, closed in one call or one by one.
void close_sixty_four(benchmark::State& state, bool together) {
  using clock = std::chrono::steady_clock;
  std::array<curfew::admission_fence, 64> fences;
  std::array<curfew::admission_fence*, 64> pointers;
  for (std::size_t i = 0; i < fences.size(); ++i) pointers[i] = &fences[i];
  for (auto _ : state) {
    for (auto& each : fences) {
      each.reopen();
      benchmark::DoNotOptimize(static_cast<bool>(each.try_enter()));
    }
    const auto begin = clock::now();
    if (together) {
      curfew::admission_fence::close_all(pointers);
    } else {
      for (auto& each : fences) each.close();
    }
    state.SetIterationTime(std::chrono::duration<double>(clock::now() - begin).count());
  }
}
void BM_AdmissionFence_CloseAll64(benchmark::State& state) {
  close_sixty_four(state, true);
}
void BM_AdmissionFence_Close64OneByOne(benchmark::State& state) {
  close_sixty_four(state, false);
}

// From the last release to the return of drain() on another thread, which sleeps by then.
template <class Fence>
void last_release_to_drained(benchmark::State& state) {
  using clock = std::chrono::steady_clock;
  Fence fence;
  std::atomic<int> turn{0};
  std::atomic<std::int64_t> woken{0};
  std::atomic<bool> stop{false};
  std::thread drainer([&] {
    for (int seen = 0;;) {
      while (turn.load(std::memory_order_acquire) == seen) std::this_thread::yield();
      ++seen;
      if (stop.load(std::memory_order_relaxed)) return;
      fence.drain();
      woken.store(clock::now().time_since_epoch().count(), std::memory_order_release);
    }
  });
  for (auto _ : state) {
    auto pass = fence.enter();
    woken.store(0, std::memory_order_relaxed);
    turn.fetch_add(1, std::memory_order_release);
    while (!pass.closing()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // only so that it sleeps; nothing depends on it
    const auto begin = clock::now();
    pass.release();
    std::int64_t end = 0;
    while ((end = woken.load(std::memory_order_acquire)) == 0) std::this_thread::yield();
    state.SetIterationTime(std::chrono::duration<double>(clock::duration(end) - begin.time_since_epoch()).count());
    fence.reopen();
  }
  stop.store(true, std::memory_order_relaxed);
  turn.fetch_add(1, std::memory_order_release);
  drainer.join();
}
void BM_AdmissionFence_LastReleaseToDrained(benchmark::State& state) {
  last_release_to_drained<curfew::admission_fence>(state);
}
void BM_CompactAdmissionFence_LastReleaseToDrained(benchmark::State& state) {
  last_release_to_drained<curfew::compact_admission_fence>(state);
}

// The same hand-over with nothing but a mutex, a flag and a condition variable.
void BM_Baseline_ConditionVariableHandOver(benchmark::State& state) {
  using clock = std::chrono::steady_clock;
  std::mutex mutex;
  std::condition_variable done;
  bool waiting = false, flag = false;
  std::atomic<int> turn{0};
  std::atomic<std::int64_t> woken{0};
  std::atomic<bool> stop{false};
  std::thread waiter([&] {
    for (int seen = 0;;) {
      while (turn.load(std::memory_order_acquire) == seen) std::this_thread::yield();
      ++seen;
      if (stop.load(std::memory_order_relaxed)) return;
      {
        std::unique_lock lock(mutex);
        waiting = true;
        done.wait(lock, [&] { return flag; });
        flag = waiting = false;
      }
      woken.store(clock::now().time_since_epoch().count(), std::memory_order_release);
    }
  });
  for (auto _ : state) {
    woken.store(0, std::memory_order_relaxed);
    turn.fetch_add(1, std::memory_order_release);
    for (bool seen = false; !seen;) {
      std::this_thread::yield();
      std::lock_guard lock(mutex);
      seen = waiting;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    const auto begin = clock::now();
    {
      std::lock_guard lock(mutex);
      flag = true;
    }
    done.notify_one();
    std::int64_t end = 0;
    while ((end = woken.load(std::memory_order_acquire)) == 0) std::this_thread::yield();
    state.SetIterationTime(std::chrono::duration<double>(clock::duration(end) - begin.time_since_epoch()).count());
  }
  stop.store(true, std::memory_order_relaxed);
  turn.fetch_add(1, std::memory_order_release);
  waiter.join();
}

BENCHMARK(BM_Baseline_PlainCount)->Apply(peers::threads);
BENCHMARK(BM_Baseline_XaddPair)->Apply(peers::threads);
BENCHMARK(BM_Baseline_XaddGate)->Apply(peers::threads);
BENCHMARK(BM_AdmissionFence_EnterRelease)->Apply(peers::threads);
BENCHMARK(BM_CompactAdmissionFence_EnterRelease)->Apply(peers::threads);
BENCHMARK(BM_TracedAdmissionFence_EnterRelease)->Apply(peers::threads);
BENCHMARK(BM_Baseline_PackedCasWord)->Apply(peers::threads);
BENCHMARK(BM_Baseline_MutexAndCount)->Apply(peers::threads);
BENCHMARK(BM_Baseline_SharedMutex)->Apply(peers::threads);
BENCHMARK(BM_AdmissionFence_Refused)->Apply(peers::threads);
BENCHMARK(BM_CompactAdmissionFence_Refused)->Apply(peers::threads);
BENCHMARK(BM_AdmissionFence_CloneRelease)->Apply(peers::threads);
BENCHMARK(BM_AdmissionFence_CloseReopen);
BENCHMARK(BM_CompactAdmissionFence_CloseReopen);
BENCHMARK(BM_AdmissionFence_Close)->UseManualTime();
BENCHMARK(BM_CompactAdmissionFence_Close)->UseManualTime();
BENCHMARK(BM_AdmissionFence_CloseBesideAnEntrant)->UseRealTime();
BENCHMARK(BM_CompactAdmissionFence_CloseBesideAnEntrant)->UseRealTime();
#if CURFEW_HAS_RSEQ
BENCHMARK(BM_Baseline_MembarrierBesideAThread)->UseRealTime();
#endif
BENCHMARK(BM_AdmissionFence_CloseAll64)->UseManualTime();
BENCHMARK(BM_AdmissionFence_Close64OneByOne)->UseManualTime();
BENCHMARK(BM_AdmissionFence_LastReleaseToDrained)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_CompactAdmissionFence_LastReleaseToDrained)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Baseline_ConditionVariableHandOver)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
