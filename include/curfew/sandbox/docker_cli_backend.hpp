// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Sandboxes as containers of the docker command line, or of one that takes the same arguments. The engine may be on
/// another host; nothing but the command and the sandbox's own port is needed. See docs/design/backends.md.

#ifndef CURFEW_SANDBOX_DOCKER_CLI_BACKEND_HPP
#define CURFEW_SANDBOX_DOCKER_CLI_BACKEND_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <curfew/detail/config.hpp>
#include <curfew/detail/deadline.hpp>
#include <curfew/detail/docker_port.hpp>
#include <curfew/detail/http_rest.hpp>
#include <curfew/detail/http_types.hpp>
#include <curfew/detail/http_url.hpp>
#include <curfew/detail/process_command.hpp>
#include <curfew/detail/sync.hpp>
#include <curfew/detail/text.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/transport.hpp>

#if CURFEW_POSIX

CURFEW_BEGIN_NAMESPACE
namespace sandbox {

/// A directory of the engine's host that shows in the container. Absolute paths, without commas or quotes.
struct docker_mount {
  std::string source;
  std::string destination;
  bool read_only = false;
};

/// Options of a docker_cli_backend.
struct docker_options {
  std::string image = "all-in-one-sandbox:latest";
  std::uint16_t port = 8080;  ///< the first one tried on the host
  std::string prefix = "curfew-sandbox";
  std::string host = "localhost";  ///< where the published ports are reached
  std::string bind = {};  ///< where they are published; empty: 127.0.0.1, [::1] or 0.0.0.0, depending on `host`
  std::vector<docker_mount> mounts = {};
  std::map<std::string, std::string> environment = {};
  std::string runtime = "docker";  ///< looked up in PATH
  bool seccomp_unconfined = true;
};

/// Sandboxes as containers of the docker command.
///
/// Thread safety: every member from any thread. One mutex, for the ports that creates are about to publish; nothing
/// waits under it. Waiting: each command has a limit (`run` 10 minutes, since it may fetch the image; `stop` 120 s; the
/// others 5 or 10 s), and readiness 60 s. Exceptions: backend_error, and std::invalid_argument for input that cannot be
/// meant. Cost: a process for each command.
///
/// Values of environment variables go to the command as arguments, which other users of the host can see while it
/// runs; they never appear in a message.
template <transport Transport = socket_transport, class Sync = std_sync>
class docker_cli_backend {
 public:
  /// Runs nothing. \throws std::invalid_argument for options that cannot be arguments or a url
  explicit docker_cli_backend(docker_options options = {}, std::shared_ptr<Transport> carrier = nullptr)
      : options_(checked(std::move(options))),
        carrier_(carrier != nullptr ? std::move(carrier) : std::make_shared<Transport>()) {}

  docker_cli_backend(const docker_cli_backend&) = delete;
  docker_cli_backend& operator=(const docker_cli_backend&) = delete;

  /// Returns once the sandbox answers. A container of that name that runs and answers is taken as it is. \throws
  /// backend_error `conflict` for one that does not, `unavailable` without an engine or a free port, `rejected` for
  /// what the engine refuses, `timed_out`, `spawn_failed` without the command
  sandbox_info create(const create_request& request) {
    if (!is_id(request.id))
      throw std::invalid_argument("docker_cli_backend: bad sandbox id \"" + detail::printable(request.id) + "\"");
    detail::check_environment(request.environment, "docker_cli_backend");
    auto environment = request.environment;
    environment.insert(options_.environment.begin(), options_.environment.end());  // the request's values win
    unsigned from = options_.port;
    for (int attempt = 0; attempt < port_attempts; ++attempt) {
      const port_claim port(*this, from);
      from = port.number + 1U;
      const auto result = run(run_arguments(request.id, port.number, environment), std::chrono::minutes(10));
      const auto says = [&result](const char* text) { return detail::contains_ignoring_case(result.errors, text); };
      if (result.exit_code == 0) return when_ready({request.id, endpoint(port.number)});
      if (result.exit_code < 0 || result.exit_code > 128)
        undo(request.id, result.timed_out ? backend_fault::timed_out : backend_fault::unavailable,
             "docker run was cut short");
      if (says("port is already allocated") || says("address already in use")) continue;
      if (says("is already in use by container") || says("conflict. the container name")) return existing(request.id);
      const bool no_engine = says("cannot connect to the docker daemon");
      throw failed("run", result, no_engine ? backend_fault::unavailable : backend_fault::rejected, environment);
    }
    throw backend_error(backend_fault::unavailable,
                        "docker_cli_backend: no free port in " + std::to_string(port_attempts) + " attempts");
  }

  /// True when the engine no longer knows the container.
  bool destroy(const std::string& id) {
    constexpr auto nap = std::chrono::milliseconds(200);
    if (!is_id(id)) return false;
    try {
      const auto result = run({"stop", name_of(id)}, std::chrono::seconds(120));
      if (result.exit_code != 0) return detail::contains_ignoring_case(result.errors, "no such container");
      for (const auto until = detail::later(Sync::clock::now(), std::chrono::seconds(10));;) {
        if (look(id) == container::absent) return true;  // it is removed only after the stop has returned
        if (until - Sync::clock::now() <= nap) return false;
        Sync::sleep_for(nap);
      }
    } catch (const backend_error&) {
      return false;
    }
  }

  /// Asks for the state of the container; see the concept backend.
  liveness probe(const std::string& id) {
    if (!is_id(id)) return liveness::unknown;
    try {
      const container state = look(id);
      if (state == container::running) return liveness::alive;
      return state == container::unknown ? liveness::unknown : liveness::dead;
    } catch (const backend_error&) {
      return liveness::unknown;
    }
  }

  /// The container of that id, if it runs, its port is known and it answers within five seconds.
  std::optional<sandbox_info> find(const std::string& request_id) {
    if (!is_id(request_id) || look(request_id) != container::running) return {};
    const auto result = run({"port", name_of(request_id), inner_port}, std::chrono::seconds(5));
    const auto port = result.exit_code == 0 ? detail::port_behind(result.output) : std::nullopt;
    if (!port) return {};
    sandbox_info info{request_id, endpoint(*port)};
    if (!detail::wait_until_ready<Sync>(*carrier_, info.endpoint, std::chrono::seconds(5))) return {};
    return info;
  }

  /// The running containers with the prefix whose port is published.
  std::vector<sandbox_info> list() {
    const std::string prefix = options_.prefix + "-";
    const auto result =
        run({"ps", "--filter", "name=" + prefix, "--format", "{{.Names}}\t{{.Ports}}"}, std::chrono::seconds(10));
    if (result.exit_code != 0) throw failed("ps", result, backend_fault::unavailable, {});
    std::vector<sandbox_info> all;
    for (std::string_view rest = result.output; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      const std::size_t tab = std::min(line.find('\t'), line.size());
      const std::string_view name = line.substr(0, tab);
      const std::string_view ports = line.substr(tab);
      if (!name.starts_with(prefix)) continue;  // the engine's filter matches anywhere in the name
      const std::string id(name.substr(prefix.size()));
      const std::size_t arrow = ports.find("->8080/tcp");
      const auto port = arrow != std::string_view::npos ? detail::port_behind(ports.substr(0, arrow)) : std::nullopt;
      if (is_id(id) && port) all.push_back({id, endpoint(*port)});
    }
    return all;
  }

 private:
  static constexpr int port_attempts = 10;
  static constexpr const char* inner_port = "8080";
  enum class container : unsigned char { running, stopped, absent, unknown };

  /// A port that no other create of this backend takes meanwhile, and that was free a moment ago.
  struct port_claim {
    port_claim(docker_cli_backend& b, unsigned from) : backend(b) {
      const std::lock_guard lock(backend.mutex_);
      for (; from <= 65535; ++from) {
        number = static_cast<std::uint16_t>(from);
        if (!backend.claimed_.contains(number) && detail::is_bindable(backend.options_.bind, number)) {
          backend.claimed_.insert(number);
          return;
        }
      }
      throw backend_error(backend_fault::unavailable, "docker_cli_backend: no free port up to 65535");
    }
    ~port_claim() {
      const std::lock_guard lock(backend.mutex_);
      backend.claimed_.erase(number);
    }
    port_claim(const port_claim&) = delete;
    port_claim& operator=(const port_claim&) = delete;

    docker_cli_backend& backend;
    std::uint16_t number = 0;
  };

  static bool is_id(const std::string& id) noexcept { return detail::is_sandbox_id(id, detail::colon::refused); }
  std::string name_of(const std::string& id) const { return options_.prefix + "-" + id; }
  std::string endpoint(std::uint16_t port) const {
    return "http://" + detail::bracketed(options_.host) + ":" + std::to_string(port);
  }

  static docker_options checked(docker_options o) {
    const auto require = [](bool holds, const char* what) {
      if (!holds) throw std::invalid_argument(std::string("docker_cli_backend: ") + what);
    };
    const auto is_word = [](std::string_view text) {  // one argument, and no option
      return !text.empty() && text.front() != '-' &&
             std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
    };
    const auto is_path = [](std::string_view text) {
      return text.starts_with('/') && text.find_first_of(std::string_view(",\"\n\r\0", 5)) == std::string_view::npos;
    };
    if (o.host.starts_with('[') && o.host.ends_with(']')) o.host = o.host.substr(1, o.host.size() - 2);
    if (o.bind.empty())
      o.bind = o.host == "::1"                                                             ? "[::1]"
               : detail::equal_ignoring_case(o.host, "localhost") || o.host == "127.0.0.1" ? "127.0.0.1"
                                                                                           : "0.0.0.0";
    require(is_word(o.image), "bad image");
    require(is_word(o.runtime), "bad runtime");
    require(is_id(o.prefix) && detail::is_ascii_alnum(o.prefix.front()), "bad prefix");
    require(detail::is_host(o.host), "bad host");
    require(o.bind.find_first_not_of("0123456789abcdefABCDEF.:[]") == std::string::npos, "bad bind address");
    require(o.port != 0, "port is 0");
    for (const docker_mount& one : o.mounts) require(is_path(one.source) && is_path(one.destination), "bad mount");
    detail::check_environment(o.environment, "docker_cli_backend");
    return o;
  }

  std::vector<std::string> run_arguments(const std::string& id, std::uint16_t port,
                                         const std::map<std::string, std::string>& environment) const {
    std::vector<std::string> words = {"run"};
    const auto add = [&words](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    if (options_.seccomp_unconfined) add({"--security-opt", "seccomp=unconfined"});
    add({"--rm", "-d", "-p", options_.bind + ":" + std::to_string(port) + ":" + inner_port, "--name", name_of(id)});
    for (const auto& [name, value] : environment) add({"-e", name + "=" + value});
    for (const docker_mount& one : options_.mounts)
      add({"--mount", "type=bind,src=" + one.source + ",dst=" + one.destination + (one.read_only ? ",readonly" : "")});
    add({options_.image});
    return words;
  }

  detail::command_result run(std::vector<std::string> words, std::chrono::nanoseconds limit) const {
    words.insert(words.begin(), options_.runtime);
    try {
      return detail::run_command<Sync>(words, limit);
    } catch (const std::system_error& e) {
      throw backend_error(backend_fault::spawn_failed,
                          "docker_cli_backend: " + options_.runtime + ": " + e.code().message());
    }
  }

  static backend_error failed(const char* verb, const detail::command_result& result, backend_fault fault,
                              const std::map<std::string, std::string>& secrets) {
    std::string said = result.errors;
    for (const auto& [name, value] : secrets)
      for (std::size_t at = 0; !value.empty() && (at = said.find(value, at)) != std::string::npos;)
        said.replace(at, value.size(), "***"), at += 3;
    const std::string how = result.timed_out ? "timed out" : "exit status " + std::to_string(result.exit_code);
    return backend_error(result.timed_out ? backend_fault::timed_out : fault,
                         std::string("docker_cli_backend: ") + verb + ": " + how + ": " + detail::printable(said, 512));
  }

  [[noreturn]] void undo(const std::string& id, backend_fault fault, const char* why) {
    const bool gone = destroy(id);
    throw backend_error(fault, "docker_cli_backend: sandbox \"" + id + "\": " + why, gone ? std::string() : id);
  }

  sandbox_info when_ready(sandbox_info info) {
    if (!detail::wait_until_ready<Sync>(*carrier_, info.endpoint, std::chrono::seconds(60)))
      undo(info.id, backend_fault::timed_out, "does not become ready");
    return info;
  }

  sandbox_info existing(const std::string& id) {
    std::optional<sandbox_info> found;
    try {
      found = find(id);
    } catch (const backend_error&) {  // then it is not known to be one that can be used
    }
    if (!found) throw backend_error(backend_fault::conflict, "docker_cli_backend: the name of \"" + id + "\" is taken");
    return *found;
  }

  container look(const std::string& id) const {
    const auto result = run({"inspect", "-f", "{{.State.Running}}", name_of(id)}, std::chrono::seconds(5));
    const std::string_view said = detail::trimmed(result.output);
    if (result.exit_code == 0) {
      return said == "true" ? container::running : said == "false" ? container::stopped : container::unknown;
    }
    const bool absent = detail::contains_ignoring_case(result.errors, "no such object") ||
                        detail::contains_ignoring_case(result.errors, "no such container");
    return absent ? container::absent : container::unknown;
  }

  const docker_options options_;
  const std::shared_ptr<Transport> carrier_;
  typename Sync::mutex mutex_;
  std::set<std::uint16_t> claimed_;  // under the mutex
};

}  // namespace sandbox
CURFEW_END_NAMESPACE
#endif  // CURFEW_POSIX

#endif  // CURFEW_SANDBOX_DOCKER_CLI_BACKEND_HPP
