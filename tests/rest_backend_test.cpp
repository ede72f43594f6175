// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The REST backends against a scripted transport: each row of their tables, each class of statuses, the bounds of an
/// inventory, answers that are lost; and once more through sockets against a server that keeps sandboxes.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/aio_rest_backend.hpp>
#include <curfew/sandbox/e2b.hpp>
#include <curfew/sandbox/e2b_rest_backend.hpp>

#include <tests/support/control_plane.hpp>
#include <tests/support/loopback_server.hpp>
#include <tests/support/park.hpp>
#include <tests/support/scripted_transport.hpp>

namespace {

using namespace curfew::sandbox;
using namespace std::chrono_literals;
using curfew::detail::json_value;
using curfew::detail::parse_json;
using curfew_test::control_plane;
using curfew_test::http_answer;
using curfew_test::loopback_connection;
using curfew_test::loopback_server;
using curfew_test::scripted_transport;
using curfew_test::skipping_sync;
using curfew_test::watchdog;

using e2b = e2b_rest_backend<scripted_transport, skipping_sync>;
using aio = aio_rest_backend<scripted_transport, skipping_sync>;
using strings = std::vector<std::string>;

static_assert(backend<e2b_rest_backend<socket_transport>>);
static_assert(backend<aio_rest_backend<socket_transport>>);

/// How a call failed; `none` when it did not.
struct outcome {
  std::optional<backend_fault> fault;
  std::string leftover, what;
  int status = 0;
};

outcome outcome_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const backend_error& e) {
    return {e.fault(), e.leftover(), e.what(), e.status()};
  }
  return {};
}

const std::vector<std::pair<int, backend_fault>> statuses = {
    {400, backend_fault::rejected},    {401, backend_fault::rejected},    {403, backend_fault::rejected},
    {404, backend_fault::rejected},    {422, backend_fault::rejected},    {429, backend_fault::rejected},
    {418, backend_fault::rejected},    {409, backend_fault::conflict},    {500, backend_fault::unavailable},
    {502, backend_fault::unavailable}, {503, backend_fault::unavailable}, {302, backend_fault::bad_response}};

struct Script : ::testing::Test {
  std::shared_ptr<scripted_transport> wire = std::make_shared<scripted_transport>();
  create_request request{"0011223344556677", {"us\"er", "th/read"}, {{"A", "b c"}}, 1800s};

  void TearDown() override { EXPECT_EQ(wire->left(), 0U) << "foreseen, but never asked"; }
  http_headers headers_of(std::size_t i) const { return wire->log().at(i).headers; }
};

struct E2bRest : Script {
  e2b backend{{.api_key = "key"}, wire};
  const std::string api = "https://api.e2b.app";

  std::string item(const std::string& id, const std::string& request_id, const std::string& state = "running",
                   const std::string& tag = "curfew", const std::string& attempt = "") const {
    return R"({"sandboxID":")" + id + R"(","state":")" + state + R"(","metadata":{"curfew_provider":")" + tag +
           R"(","curfew_request":")" + request_id + R"(","curfew_attempt":")" + attempt + R"("}})";
  }
  static std::string array(const strings& items) {
    std::string text = "[";
    for (const std::string& one : items) text += (text.size() > 1 ? "," : "") + one;
    return text + "]";
  }
  std::string attempt_sent() const {
    return parse_json(wire->log().at(0).body).at("metadata").at("curfew_attempt").string();
  }
  std::string look_up(const std::string& key, const std::string& value, const std::string& token = "") const {
    return "GET " + api + "/v2/sandboxes?metadata=" + key + "%3D" + value + "&state=running,paused&limit=100" +
           (token.empty() ? "" : "&nextToken=" + token);
  }
  /// The next request is answered with one running sandbox of the attempt that the first one carried.
  void find_attempt(const std::string& id) {
    wire->then([this, id](const auto&) {
      return http_response{200, {}, array({item(id, request.id, "running", "curfew", attempt_sent())})};
    });
  }
};

// ---- E2B: create

TEST_F(E2bRest, CreateSendsWhatTheTableSays) {
  wire->reply(201, R"({"sandboxID":"isb1","domain":"other.test","clientID":"x"})");
  const sandbox_info made = backend.create(request);
  EXPECT_EQ(made.id, "isb1");
  EXPECT_EQ(made.endpoint, "https://49983-isb1.other.test");
  EXPECT_EQ(made.request_id, request.id);
  ASSERT_EQ(wire->lines(), (strings{"POST " + api + "/sandboxes"}));
  EXPECT_EQ(headers_of(0), (http_headers{{"X-API-Key", "key"}, {"Content-Type", "application/json"}}));
  EXPECT_EQ(wire->log()[0].timeout, 60s);
  const json_value body = parse_json(wire->log()[0].body);
  EXPECT_EQ(body.at("templateID").string(), "code-interpreter-v1");
  EXPECT_EQ(body.at("timeout").integer(), 1800);
  EXPECT_EQ(body.at("envVars").at("A").string(), "b c");
  const json_value& metadata = body.at("metadata");
  EXPECT_EQ(metadata.at("curfew_provider").string(), "curfew");
  EXPECT_EQ(metadata.at("curfew_request").string(), request.id);
  EXPECT_EQ(metadata.at("curfew_user").string(), "us\"er");
  EXPECT_EQ(metadata.at("curfew_thread").string(), "th/read");
  EXPECT_EQ(metadata.at("curfew_attempt").string().size(), 16U);
}

TEST_F(E2bRest, CreateWithoutTimeToLiveOmitsTheTimeout) {
  request.time_to_live = 0s;
  wire->reply(201, R"({"sandboxID":"i","domain":null})");
  EXPECT_EQ(backend.create(request).endpoint, "https://49983-i.e2b.app")
      << "the option, without a domain in the answer";
  EXPECT_EQ(parse_json(wire->log()[0].body).find("timeout"), nullptr);
}

TEST_F(E2bRest, EachCreateHasAnAttemptOfItsOwn) {
  std::set<std::string> attempts;
  for (int i = 0; i < 20; ++i) {
    wire->reply(201, R"({"sandboxID":"i"})");
    backend.create(request);
    attempts.insert(parse_json(wire->log().back().body).at("metadata").at("curfew_attempt").string());
  }
  EXPECT_EQ(attempts.size(), 20U);
}

TEST_F(E2bRest, ARefusedCreateMadeNothingAndLooksNothingUp) {
  for (const auto& [status, fault] : statuses) {
    if (status < 400 || status >= 500) continue;
    wire->reply(status, "{\"message\":\"secret\"}");
    const outcome o = outcome_of([&] { backend.create(request); });
    EXPECT_EQ(o.fault, fault) << status;
    EXPECT_EQ(o.status, status);
    EXPECT_EQ(o.leftover, "");
    EXPECT_EQ(o.what.find("secret"), std::string::npos);
  }
  for (const std::string& line : wire->lines()) EXPECT_EQ(line, "POST " + api + "/sandboxes");
}

TEST_F(E2bRest, ACreateThatWasNotSentMadeNothing) {
  wire->lost(false).lost(false, true);
  EXPECT_EQ(outcome_of([&] { backend.create(request); }).fault, backend_fault::unavailable);
  EXPECT_EQ(outcome_of([&] { backend.create(request); }).fault, backend_fault::timed_out);
  EXPECT_EQ(wire->lines().size(), 2U);
}

TEST_F(E2bRest, RH1_AnUnknownOutcomeIsLookedUpByItsAttemptAndDeleted) {
  const std::vector<std::pair<std::function<void()>, backend_fault>> cases = {
      {[&] { wire->lost(true); }, backend_fault::unavailable},
      {[&] { wire->lost(true, true); }, backend_fault::timed_out},
      {[&] { wire->reply(500); }, backend_fault::unavailable},
      {[&] { wire->reply(503); }, backend_fault::unavailable},
      {[&] { wire->reply(302); }, backend_fault::bad_response},
      {[&] { wire->reply(201, ""); }, backend_fault::bad_response},
      {[&] { wire->reply(201, "<html>"); }, backend_fault::bad_response},
      {[&] { wire->reply(201, "[]"); }, backend_fault::bad_response},
      {[&] { wire->reply(201, "{}"); }, backend_fault::bad_response},
      {[&] { wire->reply(201, R"({"sandboxID":7})"); }, backend_fault::bad_response},
      {[&] { wire->reply(201, R"({"sandboxID":""})"); }, backend_fault::bad_response},
      {[&] { wire->reply(201, R"({"sandboxID":"../x"})"); }, backend_fault::bad_response}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    wire = std::make_shared<scripted_transport>();
    e2b fresh({.api_key = "key"}, wire);
    cases[i].first();
    find_attempt("lost1");
    wire->reply(204);
    const outcome o = outcome_of([&] { fresh.create(request); });
    EXPECT_EQ(o.fault, cases[i].second);
    EXPECT_EQ(o.leftover, "") << "confirmed gone";
    EXPECT_EQ(wire->lines(), (strings{"POST " + api + "/sandboxes", look_up("curfew_attempt", attempt_sent()),
                                      "DELETE " + api + "/sandboxes/lost1"}));
    EXPECT_EQ(wire->left(), 0U);
  }
}

TEST_F(E2bRest, RH1_NothingFoundIsNothingLeft) {
  wire->lost(true).reply(200, "[]");
  const outcome o = outcome_of([&] { backend.create(request); });
  EXPECT_EQ(o.fault, backend_fault::unavailable);
  EXPECT_EQ(o.leftover, "");
}

TEST_F(E2bRest, RH1_EveryHitOnEveryPageIsDeleted) {
  wire->lost(true);
  wire->then([this](const auto&) {
    return http_response{200, {{"x-next-token", "t"}}, array({item("a", "r", "running", "curfew", attempt_sent())})};
  });
  wire->then([this](const auto&) {
    return http_response{200, {}, array({item("b", "r", "paused", "curfew", attempt_sent())})};
  });
  wire->reply(204).reply(404);
  EXPECT_EQ(outcome_of([&] { backend.create(request); }).leftover, "");
  const strings lines = wire->lines();
  EXPECT_EQ(lines[3], "DELETE " + api + "/sandboxes/a");
  EXPECT_EQ(lines[4], "DELETE " + api + "/sandboxes/b");
}

TEST_F(E2bRest, RH1_WhatCannotBeConfirmedIsAmbiguousAndDestroyLooksAgain) {
  const std::vector<std::function<void()>> cases = {[&] { wire->lost(true); },              // the look-up
                                                    [&] { wire->lost(false); },             //
                                                    [&] { wire->reply(500); },              //
                                                    [&] { wire->reply(200, "nonsense"); },  //
                                                    [&] {                                   // the deletion
                                                      find_attempt("x");
                                                      wire->reply(500);
                                                    },
                                                    [&] {
                                                      find_attempt("x");
                                                      wire->lost(true);
                                                    }};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    wire = std::make_shared<scripted_transport>();
    e2b fresh({.api_key = "key"}, wire);
    wire->lost(true);
    cases[i]();
    const outcome o = outcome_of([&] { fresh.create(request); });
    EXPECT_EQ(o.fault, backend_fault::ambiguous);
    ASSERT_EQ(o.leftover, "attempt:" + attempt_sent());
    EXPECT_EQ(wire->left(), 0U);
    wire->reply(500);
    EXPECT_FALSE(fresh.destroy(o.leftover));
    find_attempt("x");
    wire->reply(500);
    EXPECT_FALSE(fresh.destroy(o.leftover));
    find_attempt("x");
    wire->reply(204);
    EXPECT_TRUE(fresh.destroy(o.leftover));
    wire->reply(200, "[]");
    EXPECT_TRUE(fresh.destroy(o.leftover));
    EXPECT_EQ(fresh.probe(o.leftover), liveness::unknown) << "not an id of the server";
  }
}

TEST_F(E2bRest, RH1_AServerThatIgnoresTheFilterLosesNothing) {
  wire->lost(true);
  wire->reply(200, array({item("mine1", "r"), item("other", "r", "running", "curfew", "ffffffffffffffff"),
                          item("foreign", "r", "running", "not-ours"), R"({"sandboxID":"bare"})"}));
  EXPECT_EQ(outcome_of([&] { backend.create(request); }).leftover, "");
  EXPECT_EQ(wire->lines().size(), 2U) << "nothing was deleted";
}

TEST_F(E2bRest, RH1_AnIncompleteLookUpConfirmsNothing) {
  wire->lost(true);
  for (int page = 0; page < 10; ++page) wire->reply(200, "[]", {{"X-Next-Token", std::to_string(page)}});
  EXPECT_EQ(outcome_of([&] { backend.create(request); }).fault, backend_fault::ambiguous);
}

// ---- E2B: destroy, probe, set_timeout

TEST_F(E2bRest, Destroy) {
  wire->reply(204).reply(404).reply(200).reply(409).reply(500).lost(false).lost(true).lost(true, true);
  EXPECT_TRUE(backend.destroy("a:b"));
  EXPECT_TRUE(backend.destroy("i"));
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(backend.destroy("i")) << i;
  EXPECT_EQ(wire->lines()[0], "DELETE " + api + "/sandboxes/a%3Ab");
  EXPECT_EQ(headers_of(0), (http_headers{{"X-API-Key", "key"}}));
}

TEST_F(E2bRest, Probe) {
  const auto says = [&](int status, const std::string& body) {
    wire->reply(status, body);
    return backend.probe("i");
  };
  EXPECT_EQ(says(200, R"({"state":"running"})"), liveness::alive);
  EXPECT_EQ(says(200, R"({"state":"paused"})"), liveness::dead);
  EXPECT_EQ(says(404, ""), liveness::dead);
  for (const char* body : {R"({"state":"new"})", R"({"state":1})", "{}", "", "[1"})
    EXPECT_EQ(says(200, body), liveness::unknown) << body;
  for (const int status : {401, 409, 429, 500, 503, 302}) EXPECT_EQ(says(status, "{}"), liveness::unknown) << status;
  wire->lost(false).lost(true, true);
  EXPECT_EQ(backend.probe("i"), liveness::unknown);
  EXPECT_EQ(backend.probe("i"), liveness::unknown);
  EXPECT_EQ(wire->lines()[0], "GET " + api + "/sandboxes/i");
}

TEST_F(E2bRest, SetTimeout) {
  wire->reply(204).reply(404);
  EXPECT_TRUE(backend.set_timeout("i", 600s));
  EXPECT_FALSE(backend.set_timeout("i", 600s));
  EXPECT_EQ(wire->lines()[0], "POST " + api + "/sandboxes/i/timeout");
  EXPECT_EQ(wire->log()[0].body, R"({"timeout":600})");
  for (const auto& [status, fault] : statuses) {
    if (status == 404) continue;
    wire->reply(status);
    EXPECT_EQ(outcome_of([&] { backend.set_timeout("i", 1s); }).fault, fault) << status;
  }
  wire->lost(false).lost(true, true);
  EXPECT_EQ(outcome_of([&] { backend.set_timeout("i", 1s); }).fault, backend_fault::unavailable);
  EXPECT_EQ(outcome_of([&] { backend.set_timeout("i", 1s); }).fault, backend_fault::timed_out);
}

// ---- E2B: list, find

TEST_F(E2bRest, ListAsksByTagAndReadsEveryPage) {
  wire->reply(200, array({item("a", "r1"), item("b", "r2", "paused")}), {{"x-next-token", "t/1 +"}});
  wire->reply(200, array({R"({"sandboxID":"c","metadata":{"curfew_provider":"curfew"},"domain":"d.test"})"}));
  const auto all = backend.list();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].id, "a");
  EXPECT_EQ(all[0].request_id, "r1");
  EXPECT_EQ(all[0].endpoint, "https://49983-a.e2b.app");
  EXPECT_EQ(all[1].request_id, "r2");
  EXPECT_EQ(all[2].request_id, "") << "without that metadata";
  EXPECT_EQ(all[2].endpoint, "https://49983-c.d.test");
  EXPECT_EQ(wire->lines(),
            (strings{look_up("curfew_provider", "curfew"), look_up("curfew_provider", "curfew", "t%2F1%20%2B")}));
}

TEST_F(E2bRest, MetadataIsEncodedTwice) {
  e2b odd({.api_key = "key", .tag = "a b=c&d%"}, wire);
  wire->reply(200, "[]");
  odd.list();
  EXPECT_EQ(wire->lines()[0], look_up("curfew_provider", "a%2520b%253Dc%2526d%2525"));
}

TEST_F(E2bRest, ListDropsWhatIsNotOurs) {
  wire->reply(200, array({item("a", "r"), item("b", "r", "running", "other"), R"({"sandboxID":"c"})"}));
  EXPECT_EQ(backend.list().size(), 1U);
}

TEST_F(E2bRest, ListThrowsForEveryOtherAnswer) {
  for (const auto& [status, fault] : statuses) {
    wire->reply(status);
    EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, fault) << status;
  }
  for (const char* body : {"", "{}", "[", "{\"sandboxes\":[]}", "7"}) {
    wire->reply(200, body);
    EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::bad_response) << body;
  }
  for (const std::string bad : {"", "a/b", ".."}) {
    wire->reply(200, array({item(bad, "r")}));
    EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::bad_response) << bad;
  }
  wire->lost(false).lost(true, true);
  EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::unavailable);
  EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::timed_out);
  wire->reply(200, array({item("a", "r")}), {{"X-Next-Token", "t"}}).reply(500);
  EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::unavailable) << "also on a later page";
}

TEST_F(E2bRest, AnInventoryStopsAtItsPages) {
  for (int page = 0; page < 3; ++page) wire->reply(200, array({item("a", "r")}), {{"X-Next-Token", "t"}});
  const listing seen = backend.list_within({.max_pages = 3});
  EXPECT_FALSE(seen.complete);
  EXPECT_EQ(seen.items.size(), 3U);
  wire->reply(200, array({item("a", "r")}));
  EXPECT_TRUE(backend.list_within({.max_pages = 1}).complete) << "exactly as many pages as allowed";
  EXPECT_FALSE(backend.list_within({.max_pages = 0}).complete);
}

TEST_F(E2bRest, AnInventoryStopsAtItsItemsCountedOverAllPages) {
  wire->reply(200, array({item("a", "r"), item("b", "r")}), {{"X-Next-Token", "t"}});
  wire->reply(200, array({item("c", "r"), item("d", "r")}));
  const listing seen = backend.list_within({.max_items = 3});
  EXPECT_FALSE(seen.complete);
  EXPECT_EQ(seen.items.size(), 3U);
  wire->reply(200, array({item("a", "r"), item("b", "r")}));
  EXPECT_TRUE(backend.list_within({.max_items = 2}).complete) << "exactly as many items as allowed";
}

TEST_F(E2bRest, AnInventoryStopsAtItsTimeMeasuredOverAllPages) {
  for (int page = 0; page < 3; ++page)
    wire->then([this](const http_request& r) {
      EXPECT_LE(r.timeout, 15s) << "a request has no more than what is left";
      skipping_sync::skip(6s);
      return http_response{200, {{"X-Next-Token", "t"}}, array({item("a", "r")})};
    });
  const listing seen = backend.list_within({});
  EXPECT_FALSE(seen.complete);
  EXPECT_EQ(seen.items.size(), 3U);
  EXPECT_LE(wire->log()[2].timeout, 3s);
  wire->reply(200, array({item("a", "r")}), {{"X-Next-Token", "t"}}).lost(true, true);
  EXPECT_FALSE(backend.list_within({}).complete) << "a request that ran into the bound is the bound";
  EXPECT_FALSE(backend.list_within({.max_time = 0s}).complete);
}

TEST_F(E2bRest, ListThrowsWhenItIsNotAll) {
  for (int page = 0; page < 10; ++page) wire->reply(200, "[]", {{"X-Next-Token", "t"}});
  EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::unavailable);
}

TEST_F(E2bRest, FindTakesTheRunningOneWithTheSmallestId) {
  wire->reply(200, array({item("c", "r"), item("a", "r", "paused"), item("b", "r"), item("0", "other")}));
  const auto found = backend.find("r");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id, "b");
  EXPECT_EQ(found->request_id, "r");
  EXPECT_EQ(wire->lines()[0], look_up("curfew_request", "r"));
  wire->reply(200, "[]").reply(500);
  EXPECT_FALSE(backend.find("r"));
  EXPECT_EQ(outcome_of([&] { backend.find("r"); }).fault, backend_fault::unavailable);
}

// ---- E2B: bad input

TEST_F(E2bRest, BadInputIsRefusedBeforeAnythingIsSent) {
  for (const std::string& bad : {std::string(), std::string("a/b"), std::string(".."), std::string("a b"),
                                 std::string(129, 'a'), std::string("a\0b", 3)}) {
    request.id = bad;
    EXPECT_THROW(backend.create(request), std::invalid_argument);
    EXPECT_FALSE(backend.destroy(bad));
    EXPECT_EQ(backend.probe(bad), liveness::unknown);
    EXPECT_FALSE(backend.find(bad));
    EXPECT_THROW(backend.set_timeout(bad, 1s), std::invalid_argument);
    EXPECT_FALSE(backend.destroy("attempt:" + bad));
  }
  EXPECT_THROW(backend.set_timeout("i", -1s), std::invalid_argument);
  request.id = "a:b";
  request.environment = {{"1A", "x"}};
  EXPECT_THROW(backend.create(request), std::invalid_argument);
  request.environment = {{"A", "\xff"}};
  EXPECT_THROW(backend.create(request), std::invalid_argument) << "not UTF-8";
  request.environment = {};
  request.time_to_live = -1s;
  EXPECT_THROW(backend.create(request), std::invalid_argument);
  EXPECT_TRUE(wire->lines().empty());
}

TEST_F(E2bRest, BadOptionsAreRefusedByTheConstructor) {
  const auto refused = [&](e2b_rest_options o) { EXPECT_THROW(e2b(std::move(o), wire), std::invalid_argument); };
  ::unsetenv("E2B_API_KEY");
  refused({});
  refused({.api_key = "k\r\nX: y"});
  refused({.api_key = "k", .domain = ""});
  refused({.api_key = "k", .domain = "a/b"});
  refused({.api_key = "k", .api_url = "nonsense"});
  refused({.api_key = "k", .api_url = "http://u:p@h"});
  refused({.api_key = "k", .template_id = ""});
  refused({.api_key = "k", .tag = ""});
  refused({.api_key = "k", .request_timeout = 0ms});
  EXPECT_THROW(e2b_rest_backend<socket_transport>({.api_key = "k"}), std::invalid_argument)
      << "https over plain sockets";
  ::setenv("E2B_API_KEY", "from-environment", 1);
  wire->reply(204);
  e2b({}, wire).destroy("i");
  EXPECT_EQ(headers_of(0), (http_headers{{"X-API-Key", "from-environment"}}));
  ::unsetenv("E2B_API_KEY");
}

TEST_F(E2bRest, UrlsFollowTheOptions) {
  wire->reply(204).reply(204);
  e2b({.api_key = "k", .domain = "mine.test"}, wire).destroy("i");
  e2b({.api_key = "k", .api_url = "http://127.0.0.1:3000/base/"}, wire).destroy("i");
  EXPECT_EQ(wire->lines(),
            (strings{"DELETE https://api.mine.test/sandboxes/i", "DELETE http://127.0.0.1:3000/base/sandboxes/i"}));
}

TEST_F(E2bRest, RetryableIsWhatMaySucceedLater) {
  wire->reply(429).reply(403).lost(false);
  const auto retryable = [&] {
    try {
      backend.create(request);
    } catch (const backend_error& e) {
      return e.retryable();
    }
    return false;
  };
  EXPECT_TRUE(retryable());
  EXPECT_FALSE(retryable());
  EXPECT_TRUE(retryable());
}

// ---- AIO

struct AioRest : Script {
  aio backend{{"http://prov.test:8002/", "key"}, wire};
  const std::string api = "http://prov.test:8002/api/sandboxes";
  const std::string made = R"({"sandbox_url":"http://10.0.0.7:30001","sandbox_id":"x"})";
};

TEST_F(AioRest, CreateSendsWhatTheTableSaysAndWaitsUntilReady) {
  wire->reply(200, made).lost(false).reply(503).lost(true, true).reply(200);
  const sandbox_info info = backend.create(request);
  EXPECT_EQ(info.id, request.id);
  EXPECT_EQ(info.endpoint, "http://10.0.0.7:30001");
  const auto log = wire->log();
  ASSERT_EQ(log.size(), 5U);
  EXPECT_EQ(log[0].method + " " + log[0].url, "POST " + api);
  EXPECT_EQ(log[0].timeout, 30s);
  EXPECT_EQ(headers_of(0), (http_headers{{"X-API-Key", "key"}, {"Content-Type", "application/json"}}));
  const json_value body = parse_json(log[0].body);
  EXPECT_EQ(body.at("sandbox_id").string(), request.id);
  EXPECT_EQ(body.at("thread_id").string(), "th/read");
  EXPECT_EQ(body.at("user_id").string(), "us\"er");
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(log[i].method + " " + log[i].url, "GET http://10.0.0.7:30001/v1/sandbox");
    EXPECT_TRUE(log[i].headers.empty()) << "the key is the provisioner's alone";
    EXPECT_EQ(log[i].timeout, 5s);
  }
}

TEST_F(AioRest, RD4_ReadinessIsAskedOnceASecondForSixtySeconds) {
  wire->reply(200, made);
  std::vector<std::chrono::steady_clock::time_point> asked;
  wire->otherwise([&](const http_request& r) {
    if (r.method == "GET") asked.push_back(skipping_sync::clock::now());
    return http_response{r.method == "GET" ? 502 : 204, {}, ""};
  });
  const outcome o = outcome_of([&] { backend.create(request); });
  EXPECT_EQ(o.fault, backend_fault::timed_out);
  EXPECT_EQ(o.leftover, "");
  EXPECT_EQ(wire->lines().back(), "DELETE " + api + "/" + request.id);
  EXPECT_GE(asked.size(), 59U);
  EXPECT_LE(asked.size(), 60U);
  for (std::size_t i = 1; i < asked.size(); ++i) EXPECT_GE(asked[i] - asked[i - 1], 1s);
}

TEST_F(AioRest, RD4_AStillUnreadyOneThatCannotBeStoppedIsLeftOver) {
  wire->reply(200, made);
  wire->otherwise([&](const http_request& r) {
    if (r.method == "GET") skipping_sync::skip(5s);  // each request takes all of its time
    return http_response{500, {}, ""};
  });
  const outcome o = outcome_of([&] { backend.create(request); });
  EXPECT_EQ(o.fault, backend_fault::timed_out);
  EXPECT_EQ(o.leftover, request.id);
  EXPECT_EQ(wire->log().size(), 12U) << "ten requests in sixty seconds";
}

TEST_F(AioRest, AnUnknownOutcomeOfCreateIsUndone) {
  const std::vector<std::pair<std::function<void()>, backend_fault>> cases = {
      {[&] { wire->lost(true); }, backend_fault::unavailable},
      {[&] { wire->lost(true, true); }, backend_fault::timed_out},
      {[&] { wire->reply(500); }, backend_fault::unavailable},
      {[&] { wire->reply(302); }, backend_fault::bad_response},
      {[&] { wire->reply(201, made); }, backend_fault::bad_response},
      {[&] { wire->reply(200, "nonsense"); }, backend_fault::bad_response},
      {[&] { wire->reply(200, "{}"); }, backend_fault::bad_response},
      {[&] { wire->reply(200, R"({"sandbox_url":null})"); }, backend_fault::bad_response},
      {[&] { wire->reply(200, R"({"sandbox_url":"no url"})"); }, backend_fault::bad_response}};
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (const bool undone : {true, false}) {
      SCOPED_TRACE(i);
      cases[i].first();
      wire->reply(undone ? 204 : 500);
      const outcome o = outcome_of([&] { backend.create(request); });
      EXPECT_EQ(o.fault, cases[i].second);
      EXPECT_EQ(o.leftover, undone ? "" : request.id);
      EXPECT_EQ(wire->lines().back(), "DELETE " + api + "/" + request.id);
    }
}

TEST_F(AioRest, ARefusedCreateMadeNothing) {
  for (const auto& [status, fault] : statuses) {
    if (status < 400 || status >= 500) continue;
    wire->reply(status);
    const outcome o = outcome_of([&] { backend.create(request); });
    EXPECT_EQ(o.fault, fault) << status;
    EXPECT_EQ(o.status, status);
  }
  wire->lost(false);
  EXPECT_EQ(outcome_of([&] { backend.create(request); }).fault, backend_fault::unavailable);
  for (const std::string& line : wire->lines()) EXPECT_EQ(line, "POST " + api);
}

TEST_F(AioRest, Destroy) {
  wire->reply(200).reply(204).reply(404).reply(401).reply(409).reply(500).lost(false).lost(true, true);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(backend.destroy("a:b")) << i;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(backend.destroy("i")) << i;
  EXPECT_EQ(wire->lines()[0], "DELETE " + api + "/a%3Ab");
  EXPECT_EQ(wire->log()[0].timeout, 15s);
}

TEST_F(AioRest, Probe) {
  const auto says = [&](int status, const std::string& body) {
    wire->reply(status, body);
    return backend.probe("i");
  };
  EXPECT_EQ(says(200, R"({"status":"Running"})"), liveness::alive);
  EXPECT_EQ(says(200, R"({"status":"Succeeded"})"), liveness::dead);
  EXPECT_EQ(says(200, R"({"status":"Failed"})"), liveness::dead);
  EXPECT_EQ(says(404, ""), liveness::dead);
  for (const char* body : {R"({"status":"Pending"})", R"({"status":null})", "{}", "x"})
    EXPECT_EQ(says(200, body), liveness::unknown) << body;
  for (const int status : {401, 409, 500, 302}) EXPECT_EQ(says(status, ""), liveness::unknown) << status;
  wire->lost(false).lost(true, true);
  EXPECT_EQ(backend.probe("i"), liveness::unknown);
  EXPECT_EQ(backend.probe("i"), liveness::unknown);
  EXPECT_EQ(wire->log()[0].timeout, 10s);
}

TEST_F(AioRest, Find) {
  wire->reply(200, R"({"status":"Running","sandbox_url":"http://h:1"})");
  const auto found = backend.find("i");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->id, "i");
  EXPECT_EQ(found->endpoint, "http://h:1");
  wire->reply(404).reply(200, R"({"status":"Pending","sandbox_url":"http://h:1"})");
  EXPECT_FALSE(backend.find("i"));
  EXPECT_FALSE(backend.find("i"));
  wire->reply(500).reply(200, R"({"status":"Running"})");
  EXPECT_EQ(outcome_of([&] { backend.find("i"); }).fault, backend_fault::unavailable);
  EXPECT_EQ(outcome_of([&] { backend.find("i"); }).fault, backend_fault::bad_response);
}

TEST_F(AioRest, List) {
  wire->reply(200,
              R"({"sandboxes":[{"sandbox_id":"a","sandbox_url":"http://h:1"},{"sandbox_id":"b"},{"sandbox_url":"u"},
                       {"sandbox_id":"../c","sandbox_url":"u"},{"sandbox_id":1,"sandbox_url":"u"},7,
                       {"sandbox_id":"d","sandbox_url":"http://h:2","status":"Running"}]})");
  const auto all = backend.list();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].id, "a");
  EXPECT_EQ(all[0].endpoint, "http://h:1");
  EXPECT_EQ(all[1].id, "d");
  EXPECT_EQ(wire->lines()[0], "GET " + api);
  EXPECT_EQ(wire->log()[0].timeout, 10s);
  for (const auto& [status, fault] : statuses) {
    wire->reply(status);
    EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, fault) << status;
  }
  for (const char* body : {"", "[]", "{}", R"({"sandboxes":{}})"}) {
    wire->reply(200, body);
    EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::bad_response) << body;
  }
  wire->lost(true, true);
  EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::timed_out);
}

TEST_F(AioRest, BadInput) {
  for (const char* bad : {"", "a/b", "..", "a b"}) {
    request.id = bad;
    EXPECT_THROW(backend.create(request), std::invalid_argument);
    EXPECT_FALSE(backend.destroy(bad));
    EXPECT_EQ(backend.probe(bad), liveness::unknown);
    EXPECT_FALSE(backend.find(bad));
  }
  for (const char* url : {"", "prov", "ftp://h", "http://u@h", "http://h?q"})
    EXPECT_THROW(aio({url, ""}, wire), std::invalid_argument) << url;
  EXPECT_THROW(aio({"http://h", "k\n"}, wire), std::invalid_argument);
  EXPECT_THROW(aio_rest_backend<socket_transport>({"https://h", ""}), std::invalid_argument);
  EXPECT_TRUE(wire->lines().empty());
  wire->reply(204);
  aio({"http://h", ""}, wire).destroy("i");
  EXPECT_TRUE(headers_of(0).empty()) << "no key, no header";
}

// ---- through sockets

TEST(E2bRestOverSockets, ALifeAndALostAnswer) {
  const watchdog dog("e2b over sockets");
  control_plane plane;
  e2b_rest_backend<socket_transport> backend({.api_key = "key", .api_url = plane.url()});
  std::set<std::string> ids;
  for (const char* request : {"r1", "r2", "r3", "r4", "r5"})
    ids.insert(backend.create({request, {"u", "t"}, {}, 60s}).id);
  EXPECT_EQ(ids.size(), 5U);
  EXPECT_EQ(backend.list().size(), 5U) << "three pages";
  const auto found = backend.find("r3");
  ASSERT_TRUE(found);
  EXPECT_EQ(backend.probe(found->id), liveness::alive);
  EXPECT_TRUE(backend.set_timeout(found->id, 60s));
  EXPECT_TRUE(backend.destroy(found->id));
  EXPECT_TRUE(backend.destroy(found->id));
  EXPECT_EQ(backend.probe(found->id), liveness::dead);
  EXPECT_FALSE(backend.set_timeout(found->id, 60s));
  EXPECT_FALSE(backend.find("r3"));

  plane.lose_answers(true);
  const outcome o = outcome_of([&] { backend.create({"r6", {"u", "t"}, {}, 60s}); });
  EXPECT_EQ(o.fault, backend_fault::unavailable);
  EXPECT_EQ(o.leftover, "");
  EXPECT_EQ(plane.running(), 4U) << "what the lost create had made is gone, and nothing else";
}

TEST(E2bRestOverSockets, UnderAProvider) {
  const watchdog dog("under a provider");
  control_plane plane;
  using server = e2b_rest_backend<socket_transport>;
  const auto backend = std::make_shared<server>(e2b_rest_options{.api_key = "key", .api_url = plane.url()});
  e2b_provider<server> provider(backend);
  const std::string first = provider.acquire({"u", "t"}).id();  // and released: parked
  EXPECT_EQ(plane.running(), 1U);
  EXPECT_EQ(provider.acquire({"u", "t"}).id(), first) << "reclaimed";
  const lease other = provider.acquire({"u", "t2"});
  EXPECT_EQ(plane.running(), 2U);
  EXPECT_TRUE(provider.reconcile().complete);

  plane.lose_answers(true);
  EXPECT_EQ(outcome_of([&] { provider.acquire({"u", "t3"}); }).fault, backend_fault::unavailable);
  EXPECT_EQ(plane.running(), 2U);
  EXPECT_EQ(provider.stats().tombstones, 0U);
  EXPECT_EQ(provider.shutdown(), curfew::teardown_status::completed);
  EXPECT_EQ(plane.running(), 0U);
}

TEST(E2bRestOverSockets, UnderAProviderWarmOnesAreReapedAndLostOnesFoundAndEnded) {
  const watchdog dog("e2b reaping");
  control_plane plane;
  using server = e2b_rest_backend<socket_transport>;
  const auto backend = std::make_shared<server>(e2b_rest_options{.api_key = "key", .api_url = plane.url()});
  auto now = std::chrono::steady_clock::now();
  e2b_options options;
  options.clock = [&now] { return now; };
  e2b_provider<server> provider(backend, options);
  const std::string warm = provider.acquire({"u", "warm"}).id();
  const lease active = provider.acquire({"u", "active"});
  backend->create({"4242424242424242", {"u", "lost"}, {}, 60s});
  EXPECT_EQ(provider.reconcile().adopted, 0U) << "seen for the first time";
  now += options.orphan_grace;
  EXPECT_EQ(provider.reconcile().adopted, 1U);
  EXPECT_EQ(plane.running(), 3U);
  now += options.idle_timeout + 1s;
  EXPECT_EQ(provider.sweep_idle(), 2U) << "the warm one and the adopted one; the active one is the server's to end";
  EXPECT_EQ(plane.running(), 1U);
  EXPECT_TRUE(active.valid());
  EXPECT_EQ(backend->probe(warm), liveness::dead);
  EXPECT_TRUE(plane.forget(active.id())) << "the server ends it";
  const auto report = provider.reconcile();
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.expired, 1U);
  EXPECT_FALSE(active.valid());
  EXPECT_EQ(provider.shutdown(), curfew::teardown_status::completed);
  EXPECT_EQ(plane.running(), 0U);
  const auto stats = provider.stats();
  EXPECT_EQ(stats.created + stats.adopted, stats.destroyed + stats.forgotten);
}

TEST(E2bRestOverSockets, AWrongKey) {
  const watchdog dog("wrong key");
  control_plane plane;
  e2b_rest_backend<socket_transport> backend({.api_key = "wrong", .api_url = plane.url()});
  EXPECT_EQ(outcome_of([&] { backend.create({"r", {}, {}, 0s}); }).fault, backend_fault::rejected);
  EXPECT_EQ(outcome_of([&] { backend.list(); }).status, 401);
}

TEST(AioRestOverSockets, ACreateThatBecomesReady) {
  const watchdog dog("aio over sockets");
  int asked = 0;
  loopback_server sandbox([&](loopback_connection& c) {
    EXPECT_EQ(c.request().substr(0, 24), "GET /v1/sandbox HTTP/1.1");
    c.write(http_answer(asked++ == 0 ? 503 : 200, "{}"));
  });
  loopback_server provisioner([&](loopback_connection& c) {
    c.request();
    c.write(http_answer(200, R"({"sandbox_url":")" + sandbox.url("") + "\"}"));
  });
  aio_rest_backend<basic_socket_transport<skipping_sync>, skipping_sync> backend({provisioner.url(), ""});
  EXPECT_EQ(backend.create({"r", {"u", "t"}, {}, 0s}).endpoint, sandbox.url(""));
  EXPECT_EQ(asked, 2);
}

TEST(AioRestOverSockets, UnderAProvider) {
  const watchdog dog("aio under a provider");
  control_plane plane;
  using server = aio_rest_backend<socket_transport>;
  const auto backend = std::make_shared<server>(aio_rest_options{plane.url(), "key"});
  auto now = std::chrono::steady_clock::now();
  aio_options options;
  options.clock = [&now] { return now; };
  aio_provider<server> provider(backend, options);

  const owner_key owner{"u", "t"};
  EXPECT_EQ(provider.acquire(owner).id(), stable_id(owner));  // and released: parked
  EXPECT_EQ(provider.acquire(owner).id(), stable_id(owner));
  EXPECT_EQ(plane.made(), 1) << "reclaimed";
  EXPECT_TRUE(plane.forget(stable_id(owner)));
  EXPECT_EQ(provider.acquire(owner).id(), stable_id(owner));
  EXPECT_EQ(plane.made(), 2) << "replaced";

  // One that somebody else has left running: found at acquire, and after the grace by the reconciler.
  backend->create({stable_id({"u", "t2"}), {"u", "t2"}, {}, 0s});
  backend->create({"4242424242424242", {"u", "t3"}, {}, 0s});
  const lease found = provider.acquire({"u", "t2"});
  EXPECT_EQ(plane.made(), 4);
  EXPECT_EQ(provider.reconcile().adopted, 0U);
  now += options.orphan_grace;
  EXPECT_EQ(provider.reconcile().adopted, 1U);
  EXPECT_EQ(provider.stats().adopted, 2U);

  now += options.idle_timeout + 1s;
  EXPECT_TRUE(provider.get(found.id())) << "activity";
  EXPECT_EQ(provider.sweep_idle(), 2U);
  EXPECT_EQ(plane.running(), 1U);
  EXPECT_TRUE(found.valid());

  plane.lose_answers(true);
  EXPECT_EQ(outcome_of([&] { provider.acquire({"u", "t4"}); }).fault, backend_fault::unavailable);
  EXPECT_EQ(plane.running(), 1U) << "what the lost create had made is gone";
  EXPECT_EQ(provider.stats().tombstones, 0U);
  EXPECT_EQ(provider.shutdown(), curfew::teardown_status::completed);
  EXPECT_EQ(plane.running(), 0U);
  EXPECT_FALSE(found.valid());
  const auto stats = provider.stats();
  EXPECT_EQ(stats.created + stats.adopted, stats.destroyed + stats.forgotten);
}

}  // namespace
