// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Which process this is. What waits for threads, or ends things on behalf of its process, asks before it touches a
/// lock whether a fork has put it into a child, where those threads and those things do not exist.

#ifndef CURFEW_DETAIL_PROCESS_IDENTITY_HPP
#define CURFEW_DETAIL_PROCESS_IDENTITY_HPP

#include <cstdint>
#include <random>
#include <string>

#include <curfew/detail/config.hpp>
#include <curfew/detail/process_id.hpp>

#if CURFEW_POSIX
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// 16 hexadecimal digits that no other process is likely to draw.
inline std::string random_id() {
  std::random_device source;
  std::string text(16, '0');
  for (char& digit : text) digit = "0123456789abcdef"[source() & 0xf];
  return text;
}

/// `host:pid:random`: names one provider of one process in a store that many hosts share.
inline std::string process_name() {
  char host[256] = "localhost";
#if CURFEW_POSIX
  if (::gethostname(host, sizeof host) != 0) host[0] = '\0';
  host[sizeof host - 1] = '\0';
#endif
  return std::string(host) + ":" + std::to_string(process_id()) + ":" + random_id();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_PROCESS_IDENTITY_HPP
