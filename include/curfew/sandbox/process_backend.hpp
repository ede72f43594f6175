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
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
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
#include <curfew/detail/process_identity.hpp>
#include <curfew/detail/process_members.hpp>
#include <curfew/detail/process_root.hpp>
#include <curfew/detail/process_spawn.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/sandbox/backend.hpp>

#if CURFEW_POSIX
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// Resource limits of every program of a sandbox, soft and hard alike; never above the host's own hard limits. Core
/// dumps are always off. `processes` counts all processes of the user, as the kernel does.
struct process_limits {
  std::optional<std::uint64_t> cpu_seconds, address_space, processes;
  std::uint64_t open_files = 256;
  std::uint64_t file_size = std::uint64_t{1} << 30;
};

/// Options of a process_backend.
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
    } catch (...) {  // out of memory; the end of the forker's thread still takes the leaders along
    }
    all_->root.dismiss(!clean);
  }

  /// Starts the leader of a new group in a directory of its own. When it returns, the exec has succeeded and the group
  /// exists. Throws backend_error: `conflict` when the id runs already, here or in another process with the same root;
  /// `spawn_failed`, naming the call and the reason, when the system refuses. Then nothing is left behind.
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument("process_backend: bad sandbox id \"" + detail::printable(request.id) + "\"");
    detail::check_environment(request.environment, "process_backend");
    require_home();
    const auto fresh = std::make_shared<box>(request.id);
    const std::lock_guard turn(fresh->turn);
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
    const std::lock_guard turn(found->turn);
    if (find_box(id) != found) return true;  // another destroy has ended it, or its create has failed
    return end({found});
  }

  /// Alive until the leader exits. `unknown` while the id is being created, and for what can be no id.
  liveness probe(const std::string& id) {
    if (!is_id(id) || !at_home()) return liveness::unknown;
    const std::shared_ptr<box> found = find_box(id);
    if (!found) return liveness::dead;
    bool settled = false;
    {
      const std::lock_guard lock(all_->mutex);
      if (found->at == stage::starting) return liveness::unknown;
      if (!found->members.leader.exited()) return liveness::alive;
      settled = found->joining == 0;  // and stays so: nothing joins a leader that has exited
    }
    const std::unique_lock turn(found->turn, std::try_to_lock);  // not had: its destroy runs and reaps
    if (settled && turn.owns_lock()) {
      const detail::group_census census;
      const std::lock_guard lock(all_->mutex);
      if (census.exact()) found->members.reap_if_empty(census);
    }
    return liveness::dead;
  }

  /// The sandboxes of this object whose leader runs, sorted by id.
  std::vector<sandbox_info> list() {
    require_home();
    std::vector<sandbox_info> result;
    const std::lock_guard lock(all_->mutex);
    for (const auto& [id, it] : all_->boxes)
      if (it->at != stage::starting && !it->members.leader.exited()) result.push_back(it->info);
    return result;
  }

  /// The sandbox made for this request, if its leader runs.
  std::optional<sandbox_info> find(const std::string& request_id) {
    require_home();
    const std::shared_ptr<box> found = find_box(request_id);
    const std::lock_guard lock(all_->mutex);
    if (!found || found->at == stage::starting || found->members.leader.exited()) return {};
    return found->info;
  }

  /// Runs a command inside a sandbox: in its group, directory, environment and limits, with nothing on stdin. Returns
  /// when the command itself has exited, with what was written by then, also when something it left behind holds on to
  /// the pipe. At \p timeout the command, and it alone, is killed. `destroy` ends it like every member of the group.
  /// Throws std::invalid_argument for an empty command or a NUL, and backend_error: `not_found` when no such sandbox
  /// runs, `spawn_failed`, or `timed_out` for a command that did not end within `kill_wait` of being killed.
  exec_result exec(const std::string& id, const std::vector<std::string>& argv, std::chrono::nanoseconds timeout) {
    detail::check_command(argv, "process_backend");
    require_home();
    std::list<detail::child_process> entry(1);  // made first: nothing may throw between the fork and the group's list
    const auto command = entry.begin();
    const std::shared_ptr<box> where = find_box(id);
    {
      const std::lock_guard lock(all_->mutex);
      if (!where || where->at != stage::running || where->members.leader.exited())
        throw backend_error(backend_fault::not_found, "process_backend: no sandbox " + detail::printable(id) + " runs");
      ++where->joining;
    }
    const auto settle = [&] {
      const std::lock_guard lock(all_->mutex);
      auto& commands = where->members.commands;
      if (command->pid() > 0) commands.splice(commands.end(), entry);
      --where->joining;
      all_->settled.notify_all();
    };
    detail::owned_fd output, write_end;
    try {
      if (!detail::make_pipe(output, write_end)) refuse("pipe", errno, id);
      *command = spawn(argv, *where, where->members.leader.pid(), write_end.get());
    } catch (...) {
      settle();
      throw;
    }
    settle();
    write_end.reset();
    Sync::here("process_backend.exec.started");
    try {
      return follow(*where, command, std::move(output), timeout);
    } catch (...) {
      const std::lock_guard lock(all_->mutex);
      auto& members = where->members;
      command->signal(SIGKILL);
      members.abandoned.splice(members.abandoned.end(), members.commands, command);
      throw;
    }
  }

 private:
  using nanoseconds = std::chrono::nanoseconds;

  enum class stage : unsigned char { starting, running, ending };

  struct box {
    explicit box(std::string id) { info.id = std::move(id); }

    typename Sync::mutex turn;  // create and destroy of this id, one at a time; taken before the object's mutex
    // Constant once the id runs; `home` until it has ended:
    sandbox_info info;
    std::map<std::string, std::string> environment;
    detail::owned_fd home;  // the directory, under its lock
    // Under the object's mutex:
    stage at = stage::starting;
    unsigned joining = 0;  // commands between the check that the sandbox runs and their entry among the members
    detail::process_members members;
  };

  struct everything {
    explicit everything(process_options o) : options(std::move(o)), root(options.root) {}

    const long host = detail::process_id();
    const process_options options;
    const std::string path = detail::host_variable("PATH", "/usr/local/bin:/usr/bin:/bin");
    typename Sync::mutex mutex;
    typename Sync::condition_variable settled;  // some box's `joining` went down
    std::map<std::string, std::shared_ptr<box>> boxes;
    detail::process_root root;  // opened once, under the mutex, by the first create
    detail::owned_fd null;
    detail::process_forker<Sync> forker;
  };

  static bool is_id(const std::string& id) noexcept { return detail::is_sandbox_id(id, detail::colon::refused); }

  static process_options checked(process_options options) {
    detail::check_command(options.command, "process_backend");
    detail::check_environment(options.environment, "process_backend");
    if (options.stop_grace < nanoseconds::zero() || options.kill_wait < nanoseconds::zero())
      throw std::invalid_argument("process_backend: negative stop_grace or kill_wait");
    return options;
  }

  [[noreturn]] static void refuse(const char* call, int error, const std::string& id) {
    const std::string reason = std::string(call) + ": " + std::generic_category().message(error);
    throw backend_error(backend_fault::spawn_failed, "process_backend: sandbox \"" + id + "\": " + reason);
  }

  bool at_home() const noexcept { return all_->host == detail::process_id(); }

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
    {
      const std::lock_guard lock(all_->mutex);
      if (!all_->null) all_->null = detail::above_standard(::open("/dev/null", O_RDWR | O_CLOEXEC));
      if (!all_->null) refuse("open of /dev/null", errno, id);
      if (const char* const failed = all_->root.open()) refuse(failed, errno, id);
    }
    fresh.home = detail::claim_directory(all_->root.fd(), id.c_str());
    if (!fresh.home && errno == EWOULDBLOCK)
      throw backend_error(backend_fault::conflict, "process_backend: another process runs sandbox \"" + id + "\"");
    if (!fresh.home) refuse("mkdir", errno, id);
    try {
      const std::string directory = all_->root.path() + "/" + id;
      fresh.environment = requested;  // insert() keeps what is there: the request wins, then the options
      fresh.environment.insert(all_->options.environment.begin(), all_->options.environment.end());
      fresh.environment.insert({{"PATH", all_->path}, {"HOME", directory}, {"TMPDIR", directory}});
      fresh.info.endpoint.reserve(directory.size() + 32);  // nothing may throw once the leader runs
      detail::child_process leader = spawn(all_->options.command, fresh, 0, all_->null.get());
      Sync::here("process_backend.create.started");
      const std::lock_guard lock(all_->mutex);
      fresh.info.endpoint.append("process://").append(std::to_string(leader.pid())).append(directory);
      fresh.members.leader = std::move(leader);
      fresh.at = stage::running;
    } catch (...) {
      detail::remove_tree(all_->root.fd(), id.c_str());
      throw;
    }
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

  /// Waits for a command and takes it off the list, unless it throws.
  exec_result follow(box& where, std::list<detail::child_process>::iterator command, detail::owned_fd pipe,
                     nanoseconds timeout) {
    detail::bounded_output output(std::move(pipe), all_->options.max_output);
    const auto ending = detail::wait_for_exit<Sync>(*command, {&output}, timeout, all_->options.kill_wait);
    if (ending == detail::exit_wait::gave_up)
      throw backend_error(backend_fault::timed_out,
                          "process_backend: a killed command does not end in sandbox \"" + where.info.id + "\"");
    exec_result result{0, false, output.finish()};
    const std::lock_guard lock(all_->mutex);
    result.exit_code = command->reap();
    result.timed_out = ending == detail::exit_wait::killed && result.exit_code == 128 + SIGKILL;  // or it was faster
    where.members.commands.erase(command);
    return result;
  }

  /// Ends boxes whose turn the caller has. True when all are gone; those that are not stay known.
  bool end(const std::vector<std::shared_ptr<box>>& boxes) {
    std::vector<box*> left;
    for (const auto& one : boxes) left.push_back(one.get());
    {
      std::unique_lock lock(all_->mutex);
      for (box* one : left) one->at = stage::ending;
      all_->settled.wait(lock, [&] { return std::ranges::none_of(left, [](box* b) { return b->joining != 0; }); });
    }
    const auto clear = [this](box& one) {
      detail::remove_tree(all_->root.fd(), one.info.id.c_str());  // while it is still ours by its lock
      one.home.reset();
      const std::lock_guard lock(all_->mutex);
      all_->boxes.erase(one.info.id);
    };
    return detail::end_groups<Sync>(all_->mutex, left,
                                    {{SIGTERM, all_->options.stop_grace}, {SIGKILL, all_->options.kill_wait}}, clear);
  }

  std::unique_ptr<everything> all_;
};

/// The one to use.
using process_backend = basic_process_backend<>;

}  // namespace sandbox
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_SANDBOX_PROCESS_BACKEND_HPP
