// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The other side of the gateway: a process of its own that starts it, waits until runs are in flight, sends a real
// SIGTERM, passes on what the gateway prints, and checks it: nobody else was let in, who was inside finished, the
// sandboxes went last, and the kernel knows none of their processes any more. Exit code 0 if all of that holds.

#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr std::size_t wanted_in_flight = 3;
constexpr auto patience = 60s;

/// Where the gateway's lines come from. On a terminal it gets a terminal of its own, so that it draws its timeline.
struct channel {
  int ours = -1;
  int theirs = -1;
};

std::optional<channel> open_channel() {
  channel result;
  if (::isatty(STDOUT_FILENO) == 0) {
    int ends[2];
    if (::pipe(ends) != 0) return std::nullopt;
    result = {ends[0], ends[1]};
  } else {
    result.ours = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (result.ours < 0 || ::grantpt(result.ours) != 0 || ::unlockpt(result.ours) != 0) return std::nullopt;
    result.theirs = ::open(::ptsname(result.ours), O_RDWR | O_NOCTTY);
    termios plain{};
    if (result.theirs < 0 || ::tcgetattr(result.theirs, &plain) != 0) return std::nullopt;
    plain.c_oflag &= ~static_cast<tcflag_t>(OPOST);  // lines end as they were written
    ::tcsetattr(result.theirs, TCSANOW, &plain);
  }
  ::fcntl(result.ours, F_SETFD, FD_CLOEXEC);
  return result;
}

pid_t start(std::vector<std::string> words, const channel& to) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::dup2(to.theirs, STDOUT_FILENO);
  ::close(to.theirs);
  ::execv(argv[0], argv.data());
  std::perror(argv[0]);
  ::_exit(127);
}

bool anybody_lives(const std::set<int>& groups) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    if (!std::getline(file, text)) continue;
    char state = 0;
    int parent = 0, group = 0;
    std::istringstream(text.substr(text.rfind(')') + 1)) >> state >> parent >> group;
    if (groups.count(group) != 0 && state != 'Z' && state != 'X') return true;
  }
  return false;
}

/// The number behind `name=`, if there is one.
std::optional<long> number(const std::string& line, const std::string& name) {
  const std::size_t at = line.find(" " + name + "=");
  if (at == std::string::npos) return std::nullopt;
  return std::strtol(line.c_str() + at + name.size() + 2, nullptr, 10);
}

/// What the lines say, one after the other.
class witness {
 public:
  void read(const std::string& line) {
    if (line.empty() || line[0] != '+') return;  // the drawing
    const long at = std::strtol(line.c_str() + 1, nullptr, 10);
    const std::string text = line.substr(std::min(line.size(), line.find(' ') + 1));
    const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
    if (text.rfind("run ", 0) == 0) {
      const long run = std::strtol(text.c_str() + 4, nullptr, 10);
      if (says(" started ")) {
        inside_.insert(run);
        groups_.insert(static_cast<int>(number(text, "pgid").value_or(0)));
      } else if (says(" finished")) {
        inside_.erase(run);
        last_finished_ = at;
        ++finished_;
      } else if (says(" refused")) {
        ++refused_;
      } else {
        complain("not every run that was let in finished: " + text);
      }
    } else if (text.rfind("stopping ", 0) == 0) {
      stopping_at_ = at;
      if (!says("cause=signal signal=15 ")) complain("it stopped for another reason: " + text);
      if (number(text, "in_flight").value_or(0) < 1) complain("nothing was in flight: " + text);
    } else if (says("stage=sandboxes phase=stop ")) {
      sandboxes_at_ = stopping_at_ + number(text, "began").value_or(-1);
      if (!says("outcome=ok ")) complain("the sandboxes were not taken down: " + text);
    } else if (text.rfind("proof ", 0) == 0) {
      proof_ = true;
      const auto created = number(text, "created"), destroyed = number(text, "destroyed");
      if (!created || *created < 1 || created != destroyed) complain("not every sandbox was destroyed: " + text);
      if (number(text, "processes_left") != 0) complain("processes are left: " + text);
    }
  }

  std::size_t inside() const { return inside_.size(); }

  void end(int status) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) complain("it did not exit with 0");
    if (stopping_at_ < 0) complain("it never said that it was stopping");
    if (!inside_.empty()) complain("a run started and did not finish");
    if (refused_ == 0) complain("nobody was refused");
    if (sandboxes_at_ < last_finished_) complain("the sandboxes went before the last run had finished");
    if (!proof_) complain("it gave no proof");
    if (anybody_lives(groups_)) complain("the kernel still runs a process of a sandbox");
  }

  bool print_verdict() const {
    for (const std::string& one : complaints_) std::printf("send_sigterm: FAILED: %s\n", one.c_str());
    if (!complaints_.empty()) return false;
    std::printf(
        "send_sigterm: ok: %d runs finished, %d were refused, the sandboxes went last, no process of %zu groups is "
        "left\n",
        finished_, refused_, groups_.size());
    return true;
  }

  void complain(const std::string& text) { complaints_.push_back(text); }

 private:
  std::set<long> inside_;
  std::set<int> groups_;
  std::vector<std::string> complaints_;
  long stopping_at_ = -1, last_finished_ = -1, sandboxes_at_ = -1;
  int finished_ = 0, refused_ = 0;
  bool proof_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: send_sigterm <gateway> [its arguments]\n");
    return 2;
  }
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1)
    words.insert(words.end(), {"--runs", "8", "--run-ms", "600", "--replicas", "3", "--arrive-ms", "80"});

  const auto lines = open_channel();
  if (!lines) {
    std::perror("send_sigterm");
    return 1;
  }
  const pid_t gateway = start(words, *lines);
  if (gateway < 0) {
    std::perror("send_sigterm: fork");
    return 1;
  }
  ::close(lines->theirs);
  std::signal(SIGINT, SIG_IGN);  // the gateway gets a Ctrl-C as well, and what it makes of it shall be seen

  witness seen;
  bool sent = false;
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (bool open = true; open;) {
    pollfd entry{lines->ours, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int ready = left > 0ms ? ::poll(&entry, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      seen.complain("it did not end in time");
      ::kill(gateway, SIGKILL);
      break;
    }
    char chunk[4096];
    const ssize_t got = ::read(lines->ours, chunk, sizeof chunk);  // a terminal reports its end as an error
    if (got < 0 && errno == EINTR) continue;
    open = got > 0;
    if (open) text.append(chunk, static_cast<std::size_t>(got));
    for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      const std::string line = text.substr(0, end);
      std::printf("%s\n", line.c_str());
      seen.read(line);
      if (!sent && seen.inside() >= wanted_in_flight) {
        sent = true;
        std::printf("send_sigterm: SIGTERM to %d, %zu runs are in flight\n", static_cast<int>(gateway), seen.inside());
        ::kill(gateway, SIGTERM);
      }
      std::fflush(stdout);
    }
  }
  int status = 0;
  while (::waitpid(gateway, &status, 0) < 0 && errno == EINTR) {
  }
  seen.end(status);
  return seen.print_verdict() ? 0 : 1;
}
