// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// socket_transport against servers that do what servers do on bad days, and the parts of it that need no socket:
/// urls, requests as text, the response reader.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <curfew/sandbox/transport.hpp>

#include <tests/support/loopback_server.hpp>
#include <tests/support/park.hpp>

namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using curfew::detail::malformed_response;
using curfew::detail::parse_url;
using curfew::detail::percent_encode;
using curfew::detail::response_reader;
using curfew::sandbox::http_request;
using curfew::sandbox::http_response;
using curfew::sandbox::socket_transport;
using curfew::sandbox::transport_error;
using curfew_test::gate;
using curfew_test::http_answer;
using curfew_test::loopback_connection;
using curfew_test::loopback_server;
using curfew_test::park;
using curfew_test::park_sync;
using curfew_test::skipping_sync;
using curfew_test::watchdog;

static_assert(curfew::sandbox::transport<socket_transport>);
static_assert(curfew::sandbox::transport<const socket_transport>);

http_request get(const std::string& url, std::chrono::milliseconds timeout = curfew_test::patience) {
  return {"GET", url, {}, "", timeout};
}

/// How an exchange failed.
struct failure {
  bool failed = false, sent = false, timed_out = false;
  std::string what;
};

failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const transport_error& e) {
    return {true, e.sent(), e.timed_out(), e.what()};
  }
  return {};
}

failure failure_of(const http_request& request) {
  return failure_of([&] { socket_transport().send(request); });
}

http_response read(const std::string& text, const std::string& method = "GET") {
  response_reader reader(method);
  if (!reader.feed(text)) reader.finish();
  return reader.take();
}

// ---- urls

TEST(Url, Parts) {
  const auto a = parse_url("http://example.test", "t");
  EXPECT_FALSE(a.secure);
  EXPECT_EQ(a.host, "example.test");
  EXPECT_EQ(a.port, 80);
  EXPECT_EQ(a.target, "/");
  const auto b = parse_url("HTTPS://[::1]:8443/a%20b?c=d/e", "t");
  EXPECT_TRUE(b.secure);
  EXPECT_EQ(b.host, "::1");
  EXPECT_EQ(b.port, 8443);
  EXPECT_EQ(b.authority, "[::1]:8443");
  EXPECT_EQ(b.target, "/a%20b?c=d/e");
  EXPECT_EQ(parse_url("https://h?q", "t").target, "/?q");
  EXPECT_EQ(parse_url("https://h", "t").port, 443);
}

TEST(Url, RefusesWhatHasNoBusinessInARequest) {
  for (const char* bad : {"",
                          "example.test",
                          "ftp://h",
                          "http://",
                          "http:///x",
                          "http://h:0",
                          "http://h:65536",
                          "http://h:",
                          "http://h:8a",
                          "http://h:+1",
                          "http://u:p@h",
                          "http://h/#f",
                          "http://h/a b",
                          "http://h/\r\nX: y",
                          "http://h/\x80",
                          "http://[::1",
                          "http://[]",
                          "http://[h]",
                          "http://::1/",
                          "http://-h",
                          "http://a,b",
                          "http://h\\x"})
    EXPECT_THROW(parse_url(bad, "t"), std::invalid_argument) << bad;
  EXPECT_THROW(parse_url("http://h/\0"s, "t"), std::invalid_argument);
}

TEST(Url, PercentEncodingKeepsOnlyUnreserved) {
  EXPECT_EQ(percent_encode("aZ09-._~"), "aZ09-._~");
  EXPECT_EQ(percent_encode("a b/?&=%+\xff"), "a%20b%2F%3F%26%3D%25%2B%FF");
  EXPECT_EQ(percent_encode("\0"s), "%00");
}

TEST(Url, ABaseHasNoQueryAndNoSlashAtItsEnd) {
  EXPECT_EQ(curfew::detail::base_url("http://h/p//", "t"), "http://h/p");
  EXPECT_THROW(curfew::detail::base_url("http://h/p?q", "t"), std::invalid_argument);
  EXPECT_THROW(curfew::detail::base_url("h", "t"), std::invalid_argument);
}

// ---- the response reader

TEST(ResponseReader, EveryFramingByteByByte) {
  for (
      const std::string& text :
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"s, "HTTP/1.0 200\r\ncontent-length:5\r\n\r\nhello"s,
       "HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"s,
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nhe\r\n03;x=\"y\"\r\nllo\r\n0\r\nTrailer: t\r\n\r\n"s,
       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"s}) {
    response_reader reader("GET");
    for (std::size_t i = 0; i + 1 < text.size(); ++i) ASSERT_FALSE(reader.feed(text.substr(i, 1))) << text << i;
    EXPECT_TRUE(reader.feed(text.substr(text.size() - 1)));
    EXPECT_NO_THROW(reader.finish());
    const http_response response = reader.take();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "hello");
  }
}

TEST(ResponseReader, EveryPrefixIsHalfAResponse) {
  for (const std::string& text :
       {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"s,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nT: t\r\n\r\n"s})
    for (std::size_t n = 0; n < text.size(); ++n)
      EXPECT_THROW(read(text.substr(0, n)), malformed_response) << text.substr(0, n);
}

TEST(ResponseReader, TheEndOfTheConnectionEndsABodyWithoutALength) {
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\n\r\nall of it\r\n").body, "all of it\r\n");
}

TEST(ResponseReader, SomeResponsesHaveNoBody) {
  EXPECT_EQ(read("HTTP/1.1 204 No Content\r\n\r\n").status, 204);
  EXPECT_EQ(read("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n").body, "");
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "HEAD").body, "");
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").body, "");
}

TEST(ResponseReader, HeadersAreTrimmedAndFoundWithoutCase) {
  const http_response r = read("HTTP/1.1 200 OK\r\nX-Next-Token: \t abc \r\nEmpty:\r\nContent-Length: 0\r\n\r\n");
  ASSERT_NE(r.header("x-NEXT-token"), nullptr);
  EXPECT_EQ(*r.header("x-NEXT-token"), "abc");
  EXPECT_EQ(*r.header("empty"), "");
  EXPECT_EQ(r.header("x-next"), nullptr);
}

TEST(ResponseReader, RefusesMalformedHeads) {
  for (const std::string& bad : {"\r\n\r\n"s,
                                 "HTTP/1.1\r\n\r\n"s,
                                 "HTTP/2 200 OK\r\n\r\n"s,
                                 "HTTP/1.1 20 OK\r\n\r\n"s,
                                 "HTTP/1.1 2000 OK\r\n\r\n"s,
                                 "HTTP/1.1 099 X\r\n\r\n"s,
                                 "HTTP/1.1 -20 X\r\n\r\n"s,
                                 "HTTP/1.1  200 OK\r\n\r\n"s,
                                 "http/1.1 200 OK\r\n\r\n"s,
                                 "HTTP/1.1 200 O\0K\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\n\n"s,
                                 "HTTP/1.1 200 OK\r\nA: b\n\r\n"s,
                                 "ICY 200 OK\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\r\n: v\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\r\nA b: v\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\r\nA : v\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n"s,
                                 "HTTP/1.1 200 OK\r\nA: \x01\r\n\r\n"s,
                                 "HTTP/1.1 101 Up\r\n\r\n"s})
    EXPECT_THROW(read(bad), malformed_response) << bad;
}

TEST(ResponseReader, RefusesFramingThatCanBeReadTwoWays) {
  const auto with = [](const std::string& headers, const std::string& body) {
    return "HTTP/1.1 200 OK\r\n" + headers + "\r\n" + body;
  };
  for (const std::string& bad :
       {with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        with("Content-Length: 1\r\nContent-Length: 2\r\n", "xy"), with("Content-Length: 1, 1\r\n", "x"),
        with("Content-Length: +1\r\n", "x"), with("Content-Length: 0x1\r\n", "x"), with("Content-Length: \r\n", "x"),
        with("Content-Length: -1\r\n", "x"), with("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        with("Transfer-Encoding: chunked\r\n", "g\r\n\r\n"), with("Transfer-Encoding: chunked\r\n", "\r\n\r\n"),
        with("Transfer-Encoding: chunked\r\n", "-1\r\n\r\n"),
        with("Transfer-Encoding: chunked\r\n", "2\r\nabc\r\n0\r\n\r\n"),
        with("Transfer-Encoding: chunked\r\n", "2\nab\r\n0\r\n\r\n")})
    EXPECT_THROW(read(bad), malformed_response) << bad;
}

TEST(ResponseReader, ABodyOfEightMebibytesIsTheLargest) {
  constexpr std::size_t most = std::size_t{8} << 20;
  const std::string full(most, 'x');
  const auto sized = [](const std::string& size) { return "HTTP/1.1 200 OK\r\nContent-Length: " + size + "\r\n\r\n"; };
  const std::string chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(read(sized(std::to_string(most)) + full).body.size(), most);
  EXPECT_EQ(read(chunks + "800000\r\n" + full + "\r\n0\r\n\r\n").body.size(), most);
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\n\r\n" + full).body.size(), most);
  EXPECT_THROW(read(sized(std::to_string(most + 1))), malformed_response);
  EXPECT_THROW(read(sized("99999999999999999999999")), malformed_response);
  EXPECT_THROW(read(chunks + "800001\r\n"), malformed_response);
  EXPECT_THROW(read(chunks + "1\r\nx\r\n800000\r\n"), malformed_response);
  EXPECT_THROW(read(chunks + "ffffffffffffffffff\r\n"), malformed_response);
  EXPECT_THROW(read("HTTP/1.1 200 OK\r\n\r\n" + full + "x"), malformed_response);
}

TEST(ResponseReader, HeadersOf64KibibytesAreTheLongest) {
  const std::string long_value(70'000, 'v');
  EXPECT_THROW(read("HTTP/1.1 200 OK\r\nA: " + long_value), malformed_response);
  EXPECT_THROW(read("HTTP/1.1 200 " + long_value), malformed_response);
  std::string many = "HTTP/1.1 200 OK\r\n";
  while (many.size() < 70'000) many += "A: b\r\n";
  EXPECT_THROW(read(many), malformed_response);
  std::string interim;
  while (interim.size() < 70'000) interim += "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_THROW(read(interim), malformed_response) << "interim responses without end";
  EXPECT_THROW(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + long_value), malformed_response);
  EXPECT_THROW(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + long_value), malformed_response);
  EXPECT_EQ(read("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nA: " + long_value.substr(0, 60'000) + "\r\n\r\nx").body, "x");
}

TEST(ResponseReader, ManySmallChunksAreNoLongHead) {
  std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 50'000; ++i) text += "1\r\nx\r\n";
  EXPECT_EQ(read(text + "0\r\n\r\n").body.size(), 50'000U);
}

// ---- the transport

TEST(SocketTransport, WhatGoesOverTheWire) {
  const watchdog dog("wire");
  std::string seen;
  loopback_server server([&](loopback_connection& c) {
    seen = c.request();
    c.write(http_answer(201, "made", "X-A: 1\r\n"));
  });
  const http_response r = socket_transport().send(
      {"POST", server.url("/a?b=c"), {{"X-API-Key", "k"}, {"Accept", "application/json"}}, "{}", 20s});
  EXPECT_EQ(r.status, 201);
  EXPECT_EQ(r.body, "made");
  EXPECT_EQ(*r.header("x-a"), "1");
  EXPECT_EQ(seen,
            "POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.port()) +
                "\r\nX-API-Key: k\r\nAccept: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
}

TEST(SocketTransport, AnyStatusIsAResponseAndNoRedirectIsFollowed) {
  const watchdog dog("statuses");
  for (const int status : {200, 302, 404, 429, 500, 503}) {
    loopback_server server(http_answer(status, "b", "Location: http://127.0.0.1:1/\r\n"));
    EXPECT_EQ(socket_transport().send(get(server.url())).status, status);
    EXPECT_EQ(server.connections(), 1U);
  }
}

TEST(SocketTransport, AChunkedResponseInPieces) {
  const watchdog dog("chunks");
  loopback_server server([](loopback_connection& c) {
    c.request();
    for (const char b : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab\r\n\r\n0\r\n\r\n"s)
      c.write(std::string(1, b));
    c.wait_closed();  // the response is complete without the end of the connection
  });
  EXPECT_EQ(socket_transport().send(get(server.url())).body, "ab\r\n");
}

TEST(SocketTransport, HttpsIsRefused) {
  EXPECT_THROW(socket_transport().send(get("https://127.0.0.1:1/")), std::invalid_argument);
}

TEST(SocketTransport, ARequestThatCouldBeReadAsMoreIsRefusedUnsent) {
  loopback_server server(http_answer(200, ""));
  const auto refused = [&](const http_request& request) {
    EXPECT_THROW(socket_transport().send(request), std::invalid_argument) << request.method;
  };
  refused({"GET /x HTTP/1.1\r\nA: b\r\n\r\nGET", server.url(), {}, "", 1s});
  refused({"", server.url(), {}, "", 1s});
  refused({"GET", server.url("/a\r\nX: y"), {}, "", 1s});
  refused({"GET", server.url("/a b"), {}, "", 1s});
  refused({"GET", server.url(), {{"A", "b\r\nX: y"}}, "", 1s});
  refused({"GET", server.url(), {{"A", "b\nX: y"}}, "", 1s});
  refused({"GET", server.url(), {{"A", "b\0c"s}}, "", 1s});
  refused({"GET", server.url(), {{"A: b\r\nX", "y"}}, "", 1s});
  refused({"GET", server.url(), {{"", "y"}}, "", 1s});
  for (const char* own : {"Host", "content-length", "Transfer-Encoding", "Connection"})
    refused({"GET", server.url(), {{own, "x"}}, "", 1s});
  refused({"GET", server.url(), {}, "", 0ms});
  refused({"GET", server.url(), {}, "", -1ms});
  EXPECT_EQ(server.connections(), 0U);
}

TEST(SocketTransport, NobodyListens) {
  std::string gone;
  {
    loopback_server server(http_answer(200, ""));
    gone = server.url();
  }
  const failure f = failure_of(get(gone));
  EXPECT_TRUE(f.failed);
  EXPECT_FALSE(f.sent);
  EXPECT_FALSE(f.timed_out);
}

TEST(SocketTransport, AnUnknownHostWasNotSentTo) {
  const failure f = failure_of(get("http://a..b/"));
  EXPECT_TRUE(f.failed);
  EXPECT_FALSE(f.sent);
}

TEST(SocketTransport, AServerThatAcceptsNobodyTimesOutUnsent) {
  const watchdog dog("full backlog");
  const int full = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(full, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(full, 0), 0);
  ASSERT_EQ(::getsockname(full, reinterpret_cast<sockaddr*>(&address), &size), 0);
  std::vector<int> queued;
  for (int i = 0; i < 4; ++i) {
    queued.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    ::connect(queued.back(), reinterpret_cast<sockaddr*>(&address), size);
  }
  const failure f = failure_of(get("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/", 100ms));
  EXPECT_TRUE(f.failed);
  EXPECT_FALSE(f.sent);
  EXPECT_TRUE(f.timed_out);
  for (const int fd : queued) ::close(fd);
  ::close(full);
}

TEST(SocketTransport, TheNextAddressIsTriedWhenOneRefuses) {
  loopback_server server(http_answer(200, "v4"));  // `localhost` may be ::1 first, where nobody listens
  EXPECT_EQ(socket_transport().send(get("http://localhost:" + std::to_string(server.port()) + "/")).body, "v4");
}

TEST(SocketTransport, ClosedOrResetWithoutAResponse) {
  const watchdog dog("no response");
  loopback_server closes([](loopback_connection& c) { c.request(); });
  const failure closed = failure_of(get(closes.url()));
  EXPECT_TRUE(closed.failed && closed.sent && !closed.timed_out) << closed.what;
  loopback_server resets([](loopback_connection& c) {
    c.request();
    c.reset();
  });
  const failure reset = failure_of(get(resets.url()));
  EXPECT_TRUE(reset.failed && reset.sent && !reset.timed_out) << reset.what;
}

TEST(SocketTransport, HalfAResponse) {
  const watchdog dog("half");
  const std::string whole = http_answer(200, "hello");
  for (const std::size_t n : {std::size_t{1}, std::size_t{20}, whole.size() - 6, whole.size() - 1}) {
    loopback_server closes(whole.substr(0, n));
    const failure closed = failure_of(get(closes.url()));
    EXPECT_TRUE(closed.failed && closed.sent && !closed.timed_out) << n;
    loopback_server resets([&](loopback_connection& c) {
      c.request();
      c.write(whole.substr(0, n));
      c.reset();
    });
    EXPECT_TRUE(failure_of(get(resets.url())).failed) << n;
  }
}

TEST(SocketTransport, AMalformedResponseIsATransportError) {
  const watchdog dog("malformed");
  loopback_server server("220 smtp.example.test ready\r\n");
  const failure f = failure_of(get(server.url()));
  EXPECT_TRUE(f.failed && f.sent && !f.timed_out);
}

TEST(SocketTransport, SilenceTimesOut) {
  const watchdog dog("silence");
  loopback_server server([](loopback_connection& c) { c.wait_closed(); });
  const failure f = failure_of(get(server.url(), 50ms));
  EXPECT_TRUE(f.failed && f.sent && f.timed_out) << f.what;
}

// The clock moves a second with each byte, so a timeout that began anew with every byte would never come.
TEST(SocketTransport, OneTimeoutForTheWholeExchange) {
  const watchdog dog("trickle");
  std::size_t written = 0;
  loopback_server server([&](loopback_connection& c) {
    c.request();
    c.write("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n");
    for (; written < 10'000 && c.write("x"); ++written) skipping_sync::skip(1s);
  });
  curfew::sandbox::basic_socket_transport<skipping_sync> slow;
  const failure f = failure_of([&] { slow.send(get(server.url(), 30s)); });
  EXPECT_TRUE(f.failed && f.sent && f.timed_out) << f.what;
}

// The server closes between two parts of a request: the first part then provokes a reset, and the second one EPIPE.
// SIGPIPE has its default action here: it would end this program.
TEST(SocketTransport, ABrokenConnectionRaisesNoSignal) {
  const watchdog dog("sigpipe");
  gate close, closed;
  loopback_server server([&](loopback_connection& c) {
    EXPECT_TRUE(close.wait());
    c.close();
    closed.open();
  });
  park at_send("socket_transport.send");
  failure f;
  std::thread client([&] {
    curfew::sandbox::basic_socket_transport<park_sync> transport;
    f = failure_of([&] { transport.send({"POST", server.url(), {}, std::string(8'000'000, 'x'), 20s}); });
  });
  EXPECT_TRUE(at_send.wait_arrived());
  close.open();
  EXPECT_TRUE(closed.wait());
  at_send.open();
  client.join();
  EXPECT_TRUE(f.failed && f.sent && !f.timed_out) << f.what;
}

TEST(SocketTransport, AResetInTheMiddleOfARequest) {
  const watchdog dog("reset");
  loopback_server server([](loopback_connection& c) { c.reset(); });
  const failure f = failure_of({"POST", server.url(), {}, std::string(4'000'000, 'x'), 20s});
  EXPECT_TRUE(f.failed);
  EXPECT_FALSE(f.timed_out);
}

TEST(SocketTransport, AnAnswerBeforeTheRequestWasReadIsHeard) {
  const watchdog dog("early answer");
  gate heard;
  loopback_server server([&](loopback_connection& c) {
    c.write(http_answer(413, "too large"));
    EXPECT_TRUE(heard.wait());
  });
  EXPECT_EQ(socket_transport().send({"POST", server.url(), {}, std::string(32'000'000, 'x'), 20s}).status, 413);
  heard.open();
}

TEST(SocketTransport, ALongRequestArrivesWhole) {
  const watchdog dog("long request");
  std::string body(3'000'000, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 + (i >> 8));
  std::string seen;
  loopback_server server([&](loopback_connection& c) {
    seen = c.request();
    c.write(http_answer(200, seen.substr(seen.find("\r\n\r\n") + 4)));
  });
  EXPECT_TRUE(socket_transport().send({"PUT", server.url(), {}, body, 20s}).body == body);
}

std::atomic<int> interruptions{0};

TEST(SocketTransport, SignalsDoNotDisturb) {
  const watchdog dog("eintr");
  struct sigaction count {
  }, before{};
  count.sa_handler = [](int) { interruptions.fetch_add(1, std::memory_order_relaxed); };  // without SA_RESTART
  ASSERT_EQ(::sigaction(SIGUSR1, &count, &before), 0);
  const pthread_t client = ::pthread_self();
  loopback_server server([&](loopback_connection& c) {
    c.request();
    for (int i = 1; i <= 50; ++i) {
      ::pthread_kill(client, SIGUSR1);
      if (!curfew_test::eventually([&] { return interruptions.load(std::memory_order_relaxed) >= i; })) return;
    }
    c.write(http_answer(200, "undisturbed"));
  });
  EXPECT_EQ(socket_transport().send(get(server.url())).body, "undisturbed");
  EXPECT_EQ(interruptions.load(std::memory_order_relaxed), 50);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(SocketTransport, TheDescriptorIsClosedOnExec) {
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
      EXPECT_GT(fd, STDERR_FILENO);
    }
    c.write(http_answer(200, ""));
  });
  socket_transport().send(get(server.url()));
  EXPECT_EQ(found, 1);
}

TEST(SocketTransport, NoDescriptorIsLeftOver) {
  const watchdog dog("leak");
  const auto open_now = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) != -1;
    return count;
  };
  const int before = open_now();
  {
    loopback_server good(http_answer(200, "")), bad("nonsense\r\n");
    for (int i = 0; i < 10; ++i) {
      socket_transport().send(get(good.url()));
      EXPECT_TRUE(failure_of(get(bad.url())).failed);
    }
  }
  EXPECT_EQ(open_now(), before);
}

TEST(SocketTransport, ManyThreadsShareOne) {
  const watchdog dog("threads");
  loopback_server server([](loopback_connection& c) {
    const std::string seen = c.request();
    c.write(http_answer(200, seen.substr(4, seen.find(" HTTP") - 4)));
  });
  socket_transport shared;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string path = "/" + std::to_string(t) + "/" + std::to_string(i);
        if (shared.send(get(server.url(path))).body == path) right.fetch_add(1, std::memory_order_relaxed);
      }
    });
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(right.load(std::memory_order_relaxed), 100);
}

}  // namespace
