// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The stages as they were declared, and the layers that follow from their `after` lists.

#ifndef CURFEW_DETAIL_LIFESPAN_GRAPH_HPP
#define CURFEW_DETAIL_LIFESPAN_GRAPH_HPP

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_types.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

inline constexpr std::size_t phase_count = 5;
constexpr std::size_t index_of(lifespan_phase phase) noexcept {
  return static_cast<std::size_t>(phase);
}

/// A fence of any kind, as a stage sees it.
class fence_port {
 public:
  virtual ~fence_port() = default;
  virtual void close() noexcept = 0;
  /// Calls \p ring(\p arg) once the fence is closed and empty, unless disarm() comes first.
  virtual void arm(void (*ring)(void*) noexcept, void* arg) noexcept = 0;
  /// Whether that has happened. Once true, nothing of the fence's side refers to this object or to `arg` any more.
  virtual bool drained() noexcept = 0;
  /// After it, `ring` is not called any more. The result is that of drained().
  virtual bool disarm() noexcept = 0;
  virtual std::string occupants() const = 0;
};

/// What a hook of the kit's own returns. Empty: all went well. A text makes it a failure like an exception would, also
/// where there are no exceptions. What users' hooks return is ignored.
struct hook_complaint {
  std::string text;
};

/// A stage as declared. Shared with the threads of its hooks: an abandoned hook goes on using it for ever.
struct stage_node {
  explicit stage_node(std::string its_name) : name(std::move(its_name)) {}

  std::string name;
  std::array<std::function<hook_complaint(const stage_context&)>, phase_count> hooks;
  std::array<std::optional<std::chrono::nanoseconds>, phase_count> budgets;
  std::vector<std::string> after;
  std::vector<std::unique_ptr<fence_port>> fences;
  std::function<void()> given_up;  // told when one of its hooks is abandoned; must not throw
  bool on_controller = false;
  bool parallel = false;

  bool has_hook(lifespan_phase phase) const noexcept { return static_cast<bool>(hooks[index_of(phase)]); }
  bool takes_part(lifespan_phase phase) const noexcept {
    return has_hook(phase) || (!fences.empty() && (phase == lifespan_phase::close || phase == lifespan_phase::drain));
  }
};

using stage_list = std::vector<std::shared_ptr<stage_node>>;

/// Stages, by their place in the list, whose start may begin when the layer before has ended.
struct stage_layer {
  std::vector<std::size_t> members;  // by registration
  bool parallel = true;
};

inline void check_budgets(const lifespan_options& options) {
  const auto check = [&](const char* what, std::chrono::nanoseconds span, bool may_be_zero) {
    if (span < std::chrono::nanoseconds::zero() || (!may_be_zero && span == std::chrono::nanoseconds::zero())) {
      CURFEW_THROW(bad_graph("lifespan '" + options.name + "': " + what + " must " +
                             (may_be_zero ? "not be negative" : "be positive")));
    }
  };
  check("start_budget", options.start_budget, false);
  check("stop_budget", options.stop_budget, false);
  check("stage_start", options.stage_start, false);
  check("stage_close", options.stage_close, false);
  check("stage_drain", options.stage_drain, false);
  check("stage_stop", options.stage_stop, false);
  check("stage_reserve", options.stage_reserve, true);
  check("hang_grace", options.hang_grace, true);
  check("announce", options.announce, true);
  check("hurried_budget", options.hurried_budget, true);
  check("escalation_guard", options.escalation_guard, true);
}

/// Walks from a stage that waits for another that waits, until one comes up twice; "a -> b" reads: a comes after b.
inline std::string describe_cycle(const stage_list& stages, const std::vector<std::vector<std::size_t>>& before,
                                  const std::vector<std::size_t>& missing, std::size_t from) {
  std::vector<std::size_t> path;
  std::vector<bool> seen(stages.size(), false);
  while (!seen[from]) {
    seen[from] = true;
    path.push_back(from);
    for (const std::size_t next : before[from]) {
      if (missing[next] != 0) {
        from = next;
        break;
      }
    }
  }
  std::string text;
  bool inside = false;
  for (const std::size_t stage : path) {
    inside = inside || stage == from;
    if (inside) text += stages[stage]->name + " -> ";
  }
  return text + stages[from]->name;
}

/// A stage's layer is the length of its longest `after` chain. Throws bad_graph.
inline std::vector<stage_layer> make_layers(const stage_list& stages) {
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i != stages.size(); ++i) {
    const auto& stage = *stages[i];
    if (stage.name.empty()) CURFEW_THROW(bad_graph("stage number " + std::to_string(i + 1) + " has an empty name"));
    if (!by_name.emplace(stage.name, i).second) CURFEW_THROW(bad_graph("two stages are called '" + stage.name + "'"));
    for (std::size_t p = 0; p != phase_count; ++p) {
      if (stage.budgets[p] && *stage.budgets[p] <= std::chrono::nanoseconds::zero()) {
        CURFEW_THROW(bad_graph("stage '" + stage.name + "': the " + to_string(static_cast<lifespan_phase>(p)) +
                               " budget must be positive"));
      }
    }
  }
  std::vector<std::vector<std::size_t>> before(stages.size());
  std::vector<std::vector<std::size_t>> behind(stages.size());
  std::vector<std::size_t> missing(stages.size(), 0);
  for (std::size_t i = 0; i != stages.size(); ++i) {
    for (const auto& name : stages[i]->after) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) {
        CURFEW_THROW(bad_graph("stage '" + stages[i]->name + "' comes after '" + name + "', which does not exist"));
      }
      before[i].push_back(found->second);
      behind[found->second].push_back(i);
      ++missing[i];
    }
  }
  std::vector<std::size_t> depth(stages.size(), 0);
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i != stages.size(); ++i) {
    if (missing[i] == 0) free.push_back(i);
  }
  std::size_t depths = 0;
  for (std::size_t done = 0; done != free.size(); ++done) {
    const std::size_t stage = free[done];
    depths = std::max(depths, depth[stage] + 1);
    for (const std::size_t next : behind[stage]) {
      depth[next] = std::max(depth[next], depth[stage] + 1);
      if (--missing[next] == 0) free.push_back(next);
    }
  }
  if (free.size() != stages.size()) {
    for (std::size_t i = 0; i != stages.size(); ++i) {
      if (missing[i] != 0)
        CURFEW_THROW(bad_graph("stages form a cycle: " + describe_cycle(stages, before, missing, i)));
    }
  }
  std::vector<stage_layer> layers(depths);
  for (std::size_t i = 0; i != stages.size(); ++i) {
    layers[depth[i]].members.push_back(i);
    // Hooks on the controller have one thread between them, and each its own slice of time.
    const bool own_thread = stages[i]->parallel && !stages[i]->on_controller;
    layers[depth[i]].parallel = layers[depth[i]].parallel && own_thread;
  }
  return layers;
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_GRAPH_HPP
