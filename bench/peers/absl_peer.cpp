// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Readers of absl::Mutex, which a closer would hold as a writer. One word for all.

#include <absl/synchronization/mutex.h>
#include <benchmark/benchmark.h>

#include "bench/peers/threads.hpp"

namespace {

absl::Mutex mutex;

void BM_Peer_AbslMutexReader(benchmark::State& state) {
  for (auto _ : state) {
    const bool admitted = mutex.ReaderTryLock();
    benchmark::DoNotOptimize(admitted);
    if (admitted) mutex.ReaderUnlock();
  }
}
BENCHMARK(BM_Peer_AbslMutexReader)->Apply(peers::threads);

}  // namespace
