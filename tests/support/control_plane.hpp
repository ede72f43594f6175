// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A server on a loopback port that speaks both of the APIs the REST backends know, and keeps its sandboxes in memory.

#ifndef CURFEW_TESTS_SUPPORT_CONTROL_PLANE_HPP
#define CURFEW_TESTS_SUPPORT_CONTROL_PLANE_HPP

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include <tests/support/loopback_server.hpp>

namespace curfew_test {

/// The API of E2B, with pages of two; that of the provisioner; and the sandboxes of the latter, which answer at once.
/// A sandbox is made for one API and shows in its inventory alone. The key of both is "key".
class control_plane {
 public:
  control_plane() : server_([this](loopback_connection& c) { serve(c); }) {}

  std::string url() const { return server_.url(""); }
  std::size_t running() const {
    const std::lock_guard lock(mutex_);
    return sandboxes_.size() + rented_.size();
  }
  int made() const {
    const std::lock_guard lock(mutex_);
    return made_;
  }
  /// Ends one by itself, as a server does whose time limit has passed.
  bool forget(const std::string& id) {
    const std::lock_guard lock(mutex_);
    return sandboxes_.erase(id) + rented_.erase(id) != 0;
  }
  /// From now on a create happens and is not answered.
  void lose_answers(bool lose) {
    const std::lock_guard lock(mutex_);
    lose_ = lose;
  }

 private:
  void serve(loopback_connection& c) {
    const std::string text = c.request();
    const std::string method = text.substr(0, text.find(' '));
    const std::string target = text.substr(method.size() + 1, text.find(" HTTP") - method.size() - 1);
    const std::string body = text.substr(text.find("\r\n\r\n") + 4);
    const std::lock_guard lock(mutex_);
    if (target.starts_with("/sandbox-of/")) {
      c.write(http_answer(rented_.contains(target.substr(12, target.find('/', 12) - 12)) ? 200 : 503, "{}"));
    } else if (text.find("X-API-Key: key\r\n") == std::string::npos) {
      c.write(http_answer(401, ""));
    } else if (target.starts_with(provisioner)) {
      provision(c, method, target.substr(provisioner.size()), body);
    } else if (method == "POST" && target == "/sandboxes") {
      const std::string id = "isb" + std::to_string(++made_);
      const std::size_t metadata = body.find("\"metadata\":") + 11;
      sandboxes_[id] = body.substr(metadata, body.find('}', metadata) + 1 - metadata);
      if (!lose_) c.write(http_answer(201, R"({"sandboxID":")" + id + R"("})"));
    } else if (method == "GET" && target.starts_with("/v2/sandboxes?")) {
      const std::size_t token = target.find("nextToken=");
      const std::string after = token == std::string::npos ? "" : target.substr(token + 10);
      std::string items, next;
      int count = 0;
      for (auto it = sandboxes_.upper_bound(after); it != sandboxes_.end() && count < 2; ++it, ++count) {
        items += (count != 0 ? "," : "") + (R"({"sandboxID":")" + it->first) + R"(","state":"running","metadata":)" +
                 it->second + "}";
        next = it->first;
      }
      const bool more = count == 2 && sandboxes_.upper_bound(next) != sandboxes_.end();
      c.write(http_answer(200, "[" + items + "]", more ? "X-Next-Token: " + next + "\r\n" : ""));
    } else if (method == "DELETE") {
      c.write(http_answer(sandboxes_.erase(target.substr(11)) != 0 ? 204 : 404, ""));
    } else if (method == "POST") {
      c.write(http_answer(sandboxes_.contains(target.substr(11, target.rfind('/') - 11)) ? 204 : 404, ""));
    } else {
      const bool there = sandboxes_.contains(target.substr(11));
      c.write(there ? http_answer(200, R"({"state":"running"})") : http_answer(404, ""));
    }
  }

  /// With the mutex held. \p id: empty, or led by a slash
  void provision(loopback_connection& c, const std::string& method, const std::string& id, const std::string& body) {
    const auto known = id.empty() ? rented_.end() : rented_.find(id.substr(1));
    const auto describe = [this](const std::string& one) {
      return R"({"sandbox_id":")" + one + R"(","status":"Running","sandbox_url":")" +
             server_.url("/sandbox-of/" + one) + "\"}";
    };
    if (method == "POST") {
      const std::size_t at = body.find(R"("sandbox_id":")") + 14;
      const std::string fresh = body.substr(at, body.find('"', at) - at);
      made_ += rented_.insert(fresh).second;
      if (!lose_) c.write(http_answer(200, describe(fresh)));
    } else if (id.empty()) {
      std::string items;
      for (const std::string& one : rented_) items += (items.empty() ? "" : ",") + describe(one);
      c.write(http_answer(200, R"({"sandboxes":[)" + items + "]}"));
    } else if (known == rented_.end()) {
      c.write(http_answer(404, ""));
    } else if (method == "DELETE") {
      rented_.erase(known);
      c.write(http_answer(204, ""));
    } else {
      c.write(http_answer(200, describe(*known)));
    }
  }

  const std::string provisioner = "/api/sandboxes";
  mutable std::mutex mutex_;
  std::map<std::string, std::string> sandboxes_;  // of E2B, with their metadata
  std::set<std::string> rented_;
  int made_ = 0;
  bool lose_ = false;
  loopback_server server_;
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_CONTROL_PLANE_HPP
