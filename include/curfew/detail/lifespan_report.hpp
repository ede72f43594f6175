// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What an ordered_lifespan leaves behind: a record per hook, and a text a person can read.

#ifndef CURFEW_DETAIL_LIFESPAN_REPORT_HPP
#define CURFEW_DETAIL_LIFESPAN_REPORT_HPP

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/lifespan_json.hpp>
#include <curfew/detail/lifespan_types.hpp>
#include <curfew/detail/signal_table.hpp>

CURFEW_BEGIN_NAMESPACE

/// One hook of one stage. `began` counts from the stop request, for start hooks from start().
struct stage_record {
  std::string stage;
  lifespan_phase phase = lifespan_phase::start;
  stage_outcome outcome = stage_outcome::not_run;
  std::chrono::nanoseconds began{0};
  std::chrono::nanoseconds took{0};
  std::exception_ptr error;
};

/// Records are in the order in which the hooks ended; hooks that were never called come last. A stage that reported its
/// own failure at run time has a `failed` record of phase `start` ahead of the barriers.
struct lifespan_report {
  stop_cause cause = stop_cause::none;
  int signal = 0;  ///< the first stop signal counted, 0 when there was none
  int exit_code = 0;
  std::vector<stage_record> records;
  std::vector<std::string> displaced_handlers;
  std::vector<std::string> abandoned;
  std::chrono::nanoseconds total{0};  ///< from the stop request to the end
  std::map<int, unsigned> signals;    ///< how often each was counted
  std::vector<std::string> notes;     ///< hooks that ran without a thread of their own, reloads that failed
  unsigned observer_errors = 0;       ///< exceptions that observers let out

  /// For a person: a line for the whole, then one for each record, with a bar on a time axis.
  std::string to_string() const;
  /// For machines: one JSON object on one line, with the members of this class by their names; enumerators as text,
  /// durations in nanoseconds with `_ns` behind the name, errors as their what() or null, `signals` keyed by number.
  std::string to_json() const;
};

namespace detail {

inline std::string milliseconds_text(std::chrono::nanoseconds span) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", std::chrono::duration<double, std::milli>(span).count());
  return text;
}

inline std::string error_text(const std::exception_ptr& error) {
  if (!error) return {};
  if (CURFEW_EXCEPTIONS == 0) return "an exception, which nobody can look at in a program without exceptions";
  CURFEW_TRY {
    std::rethrow_exception(error);
  }
  CURFEW_CATCH(std::exception, e) {
    return e.what();
  }
  CURFEW_CATCH_ALL {
    return "an exception that is not a std::exception";
  }
}

inline std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace detail

/// One line for the whole, one for each record with a bar for when it ran, one for each further remark. Bars of start
/// hooks and of stop hooks have a time axis each.
inline std::string lifespan_report::to_string() const {
  constexpr std::size_t columns = 32;
  using fine = std::chrono::duration<double>;
  std::size_t width = 5;
  double span[2] = {1e-9, 1e-9};
  for (const auto& record : records) {
    width = std::max(width, record.stage.size());
    double& axis = span[record.phase == lifespan_phase::start ? 0 : 1];
    axis = std::max(axis, fine(record.began + record.took).count());
  }
  std::string text = std::string("stopped: ") + curfew::to_string(cause);
  if (signal != 0) text += ", " + detail::signal_name(signal);
  text += ", exit code " + std::to_string(exit_code) + ", " + detail::milliseconds_text(total) + "\n";
  for (const auto& record : records) {
    text += "  " + detail::padded(record.stage, width) + "  ";
    text += detail::padded(curfew::to_string(record.phase), 7) + "  ";
    text += detail::padded(curfew::to_string(record.outcome), 9) + "  ";
    const bool ran = record.outcome != stage_outcome::not_run && record.outcome != stage_outcome::skipped;
    std::string bar(columns, '.');
    if (ran) {
      const double axis = span[record.phase == lifespan_phase::start ? 0 : 1];
      const auto column = [&](std::chrono::nanoseconds at) {
        const double place = std::clamp(fine(at).count() / axis, 0.0, 1.0) * static_cast<double>(columns);
        return static_cast<std::size_t>(place);
      };
      const std::size_t first = std::min(column(record.began), columns - 1);
      const std::size_t last = std::clamp(column(record.began + record.took), first + 1, columns);
      std::fill(bar.begin() + static_cast<std::ptrdiff_t>(first), bar.begin() + static_cast<std::ptrdiff_t>(last), '#');
    }
    text += "|" + bar + "|";
    if (ran) text += "  +" + detail::milliseconds_text(record.began) + ", " + detail::milliseconds_text(record.took);
    if (record.error) text += "  " + detail::error_text(record.error);
    text += "\n";
  }
  for (const auto& line : abandoned) text += "  abandoned: " + line + "\n";
  for (const auto& line : displaced_handlers) text += "  displaced: " + line + "\n";
  for (const auto& [signo, count] : signals) {
    text += "  counted: " + detail::signal_name(signo) + " x" + std::to_string(count) + "\n";
  }
  for (const auto& line : notes) text += "  note: " + line + "\n";
  if (observer_errors != 0) text += "  note: " + std::to_string(observer_errors) + " exceptions from observers\n";
  return text;
}

/// The same as its member.
inline std::string lifespan_report::to_json() const {
  const auto member = [](const char* name, const std::string& value) {
    return detail::json_string(name) + ":" + value;
  };
  const auto ns = [](std::chrono::nanoseconds span) { return std::to_string(span.count()); };
  std::string list;
  for (const auto& record : records) {
    list += (list.empty() ? "{" : ",{") + member("stage", detail::json_string(record.stage)) + "," +
            member("phase", detail::json_string(curfew::to_string(record.phase))) + "," +
            member("outcome", detail::json_string(curfew::to_string(record.outcome))) + "," +
            member("began_ns", ns(record.began)) + "," + member("took_ns", ns(record.took)) + "," +
            member("error", record.error ? detail::json_string(detail::error_text(record.error)) : "null") + "}";
  }
  std::string counts;
  for (const auto& [signo, count] : signals) {
    counts += (counts.empty() ? "" : ",") + member(std::to_string(signo).c_str(), std::to_string(count));
  }
  return "{" + member("cause", detail::json_string(curfew::to_string(cause))) + "," +
         member("signal", std::to_string(signal)) + "," + member("exit_code", std::to_string(exit_code)) + "," +
         member("total_ns", ns(total)) + "," + member("records", "[" + list + "]") + "," +
         member("abandoned", detail::json_strings(abandoned)) + "," +
         member("displaced_handlers", detail::json_strings(displaced_handlers)) + "," +
         member("signals", "{" + counts + "}") + "," + member("notes", detail::json_strings(notes)) + "," +
         member("observer_errors", std::to_string(observer_errors)) + "}";
}

CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_REPORT_HPP
