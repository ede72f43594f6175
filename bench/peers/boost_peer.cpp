// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// An owning handle from boost::atomic_shared_ptr.

#include <benchmark/benchmark.h>

#include <boost/smart_ptr/atomic_shared_ptr.hpp>
#include <boost/smart_ptr/make_shared.hpp>

#include "bench/peers/threads.hpp"

namespace {

struct service {
  int value = 1;
};

void BM_Peer_BoostAtomicSharedPtr(benchmark::State& state) {
  static boost::atomic_shared_ptr<service> pointer{boost::make_shared<service>()};
  for (auto _ : state) {
    const auto copy = pointer.load();
    benchmark::DoNotOptimize(copy->value);
  }
}
BENCHMARK(BM_Peer_BoostAtomicSharedPtr)->Apply(peers::threads);

}  // namespace
