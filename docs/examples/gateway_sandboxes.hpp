// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// Where the gateway's sandboxes come from is chosen when it is started. The providers take any type that has the
// members of a backend, so one that passes its calls on to the backend of the day is enough: the gateway is compiled
// once, and a backend knows nothing of it.

#ifndef CURFEW_EXAMPLES_GATEWAY_SANDBOXES_HPP
#define CURFEW_EXAMPLES_GATEWAY_SANDBOXES_HPP

#include <sys/types.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <curfew/sandbox/aio_rest_backend.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/docker_cli_backend.hpp>
#include <curfew/sandbox/e2b_rest_backend.hpp>
#include <curfew/sandbox/process_backend.hpp>
#include <curfew/sandbox/transport.hpp>
#if defined(CURFEW_GATEWAY_CURL)
#include <curfew/sandbox/curl_transport.hpp>
#endif

namespace gateway_example {

namespace sandbox = curfew::sandbox;

/// A backend, and what the gateway itself does with a sandbox.
class workshop {
 public:
  workshop() = default;
  workshop(const workshop&) = delete;
  workshop& operator=(const workshop&) = delete;
  virtual ~workshop() = default;

  virtual sandbox::sandbox_info create(const sandbox::create_request& request) = 0;
  virtual bool destroy(const std::string& id) = 0;
  virtual sandbox::liveness probe(const std::string& id) = 0;
  virtual std::vector<sandbox::sandbox_info> list() = 0;
  virtual sandbox::listing list_within(const sandbox::list_budget& budget) = 0;
  virtual std::optional<sandbox::sandbox_info> find(const std::string& request_id) = 0;
  virtual bool set_timeout(const std::string& id, std::chrono::seconds timeout) = 0;

  /// How a run's line names its sandbox, beside the id.
  virtual std::string describe(const sandbox::sandbox_info& info) = 0;
  /// What a run does in its sandbox. Throws when that fails.
  virtual void work_in(const sandbox::sandbox_info& info) = 0;
  /// The end of the proof: how many of all that describe() has seen are still there.
  virtual std::string what_is_left() = 0;
};

/// Passes on what a backend has, and answers for what it has not as a provider would without it.
template <sandbox::backend B>
class workshop_of : public workshop {
 public:
  template <class... Arguments>
  explicit workshop_of(Arguments&&... arguments) : backend_(std::forward<Arguments>(arguments)...) {}

  sandbox::sandbox_info create(const sandbox::create_request& request) override { return backend_.create(request); }
  bool destroy(const std::string& id) override { return backend_.destroy(id); }
  sandbox::liveness probe(const std::string& id) override { return backend_.probe(id); }
  std::vector<sandbox::sandbox_info> list() override { return backend_.list(); }

  sandbox::listing list_within(const sandbox::list_budget& budget) override {
    if constexpr (requires { backend_.list_within(budget); }) return backend_.list_within(budget);
    return {backend_.list(), true};
  }
  std::optional<sandbox::sandbox_info> find(const std::string& request_id) override {
    if constexpr (requires { backend_.find(request_id); }) return backend_.find(request_id);
    for (auto& one : backend_.list())
      if ((one.request_id.empty() ? one.id : one.request_id) == request_id) return std::move(one);
    return std::nullopt;
  }
  bool set_timeout(const std::string& id, std::chrono::seconds timeout) override {
    if constexpr (requires { backend_.set_timeout(id, timeout); }) return backend_.set_timeout(id, timeout);
    return true;
  }

  std::string describe(const sandbox::sandbox_info& info) override {
    const std::lock_guard lock(mutex_);
    seen_.insert(info.id);
    return "endpoint=" + info.endpoint;
  }
  void work_in(const sandbox::sandbox_info& info) override {
    if (backend_.probe(info.id) != sandbox::liveness::alive) throw std::runtime_error("its sandbox does not answer");
  }
  /// By asking whoever runs them, and one by one: an inventory might be short of some.
  std::string what_is_left() override {
    const std::lock_guard lock(mutex_);
    const auto left = std::count_if(seen_.begin(), seen_.end(), [this](const std::string& id) {
      return backend_.probe(id) != sandbox::liveness::dead;
    });
    return "sandboxes_left=" + std::to_string(left);
  }

 protected:
  B backend_;

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;
};

/// Child processes: a run executes a real command, and the kernel is asked what is left.
class process_workshop final : public workshop_of<sandbox::process_backend> {
 public:
  std::string describe(const sandbox::sandbox_info& info) override {
    const pid_t group = group_of(info);
    const std::lock_guard lock(groups_mutex_);
    groups_.insert(group);
    return "pgid=" + std::to_string(group);
  }
  void work_in(const sandbox::sandbox_info& info) override {
    using namespace std::chrono_literals;
    const auto result = backend_.exec(info.id, {"/bin/sh", "-c", "echo \"$HOME\" > proof && cat proof"}, 10s);
    if (result.exit_code != 0 || result.output.find(info.id) == std::string::npos)
      throw std::runtime_error("its command exited with " + std::to_string(result.exit_code) + ": " + result.output);
  }
  std::string what_is_left() override {
    const std::lock_guard lock(groups_mutex_);
    return "processes_left=" + std::to_string(living_members(groups_));
  }

 private:
  static pid_t group_of(const sandbox::sandbox_info& info) {
    constexpr std::string_view scheme = "process://";
    int group = 0;
    const char* const first = info.endpoint.data() + std::min(scheme.size(), info.endpoint.size());
    std::from_chars(first, info.endpoint.data() + info.endpoint.size(), group);
    if (group <= 1) throw std::runtime_error("no process group in endpoint " + info.endpoint);
    return group;
  }

  /// How many members of these groups the kernel still runs. A zombie is a name on a list, not a process that runs.
  static int living_members(const std::set<pid_t>& groups) {
    int living = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "stat");
      std::string text;
      if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
      if (!std::getline(file, text)) continue;  // it has gone while we looked
      char state = 0;
      int parent = 0, group = 0;
      if (std::sscanf(text.c_str() + text.rfind(')') + 1, " %c %d %d", &state, &parent, &group) != 3) continue;
      if (groups.count(group) != 0 && state != 'Z' && state != 'X') ++living;
    }
    return living;
  }

  std::mutex groups_mutex_;
  std::set<pid_t> groups_;  // every process group ever printed
};

#if defined(CURFEW_GATEWAY_CURL)
using rest_transport = sandbox::curl_transport;
#else
using rest_transport = sandbox::socket_transport;  // http only
#endif

struct workshop_choice {
  std::string backend = "process";  // process, docker, rest
  std::string docker = "docker";    // the command
  std::string url;                  // of the provisioner, or of the E2B API
  bool e2b = false;                 // which of the two
};

/// Throws std::invalid_argument for what cannot be meant. Keys come from the environment, where others cannot see them.
inline std::unique_ptr<workshop> open_workshop(const workshop_choice& choice) {
  if (choice.backend == "docker") {
    sandbox::docker_options options;
    options.runtime = choice.docker;
    return std::make_unique<workshop_of<sandbox::docker_cli_backend<>>>(options);
  }
  if (choice.backend == "rest" && choice.e2b) {
    sandbox::e2b_rest_options options;  // its key: E2B_API_KEY
    options.api_url = choice.url;
    return std::make_unique<workshop_of<sandbox::e2b_rest_backend<rest_transport>>>(options);
  }
  if (choice.backend == "rest") {
    const char* const key = std::getenv("AIO_API_KEY");
    return std::make_unique<workshop_of<sandbox::aio_rest_backend<rest_transport>>>(
        sandbox::aio_rest_options{choice.url, key != nullptr ? key : ""});
  }
  return std::make_unique<process_workshop>();
}

}  // namespace gateway_example

#endif  // CURFEW_EXAMPLES_GATEWAY_SANDBOXES_HPP
