// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The world of fake_backend as a service that rents sandboxes out: it numbers them itself, keeps their time limits,
/// finds them by request, and lists within bounds.

#ifndef CURFEW_TESTS_SUPPORT_FAKE_RENTAL_HPP
#define CURFEW_TESTS_SUPPORT_FAKE_RENTAL_HPP

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tests/support/fake_backend.hpp>

namespace curfew_test {

class fake_rental : public fake_backend {
 public:
  fake_rental() {
    name_it = [this](const sb::create_request& request) {
      const std::string id = "vm-" + std::to_string(++made_);
      return sb::sandbox_info{id, "https://" + id, request.id};
    };
  }

  std::function<bool(const std::string&)> on_set_timeout;      // default: true iff it runs
  std::function<bool(const sb::list_budget&)> on_list_within;  // whether the inventory is complete
  std::function<void(const std::string&)> on_find;

  bool set_timeout(const std::string& id, std::chrono::seconds limit) {
    {
      std::lock_guard lock(mutex_);
      extended_.emplace_back(id, limit);
    }
    return on_set_timeout ? on_set_timeout(id) : runs(id);
  }
  std::optional<sb::sandbox_info> find(const std::string& request) {
    ++finds_;
    if (on_find) on_find(request);
    for (auto& item : everything())
      if (item.request_id == request) return item;
    return std::nullopt;
  }
  sb::listing list_within(const sb::list_budget& budget) {
    const bool complete = !on_list_within || on_list_within(budget);
    return {list(), complete};
  }

  /// Something runs that nobody here has made.
  void run_for(const std::string& id, const std::string& request) {
    run(sb::sandbox_info{id, "https://" + id, request});
  }

  std::vector<std::pair<std::string, std::chrono::seconds>> extended() const {
    std::lock_guard lock(mutex_);
    return extended_;
  }
  std::size_t finds() const { return finds_; }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::string, std::chrono::seconds>> extended_;
  std::atomic<std::size_t> finds_{0};
  std::atomic<int> made_{0};
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_FAKE_RENTAL_HPP
