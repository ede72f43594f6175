// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// docker_cli_backend against a stand-in for the docker command that is first in PATH, keeps containers as files and
/// logs its argument vectors; and, where an engine runs, what can be asked of it without an image.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/docker_cli_backend.hpp>

#include <tests/support/loopback_server.hpp>
#include <tests/support/park.hpp>
#include <tests/support/scripted_transport.hpp>

namespace {

namespace fs = std::filesystem;
using namespace curfew::sandbox;
using namespace std::chrono_literals;
using curfew_test::eventually;
using curfew_test::http_answer;
using curfew_test::loopback_connection;
using curfew_test::loopback_server;
using curfew_test::park;
using curfew_test::park_access;
using curfew_test::patience;
using curfew_test::scripted_transport;
using curfew_test::skipping_sync;
using curfew_test::watchdog;
using strings = std::vector<std::string>;

static_assert(backend<docker_cli_backend<>>);

/// A clock that skips, and points where a thread can be held.
struct test_sync : skipping_sync {
  static void here(const char* tag) noexcept { park_access::arrive(tag); }
};

using docker = docker_cli_backend<scripted_transport, test_sync>;

struct outcome {
  std::optional<backend_fault> fault;
  std::string leftover, what;
};

outcome outcome_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const backend_error& e) {
    return {e.fault(), e.leftover(), e.what()};
  }
  return {};
}

struct DockerCli : ::testing::Test {
  void SetUp() override {
    char name[] = "/tmp/curfew-docker-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root = name;
    fs::create_directories(root / "script");
    fs::create_directories(root / "containers");
    ASSERT_EQ(::mkfifo((root / "gate").c_str(), 0600), 0);
    ::setenv("STAND_IN_DOCKER", name, 1);
    ::setenv("PATH", (std::string(CURFEW_STAND_IN_DOCKER) + ":" + std::getenv("PATH")).c_str(), 1);
    // What the command must not inherit.
    ::signal(SIGPIPE, SIG_IGN);
    sigset_t term;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &term, nullptr);
    ready();
  }
  void TearDown() override {
    EXPECT_FALSE(fs::exists(root / "badly_started")) << "group, signals or descriptors of the command";
    fs::remove_all(root);
  }

  // The world
  void ready(bool is = true) {
    wire->otherwise([is](const http_request&) { return http_response{is ? 200 : 503, {}, "{}"}; });
  }
  void script(const std::string& verb, int call, const std::string& text) const {
    std::ofstream(root / "script" / (verb + "." + std::to_string(call))) << text;
  }
  void contain(const std::string& name, unsigned port, bool running = true) const {
    std::ofstream(root / "containers" / name) << port << (running ? " 1 0\n" : " 0 0\n");
  }
  bool contains(const std::string& name) const { return fs::exists(root / "containers" / name); }
  std::vector<strings> log() const {
    std::vector<strings> all;
    std::ifstream file(root / "log");
    for (std::string line; std::getline(file, line);) {
      all.emplace_back();
      std::istringstream words(line);
      for (std::string word; std::getline(words, word, '\x1f');) all.back().push_back(word);
    }
    return all;
  }
  strings verbs() const {
    strings all;
    for (const strings& one : log()) all.push_back(one.front());
    return all;
  }
  /// Lets a command that waits at the gate see that \p later has passed, so that its caller looks at the clock.
  void pass_gate(std::chrono::nanoseconds later) const {
    const int gate = ::open((root / "gate").c_str(), O_WRONLY);  // returns when the command is there
    skipping_sync::skip(later);
    EXPECT_EQ(::write(gate, "x", 1), 1);
    ::close(gate);
  }
  strings run_words(unsigned port, const std::string& id = "id1") const {
    return {"run",
            "--security-opt",
            "seccomp=unconfined",
            "--rm",
            "-d",
            "-p",
            "127.0.0.1:" + std::to_string(port) + ":8080",
            "--name",
            "curfew-sandbox-" + id,
            "all-in-one-sandbox:latest"};
  }

  fs::path root;
  std::shared_ptr<scripted_transport> wire = std::make_shared<scripted_transport>();
  // Below the range that the system gives out by itself, and another one for each process.
  const std::uint16_t base = static_cast<std::uint16_t>(10'000 + ::getpid() % 1000 * 20);
  create_request request{"id1", {"u", "t"}, {}, 0s};
};

const strings look = {"inspect", "-f", "{{.State.Running}}", "curfew-sandbox-id1"};

// ---- RD1

TEST_F(DockerCli, RD1_TheArgumentsOfRun) {
  const watchdog dog("RD1");
  docker backend({.port = base}, wire);
  const sandbox_info made = backend.create(request);
  EXPECT_EQ(made.id, "id1");
  EXPECT_EQ(made.endpoint, "http://localhost:" + std::to_string(base));
  EXPECT_EQ(log(), (std::vector<strings>{run_words(base)}));
  EXPECT_EQ(wire->lines(), (strings{"GET http://localhost:" + std::to_string(base) + "/v1/sandbox"}));
}

TEST_F(DockerCli, RD1_EveryOptionAndNoShell) {
  const watchdog dog("RD1 options");
  docker backend({.image = "img:1",
                  .port = base,
                  .prefix = "p.x",
                  .host = "::1",
                  .mounts = {{"/a b/$(x)", "/m"}, {"/c;d", "/n", true}},
                  .environment = {{"A", "options"}, {"B", "b"}},
                  .seccomp_unconfined = false},
                 wire);
  request.environment = {{"A", "it's \"$HOME\" `x` \\ *\n2"}, {"C", ""}};
  EXPECT_EQ(backend.create(request).endpoint, "http://[::1]:" + std::to_string(base));
  std::ifstream file(root / "log");
  std::ostringstream text;
  text << file.rdbuf();
  const strings words = {"run",
                         "--rm",
                         "-d",
                         "-p",
                         "[::1]:" + std::to_string(base) + ":8080",
                         "--name",
                         "p.x-id1",
                         "-e",
                         "A=it's \"$HOME\" `x` \\ *\n2",
                         "-e",
                         "B=b",
                         "-e",
                         "C=",
                         "--mount",
                         "type=bind,src=/a b/$(x),dst=/m",
                         "--mount",
                         "type=bind,src=/c;d,dst=/n,readonly",
                         "img:1"};
  std::string expected;
  for (const std::string& word : words) expected += word + '\x1f';
  EXPECT_EQ(text.str(), expected + "\n") << "the request's variables win, and nothing is interpreted";
}

TEST_F(DockerCli, RD1_WhereThePortIsPublished) {
  const watchdog dog("RD1 bind");
  const auto bound = [&](const std::string& host, const std::string& bind) {
    fs::remove(root / "log");
    fs::remove_all(root / "containers");
    fs::create_directories(root / "containers");
    docker({.port = base, .host = host, .bind = bind}, wire).create(request);
    return log().at(0).at(6);
  };
  const std::string port = ":" + std::to_string(base) + ":8080";
  EXPECT_EQ(bound("localhost", ""), "127.0.0.1" + port);
  EXPECT_EQ(bound("127.0.0.1", ""), "127.0.0.1" + port);
  EXPECT_EQ(bound("::1", ""), "[::1]" + port);
  EXPECT_EQ(bound("[::1]", ""), "[::1]" + port);
  EXPECT_EQ(bound("host.docker.internal", ""), "0.0.0.0" + port);
  EXPECT_EQ(bound("localhost", "10.0.0.1"), "10.0.0.1" + port) << "an address of another host counts as free";
}

// ---- RD2

TEST_F(DockerCli, RD2_TheFirstPortThatCanBeBound) {
  const watchdog dog("RD2");
  loopback_server first(http_answer(200, ""), base), second(http_answer(200, ""), static_cast<std::uint16_t>(base + 1));
  docker({.port = base}, wire).create(request);
  EXPECT_EQ(log(), (std::vector<strings>{run_words(base + 2U)})) << "the taken ones were not even tried";
}

TEST_F(DockerCli, RD2_APortThatTheEngineRefusesIsFollowedByTheNext) {
  const watchdog dog("RD2 next");
  script("run", 1, "err docker: Error: Bind for 127.0.0.1 failed: PORT is already ALLOCATED.\nexit 125\n");
  script("run", 2, "err docker: listen tcp4: bind: Address already in use.\nexit 125\n");
  EXPECT_EQ(docker({.port = base}, wire).create(request).endpoint, "http://localhost:" + std::to_string(base + 2));
  EXPECT_EQ(log(), (std::vector<strings>{run_words(base), run_words(base + 1U), run_words(base + 2U)}));
}

TEST_F(DockerCli, RD2_TenAttemptsInAll) {
  const watchdog dog("RD2 ten");
  for (int i = 1; i <= 11; ++i) script("run", i, "err port is already allocated\nexit 125\n");
  const outcome o = outcome_of([&] { docker({.port = base}, wire).create(request); });
  EXPECT_EQ(o.fault, backend_fault::unavailable);
  EXPECT_EQ(o.leftover, "");
  EXPECT_EQ(verbs(), strings(10, "run"));
}

TEST_F(DockerCli, RD2_TwoCreatesAtOnceDoNotTryOnePort) {
  const watchdog dog("RD2 two");
  docker backend({.port = base}, wire);
  park held("process_command.started", "first");
  sandbox_info one;
  std::thread first([&] {
    const curfew_test::role_scope role("first");
    one = backend.create({"id1", {}, {}, 0s});
  });
  EXPECT_TRUE(held.wait_arrived());
  const sandbox_info two = backend.create({"id2", {}, {}, 0s});
  held.open();
  first.join();
  EXPECT_EQ(one.endpoint, "http://localhost:" + std::to_string(base));
  EXPECT_EQ(two.endpoint, "http://localhost:" + std::to_string(base + 1));
  EXPECT_EQ(verbs(), (strings{"run", "run"})) << "no attempt was wasted";
}

TEST_F(DockerCli, RD2_AClaimedPortIsGivenBack) {
  const watchdog dog("RD2 back");
  docker backend({.port = base}, wire);
  for (int i = 1; i <= 3; ++i) {
    script("run", i, "err no such image\nexit 125\n");
    EXPECT_EQ(outcome_of([&] { backend.create(request); }).fault, backend_fault::rejected);
  }
  EXPECT_EQ(log(), (std::vector<strings>{run_words(base), run_words(base), run_words(base)}));
}

// ---- RD3

TEST_F(DockerCli, RD3_ANameThatIsTakenByOneThatAnswersIsTheResult) {
  const watchdog dog("RD3");
  contain("curfew-sandbox-id1", 4711);
  const sandbox_info made = docker({.port = base}, wire).create(request);
  EXPECT_EQ(made.id, "id1");
  EXPECT_EQ(made.endpoint, "http://localhost:4711");
  EXPECT_EQ(log(), (std::vector<strings>{run_words(base), look, {"port", "curfew-sandbox-id1", "8080"}}));
}

TEST_F(DockerCli, RD3_EitherMessageTells) {
  const watchdog dog("RD3 messages");
  contain("curfew-sandbox-id1", 4711);
  docker backend({.port = base}, wire);
  script("run", 1, "err The name x IS ALREADY IN USE BY CONTAINER y\nexit 125\n");
  EXPECT_EQ(backend.create(request).endpoint, "http://localhost:4711");
  script("run", 2, "err Error: conflict. The container name x\nexit 125\n");
  EXPECT_EQ(backend.create(request).endpoint, "http://localhost:4711");
}

TEST_F(DockerCli, RD3_OtherwiseItIsAConflictAndNothingIsStopped) {
  const watchdog dog("RD3 conflict");
  const auto conflicts = [&](const char* what) {
    docker backend({.port = base}, wire);
    const outcome o = outcome_of([&] { backend.create(request); });
    EXPECT_EQ(o.fault, backend_fault::conflict) << what;
    EXPECT_EQ(o.leftover, "") << what;
    EXPECT_TRUE(contains("curfew-sandbox-id1")) << what;
  };
  contain("curfew-sandbox-id1", 4711, false);
  conflicts("not running");
  contain("curfew-sandbox-id1", 4711);
  ready(false);
  const auto before = skipping_sync::clock::now();
  conflicts("not ready");
  EXPECT_LE(skipping_sync::clock::now() - before, 5s + patience);
  EXPECT_EQ(wire->log().size(), 5U) << "five seconds, once a second";
  ready();
  script("port", 2, "err Error: No public port '8080/tcp' published\nexit 1\n");
  conflicts("port unknown");
  script("port", 3, "out nonsense\nexit 0\n");
  conflicts("port nonsense");
  script("inspect", 5, "err Cannot connect to the Docker daemon\nexit 1\n");
  conflicts("not to be looked at");
  const strings all = verbs();
  EXPECT_EQ(std::count(all.begin(), all.end(), "stop"), 0);
}

// ---- RD4

TEST_F(DockerCli, RD4_OneThatDoesNotBecomeReadyIsStopped) {
  const watchdog dog("RD4");
  ready(false);
  const outcome o = outcome_of([&] { docker({.port = base}, wire).create(request); });
  EXPECT_EQ(o.fault, backend_fault::timed_out);
  EXPECT_EQ(o.leftover, "");
  EXPECT_EQ(verbs(), (strings{"run", "stop", "inspect"}));
  EXPECT_FALSE(contains("curfew-sandbox-id1"));
  EXPECT_GE(wire->log().size(), 50U);
  EXPECT_LE(wire->log().size(), 60U);
  EXPECT_EQ(wire->log()[0].timeout, 5s);
}

TEST_F(DockerCli, RD4_WhenThatStopFailsItIsLeftOver) {
  const watchdog dog("RD4 leftover");
  ready(false);
  script("stop", 1, "err Error response from daemon: permission denied\nexit 1\n");
  const outcome o = outcome_of([&] { docker({.port = base}, wire).create(request); });
  EXPECT_EQ(o.fault, backend_fault::timed_out);
  EXPECT_EQ(o.leftover, "id1");
}

TEST_F(DockerCli, RD4_ItBecomesReadyAfterAWhile) {
  const watchdog dog("RD4 a while");
  wire->lost(false).lost(true).reply(503).lost(true, true).reply(200);
  EXPECT_FALSE(outcome_of([&] { docker({.port = base}, wire).create(request); }).fault);
  EXPECT_EQ(wire->log().size(), 5U);
}

TEST_F(DockerCli, RD4_OverSockets) {
  const watchdog dog("RD4 sockets");
  contain("curfew-sandbox-id1", 0);
  loopback_server sandbox([](loopback_connection& c) {
    c.write(http_answer(c.request().starts_with("GET /v1/sandbox ") ? 200 : 404, ""));
  });
  contain("curfew-sandbox-id1", sandbox.port());
  docker_cli_backend<> backend;
  const auto found = backend.find("id1");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->endpoint, "http://localhost:" + std::to_string(sandbox.port()));
}

// ---- create: other ends of run

TEST_F(DockerCli, ARefusalOfTheEngineNamesNoValue) {
  const watchdog dog("refusal");
  request.environment = {{"TOKEN", "s3cret"}};
  docker backend({.port = base, .environment = {{"KEY", "hunter2"}}}, wire);
  script("run", 1, "err docker: invalid argument \"TOKEN=s3cret\" and KEY=hunter2 hunter2: no such image\nexit 125\n");
  const outcome o = outcome_of([&] { backend.create(request); });
  EXPECT_EQ(o.fault, backend_fault::rejected);
  EXPECT_EQ(o.leftover, "");
  EXPECT_NE(o.what.find("no such image"), std::string::npos) << o.what;
  EXPECT_EQ(o.what.find("s3cret"), std::string::npos) << o.what;
  EXPECT_EQ(o.what.find("hunter2"), std::string::npos) << o.what;
}

TEST_F(DockerCli, WithoutAnEngineOrACommand) {
  const watchdog dog("no engine");
  docker backend({.port = base}, wire);
  script("run", 1,
         "err docker: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\nexit 125\n");
  const outcome o = outcome_of([&] { backend.create(request); });
  EXPECT_EQ(o.fault, backend_fault::unavailable);
  EXPECT_EQ(o.leftover, "");
  docker none({.port = base, .runtime = "no-such-command-anywhere"}, wire);
  EXPECT_EQ(outcome_of([&] { none.create(request); }).fault, backend_fault::spawn_failed);
  EXPECT_EQ(outcome_of([&] { none.list(); }).fault, backend_fault::spawn_failed);
  EXPECT_EQ(outcome_of([&] { none.find("id1"); }).fault, backend_fault::spawn_failed);
  EXPECT_FALSE(none.destroy("id1"));
  EXPECT_EQ(none.probe("id1"), liveness::unknown);
}

TEST_F(DockerCli, ARunThatIsCutShortIsUndone) {
  const watchdog dog("cut short");
  contain("curfew-sandbox-id1", 1);
  script("run", 1, "signal 9\n");
  docker backend({.port = base}, wire);
  outcome o = outcome_of([&] { backend.create(request); });
  EXPECT_EQ(o.fault, backend_fault::unavailable);
  EXPECT_EQ(o.leftover, "");
  EXPECT_FALSE(contains("curfew-sandbox-id1"));

  contain("curfew-sandbox-id1", 1);
  script("run", 2, "gate\n");
  script("stop", 2, "err denied\nexit 1\n");
  std::thread later([&] { pass_gate(10min); });
  o = outcome_of([&] { backend.create(request); });
  later.join();
  EXPECT_EQ(o.fault, backend_fault::timed_out);
  EXPECT_EQ(o.leftover, "id1");
}

// ---- RD5

TEST_F(DockerCli, RD5_DestroyWaitsUntilTheNameIsGone) {
  const watchdog dog("RD5");
  docker backend({}, wire);
  contain("curfew-sandbox-id1", 1);
  EXPECT_TRUE(backend.destroy("id1"));
  EXPECT_EQ(log(), (std::vector<strings>{{"stop", "curfew-sandbox-id1"}, look}));
  contain("curfew-sandbox-id1", 1);
  script("stop", 2, "remove_after 3\n");
  EXPECT_TRUE(backend.destroy("id1"));
  EXPECT_FALSE(contains("curfew-sandbox-id1"));
}

TEST_F(DockerCli, RD5_OneThatIsGoneAlready) {
  const watchdog dog("RD5 gone");
  docker backend({}, wire);
  EXPECT_TRUE(backend.destroy("id1"));
  EXPECT_TRUE(backend.destroy("id1"));
  EXPECT_EQ(verbs(), (strings{"stop", "stop"}));
}

TEST_F(DockerCli, RD5_AnythingElseIsNoEnd) {
  const watchdog dog("RD5 failures");
  docker backend({}, wire);
  contain("curfew-sandbox-id1", 1);
  script("stop", 1, "err Cannot connect to the Docker daemon. Is the docker daemon running?\nexit 1\n");
  EXPECT_FALSE(backend.destroy("id1"));
  script("stop", 2, "err permission denied: container not found in cache\nexit 1\n");
  EXPECT_FALSE(backend.destroy("id1"));
  script("stop", 3, "remove_after 1000\n");
  EXPECT_FALSE(backend.destroy("id1")) << "it is still there after ten seconds";
  script("stop", 4, "signal 9\n");
  EXPECT_FALSE(backend.destroy("id1"));
}

TEST_F(DockerCli, RD5_TheCapIsNoEnd) {
  const watchdog dog("RD5 cap");
  docker backend({}, wire);
  contain("curfew-sandbox-id1", 1);
  script("stop", 1, "gate\n");
  std::thread later([&] { pass_gate(120s); });
  EXPECT_FALSE(backend.destroy("id1"));
  later.join();
  EXPECT_EQ(verbs(), (strings{"stop"}));
}

// ---- RD6

TEST_F(DockerCli, RD6_Probe) {
  const watchdog dog("RD6");
  docker backend({}, wire);
  EXPECT_EQ(backend.probe("id1"), liveness::dead) << "no such object";
  EXPECT_EQ(log(), (std::vector<strings>{look}));
  contain("curfew-sandbox-id1", 1);
  EXPECT_EQ(backend.probe("id1"), liveness::alive);
  contain("curfew-sandbox-id1", 1, false);
  EXPECT_EQ(backend.probe("id1"), liveness::dead);
  int call = 3;
  const auto says = [&](const std::string& text) {
    script("inspect", ++call, text);
    return backend.probe("id1");
  };
  EXPECT_EQ(says("err Error response from daemon: NO SUCH CONTAINER: x\nexit 1\n"), liveness::dead);
  EXPECT_EQ(says("err Error: network not found\nexit 1\n"), liveness::unknown) << "not found is not enough";
  EXPECT_EQ(says("err Cannot connect to the Docker daemon\nexit 1\n"), liveness::unknown);
  EXPECT_EQ(says("out maybe\nexit 0\n"), liveness::unknown);
  EXPECT_EQ(says("exit 0\n"), liveness::unknown);
  EXPECT_EQ(says("out true\nexit 1\n"), liveness::unknown);
  EXPECT_EQ(says("err WARNING: No such container is old\nout true\nexit 0\n"), liveness::alive) << "stdout counts";
  EXPECT_EQ(says("signal 9\n"), liveness::unknown);
}

TEST_F(DockerCli, RD6_AProbeThatHangsIsUnknown) {
  const watchdog dog("RD6 hang");
  docker backend({}, wire);
  script("inspect", 1, "out true\ngate\n");
  std::thread later([&] { pass_gate(5s); });
  EXPECT_EQ(backend.probe("id1"), liveness::unknown);
  later.join();
}

TEST_F(DockerCli, RD6_ThePortIsTheNumberAfterTheLastColon) {
  const watchdog dog("RD6 port");
  docker backend({}, wire);
  contain("curfew-sandbox-id1", 1);
  int call = 0;
  const auto endpoint = [&](const std::string& text) {
    script("port", ++call, text);
    const auto found = backend.find("id1");
    return found ? found->endpoint : "";
  };
  EXPECT_EQ(endpoint("out 0.0.0.0:4711\nexit 0\n"), "http://localhost:4711");
  EXPECT_EQ(endpoint("out 0.0.0.0:4711\nout [::]:4712\nexit 0\n"), "http://localhost:4712");
  for (const char* bad : {"0.0.0.0:0", "0.0.0.0:65536", "0.0.0.0:", ":-1", "0.0.0.0:80x", ""})
    EXPECT_EQ(endpoint(std::string("out ") + bad + "\nexit 0\n"), "") << bad;
  EXPECT_EQ(endpoint("out 0.0.0.0:4711\nexit 1\n"), "");
}

// ---- RD7

TEST_F(DockerCli, RD7_ListFiltersByTheExactPrefix) {
  const watchdog dog("RD7");
  docker backend({}, wire);
  contain("curfew-sandbox-a", 4711);
  contain("curfew-sandbox-b", 4712);
  contain("curfew-sandbox-stopped", 4713, false);
  contain("my-curfew-sandbox-c", 4714);
  contain("other", 4715);
  auto all = backend.list();
  std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.id < y.id; });
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].id, "a");
  EXPECT_EQ(all[0].endpoint, "http://localhost:4711");
  EXPECT_EQ(all[1].id, "b");
  EXPECT_EQ(log(),
            (std::vector<strings>{{"ps", "--filter", "name=curfew-sandbox-", "--format", "{{.Names}}\t{{.Ports}}"}}));
}

TEST_F(DockerCli, RD7_LinesThatCannotBeReadAreSkipped) {
  const watchdog dog("RD7 lines");
  docker backend({}, wire);
  script("ps", 1,
         "out curfew-sandbox-a\t0.0.0.0:1->9000/tcp\nout curfew-sandbox-b\t\nout curfew-sandbox-c\nout \n"
         "out curfew-sandbox-\t:1->8080/tcp\nout curfew-sandbox-x y\t:1->8080/tcp\n"
         "out curfew-sandbox-d\t0.0.0.0:7->22/tcp, [::]:8->8080/tcp\nexit 0\n");
  const auto all = backend.list();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].id, "d");
  EXPECT_EQ(all[0].endpoint, "http://localhost:8");
}

TEST_F(DockerCli, RD7_AFailureThrows) {
  const watchdog dog("RD7 failure");
  docker backend({}, wire);
  script("ps", 1, "out curfew-sandbox-a\t:1->8080/tcp\nerr Cannot connect to the Docker daemon\nexit 1\n");
  EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::unavailable);
  script("ps", 2, "gate\n");
  std::thread later([&] { pass_gate(10s); });
  EXPECT_EQ(outcome_of([&] { backend.list(); }).fault, backend_fault::timed_out);
  later.join();
}

// ---- bad input, and what is left over

TEST_F(DockerCli, BadInput) {
  docker backend({.port = base}, wire);
  for (const std::string& bad : {std::string(), std::string("a:b"), std::string("a/b"), std::string(".a"),
                                 std::string("a b"), std::string(129, 'a'), std::string("a\0b", 3)}) {
    request.id = bad;
    EXPECT_THROW(backend.create(request), std::invalid_argument);
    EXPECT_FALSE(backend.destroy(bad));
    EXPECT_EQ(backend.probe(bad), liveness::unknown);
    EXPECT_FALSE(backend.find(bad));
  }
  request.id = "id1";
  request.environment = {{"A-B", "x"}};
  EXPECT_THROW(backend.create(request), std::invalid_argument);
  request.environment = {{"A", std::string("x\0y", 3)}};
  EXPECT_THROW(backend.create(request), std::invalid_argument);
  const auto refused = [&](docker_options o) { EXPECT_THROW(docker(std::move(o), wire), std::invalid_argument); };
  refused({.image = ""});
  refused({.image = "--privileged"});
  refused({.image = "a b"});
  refused({.port = 0});
  refused({.prefix = ""});
  refused({.prefix = "-x"});
  refused({.prefix = "a/b"});
  refused({.host = ""});
  refused({.host = "h/../"});
  refused({.bind = "127.0.0.1:1 -v /:/x"});
  refused({.mounts = {{"relative", "/m"}}});
  refused({.mounts = {{"/a,readonly=false", "/m"}}});
  refused({.mounts = {{"/a", "/m\"x"}}});
  refused({.environment = {{"1", "x"}}});
  refused({.runtime = ""});
  EXPECT_TRUE(log().empty()) << "nothing was run";
}

TEST_F(DockerCli, NoDescriptorAndNoChildIsLeftOver) {
  const watchdog dog("leak");
  const auto open_now = [] {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) != -1;
    return count;
  };
  docker backend({.port = base}, wire);
  backend.probe("id1");
  const int before = open_now();
  for (int i = 0; i < 5; ++i) {
    backend.create(request);
    EXPECT_TRUE(backend.destroy("id1"));
  }
  EXPECT_EQ(open_now(), before);
  siginfo_t info{};
  EXPECT_EQ(::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT), -1) << "a zombie";
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(DockerCli, UnderAProvider) {
  const watchdog dog("under a provider");
  aio_provider<docker> provider(std::make_shared<docker>(docker_options{.port = base}, wire));
  const std::string first = provider.acquire({"u", "t"}).id();  // and released: parked
  EXPECT_TRUE(contains("curfew-sandbox-" + first));
  EXPECT_EQ(provider.acquire({"u", "t"}).id(), first) << "reclaimed";
  {
    aio_provider<docker> successor(std::make_shared<docker>(docker_options{.port = base}, wire));
    EXPECT_EQ(successor.acquire({"u", "t"}).id(), first) << "found by another process's provider";
    EXPECT_EQ(successor.stats().adopted, 1U);
  }
  EXPECT_FALSE(contains("curfew-sandbox-" + first)) << "that one's shutdown ended it";
  const lease again = provider.acquire({"u", "t"});
  EXPECT_EQ(provider.stats().replaced, 1U) << "a dead one is replaced";
  EXPECT_EQ(provider.shutdown(), curfew::teardown_status::completed);
  EXPECT_FALSE(contains("curfew-sandbox-" + first));
}

// ---- an engine, where there is one

TEST(DockerEngine, WhatNeedsNoImage) {
  const watchdog dog("engine");
  if (std::system("timeout 10 docker version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no docker engine runs here";
  docker_cli_backend<> backend({.prefix = "curfew-test-" + std::to_string(::getpid())});
  EXPECT_EQ(backend.probe("none"), liveness::dead);
  EXPECT_TRUE(backend.destroy("none"));
  EXPECT_FALSE(backend.find("none"));
  EXPECT_TRUE(backend.list().empty());
}

}  // namespace
