// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// SIGTERM once a millisecond, from the constructor of a lifespan to the very end of its process, one process a round.
// Each must end by itself, with the code that the policy says: a signal that comes a moment too early or too late is
// what turns a clean exit into a death by signal, or into none at all. Takes --rounds N beside what the others take.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <curfew/ordered_lifespan.hpp>

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

#ifdef CURFEW_STRESS_TWIN
constexpr bool is_twin = true;
#else
constexpr bool is_twin = false;
#endif

/// What `main` would be in a program: whatever is static goes on living until the process has gone.
[[noreturn]] void serve(int up, unsigned round) {
  ::alarm(60);
  curfew::lifespan_options options;
  options.escalation_guard = 1h;  // the ladder is another test's
  static std::optional<curfew::ordered_lifespan> life;
  life.emplace(options);
  if (::write(up, "u", 1) != 1) ::_exit(98);
  for (unsigned i = 0; i != 4; ++i) {
    const auto pause = std::chrono::microseconds((round * 97 + i * 331) % 1500);
    const auto hook = [pause] { std::this_thread::sleep_for(pause); };
    life->add(std::to_string(i)).start(hook).close([] {}).drain(hook).stop(hook);
  }
  const int code = life->run();
  std::this_thread::sleep_for(std::chrono::microseconds((round * 211) % 3000));  // what else main has to do
  ::_exit(code);
}

/// The wait status of a process that was stormed.
int storm(unsigned round, unsigned& sent) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) serve(ends[1], round);
  char byte = 0;
  if (::read(ends[0], &byte, 1) != 1) std::abort();
  ::close(ends[0]);
  ::close(ends[1]);
  std::this_thread::sleep_for(std::chrono::microseconds((round * 61) % 1000));
  for (;;) {
    ::kill(child, SIGTERM);
    ++sent;
    std::this_thread::sleep_for(1ms);
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return status;
  }
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1;
  unsigned most = ~0u;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    if (option == "--seconds") seconds = std::strtod(argv[i + 1], nullptr);
    if (option == "--rounds") {
      most = static_cast<unsigned>(std::strtoul(argv[i + 1], nullptr, 10));
      seconds = 3600;
    }
  }
  const auto end = clock_type::now() + std::chrono::duration<double>(seconds);
  unsigned rounds = 0;
  unsigned sent = 0;
  for (; rounds != most && clock_type::now() < end; ++rounds) {
    const int status = storm(rounds, sent);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    std::printf("round %u: %s %d\n", rounds, WIFEXITED(status) ? "exit code" : "signal",
                WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    std::puts(is_twin ? "twin caught" : "FAILED");
    return is_twin ? 0 : 1;
  }
  std::printf("lifespan_storm: %u processes, %u signals, every exit code 0, no hang\n", rounds, sent);
  return is_twin ? 77 : 0;
}
