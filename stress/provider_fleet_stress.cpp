// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A fleet of gateways that share their sandboxes through one redis-server, while they are killed and started again.
/// Each gateway is a process of its own: a lifespan that owns SIGTERM, an aio_provider with its workers, and threads
/// that acquire and release for a few owners. The sandboxes are processes too, and outlive the gateway that made them.
/// Half of the gateways end by SIGTERM, and must do so in order; the others by SIGKILL, whatever they are at.
///
/// An owner is served by one gateway at a time, as behind a router that is sticky: a file lock, which the kernel gives
/// back when its holder is killed. So whoever serves must find the sandbox running from the acquire to the release, and
/// itself in the lease store. At the end one more gateway takes over what the killed ones have left, and shuts down.
/// Then the kernel is asked what runs.
///
///     provider_fleet_stress [--seconds N=1] [--torn]
///
/// With --torn the gateways use a store whose claim looks first and writes later. The program then exits 0 when that
/// was noticed, and 77 when the time was over first.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <curfew/ordered_lifespan.hpp>
#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/redis_lease_store.hpp>

#include "stress/support/stress.hpp"
#include "tests/support/redis_server.hpp"

namespace {

namespace fs = std::filesystem;
namespace sandbox = curfew::sandbox;
using namespace std::chrono_literals;
using sandbox::liveness;
using steady = std::chrono::steady_clock;

constexpr int gateways_at_once = 3;
constexpr int threads_each = 3;
constexpr unsigned owners = 6;
constexpr auto lease_life = 1200ms;
/// A use that took longer than that proves nothing: the machine may have let the lease lapse.
constexpr auto believable = 800ms;

/// What all processes count on, in a file that all of them map.
struct board {
  std::atomic<std::uint64_t> uses{0}, spawned{0}, conflicts{0}, stalled{0};
  std::atomic<std::uint64_t> lost{0};          // a sandbox was gone while its owner was served
  std::atomic<std::uint64_t> double_owned{0};  // or the store named another gateway
  std::atomic<std::uint64_t> errors{0};
  std::uint64_t wrong() const { return lost.load() + double_owned.load() + errors.load(); }
};

board& map_board(const fs::path& directory, bool make) {
  const int fd = ::open((directory / "board").c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
  if (fd < 0 || (make && ::ftruncate(fd, sizeof(board)) != 0)) throw std::runtime_error("no board");
  void* const memory = ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) throw std::runtime_error("no board");
  return make ? *new (memory) board : *static_cast<board*>(memory);
}

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

class descriptor {
 public:
  explicit descriptor(const fs::path& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~descriptor() { ::close(fd_); }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  bool try_lock() const {
    struct flock lock = whole_file(F_WRLCK);
    return ::fcntl(fd_, F_OFD_SETLK, &lock) == 0;
  }
  bool is_locked() const {
    struct flock lock = whole_file(F_WRLCK);
    return ::fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Sandboxes that all gateways see and none owns: each a sleeping process that holds a lock on its file as long as it
/// lives. The lock is inherited over the exec, so a sandbox is there or not, whenever its maker is killed.
class yard {
 public:
  yard(const fs::path& directory, board& count)
      : boxes_(directory / "boxes"), marker_("curfew-fleet:" + directory.filename().string() + ":"), count_(count) {}

  sandbox::sandbox_info create(const sandbox::create_request& request) {
    const descriptor file(boxes_ / request.id);
    if (!file.try_lock()) throw sandbox::backend_error(sandbox::backend_fault::conflict, "it runs");
    std::string name = marker_ + request.id, time = "86400";
    char* const argv[] = {name.data(), time.data(), nullptr};
    char* const environment[] = {nullptr};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, file.get(), 200);
    pid_t pid = 0;
    const int error = ::posix_spawn(&pid, "/bin/sleep", &actions, &attributes, argv, environment);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (error != 0) throw sandbox::backend_error(sandbox::backend_fault::spawn_failed, std::strerror(error));
    ++count_.spawned;
    return {request.id, std::to_string(pid)};
  }

  bool destroy(const std::string& id) {
    if (probe(id) == liveness::dead) return true;
    // Looked for again and again: its maker may hold the lock already, and not have started it yet.
    for (const auto until = steady::now() + 2s; steady::now() < until; std::this_thread::sleep_for(500us)) {
      for (const auto& [pid, name] : listing())
        if (name == marker_ + id) ::kill(pid, SIGKILL);
      if (probe(id) == liveness::dead) return true;
    }
    return false;
  }

  liveness probe(const std::string& id) {
    return descriptor(boxes_ / id).is_locked() ? liveness::alive : liveness::dead;
  }

  std::vector<sandbox::sandbox_info> list() {
    std::vector<sandbox::sandbox_info> running;
    for (const auto& one : fs::directory_iterator(boxes_))
      if (auto info = find(one.path().filename().string())) running.push_back(std::move(*info));
    return running;
  }

  std::optional<sandbox::sandbox_info> find(const std::string& id) {
    if (probe(id) != liveness::alive) return std::nullopt;
    return sandbox::sandbox_info{id, "yard"};
  }

  /// Every sandbox of this fleet that the kernel runs, by its name.
  std::map<pid_t, std::string> listing() const {
    std::map<pid_t, std::string> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      std::ifstream file(entry.path() / "cmdline");
      std::string name;
      if (pid > 0 && std::getline(file, name, '\0') && name.starts_with(marker_)) found.emplace(pid, name);
    }
    return found;
  }

 private:
  const fs::path boxes_;
  const std::string marker_;
  board& count_;
};

/// What a store must not be: between its look and its write somebody else may take the lease.
class torn_store {
 public:
  torn_store(const sandbox::redis_options& options, bool torn) : real_(options), torn_(torn) {}

  bool take(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    return real_.take(id, who, ttl);
  }
  bool claim(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl, bool destroying) {
    if (!torn_) return real_.claim(id, who, ttl, destroying);
    const auto held = real_.owner(id);
    if (held && *held != who) return false;
    std::this_thread::sleep_for(4ms);
    return real_.take(id, who, ttl) && real_.claim(id, who, ttl, destroying);
  }
  sandbox::renewal renew(const std::string& id, const std::string& who, std::chrono::nanoseconds ttl) {
    return real_.renew(id, who, ttl);
  }
  void release(const std::string& id, const std::string& who) { real_.release(id, who); }
  std::optional<std::string> owner(const std::string& id) { return real_.owner(id); }

 private:
  sandbox::redis_lease_store real_;
  const bool torn_;
};

using provider = sandbox::aio_provider<yard, torn_store>;

sandbox::aio_options options_of(const std::string& who) {
  sandbox::aio_options options;
  options.replicas = 2;  // fewer than owners: there is always somebody to evict
  options.maintain_interval = 50ms;
  options.renewal_interval = 100ms;
  options.ttl_multiplier = static_cast<unsigned>(lease_life / options.renewal_interval);
  options.orphan_grace = 100ms;
  options.destroy_backoff = 5ms;
  options.owner_id = who;
  return options;
}

// ---- one gateway

class gateway {
 public:
  gateway(int port, const fs::path& directory, bool torn)
      : directory_(directory),
        count_(map_board(directory, false)),
        who_("gateway-" + std::to_string(::getpid())),
        boxes_(std::make_shared<yard>(directory, count_)),
        store_(std::make_shared<torn_store>(sandbox::redis_options{.port = port}, torn)) {}

  int serve() {
    ::signal(SIGCHLD, SIG_IGN);  // its sandboxes are nobody's business when they are gone
    provider subject(boxes_, options_of(who_), store_);
    std::vector<std::jthread> users;
    curfew::ordered_lifespan life;
    life.add("sandboxes").start([&] { subject.start(); }).stop([&] {
      const auto status = subject.shutdown();
      if (status != curfew::teardown_status::completed) throw std::runtime_error("the shutdown has left something");
    });
    life.add("users")
        .after("sandboxes")
        .start([&] {
          for (int i = 0; i < threads_each; ++i)
            users.emplace_back([this, &subject, i](const std::stop_token& t) { use(subject, i, t); });
        })
        .budget(curfew::lifespan_phase::stop, 20s)  // each ends what it is at, on a machine that may be crowded
        .stop([&] {
          for (std::jthread& each : users) each.request_stop();
          users.clear();
        });
    if (life.start()) {
      std::ofstream(directory_ / "ready" / std::to_string(::getpid()));
      life.wait();
    }
    const curfew::lifespan_report& report = life.stop();
    for (const curfew::stage_record& one : report.records)
      if (report.exit_code != 0)
        std::fprintf(stderr, "%s: %s %s: %s after %lld ms\n", who_.c_str(), one.stage.c_str(), to_string(one.phase),
                     to_string(one.outcome), static_cast<long long>(one.took / 1ms));
    if (const auto left = subject.stats(); report.exit_code != 0)
      for (const std::string& id : left.leftover) std::fprintf(stderr, "%s: leaves %s\n", who_.c_str(), id.c_str());
    return report.exit_code;
  }

 private:
  void use(provider& subject, int thread, const std::stop_token& token) {
    stress::rng random(static_cast<std::uint64_t>(::getpid()) * 16 + static_cast<std::uint64_t>(thread));
    while (!token.stop_requested()) {
      const std::string name = "owner" + std::to_string(random.below(owners));
      const descriptor route(directory_ / "routes" / name);
      if (route.try_lock()) {
        serve_one(subject, name, random);
      } else {
        std::this_thread::sleep_for(500us);
      }
    }
  }

  void serve_one(provider& subject, const std::string& name, stress::rng& random) {
    const auto begun = steady::now();
    try {
      const auto held = subject.acquire({"fleet", name});
      for (int look = 0; look < 3; ++look) {
        const bool runs = boxes_->probe(held.id()) == liveness::alive;
        const bool ours = store_->owner(held.id()) == who_;
        if (runs && ours) {
          std::this_thread::sleep_for(std::chrono::milliseconds(random.below(4)));
        } else if (steady::now() - begun > believable) {
          ++count_.stalled;
          break;
        } else {
          ++(runs ? count_.double_owned : count_.lost);
          break;
        }
      }
      ++count_.uses;
    } catch (const sandbox::backend_error& error) {
      if (error.fault() == sandbox::backend_fault::conflict) {
        ++count_.conflicts;  // a peer is ending it; or it was killed while it did, and its mark has to lapse
      } else {
        complain(error.what());
      }
    } catch (const std::exception& error) {
      complain(error.what());
    }
  }

  void complain(const char* what) {
    ++count_.errors;
    std::fprintf(stderr, "%s: %s\n", who_.c_str(), what);
  }

  const fs::path directory_;
  board& count_;
  const std::string who_;
  const std::shared_ptr<yard> boxes_;
  const std::shared_ptr<torn_store> store_;
};

// ---- the fleet

class fleet {
 public:
  fleet(std::chrono::seconds span, bool torn) : span_(span), torn_(torn) {
    std::string name = (fs::temp_directory_path() / "curfew-fleet-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no directory");
    directory_ = name;
    fs::create_directories(directory_ / "boxes");
    fs::create_directories(directory_ / "routes");
    fs::create_directories(directory_ / "ready");
    count_ = &map_board(directory_, true);
    boxes_ = std::make_shared<yard>(directory_, *count_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // what the killed ones leave is reaped here
  }
  ~fleet() {
    for (const pid_t pid : slots_) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    for (const auto& [pid, box] : boxes_->listing()) ::kill(pid, SIGKILL);
    fs::remove_all(directory_);
  }
  fleet(const fleet&) = delete;
  fleet& operator=(const fleet&) = delete;

  int run() {
    stress::rng random(static_cast<std::uint64_t>(::getpid()));
    const auto until = steady::now() + span_;
    for (pid_t& slot : slots_) slot = launch();
    int killed = 0, terminated = 0;
    while (steady::now() < until && count_->wrong() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30 + random.below(200)));
      pid_t& slot = slots_[random.below(gateways_at_once)];
      const bool hard = random.one_in(2);
      end(slot, hard ? SIGKILL : SIGTERM);
      ++(hard ? killed : terminated);
      slot = launch();
    }
    for (pid_t& slot : slots_) end(slot, SIGTERM);
    take_over();
    reap();
    const auto left = boxes_->listing();
    for (const auto& [pid, name] : left) std::fprintf(stderr, "left running: %d %s\n", pid, name.c_str());
    std::printf(
        "provider_fleet: %d killed, %d terminated, %llu uses, %llu sandboxes made, %llu conflicts, %llu stalled: "
        "left=%zu double_owned=%llu lost=%llu errors=%llu\n",
        killed, terminated, number(count_->uses), number(count_->spawned), number(count_->conflicts),
        number(count_->stalled), left.size(), number(count_->double_owned), number(count_->lost),
        number(count_->errors));
    const bool wrong = count_->wrong() != 0 || !left.empty();
    if (torn_) return wrong ? 0 : 77;
    if (count_->uses.load() == 0) return 77;
    return wrong ? 1 : 0;
  }

 private:
  static unsigned long long number(const std::atomic<std::uint64_t>& n) { return n.load(); }

  pid_t launch() {
    std::vector<std::string> words = {"provider_fleet_stress", "--gateway", std::to_string(store_.port()),
                                      directory_.string(), torn_ ? "1" : "0"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    if (::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv.data(), environ) != 0)
      throw std::runtime_error("no gateway");
    return pid;
  }

  /// All children that have ended: gateways, whose status is kept, and what they left to this process.
  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) ended_[pid] = status;
  }

  void end(pid_t& slot, int signo) {
    reap();
    if (ended_.contains(slot)) complain("a gateway ended by itself", ended_[slot]);
    ::kill(slot, signo);
    for (const auto until = steady::now() + 30s; !ended_.contains(slot); reap()) {
      if (steady::now() > until) {
        complain("a gateway does not end", 0);
        ::kill(slot, SIGKILL);
      }
      std::this_thread::sleep_for(1ms);
    }
    const int status = ended_[slot];
    const bool in_order = signo == SIGTERM && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    // Before its main() has a lifespan, a gateway has the default action, and no sandbox.
    const bool may_die = signo == SIGKILL || !fs::exists(directory_ / "ready" / std::to_string(slot));
    if (!in_order && !(may_die && WIFSIGNALED(status) && WTERMSIG(status) == signo))
      complain("a gateway ended otherwise than it was told", status);
    ended_.erase(slot);
    slot = 0;
  }

  void complain(const char* what, int status) {
    ++count_->errors;
    std::fprintf(stderr, "%s (status %x)\n", what, static_cast<unsigned>(status));
  }

  /// One more gateway, which serves nobody: it adopts what is left, as soon as the leases of the dead have lapsed.
  void take_over() {
    const auto store = std::make_shared<torn_store>(sandbox::redis_options{.port = store_.port()}, false);
    provider last(boxes_, options_of("the last one"), store);
    for (const auto until = steady::now() + 20s; steady::now() < until; std::this_thread::sleep_for(20ms)) {
      static_cast<void>(last.reconcile());
      bool all = true;
      for (const auto& one : boxes_->list()) all = all && store->owner(one.id) == "the last one";
      if (all) break;
    }
    if (last.shutdown() != curfew::teardown_status::completed) complain("the last shutdown has left something", 0);
  }

  const std::chrono::seconds span_;
  const bool torn_;
  curfew_test::redis_server store_;
  fs::path directory_;
  board* count_ = nullptr;
  std::shared_ptr<yard> boxes_;
  pid_t slots_[gateways_at_once] = {};
  std::map<pid_t, int> ended_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 4 && words[0] == "--gateway")
      return gateway(std::atoi(words[1].c_str()), words[2], words[3] == "1").serve();
    std::chrono::seconds span{1};
    bool torn = false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "--torn") torn = true;
      if (words[i] == "--seconds" && i + 1 < words.size()) span = std::chrono::seconds(std::atoi(words[i + 1].c_str()));
    }
    return fleet(span, torn).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "provider_fleet_stress: %s\n", error.what());
    return 1;
  }
}
