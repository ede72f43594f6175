// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Which hosts are near: this one, or in a private network. A proxy meant for the world outside cannot reach them, or
/// would reach others of the same name.

#ifndef CURFEW_DETAIL_HTTP_PRIVATE_HPP
#define CURFEW_DETAIL_HTTP_PRIVATE_HPP

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>

#include <curfew/detail/config.hpp>
#include <curfew/detail/text.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The address as a number, or 0 for what is none: 0.0.0.0 is nobody's.
inline std::uint32_t ipv4_number(std::string_view host) noexcept {
  std::uint32_t address = 0;
  for (int part = 0; part < 4; ++part) {
    std::uint8_t byte = 0;
    const auto [stop, error] = std::from_chars(host.data(), host.data() + host.size(), byte);
    const std::size_t size = static_cast<std::size_t>(stop - host.data());
    const bool last = part == 3;
    if (error != std::errc() || (last ? size != host.size() : size == host.size() || *stop != '.')) return 0;
    address = address << 8 | byte;
    host.remove_prefix(size + (last ? 0 : 1));
  }
  return address;
}

/// A host as http_url has it: loopback, link-local and private addresses, names of one label, and names below
/// `localhost`, `local` and `internal`.
inline bool is_private_host(std::string_view host) noexcept {
  if (host.find(':') != std::string_view::npos) {
    std::uint16_t first = 0;
    std::from_chars(host.data(), host.data() + host.size(), first, 16);
    return host == "::1" || (first & 0xfe00) == 0xfc00 || (first & 0xffc0) == 0xfe80;
  }
  if (const std::uint32_t address = ipv4_number(host); address != 0)
    return address >> 24 == 127 || address >> 24 == 10 || address >> 20 == 0xac1 || address >> 16 == 0xc0a8 ||
           address >> 16 == 0xa9fe;
  const std::string_view label = host.substr(host.rfind('.') + 1);
  return label.size() == host.size() || equal_ignoring_case(label, "localhost") ||
         equal_ignoring_case(label, "local") || equal_ignoring_case(label, "internal");
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_PRIVATE_HPP
