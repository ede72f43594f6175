// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What it costs to include a header, beside the same standard headers without it: the CPU time of a compiler that is
// given a file with nothing else in it. The compilers are those of the PATH. Time is what the kernel says that the
// child used, not the clock on the wall.

#include <benchmark/benchmark.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr const char* include_directory = CURFEW_SOURCE_DIR "/include";

struct scratch {
  std::filesystem::path where;
  scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "curfew_headers.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    where = name;
  }
  ~scratch() { std::filesystem::remove_all(where); }
};

std::string command(const std::string& compiler, const std::string& mode, const std::string& file) {
  return compiler + " -std=c++20 -O2 -pthread -I" + include_directory + " " + mode + " " + file;
}

/// Seconds that a shell and all that it started have computed.
double cpu_seconds(const std::string& line) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  ::rusage used{};
  if (::wait4(pid, &status, 0, &used) != pid || status != 0) return -1;
  const auto seconds = [](const ::timeval& of) {
    return static_cast<double>(of.tv_sec) + static_cast<double>(of.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// The files that headers of the kit include and that are not of the kit, from what the compiler tells with -H: a line
/// for each file that it opens, with as many dots as it is deep.
std::string standard_part(const std::string& compiler, const std::string& file) {
  std::FILE* const pipe = ::popen((command(compiler, "-H -fsyntax-only", file) + " 2>&1").c_str(), "r");
  if (pipe == nullptr) std::abort();
  const auto of_the_kit = [](const std::string& path) { return path.rfind(include_directory, 0) == 0; };
  std::vector<std::string> open{""};
  std::set<std::string> seen;
  std::string text;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) {
    std::istringstream line(buffer);
    std::string dots, path;
    line >> dots >> path;
    if (dots.find_first_not_of('.') != std::string::npos || path.empty()) continue;
    open.resize(dots.size());
    open.push_back(path);
    if (dots.size() > 1 && of_the_kit(open[dots.size() - 1]) && !of_the_kit(path) && seen.insert(path).second) {
      text += "#include \"" + path + "\"\n";
    }
  }
  ::pclose(pipe);
  return text;
}

void include(benchmark::State& state, const std::string& line) {
  for (auto _ : state) {
    const double seconds = cpu_seconds(line);
    if (seconds < 0) {
      state.SkipWithError("the compiler failed");
      break;
    }
    state.SetIterationTime(seconds);
  }
}

}  // namespace

int main(int count, char** arguments) {
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 1;
  const scratch directory;
  for (const std::string compiler : {"g++", "clang++"}) {
    if (std::system((compiler + " --version >/dev/null 2>&1").c_str()) != 0) {
      std::fprintf(stderr, "header_bench runs without %s, which is not in the PATH\n", compiler.c_str());
      continue;
    }
    for (const std::string name :
         {"admission_fence", "guarded_singleton", "teardown", "signals", "ordered_lifespan", "curfew"}) {
      const auto at = [&](const char* part) {
        return (directory.where / (compiler + "_" + name + "_" + part + ".cpp")).string();
      };
      std::ofstream(at("kit")) << "#include <curfew/" << name << ".hpp>\n";
      std::ofstream(at("standard")) << standard_part(compiler, at("kit"));
      for (const char* const part : {"kit", "standard"}) {
        const std::string line = command(compiler, "-c -o /dev/null", at(part));
        benchmark::RegisterBenchmark(("Header/" + compiler + "/" + name + "/" + part).c_str(),
                                     [line](benchmark::State& state) { include(state, line); })
            ->Iterations(1)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
