// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Readers of oneTBB's spinning reader-writer lock, which a closer would hold as a writer. One word for all.

#include <benchmark/benchmark.h>
#include <tbb/spin_rw_mutex.h>

#include "bench/peers/threads.hpp"

namespace {

tbb::spin_rw_mutex mutex;

void BM_Peer_TbbSpinRwMutex(benchmark::State& state) {
  for (auto _ : state) {
    tbb::spin_rw_mutex::scoped_lock inside;
    const bool admitted = inside.try_acquire(mutex, false);
    benchmark::DoNotOptimize(admitted);
  }
}
BENCHMARK(BM_Peer_TbbSpinRwMutex)->Apply(peers::threads);

}  // namespace
