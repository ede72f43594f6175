// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Sandboxes of an E2B control plane, over its REST interface. The server chooses the ids, keeps the time to live and
/// ends what has outlived it; metadata on each sandbox say which provider and which request it was made for. See
/// docs/design/backends.md.

#ifndef CURFEW_SANDBOX_E2B_REST_BACKEND_HPP
#define CURFEW_SANDBOX_E2B_REST_BACKEND_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/deadline.hpp>
#include <curfew/detail/http_message.hpp>
#include <curfew/detail/http_rest.hpp>
#include <curfew/detail/http_types.hpp>
#include <curfew/detail/http_url.hpp>
#include <curfew/detail/json.hpp>
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/detail/text.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/transport.hpp>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Options of an e2b_rest_backend.
struct e2b_rest_options {
  std::string api_key = {};  ///< empty: the environment variable E2B_API_KEY
  std::string domain = "e2b.app";
  std::string api_url = {};  ///< empty: https://api.<domain>
  std::string template_id = "code-interpreter-v1";
  std::string tag = "curfew";  ///< marks the sandboxes of one fleet of providers; others are never touched
  std::chrono::milliseconds request_timeout = std::chrono::seconds(60);
};

/// Sandboxes of a service that is reached by HTTP and gives out the ids.
///
/// Thread safety: every member from any thread, as far as the transport allows it. There is no state and no lock.
/// Waiting: a call waits for its requests, each at most `request_timeout`, and an inventory for all of its pages at
/// most its budget. Exceptions: backend_error, and std::invalid_argument for input that cannot be meant. Cost: one
/// request a call; an inventory one a hundred sandboxes; a create with a lost answer one look-up and one request for
/// each sandbox that it finds.
///
/// A create that has no usable answer may have made a sandbox. Every create therefore carries a number of its own; a
/// lost one is looked up by that number and what is found is deleted before the error is thrown. When even that cannot
/// be confirmed the error is `ambiguous`, and its leftover, `attempt:<number>`, makes `destroy` look again.
template <transport Transport, class Sync = std_sync>
class e2b_rest_backend {
 public:
  /// Sends nothing. \throws std::invalid_argument without an api key, for a malformed url or domain, for an empty tag
  /// or template, a timeout that is not positive, or an https url with a transport that cannot
  explicit e2b_rest_backend(e2b_rest_options options = {}, std::shared_ptr<Transport> carrier = nullptr)
      : options_(checked(std::move(options))),
        server_(who, options_.api_url, {{"X-API-Key", options_.api_key}}, std::move(carrier)) {}

  /// \throws backend_error `rejected`, `conflict` or `unavailable` when nothing was made; `timed_out`, `unavailable` or
  /// `bad_response` when what a lost request had made is gone again; `ambiguous` otherwise
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument(std::string(who) + ": bad request id \"" + detail::printable(request.id) + "\"");
    if (request.time_to_live < std::chrono::seconds::zero())
      throw std::invalid_argument(std::string(who) + ": negative time to live");
    detail::check_environment(request.environment, who);
    const std::string attempt = detail::random_id();
    detail::json_writer body;
    body.add("templateID", options_.template_id);
    if (request.time_to_live.count() != 0) body.add("timeout", request.time_to_live.count());
    body.add("metadata", std::map<std::string, std::string>{{"curfew_provider", options_.tag},
                                                            {"curfew_request", request.id},
                                                            {"curfew_user", request.owner.user},
                                                            {"curfew_thread", request.owner.thread},
                                                            {"curfew_attempt", attempt}});
    body.add("envVars", request.environment);
    try {
      const http_response response = server_.send("POST", "/sandboxes", body.str(), options_.request_timeout);
      if (response.status < 200 || response.status >= 300)
        throw server_.status_error("POST", "/sandboxes", response.status);
      const detail::json_value made = detail::parse_json(response.body);
      if (!is_id(made.at("sandboxID").string()))
        throw server_.error("POST", "/sandboxes", backend_fault::bad_response, "an id that cannot be one");
      return describe(made, request.id);
    } catch (const transport_error& e) {
      const auto error = server_.error("POST", "/sandboxes", detail::fault_of(e), e.what());
      if (!e.sent()) throw error;
      undo(attempt, error);
    } catch (const backend_error& e) {
      if (e.status() >= 400 && e.status() < 500) throw;
      undo(attempt, e);
    }
  }

  /// As the concept backend says.
  bool destroy(const std::string& id) {
    if (id.starts_with(attempt_prefix)) return destroy_attempt(id.substr(attempt_prefix.size()));
    if (!is_id(id)) return false;
    try {
      const int status = server_.call("DELETE", path_of(id), {}, options_.request_timeout).status;
      return status == 204 || status == 404;
    } catch (const backend_error&) {
      return false;
    }
  }

  /// As the concept backend says.
  liveness probe(const std::string& id) {
    if (!is_id(id) || id.starts_with(attempt_prefix)) return liveness::unknown;
    try {
      const http_response response = server_.call("GET", path_of(id), {}, options_.request_timeout);
      if (response.status == 404) return liveness::dead;
      if (response.status != 200) return liveness::unknown;
      const std::string state = detail::parse_json(response.body).text_or_empty("state");
      return state == "running" ? liveness::alive : state == "paused" ? liveness::dead : liveness::unknown;
    } catch (const backend_error&) {
      return liveness::unknown;
    }
  }

  /// From now on the sandbox has that long. False when it is gone.
  bool set_timeout(const std::string& id, std::chrono::seconds timeout) {
    if (!is_id(id) || timeout < std::chrono::seconds::zero())
      throw std::invalid_argument(std::string(who) + ": bad id or negative timeout");
    const std::string path = path_of(id) + "/timeout";
    const std::string body = detail::json_writer().add("timeout", timeout.count()).str();
    const int status = server_.call("POST", path, body, options_.request_timeout).status;
    if (status == 204) return true;
    if (status == 404) return false;
    throw server_.status_error("POST", path, status);
  }

  /// As list_within with its default pages and items, and no bound on time but the requests' own. \throws backend_error
  /// also when that is not all
  std::vector<sandbox_info> list() {
    listing all = list_within({.max_time = std::chrono::nanoseconds::max()});
    if (!all.complete)
      throw server_.error("GET", list_path, backend_fault::unavailable, "more sandboxes than an inventory may have");
    return std::move(all.items);
  }

  /// Every sandbox with the tag, running or paused. A bound that is met makes the listing incomplete; an error throws.
  listing list_within(const list_budget& budget) {
    listing all;
    all.complete = each_with("curfew_provider", options_.tag, budget, [&](const detail::json_value& item) {
      all.items.push_back(describe(item, metadata_of(item, "curfew_request")));
    });
    return all;
  }

  /// The running sandbox that was made for this request; of several the one with the smallest id.
  std::optional<sandbox_info> find(const std::string& request_id) {
    std::optional<sandbox_info> best;
    if (!is_id(request_id)) return best;
    each_with("curfew_request", request_id, {}, [&](const detail::json_value& item) {
      if (item.text_or_empty("state") != "running") return;
      sandbox_info found = describe(item, request_id);
      if (!best || found.id < best->id) best = std::move(found);
    });
    return best;
  }

 private:
  static constexpr const char* who = "e2b_rest_backend";
  static constexpr const char* list_path = "/v2/sandboxes";
  static constexpr std::string_view attempt_prefix = "attempt:";

  static bool is_id(std::string_view id) noexcept { return detail::is_sandbox_id(id, detail::colon::allowed); }
  static std::string path_of(const std::string& id) { return "/sandboxes/" + detail::percent_encode(id); }

  static e2b_rest_options checked(e2b_rest_options o) {
    const auto require = [](bool holds, const char* what) {
      if (!holds) throw std::invalid_argument(std::string(who) + ": " + what);
    };
    if (o.api_key.empty()) {
      const char* const key = std::getenv("E2B_API_KEY");
      if (key != nullptr) o.api_key = key;
    }
    require(!o.api_key.empty(), "no api key, and none in E2B_API_KEY");
    require(detail::is_header_value(o.api_key), "a control character in the api key");
    require(detail::is_host(o.domain), "bad domain");
    require(!o.template_id.empty() && !o.tag.empty(), "empty template_id or tag");
    require(detail::is_utf8(o.template_id) && detail::is_utf8(o.tag), "template_id or tag is not UTF-8");
    require(o.request_timeout > std::chrono::milliseconds::zero(), "request_timeout is not positive");
    if (o.api_url.empty()) o.api_url = "https://api." + o.domain;
    return o;
  }

  static std::string metadata_of(const detail::json_value& item, const char* key) {
    const detail::json_value* const metadata = item.find("metadata");
    return metadata != nullptr ? metadata->text_or_empty(key) : std::string();
  }

  sandbox_info describe(const detail::json_value& item, const std::string& request_id) const {
    const std::string& id = item.at("sandboxID").string();
    const std::string said = item.text_or_empty("domain");
    return {id, "https://49983-" + id + "." + (detail::is_host(said) ? said : options_.domain), request_id};
  }

  /// Calls \p take for each sandbox that has the pair in its metadata and bears our tag. False when a bound of
  /// \p budget was met. What the server filters is filtered again: what one that ignores the filter answers must not be
  /// taken for ours, least of all by those who delete what they find.
  template <class Take>
  bool each_with(const char* key, const std::string& value, const list_budget& budget, const Take& take) {
    using std::chrono::milliseconds;
    const std::string pair = detail::percent_encode(key) + "=" + detail::percent_encode(value);
    const std::string first =
        list_path + ("?metadata=" + detail::percent_encode(pair)) + "&state=running,paused&limit=100";
    const auto until = detail::later(Sync::clock::now(), budget.max_time);
    std::size_t seen = 0;
    std::string path = first;
    for (std::size_t page = 0; page < budget.max_pages; ++page) {
      const auto left = std::chrono::floor<milliseconds>(until - Sync::clock::now());
      if (left <= milliseconds::zero()) return false;
      http_response response;
      try {
        response = server_.call("GET", path, {}, std::min(left, options_.request_timeout));
      } catch (const backend_error& e) {
        if (e.fault() == backend_fault::timed_out && left < options_.request_timeout) return false;
        throw;
      }
      if (response.status != 200) throw server_.status_error("GET", path, response.status);
      const detail::json_value items = detail::parse_json(response.body);
      for (const detail::json_value& item : items.array()) {
        if (metadata_of(item, key) != value || metadata_of(item, "curfew_provider") != options_.tag) continue;
        if (!is_id(item.at("sandboxID").string()))
          throw server_.error("GET", path, backend_fault::bad_response, "an id that cannot be one");
        if (seen++ == budget.max_items) return false;
        take(item);
      }
      const std::string* const next = response.header("X-Next-Token");
      if (next == nullptr || next->empty()) return true;
      path = first + "&nextToken=" + detail::percent_encode(*next);
    }
    return false;
  }

  bool destroy_attempt(const std::string& attempt) {
    if (!is_id(attempt)) return false;
    try {
      std::vector<std::string> hits;
      bool gone = each_with("curfew_attempt", attempt, {},
                            [&](const detail::json_value& item) { hits.push_back(item.at("sandboxID").string()); });
      for (const std::string& id : hits) gone = destroy(id) && gone;
      return gone;
    } catch (const backend_error&) {
      return false;
    }
  }

  /// The end of a create with a lost answer.
  [[noreturn]] void undo(const std::string& attempt, const backend_error& why) {
    if (destroy_attempt(attempt)) throw why;
    throw backend_error(backend_fault::ambiguous,
                        std::string(why.what()) + "; what it made could not be confirmed gone",
                        std::string(attempt_prefix) + attempt, why.status());
  }

  const e2b_rest_options options_;
  const detail::rest_server<Transport> server_;
};

}  // namespace sandbox
CURFEW_END_NAMESPACE

#endif  // CURFEW_SANDBOX_E2B_REST_BACKEND_HPP
