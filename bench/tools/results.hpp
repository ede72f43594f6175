// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a run has measured: of each row the median and the middle half of its repetitions. `read_google` takes it from
/// what Google Benchmark writes with every repetition in it, `write` and `read` keep it as one row a line, so that two
/// runs can be compared by eye. Times are nanoseconds, counters are what their benchmark says.

#ifndef CURFEW_BENCH_TOOLS_RESULTS_HPP
#define CURFEW_BENCH_TOOLS_RESULTS_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/tools/json.hpp"

namespace bench_tools {

/// Median, and where the middle half of the repetitions begins and ends.
struct spread {
  double median = 0, low = 0, high = 0;
};

inline spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const double middle = n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {middle, values[n / 4], values[n - 1 - n / 4]};
}

/// Metrics of one row: "cpu" and "real" in nanoseconds, and the counters by their names.
using row = std::map<std::string, spread, std::less<>>;

struct results {
  std::map<std::string, std::string, std::less<>> machine;  // in words: commit, cpu, compiler, command, ...
  std::map<std::string, row, std::less<>> rows;

  /// \p key is a row and, after an @, a metric (else "cpu"), with a factor after a *; or a number after a =.
  std::optional<spread> find(std::string_view key) const {
    if (!key.empty() && key.front() == '=') {
      const double value = std::stod(std::string(key.substr(1)));
      return spread{value, value, value};
    }
    if (const auto times = key.rfind('*'); times != key.npos) {
      auto found = find(key.substr(0, times));
      const double factor = std::stod(std::string(key.substr(times + 1)));
      if (found) *found = {found->median * factor, found->low * factor, found->high * factor};
      return found;
    }
    const auto at = key.find('@');
    const auto found = rows.find(key.substr(0, at));
    if (found == rows.end()) return std::nullopt;
    const auto metric = found->second.find(at == key.npos ? std::string_view("cpu") : key.substr(at + 1));
    if (metric == found->second.end()) return std::nullopt;
    return metric->second;
  }
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

/// Three significant digits, without an exponent.
inline std::string short_number(double value) {
  const double size = std::fabs(value);
  const int digits = size == 0 ? 0 : std::clamp(2 - static_cast<int>(std::floor(std::log10(size) + 1e-9)), 0, 3);
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// As it would be written by hand: 10, 1.15, 1000000.
inline std::string plain_number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.8g", value);
  return text;
}

/// Adds what \p text, of one run of one program, says. Each row is named \p program / and the name it has there.
inline void read_google(results& into, const std::string& program, std::string_view text) {
  // What is neither a counter nor one of the two times.
  static const char* const other[] = {"family_index", "per_family_instance_index",
                                      "repetitions",  "repetition_index",
                                      "threads",      "iterations",
                                      "real_time",    "cpu_time"};
  std::map<std::string, std::map<std::string, std::vector<double>>> repetitions;
  const json document = json_parser::parse(text);
  for (const json& entry : document.at("benchmarks").items) {
    const std::string& name = entry.at("name").text;
    if (const json* const error = entry.find("error_occurred"); error != nullptr && error->number != 0) {
      throw std::runtime_error(name + ": " + entry.at("error_message").text);
    }
    if (entry.at("run_type").text != "iteration") continue;
    const std::string& unit = entry.at("time_unit").text;
    const double scale = unit == "ns" ? 1 : unit == "us" ? 1e3 : unit == "ms" ? 1e6 : 1e9;
    auto& metrics = repetitions[program + "/" + entry.at("run_name").text];
    metrics["cpu"].push_back(entry.at("cpu_time").number * scale);
    metrics["real"].push_back(entry.at("real_time").number * scale);
    for (std::size_t i = 0; i < entry.items.size(); ++i) {
      const std::string& key = entry.names[i];
      const bool counter = entry.items[i].type == json::kind::number &&
                           std::none_of(std::begin(other), std::end(other), [&](auto known) { return key == known; });
      if (counter) metrics[key].push_back(entry.items[i].number);
    }
  }
  for (auto& [name, metrics] : repetitions) {
    row& entry = into.rows[name];
    for (auto& [metric, values] : metrics) entry[metric] = spread_of(std::move(values));
  }
}

inline std::string to_text(const results& of) {
  std::string text = "{\"machine\": {";
  const auto quoted = [](const std::string& plain) {
    std::string result = "\"";
    for (const char c : plain) {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
    return result + '"';
  };
  const auto number = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.5g", value);
    return std::string(digits);
  };
  const char* before = "\n  ";
  for (const auto& [key, value] : of.machine) {
    text += before + quoted(key) + ": " + quoted(value);
    before = ",\n  ";
  }
  text += "},\n\"rows\": {";
  before = "\n  ";
  for (const auto& [name, metrics] : of.rows) {
    text += before + quoted(name) + ": {";
    const char* comma = "";
    for (const auto& [metric, value] : metrics) {
      text += comma + quoted(metric) + ": [" + number(value.median) + ", " + number(value.low) + ", " +
              number(value.high) + "]";
      comma = ", ";
    }
    text += "}";
    before = ",\n  ";
  }
  return text + "}}\n";
}

inline results from_text(std::string_view text) {
  results result;
  const json document = json_parser::parse(text);
  const json& machine = document.at("machine");
  for (std::size_t i = 0; i < machine.items.size(); ++i) result.machine[machine.names[i]] = machine.items[i].text;
  const json& rows = document.at("rows");
  for (std::size_t i = 0; i < rows.items.size(); ++i) {
    row& entry = result.rows[rows.names[i]];
    for (std::size_t k = 0; k < rows.items[i].items.size(); ++k) {
      const std::vector<json>& numbers = rows.items[i].items[k].items;
      if (numbers.size() != 3) throw std::runtime_error(rows.names[i] + " has a metric that has not three numbers");
      entry[rows.items[i].names[k]] = {numbers[0].number, numbers[1].number, numbers[2].number};
    }
  }
  return result;
}

/// The lines of a table: without comments and empty lines, each cut at the bars, without outer blanks.
inline std::vector<std::vector<std::string>> read_table(std::string_view text) {
  std::vector<std::vector<std::string>> table;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> fields;
    for (bool more = true; more;) {
      const auto bar = line.find('|');
      std::string_view field = line.substr(0, bar);
      while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
      while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
      fields.emplace_back(field);
      more = bar != line.npos;
      if (more) line.remove_prefix(bar + 1);
    }
    table.push_back(std::move(fields));
  }
  return table;
}

}  // namespace bench_tools

#endif  // CURFEW_BENCH_TOOLS_RESULTS_HPP
