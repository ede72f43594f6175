// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Tells systemd, or any supervisor with the same protocol, what a lifespan does: that it is ready, that it stops, that
/// it needs longer, that it is alive. Datagrams to the socket that NOTIFY_SOCKET names; no library. Not part of the
/// umbrella: include it where it is used.

#ifndef CURFEW_SYSTEMD_NOTIFIER_HPP
#define CURFEW_SYSTEMD_NOTIFIER_HPP

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include <curfew/detail/config.hpp>
#include <curfew/detail/exceptions.hpp>
#include <curfew/detail/process_id.hpp>
#include <curfew/ordered_lifespan.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#endif

CURFEW_BEGIN_NAMESPACE

/// The supervisor's side of a lifespan.
///
///     curfew::systemd_notifier supervisor;               // from NOTIFY_SOCKET; without it every call does nothing
///     curfew::ordered_lifespan life(options);
///     supervisor.follow(life, options.stop_budget);      // before start()
///     life.add("http").start([&] { http.listen(); });
///     return life.run();
///
/// In a unit of `Type=notify`: READY=1 when the start is over, STOPPING=1 when the stop begins, and STATUS= with what
/// the lifespan is at. While starting and stopping each hook that begins or becomes slow, and an announcement that
/// begins, extends the unit's timeout (EXTEND_TIMEOUT_USEC), so that `TimeoutStopSec` may be short and a stop that
/// makes progress is still not killed.
///
/// *When not to use it.* Under a supervisor that does not speak this protocol it does nothing; it does not replace a
/// health check that asks the program whether it does its work.
///
/// *Thread safety.* All members, from any thread; one datagram is one system call and never blocks. Not from a signal
/// handler.
///
/// *Destruction.* After the lifespans that it follows: they refer to it.
///
/// *Exceptions.* The constructor: std::invalid_argument when the address is neither a path nor abstract or is too long,
/// std::system_error when there is no socket, std::bad_alloc. Sending never throws: a supervisor that does not listen
/// is no reason to fail, and send() says so.
///
/// *Cost.* A descriptor when there is an address.
///
/// *Source.* The protocol is the one of sd_notify(3): newline-separated assignments in one datagram.
class systemd_notifier {
 public:
  /// The protocol itself counts in microseconds.
  using duration = std::chrono::nanoseconds;

  /// Takes the address from NOTIFY_SOCKET and the watchdog from WATCHDOG_USEC and WATCHDOG_PID. The variables stay as
  /// they are: programs that this one starts are not supervised unless NotifyAccess= says so.
  systemd_notifier() : systemd_notifier(text_of("NOTIFY_SOCKET"), watchdog_of_environment()) {}

  /// \p address: a path, `@name` for an abstract one, or empty for none.
  explicit systemd_notifier(std::string_view address, std::optional<duration> watchdog = {}) : watchdog_(watchdog) {
    if (address.empty()) return;
#if CURFEW_POSIX
    const bool abstract = address.front() == '@';
    if ((!abstract && address.front() != '/') || address.size() < 2 || address.size() >= sizeof to_.sun_path ||
        address.find('\0') != std::string_view::npos) {
      CURFEW_THROW(std::invalid_argument("systemd_notifier: '" + std::string(address) +
                                         "' is neither an absolute path nor an abstract address, or too long"));
    }
    to_.sun_family = AF_UNIX;
    std::memcpy(to_.sun_path, address.data(), address.size());
    if (abstract) to_.sun_path[0] = '\0';
    // An abstract name ends where the address does, a path at its zero.
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() + (abstract ? 0 : 1));
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    if (socket_ < 0) CURFEW_THROW(std::system_error(errno, std::generic_category(), "systemd_notifier: socket"));
    ::fcntl(socket_, F_SETFD, FD_CLOEXEC);
    ::fcntl(socket_, F_SETFL, O_NONBLOCK);
#endif
  }
  systemd_notifier(const systemd_notifier&) = delete;
  systemd_notifier& operator=(const systemd_notifier&) = delete;
  ~systemd_notifier() {
#if CURFEW_POSIX
    if (socket_ >= 0) ::close(socket_);
#endif
  }

  /// Whether there is somebody to tell.
  bool connected() const noexcept {
    return socket_ >= 0;
  }

  /// How often at least alive() is expected; send it about twice as often. None when nobody watches.
  std::optional<duration> watchdog() const noexcept {
    return watchdog_;
  }

  /// `READY=1`, `STOPPING=1`, `WATCHDOG=1`: what the manager waits for at the start, is told at the stop, and wants to
  /// hear while all is well.
  bool ready() noexcept {
    return send("READY=1");
  }
  bool stopping() noexcept {
    return send("STOPPING=1");
  }
  bool alive() noexcept {
    return send("WATCHDOG=1");
  }
  /// One line; what follows a line break or a zero, either of which would end the assignment, is cut off.
  bool status(std::string_view text) noexcept {
    CURFEW_TRY {
      return send("STATUS=" + std::string(text.substr(0, text.find_first_of(line_ends))));
    }
    CURFEW_CATCH_ALL {
      return false;
    }
  }
  /// The start or the stop needs until \p span from now, whatever the unit says.
  bool extend_timeout(duration span) noexcept {
    CURFEW_TRY {
      const auto usec = std::chrono::ceil<std::chrono::microseconds>(std::max(span, duration::zero())).count();
      return send("EXTEND_TIMEOUT_USEC=" + std::to_string(usec));
    }
    CURFEW_CATCH_ALL {
      return false;
    }
  }

  /// One datagram of assignments, one a line. False when nobody listens or its queue is full.
  bool send([[maybe_unused]] std::string_view assignments) noexcept {
#if CURFEW_POSIX
    if (socket_ < 0) return false;
#if defined(MSG_NOSIGNAL)
    constexpr int flags = MSG_NOSIGNAL;
#else
    constexpr int flags = 0;
#endif
    const auto* to = reinterpret_cast<const sockaddr*>(&to_);
    const auto sent = ::sendto(socket_, assignments.data(), assignments.size(), flags, to, length_);
    return sent == static_cast<ssize_t>(assignments.size());
#else
    return false;
#endif
  }

  /// Tells the supervisor what \p life does from now on. Before start(). \p slack: by how much a hook that begins, or
  /// is half through its slice, and an announcement, extend the timeout; at least `announce` and the longest slice of
  /// one hook, for which stop_budget is always enough.
  template <class Sync>
  void follow(basic_ordered_lifespan<Sync>& life, duration slack) {
    if (!connected()) return;
    life.observe([this, slack](const lifespan_event& event) { tell(event, slack); });
  }

 private:
  static constexpr std::string_view line_ends{"\n\r\0", 3};

  void tell(const lifespan_event& event, duration slack) noexcept {
    switch (event.kind) {
      case lifespan_event_kind::state_changed:
        if (event.state == lifespan_state::running) {
          ready();
        } else if (event.state == lifespan_state::announcing || event.state == lifespan_state::closing ||
                   event.state == lifespan_state::rolling_back) {
          stopping();  // again when it was announced, which changes nothing
        }
        if (event.state == lifespan_state::announcing) extend_timeout(slack);
        status(to_string(event.state));
        return;
      case lifespan_event_kind::stage_begin:
      case lifespan_event_kind::stage_slow:
        extend_timeout(slack);
        return;
      case lifespan_event_kind::stage_hung:
        CURFEW_TRY {
          status("hung: " + event.stage + " (" + to_string(event.phase) + ")");
        }
        CURFEW_CATCH_ALL {  // no memory for a remark
        }
        return;
      default:
        return;
    }
  }

  static std::string_view text_of(const char* variable) noexcept {
    const char* text = std::getenv(variable);
    return text != nullptr ? text : "";
  }

  static std::optional<std::int64_t> number_of(const char* variable) noexcept {
    const std::string_view text = text_of(variable);
    std::int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
    return value;
  }

  /// WATCHDOG_PID says which process is meant: a child must not answer for its parent.
  static std::optional<duration> watchdog_of_environment() noexcept {
    const auto usec = number_of("WATCHDOG_USEC");
    if (!usec || *usec <= 0 || *usec > INT64_MAX / 1000) return std::nullopt;
    if (!text_of("WATCHDOG_PID").empty() && number_of("WATCHDOG_PID") != detail::process_id()) return std::nullopt;
    return std::chrono::microseconds(*usec);
  }

  const std::optional<duration> watchdog_;
  int socket_ = -1;
#if CURFEW_POSIX
  sockaddr_un to_{};
  socklen_t length_ = 0;
#endif
};

CURFEW_END_NAMESPACE

#endif  // CURFEW_SYSTEMD_NOTIFIER_HPP
