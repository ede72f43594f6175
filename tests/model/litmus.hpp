// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Small programs with a known set of outcomes, written as text: threads are separated by |, instructions by spaces.
///
///     W<x><v>.<order>   x = v          R<x>.<order>   read x         U<x>.<order>   x += 1, read
///     F.<order>         fence          H, L           heavy fence, light fence
///     Q<x>              restartable sequence: if x is 0, adds 1 to the cell of its processor; 1 if it did, 0 if not
///     B                 restart of all sequences      Y   yield
///
/// Variables are x, y, z, w, and c, d, the cells of the processors 0 and 1; the second thread runs on 0, the first and
/// the third on 1. Orders are rlx, acq, rel, ar, sc. An outcome is what the reads returned, thread by thread.

#ifndef CURFEW_TESTS_MODEL_LITMUS_HPP
#define CURFEW_TESTS_MODEL_LITMUS_HPP

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <curfew/testing/explore.hpp>

namespace curfew_litmus {

using curfew::testing::model_sync;

struct instruction {
  char what;
  unsigned variable;
  int value;
  std::memory_order order;
};
using program = std::vector<std::vector<instruction>>;

inline program parse(const std::string& text) {
  program result(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word == "|") {
      result.emplace_back();
      continue;
    }
    instruction i{word[0], 0, 0, std::memory_order_relaxed};
    if (word.size() > 1 && word[1] != '.') {
      i.variable = static_cast<unsigned>(std::string_view("xyzwcd").find(word[1]));
    }
    if (i.what == 'W') i.value = word[2] - '0';
    const std::string order = word.find('.') == std::string::npos ? "rlx" : word.substr(word.find('.') + 1);
    i.order = order == "acq"   ? std::memory_order_acquire
              : order == "rel" ? std::memory_order_release
              : order == "ar"  ? std::memory_order_acq_rel
              : order == "sc"  ? std::memory_order_seq_cst
                               : std::memory_order_relaxed;
    result.back().push_back(i);
  }
  return result;
}

struct litmus {
  static inline const program* code = nullptr;
  static inline std::set<std::string>* outcomes = nullptr;
  static inline unsigned roles = 0;

  model_sync::atomic<int> variables[6];
  std::vector<int> reads[8];

  void role(unsigned number) {
    for (const instruction& i : (*code)[number]) {
      auto& variable = variables[i.variable];
      switch (i.what) {
        case 'W':
          variable.store(i.value, i.order);
          break;
        case 'R':
          reads[number].push_back(variable.load(i.order));
          break;
        case 'U':
          reads[number].push_back(variable.fetch_add(1, i.order));
          break;
        case 'F':
          model_sync::fence(i.order);
          break;
        case 'H':
          model_sync::heavy_fence();
          break;
        case 'Q':
          reads[number].push_back(curfew::testing::model::add_on_processor(
              variable,
              [](int gate, unsigned) { return gate == 0; }, [this](unsigned n) -> auto& { return variables[4 + n]; },
              1));
          break;
        case 'B':
          curfew::testing::restartable_model_sync::restart_all();
          break;
        case 'Y':
          model_sync::yield();
          break;
        default:
          model_sync::light_fence();
          break;
      }
    }
  }
  void finish() {
    std::string text;
    for (unsigned i = 0; i < roles; ++i) {
      for (const int value : reads[i]) text += std::to_string(value);
    }
    outcomes->insert(text);
  }
};

struct result {
  std::set<std::string> outcomes;
  curfew::testing::exploration run;
};

inline result run(const std::string& text, curfew::testing::search how, unsigned stale) {
  const program code = parse(text);
  result all;
  litmus::code = &code;
  litmus::outcomes = &all.outcomes;
  litmus::roles = static_cast<unsigned>(code.size());
  all.run = curfew::testing::explore<litmus>({.name = "litmus", .how = how, .stale_reads = stale});
  return all;
}

}  // namespace curfew_litmus

#endif  // CURFEW_TESTS_MODEL_LITMUS_HPP
