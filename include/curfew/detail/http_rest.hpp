// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the clients of REST servers share: which fault a status or a transport's error is, and waiting until a sandbox
/// answers. Messages name the call and the status, never a body or a header: those may hold what an owner keeps secret.

#ifndef CURFEW_DETAIL_HTTP_REST_HPP
#define CURFEW_DETAIL_HTTP_REST_HPP

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <curfew/detail/config.hpp>
#include <curfew/detail/deadline.hpp>
#include <curfew/detail/http_types.hpp>
#include <curfew/detail/http_url.hpp>
#include <curfew/sandbox/backend.hpp>

CURFEW_BEGIN_NAMESPACE
namespace detail {

constexpr sandbox::backend_fault fault_of_status(int status) noexcept {
  using sandbox::backend_fault;
  if (status == 409) return backend_fault::conflict;
  if (status >= 400 && status < 500) return backend_fault::rejected;
  return status >= 500 ? backend_fault::unavailable : backend_fault::bad_response;
}

inline sandbox::backend_fault fault_of(const sandbox::transport_error& e) noexcept {
  return e.timed_out() ? sandbox::backend_fault::timed_out : sandbox::backend_fault::unavailable;
}

/// One server: its base url, the headers of every request, and the transport.
template <class Transport>
class rest_server {
 public:
  rest_server(const char* who, std::string base, sandbox::http_headers headers, std::shared_ptr<Transport> carrier)
      : who_(who), base_(base_url(std::move(base), who)), headers_(std::move(headers)), carrier_(std::move(carrier)) {
    if (carrier_ == nullptr) carrier_ = std::make_shared<Transport>();
    if constexpr (requires { Transport::speaks_https; }) {
      if (!Transport::speaks_https && parse_url(base_, who).secure)
        throw std::invalid_argument(std::string(who) + ": an https url, and a transport that speaks http only");
    }
  }

  /// Sends as it is: throws what the transport throws.
  sandbox::http_response send(const char* method, const std::string& path, const std::string& body,
                              std::chrono::milliseconds timeout) const {
    sandbox::http_request request{method, base_ + path, headers_, body, timeout};
    if (!body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    return carrier_->send(request);
  }

  /// As send, with the transport's error as a backend_error.
  sandbox::http_response call(const char* method, const std::string& path, const std::string& body,
                              std::chrono::milliseconds timeout) const {
    try {
      return send(method, path, body, timeout);
    } catch (const sandbox::transport_error& e) {
      throw error(method, path, fault_of(e), e.what());
    }
  }

  sandbox::backend_error error(const char* method, const std::string& path, sandbox::backend_fault fault,
                               const std::string& reason, std::string leftover = {}, int status = 0) const {
    const std::string message =
        std::string(who_) + ": " + method + " " + path.substr(0, path.find('?')) + ": " + reason;
    return sandbox::backend_error(fault, message, std::move(leftover), status);
  }

  sandbox::backend_error status_error(const char* method, const std::string& path, int status) const {
    return error(method, path, fault_of_status(status), "status " + std::to_string(status), {}, status);
  }

  Transport& carrier() const noexcept { return *carrier_; }

 private:
  const char* who_;
  std::string base_;
  sandbox::http_headers headers_;
  std::shared_ptr<Transport> carrier_;
};

/// Waits until `GET <endpoint>/v1/sandbox` answers 200, asking once a second and giving a request five seconds. False
/// when \p budget is over. Throws std::invalid_argument for an endpoint that is no url.
template <class Sync, class Transport>
bool wait_until_ready(Transport& carrier, const std::string& endpoint, std::chrono::nanoseconds budget) {
  using std::chrono::milliseconds;
  constexpr milliseconds interval = std::chrono::seconds(1);
  constexpr milliseconds longest_request = std::chrono::seconds(5);
  const std::string url = base_url(endpoint, "readiness") + "/v1/sandbox";
  for (const auto until = later(Sync::clock::now(), budget);;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Sync::clock::now());
    if (left <= milliseconds::zero()) return false;
    try {
      if (carrier.send({"GET", url, {}, {}, std::min(left, longest_request)}).status == 200) return true;
    } catch (const sandbox::transport_error&) {  // it is not there yet
    }
    if (until - Sync::clock::now() <= interval) return false;
    Sync::sleep_for(interval);
  }
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_HTTP_REST_HPP
