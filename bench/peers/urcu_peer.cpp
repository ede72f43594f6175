// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Read-side sections of liburcu: a pin that must be let go by the thread that took it, and that holds up every writer.

#include <benchmark/benchmark.h>

#define _LGPL_SOURCE  // inline, as its users have it
#include <urcu/urcu-memb.h>

#include "bench/peers/threads.hpp"

namespace {

struct service {
  int value = 1;
};
service* current = new service;

void BM_Peer_UrcuMemb(benchmark::State& state) {
  urcu_memb_register_thread();
  for (auto _ : state) {
    urcu_memb_read_lock();
    benchmark::DoNotOptimize(rcu_dereference(current)->value);
    urcu_memb_read_unlock();
  }
  urcu_memb_unregister_thread();
}
BENCHMARK(BM_Peer_UrcuMemb)->Apply(peers::threads);

}  // namespace
