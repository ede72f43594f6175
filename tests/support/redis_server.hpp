// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A redis-server that a test starts for itself on a free loopback port, restarts, stops and kills. The path of the
/// program is the macro CURFEW_REDIS_SERVER.

#ifndef CURFEW_TESTS_SUPPORT_REDIS_SERVER_HPP
#define CURFEW_TESTS_SUPPORT_REDIS_SERVER_HPP

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace curfew_test {

class redis_server {
 public:
  explicit redis_server(std::vector<std::string> more = {}) : more_(std::move(more)) {
    char name[] = "/tmp/curfew-redis-XXXXXX";
    directory_ = ::mkdtemp(name);
    for (int attempt = 0; attempt < 5 && !running(); ++attempt) {
      port_ = free_port();
      start();
    }
    if (!running()) throw std::runtime_error("redis-server does not start");
  }
  ~redis_server() {
    kill();
    std::filesystem::remove_all(directory_);
  }

  bool running() const { return pid_ != 0; }
  int port() const { return port_; }
  void signal(int signo) const { ::kill(pid_, signo); }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  /// On the same port, with nothing kept of what it knew.
  void start() {
    int out[2];
    if (::pipe2(out, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<std::string> words = {
        "redis-server", "--port",   std::to_string(port_), "--bind", "127.0.0.1",   "--save", "", "--appendonly", "no",
        "--dir",        directory_, "--loglevel",          "notice", "--daemonize", "no"};
    words.insert(words.end(), more_.begin(), more_.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::posix_spawnp(&pid_, CURFEW_REDIS_SERVER, &actions, nullptr, argv.data(), environ) != 0) pid_ = 0;
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    std::string line;
    char byte = 0;
    bool ready = false;
    while (!ready && ::read(out[0], &byte, 1) == 1) {
      line = byte == '\n' ? "" : line + byte;
      ready = line.ends_with("eady to accept connections");
    }
    if (!ready) kill();
    std::thread([fd = out[0]] {  // its log is read, so that it never blocks on the pipe
      char chunk[4096];
      while (::read(fd, chunk, sizeof chunk) > 0) {
      }
      ::close(fd);
    })
        .detach();
  }

 private:
  static int free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    ::close(fd);
    return ntohs(address.sin_port);
  }

  const std::vector<std::string> more_;
  std::string directory_;
  int port_ = 0;
  pid_t pid_ = 0;
};

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_REDIS_SERVER_HPP
