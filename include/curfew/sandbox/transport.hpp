// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// How the REST backends reach their servers: the transport concept with its values and its error, and a transport for
/// plain http over POSIX sockets that needs no library. For https there is curl_transport.hpp; a transport of one's own
/// is any class with a `send`.

#ifndef CURFEW_SANDBOX_TRANSPORT_HPP
#define CURFEW_SANDBOX_TRANSPORT_HPP

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <curfew/detail/config.hpp>
#include <curfew/detail/deadline.hpp>
#include <curfew/detail/descriptor.hpp>
#include <curfew/detail/http_message.hpp>
#include <curfew/detail/http_types.hpp>
#include <curfew/detail/http_url.hpp>
#include <curfew/detail/sync.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Plain http over TCP, a connection for each request. For servers on this machine or in a trusted network; nothing is
/// encrypted, and https urls are refused with std::invalid_argument.
///
/// The request's timeout bounds the whole exchange: connecting to all addresses of the host, sending, and a response
/// that trickles. Only looking up a host name is outside of it, since the system's resolver cannot be interrupted; it
/// has bounds of its own, and neither `localhost` nor an address is looked up in the network. A body may have eight
/// MiB, the headers 64 KiB. Interim responses are skipped, redirects are returned like everything else.
///
/// Thread safety: any number of threads; there is no state. No signal: a broken connection is an error, not a SIGPIPE.
/// Descriptors are closed on exec. Exceptions: as the concept says. Cost: a connection, and the response in memory.
template <class Sync = std_sync>
class basic_socket_transport {
 public:
  static constexpr bool speaks_https = false;

  /// One exchange on a connection of its own, within the time of the request; transport_error otherwise.
  http_response send(const http_request& request) const {
    detail::check_request(request, "socket_transport");
    const detail::http_url url = detail::parse_url(request.url, "socket_transport");
    if (url.secure) throw std::invalid_argument("socket_transport: https is not spoken here");
    const std::string text = detail::request_text(request, url);
    const auto until = detail::later(Sync::clock::now(), request.timeout);
    const detail::owned_fd socket = connect(url, until);
    bool sent = false;
    try {
      return exchange(socket.get(), text, request.method, until, sent);
    } catch (const detail::malformed_response& e) {
      throw transport_error(about(url) + e.what(), sent, false);
    } catch (const std::system_error& e) {
      throw transport_error(about(url) + e.code().message(), sent, e.code() == std::errc::timed_out);
    }
  }

 private:
  using time_point = typename Sync::clock::time_point;

  static std::string about(const detail::http_url& url) { return "socket_transport: " + url.authority + ": "; }

  static std::system_error failure(int error) { return std::system_error(error, std::generic_category()); }

  /// Waits until one of \p events, an error or a hang-up; returns them, 0 at \p until.
  static short wait(int fd, short events, time_point until) {
    pollfd entry{fd, events, 0};
    for (;;) {
      const auto left = until - Sync::clock::now();
      const int ready = ::poll(&entry, 1, detail::poll_timeout(left));
      if (ready > 0) return entry.revents;
      if (ready < 0 && errno != EINTR) throw failure(errno);
      if (ready == 0 && left <= std::chrono::nanoseconds::zero()) return 0;
    }
  }

  static detail::owned_fd open_socket(int family) noexcept {
#if defined(__linux__)
    return detail::above_standard(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
#else
    detail::owned_fd fd = detail::above_standard(::socket(family, SOCK_STREAM, 0));
    if (fd) ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC), ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
#if defined(SO_NOSIGPIPE)
    const int on = 1;
    if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
    return fd;
#endif
  }

  /// Connects to the first address that answers. Each gets an even share of the time that is left, so that one that
  /// swallows everything does not keep the next one from being tried.
  static detail::owned_fd connect(const detail::http_url& url, time_point until) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int refused = ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
    if (refused != 0) throw transport_error(about(url) + ::gai_strerror(refused), false, false);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, ::freeaddrinfo);
    int left = 0;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) ++left;
    int error = EADDRNOTAVAIL;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next, --left) {
      const auto now = Sync::clock::now();
      detail::owned_fd fd = open_socket(one->ai_family);
      error = fd ? connect_one(fd.get(), *one, now + (until - now) / left) : errno;
      if (error == 0) return fd;
    }
    throw transport_error(about(url) + std::generic_category().message(error), false, error == ETIMEDOUT);
  }

  /// Returns 0 or an errno.
  static int connect_one(int fd, const addrinfo& address, time_point until) {
    if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS && errno != EINTR) return errno;  // interrupted, it goes on like a non-blocking one
    try {
      if (wait(fd, POLLOUT, until) == 0) return ETIMEDOUT;
    } catch (const std::system_error& e) {
      return e.code().value();
    }
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
  }

  /// Sends and receives at the same time: a server may answer, and close, before it has read a long request.
  static http_response exchange(int fd, std::string_view unsent, const std::string& method, time_point until,
                                bool& sent) {
    detail::response_reader reader(method);
    std::array<char, 16384> chunk;
    for (;;) {
      const short ready = wait(fd, unsent.empty() ? POLLIN : POLLIN | POLLOUT, until);
      if (ready == 0) throw failure(ETIMEDOUT);
      if (!unsent.empty() && (ready & POLLOUT) != 0) {
        Sync::here("socket_transport.send");
        const ssize_t gone = ::send(fd, unsent.data(), unsent.size(), send_flags);
        if (gone > 0) {
          sent = true;
          unsent.remove_prefix(static_cast<std::size_t>(gone));
        } else if (gone < 0 && !again(errno)) {
          unsent = {};  // the server has closed: what it said before that is still to be read
        }
      }
      if ((ready & ~POLLOUT) != 0) {
        const ssize_t got = ::recv(fd, chunk.data(), chunk.size(), 0);
        if (got < 0 && again(errno)) continue;
        if (got < 0) throw failure(errno);
        if (got == 0) reader.finish();
        if (got == 0 || reader.feed({chunk.data(), static_cast<std::size_t>(got)})) return reader.take();
      }
    }
  }

  static bool again(int error) noexcept {
    return error == EINTR || error == EAGAIN || error == EWOULDBLOCK;
  }

#if defined(MSG_NOSIGNAL)
  static constexpr int send_flags = MSG_NOSIGNAL;
#else
  static constexpr int send_flags = 0;
#endif
};

/// The one to use.
using socket_transport = basic_socket_transport<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_SANDBOX_TRANSPORT_HPP
