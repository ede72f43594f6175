// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A singleton that a program and its shared objects use together. Each of them instantiates all of it for itself.

#ifndef CURFEW_TESTS_DSO_SERVICE_HPP
#define CURFEW_TESTS_DSO_SERVICE_HPP

#include <atomic>
#include <memory>

#include <curfew/guarded_singleton.hpp>

struct service {
  explicit service(std::atomic<int>& count) : alive(count) { ++alive; }
  service(const service&) = delete;
  service& operator=(const service&) = delete;
  ~service() {
    mark = 0;
    --alive;
  }
  std::atomic<int>& alive;
  int mark = 0x600d;
};

struct service_traits {
  std::atomic<int>* alive;
  void (*before_make)();
  std::unique_ptr<service> make() {
    if (before_make != nullptr) before_make();
    return std::make_unique<service>(*alive);
  }
};

using services = curfew::scoped_singleton<service, service_traits>;

#endif  // CURFEW_TESTS_DSO_SERVICE_HPP
