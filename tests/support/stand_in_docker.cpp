// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A program that behaves like the docker command line, for the handful of verbs that the backend uses. It keeps its
/// containers as files below $STAND_IN_DOCKER and logs every argument vector there. A file `script/<verb>.<n>` makes
/// the n-th call of a verb do something else:
///
///     out TEXT | err TEXT     writes a line
///     exit N                  ends there
///     signal N                dies of a signal
///     gate                    waits for a byte on the pipe `gate`, writes a line, and waits for ever
///     remove_after N          the container stays for that many inspections after its stop
///
/// A script without `exit`, `signal` or `gate` goes on as usual. With $STAND_IN_DOCKER_SERVES set, a container is a
/// process that listens on its port and answers every request with 200; stopping the container kills it.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using strings = std::vector<std::string>;

fs::path root;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void put(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

struct state {
  bool there = false, running = false;
  std::string port;
  int inspections = 0;
  pid_t server = 0;  // 0: nothing runs in it
};

fs::path file_of(const std::string& name) {
  return root / "containers" / name;
}

state load(const std::string& name) {
  state s;
  std::istringstream text(text_of(file_of(name)));
  s.there = static_cast<bool>(text >> s.port >> s.running >> s.inspections);
  if (!(text >> s.server)) s.server = 0;
  return s;
}

void save(const std::string& name, const state& s) {
  put(file_of(name),
      s.port + " " + (s.running ? "1 " : "0 ") + std::to_string(s.inspections) + " " + std::to_string(s.server) + "\n");
}

int fail(int status, const std::string& message) {
  std::cerr << message << std::endl;
  return status;
}

std::string after(const strings& words, std::string_view option) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == option) return words[i + 1];
  return {};
}

/// The process of a container, which listens by the time this returns. 0: somebody has the port.
pid_t serve(const std::string& port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port.c_str())));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 16) != 0)
    return 0;
  const pid_t server = ::fork();
  if (server != 0) {
    ::close(listener);
    return server;
  }
  ::setsid();
  for (int fd = 0; fd < 256; ++fd)  // the host reads this program's output to its end
    if (fd != listener) ::close(fd);
  for (;;) {
    const int one = ::accept(listener, nullptr, nullptr);
    if (one < 0) continue;
    char request[4096];
    constexpr std::string_view answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
    if (::recv(one, request, sizeof request, 0) > 0) ::send(one, answer.data(), answer.size(), MSG_NOSIGNAL);
    ::close(one);
  }
}

int run(const strings& words) {
  const std::string name = after(words, "--name");
  const std::string published = after(words, "-p");  // <bind>:<port>:8080
  const std::size_t end = published.rfind(':');
  const std::string port = published.substr(published.rfind(':', end - 1) + 1, end - published.rfind(':', end - 1) - 1);
  if (load(name).there)
    return fail(125, "docker: Error response from daemon: Conflict. The container name \"/" + name +
                         "\" is already in use by container \"0123\". You have to remove (or rename) that container.");
  for (const auto& one : fs::directory_iterator(root / "containers"))
    if (load(one.path().filename().string()).port == port)
      return fail(125, "docker: Error response from daemon: driver failed: Bind for " + published +
                           " failed: port is already allocated.");
  pid_t server = 0;
  if (std::getenv("STAND_IN_DOCKER_SERVES") != nullptr && (server = serve(port)) == 0)
    return fail(125, "docker: Error response from daemon: listen tcp4 " + published + ": address already in use.");
  save(name, {true, true, port, 0, server});
  std::cout << "0123456789abcdef" << std::endl;
  return 0;
}

int stop(const std::string& name, int inspections) {
  state s = load(name);
  if (!s.there) return fail(1, "Error response from daemon: No such container: " + name);
  s.running = false;
  s.inspections = inspections;
  if (s.server > 0) ::kill(std::exchange(s.server, 0), SIGKILL);
  inspections == 0 ? static_cast<void>(fs::remove(file_of(name))) : save(name, s);
  std::cout << name << std::endl;
  return 0;
}

int inspect(const std::string& name) {
  state s = load(name);
  if (!s.there) return fail(1, "Error: No such object: " + name);
  std::cout << (s.running ? "true" : "false") << std::endl;
  if (s.inspections > 0) {
    --s.inspections;
    s.inspections == 0 ? static_cast<void>(fs::remove(file_of(name))) : save(name, s);
  }
  return 0;
}

int port(const std::string& name) {
  const state s = load(name);
  if (!s.there) return fail(1, "Error: No such container: " + name);
  std::cout << "127.0.0.1:" << s.port << "\n[::1]:" << s.port << std::endl;
  return 0;
}

int ps(const strings& words) {
  const std::string part = after(words, "--filter").substr(5);
  for (const auto& one : fs::directory_iterator(root / "containers")) {
    const std::string name = one.path().filename().string();
    const state s = load(name);
    if (s.running && name.find(part) != std::string::npos)
      std::cout << name << "\t127.0.0.1:" << s.port << "->8080/tcp, [::1]:" << s.port << "->8080/tcp, 9000/tcp\n";
  }
  std::cout.flush();
  return 0;
}

void wait_at_gate() {
  const int gate = ::open((root / "gate").c_str(), O_RDONLY);
  char byte = 0;
  if (::read(gate, &byte, 1) == 1) std::cout << "passed" << std::endl;  // wakes whoever waits for this program
  for (;;) ::pause();
}

/// What the host is to have arranged for its helpers.
bool well_started() {
  struct sigaction pipe {};
  sigset_t blocked;
  ::sigaction(SIGPIPE, nullptr, &pipe);
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  int descriptors = 0;
  for (int fd = 3; fd < 256; ++fd) descriptors += ::fcntl(fd, F_GETFD) != -1;
  return ::getpgrp() == ::getpid() && pipe.sa_handler == SIG_DFL && ::sigismember(&blocked, SIGTERM) == 0 &&
         descriptors == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool good = well_started();
  const char* const where = std::getenv("STAND_IN_DOCKER");
  if (where == nullptr || argc < 2) return fail(2, "stand-in docker: no STAND_IN_DOCKER, or no verb");
  root = where;
  const strings words(argv + 1, argv + argc);
  const std::string& verb = words.front();

  const int lock = ::open((root / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ::flock(lock, LOCK_EX);
  const fs::path counter = root / ("calls." + verb);
  const int call = std::atoi(text_of(counter).c_str()) + 1;
  put(counter, std::to_string(call));
  {
    std::ofstream log(root / "log", std::ios::app);
    for (const std::string& word : words) log << word << '\x1f';
    log << '\n';
    if (!good) std::ofstream(root / "badly_started") << verb;
  }
  int inspections = 0;
  std::istringstream script(text_of(root / "script" / (verb + "." + std::to_string(call))));
  for (std::string line; std::getline(script, line);) {
    const std::string what = line.substr(0, line.find(' '));
    const std::string rest = line.substr(std::min(line.size(), what.size() + 1));
    if (what == "out") std::cout << rest << std::endl;
    if (what == "err") std::cerr << rest << std::endl;
    if (what == "exit") return std::atoi(rest.c_str());
    if (what == "signal") ::raise(std::atoi(rest.c_str()));
    if (what == "remove_after") inspections = std::atoi(rest.c_str());
    if (what == "gate") {
      ::flock(lock, LOCK_UN);
      wait_at_gate();
    }
  }
  if (verb == "run") return run(words);
  if (verb == "stop") return stop(words.back(), inspections);
  if (verb == "inspect") return inspect(words.back());
  if (verb == "port") return port(words[1]);
  if (verb == "ps") return ps(words);
  return fail(2, "stand-in docker: unknown verb " + verb);
}
