// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A server on a free port of 127.0.0.1 whose every byte the test decides: each connection is handed to a function, on
/// a thread of its own, that reads, writes, waits for a gate, hangs up or resets. All waits are bounded.

#ifndef CURFEW_TESTS_SUPPORT_LOOPBACK_SERVER_HPP
#define CURFEW_TESTS_SUPPORT_LOOPBACK_SERVER_HPP

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <tests/support/park.hpp>

namespace curfew_test {

/// The server's end of one connection.
class loopback_connection {
 public:
  explicit loopback_connection(int fd) : fd_(fd) {}
  ~loopback_connection() { close(); }
  loopback_connection(const loopback_connection&) = delete;
  loopback_connection& operator=(const loopback_connection&) = delete;

  /// One whole request: its head, and as much body as its Content-Length says. Shorter when the peer closes.
  std::string request() {
    std::string text;
    std::size_t whole = std::string::npos;
    while (text.size() < whole && more(text)) {
      const std::size_t head = text.find("\r\n\r\n");
      if (whole != std::string::npos || head == std::string::npos) continue;
      const std::size_t length = text.find("Content-Length: ");
      whole = head + 4 + (length < head ? std::strtoul(text.c_str() + length + 16, nullptr, 10) : 0);
    }
    return text;
  }

  /// False when the peer has gone.
  bool write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t gone = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (gone <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(gone));
    }
    return true;
  }

  /// Reads and drops until the peer closes or resets.
  void wait_closed() {
    std::string dropped;
    while (more(dropped)) dropped.clear();
  }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() {
    const linger hard{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  /// The port at the other end.
  std::uint16_t peer() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    ::getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }

 private:
  bool more(std::string& text) {
    pollfd entry{fd_, POLLIN, 0};
    const auto limit = std::chrono::milliseconds(patience).count();
    if (::poll(&entry, 1, static_cast<int>(limit)) <= 0) return false;
    char chunk[65536];
    const ssize_t got = ::recv(fd_, chunk, sizeof chunk, 0);
    if (got <= 0) return false;
    text.append(chunk, static_cast<std::size_t>(got));
    return true;
  }

  int fd_;
};

class loopback_server {
 public:
  using handler = std::function<void(loopback_connection&)>;

  /// \p port 0: any free one.
  explicit loopback_server(handler serve, std::uint16_t port = 0) : serve_(std::move(serve)) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd_, 64) != 0 ||
        ::pipe2(stop_, O_CLOEXEC) != 0 || ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("loopback_server: no port");
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  /// A server that answers every request with \p text.
  explicit loopback_server(std::string text, std::uint16_t port = 0)
      : loopback_server(
            [text = std::move(text)](loopback_connection& c) {
              c.request();
              c.write(text);
            },
            port) {}
  ~loopback_server() {
    ::close(stop_[1]);
    acceptor_.join();
    for (std::thread& one : threads_) one.join();
    ::close(stop_[0]);
    ::close(fd_);
  }
  loopback_server(const loopback_server&) = delete;
  loopback_server& operator=(const loopback_server&) = delete;

  std::uint16_t port() const { return port_; }
  std::string url(const std::string& path = "/") const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  std::size_t connections() const {
    const std::lock_guard lock(mutex_);
    return threads_.size();
  }

 private:
  void accept_all() {
    for (;;) {
      pollfd entries[2] = {{fd_, POLLIN, 0}, {stop_[0], POLLIN, 0}};
      ::poll(entries, 2, -1);
      if (entries[1].revents != 0) return;
      const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const std::lock_guard lock(mutex_);
      threads_.emplace_back([this, fd] {
        loopback_connection connection(fd);
        serve_(connection);
      });
    }
  }

  const handler serve_;
  int fd_ = -1;
  int stop_[2] = {-1, -1};
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::list<std::thread> threads_;
  std::thread acceptor_;
};

inline std::string http_answer(int status, const std::string& body, const std::string& headers = "") {
  return "HTTP/1.1 " + std::to_string(status) + " Said\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "\r\n" + body;
}

/// The production policy with a clock that runs with the real one and can be moved ahead; sleeping moves it too, and
/// takes no time.
struct skipping_sync : curfew::std_sync {
  struct clock {
    using duration = std::chrono::steady_clock::duration;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::steady_clock::time_point;
    static constexpr bool is_steady = true;
    static time_point now() {
      return std::chrono::steady_clock::now() + std::chrono::nanoseconds(ahead().load(std::memory_order_seq_cst));
    }
  };
  static std::atomic<std::int64_t>& ahead() {
    static std::atomic<std::int64_t> value{0};
    return value;
  }
  static void skip(std::chrono::nanoseconds d) { ahead().fetch_add(d.count(), std::memory_order_seq_cst); }
  static void sleep_for(std::chrono::nanoseconds d) { skip(d); }
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_LOOPBACK_SERVER_HPP
