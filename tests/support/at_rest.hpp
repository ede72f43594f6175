// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Whether a thread has come to rest in the kernel. A test that must not go on before another thread is in its wait
/// asks for that, where a pause would only make it likely. Linux.

#ifndef CURFEW_TESTS_SUPPORT_AT_REST_HPP
#define CURFEW_TESTS_SUPPORT_AT_REST_HPP

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace curfew_test {

/// The kernel's number of the calling thread.
inline int thread_number() {
  return static_cast<int>(::syscall(SYS_gettid));
}

/// Whether \p thread, of this process, sleeps until somebody wakes it, or is gone.
inline bool at_rest(int thread) {
  std::FILE* const file = std::fopen(("/proc/self/task/" + std::to_string(thread) + "/stat").c_str(), "r");
  if (file == nullptr) return true;
  char text[512];
  text[std::fread(text, 1, sizeof text - 1, file)] = '\0';
  std::fclose(file);
  const char* const end_of_name = std::strrchr(text, ')');
  return end_of_name == nullptr || end_of_name[1] == '\0' || std::strchr("SZX", end_of_name[2]) != nullptr;
}

}  // namespace curfew_test

#endif  // CURFEW_TESTS_SUPPORT_AT_REST_HPP
