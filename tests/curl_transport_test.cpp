// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// curl_transport against servers of the test: what a transport has to do, proxies and private hosts, and https with
/// certificates that openssl makes on the spot.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/sandbox/aio_rest_backend.hpp>
#include <curfew/sandbox/curl_transport.hpp>
#include <curfew/sandbox/e2b_rest_backend.hpp>

#include <tests/support/loopback_server.hpp>
#include <tests/support/park.hpp>

namespace {

namespace fs = std::filesystem;
using namespace curfew::sandbox;
using namespace std::chrono_literals;
using curfew::detail::is_private_host;
using curfew_test::http_answer;
using curfew_test::loopback_connection;
using curfew_test::loopback_server;
using curfew_test::watchdog;

static_assert(transport<curl_transport>);
static_assert(backend<e2b_rest_backend<curl_transport>>);
static_assert(backend<aio_rest_backend<curl_transport>>);

struct failure {
  bool failed = false, sent = false, timed_out = false;
  std::string what;
};

failure failure_of(const http_request& request, const curl_options& options = {}) {
  try {
    curl_transport(options).send(request);
  } catch (const transport_error& e) {
    return {true, e.sent(), e.timed_out(), e.what()};
  }
  return {};
}

http_request get(const std::string& url, std::chrono::milliseconds timeout = curfew_test::patience) {
  return {"GET", url, {}, "", timeout};
}

TEST(PrivateHost, WhatIsNear) {
  for (const char* near : {"localhost", "LOCALHOST", "a.localhost", "host.docker.internal", "printer.local", "db",
                           "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
                           "169.254.1.1", "::1", "fc00::1", "fdff::1", "fe80::1", "febf::1"})
    EXPECT_TRUE(is_private_host(near)) << near;
  for (const char* far :
       {"example.test", "api.e2b.app", "8.8.8.8", "172.15.0.1", "172.32.0.1", "192.169.1.1", "11.0.0.1", "126.0.0.1",
        "128.0.0.1", "2001:db8::1", "fec0::1", "fbff::1", "::2", "10.0.0.1.example.test", "10.0.0", "10.0.0.256.test"})
    EXPECT_FALSE(is_private_host(far)) << far;
}

TEST(CurlTransport, WhatGoesOverTheWire) {
  const watchdog dog("wire");
  std::vector<std::string> seen;
  loopback_server server([&](loopback_connection& c) {
    seen.push_back(c.request());
    c.write("HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n" + http_answer(201, "made", "X-A:  1 \r\n"));
  });
  const curl_transport transport;
  const http_response r =
      transport.send({"POST", server.url("/a?b=c"), {{"X-API-Key", "k"}, {"Empty", ""}}, std::string("{\0}", 3), 20s});
  EXPECT_EQ(r.status, 201);
  EXPECT_EQ(r.body, "made");
  ASSERT_NE(r.header("x-a"), nullptr);
  EXPECT_EQ(*r.header("x-a"), "1");
  EXPECT_EQ(r.header("x-early"), nullptr) << "of an interim response";
  EXPECT_TRUE(seen[0].starts_with("POST /a?b=c HTTP/1.1\r\n")) << seen[0];
  EXPECT_NE(seen[0].find("\r\nX-API-Key: k\r\n"), std::string::npos);
  EXPECT_NE(seen[0].find("\r\nEmpty:\r\n"), std::string::npos);
  EXPECT_NE(seen[0].find("\r\nContent-Length: 3\r\n"), std::string::npos);
  EXPECT_EQ(seen[0].find("Content-Type"), std::string::npos) << "none was given";
  EXPECT_EQ(seen[0].find("Expect"), std::string::npos);
  EXPECT_TRUE(seen[0].ends_with(std::string("\r\n\r\n{\0}", 7)));
  transport.send({"DELETE", server.url("/x"), {}, "", 20s});
  EXPECT_TRUE(seen[1].starts_with("DELETE /x HTTP/1.1\r\n"));
}

TEST(CurlTransport, AnyStatusIsAResponseAndNoRedirectIsFollowed) {
  const watchdog dog("statuses");
  for (const int status : {200, 302, 404, 429, 500}) {
    loopback_server server(http_answer(status, "b", "Location: http://127.0.0.1:1/\r\n"));
    EXPECT_EQ(curl_transport().send(get(server.url())).status, status);
    EXPECT_EQ(server.connections(), 1U);
  }
}

TEST(CurlTransport, BadRequestsAreRefusedUnsent) {
  loopback_server server(http_answer(200, ""));
  EXPECT_THROW(curl_transport().send({"GET", server.url(), {{"A", "b\r\nX: y"}}, "", 1s}), std::invalid_argument);
  EXPECT_THROW(curl_transport().send(get("file:///etc/passwd")), std::invalid_argument);
  EXPECT_THROW(curl_transport().send(get("http://u:p@127.0.0.1/")), std::invalid_argument);
  EXPECT_THROW(curl_transport().send(get(server.url(), 0ms)), std::invalid_argument);
  EXPECT_EQ(server.connections(), 0U);
}

TEST(CurlTransport, SentIsToldFromUnsent) {
  const watchdog dog("sent");
  std::string gone;
  {
    loopback_server server(http_answer(200, ""));
    gone = server.url();
  }
  const failure nobody = failure_of(get(gone));
  EXPECT_TRUE(nobody.failed && !nobody.sent && !nobody.timed_out) << nobody.what;
  loopback_server silent([](loopback_connection& c) { c.wait_closed(); });
  const failure late = failure_of(get(silent.url(), 200ms));
  EXPECT_TRUE(late.failed && late.sent && late.timed_out) << late.what;
  loopback_server closes([](loopback_connection& c) { c.request(); });
  const failure closed = failure_of(get(closes.url()));
  EXPECT_TRUE(closed.failed && closed.sent && !closed.timed_out) << closed.what;
  loopback_server half(std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"));
  EXPECT_TRUE(failure_of(get(half.url())).failed);
  loopback_server nonsense(std::string("220 smtp.example.test\r\n"));
  EXPECT_TRUE(failure_of(get(nonsense.url())).failed);
}

TEST(CurlTransport, BodiesAndHeadersAreBounded) {
  const watchdog dog("bounds");
  constexpr std::size_t most = std::size_t{8} << 20;
  loopback_server full(http_answer(200, std::string(most, 'x')));
  EXPECT_EQ(curl_transport().send(get(full.url())).body.size(), most);
  loopback_server over(http_answer(200, std::string(most + 1, 'x')));
  EXPECT_NE(failure_of(get(over.url())).what.find("body too long"), std::string::npos);
  std::string many;
  while (many.size() < 70'000) many += "A: b\r\n";
  loopback_server heads(http_answer(200, "", many));
  EXPECT_NE(failure_of(get(heads.url())).what.find("headers too long"), std::string::npos);
}

TEST(CurlTransport, AProxyIsForThoseOutside) {
  const watchdog dog("proxy");
  std::string asked;
  loopback_server proxy([&](loopback_connection& c) {
    asked = c.request();
    c.write(http_answer(200, "by proxy"));
  });
  loopback_server near(http_answer(200, "direct"));
  ::setenv("http_proxy", proxy.url().c_str(), 1);
  EXPECT_EQ(curl_transport().send(get(near.url())).body, "direct");
  EXPECT_EQ(proxy.connections(), 0U);
  EXPECT_EQ(curl_transport().send(get("http://outside.example.test/x")).body, "by proxy");
  EXPECT_TRUE(asked.starts_with("GET http://outside.example.test/x HTTP/1.1\r\n")) << asked;
  ::unsetenv("http_proxy");
}

TEST(CurlTransport, TheDescriptorIsClosedOnExec) {
  const watchdog dog("cloexec");
  int found = 0;
  loopback_server server([&](loopback_connection& c) {
    c.request();
    for (int fd = 0; fd < 1024; ++fd) {
      sockaddr_in address{};
      socklen_t size = sizeof address;
      if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 || ntohs(address.sin_port) != c.peer())
        continue;
      ++found;
      EXPECT_TRUE((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    c.write(http_answer(200, ""));
  });
  curl_transport().send(get(server.url()));
  EXPECT_EQ(found, 1);
}

// ---- https

/// `openssl s_server` on a port of its own, with a certificate for 127.0.0.1 that is its own authority.
class tls_server {
 public:
  tls_server() {
    char name[] = "/tmp/curfew-tls-XXXXXX";
    directory_ = ::mkdtemp(name);
    const std::string make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=t "
        "-addext subjectAltName=IP:127.0.0.1 -keyout " +
        key() + " -out " + certificate() + " >/dev/null 2>&1";
    if (std::system(make.c_str()) != 0) return;
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    std::vector<std::string> words = {"openssl",     "s_server", "-accept", "127.0.0.1:0", "-cert",
                                      certificate(), "-key",     key(),     "-www"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::posix_spawnp(&pid_, "openssl", &actions, nullptr, argv.data(), environ) != 0) pid_ = 0;
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    std::string said;  // "ACCEPT 127.0.0.1:<port>"
    char byte = 0;
    while (pid_ != 0 && ::read(out[0], &byte, 1) == 1)
      if (byte != '\n')
        said += byte;
      else if (said.starts_with("ACCEPT "))
        break;
      else
        said.clear();
    if (said.starts_with("ACCEPT ")) port_ = said.substr(said.rfind(':') + 1);
    ::close(out[0]);
  }
  ~tls_server() {
    if (pid_ != 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    fs::remove_all(directory_);
  }
  bool runs() const { return !port_.empty(); }
  std::string url(const std::string& host = "127.0.0.1") const { return "https://" + host + ":" + port_ + "/"; }
  std::string certificate() const { return directory_ + "/cert.pem"; }

 private:
  std::string key() const { return directory_ + "/key.pem"; }
  std::string directory_, port_;
  pid_t pid_ = 0;
};

TEST(CurlTransport, CertificatesAndNamesAreChecked) {
  const watchdog dog("https");
  tls_server server;
  if (!server.runs()) GTEST_SKIP() << "needs the openssl command";
  const failure unknown = failure_of(get(server.url()));
  EXPECT_TRUE(unknown.failed && !unknown.sent) << "nobody vouches for it: " << unknown.what;
  const failure other = failure_of(get(server.url("localhost")), {server.certificate()});
  EXPECT_TRUE(other.failed && !other.sent) << "another name than the certificate's: " << other.what;
  EXPECT_EQ(curl_transport({server.certificate()}).send(get(server.url())).status, 200);
}

TEST(CurlTransport, HttpsToAServerThatSpeaksHttp) {
  const watchdog dog("not tls");
  loopback_server server([](loopback_connection& c) {
    c.write(http_answer(200, ""));
    c.wait_closed();
  });
  const failure f = failure_of(get("https" + server.url().substr(4)));
  EXPECT_TRUE(f.failed && !f.sent) << f.what;
}

}  // namespace
