// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What a person reads about a schedule: the replay string that brings it back, and its story in columns, one for each
/// thread, with the line of code behind each step.

#ifndef CURFEW_TESTING_STORY_HPP
#define CURFEW_TESTING_STORY_HPP

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/testing/engine.hpp>

CURFEW_BEGIN_NAMESPACE
namespace testing::engine {

/// `mx1:<body>:<limits>:<choices>:<check>`. A choice is a base-36 digit; a capital letter repeats the one before it, A
/// once, B twice and so on. The check is a fingerprint of the run, which a replay must meet.
struct replay_text {
  std::string body;
  limits most;
  std::vector<choice> choices;
  uint32_t print = 0;

  std::string to_string() const {
    std::string text = "mx1:" + body + ":s" + std::to_string(most.stale_reads) + "p" +
                       std::to_string(most.spurious_wakeups) + "t" + std::to_string(most.timeouts) + "w" +
                       std::to_string(most.weak_failures);
    if (most.interruptions != 0) text += "i" + std::to_string(most.interruptions);
    if (most.migrations != 0) text += "m" + std::to_string(most.migrations);
    if (most.processors != limits{}.processors) text += "c" + std::to_string(most.processors);
    text += ":";
    for (std::size_t i = 0; i < choices.size();) {
      text += digit(choices[i]);
      std::size_t again = i + 1;
      while (again < choices.size() && choices[again] == choices[i] && again - i <= 26) ++again;
      if (again - i > 1) text += static_cast<char>('A' + (again - i - 2));
      i = again;
    }
    char check[16];
    std::snprintf(check, sizeof check, ":%08x", print);
    return text + check;
  }

  /// Throws std::invalid_argument, naming the text, when it is none.
  static replay_text parse(std::string_view text) {
    const auto bad = [text](const char* why) {
      return std::invalid_argument("not a replay string (" + std::string(why) + "): " + std::string(text));
    };
    std::vector<std::string_view> parts;
    for (std::string_view rest = text;;) {
      const std::size_t colon = rest.find(':');
      parts.push_back(rest.substr(0, colon));
      if (colon == std::string_view::npos) break;
      rest.remove_prefix(colon + 1);
    }
    if (parts.size() != 5 || parts[0] != "mx1") throw bad("needs five parts, the first of them mx1");
    replay_text result;
    result.body = parts[1];
    unsigned* const numbers[] = {&result.most.stale_reads,   &result.most.spurious_wakeups, &result.most.timeouts,
                                 &result.most.weak_failures, &result.most.interruptions,    &result.most.migrations,
                                 &result.most.processors};
    std::string_view left = parts[2];
    for (unsigned i = 0; i < 7; ++i) {
      const bool there = !left.empty() && left[0] == "sptwimc"[i];
      if (!there && i < 4) throw bad("limits");
      if (!there) continue;
      left.remove_prefix(1);
      *numbers[i] = 0;
      for (; !left.empty() && left[0] >= '0' && left[0] <= '9'; left.remove_prefix(1)) {
        *numbers[i] = *numbers[i] * 10 + static_cast<unsigned>(left[0] - '0');
      }
    }
    if (!left.empty() || result.most.processors == 0) throw bad("limits");
    for (const char c : parts[3]) {
      if (c >= 'A' && c <= 'Z') {
        if (result.choices.empty()) throw bad("begins with a repetition");
        result.choices.insert(result.choices.end(), static_cast<std::size_t>(c - 'A') + 1,
                              choice{result.choices.back()});
      } else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')) {
        result.choices.push_back(static_cast<choice>(c <= '9' ? c - '0' : c - 'a' + 10));
      } else {
        throw bad("choices");
      }
    }
    const std::string check(parts[4]);
    char* end = nullptr;
    result.print = static_cast<uint32_t>(std::strtoul(check.c_str(), &end, 16));
    if (check.empty() || *end != 0) throw bad("check");
    return result;
  }

 private:
  static char digit(choice c) noexcept { return static_cast<char>(c < 10 ? '0' + c : 'a' + (c - 10)); }
};

/// A story as a table. \p names has one name for each thread.
class story_table {
 public:
  static std::string draw(const std::vector<event>& events, const std::vector<std::string>& names) {
    std::vector<bool> busy(names.size());
    for (const event& e : events) busy[e.thread] = true;
    std::string text = "  step ";
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (busy[i]) text += "| " + padded(names[i], width);
    }
    text += "| code\n";
    unsigned number = 0;
    for (const event& e : events) {
      char count[16];
      std::snprintf(count, sizeof count, "%6u ", ++number);
      text += count;
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (busy[i]) text += "| " + padded(i == e.thread ? words(e) : std::string(), width);
      }
      text += "| " + place_of(e.at) + "\n";
    }
    return text;
  }

 private:
  static constexpr std::size_t width = 31;

  static std::string words(const event& e) {
    constexpr const char* letters[] = {"", "", "", "a", "m", "c", "p", "t"};
    std::string text = to_string(e.kind);
    if (e.on != place_kind::none && e.on != place_kind::everything && e.on != place_kind::clock) {
      text += std::string(" ") + letters[static_cast<unsigned>(e.on)] + std::to_string(e.ordinal);
    }
    if (e.on == place_kind::atomic) {
      if (e.reads && e.writes) {
        text += " " + value(e.before) + "->" + value(e.after);
      } else {
        text += e.reads ? " =" + value(e.before) : " :=" + value(e.after);
      }
      if (e.stale != 0) text += " (stale " + std::to_string(e.stale) + ")";
    }
    if (*e.remark != '\0') text += std::string(", ") + e.remark;
    return text;
  }

  static std::string value(uint64_t v) {
    if (v < 1'000'000) return std::to_string(v);
    if (~v < 1'000'000) return "-" + std::to_string(~v + 1);
    char hex[32];
    std::snprintf(hex, sizeof hex, "0x%llx", static_cast<unsigned long long>(v));
    return std::char_traits<char>::length(hex) > 10
               ? "0x.." + std::string(hex).substr(std::char_traits<char>::length(hex) - 5)
               : std::string(hex);
  }

  static std::string padded(std::string text, std::size_t to) {
    text.resize(std::max(text.size() + 1, to), ' ');
    return text;
  }

  // file:line, and what stands there if the source can be read from here.
  static std::string place_of(code_line at) {
    if (at.line == 0) return "";
    const std::string_view path = at.file;
    const std::size_t slash = path.rfind('/');
    std::string text(slash == std::string_view::npos ? path : path.substr(slash + 1));
    text += ":" + std::to_string(at.line);
    if (path.find("/curfew/") == std::string_view::npos && path.find("/c++/") != std::string_view::npos) return text;
    std::ifstream source{std::string(path)};
    std::string line;
    for (unsigned i = 0; i < at.line && std::getline(source, line);) ++i;
    const std::size_t first = line.find_first_not_of(" \t");
    if (source && first != std::string::npos) text += "  " + line.substr(first, 70);
    while (text.back() == ' ') text.pop_back();
    return text;
  }
};

}  // namespace testing::engine
CURFEW_END_NAMESPACE

#endif  // CURFEW_TESTING_STORY_HPP
