// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// bench/charts.txt: which rows stand together in a chart, and the same as a table of Markdown.
///
///     chart | name | bars, lines or table | log or linear | metric's unit | factor from the metric to the unit | title
///     series | label=value | ...        for each, the $ in the keys below becomes the value
///     row | label | key                 a key of results::find()
///
/// Rows of which nothing was measured are left out: their package was not installed.

#ifndef CURFEW_BENCH_TOOLS_CHART_HPP
#define CURFEW_BENCH_TOOLS_CHART_HPP

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/tools/results.hpp"

namespace bench_tools {

struct chart {
  std::string name, unit, title;
  bool drawn = true, lines = false, logarithmic = false;  // a table is not drawn
  double factor = 1;
  std::vector<std::pair<std::string, std::string>> series;  // label, value
  std::vector<std::pair<std::string, std::string>> rows;    // label, key
};

struct chart_row {
  std::string label;
  std::vector<std::optional<spread>> cells;  // one for each series, in the unit
};

inline std::vector<chart> read_charts(std::string_view text) {
  std::vector<chart> charts;
  for (const auto& fields : read_table(text)) {
    if (fields[0] == "chart" && fields.size() == 7) {
      chart each;
      each.name = fields[1];
      each.drawn = fields[2] != "table";
      each.lines = fields[2] == "lines";
      each.logarithmic = fields[3] == "log";
      each.unit = fields[4];
      each.factor = std::stod(fields[5]);
      each.title = fields[6];
      charts.push_back(std::move(each));
    } else if (fields[0] == "series" && !charts.empty()) {
      for (std::size_t i = 1; i < fields.size(); ++i) {
        const auto equals = fields[i].find('=');
        charts.back().series.emplace_back(fields[i].substr(0, equals),
                                          equals == std::string::npos ? "" : fields[i].substr(equals + 1));
      }
    } else if (fields[0] == "row" && fields.size() == 3 && !charts.empty()) {
      charts.back().rows.emplace_back(fields[1], fields[2]);
    } else {
      throw std::runtime_error("charts: cannot read the line of: " + fields[0]);
    }
  }
  return charts;
}

inline std::vector<chart_row> measured_rows(const chart& of, const results& run) {
  std::vector<chart_row> rows;
  for (const auto& [label, key] : of.rows) {
    chart_row each{label, {}};
    bool any = false;
    for (const auto& one : of.series) {
      std::string full = key;
      for (auto at = full.find('$'); at != std::string::npos; at = full.find('$')) full.replace(at, 1, one.second);
      auto cell = run.find(full);
      if (cell) *cell = {cell->median * of.factor, cell->low * of.factor, cell->high * of.factor};
      any = any || cell;
      each.cells.push_back(cell);
    }
    if (any) rows.push_back(std::move(each));
  }
  return rows;
}

inline std::string to_markdown(const chart& of, const results& run) {
  std::string text = "| " + of.title + ", " + of.unit + " |";
  for (const auto& one : of.series) text += " " + one.first + " |";
  text += "\n|---|";
  for (std::size_t i = 0; i < of.series.size(); ++i) text += "---:|";
  for (const auto& each : measured_rows(of, run)) {
    text += "\n| " + each.label + " |";
    for (const auto& cell : each.cells) text += " " + (cell ? short_number(cell->median) : std::string()) + " |";
  }
  return text + "\n";
}

class svg {
 public:
  svg(const chart& of, const results& run) : chart_(of), rows_(measured_rows(of, run)) {
    double least = 0, most = 0;
    for (const auto& each : rows_) {
      for (const auto& cell : each.cells) {
        if (!cell) continue;
        most = std::max(most, cell->high);
        if (cell->low > 0) least = least == 0 ? cell->low : std::min(least, cell->low);
      }
    }
    most_ = most > 0 ? most : 1;
    least_ = 0;
    if (of.logarithmic) {
      least_ = std::pow(10, std::floor(std::log10(least > 0 ? least : 0.1) - 1e-9));
      most_ = std::pow(10, std::ceil(std::log10(most_) - 0.05));
      most_ = std::max({most_, most, least_ * 10});
    }
    draw(run);
  }

  const std::string& text() const { return text_; }

 private:
  static constexpr double width = 800, left = 240, right = 730;

  static std::string n(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.1f", value);
    return digits;
  }
  static std::string escaped(std::string_view plain) {
    std::string result;
    for (const char c : plain) {
      result += c == '<' ? std::string("&lt;") : c == '&' ? std::string("&amp;") : std::string(1, c);
    }
    return result;
  }
  void label(double x, double y, const char* css, std::string_view what) {
    text_ +=
        "<text class=\"" + std::string(css) + "\" x=\"" + n(x) + "\" y=\"" + n(y) + "\">" + escaped(what) + "</text>\n";
  }
  void line(double x1, double y1, double x2, double y2, const std::string& css) {
    text_ += "<line class=\"" + css + "\" x1=\"" + n(x1) + "\" y1=\"" + n(y1) + "\" x2=\"" + n(x2) + "\" y2=\"" +
             n(y2) + "\"/>\n";
  }
  /// From 0 to 1 along the axis of values.
  double part(double value) const {
    if (!chart_.logarithmic) return value / most_;
    return std::clamp(std::log(std::max(value, least_) / least_) / std::log(most_ / least_), 0.0, 1.0);
  }
  std::vector<double> ticks() const {
    std::vector<double> all;
    if (chart_.logarithmic) {
      for (double at = least_; at <= most_ * 1.0001; at *= 10) all.push_back(at);
    } else {
      double step = std::pow(10, std::floor(std::log10(most_)));
      while (most_ / step < 3) step /= 2;
      for (double at = 0; at <= most_ * 1.0001; at += step) all.push_back(at);
    }
    return all;
  }
  static std::string colour(std::size_t i) { return "s" + std::to_string(i % 8); }

  void draw(const results& run) {
    const double bar = 11, gap = 10;
    const double group = static_cast<double>(chart_.series.size()) * bar + gap;
    const double bottom = chart_.lines ? 70 + 320 : 70 + static_cast<double>(rows_.size()) * group;
    const double height = bottom + 90;
    text_ =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + n(width) + " " + n(height) +
        "\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>" + escaped(chart_.title) +
        "</title>\n<style>\n"
        ".paper{fill:#fff}text{fill:#1f2328}.title{font-size:15px;font-weight:bold}.note{font-size:10px;fill:#59636e}\n"
        ".name{text-anchor:end}.tick{text-anchor:middle;fill:#59636e}.grid{stroke:#d1d9e0}.whisker{stroke:#1f2328}\n"
        ".s0{fill:#0969da;stroke:#0969da}.s1{fill:#bc4c00;stroke:#bc4c00}.s2{fill:#1a7f37;stroke:#1a7f37}"
        ".s3{fill:#8250df;stroke:#8250df}\n.s4{fill:#bf3989;stroke:#bf3989}.s5{fill:#7d4e00;stroke:#7d4e00}"
        ".s6{fill:#57606a;stroke:#57606a}.s7{fill:#116329;stroke:#116329}\n"
        ".curve{fill:none;stroke-width:2}\n"
        "@media (prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6edf3}.note,.tick{fill:#9198a1}"
        ".grid{stroke:#30363d}.whisker{stroke:#e6edf3}\n"
        ".s0{fill:#58a6ff;stroke:#58a6ff}.s1{fill:#f0883e;stroke:#f0883e}.s2{fill:#3fb950;stroke:#3fb950}"
        ".s3{fill:#bc8cff;stroke:#bc8cff}\n.s4{fill:#f778ba;stroke:#f778ba}.s5{fill:#d29922;stroke:#d29922}"
        ".s6{fill:#8b949e;stroke:#8b949e}.s7{fill:#7ee787;stroke:#7ee787}.curve{fill:none}}\n"
        "</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n";
    label(10, 24, "title", chart_.title);
    if (chart_.lines) {
      curves(bottom);
    } else {
      bars(bottom, bar, group);
    }
    const auto said = [&](const char* what) {
      const auto found = run.machine.find(what);
      return found == run.machine.end() ? std::string("?") : found->second;
    };
    label(10, height - 24, "note",
          said("cpu") + ", " + said("processors") + " processors, " + said("system") + "; " + said("compiler") +
              "; commit " + said("commit"));
    label(10, height - 10, "note",
          said("command") + (chart_.lines ? "" : "; whiskers: the middle half of repetitions"));
  }

  void legend(std::size_t i, double x, double y, const std::string& name) {
    text_ +=
        "<rect class=\"" + colour(i) + "\" x=\"" + n(x) + "\" y=\"" + n(y - 9) + "\" width=\"10\" height=\"10\"/>\n";
    label(x + 15, y, "plain", name);
  }

  void bars(double bottom, double bar, double group) {
    double x_of_legend = left;
    for (std::size_t i = 0; i < chart_.series.size() && chart_.series.size() > 1; ++i) {
      legend(i, x_of_legend, 46, chart_.series[i].first);
      x_of_legend += 40 + 6.5 * static_cast<double>(chart_.series[i].first.size());
    }
    for (const double at : ticks()) {
      const double x = left + part(at) * (right - left);
      line(x, 58, x, bottom, "grid");
      label(x, bottom + 15, "tick", plain_number(at));
    }
    label(left, bottom + 32, "plain", chart_.unit + (chart_.logarithmic ? ", logarithmic" : ""));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const double top = 65 + static_cast<double>(i) * group;
      label(left - 8, top + (group - 10) / 2 + 4, "name", rows_[i].label);
      for (std::size_t k = 0; k < rows_[i].cells.size(); ++k) {
        const auto& cell = rows_[i].cells[k];
        if (!cell) continue;
        const double y = top + static_cast<double>(k) * bar;
        const double end = left + part(cell->median) * (right - left);
        text_ += "<rect class=\"" + colour(k) + "\" x=\"" + n(left) + "\" y=\"" + n(y) + "\" width=\"" +
                 n(std::max(end - left, 1.0)) + "\" height=\"" + n(bar - 2) + "\"/>\n";
        const double tail = left + part(cell->high) * (right - left);
        line(left + part(cell->low) * (right - left), y + 4.5, tail, y + 4.5, "whisker");
        label(std::max(end, tail) + 5, y + 8.5, "note", short_number(cell->median));
      }
    }
  }

  /// One curve for each row over the values of the series, which are numbers; both axes logarithmic where that fits.
  void curves(double bottom) {
    const double top = 46, begin = 70, end = 560;
    const auto x_of = [&](std::size_t k) {
      const auto last = static_cast<double>(std::max<std::size_t>(chart_.series.size(), 2) - 1);
      return begin + static_cast<double>(k) / last * (end - begin);
    };
    const auto y_of = [&](double value) { return bottom - part(value) * (bottom - top); };
    for (const double at : ticks()) {
      line(begin, y_of(at), end, y_of(at), "grid");
      label(begin - 8, y_of(at) + 4, "name", plain_number(at));
    }
    for (std::size_t k = 0; k < chart_.series.size(); ++k) {
      line(x_of(k), top, x_of(k), bottom, "grid");
      label(x_of(k), bottom + 15, "tick", chart_.series[k].second);
    }
    label(begin, bottom + 32, "plain", chart_.unit + (chart_.logarithmic ? ", logarithmic" : ""));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::string points;
      for (std::size_t k = 0; k < rows_[i].cells.size(); ++k) {
        if (rows_[i].cells[k]) points += n(x_of(k)) + "," + n(y_of(rows_[i].cells[k]->median)) + " ";
      }
      text_ += "<polyline class=\"" + colour(i) + " curve\" fill=\"none\" points=\"" + points + "\"/>\n";
      legend(i, end + 15, top + 10 + 18 * static_cast<double>(i), rows_[i].label);
    }
  }

  const chart& chart_;
  std::vector<chart_row> rows_;
  double least_ = 0, most_ = 1;
  std::string text_;
};

inline std::string to_svg(const chart& of, const results& run) {
  const svg drawing(of, run);
  return drawing.text() + "</svg>\n";
}

}  // namespace bench_tools

#endif  // CURFEW_BENCH_TOOLS_CHART_HPP
