// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// collect <source directory> <compiler> <command> <out> <program>=<what Google Benchmark wrote> ...: one file of all,
// with what the machine is.

#include <sys/utsname.h>

#include <cctype>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

#include "bench/tools/results.hpp"

namespace {

std::string output_of(const std::string& command) {
  std::string text;
  if (std::FILE* const pipe = ::popen((command + " 2>/dev/null").c_str(), "r")) {
    char buffer[256];
    while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
    ::pclose(pipe);
  }
  return text;
}

std::string commit_of(const std::string& source) {
  const std::string git = "git -C '" + source + "' ";
  std::string name = output_of(git + "rev-parse --short=7 HEAD");
  while (!name.empty() && std::isspace(static_cast<unsigned char>(name.back())) != 0) name.pop_back();
  if (name.empty()) return "unknown";
  // What was measured is the headers and the benchmarks, not the pages that a run rewrites.
  const bool changed = !output_of(git + "status --porcelain -- include bench ':!bench/results'").empty();
  return changed ? name + "+changes" : name;
}

std::string cpu() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
  }
  return "unknown processor";
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 6) {
    std::fputs("usage: collect <source directory> <compiler> <command> <out> <program>=<json> ...\n", stderr);
    return 2;
  }
  bench_tools::results run;
  ::utsname system{};
  ::uname(&system);
  run.machine["commit"] = commit_of(arguments[1]);
  run.machine["compiler"] = arguments[2];
  run.machine["command"] = arguments[3];
  run.machine["cpu"] = cpu();
  run.machine["processors"] = std::to_string(std::thread::hardware_concurrency());
  run.machine["system"] = std::string(system.sysname) + " " + system.release;
  for (int i = 5; i < count; ++i) {
    const std::string argument = arguments[i];
    const auto equals = argument.find('=');
    bench_tools::read_google(run, argument.substr(0, equals), bench_tools::read_file(argument.substr(equals + 1)));
  }
  bench_tools::write_file(arguments[4], bench_tools::to_text(run));
  std::printf("%zu rows in %s\n", run.rows.size(), arguments[4]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "collect: %s\n", error.what());
  return 1;
}
