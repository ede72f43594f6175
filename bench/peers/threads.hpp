// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The numbers of threads that readers are measured with: one, two, and twice as many as there are processors.

#ifndef CURFEW_BENCH_PEERS_THREADS_HPP
#define CURFEW_BENCH_PEERS_THREADS_HPP

#include <benchmark/benchmark.h>

#include <algorithm>
#include <thread>

namespace peers {

inline void threads(benchmark::internal::Benchmark* of) {
  const int processors = static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
  of->Threads(1)->Threads(2)->Threads(2 * processors)->UseRealTime();
}

}  // namespace peers

#endif  // CURFEW_BENCH_PEERS_THREADS_HPP
