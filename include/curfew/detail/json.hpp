// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// JSON as the REST backends need it: a strict reader into a tree with typed access, and a writer for requests. What
/// comes from a server is not trusted: depth is bounded, text is checked to be UTF-8, a name that occurs twice in one
/// object is refused because two readers could take either, and whatever is not as expected is one error,
/// backend_error(bad_response).

#ifndef CURFEW_DETAIL_JSON_HPP
#define CURFEW_DETAIL_JSON_HPP

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/sandbox/backend.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Shortest forms only, no surrogates, nothing above U+10FFFF.
constexpr bool is_utf8(std::string_view text) noexcept {
  constexpr char32_t smallest[] = {0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i++]);
    if (lead < 0x80) continue;
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc0 || lead > 0xf7 || text.size() - i < more) return false;
    char32_t code = lead & (0x3fU >> more);
    for (std::size_t k = 0; k < more; ++k) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    if (code < smallest[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
  }
  return true;
}

/// One value. Access says what is expected; anything else throws backend_error(bad_response).
class json_value {
 public:
  enum class kind : unsigned char { null, boolean, number, string, array, object };

  kind type() const noexcept { return kind_; }

  bool boolean() const { return need(kind::boolean, "a boolean").flag_; }
  const std::string& string() const { return need(kind::string, "a string").text_; }
  const std::vector<json_value>& array() const { return need(kind::array, "an array").items_; }

  /// A number without fraction and exponent that fits.
  std::int64_t integer() const {
    const std::string& digits = need(kind::number, "a number").text_;
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || stop != digits.data() + digits.size()) fail("an integer");
    return value;
  }

  /// The member of that name of an object.
  const json_value& at(std::string_view name) const {
    const json_value* const found = need(kind::object, "an object").find(name);
    if (found == nullptr) fail("a member that is missing");
    return *found;
  }

  /// The member of that name; null when there is none, or this is no object.
  const json_value* find(std::string_view name) const noexcept {
    const auto found = names_.find(name);
    return found != names_.end() ? &items_[found->second] : nullptr;
  }

  /// The string of that name, or empty when this is no object, has no such member, or it is no string.
  std::string text_or_empty(std::string_view name) const {
    const json_value* const found = find(name);
    return found != nullptr && found->kind_ == kind::string ? found->text_ : std::string();
  }

 private:
  friend class json_reader;

  [[noreturn]] static void fail(const char* what) {
    throw sandbox::backend_error(sandbox::backend_fault::bad_response,
                                 std::string("json: the response was expected to have ") + what);
  }
  const json_value& need(kind wanted, const char* what) const {
    if (kind_ != wanted) fail(what);
    return *this;
  }

  std::string text_;                                       // of a string; of a number its digits
  std::vector<json_value> items_;                          // of an array or an object
  std::map<std::string, std::size_t, std::less<>> names_;  // of an object: where in items_
  bool flag_ = false;
  kind kind_ = kind::null;
};

class json_reader {
 public:
  static constexpr unsigned most_depth = 64;

  /// The one value that \p text is. Throws backend_error(bad_response) for everything else.
  static json_value read(std::string_view text) {
    json_reader reader(text);
    require(is_utf8(text), "text that is not UTF-8");
    json_value value = reader.value(0);
    reader.skip_blanks();
    require(reader.at_ == text.size(), "text after the value");
    return value;
  }

 private:
  using kind = json_value::kind;

  explicit json_reader(std::string_view text) : text_(text) {}

  static void require(bool holds, const char* what) {
    if (!holds)
      throw sandbox::backend_error(sandbox::backend_fault::bad_response, std::string("json: the response has ") + what);
  }

  char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) noexcept {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void skip_blanks() noexcept {
    while (at_ < text_.size() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }
  bool take_word(std::string_view word) noexcept {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  json_value value(unsigned depth) {
    skip_blanks();
    json_value result;
    if (peek() == '{' || peek() == '[') {
      require(depth < most_depth, "too deep a nesting");
      peek() == '{' ? object(result, depth + 1) : array(result, depth + 1);
    } else if (peek() == '"') {
      result.kind_ = kind::string;
      result.text_ = string();
    } else if ((result.flag_ = take_word("true")) || take_word("false")) {
      result.kind_ = kind::boolean;
    } else if (!take_word("null")) {
      result.kind_ = kind::number;
      result.text_ = number();
    }
    return result;
  }

  void object(json_value& result, unsigned depth) {
    result.kind_ = kind::object;
    take('{');
    skip_blanks();
    if (take('}')) return;
    do {
      skip_blanks();
      require(peek() == '"', "a member without a name");
      std::string name = string();
      skip_blanks();
      require(take(':'), "a member without a colon");
      require(result.names_.emplace(std::move(name), result.items_.size()).second, "two members of one name");
      result.items_.push_back(value(depth));
      skip_blanks();
    } while (take(','));
    require(take('}'), "an object that does not end");
  }

  void array(json_value& result, unsigned depth) {
    result.kind_ = kind::array;
    take('[');
    skip_blanks();
    if (take(']')) return;
    do {
      result.items_.push_back(value(depth));
      skip_blanks();
    } while (take(','));
    require(take(']'), "an array that does not end");
  }

  bool digits() noexcept {
    const std::size_t first = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ != first;
  }

  std::string number() {
    const std::size_t first = at_;
    take('-');
    require(take('0') || digits(), "something that is no value");
    if (take('.')) require(digits(), "a malformed number");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      require(digits(), "a malformed number");
    }
    return std::string(text_.substr(first, at_ - first));
  }

  std::string string() {
    std::string result;
    take('"');
    for (;;) {
      require(at_ < text_.size(), "a string that does not end");
      const char c = text_[at_++];
      if (c == '"') return result;
      require(static_cast<unsigned char>(c) >= ' ', "a control character in a string");
      c == '\\' ? escape(result) : result.push_back(c);
    }
  }

  void escape(std::string& result) {
    constexpr std::string_view names = "\"\\/bfnrt";
    constexpr std::string_view means = "\"\\/\b\f\n\r\t";
    const char c = peek();
    const std::size_t known = names.find(c);
    if (at_ < text_.size() && known != std::string_view::npos) {
      ++at_;
      result.push_back(means[known]);
      return;
    }
    require(take('u'), "an unknown escape");
    char32_t code = hex4();
    require(code < 0xdc00 || code > 0xdfff, "half a surrogate pair");
    if (code >= 0xd800 && code <= 0xdbff) {
      require(take_word("\\u"), "half a surrogate pair");
      const char32_t low = hex4();
      require(low >= 0xdc00 && low <= 0xdfff, "half a surrogate pair");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(result, code);
  }

  char32_t hex4() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    require(digits.size() == 4 && error == std::errc() && stop == digits.data() + 4, "a malformed escape");
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& text, char32_t code) {
    constexpr char32_t leads[] = {0, 0xc0, 0xe0, 0xf0};
    const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
    if (code < 0x80) return put(code);
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    put(leads[more] | code >> 6 * more);
    for (int k = more - 1; k >= 0; --k) put(0x80 | (code >> 6 * k & 0x3f));
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

inline json_value parse_json(std::string_view text) {
  return json_reader::read(text);
}

/// A JSON object as text, member by member.
class json_writer {
 public:
  json_writer& add(std::string_view name, std::string_view value) {
    begin(name);
    quote(value);
    return *this;
  }
  json_writer& add(std::string_view name, std::int64_t value) {
    begin(name);
    text_ += std::to_string(value);
    return *this;
  }
  json_writer& add(std::string_view name, const std::map<std::string, std::string>& values) {
    json_writer inner;
    for (const auto& [key, value] : values) inner.add(key, std::string_view(value));
    begin(name);
    text_ += inner.str();
    return *this;
  }
  std::string str() const { return "{" + text_ + "}"; }

 private:
  void begin(std::string_view name) {
    if (!text_.empty()) text_ += ',';
    quote(name);
    text_ += ':';
  }

  /// Throws std::invalid_argument for what is not UTF-8: it would arrive as something else, or not at all.
  void quote(std::string_view value) {
    if (!is_utf8(value)) throw std::invalid_argument("json: a value is not UTF-8");
    text_ += '"';
    for (const char c : value) {
      if (c == '"' || c == '\\') text_ += '\\';
      if (static_cast<unsigned char>(c) >= ' ') {
        text_ += c;
      } else {
        constexpr const char* digits = "0123456789abcdef";
        ((text_ += "\\u00") += digits[c >> 4]) += digits[c & 0xf];
      }
    }
    text_ += '"';
  }

  std::string text_;
};

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_JSON_HPP
