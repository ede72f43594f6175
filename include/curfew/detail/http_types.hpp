// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// One HTTP exchange as values, the error of one that did not come to its end, and what a transport is.

#ifndef CURFEW_DETAIL_HTTP_TYPES_HPP
#define CURFEW_DETAIL_HTTP_TYPES_HPP

#include <chrono>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/text.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Names and values as they go over the wire; names are compared without regard to case.
using http_headers = std::vector<std::pair<std::string, std::string>>;

/// What a transport is asked to send.
struct http_request {
  std::string method;
  std::string url;  ///< absolute
  http_headers headers = {};
  std::string body = {};
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  ///< for the whole exchange, connecting included
};

/// What came back, whatever its status.
struct http_response {
  int status = 0;
  http_headers headers;
  std::string body;

  /// The value of the first header of that name; null without one.
  const std::string* header(std::string_view name) const noexcept {
    for (const auto& [key, value] : headers)
      if (detail::equal_ignoring_case(key, name)) return &value;
    return nullptr;
  }
};

/// An exchange that has no response. What it means for the caller depends on `sent()`: true when the server may have
/// seen the request, and so may have acted on it.
class CURFEW_VISIBLE transport_error : public std::runtime_error {
 public:
  transport_error(const std::string& message, bool sent, bool timed_out)
      : std::runtime_error(message), sent_(sent), timed_out_(timed_out) {}

  /// Whether the server may have seen the request, and whether time was what ran out.
  bool sent() const noexcept { return sent_; }
  bool timed_out() const noexcept { return timed_out_; }

 private:
  bool sent_;
  bool timed_out_;
};

/// What carries a request to a server and brings the response back: any response, whatever its status. It follows no
/// redirect and repeats nothing, since only the caller knows what may be repeated. It throws transport_error when there
/// is no response, and std::invalid_argument for a request that it cannot send. It may be called from many threads at
/// once.
template <class T>
concept transport = requires(T& t, const http_request& request) {
  { t.send(request) } -> std::same_as<http_response>;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_TYPES_HPP
