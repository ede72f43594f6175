// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Epoch sections of Concurrency Kit: as those of liburcu, one record for each thread.

#include "bench/peers/ck_peer.h"

#include <benchmark/benchmark.h>

#include "bench/peers/threads.hpp"

namespace {

void BM_Peer_CkEpoch(benchmark::State& state) {
  constexpr unsigned batch = 1000;
  auto* const mine = ck_peer_register();
  while (state.KeepRunningBatch(batch)) benchmark::DoNotOptimize(ck_peer_sections(mine, batch));
}
BENCHMARK(BM_Peer_CkEpoch)->Apply(peers::threads);

}  // namespace
