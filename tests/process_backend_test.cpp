// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// process_backend against the kernel: what it claims about processes, groups, descriptors and directories is looked up
/// in /proc, not in the backend. Cases that need a host of their own (to be killed, to run out of something) run in a
/// child that is this same program, told by an environment variable what to be.

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/detail/directory_tree.hpp>
#include <curfew/sandbox/process_backend.hpp>

#include "tests/support/park.hpp"

namespace {

using namespace curfew::sandbox;
using namespace curfew_test;
using namespace std::chrono_literals;
using strings = std::vector<std::string>;

// ---- the kernel's answers

struct process_entry {
  pid_t pid = 0, parent = 0, group = 0;
  char state = '?';
};

std::vector<process_entry> processes() {
  std::vector<process_entry> all;
  DIR* const dir = ::opendir("/proc");
  while (const dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    std::ifstream file(std::string("/proc/") + entry->d_name + "/stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    process_entry one;
    one.pid = std::atoi(entry->d_name);
    std::istringstream rest(text.substr(text.rfind(')') + 1));
    rest >> one.state >> one.parent >> one.group;
    all.push_back(one);
  }
  ::closedir(dir);
  return all;
}

std::vector<pid_t> living_members(pid_t group) {
  std::vector<pid_t> found;
  for (const process_entry& one : processes())
    if (one.group == group && one.state != 'Z' && one.state != 'X') found.push_back(one.pid);
  return found;
}

bool exists(pid_t pid) {
  return ::kill(pid, 0) == 0;
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const process_entry& one : processes())
    if (one.parent == ::getpid()) found.push_back(one.pid);
  return found;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string status_field(pid_t pid, const std::string& name) {
  std::istringstream lines(file_text("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(name + ":", 0) == 0) return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  return "?";
}

std::string link_text(const std::string& path) {
  char text[4096];
  const ssize_t size = ::readlink(path.c_str(), text, sizeof text);
  return size < 0 ? "?" : std::string(text, static_cast<std::size_t>(size));
}

std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> names;
  DIR* const dir = ::opendir(path.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) names.insert(entry->d_name);
  ::closedir(dir);
  return names;
}

std::size_t open_descriptors() {
  return names_in("/proc/self/fd").size();
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// ---- fixtures

/// A directory of this test's own, removed at the end whatever is in it.
class scratch {
 public:
  scratch() {
    std::string pattern = ::testing::TempDir() + "/curfew-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    char* const real = ::realpath(pattern.c_str(), nullptr);
    path_ = real;
    std::free(real);
  }
  ~scratch() { curfew::detail::remove_tree(AT_FDCWD, path_.c_str()); }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// At most so many descriptors for as long as it lives. A sanitizer's checks need some too, so it ends before a check.
class descriptor_limit {
 public:
  explicit descriptor_limit(rlim_t most) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit tight{most, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
  }
  ~descriptor_limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  descriptor_limit(const descriptor_limit&) = delete;
  descriptor_limit& operator=(const descriptor_limit&) = delete;

 private:
  rlimit before_{};
};

create_request request(std::string id, std::map<std::string, std::string> environment = {}) {
  return {std::move(id), {"user", "thread"}, std::move(environment)};
}

pid_t group_of(const sandbox_info& info) {
  return std::atoi(info.endpoint.c_str() + std::strlen("process://"));
}

std::string directory_of(const sandbox_info& info) {
  return info.endpoint.substr(info.endpoint.find('/', 10));
}

process_options running(strings command) {
  process_options options;
  options.command = std::move(command);
  return options;
}

strings shell(std::string script) {
  return {"/bin/sh", "-c", std::move(script)};
}

template <class F>
backend_error refused(F&& call) {
  try {
    call();
  } catch (const backend_error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return backend_error(backend_fault::bad_response, "nothing was thrown");
}

/// Waits until a member of the group has written its mark: then it has set its traps.
bool marked(const sandbox_info& info, const char* name = "ready") {
  return eventually([&] { return ::access((directory_of(info) + "/" + name).c_str(), F_OK) == 0; });
}

// ---- this program as somebody else

using child_body = void (*)(const std::string& argument);
std::map<std::string, child_body>& bodies() {
  static std::map<std::string, child_body> all;
  return all;
}

/// Registers a body and, in a process that was told to be it, runs it instead of the tests.
struct child_role {
  child_role(const char* name, child_body body) { bodies()[name] = body; }
  static void become_if_told() {
    const char* const name = std::getenv("CURFEW_TEST_CHILD");
    if (name == nullptr) return;
    const char* const argument = std::getenv("CURFEW_TEST_ARGUMENT");
    bodies().at(name)(argument != nullptr ? argument : "");
    std::fflush(stdout);
    ::_exit(0);
  }
};

/// A running copy of this program whose stdout can be read line by line.
class child_program {
 public:
  child_program(const std::string& role, const std::string& argument) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    strings variables;
    for (char** one = environ; *one != nullptr; ++one) variables.push_back(*one);
    variables.push_back("CURFEW_TEST_CHILD=" + role);
    variables.push_back("CURFEW_TEST_ARGUMENT=" + argument);
    std::vector<char*> view;
    for (std::string& one : variables) view.push_back(one.data());
    view.push_back(nullptr);
    char self[] = "/proc/self/exe";
    char* const argv[] = {self, nullptr};
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::execve(self, argv, view.data());
      ::_exit(126);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~child_program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
  }
  child_program(const child_program&) = delete;
  child_program& operator=(const child_program&) = delete;

  pid_t pid() const { return pid_; }

  std::string line() {
    for (;;) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        std::string one = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return one;
      }
      pollfd entry{out_, POLLIN, 0};
      if (::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) <= 0) return "(timeout)";
      char chunk[512];
      const ssize_t got = ::read(out_, chunk, sizeof chunk);
      if (got <= 0) return "(end)";
      buffer_.append(chunk, static_cast<std::size_t>(got));
    }
  }

  void signal(int signo) { ::kill(pid_, signo); }

  /// The exit status, or 128 + n.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
  std::string buffer_;
};

// ---- RP1: what a sandbox is

TEST(ProcessBackend, RP1_CreateMakesAPrivateDirectoryAndAGroupThatExists) {
  const watchdog dog("RP1 create");
  process_backend backend;
  const sandbox_info info = backend.create(request("box"));
  EXPECT_EQ(info.id, "box");
  const pid_t group = group_of(info);
  ASSERT_GT(group, 1);
  EXPECT_EQ(info.endpoint, "process://" + std::to_string(group) + directory_of(info));
  EXPECT_EQ(::getpgid(group), group);
  EXPECT_NE(::getpgid(0), group);
  EXPECT_EQ(living_members(group), std::vector<pid_t>{group});
  struct stat directory {};
  ASSERT_EQ(::stat(directory_of(info).c_str(), &directory), 0);
  EXPECT_EQ(directory.st_mode & 07777, mode_t{0700});
  EXPECT_EQ(link_text("/proc/" + std::to_string(group) + "/cwd"), directory_of(info));
  EXPECT_TRUE(backend.destroy("box"));
}

TEST(ProcessBackend, RP1_TheEnvironmentIsExactlyThreePlusBothMaps) {
  const watchdog dog("RP1 environment");
  ::setenv("CURFEW_TEST_SECRET", "of the host", 1);
  process_options options = running({"sleep", "1000"});  // a shell would add variables of its own
  options.environment = {{"FROM_OPTIONS", "1"}, {"BOTH", "options"}};
  process_backend backend(options);
  const sandbox_info info = backend.create(request("box", {{"FROM_REQUEST", "a b=c\n"}, {"BOTH", "request"}}));
  const std::string raw = file_text("/proc/" + std::to_string(group_of(info)) + "/environ");
  std::set<std::string> variables;
  for (std::size_t at = 0; at < raw.size(); at = raw.find('\0', at) + 1) variables.insert(raw.c_str() + at);
  const std::string home = directory_of(info);
  EXPECT_EQ(variables,
            (std::set<std::string>{"PATH=" + std::string(std::getenv("PATH")), "HOME=" + home, "TMPDIR=" + home,
                                   "FROM_OPTIONS=1", "FROM_REQUEST=a b=c\n", "BOTH=request"}));
  ::unsetenv("CURFEW_TEST_SECRET");
}

TEST(ProcessBackend, RP1_DispositionsAndMaskOfTheHostDoNotReachTheSandbox) {
  const watchdog dog("RP1 signals");
  struct sigaction ignored {
  }, previous{};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGHUP, &ignored, &previous);
  sigset_t blocked, mask;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask);
  {
    process_backend backend;
    const pid_t leader = group_of(backend.create(request("box")));
    EXPECT_EQ(status_field(leader, "SigBlk"), "0000000000000000");
    EXPECT_EQ(status_field(leader, "SigIgn"), "0000000000000000");
    const exec_result result = backend.exec("box", {"cat", "/proc/self/status"}, 10s);
    EXPECT_NE(result.output.find("SigBlk:\t0000000000000000"), std::string::npos);
    EXPECT_NE(result.output.find("SigIgn:\t0000000000000000"), std::string::npos);
  }
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::sigaction(SIGHUP, &previous, nullptr);
}

std::atomic<bool> interrupt_children{false};

TEST(ProcessBackend, RP1_ASignalToTheHostsGroupBeforeTheChildHasLeftItDoesNotReachTheSandbox) {
  const watchdog dog("RP1 early signal");
  // The first thing in the child, before anything of ours: what a Ctrl-C in that moment would do.
  ASSERT_EQ(::pthread_atfork(nullptr, nullptr,
                             [] {
                               if (!interrupt_children.load(std::memory_order_relaxed)) return;
                               for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) ::kill(::getpid(), signo);
                             }),
            0);
  interrupt_children.store(true, std::memory_order_relaxed);
  {
    process_backend backend;
    const sandbox_info info = backend.create(request("box"));
    EXPECT_EQ(backend.exec("box", {"echo", "hello"}, 10s).output, "hello\n");
    EXPECT_EQ(backend.probe("box"), liveness::alive);
    EXPECT_EQ(living_members(group_of(info)), std::vector<pid_t>{group_of(info)});
  }
  interrupt_children.store(false, std::memory_order_relaxed);
}

TEST(ProcessBackend, RP1_NoDescriptorOfTheHostReachesTheSandbox) {
  const watchdog dog("RP1 descriptors");
  const int inheritable = ::open("/dev/zero", O_RDONLY);  // deliberately not close-on-exec
  const int high = ::fcntl(inheritable, F_DUPFD, 900);
  {
    process_backend backend;
    const pid_t leader = group_of(backend.create(request("box")));
    const std::string fds = "/proc/" + std::to_string(leader) + "/fd";
    // A leader that has just been executed may still be loading its libraries; what it inherited would stay.
    EXPECT_TRUE(eventually([&] { return names_in(fds) == std::set<std::string>{"0", "1", "2"}; }));
    for (const char* fd : {"/0", "/1", "/2"}) EXPECT_EQ(link_text(fds + fd), "/dev/null");
    const exec_result result =
        backend.exec("box", shell("exec sleep 100 & readlink /proc/$!/fd/* | sort; kill $!"), 10s);
    EXPECT_EQ(result.output.find("/dev/zero"), std::string::npos) << result.output;
  }
  ::close(inheritable);
  ::close(high);
}

TEST(ProcessBackend, RP1_DescriptorsAboveALoweredLimitStayOutToo) {
  const watchdog dog("RP1 descriptors above the limit");
  const int inheritable = ::open("/dev/zero", O_RDONLY);
  const int high = ::fcntl(inheritable, F_DUPFD, 700);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit lowered = before;
  lowered.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  {
    process_backend backend;
    const pid_t leader = group_of(backend.create(request("box")));
    EXPECT_TRUE(eventually([&] {
      return names_in("/proc/" + std::to_string(leader) + "/fd") == std::set<std::string>{"0", "1", "2"};
    }));
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  ::close(inheritable);
  ::close(high);
}

TEST(ProcessBackend, RP3_AProgramThatLeftTheGroupDoesNotHoldUpTheEnd) {
  const watchdog dog("RP3 a writer outside the group");
  process_options options;
  options.stop_grace = options.kill_wait = 100ms;
  process_backend backend(options);
  const sandbox_info info = backend.create(request("box"));
  backend.exec("box",
               shell("setsid sh -c 'i=0; while [ $i -lt 4000000 ]; do i=$((i+1)); : > f$i 2>/dev/null || exit; done' "
                     ">/dev/null 2>&1 & sleep 0.2"),
               10s);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 15s);
}

TEST(ProcessBackend, RP1_LimitsHoldForTheLeaderAndForCommands) {
  const watchdog dog("RP1 limits");
  process_options options;
  options.limits.cpu_seconds = 77;
  options.limits.processes = 5000;
  options.limits.address_space = std::uint64_t{1} << 40;
  options.limits.open_files = 99;
  options.limits.file_size = 4096;
  process_backend backend(options);
  const sandbox_info info = backend.create(request("box"));
  const auto holds = [](const std::string& limits) {
    const auto has = [&](const char* name, const char* value) {
      std::istringstream lines(limits);
      for (std::string line; std::getline(lines, line);) {
        if (line.rfind(name, 0) != 0) continue;
        std::istringstream words(line.substr(std::strlen(name)));
        std::string soft, hard;
        words >> soft >> hard;
        EXPECT_EQ(soft, value) << line;
        EXPECT_EQ(hard, value) << line;
        return;
      }
      ADD_FAILURE() << "no limit " << name;
    };
    has("Max cpu time", "77");
    has("Max processes", "5000");
    has("Max address space", "1099511627776");
    has("Max open files", "99");
    has("Max file size", "4096");
    has("Max core file size", "0");
  };
  holds(file_text("/proc/" + std::to_string(group_of(info)) + "/limits"));
  holds(backend.exec("box", {"cat", "/proc/self/limits"}, 10s).output);
  const exec_result big = backend.exec("box", shell("exec head -c 9000 /dev/zero > big"), 10s);
  EXPECT_EQ(big.exit_code, 128 + SIGXFSZ);
}

TEST(ProcessBackend, RP1_ALimitAboveTheHostsOwnIsLoweredToIt) {
  const watchdog dog("RP1 clamp");
  process_options options;
  options.limits.open_files = ~std::uint64_t{0} - 1;
  process_backend backend(options);
  EXPECT_NO_THROW(backend.create(request("box")));
}

TEST(ProcessBackend, RP1_AProgramWithoutASlashIsLookedUpInThePathOfTheSandbox) {
  const watchdog dog("RP1 path");
  scratch place;
  ::mkdir((place / "bin").c_str(), 0700);
  std::ofstream(place / "bin/curfew-test-tool") << "#!/bin/sh\necho tool \"$@\"\n";
  ::chmod((place / "bin/curfew-test-tool").c_str(), 0700);
  process_options options;
  options.environment["PATH"] = "/nowhere:" + (place / "bin") + ":/bin:/usr/bin";
  process_backend backend(options);
  backend.create(request("box"));
  EXPECT_EQ(backend.exec("box", {"curfew-test-tool", "one", "two words"}, 10s).output, "tool one two words\n");
}

TEST(ProcessBackend, RP1_AnEmptyRootIsAPrivateDirectoryMadeOnFirstUseUnderTmpdir) {
  const watchdog dog("RP1 root");
  scratch place;
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("TMPDIR", place.path().c_str(), 1);
  {
    process_backend backend;
    if (before != nullptr)
      ::setenv("TMPDIR", kept.c_str(), 1);
    else
      ::unsetenv("TMPDIR");
    EXPECT_TRUE(names_in(place.path()).empty());
    const sandbox_info info = backend.create(request("box"));
    const auto names = names_in(place.path());
    ASSERT_EQ(names.size(), 1u);
    const std::string prefix = "curfew-" + std::to_string(::getuid()) + "-" + std::to_string(::getpid()) + "-";
    EXPECT_EQ(names.begin()->rfind(prefix, 0), 0u) << *names.begin();
    EXPECT_EQ(directory_of(info), place / (*names.begin() + "/box"));
    struct stat root {};
    ASSERT_EQ(::stat((place / *names.begin()).c_str(), &root), 0);
    EXPECT_EQ(root.st_mode & 07777, mode_t{0700});
  }
  EXPECT_TRUE(names_in(place.path()).empty());
}

TEST(ProcessBackend, RP1_ARelativeRootIsRelativeToTheDirectoryAtConstruction) {
  const watchdog dog("RP1 relative root");
  scratch place;
  char before[4096];
  ASSERT_NE(::getcwd(before, sizeof before), nullptr);
  ASSERT_EQ(::chdir(place.path().c_str()), 0);
  process_options options;
  options.root = "relative";
  {
    process_backend backend(options);
    ASSERT_EQ(::chdir(before), 0);
    EXPECT_EQ(directory_of(backend.create(request("box"))), place / "relative/box");
  }
  EXPECT_TRUE(names_in(place.path()).empty());
}

// ---- RP2: failures

TEST(ProcessBackend, RP2_AFailingExecIsReportedAndLeavesNothing) {
  const watchdog dog("RP2 exec");
  scratch place;
  process_options options = running({"/no/such/program"});
  options.root = place.path();
  process_backend backend(options);
  EXPECT_EQ(refused([&] { backend.create(request("first")); }).fault(), backend_fault::spawn_failed);
  const std::size_t descriptors = open_descriptors();
  const auto before = children();
  const backend_error error = refused([&] { backend.create(request("box")); });
  EXPECT_EQ(error.fault(), backend_fault::spawn_failed);
  EXPECT_TRUE(error.leftover().empty());
  const std::string text = error.what();
  EXPECT_NE(text.find("box"), std::string::npos) << text;
  EXPECT_NE(text.find("exec"), std::string::npos) << text;
  EXPECT_NE(text.find(std::generic_category().message(ENOENT)), std::string::npos) << text;
  EXPECT_EQ(children(), before);
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_TRUE(names_in(place.path()).empty());
  EXPECT_TRUE(backend.list().empty());
  EXPECT_EQ(backend.probe("box"), liveness::dead);
  EXPECT_TRUE(backend.destroy("box"));
}

TEST(ProcessBackend, RP2_AProgramThatMayNotRunIsNamedAsSuch) {
  const watchdog dog("RP2 access");
  scratch place;
  std::ofstream(place / "plain") << "no program";
  process_backend backend(running({place / "plain"}));
  const std::string text = refused([&] { backend.create(request("box")); }).what();
  EXPECT_NE(text.find(std::generic_category().message(EACCES)), std::string::npos) << text;
  process_backend other;
  other.create(request("box"));
  const std::string missing = refused([&] { other.exec("box", {"no-such-program-anywhere"}, 1s); }).what();
  EXPECT_NE(missing.find(std::generic_category().message(ENOENT)), std::string::npos) << missing;
}

TEST(ProcessBackend, RP2_RunningIdAgainIsAConflictAndTouchesNothing) {
  const watchdog dog("RP2 conflict");
  process_backend backend;
  const sandbox_info first = backend.create(request("box"));
  EXPECT_EQ(refused([&] { backend.create(request("box")); }).fault(), backend_fault::conflict);
  EXPECT_EQ(living_members(group_of(first)), std::vector<pid_t>{group_of(first)});
  EXPECT_TRUE(is_directory(directory_of(first)));
  EXPECT_EQ(backend.probe("box"), liveness::alive);
}

TEST(ProcessBackend, RP2_OfManyCreatesOfOneIdExactlyOneSucceeds) {
  const watchdog dog("RP2 racing creates");
  process_backend backend;
  for (int round = 0; round < 10; ++round) {
    constexpr unsigned racers = 4;
    start_gate gate(racers);
    std::atomic<int> made{0}, conflicts{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < racers; ++i)
      threads.emplace_back([&] {
        gate.arrive_and_wait();
        try {
          backend.create(request("box"));
          made.fetch_add(1, std::memory_order_relaxed);
        } catch (const backend_error& error) {
          EXPECT_EQ(error.fault(), backend_fault::conflict);
          conflicts.fetch_add(1, std::memory_order_relaxed);
        }
      });
    for (std::thread& one : threads) one.join();
    EXPECT_EQ(made.load(std::memory_order_relaxed), 1);
    EXPECT_EQ(conflicts.load(std::memory_order_relaxed), 3);
    EXPECT_TRUE(backend.destroy("box"));
  }
}

TEST(ProcessBackend, RP2_ADeadIdMakesRoomForANewOne) {
  const watchdog dog("RP2 dead id");
  process_backend backend;
  const sandbox_info first = backend.create(request("box"));
  std::ofstream(directory_of(first) + "/old") << "x";
  ::kill(group_of(first), SIGKILL);
  ASSERT_TRUE(eventually([&] { return backend.probe("box") == liveness::dead; }));
  const sandbox_info second = backend.create(request("box"));
  EXPECT_NE(group_of(first), group_of(second));
  EXPECT_TRUE(names_in(directory_of(second)).empty());
}

TEST(ProcessBackend, RP2_AnotherProcessWithTheSameRootIsAConflictAndADeadOneIsNot) {
  const watchdog dog("RP2 shared root");
  scratch place;
  process_options options;
  options.root = place.path();
  process_backend second(options);
  {
    process_backend first(options);
    const sandbox_info info = first.create(request("box"));
    std::ofstream(directory_of(info) + "/data") << "kept";
    EXPECT_EQ(refused([&] { second.create(request("box")); }).fault(), backend_fault::conflict);
    EXPECT_EQ(file_text(directory_of(info) + "/data"), "kept");
  }
  EXPECT_NO_THROW(second.create(request("box")));
}

TEST(ProcessBackend, RP2_WhatLiesInTheWayIsRemovedButNeverFollowed) {
  const watchdog dog("RP2 in the way");
  scratch place, outside;
  std::ofstream(outside / "precious") << "kept";
  process_options options;
  options.root = place.path();
  process_backend backend(options);
  ASSERT_EQ(::symlink(outside.path().c_str(), (place / "link").c_str()), 0);
  std::ofstream(place / "file") << "x";
  ::mkdir((place / "stale").c_str(), 0);  // no access at all
  for (const char* id : {"link", "file", "stale"}) {
    const sandbox_info info = backend.create(request(id));
    EXPECT_TRUE(is_directory(place / id)) << id;
    EXPECT_TRUE(backend.destroy(id));
  }
  EXPECT_EQ(file_text(outside / "precious"), "kept");
}

struct threadless_sync : curfew::std_sync {
  struct thread {
    thread() = default;
    template <class F>
    explicit thread(F&&) {
      throw std::system_error(EAGAIN, std::generic_category(), "no thread");
    }
    bool joinable() const { return false; }
    void join() {}
  };
};

TEST(ProcessBackend, RP2_AThreadThatCannotBeMadeIsASpawnFailure) {
  const watchdog dog("RP2 thread");
  scratch place;
  process_options options;
  options.root = place.path();
  basic_process_backend<threadless_sync> backend(options);
  EXPECT_THROW(backend.create(request("first")), backend_error);
  const std::size_t descriptors = open_descriptors();
  const backend_error error = refused([&] { backend.create(request("box")); });
  EXPECT_EQ(error.fault(), backend_fault::spawn_failed);
  EXPECT_NE(std::string(error.what()).find(std::generic_category().message(EAGAIN)), std::string::npos) << error.what();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_TRUE(names_in(place.path()).empty());
  EXPECT_TRUE(children().empty());
}

void starve_of_descriptors(const std::string& root) {
  // Gives one descriptor more in each round, so that every call that needs one fails once.
  process_options options = running({"/no/such/program"});
  options.root = root;
  try {
    // Once with plenty: a sanitizer that meets a type for the first time needs descriptors to look at it.
    process_backend(options).create(request("box"));
  } catch (const backend_error& error) {
    if (error.fault() != backend_fault::spawn_failed) std::printf("%s\n", error.what());
  }
  options.command = process_options{}.command;
  process_backend backend(options);
  int failures = 0;
  for (rlim_t extra = 0; extra < 64; ++extra) {
    const std::size_t open = open_descriptors();
    bool made = false, ran = false;
    std::string text;
    try {
      const descriptor_limit tight(static_cast<rlim_t>(open) - 1 + extra);  // the listing itself held one
      backend.create(request("box"));
      made = true;
      ran = backend.exec("box", {"true"}, 10s).exit_code == 0;
    } catch (const backend_error& error) {
      text = error.fault() == backend_fault::spawn_failed ? error.what() : "(wrong fault)";
    }
    if (made && !backend.destroy("box")) std::printf("round %d: not destroyed\n", static_cast<int>(extra));
    if (text.empty() && ran) {
      std::printf("succeeded after %s failures\n", failures >= 3 ? "several" : "too few");
      break;
    }
    ++failures;
    if (text.find(std::generic_category().message(EMFILE)) == std::string::npos)
      std::printf("round %d: %s\n", static_cast<int>(extra), text.c_str());
    if (!names_in(root).empty()) std::printf("round %d: a directory is left\n", static_cast<int>(extra));
    if (!children().empty()) std::printf("round %d: a child is left\n", static_cast<int>(extra));
  }
  const std::size_t settled = open_descriptors();
  backend.create(request("box"));
  backend.destroy("box");
  if (open_descriptors() != settled) std::printf("descriptors leak\n");
  std::printf("done\n");
}
const child_role starving_role("starving", starve_of_descriptors);

TEST(ProcessBackend, RP2_RunningOutOfDescriptorsAnywhereLeavesNothing) {
  const watchdog dog("RP2 descriptors");
  scratch place;
  child_program host("starving", place.path());
  EXPECT_EQ(host.line(), "succeeded after several failures");
  EXPECT_EQ(host.line(), "done");
  EXPECT_EQ(host.wait(), 0);
  EXPECT_TRUE(names_in(place.path()).empty());
}

void forkless(const std::string& root) {
  process_options options;
  options.root = root;
  process_backend backend(options);
  std::printf("%d\n", group_of(backend.create(request("early"))));
  if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) std::printf("no other user\n");
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_NPROC, &none);
  const std::size_t descriptors = open_descriptors();
  for (int round = 0; round < 3; ++round) {
    try {
      backend.exec("early", {"true"}, 1s);
      std::printf("forked\n");
    } catch (const backend_error& error) {
      const bool named =
          std::string(error.what()).find("fork: " + std::generic_category().message(EAGAIN)) != std::string::npos;
      std::printf("%s\n", error.fault() == backend_fault::spawn_failed && named ? "refused" : error.what());
    }
  }
  std::printf("%s\n", open_descriptors() == descriptors ? "none leaks" : "descriptors leak");
  std::fflush(stdout);
  ::_exit(0);  // the sandbox belongs to the former user; neither this process nor its death can signal it any more
}
const child_role forkless_role("forkless", forkless);

TEST(ProcessBackend, RP2_AFailedForkIsASpawnFailureThatNamesIt) {
  const watchdog dog("RP2 fork");
  scratch place;
  ::chmod(place.path().c_str(), 0777);
  child_program host("forkless", place.path());
  const pid_t group = std::atoi(host.line().c_str());
  ASSERT_GT(group, 1);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(host.line(), "refused");
  EXPECT_EQ(host.line(), "none leaks");
  EXPECT_EQ(host.wait(), 0);
  ::kill(-group, SIGKILL);
}

void without_standard_streams(const std::string& root) {
  const int out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 50);
  for (const int fd : {0, 1, 2}) ::close(fd);
  process_options options;
  options.root = root;
  std::string text;
  {
    process_backend backend(options);
    const sandbox_info info = backend.create(request("box"));
    const std::string fds = "/proc/" + std::to_string(group_of(info)) + "/fd";
    for (const char* fd : {"/0", "/1", "/2"}) text += link_text(fds + fd) + " ";
    text += backend.exec("box", shell("echo out; echo err >&2"), 10s).output;
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  text += "\n";
  if (::write(out, text.data(), text.size()) < 0) ::_exit(1);
  ::_exit(0);
}
const child_role streamless_role("streamless", without_standard_streams);

TEST(ProcessBackend, RP2_AHostWithoutStandardStreamsStillWorks) {
  const watchdog dog("RP2 streams");
  scratch place;
  child_program host("streamless", place.path());
  EXPECT_EQ(host.line(), "/dev/null /dev/null /dev/null out err ");
  EXPECT_EQ(host.wait(), 0);
}

// ---- RP3: destroy

TEST(ProcessBackend, RP3_DestroyEndsTheGroupReapsTheLeaderAndRemovesTheDirectory) {
  const watchdog dog("RP3 destroy");
  process_backend backend;
  const sandbox_info info = backend.create(request("box"));
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_FALSE(exists(group_of(info)));
  EXPECT_TRUE(children().empty());
  EXPECT_FALSE(is_directory(directory_of(info)));
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_EQ(backend.probe("box"), liveness::dead);
}

TEST(ProcessBackend, RP3_UnknownIdIsGone) {
  process_backend backend;
  EXPECT_TRUE(backend.destroy("never-made"));
}

TEST(ProcessBackend, RP3_ALeaderThatListensToTermMayCleanUp) {
  const watchdog dog("RP3 term");
  scratch place;
  process_backend backend(running(
      shell("trap 'echo bye > " + (place / "bye") + "; exit 0' TERM; : > ready; while :; do sleep 0.01; done")));
  const sandbox_info info = backend.create(request("box"));
  ASSERT_TRUE(marked(info));
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_EQ(file_text(place / "bye"), "bye\n");
  EXPECT_TRUE(living_members(group_of(info)).empty());
}

TEST(ProcessBackend, RP3_WhoIgnoresTermIsKilledAfterTheGrace) {
  const watchdog dog("RP3 kill");
  process_options options = running(shell("trap '' TERM; (: > ready2; while :; do sleep 100; done) & : > ready; wait"));
  options.stop_grace = 150ms;
  process_backend backend(options);
  const sandbox_info info = backend.create(request("box"));
  ASSERT_TRUE(marked(info) && marked(info, "ready2"));
  EXPECT_GE(living_members(group_of(info)).size(), 2u);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 150ms);
  EXPECT_TRUE(living_members(group_of(info)).empty());
  EXPECT_TRUE(children().empty());
}

TEST(ProcessBackend, RP3_MembersThatOutliveTheLeaderAreEndedToo) {
  const watchdog dog("RP3 orphans");
  process_options options = running(shell("(trap '' TERM; : > ready; while :; do sleep 100; done) & exec sleep 1000"));
  options.stop_grace = 100ms;
  process_backend backend(options);
  const sandbox_info info = backend.create(request("box"));
  ASSERT_TRUE(marked(info));
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_TRUE(living_members(group_of(info)).empty());
}

TEST(ProcessBackend, RP3_AStoppedGroupEndsToo) {
  const watchdog dog("RP3 stopped");
  process_options options;
  options.stop_grace = 50ms;
  process_backend backend(options);
  const sandbox_info info = backend.create(request("box"));
  ::kill(-group_of(info), SIGSTOP);
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_TRUE(living_members(group_of(info)).empty());
}

TEST(ProcessBackend, RP3_OtherChildrenOfTheHostAreNotReaped) {
  const watchdog dog("RP3 foreign child");
  process_backend backend;
  backend.create(request("box"));
  const pid_t mine = ::fork();
  if (mine == 0) ::_exit(42);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(mine), &info, WEXITED | WNOWAIT), 0);  // it is a zombie now
  EXPECT_EQ(backend.exec("box", {"true"}, 10s).exit_code, 0);
  EXPECT_TRUE(backend.destroy("box"));
  int status = 0;
  EXPECT_EQ(::waitpid(mine, &status, 0), mine);
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

TEST(ProcessBackend, RP3_NoSigchldHandlerIsInstalledAndAnIgnoringHostIsServed) {
  const watchdog dog("RP3 sigchld");
  struct sigaction ignored {
  }, previous{}, found{};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGCHLD, &ignored, &previous);
  {
    process_backend backend;
    const sandbox_info info = backend.create(request("box"));
    ::sigaction(SIGCHLD, nullptr, &found);
    EXPECT_EQ(found.sa_handler, SIG_IGN);
    const exec_result result = backend.exec("box", {"echo", "hello"}, 10s);
    EXPECT_EQ(result.output, "hello\n");
    EXPECT_EQ(result.exit_code, -1);  // the kernel has thrown it away
    EXPECT_TRUE(backend.destroy("box"));
    EXPECT_TRUE(living_members(group_of(info)).empty());
  }
  ::sigaction(SIGCHLD, &previous, nullptr);
}

TEST(ProcessBackend, RP3_TheDirectoryIsRemovedWithoutFollowingLinks) {
  const watchdog dog("RP3 links");
  scratch outside;
  ::mkdir((outside / "deep").c_str(), 0700);
  std::ofstream(outside / "deep/precious") << "kept";
  process_backend backend;
  const sandbox_info info = backend.create(request("box"));
  const std::string home = directory_of(info);
  ::mkdir((home + "/a").c_str(), 0700);
  ASSERT_EQ(::symlink(outside.path().c_str(), (home + "/link").c_str()), 0);
  ASSERT_EQ(::symlink((outside / "deep").c_str(), (home + "/a/link").c_str()), 0);
  ASSERT_EQ(::symlink("/", (home + "/a/root").c_str()), 0);
  ASSERT_EQ(::symlink(".", (home + "/a/self").c_str()), 0);
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_FALSE(is_directory(home));
  EXPECT_EQ(file_text(outside / "deep/precious"), "kept");
}

TEST(ProcessBackend, RP3_ADirectoryThatWasSwappedForALinkIsNotFollowed) {
  const watchdog dog("RP3 swapped");
  scratch outside;
  std::ofstream(outside / "precious") << "kept";
  process_backend backend;
  const sandbox_info info = backend.create(request("box"));
  ASSERT_EQ(::rmdir(directory_of(info).c_str()), 0);
  ASSERT_EQ(::symlink(outside.path().c_str(), directory_of(info).c_str()), 0);
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_EQ(file_text(outside / "precious"), "kept");
  EXPECT_FALSE(::access(directory_of(info).c_str(), F_OK) == 0);
}

TEST(ProcessBackend, RP3_ConcurrentDestroysOfOneIdAllSayGone) {
  const watchdog dog("RP3 racing destroys");
  basic_process_backend<park_sync> backend;
  const sandbox_info info = backend.create(request("box"));
  park first("process_members.end.asked");
  std::atomic<int> gone{0};
  const auto end = [&] { gone.fetch_add(backend.destroy("box") ? 1 : 0, std::memory_order_relaxed); };
  std::thread a(end);
  ASSERT_TRUE(first.wait_arrived());
  std::thread b(end), c(end);
  EXPECT_EQ(gone.load(std::memory_order_relaxed), 0);
  first.open();
  a.join();
  b.join();
  c.join();
  EXPECT_EQ(gone.load(std::memory_order_relaxed), 3);
  EXPECT_TRUE(living_members(group_of(info)).empty());
  EXPECT_TRUE(children().empty());
}

TEST(ProcessBackend, RP3_ADestroyThatMeetsItsCreateWaitsAndEndsIt) {
  const watchdog dog("RP3 destroy during create");
  basic_process_backend<park_sync> backend;
  park started("process_backend.create.started");
  std::thread creator([&] { backend.create(request("box")); });
  ASSERT_TRUE(started.wait_arrived());
  EXPECT_EQ(backend.probe("box"), liveness::unknown);
  EXPECT_TRUE(backend.list().empty());
  EXPECT_EQ(backend.find("box"), std::nullopt);
  EXPECT_EQ(refused([&] { backend.exec("box", {"true"}, 1s); }).fault(), backend_fault::not_found);
  EXPECT_EQ(refused([&] { backend.create(request("box")); }).fault(), backend_fault::conflict);
  std::thread destroyer([&] { EXPECT_TRUE(backend.destroy("box")); });
  started.open();
  creator.join();
  destroyer.join();
  EXPECT_EQ(backend.probe("box"), liveness::dead);
  EXPECT_TRUE(children().empty());
}

// ---- the directory tree, on its own

TEST(RemoveTree, AnyDepthTakesAFewDescriptors) {
  const watchdog dog("deep tree");
  scratch place;
  const int top = ::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int at = ::dup(top);
  constexpr int depth = 3000;  // the path would be longer than any call takes
  for (int i = 0; i < depth; ++i) {
    ASSERT_EQ(::mkdirat(at, "down", 0700), 0);
    const int file = ::openat(at, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ::close(file);
    const int next = ::openat(at, "down", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ::close(at);
    at = next;
  }
  ::close(at);
  {
    const descriptor_limit tight(static_cast<rlim_t>(open_descriptors()) + 8);
    // A call gives up after a while, which a busy machine may need more than once; what it has removed is gone.
    bool gone = false;
    for (int call = 0; call < 10 && !gone; ++call) gone = curfew::detail::remove_tree(top, "down");
    EXPECT_TRUE(gone);
  }
  ::close(top);
  EXPECT_EQ(names_in(place.path()), std::set<std::string>{"file"});
}

TEST(RemoveTree, NamesThatLookLikeItsOwnAndDirectoriesWithoutAccess) {
  scratch place;
  const std::string t = place / "t";
  for (const char* d : {"", "/~0", "/~0/~0", "/~1", "/~1/x", "/b", "/b/~0", "/b/~0/c", "/b/~1", "/b/~1/d"})
    ASSERT_EQ(::mkdir((t + d).c_str(), 0700), 0) << d;
  std::ofstream(t + "/~2") << "a file of that name";
  std::ofstream(t + "/b/~0/c/file") << "x";
  for (const char* d : {"/b/~0/c", "/b/~0", "/b", ""}) ASSERT_EQ(::chmod((t + d).c_str(), 0), 0);
  EXPECT_TRUE(curfew::detail::remove_tree(AT_FDCWD, t.c_str()));
  EXPECT_FALSE(is_directory(t));
}

TEST(RemoveTree, NothingThereIsSuccessAndAFileIsRemoved) {
  scratch place;
  EXPECT_TRUE(curfew::detail::remove_tree(AT_FDCWD, (place / "nothing").c_str()));
  std::ofstream(place / "file") << "x";
  EXPECT_TRUE(curfew::detail::remove_tree(AT_FDCWD, (place / "file").c_str()));
  EXPECT_TRUE(names_in(place.path()).empty());
}

// ---- RP4: probe and list

TEST(ProcessBackend, RP4_ProbeIsAliveUntilTheLeaderExitsAndReapsItThen) {
  const watchdog dog("RP4 probe");
  process_backend backend;
  const pid_t leader = group_of(backend.create(request("box")));
  EXPECT_EQ(backend.probe("box"), liveness::alive);
  EXPECT_EQ(backend.probe("never-made"), liveness::dead);
  ::kill(leader, SIGKILL);
  ASSERT_TRUE(eventually([&] { return backend.probe("box") == liveness::dead; }));
  EXPECT_FALSE(exists(leader));
  EXPECT_TRUE(children().empty());
  EXPECT_EQ(refused([&] { backend.exec("box", {"true"}, 1s); }).fault(), backend_fault::not_found);
  EXPECT_TRUE(backend.destroy("box"));
}

TEST(ProcessBackend, RP4_ADeadLeaderIsKeptAsLongAsItsGroupLives) {
  const watchdog dog("RP4 pinned");
  process_backend backend(running(shell("sleep 1000 & : > ready; exit 0")));
  const sandbox_info info = backend.create(request("box"));
  ASSERT_TRUE(eventually([&] { return backend.probe("box") == liveness::dead; }));
  const auto members = living_members(group_of(info));
  ASSERT_EQ(members.size(), 1u);
  EXPECT_TRUE(exists(group_of(info))) << "the number could go to somebody else and be signalled by destroy";
  EXPECT_TRUE(backend.list().empty());
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_TRUE(living_members(group_of(info)).empty());
}

TEST(ProcessBackend, RP4_ListHasTheLiveOnesOfThisInstanceSortedById) {
  const watchdog dog("RP4 list");
  process_backend backend, other;
  other.create(request("elsewhere"));
  std::map<std::string, std::string> made;
  for (const char* id : {"m", "b", "z", "a", "B"}) made[id] = backend.create(request(id)).endpoint;
  const auto dead = backend.list().back();
  EXPECT_EQ(dead.id, "z");
  ::kill(group_of(dead), SIGKILL);
  ASSERT_TRUE(eventually([&] { return backend.list().size() == 4; }));
  strings ids;
  for (const sandbox_info& one : backend.list()) {
    ids.push_back(one.id);
    EXPECT_EQ(one.endpoint, made[one.id]);
    EXPECT_EQ(backend.find(one.id)->endpoint, one.endpoint);
  }
  EXPECT_EQ(ids, (strings{"B", "a", "b", "m"}));
  EXPECT_EQ(backend.find("z"), std::nullopt);
  EXPECT_EQ(backend.find("elsewhere"), std::nullopt);
}

// ---- RP5: exec

TEST(ProcessBackend, RP5_ExecJoinsGroupDirectoryAndEnvironment) {
  const watchdog dog("RP5 joins");
  process_backend backend;
  const sandbox_info info = backend.create(request("box", {{"COLOUR", "red"}}));
  const exec_result result = backend.exec(
      "box", shell("cut -d' ' -f5 /proc/self/stat; pwd; echo $COLOUR; echo out; echo err >&2; wc -c"), 10s);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.output, std::to_string(group_of(info)) + "\n" + directory_of(info) + "\nred\nout\nerr\n0\n");
}

TEST(ProcessBackend, RP5_TheExitCodeIsTheCommandsOrSaysTheSignal) {
  const watchdog dog("RP5 codes");
  process_backend backend;
  backend.create(request("box"));
  EXPECT_EQ(backend.exec("box", shell("exit 7"), 10s).exit_code, 7);
  EXPECT_EQ(backend.exec("box", shell("kill -SEGV $$"), 10s).exit_code, 128 + SIGSEGV);
  const exec_result killed = backend.exec("box", shell("kill -KILL $$"), 10s);
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
  EXPECT_FALSE(killed.timed_out);
}

TEST(ProcessBackend, RP5_ReturnsWhenTheCommandExitsAlthoughAGrandchildHoldsThePipe) {
  const watchdog dog("RP5 held pipe");
  process_backend backend;
  const sandbox_info info = backend.create(request("box"));
  const exec_result quiet = backend.exec("box", shell("sleep 1000 & echo hello"), 60s);
  EXPECT_EQ(quiet.output, "hello\n");
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(living_members(group_of(info)).size(), 2u);
  const exec_result loud = backend.exec("box", shell("echo first; yes & exit 3"), 60s);
  EXPECT_EQ(loud.exit_code, 3);
  EXPECT_EQ(loud.output.rfind("first\n", 0), 0u);
  EXPECT_TRUE(backend.destroy("box"));
  EXPECT_TRUE(living_members(group_of(info)).empty());
}

TEST(ProcessBackend, RP5_AllThatWasWrittenBeforeTheExitIsThere) {
  const watchdog dog("RP5 complete");
  process_backend backend;
  backend.create(request("box"));
  for (int round = 0; round < 20; ++round) {
    const exec_result result = backend.exec("box", shell("sleep 1000 & head -c 60000 /dev/zero"), 60s);
    EXPECT_EQ(result.output.size(), 60000u);
  }
}

TEST(BoundedOutput, FinishTakesWhatThePipeHoldsAndNoMore) {
  const watchdog dog("bounded output");
  curfew::detail::owned_fd read_end, write_end;
  ASSERT_TRUE(curfew::detail::make_pipe(read_end, write_end));
  ASSERT_EQ(::write(write_end.get(), "hello", 5), 5);
  EXPECT_EQ(curfew::detail::bounded_output(std::move(read_end), 100).finish(), "hello");
  // A source that never dries up, as a pipe with a fast enough writer behind it.
  curfew::detail::owned_fd endless(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  curfew::detail::bounded_output output(std::move(endless), 100);
  output.collect();
  EXPECT_EQ(output.finish().size(), 100u);
}

TEST(ProcessBackend, RP5_OutputIsBoundedAndTheWriterIsNotHeldUp) {
  const watchdog dog("RP5 bound");
  process_options options;
  options.max_output = 1000;
  process_backend backend(options);
  backend.create(request("box"));
  const exec_result result = backend.exec("box", shell("echo start; head -c 5000000 /dev/zero; exit 5"), 60s);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.output.size(), 1000u);
  EXPECT_EQ(result.output.rfind("start\n", 0), 0u);
  process_options nothing;
  nothing.max_output = 0;
  process_backend silent(nothing);
  silent.create(request("box"));
  EXPECT_EQ(silent.exec("box", {"echo", "hello"}, 10s).output, "");
}

TEST(ProcessBackend, RP5_TimeoutKillsTheCommandAlone) {
  const watchdog dog("RP5 timeout");
  process_backend backend;
  const sandbox_info info = backend.create(request("box"));
  const exec_result result = backend.exec("box", shell("sleep 1000 & echo $!; exec sleep 1001"), 300ms);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  const pid_t background = std::atoi(result.output.c_str());
  ASSERT_GT(background, 0);
  auto members = living_members(group_of(info));
  std::sort(members.begin(), members.end());
  EXPECT_EQ(members, (std::vector<pid_t>{std::min(group_of(info), background), std::max(group_of(info), background)}));
  EXPECT_EQ(backend.probe("box"), liveness::alive);
}

TEST(ProcessBackend, RP5_ExtremeTimeouts) {
  const watchdog dog("RP5 extreme timeouts");
  process_backend backend;
  backend.create(request("box"));
  EXPECT_TRUE(backend.exec("box", {"sleep", "1000"}, 0ns).timed_out);
  EXPECT_TRUE(backend.exec("box", {"sleep", "1000"}, std::chrono::nanoseconds::min()).timed_out);
  EXPECT_EQ(backend.exec("box", {"true"}, std::chrono::nanoseconds::max()).exit_code, 0);
}

TEST(ProcessBackend, RP5_UnknownIdIsNotFound) {
  process_backend backend;
  for (const char* id : {"never-made", "", "../x", "bad\nid"}) {
    const backend_error error = refused([&] { backend.exec(id, {"true"}, 1s); });
    EXPECT_EQ(error.fault(), backend_fault::not_found);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

TEST(ProcessBackend, RP5_DestroyEndsRunningCommands) {
  const watchdog dog("RP5 destroy");
  process_options options;
  options.stop_grace = 100ms;
  basic_process_backend<park_sync> backend(options);
  const sandbox_info info = backend.create(request("box"));
  // One dies of SIGTERM, one ignores it, one has left the group and even the session.
  const std::vector<std::pair<strings, int>> commands = {
      {{"sleep", "1000"}, 128 + SIGTERM},
      {shell("trap '' TERM; : > deaf; while :; do sleep 1; done"), 128 + SIGKILL},
      {{"setsid", "-w", "sh", "-c", ": > away; exec sleep 1000"}, 128 + SIGTERM},
  };
  park started("process_backend.exec.started", "", 3);
  std::vector<std::thread> threads;
  std::vector<exec_result> results(commands.size());
  for (std::size_t i = 0; i < commands.size(); ++i)
    threads.emplace_back([&, i] { results[i] = backend.exec("box", commands[i].first, 60s); });
  ASSERT_TRUE(started.wait_arrived(3));
  started.open();
  ASSERT_TRUE(marked(info, "deaf") && marked(info, "away"));
  EXPECT_TRUE(backend.destroy("box"));
  for (std::thread& one : threads) one.join();
  for (std::size_t i = 0; i < commands.size(); ++i) EXPECT_EQ(results[i].exit_code, commands[i].second) << i;
  EXPECT_TRUE(living_members(group_of(info)).empty());
  EXPECT_TRUE(children().empty());
}

TEST(ProcessBackend, RP5_ACommandThatMeetsTheEndOfItsSandboxIsEndedOrRefused) {
  const watchdog dog("RP5 exec meets destroy");
  basic_process_backend<park_sync> backend;
  const sandbox_info info = backend.create(request("box"));
  park ending("process_members.end.asked");
  std::thread destroyer([&] { EXPECT_TRUE(backend.destroy("box")); });
  ASSERT_TRUE(ending.wait_arrived());
  EXPECT_EQ(refused([&] { backend.exec("box", {"sleep", "1000"}, 60s); }).fault(), backend_fault::not_found);
  ending.open();
  destroyer.join();
  EXPECT_TRUE(living_members(group_of(info)).empty());
}

TEST(ProcessBackend, RP5_DestroyWaitsForACommandThatIsAboutToJoin) {
  const watchdog dog("RP5 joining");
  basic_process_backend<park_sync> backend;
  backend.create(request("box"));
  exec_result result;
  std::atomic<bool> gone{false};
  std::optional<park> about(std::in_place, "process_forker.spawn.ready");
  std::thread command([&] { result = backend.exec("box", {"sleep", "1000"}, 60s); });
  ASSERT_TRUE(about->wait_arrived());
  std::thread destroyer([&] {
    EXPECT_TRUE(backend.destroy("box"));
    gone.store(true, std::memory_order_seq_cst);
  });
  // It must not get past this command; a wrong one does so at once.
  EXPECT_FALSE(eventually([&] { return gone.load(std::memory_order_seq_cst); }, 200ms));
  about.reset();
  command.join();
  destroyer.join();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_TRUE(children().empty());
}

TEST(ProcessBackend, RP5_ManyCommandsAtOnce) {
  const watchdog dog("RP5 many");
  process_backend backend;
  backend.create(request("box"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        const std::string word = std::to_string(i * 100 + round);
        const exec_result result = backend.exec("box", {"echo", word}, 60s);
        EXPECT_EQ(result.output, word + "\n");
      }
    });
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(children().size(), 1u);
}

TEST(ProcessBackend, RP5_BadCommands) {
  process_backend backend;
  backend.create(request("box"));
  EXPECT_THROW(backend.exec("box", {}, 1s), std::invalid_argument);
  EXPECT_THROW(backend.exec("box", {""}, 1s), std::invalid_argument);
  EXPECT_THROW(backend.exec("box", {"echo", std::string("a\0b", 3)}, 1s), std::invalid_argument);
  EXPECT_EQ(backend.exec("box", {"echo", ""}, 10s).output, "\n");
}

// ---- RP6: the end of the backend and of its host

TEST(ProcessBackend, RP6_TheDestructorEndsAllGroupsAtOnceAndRemovesItsRoot) {
  const watchdog dog("RP6 destructor");
  std::vector<sandbox_info> made;
  constexpr auto grace = 400ms;
  constexpr int boxes = 8;
  std::string root;
  std::chrono::steady_clock::time_point began;
  {
    process_options options = running(shell("trap '' TERM; : > ready; while :; do sleep 100; done"));
    options.stop_grace = grace;
    process_backend backend(options);
    for (int i = 0; i < boxes; ++i) made.push_back(backend.create(request("box" + std::to_string(i))));
    for (const sandbox_info& one : made) ASSERT_TRUE(marked(one));
    root = directory_of(made[0]).substr(0, directory_of(made[0]).rfind('/'));
    ASSERT_TRUE(is_directory(root));
    began = std::chrono::steady_clock::now();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, boxes * grace) << "one after the other";
  for (const sandbox_info& one : made) EXPECT_TRUE(living_members(group_of(one)).empty());
  EXPECT_TRUE(children().empty());
  EXPECT_FALSE(is_directory(root));
}

TEST(ProcessBackend, RP6_ANamedRootGoesOnlyWhenMadeHereAndEmpty) {
  const watchdog dog("RP6 root");
  scratch place;
  process_options options;
  options.root = place / "made";
  {
    process_backend backend(options);
    backend.create(request("box"));
  }
  EXPECT_FALSE(is_directory(place / "made"));
  ::mkdir((place / "made").c_str(), 0700);
  {
    process_backend backend(options);
    backend.create(request("box"));
  }
  EXPECT_TRUE(is_directory(place / "made"));
  EXPECT_TRUE(names_in(place / "made").empty());
  ::rmdir((place / "made").c_str());
  {
    process_backend backend(options);
    backend.create(request("box"));
    std::ofstream(place / "made/of-somebody-else") << "x";
  }
  EXPECT_TRUE(::access((place / "made/of-somebody-else").c_str(), F_OK) == 0);
}

TEST(ProcessBackend, RP6_NothingIsMadeBeforeTheFirstCreate) {
  const std::size_t descriptors = open_descriptors();
  const auto threads = names_in("/proc/self/task").size();
  process_backend backend;
  EXPECT_TRUE(backend.destroy("x"));
  EXPECT_TRUE(backend.list().empty());
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(names_in("/proc/self/task").size(), threads);
}

TEST(ProcessBackend, RP6_InAForkedChildTheDestructorDoesNothingAndTheMembersRefuse) {
  const watchdog dog("RP6 fork");
  auto backend = std::make_unique<process_backend>();
  const sandbox_info info = backend->create(request("box"));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    int wrong = 0;
    if (backend->destroy("box")) wrong |= 1;
    if (backend->probe("box") != liveness::unknown) wrong |= 2;
    try {
      backend->create(request("other"));
      wrong |= 4;
    } catch (const backend_error&) {
    }
    try {
      backend->list();
      wrong |= 8;
    } catch (const backend_error&) {
    }
    backend.reset();
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(living_members(group_of(info)), std::vector<pid_t>{group_of(info)});
  EXPECT_TRUE(is_directory(directory_of(info)));
  EXPECT_EQ(backend->probe("box"), liveness::alive);
  EXPECT_TRUE(backend->destroy("box"));
}

TEST(ProcessBackend, RP6_ASandboxOutlivesTheThreadThatCreatedIt) {
  const watchdog dog("RP6 creating thread");
  process_backend backend;
  sandbox_info info;
  std::thread([&] { info = backend.create(request("box")); }).join();
  EXPECT_EQ(backend.exec("box", {"true"}, 10s).exit_code, 0);  // ample time for a death signal to arrive
  EXPECT_EQ(living_members(group_of(info)), std::vector<pid_t>{group_of(info)});
}

void host_until_killed(const std::string& root) {
  process_options options;
  options.root = root;
  process_backend backend(options);
  for (const char* id : {"one", "two", "three"}) {
    const sandbox_info info = backend.create(request(id));
    std::printf("%d\n", group_of(info));
  }
  std::fflush(stdout);
  std::thread command([&] { backend.exec("two", shell(": > running; exec sleep 1000"), 1000s); });
  for (;;) ::pause();
}
const child_role host_role("host", host_until_killed);

TEST(ProcessBackend, RP6_AKilledHostTakesItsLeadersAlongAndASecondLifeStartsClean) {
  const watchdog dog("RP6 killed host");
  scratch place;
  child_program host("host", place.path());
  std::vector<pid_t> groups;
  for (int i = 0; i < 3; ++i) groups.push_back(std::atoi(host.line().c_str()));
  for (const pid_t one : groups) ASSERT_GT(one, 1);
  ASSERT_TRUE(eventually([&] { return ::access((place / "two/running").c_str(), F_OK) == 0; }));
  EXPECT_EQ(living_members(groups[1]).size(), 2u);
  host.signal(SIGKILL);
  EXPECT_EQ(host.wait(), 128 + SIGKILL);
  for (const pid_t one : groups) EXPECT_TRUE(eventually([&] { return living_members(one).empty(); }));
  EXPECT_EQ(names_in(place.path()).size(), 3u);  // nobody was left to remove them

  process_options options;
  options.root = place.path();
  process_backend backend(options);
  const sandbox_info again = backend.create(request("two"));
  EXPECT_TRUE(names_in(directory_of(again)).empty());
  EXPECT_TRUE(backend.destroy("two"));
}

// ---- bad input

TEST(ProcessBackend, BadOptionsAreRefusedByTheConstructor) {
  const auto refuses = [](const std::function<void(process_options&)>& spoil) {
    process_options options;
    spoil(options);
    EXPECT_THROW(process_backend{options}, std::invalid_argument);
  };
  refuses([](process_options& o) { o.command = {}; });
  refuses([](process_options& o) { o.command = {""}; });
  refuses([](process_options& o) { o.command = {"sh", std::string("a\0b", 3)}; });
  refuses([](process_options& o) { o.stop_grace = -1ns; });
  refuses([](process_options& o) { o.kill_wait = -1s; });
  refuses([](process_options& o) { o.environment["1BAD"] = "x"; });
  refuses([](process_options& o) { o.environment["GOOD"] = std::string("x\0y", 3); });
  refuses([](process_options& o) { o.root = std::string("/tmp/a\0b", 8); });
}

TEST(ProcessBackend, BadIdsNeverReachTheFileSystem) {
  scratch place;
  process_options options;
  options.root = place / "root";
  process_backend backend(options);
  for (const std::string& id :
       {std::string(), std::string("."), std::string(".."), std::string(".hidden"), std::string("a/b"),
        std::string("../escape"), std::string("/etc"), std::string("a:b"), std::string("a\0b", 3), std::string("a\n"),
        std::string("\xc3\xa4"), std::string(129, 'x')}) {
    EXPECT_THROW(backend.create(request(id)), std::invalid_argument) << id;
    EXPECT_FALSE(backend.destroy(id)) << id;
    EXPECT_EQ(backend.probe(id), liveness::unknown) << id;
  }
  EXPECT_TRUE(names_in(place.path()).empty());
  EXPECT_THROW(backend.create(request("box", {{"BAD-NAME", "x"}})), std::invalid_argument);
  EXPECT_THROW(backend.create(request("box", {{"NAME", std::string("\0", 1)}})), std::invalid_argument);
  EXPECT_TRUE(names_in(place.path()).empty());
  EXPECT_NO_THROW(backend.create(request(std::string(128, 'x'))));
}

TEST(ProcessBackend, ARootThatCannotBeMadeIsASpawnFailureThatNamesIt) {
  scratch place;
  std::ofstream(place / "file") << "x";
  process_options options;
  options.root = place / "file";
  process_backend at_file(options);
  EXPECT_EQ(refused([&] { at_file.create(request("box")); }).fault(), backend_fault::spawn_failed);
  options.root = place / "no/such/parent";
  process_backend below_nothing(options);
  const backend_error error = refused([&] { below_nothing.create(request("box")); });
  EXPECT_EQ(error.fault(), backend_fault::spawn_failed);
  EXPECT_NE(std::string(error.what()).find("root"), std::string::npos) << error.what();
  ::mkdir((place / "no").c_str(), 0700);
  ::mkdir((place / "no/such").c_str(), 0700);
  EXPECT_NO_THROW(below_nothing.create(request("box"))) << "a later attempt may succeed";
}

// ---- storm

TEST(ProcessBackend, StormOfCreateExecProbeAndDestroyLeaksNothing) {
  const watchdog dog("storm", 3 * patience);
  const std::size_t descriptors_before = open_descriptors();
  std::string root;
  {
    process_backend backend;
    root = directory_of(backend.create(request("warm-up")));
    root = root.substr(0, root.rfind('/'));
    ASSERT_TRUE(backend.destroy("warm-up"));
    const std::size_t descriptors = open_descriptors();
    const auto deadline = std::chrono::steady_clock::now() + 1500ms;
    std::atomic<unsigned> made{0}, ended{0}, ran{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        unsigned state = t * 7919 + 1;
        const auto draw = [&state](unsigned bound) {
          state = state * 1664525 + 1013904223;
          return (state >> 16) % bound;
        };
        while (std::chrono::steady_clock::now() < deadline) {
          const std::string id = "id" + std::to_string(draw(5));
          try {
            switch (draw(5)) {
              case 0:
              case 1:
                backend.create(request(id));
                made.fetch_add(1, std::memory_order_relaxed);
                break;
              case 2:
                EXPECT_TRUE(backend.destroy(id));
                ended.fetch_add(1, std::memory_order_relaxed);
                break;
              case 3:
                backend.exec(id, shell("sleep 1000 & exit 0"), 60s);
                ran.fetch_add(1, std::memory_order_relaxed);
                break;
              default:
                if (backend.probe(id) == liveness::alive)
                  for (const sandbox_info& one : backend.list())
                    if (one.id == id && draw(3) == 0) ::kill(group_of(one), 0);
            }
          } catch (const backend_error& error) {
            EXPECT_TRUE(error.fault() == backend_fault::conflict || error.fault() == backend_fault::not_found)
                << error.what();
          }
        }
      });
    for (std::thread& one : threads) one.join();
    EXPECT_GT(made.load(std::memory_order_relaxed), 0u);
    EXPECT_GT(ended.load(std::memory_order_relaxed), 0u);
    std::vector<pid_t> groups;
    for (const sandbox_info& one : backend.list()) groups.push_back(group_of(one));
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(backend.destroy("id" + std::to_string(i)));
    for (const pid_t one : groups) EXPECT_TRUE(living_members(one).empty());
    EXPECT_TRUE(children().empty());
    EXPECT_TRUE(names_in(root).empty());
    EXPECT_EQ(open_descriptors(), descriptors);
  }
  EXPECT_FALSE(is_directory(root));
  EXPECT_EQ(open_descriptors(), descriptors_before);
}

const int told = [] {
  child_role::become_if_told();  // after every role above has been registered
  return 0;
}();

}  // namespace
