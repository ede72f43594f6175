// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Enough of JSON for what benchmarks write: a reader into a tree whose numbers are doubles. Anything else throws
/// std::runtime_error with the offset. The kit's own reader is for what servers answer and has no fractions.

#ifndef CURFEW_BENCH_TOOLS_JSON_HPP
#define CURFEW_BENCH_TOOLS_JSON_HPP

#include <charconv>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace bench_tools {

struct json {
  enum class kind { null, boolean, number, text, array, object };

  kind type = kind::null;
  double number = 0;  // of a boolean: 0 or 1
  std::string text;
  std::vector<json> items;         // of an array or an object
  std::vector<std::string> names;  // of the items of an object

  const json* find(std::string_view name) const {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return &items[i];
    }
    return nullptr;
  }
  const json& at(std::string_view name) const {
    const json* const found = find(name);
    if (found == nullptr) throw std::runtime_error("json: no member " + std::string(name));
    return *found;
  }
};

class json_parser {
 public:
  static json parse(std::string_view text) {
    json_parser parser(text);
    json value = parser.value(0);
    if (parser.peek() != '\0') parser.fail("something after the value");
    return value;
  }

 private:
  explicit json_parser(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error("json: " + std::string(what) + " at " + std::to_string(at_));
  }
  /// The next character that is not blank, '\0' at the end.
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || (text_[at_] >= '\t' && text_[at_] <= '\r'))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  json value(int depth) {
    if (depth > 16) fail("too deep");
    json result;
    switch (peek()) {
      case '{':
      case '[': {
        const bool named = text_[at_++] == '{';
        const char end = named ? '}' : ']';
        result.type = named ? json::kind::object : json::kind::array;
        if (take(end)) return result;
        do {
          if (named) {
            result.names.push_back(string());
            if (!take(':')) fail("no colon");
          }
          result.items.push_back(value(depth + 1));
        } while (take(','));
        if (!take(end)) fail("neither comma nor end");
        return result;
      }
      case '"':
        result.type = json::kind::text;
        result.text = string();
        return result;
      default:
        break;
    }
    if (take_word("null")) return result;
    if (text_.substr(at_, 1) == "t" || text_.substr(at_, 1) == "f") {
      result.type = json::kind::boolean;
      if (take_word("true")) {
        result.number = 1;
      } else if (!take_word("false")) {
        fail("neither true nor false");
      }
      return result;
    }
    result.type = json::kind::number;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), result.number);
    if (error != std::errc()) fail("not a value");
    at_ = static_cast<std::size_t>(stop - text_.data());
    return result;
  }

  std::string string() {
    if (!take('"')) fail("no string");
    std::string result;
    for (;; ++at_) {
      if (at_ >= text_.size()) fail("a string without end");
      if (text_[at_] == '"') break;
      if (text_[at_] == '\\' && ++at_ < text_.size()) {
        // Names of benchmarks have no control characters: the letters behind the others are of no interest.
        const std::string_view letters = "\"\\/";
        if (letters.find(text_[at_]) == std::string_view::npos) continue;
      }
      if (at_ < text_.size()) result += text_[at_];
    }
    ++at_;
    return result;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace bench_tools

#endif  // CURFEW_BENCH_TOOLS_JSON_HPP
