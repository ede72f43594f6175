// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Text that comes from outside: made fit for a message, and compared without regard to case. ASCII alone counts, and
/// no locale is asked: what a server or a tool writes does not depend on where the host runs.

#ifndef CURFEW_DETAIL_TEXT_HPP
#define CURFEW_DETAIL_TEXT_HPP

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <curfew/detail/config.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Text from outside, fit for an error message.
inline std::string printable(std::string text, std::size_t most = 128) {
  if (text.size() > most) text.resize(most);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

inline bool contains_ignoring_case(std::string_view text, std::string_view part) noexcept {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char x, char y) { return lower(x) == lower(y); }) != text.end();
}

/// Without the blanks at both ends.
constexpr std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_TEXT_HPP
