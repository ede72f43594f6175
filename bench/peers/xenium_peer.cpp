// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Guards of xenium: a hazard pointer, and an epoch section. Both belong to the thread that made them.

#include <benchmark/benchmark.h>

#include <xenium/reclamation/generic_epoch_based.hpp>
#include <xenium/reclamation/hazard_pointer.hpp>

#include "bench/peers/threads.hpp"

namespace {

template <class Reclaimer>
struct service : Reclaimer::template enable_concurrent_ptr<service<Reclaimer>> {
  int value = 1;
};

template <class Reclaimer>
void guard(benchmark::State& state) {
  using pointer = typename Reclaimer::template concurrent_ptr<service<Reclaimer>>;
  static pointer& current = *new pointer(new service<Reclaimer>);
  for (auto _ : state) {
    typename pointer::guard_ptr pinned;
    pinned.acquire(current, std::memory_order_acquire);
    benchmark::DoNotOptimize(pinned->value);
  }
}

void BM_Peer_XeniumHazardPointer(benchmark::State& state) {
  guard<xenium::reclamation::hazard_pointer<>>(state);
}
BENCHMARK(BM_Peer_XeniumHazardPointer)->Apply(peers::threads);

void BM_Peer_XeniumEpoch(benchmark::State& state) {
  guard<xenium::reclamation::epoch_based<>>(state);
}
BENCHMARK(BM_Peer_XeniumEpoch)->Apply(peers::threads);

}  // namespace
