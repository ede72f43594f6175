// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What a provider costs beside its backend: an owner takes its warm sandbox and gives it back, while so many others are
// warm. The backend is in memory and does nothing, so the figure is the provider's own: two hashes of the owner, the
// key, the lease in the store, the table. It must not grow with the number of warm sandboxes.
//
// side_by_side: each thread takes and gives back the warm sandbox of an owner of its own, first with the provider as it
// is and then with one mutex around every call of it, held for the whole call as in a design without keys. The argument
// is what a probe waits for its server, in microseconds. Where it waits, the mutex makes the others wait too, and the
// ratio of the two is about the number of threads. Where it does not, the ratio cannot pass the number of cores.

#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/e2b.hpp>

namespace {

using namespace curfew::sandbox;

class idle_backend {
 public:
  sandbox_info create(const create_request& request) {
    return {"vm-" + std::to_string(++made_), "memory://", request.id};
  }
  bool destroy(const std::string&) { return true; }
  liveness probe(const std::string&) { return liveness::alive; }
  std::vector<sandbox_info> list() { return {}; }
  bool set_timeout(const std::string&, std::chrono::seconds) { return true; }

 private:
  std::atomic<int> made_{0};
};

template <class Provider, class Options, bool Each>
void reclaim(benchmark::State& state) {
  const auto warm = static_cast<std::size_t>(state.range(0));
  Options options;
  options.replicas = warm + 1;
  Provider provider(std::make_shared<idle_backend>(), options);
  std::vector<owner_key> owners;
  for (std::size_t i = 0; i < warm; ++i) owners.push_back({"user", std::to_string(i)});
  for (const auto& owner : owners) static_cast<void>(provider.acquire(owner));
  std::size_t next = 0;
  for (auto _ : state) {
    auto lease = provider.acquire(owners[next]);
    benchmark::DoNotOptimize(lease);
    if (Each) next = (next + 7919) % warm;
  }
  state.counters["warm"] = static_cast<double>(provider.stats().warm);
}

// The same for an owner that was never here, at the cap: the oldest warm one is ended first.
template <class Provider, class Options>
void evict_and_create(benchmark::State& state) {
  const auto warm = static_cast<std::size_t>(state.range(0));
  Options options;
  options.replicas = warm;
  Provider provider(std::make_shared<idle_backend>(), options);
  std::size_t next = 0;
  for (; next < warm; ++next) static_cast<void>(provider.acquire({"user", std::to_string(next)}));
  for (auto _ : state) benchmark::DoNotOptimize(provider.acquire({"user", std::to_string(next++)}));
  state.counters["evicted"] = static_cast<double>(provider.stats().evicted);
}

class waiting_backend : public idle_backend {
 public:
  explicit waiting_backend(std::chrono::microseconds probe_takes) : probe_takes_(probe_takes) {}
  liveness probe(const std::string&) {
    if (probe_takes_.count() != 0) std::this_thread::sleep_for(probe_takes_);
    return liveness::alive;
  }

 private:
  std::chrono::microseconds probe_takes_;
};

template <class Provider, class Options, bool OneMutex>
void side_by_side(benchmark::State& state) {
  static std::unique_ptr<Provider> provider;
  static std::mutex all;
  if (state.thread_index() == 0) {  // the others wait for this one where the loop begins
    Options options;
    options.replicas = static_cast<std::size_t>(state.threads());
    provider = std::make_unique<Provider>(std::make_shared<waiting_backend>(std::chrono::microseconds(state.range(0))),
                                          options);
  }
  const owner_key owner{"user", std::to_string(state.thread_index())};
  for (auto _ : state) {
    lease held;
    {
      std::unique_lock lock(all, std::defer_lock);
      if (OneMutex) lock.lock();
      held = provider->acquire(owner);
    }
    benchmark::DoNotOptimize(held);
    std::unique_lock lock(all, std::defer_lock);
    if (OneMutex) lock.lock();
    held.release();
  }
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) provider.reset();  // the loop ends for all at once
}

using aio = aio_provider<idle_backend>;
using e2b = e2b_provider<idle_backend>;

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(100)->Arg(1000)->Arg(10'000);
}
BENCHMARK(reclaim<aio, aio_options, false>)->Name("aio/reclaim_one")->Apply(sizes);
BENCHMARK(reclaim<e2b, e2b_options, false>)->Name("e2b/reclaim_one")->Apply(sizes);
BENCHMARK(reclaim<aio, aio_options, true>)->Name("aio/reclaim_each")->Apply(sizes);
BENCHMARK(reclaim<e2b, e2b_options, true>)->Name("e2b/reclaim_each")->Apply(sizes);
BENCHMARK(evict_and_create<aio, aio_options>)->Name("aio/evict_and_create")->Apply(sizes);
BENCHMARK(evict_and_create<e2b, e2b_options>)->Name("e2b/evict_and_create")->Apply(sizes);

using waiting_aio = aio_provider<waiting_backend>;
using waiting_e2b = e2b_provider<waiting_backend>;

void threads(benchmark::internal::Benchmark* b) {
  b->ArgName("probe_us")->Arg(0)->Arg(200)->Threads(1)->Threads(2)->Threads(8)->UseRealTime();
}
BENCHMARK(side_by_side<waiting_aio, aio_options, false>)->Name("aio/side_by_side/keyed")->Apply(threads);
BENCHMARK(side_by_side<waiting_aio, aio_options, true>)->Name("aio/side_by_side/one_mutex")->Apply(threads);
BENCHMARK(side_by_side<waiting_e2b, e2b_options, false>)->Name("e2b/side_by_side/keyed")->Apply(threads);
BENCHMARK(side_by_side<waiting_e2b, e2b_options, true>)->Name("e2b/side_by_side/one_mutex")->Apply(threads);

}  // namespace

BENCHMARK_MAIN();
