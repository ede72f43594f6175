// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A transport whose every answer a test has written down beforehand, and which remembers what it was asked. A request
/// that nobody foresaw fails the test.

#ifndef CURFEW_TESTS_SUPPORT_SCRIPTED_TRANSPORT_HPP
#define CURFEW_TESTS_SUPPORT_SCRIPTED_TRANSPORT_HPP

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <curfew/sandbox/transport.hpp>

namespace curfew_test {

class scripted_transport {
 public:
  using step = std::function<curfew::sandbox::http_response(const curfew::sandbox::http_request&)>;

  curfew::sandbox::http_response send(const curfew::sandbox::http_request& request) {
    step next;
    {
      const std::lock_guard lock(mutex_);
      log_.push_back(request);
      if (!steps_.empty()) {
        next = std::move(steps_.front());
        steps_.pop_front();
      } else {
        next = otherwise_;
      }
    }
    if (next) return next(request);
    ADD_FAILURE() << "unforeseen: " << request.method << " " << request.url;
    throw curfew::sandbox::transport_error("unforeseen", false, false);
  }

  // The script
  scripted_transport& then(step one) {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(one));
    return *this;
  }
  scripted_transport& reply(int status, std::string body = "", curfew::sandbox::http_headers headers = {}) {
    return then([=](const auto&) { return curfew::sandbox::http_response{status, headers, body}; });
  }
  scripted_transport& lost(bool sent, bool timed_out = false) {
    return then([=](const auto&) -> curfew::sandbox::http_response {
      throw curfew::sandbox::transport_error("lost", sent, timed_out);
    });
  }
  /// What is answered when the script is over.
  void otherwise(step always) {
    const std::lock_guard lock(mutex_);
    otherwise_ = std::move(always);
  }

  // What was asked
  std::vector<curfew::sandbox::http_request> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  /// "METHOD url" of each request.
  std::vector<std::string> lines() const {
    std::vector<std::string> all;
    for (const auto& one : log()) all.push_back(one.method + " " + one.url);
    return all;
  }
  std::size_t left() const {
    const std::lock_guard lock(mutex_);
    return steps_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::deque<step> steps_;
  step otherwise_;
  std::vector<curfew::sandbox::http_request> log_;
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_SCRIPTED_TRANSPORT_HPP
