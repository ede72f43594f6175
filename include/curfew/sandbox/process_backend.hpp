// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// A sandbox backend without any server: a sandbox is a child process that leads a process group of its own, with a
/// private directory and a small environment. Good for tests, tools and embedded use; it keeps order, it does not keep
/// secrets: the programs run as the user of the host and see the same files. Where they must not be trusted, use a
/// container backend. Tested on Linux; elsewhere on POSIX it works without the guard against a killed host.

#ifndef CURFEW_SANDBOX_PROCESS_BACKEND_HPP
#define CURFEW_SANDBOX_PROCESS_BACKEND_HPP

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/directory_tree.hpp>
#include <curfew/detail/process_forker.hpp>
#include <curfew/detail/process_group.hpp>
#include <curfew/detail/process_spawn.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/sandbox/backend.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Resource limits of every program of a sandbox, soft and hard alike; never above the host's own hard limits. Core
/// dumps are always off. `processes` counts all processes of the user, as the kernel does.
struct process_limits {
  std::optional<std::uint64_t> cpu_seconds, address_space, processes;
  std::uint64_t open_files = 256;
  std::uint64_t file_size = std::uint64_t{1} << 30;
};

struct process_options {
  std::vector<std::string> command = {"/bin/sh", "-c", "exec sleep 2147483647"};  ///< the program that leads the group
  std::string root;  ///< where the directories are made; empty: ${TMPDIR:-/tmp}/curfew-<uid>-<pid>-<random>
  std::map<std::string, std::string> environment;
  process_limits limits;
  std::chrono::nanoseconds stop_grace = std::chrono::seconds(2);  ///< from SIGTERM to SIGKILL
  std::chrono::nanoseconds kill_wait = std::chrono::seconds(1);   ///< from SIGKILL to giving up
  std::size_t max_output = std::size_t{1} << 20;                  ///< of what one exec() writes; the rest is dropped
};

/// How a command ended: its exit status, or 128 + n when it died of signal n. `output` is its stdout and stderr.
struct exec_result {
  int exit_code = 0;
  bool timed_out = false;
  std::string output;
};

/// Child processes as sandboxes.
///
/// Thread safety: every member may be called from many threads at once, also for one id. The destructor may not.
/// Locks: none is held while anything waits, except that `create` and `destroy` of one id exclude each other.
/// Exceptions: std::invalid_argument for input that cannot be meant, backend_error for what the system refuses.
/// Fork: in a child forked by the host the members refuse, and the destructor does nothing.
/// Cost: a process and two descriptors for each sandbox; one thread in all, started by the first `create`.
///
/// The states of an id, each entered with the `turn` of its box held:
///   (absent) -> starting   create: the id is taken
///   starting -> running    create: directory claimed, group formed, exec confirmed
///   running  -> ending     destroy: no further command joins; SIGTERM, wait, SIGKILL, wait
///   ending   -> (absent)   destroy: no member but zombies; leader reaped, directory removed. Otherwise it stays
///   `ending`
/// A leader is reaped only once its group is known to be empty: until then its zombie keeps the number that signals go
/// to from becoming somebody else's.
template <class Sync = std_sync>
class basic_process_backend {
 public:
  /// Makes nothing yet. Throws std::invalid_argument for an empty command, a negative wait, a bad variable or a NUL.
  explicit basic_process_backend(process_options options = {})
      : all_(std::make_unique<everything>(checked(std::move(options)))) {}

  basic_process_backend(const basic_process_backend&) = delete;
  basic_process_backend& operator=(const basic_process_backend&) = delete;

  /// Ends what is left, all groups at once, within the two waits, and removes the root if this object made it. No other
  /// member may be running.
  ~basic_process_backend() {
    if (!at_home()) {
      static_cast<void>(all_.release());  // what it locks and waits on belongs to threads that do not exist here
      return;
    }
    bool clean = false;
    try {
      std::vector<std::shared_ptr<box>> left;
      for (const auto& [id, it] : all_->boxes) left.push_back(it);
      clean = end(left);
    } catch (const std::bad_alloc&) {  // the forker's end still takes the leaders along
    }
    if (!all_->made_root) return;
    if (all_->private_root && clean)
      detail::remove_tree(AT_FDCWD, all_->options.root.c_str());
    else
      ::rmdir(all_->options.root.c_str());  // a named root may hold what others have put there
  }

  /// Starts the leader of a new group in a directory of its own. When it returns, the exec has succeeded and the group
  /// exists. Throws backend_error: `conflict` when the id runs already, here or in another process with the same root;
  /// `spawn_failed`, naming the call and the reason, when the system refuses. Then nothing is left behind.
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument("process_backend: bad sandbox id \"" + printable(request.id) + "\"");
    detail::check_environment(request.environment, "process_backend");
    require_home();
    const auto fresh = std::make_shared<box>(request.id);
    const std::unique_lock turn(fresh->turn);
    enroll(fresh);
    try {
      launch(*fresh, request.environment);
    } catch (...) {
      const std::lock_guard lock(all_->mutex);
      all_->boxes.erase(request.id);
      throw;
    }
    return fresh->info;
  }

  /// True when no member of the group but zombies is left; also for an id that is unknown here.
  bool destroy(const std::string& id) {
    if (!is_id(id) || !at_home()) return false;
    const std::shared_ptr<box> found = find_box(id);
    if (!found) return true;
    const std::unique_lock turn(found->turn);
    if (find_box(id) != found) return true;  // another destroy has ended it, or its create has failed
    return end({found});
  }

  /// Alive until the leader exits. `unknown` while the id is being created, and for what can be no id.
  liveness probe(const std::string& id) {
    if (!is_id(id) || !at_home()) return liveness::unknown;
    const std::shared_ptr<box> found = find_box(id);
    if (!found) return liveness::dead;
    {
      const std::lock_guard lock(all_->mutex);
      if (found->at == stage::starting) return liveness::unknown;
      if (!found->leader.exited()) return liveness::alive;
    }
    const std::unique_lock turn(found->turn, std::try_to_lock);  // not had: its destroy runs and reaps
    if (turn.owns_lock()) reap_if_empty(*found);
    return liveness::dead;
  }

  /// The sandboxes of this object whose leader runs, sorted by id.
  std::vector<sandbox_info> list() {
    require_home();
    std::vector<sandbox_info> result;
    const std::lock_guard lock(all_->mutex);
    for (const auto& [id, it] : all_->boxes)
      if (it->at != stage::starting && !it->leader.exited()) result.push_back(it->info);
    return result;
  }

  /// The sandbox made for this request, if its leader runs.
  std::optional<sandbox_info> find(const std::string& request_id) {
    require_home();
    const std::lock_guard lock(all_->mutex);
    const auto it = all_->boxes.find(request_id);
    if (it == all_->boxes.end() || it->second->at == stage::starting || it->second->leader.exited()) return {};
    return it->second->info;
  }

  /// Runs a command inside a sandbox: in its group, directory, environment and limits, with nothing on stdin. Returns
  /// when the command itself has exited, with what was written by then, also when something it left behind holds on to
  /// the pipe. At \p timeout the command, and it alone, is killed. `destroy` ends it like every member of the group.
  /// Throws std::invalid_argument for an empty command or a NUL, and backend_error: `not_found` when no such sandbox
  /// runs, `spawn_failed`, or `timed_out` for a command that did not end within `kill_wait` of being killed.
  exec_result exec(const std::string& id, const std::vector<std::string>& argv, std::chrono::nanoseconds timeout) {
    check_command(argv);
    require_home();
    std::list<detail::child_process> entry(1);  // made first: nothing may throw between the fork and the box's list
    const auto command = entry.begin();
    const std::shared_ptr<box> where = find_box(id);
    {
      const std::lock_guard lock(all_->mutex);
      if (!where || where->at != stage::running || where->leader.exited())
        throw backend_error(backend_fault::not_found, "process_backend: no running sandbox \"" + printable(id) + "\"");
      ++where->joining;
    }
    const auto join = [&] {
      const std::lock_guard lock(all_->mutex);
      if (command->pid() > 0) where->commands.splice(where->commands.end(), entry);
      --where->joining;
      all_->settled.notify_all();
    };
    detail::owned_fd output, write_end;
    try {
      if (!detail::make_pipe(output, write_end)) refuse("pipe", errno, id);
      ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
      *command = spawn(argv, *where, where->leader.pid(), write_end.get());
    } catch (...) {
      join();
      throw;
    }
    join();
    write_end.reset();
    Sync::here("process_backend.exec.started");
    try {
      return follow(*where, command, output.get(), timeout);
    } catch (...) {  // it stays in the list: destroy() waits for its end and reaps it
      const std::lock_guard lock(all_->mutex);
      command->signal(SIGKILL);
      throw;
    }
  }

 private:
  using time_point = typename Sync::clock::time_point;
  using nanoseconds = std::chrono::nanoseconds;

  enum class stage : unsigned char { starting, running, ending };

  struct box {
    explicit box(std::string id) { info.id = std::move(id); }

    typename Sync::mutex turn;  // create and destroy of this id, one at a time; taken before the object's mutex
    // Written by create before anybody else can use them:
    sandbox_info info;
    std::map<std::string, std::string> environment;
    detail::owned_fd home;  // the directory, under its lock
    // Under the object's mutex:
    stage at = stage::starting;
    bool empty = false;    // the group has no living member and never will: its number is not ours any more
    unsigned joining = 0;  // commands between the check that the sandbox runs and their entry in the list
    detail::child_process leader;
    std::list<detail::child_process> commands;

    bool all_exited() const noexcept {
      return leader.exited() && std::all_of(commands.begin(), commands.end(), [](auto& one) { return one.exited(); });
    }
    void signal(int signo) const noexcept {
      if (leader.pid() > 0 && !empty) ::kill(-leader.pid(), signo);
      for (const auto& one : commands) one.signal(signo);  // also one that has left the group
    }
  };

  struct everything {
    explicit everything(process_options o) : options(std::move(o)) {
      const auto variable = [](const char* name, const char* otherwise) {
        const char* const value = std::getenv(name);
        return std::string(value != nullptr && *value != '\0' ? value : otherwise);
      };
      path = variable("PATH", "/usr/local/bin:/usr/bin:/bin");
      std::string& root_path = options.root;
      private_root = root_path.empty();
      if (private_root)
        root_path =
            variable("TMPDIR", "/tmp") + "/curfew-" + std::to_string(::getuid()) + "-" + std::to_string(host) + "-";
      if (root_path.front() == '/') return;
      std::array<char, 4096> here{};
      if (::getcwd(here.data(), here.size()) == nullptr)
        throw std::invalid_argument("process_backend: relative root without a working directory: " + root_path);
      root_path = std::string(here.data()) + "/" + root_path;
    }

    const pid_t host = ::getpid();
    process_options options;
    std::string path;  // the environment is read once: a later getenv() could race with a setenv()
    typename Sync::mutex mutex;
    typename Sync::condition_variable settled;  // some box's `joining` went down
    std::map<std::string, std::shared_ptr<box>> boxes;
    detail::owned_fd root, null;  // set once under the mutex, by the first create
    bool private_root = false, made_root = false;
    detail::process_forker<Sync> forker;
  };

  static bool is_id(const std::string& id) noexcept { return detail::is_sandbox_id(id, detail::colon::refused); }

  static std::string printable(std::string text) {
    if (text.size() > 128) text.resize(128);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
  }

  static void check_command(const std::vector<std::string>& argv) {
    if (argv.empty() || argv.front().empty()) throw std::invalid_argument("process_backend: empty command");
    for (const std::string& word : argv)
      if (word.find('\0') != std::string::npos)
        throw std::invalid_argument("process_backend: NUL in an argument of " + printable(argv.front()));
  }

  static process_options checked(process_options options) {
    check_command(options.command);
    detail::check_environment(options.environment, "process_backend");
    if (options.stop_grace < nanoseconds::zero() || options.kill_wait < nanoseconds::zero())
      throw std::invalid_argument("process_backend: negative stop_grace or kill_wait");
    if (options.root.find('\0') != std::string::npos) throw std::invalid_argument("process_backend: NUL in root");
    return options;
  }

  [[noreturn]] static void refuse(const char* call, int error, const std::string& id) {
    throw backend_error(backend_fault::spawn_failed, "process_backend: " + std::string(call) +
                                                         " failed for sandbox \"" + id +
                                                         "\": " + std::generic_category().message(error));
  }

  static time_point later(time_point now, nanoseconds d) noexcept {
    return d > time_point::max() - now ? time_point::max() : now + d;
  }

  bool at_home() const noexcept { return all_->host == ::getpid(); }

  void require_home() const {
    if (!at_home()) throw backend_error(backend_fault::rejected, "process_backend: belongs to the parent process");
  }

  std::shared_ptr<box> find_box(const std::string& id) {
    const std::lock_guard lock(all_->mutex);
    const auto it = all_->boxes.find(id);
    return it != all_->boxes.end() ? it->second : nullptr;
  }

  /// Puts a new box under its id. A dead one that nobody has destroyed makes room.
  void enroll(const std::shared_ptr<box>& fresh) {
    const std::string& id = fresh->info.id;
    for (;;) {
      {
        const std::lock_guard lock(all_->mutex);
        if (all_->boxes.try_emplace(id, fresh).second) return;
      }
      if (probe(id) != liveness::dead || !destroy(id))
        throw backend_error(backend_fault::conflict, "process_backend: sandbox \"" + id + "\" exists already");
    }
  }

  void launch(box& fresh, const std::map<std::string, std::string>& requested) {
    const std::string& id = fresh.info.id;
    open_root(id);
    fresh.home = detail::claim_directory(all_->root.get(), id.c_str());
    if (!fresh.home && errno == EWOULDBLOCK)
      throw backend_error(backend_fault::conflict, "process_backend: another process runs sandbox \"" + id + "\"");
    if (!fresh.home) refuse("mkdir", errno, id);
    try {
      const std::string directory = all_->options.root + "/" + id;
      fresh.environment = requested;  // insert() keeps what is there: the request wins, then the options
      fresh.environment.insert(all_->options.environment.begin(), all_->options.environment.end());
      fresh.environment.insert({{"PATH", all_->path}, {"HOME", directory}, {"TMPDIR", directory}});
      fresh.info.endpoint.reserve(directory.size() + 32);  // nothing may throw once the leader runs
      detail::child_process leader = spawn(all_->options.command, fresh, 0, all_->null.get());
      Sync::here("process_backend.create.started");
      const std::lock_guard lock(all_->mutex);
      fresh.info.endpoint.append("process://").append(std::to_string(leader.pid())).append(directory);
      fresh.leader = std::move(leader);
      fresh.at = stage::running;
    } catch (...) {
      detail::remove_tree(all_->root.get(), id.c_str());
      throw;
    }
  }

  void open_root(const std::string& id) {
    const std::lock_guard lock(all_->mutex);
    if (all_->root) return;
    if (!all_->null) all_->null = detail::above_standard(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!all_->null) refuse("open /dev/null", errno, id);
    std::string path = all_->options.root;
    if (all_->private_root) {
      std::uint64_t random = 0;
      if (::getentropy(&random, sizeof random) != 0) refuse("getentropy", errno, id);
      path += std::to_string(random);
    }
    const bool made = ::mkdir(path.c_str(), S_IRWXU) == 0;
    if (!made && (errno != EEXIST || all_->private_root)) refuse("mkdir root", errno, id);
    all_->root = detail::owned_fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const int error = errno;
    if (!all_->root && made) ::rmdir(path.c_str());
    if (!all_->root) refuse("open root", error, id);
    all_->made_root = made;
    all_->options.root = std::move(path);
  }

  detail::child_process spawn(const std::vector<std::string>& argv, const box& where, pid_t group, int output) {
    detail::spawn_plan plan(argv, where.environment);
    plan.directory = where.home.get();
    plan.group = group;
    plan.input = all_->null.get();
    plan.output = output;
    const process_limits& limits = all_->options.limits;
    plan.limit(RLIMIT_CORE, 0);
    plan.limit(RLIMIT_NOFILE, limits.open_files);
    plan.limit(RLIMIT_FSIZE, limits.file_size);
    if (limits.cpu_seconds) plan.limit(RLIMIT_CPU, *limits.cpu_seconds);
    if (limits.address_space) plan.limit(RLIMIT_AS, *limits.address_space);
    if (limits.processes) plan.limit(RLIMIT_NPROC, *limits.processes);
    const char* failed = nullptr;
    int error = 0;
    detail::child_process child;
    try {
      child = all_->forker.spawn(plan, failed, error);
    } catch (const std::system_error& e) {
      refuse("starting a thread", e.code().value(), where.info.id);
    }
    if (failed != nullptr) refuse(failed, error, where.info.id);
    return child;
  }

  /// Waits for a command and collects what it writes. Leaves it in the list when it throws.
  exec_result follow(box& where, std::list<detail::child_process>::iterator command, int output, nanoseconds timeout) {
    exec_result result;
    bool open = true, killed = false;
    const auto collect = [&](std::size_t most) {
      std::array<char, 16384> chunk;
      while (open && most > 0) {
        const ssize_t got = ::read(output, chunk.data(), std::min(most, chunk.size()));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) open = got < 0 && errno == EAGAIN;
        if (got <= 0) return;
        const auto size = static_cast<std::size_t>(got);
        result.output.append(chunk.data(), std::min(size, all_->options.max_output - result.output.size()));
        most -= size;
      }
    };
    for (time_point until = later(Sync::clock::now(), timeout); !command->exited();) {
      const time_point now = Sync::clock::now();
      if (now >= until) {
        if (killed)
          throw backend_error(backend_fault::timed_out,
                              "process_backend: a killed command does not end in sandbox \"" + where.info.id + "\"");
        killed = true;
        command->signal(SIGKILL);  // the number is still its own: only this thread reaps it
        until = later(now, all_->options.kill_wait);
      }
      pollfd events[2] = {{command->watch(), POLLIN, 0}, {open ? output : -1, POLLIN, 0}};
      const int patience = detail::poll_timeout(until - now);
      ::poll(events, 2, command->watch() >= 0 ? patience : std::min(patience, 5));
      if (events[1].revents != 0) collect(std::size_t{1} << 18);
    }
    int written = 0;  // by now; whoever else holds the pipe may go on writing for ever
    if (open && ::ioctl(output, FIONREAD, &written) == 0 && written > 0) collect(static_cast<std::size_t>(written));
    const std::lock_guard lock(all_->mutex);
    result.exit_code = command->reap();
    result.timed_out = killed && result.exit_code == 128 + SIGKILL;
    where.commands.erase(command);
    return result;
  }

  /// Ends boxes whose turn the caller has. True when all are gone; those that are not stay known.
  bool end(const std::vector<std::shared_ptr<box>>& boxes) {
    std::vector<box*> left;
    for (const auto& one : boxes) left.push_back(one.get());
    const auto signal = [&](int signo) {
      const std::lock_guard lock(all_->mutex);
      for (const box* one : left) one->signal(signo);
    };
    {
      std::unique_lock lock(all_->mutex);
      for (box* one : left) one->at = stage::ending;
      const auto none_joining = [&] {
        return std::all_of(left.begin(), left.end(), [](box* b) { return !b->joining; });
      };
      all_->settled.wait(lock, none_joining);
    }
    signal(SIGTERM);
    Sync::here("process_backend.destroy.terminated");
    settle(left, all_->options.stop_grace);
    if (left.empty()) return true;
    signal(SIGKILL);
    settle(left, all_->options.kill_wait);
    return left.empty();
  }

  /// Waits at most \p budget for groups to become empty, and clears away and takes off the list those that do.
  void settle(std::vector<box*>& left, nanoseconds budget) {
    const time_point until = later(Sync::clock::now(), budget);
    for (nanoseconds nap = std::chrono::milliseconds(1);; nap = std::min(nap * 2, nanoseconds(20'000'000))) {
      std::vector<pollfd> leaders;  // a group lives at least as long as its leader
      bool look = false;
      {
        const std::lock_guard lock(all_->mutex);
        for (const box* one : left) {
          if (one->all_exited()) look = true;
          if (!one->leader.exited() && one->leader.watch() >= 0) leaders.push_back({one->leader.watch(), POLLIN, 0});
        }
      }
      if (look) {
        const detail::group_census census;
        std::erase_if(left, [&](box* one) { return clear_if_empty(*one, census); });
      }
      const nanoseconds rest = until - Sync::clock::now();
      if (left.empty() || rest <= nanoseconds::zero()) return;
      const bool all_watched = leaders.size() == left.size();
      ::poll(leaders.data(), leaders.size(), detail::poll_timeout(all_watched ? rest : std::min(rest, nap)));
    }
  }

  bool clear_if_empty(box& one, const detail::group_census& census) {
    {
      const std::lock_guard lock(all_->mutex);
      if (!one.all_exited()) return false;
      if (!census.exact()) one.leader.reap();  // its zombie would answer for the group
      if (one.leader.pid() > 0 && !one.empty && census.lives(one.leader.pid())) return false;
      one.empty = true;
      one.leader.reap();
    }
    detail::remove_tree(all_->root.get(), one.info.id.c_str());
    one.home.reset();
    const std::lock_guard lock(all_->mutex);
    for (detail::child_process& command : one.commands)
      command.reap();  // given up by their exec(), or about to be read
    all_->boxes.erase(one.info.id);
    return true;
  }

  void reap_if_empty(box& one) {
    const detail::group_census census;
    const std::lock_guard lock(all_->mutex);
    if (one.empty || one.joining != 0 || !one.commands.empty() || !census.exact() || census.lives(one.leader.pid()))
      return;
    one.empty = true;
    one.leader.reap();
  }

  std::unique_ptr<everything> all_;
};

using process_backend = basic_process_backend<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_SANDBOX_PROCESS_BACKEND_HPP
