// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The numbers of threads that entrants and readers are measured with. Beyond the number of processors they take turns.

#ifndef CURFEW_BENCH_PEERS_THREADS_HPP
#define CURFEW_BENCH_PEERS_THREADS_HPP

#include <benchmark/benchmark.h>

namespace peers {

inline void threads(benchmark::internal::Benchmark* of) {
  of->Threads(1)->Threads(2)->Threads(4)->Threads(8)->UseRealTime();
}

}  // namespace peers

#endif  // CURFEW_BENCH_PEERS_THREADS_HPP
