// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Ports as a container engine publishes them: whether one is free on this host, and which one a line of the engine's
/// output names. POSIX only.

#ifndef CURFEW_DETAIL_DOCKER_PORT_HPP
#define CURFEW_DETAIL_DOCKER_PORT_HPP

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <curfew/detail/config.hpp>
#include <curfew/detail/descriptor.hpp>
#include <curfew/detail/text.hpp>

#if CURFEW_POSIX
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// The number after the last colon.
inline std::optional<std::uint16_t> port_behind(std::string_view text) noexcept {
  text = trimmed(text);
  text.remove_prefix(std::min(text.rfind(':') + 1, text.size()));
  std::uint16_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || stop != text.data() + text.size() || port == 0) return {};
  return port;
}

/// False when the port is taken at \p address, which may have brackets. What cannot be tried here, because the engine
/// is on another host, counts as free.
inline bool is_bindable(std::string_view address, std::uint16_t port) {
  if (address.starts_with('[')) address.remove_prefix(1);
  const std::string text(address.substr(0, address.find(']')));
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(port);
  const bool is_v4 = ::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) != 1) return true;
  const owned_fd fd(::socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM, 0));
  if (!fd) return true;
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  const int on = 1;  // a connection that has ended on that port a moment ago is no hindrance to an engine either
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* const any = is_v4 ? reinterpret_cast<const sockaddr*>(&v4) : reinterpret_cast<const sockaddr*>(&v6);
  if (::bind(fd.get(), any, is_v4 ? sizeof v4 : sizeof v6) == 0) return true;
  return errno != EADDRINUSE && errno != EACCES;
}

}  // namespace detail
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_DETAIL_DOCKER_PORT_HPP
