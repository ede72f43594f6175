// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Sandboxes of a provisioner, a server that runs AIO containers on behalf of many hosts. Ids are the caller's and a
/// create is idempotent there, so a lost answer can be undone by id. See docs/design/backends.md.

#ifndef CURFEW_SANDBOX_AIO_REST_BACKEND_HPP
#define CURFEW_SANDBOX_AIO_REST_BACKEND_HPP

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/http_message.hpp>
#include <curfew/detail/http_rest.hpp>
#include <curfew/detail/http_types.hpp>
#include <curfew/detail/http_url.hpp>
#include <curfew/detail/json.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/detail/text.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/transport.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of an aio_rest_backend.
struct aio_rest_options {
  std::string url;
  std::string api_key = {};  ///< sent as X-API-Key when not empty
};

/// Sandboxes of a provisioner that is reached by HTTP and takes the ids it is given.
///
/// Thread safety: every member from any thread, as far as the transport allows it. There is no state and no lock.
/// Waiting: `create` at most 30 s for the provisioner, 60 s for the sandbox to answer, and 15 s to undo; the others 10
/// to 15 s. Exceptions: backend_error, and std::invalid_argument for input that cannot be meant.
///
/// The provisioner gives its sandboxes their environment; the request's is not sent.
template <transport Transport, class Sync = std_sync>
class aio_rest_backend {
 public:
  /// Sends nothing. \throws std::invalid_argument for a malformed url or key, or an https url with a transport that has
  /// no TLS
  explicit aio_rest_backend(aio_rest_options options, std::shared_ptr<Transport> carrier = nullptr)
      : server_(who, std::move(options.url), headers(options.api_key), std::move(carrier)) {}

  /// Returns once the sandbox answers. \throws backend_error when it does not come to that; the sandbox has then been
  /// deleted, or the error's leftover is its id
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument(std::string(who) + ": bad sandbox id \"" + detail::printable(request.id) + "\"");
    const std::string body = detail::json_writer()
                                 .add("sandbox_id", request.id)
                                 .add("thread_id", request.owner.thread)
                                 .add("user_id", request.owner.user)
                                 .str();
    try {
      const http_response response = server_.send("POST", root, body, std::chrono::seconds(30));
      if (response.status != 200) throw server_.status_error("POST", root, response.status);
      sandbox_info made{request.id, detail::parse_json(response.body).at("sandbox_url").string()};
      if (!ready(made.endpoint))
        throw server_.error("POST", root, backend_fault::timed_out, "the sandbox does not become ready");
      return made;
    } catch (const transport_error& e) {
      const auto error = server_.error("POST", root, detail::fault_of(e), e.what());
      if (!e.sent()) throw error;
      undo(request.id, error);
    } catch (const backend_error& e) {
      if (e.status() >= 400 && e.status() < 500) throw;
      undo(request.id, e);
    }
  }

  /// As the concept backend says.
  bool destroy(const std::string& id) {
    if (!is_id(id)) return false;
    try {
      const int status = server_.call("DELETE", path_of(id), {}, std::chrono::seconds(15)).status;
      return status == 200 || status == 204 || status == 404;
    } catch (const backend_error&) {
      return false;
    }
  }

  /// As the concept backend says.
  liveness probe(const std::string& id) {
    if (!is_id(id)) return liveness::unknown;
    try {
      const http_response response = server_.call("GET", path_of(id), {}, std::chrono::seconds(10));
      if (response.status == 404) return liveness::dead;
      if (response.status != 200) return liveness::unknown;
      const std::string status = detail::parse_json(response.body).text_or_empty("status");
      if (status == "Running") return liveness::alive;
      return status == "Succeeded" || status == "Failed" ? liveness::dead : liveness::unknown;
    } catch (const backend_error&) {
      return liveness::unknown;
    }
  }

  /// The sandbox of that id, if it runs.
  std::optional<sandbox_info> find(const std::string& request_id) {
    if (!is_id(request_id)) return {};
    const std::string path = path_of(request_id);
    const http_response response = server_.call("GET", path, {}, std::chrono::seconds(10));
    if (response.status == 404) return {};
    if (response.status != 200) throw server_.status_error("GET", path, response.status);
    const detail::json_value found = detail::parse_json(response.body);
    if (found.text_or_empty("status") != "Running") return {};
    return sandbox_info{request_id, found.at("sandbox_url").string()};
  }

  /// As the concept backend says.
  std::vector<sandbox_info> list() {
    const http_response response = server_.call("GET", root, {}, std::chrono::seconds(10));
    if (response.status != 200) throw server_.status_error("GET", root, response.status);
    std::vector<sandbox_info> all;
    const detail::json_value answer = detail::parse_json(response.body);
    for (const detail::json_value& item : answer.at("sandboxes").array()) {
      sandbox_info info{item.text_or_empty("sandbox_id"), item.text_or_empty("sandbox_url")};
      if (is_id(info.id) && !info.endpoint.empty()) all.push_back(std::move(info));
    }
    return all;
  }

 private:
  static constexpr const char* who = "aio_rest_backend";
  static constexpr const char* root = "/api/sandboxes";

  static bool is_id(const std::string& id) noexcept { return detail::is_sandbox_id(id, detail::colon::allowed); }
  static std::string path_of(const std::string& id) { return std::string(root) + "/" + detail::percent_encode(id); }

  static http_headers headers(const std::string& key) {
    if (!detail::is_header_value(key))
      throw std::invalid_argument(std::string(who) + ": a control character in the api key");
    return key.empty() ? http_headers{} : http_headers{{"X-API-Key", key}};
  }

  bool ready(const std::string& endpoint) const {
    try {
      return detail::wait_until_ready<Sync>(server_.carrier(), endpoint, std::chrono::seconds(60));
    } catch (const std::invalid_argument&) {
      throw server_.error("POST", root, backend_fault::bad_response, "a sandbox_url that is no url for this transport");
    }
  }

  /// The end of a create that may have made a sandbox which cannot be used.
  [[noreturn]] void undo(const std::string& id, const backend_error& why) {
    if (destroy(id)) throw why;
    throw backend_error(why.fault(), std::string(why.what()) + "; it could not be deleted", id, why.status());
  }

  const detail::rest_server<Transport> server_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_AIO_REST_BACKEND_HPP
