// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A shared object is unloaded while a thread that has used a singleton in it lives on: nothing of the object's may be
// run or read afterwards, neither when that thread ends nor in a fork.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <latch>
#include <thread>

#include "library.hpp"
#include "service.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::atomic<int> alive{0};
  services mine{"mine", service_traits{&alive, nullptr}};
  bool unloaded = false;
  for (int round = 0; round < 20; ++round) {
    void* const part = load(argv[1], RTLD_LOCAL);
    std::latch used(1), gone(1);
    std::thread user([&] {
      expect(symbol<int()>(part, "part_use_own")() == 0x600d, "used");
      used.count_down();
      gone.wait();
      expect(mine.get()->mark == 0x600d, "the program's own goes on");
    });
    used.wait();
    expect(::dlclose(part) == 0, "closed");
    if (void* const still = ::dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD); still != nullptr) {
      ::dlclose(still);
    } else {
      unloaded = true;
    }
    gone.count_down();
    user.join();

    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      ::_exit(mine.reset() && mine.get()->mark == 0x600d ? 0 : 1);
    }
    int status = 0;
    expect(::waitpid(child, &status, 0) == child && status == 0, "a fork after it runs none of its handlers");
  }
  std::puts(unloaded ? "unloaded" : "never unloaded: the compiler's unique symbols pin it");
}
