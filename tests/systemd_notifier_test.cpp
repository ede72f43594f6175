// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Against a socket of our own, which stands for the supervisor's.

#include <curfew/systemd_notifier.hpp>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/lifespan_probe.hpp"
#include "support/park.hpp"

namespace {

using namespace curfew_test;
using curfew::ordered_lifespan;
using curfew::systemd_notifier;

/// The supervisor's end.
class mailbox {
 public:
  explicit mailbox(const std::string& address) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, address.data(), address.size());
    if (at.sun_path[0] == '@') at.sun_path[0] = '\0';
    const bool path = address[0] == '/';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size() + (path ? 1 : 0));
    if (::bind(socket_, reinterpret_cast<const sockaddr*>(&at), length) != 0) std::abort();
    if (path) path_ = address;
  }
  ~mailbox() {
    ::close(socket_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  mailbox(const mailbox&) = delete;
  mailbox& operator=(const mailbox&) = delete;

  /// What has come so far, one string a datagram.
  std::vector<std::string> all() const {
    std::vector<std::string> letters;
    char text[4096];
    for (;;) {
      const auto got = ::recv(socket_, text, sizeof text, 0);
      if (got < 0) return letters;
      letters.emplace_back(text, static_cast<std::size_t>(got));
    }
  }
  std::string text() const {
    std::string out;
    for (const auto& letter : all()) out += (out.empty() ? "" : " | ") + letter;
    return out;
  }

 private:
  int socket_;
  std::string path_;
};

std::string abstract_name() {
  return "@curfew/test/" + std::to_string(::getpid());
}
std::string path_name() {
  return "/tmp/curfew-notify-" + std::to_string(::getpid());
}

TEST(SystemdNotifier, SpeaksToPathsAndToAbstractAddresses) {
  for (const auto& address : {abstract_name(), path_name()}) {
    const mailbox box(address);
    systemd_notifier supervisor(address);
    EXPECT_TRUE(supervisor.connected());
    EXPECT_TRUE(supervisor.ready() && supervisor.stopping() && supervisor.alive());
    EXPECT_TRUE(supervisor.status("two\nlines") && supervisor.extend_timeout(1500us));
    EXPECT_TRUE(supervisor.status("one\rREADY=1") && supervisor.status({"zero\0end", 8}) && supervisor.status(""));
    EXPECT_TRUE(supervisor.extend_timeout(1ns) && supervisor.extend_timeout(-1s) &&
                supervisor.send("MAINPID=1\nX_A=b"));
    EXPECT_EQ(box.text(),
              "READY=1 | STOPPING=1 | WATCHDOG=1 | STATUS=two | EXTEND_TIMEOUT_USEC=1500 | STATUS=one | "
              "STATUS=zero | STATUS= | EXTEND_TIMEOUT_USEC=1 | EXTEND_TIMEOUT_USEC=0 | MAINPID=1\nX_A=b");
  }
}

TEST(SystemdNotifier, FollowsALifespanFromItsStartToItsEnd) {
  watchdog dog("systemd");
  const mailbox box(abstract_name());
  systemd_notifier supervisor(abstract_name());
  auto options = quiet();
  options.announce = 1ms;
  ordered_lifespan life(options);
  supervisor.follow(life, 2s);
  life.add("db").start([] {}).stop([] {});
  EXPECT_TRUE(life.start());
  EXPECT_EQ(box.text(), "STATUS=starting | EXTEND_TIMEOUT_USEC=2000000 | READY=1 | STATUS=running");
  life.stop();
  EXPECT_EQ(box.text(),
            "STOPPING=1 | EXTEND_TIMEOUT_USEC=2000000 | STATUS=announcing | STOPPING=1 | STATUS=closing | "
            "STATUS=draining | STATUS=stopping | EXTEND_TIMEOUT_USEC=2000000 | STATUS=stopped");
}

TEST(SystemdNotifier, SaysWhatHangsAndNeverReadyAfterAFailedStart) {
  watchdog dog("systemd");
  const mailbox box(abstract_name());
  systemd_notifier supervisor(abstract_name());
  hang stuck;
  ordered_lifespan life(quiet());
  supervisor.follow(life, 1s);
  life.add("db").start(stuck.hook()).budget(lifespan_phase::start, 20ms);
  EXPECT_FALSE(life.start());
  const std::string said = box.text();
  EXPECT_NE(said.find("STATUS=hung: db (start)"), std::string::npos) << said;
  EXPECT_NE(said.find("STOPPING=1"), std::string::npos) << said;
  EXPECT_EQ(said.find("READY"), std::string::npos) << said;
}

TEST(SystemdNotifier, WithoutASupervisorNothingHappens) {
  systemd_notifier nobody("");
  EXPECT_FALSE(nobody.connected() || nobody.ready() || nobody.watchdog());
  systemd_notifier gone(abstract_name());  // an address at which nobody listens
  EXPECT_TRUE(gone.connected());
  EXPECT_FALSE(gone.ready());
  ordered_lifespan life(quiet());
  nobody.follow(life, 1s);
  gone.follow(life, 1s);
  EXPECT_TRUE(life.start());
  EXPECT_EQ(life.stop().observer_errors, 0u);
}

TEST(SystemdNotifier, AFullQueueDoesNotBlock) {
  watchdog dog("systemd");
  const mailbox box(abstract_name());
  systemd_notifier supervisor(abstract_name());
  bool refused = false;
  for (int i = 0; i != 100000 && !refused; ++i) refused = !supervisor.alive();
  EXPECT_TRUE(refused);
}

TEST(SystemdNotifier, ReadsTheEnvironment) {
  const auto with = [](const char* socket, const char* usec, const std::string& pid) {
    socket != nullptr ? ::setenv("NOTIFY_SOCKET", socket, 1) : ::unsetenv("NOTIFY_SOCKET");
    usec != nullptr ? ::setenv("WATCHDOG_USEC", usec, 1) : ::unsetenv("WATCHDOG_USEC");
    !pid.empty() ? ::setenv("WATCHDOG_PID", pid.c_str(), 1) : ::unsetenv("WATCHDOG_PID");
    return systemd_notifier().watchdog();
  };
  const std::string own = std::to_string(::getpid());
  const std::string name = abstract_name();
  EXPECT_EQ(with(name.c_str(), "30000000", own), 30s);
  EXPECT_TRUE(systemd_notifier().connected());
  EXPECT_EQ(with(nullptr, "1", ""), 1us);
  EXPECT_FALSE(systemd_notifier().connected());
  EXPECT_EQ(with(nullptr, "30000000", "1"), std::nullopt);  // somebody else is meant
  EXPECT_EQ(with(nullptr, nullptr, own), std::nullopt);
  for (const char* bad : {"", "0", "-5", "abc", "12x", "99999999999999999999", "9223372036854775807"}) {
    EXPECT_EQ(with(nullptr, bad, own), std::nullopt) << bad;
  }
  EXPECT_EQ(with(nullptr, "5", "x"), std::nullopt);
  with(nullptr, nullptr, "");
}

TEST(SystemdNotifier, BadAddressesAreRefused) {
  for (const std::string& bad : {std::string("relative"), std::string("@"), std::string("/"), std::string("vsock:2:3"),
                                 "/" + std::string(200, 'x'), "@" + std::string(200, 'x'), std::string("/a\0b", 4)}) {
    EXPECT_THROW(systemd_notifier{bad}, std::invalid_argument) << bad;
  }
  const std::string longest = "@" + std::string(sizeof(sockaddr_un::sun_path) - 2, 'x');
  const mailbox box(longest);
  systemd_notifier supervisor(longest);
  EXPECT_TRUE(supervisor.ready());
  EXPECT_EQ(box.text(), "READY=1");
}

}  // namespace
