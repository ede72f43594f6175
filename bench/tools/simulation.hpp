// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What entering and leaving costs on machines that are not here: a model of cache lines that processors take from each
/// other. A line has one owner at a time. Who needs it and is not its owner waits until nobody else uses it, then as
/// long as the line travels, which depends on how far away its owner is; then it does its instruction. Nothing else
/// costs anything: no bandwidth, no prefetching, no sleeping in the kernel, which is kind to locks. Every processor
/// does some work of its own between two passes. The same constants give the same figures everywhere.

#ifndef CURFEW_BENCH_TOOLS_SIMULATION_HPP
#define CURFEW_BENCH_TOOLS_SIMULATION_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

namespace bench_tools {

/// Nanoseconds, but the processors in a complex and in a socket.
struct machine_model {
  int in_a_complex = 8, in_a_socket = 128;
  double near = 25, far = 90, remote = 180;  // a line from the same complex, the same socket, the other socket
  double plain = 0.5, locked = 5;            // an instruction on a line that is here
  double sequence = 0.6;                     // what a restartable sequence costs beside its addition
  double own_work = 200;
  double system_call = 200, send_interrupt = 100, interrupt = 1000;

  double travel(int from, int to) const {
    if (from == to || from < 0) return 0;
    if (from / in_a_complex == to / in_a_complex) return near;
    return from / in_a_socket == to / in_a_socket ? far : remote;
  }
};

enum class gate_kind {
  lane_each,       // restartable sequences, a lane for each processor
  sixteen_lanes,   // as admission_fence: the processors from the 17th on share the sixteen lines by locked additions
  stripes,         // sixteen stripes, locked additions
  one_word,        // two locked additions to one word
  mutex_and_count  // a lock taken and given back, twice
};

/// Nanoseconds that one enter and leave takes, when \p cpus processors do so at once: the mean of many.
inline double simulate(gate_kind kind, int cpus, const machine_model& m = {}) {
  constexpr int lanes = 16, rounds = 400;
  struct line {
    int owner = -1;
    double free_at = 0;
  };
  std::vector<line> lines(static_cast<std::size_t>(std::max(cpus, lanes)));

  const auto use = [&](int which, int cpu, double at, double instruction) {
    line& it = lines[static_cast<std::size_t>(which)];
    const double end = std::max(at, it.owner == cpu ? at : it.free_at) + m.travel(it.owner, cpu) + instruction;
    it.owner = cpu;
    it.free_at = end;
    return end;
  };
  // One of the two halves of a pass.
  const auto half = [&](int cpu, double at) {
    switch (kind) {
      case gate_kind::lane_each:
        return use(cpu, cpu, at, m.plain + m.sequence);
      case gate_kind::sixteen_lanes:
        if (cpu < lanes) return use(cpu, cpu, at, m.plain + m.sequence);
        return use(cpu % lanes, cpu, at, m.locked);
      case gate_kind::stripes:
        return use(cpu % lanes, cpu, at, m.locked);
      case gate_kind::one_word:
        return use(0, cpu, at, m.locked);
      default:  // taking it, the count, giving it back: nobody comes between
        return use(0, cpu, at, 2 * m.locked + m.plain);
    }
  };

  using event = std::tuple<double, int, int>;  // when, who, how many halves are done
  std::priority_queue<event, std::vector<event>, std::greater<>> next;
  for (int cpu = 0; cpu != cpus; ++cpu) next.emplace(0.37 * cpu, cpu, 0);
  // Work takes between half of its time and one and a half, or processors would fall into step.
  std::uint32_t random = 1;
  const auto work = [&] {
    random = random * 1664525u + 1013904223u;
    return m.own_work * (0.5 + static_cast<double>(random >> 8) / double(1u << 24));
  };
  double inside = 0;
  while (!next.empty()) {
    const auto [at, cpu, done] = next.top();
    next.pop();
    const double end = half(cpu, at);
    const bool warm = done >= rounds / 2;  // before, lines are still where nobody has used them
    if (warm) inside += end - at;
    if (done + 1 == rounds) continue;
    next.emplace(done % 2 == 0 ? end : end + work(), cpu, done + 1);
  }
  return inside / (static_cast<double>(cpus) * (rounds / 4));
}

/// Nanoseconds of one close() while the program runs on \p cpus processors: with \p restart, the system call interrupts
/// the others one by one and waits for the last; then, or else at once, the closer takes each lane to itself.
inline double simulate_close(bool restart, int cpus, const machine_model& m = {}) {
  double total = 0;
  if (restart) {
    total += m.system_call;
    if (cpus > 1) total += m.send_interrupt * (cpus - 1) + m.interrupt;
  }
  for (int lane = 0; lane != 16; ++lane) total += m.travel(std::min(lane, cpus - 1), 0) + m.locked;
  return total;
}

}  // namespace bench_tools

#endif  // CURFEW_BENCH_TOOLS_SIMULATION_HPP
