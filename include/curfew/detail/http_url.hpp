// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The urls the kit speaks: http and https, a host, a port, a path and a query. Narrower than the standard on purpose:
/// what is refused here (credentials, fragments, blanks, control characters) has no business in a request.

#ifndef CURFEW_DETAIL_HTTP_URL_HPP
#define CURFEW_DETAIL_HTTP_URL_HPP

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <curfew/detail/config.hpp>
#include <curfew/detail/text.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

struct http_url {
  bool secure = false;
  std::string host;  ///< without the brackets of an IPv6 address
  std::uint16_t port = 0;
  std::string authority;  ///< as in the url
  std::string target;     ///< path and query, never empty
};

constexpr bool is_ascii_alnum(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// A host name, an IPv4 address, or an IPv6 address without its brackets.
inline bool is_host(std::string_view host) noexcept {
  const bool numeric = host.find(':') != std::string_view::npos;
  return !host.empty() && host.size() <= 255 && host.front() != '-' &&
         std::all_of(host.begin(), host.end(), [numeric](char c) {
           return is_ascii_alnum(c) || c == '.' || (numeric ? c == ':' : c == '-' || c == '_');
         });
}

/// A host as it stands in a url.
inline std::string bracketed(const std::string& host) {
  return host.find(':') != std::string::npos ? "[" + host + "]" : host;
}

/// Everything but letters, digits and `-._~` as %XX.
inline std::string percent_encode(std::string_view text) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    if (is_ascii_alnum(c) || c == '-' || c == '.' || c == '_' || c == '~') {
      result += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      (((result += '%') += digits[byte >> 4]) += digits[byte & 0xf]);
    }
  }
  return result;
}

/// Throws std::invalid_argument, led by \p who, for what is no such url. The url is not repeated in the message: it may
/// be a secret.
inline http_url parse_url(std::string_view text, const char* who) {
  const auto require = [who](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(std::string(who) + ": bad url: " + what);
  };
  require(std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; }),
          "a blank, a control or a non-ASCII character");
  require(text.find('#') == std::string_view::npos, "a fragment");
  http_url url;
  const std::size_t mark = text.find("://");
  require(mark != std::string_view::npos, "no scheme");
  url.secure = equal_ignoring_case(text.substr(0, mark), "https");
  require(url.secure || equal_ignoring_case(text.substr(0, mark), "http"), "the scheme is neither http nor https");
  text.remove_prefix(mark + 3);

  const std::size_t end = std::min(text.find_first_of("/?"), text.size());
  std::string_view authority = text.substr(0, end);
  url.authority = authority;
  url.target = text.substr(end);
  if (url.target.empty() || url.target.front() == '?') url.target.insert(0, "/");
  require(authority.find('@') == std::string_view::npos, "credentials");

  const bool brackets = authority.starts_with('[');
  const std::size_t host_end = brackets ? authority.find(']') : std::min(authority.find(':'), authority.size());
  require(host_end != std::string_view::npos, "an unclosed bracket");
  url.host = brackets ? authority.substr(1, host_end - 1) : authority.substr(0, host_end);
  require(is_host(url.host) && brackets == (url.host.find(':') != std::string::npos), "the host");
  authority.remove_prefix(host_end + (brackets ? 1 : 0));

  url.port = url.secure ? 443 : 80;
  if (!authority.empty()) {
    const char* const last = authority.data() + authority.size();
    const auto [stop, error] = std::from_chars(authority.data() + 1, last, url.port);
    require(authority.front() == ':' && error == std::errc() && stop == last && url.port != 0, "the port");
  }
  return url;
}

/// A base url without the slashes at its end, so that a path can follow. Throws as parse_url does.
inline std::string base_url(std::string text, const char* who) {
  while (text.ends_with('/')) text.pop_back();
  if (parse_url(text, who).target.find('?') != std::string::npos)
    throw std::invalid_argument(std::string(who) + ": bad url: a base url with a query");
  return text;
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_URL_HPP
