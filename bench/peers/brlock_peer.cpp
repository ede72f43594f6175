// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The big-reader lock of Concurrency Kit: a record for each thread, and a writer that reads them all. The lock makes
// readers wait instead of turning them away, and a section belongs to its thread.

#include "bench/peers/brlock_peer.h"

#include <benchmark/benchmark.h>

#include "bench/peers/threads.hpp"

namespace {

void BM_Peer_CkBrlock(benchmark::State& state) {
  constexpr unsigned batch = 1000;
  auto* const mine = brlock_peer_register();
  while (state.KeepRunningBatch(batch)) brlock_peer_sections(mine, batch);
  brlock_peer_unregister(mine);
}
BENCHMARK(BM_Peer_CkBrlock)->Apply(peers::threads);

}  // namespace
