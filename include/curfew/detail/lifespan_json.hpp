// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Just enough JSON to write a report.

#ifndef CURFEW_DETAIL_LIFESPAN_JSON_HPP
#define CURFEW_DETAIL_LIFESPAN_JSON_HPP

#include <cstddef>
#include <string>
#include <string_view>

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// How many bytes from \p at on are one character of well-formed UTF-8; 0 when they are none.
constexpr std::size_t utf8_length(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF && tail(1)) return 2;
  if (first >= 0xE0 && first <= 0xEF && tail(1) && tail(2)) {
    const bool shorter = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return shorter || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4 && tail(1) && tail(2) && tail(3)) {
    const bool shorter = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return shorter || beyond ? 0 : 4;
  }
  return 0;
}

/// Quoted. What is not well-formed UTF-8 becomes U+FFFD, so that the document is valid whatever stages are called.
inline std::string json_string(std::string_view text) {
  constexpr const char* hex = "0123456789abcdef";
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const char c = text[i];
    if (length == 0) {
      out += "\\ufffd";
      ++i;
      continue;
    }
    if (length == 1 && (c == '"' || c == '\\')) {
      out += '\\';
      out += c;
    } else if (length == 1 && static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += hex[(c >> 4) & 15];
      out += hex[c & 15];
    } else {
      out += text.substr(i, length);
    }
    i += length;
  }
  return out + '"';
}

template <class List>
std::string json_strings(const List& list) {
  std::string out;
  for (const auto& text : list) out += (out.empty() ? "" : ",") + json_string(text);
  return "[" + out + "]";
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_LIFESPAN_JSON_HPP
