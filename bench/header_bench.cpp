// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// What it costs to include a header, beside the same standard headers without it: the CPU time of a compiler that is
// given a file with nothing else in it, and of the preprocessor alone. The compilers are those of the PATH. Time is
// what the kernel says that the child used, not the clock on the wall.

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

void measure(benchmark::State& state, const std::string& line) {
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
  int files = 0;
  for (const std::string compiler : {"g++", "clang++"}) {
    if (std::system((compiler + " --version >/dev/null 2>&1").c_str()) != 0) {
      std::fprintf(stderr, "header_bench runs without %s, which is not in the PATH\n", compiler.c_str());
      continue;
    }
    std::istringstream names(CURFEW_PUBLIC_HEADERS);
    for (std::string name; names >> name;) {
      const std::string stem = (directory.where / std::to_string(++files)).string();
      const std::string kit = stem + "_kit.cpp", standard = stem + "_standard.cpp";
      std::ofstream(kit) << "#include <curfew/" << name << ".hpp>\n";
      const std::string preprocess = command(compiler, "-E -o /dev/null", kit);
      if (cpu_seconds(preprocess + " 2>/dev/null") < 0) {
        std::fprintf(stderr, "header_bench runs without %s.hpp: a package that it needs is not installed\n",
                     name.c_str());
        continue;
      }
      const auto add = [&, row = "Header/" + name + "/" + compiler + "/"](const char* part, auto function) {
        benchmark::RegisterBenchmark((row + part).c_str(), function)
            ->Iterations(1)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      };
      add("preprocess", [preprocess](benchmark::State& state) { measure(state, preprocess); });
      add("kit", [line = command(compiler, "-c -o /dev/null", kit)](benchmark::State& state) { measure(state, line); });
      add("standard", [=](benchmark::State& state) {
        if (!std::filesystem::exists(standard)) std::ofstream(standard) << standard_part(compiler, kit);
        measure(state, command(compiler, "-c -o /dev/null", standard));
      });
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
