// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// One singleton, used by the program and by two shared objects that know nothing of each other's symbols: hidden
// visibility, RTLD_LOCAL. Everything that has to be unique must be reached through the singleton.

#include <chrono>
#include <cstdio>
#include <thread>

#include "library.hpp"
#include "service.hpp"

namespace {

std::atomic<int> alive{0};
char (*other_part_try)(services*) = nullptr;
services* asked = nullptr;
char inner = '?';

void ask_through_the_other_part() {
  inner = other_part_try(asked);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const one = load(argv[1], RTLD_LOCAL);
  void* const two = load(argv[2], RTLD_LOCAL);
  {
    services shared{"shared", service_traits{&alive, nullptr}};

    // What one has made and pinned, two takes away, and the program lets go.
    services::handle pinned;
    symbol<void(services*, services::handle*)>(one, "part_pin")(&shared, &pinned);
    expect(symbol<bool(services*)>(two, "part_reset")(&shared), "reset in the other object");
    expect(pinned.detached() && pinned->mark == 0x600d, "a handle of one object pins through the reset of the other");
    symbol<void(services::handle*)>(two, "part_unpin")(&pinned);
    expect(alive == 0, "the last handle destroys, wherever it is let go");

    // Both at once.
    std::thread user([&] {
      const auto use = symbol<int(services*)>(one, "part_use");
      for (int i = 0; i < 3000; ++i) expect(use(&shared) == 0x600d, "used while the other object resets");
    });
    std::thread resetter([&] {
      const auto reset = symbol<bool(services*)>(two, "part_reset");
      for (int i = 0; i < 3000; ++i) static_cast<void>(reset(&shared));
    });
    user.join();
    resetter.join();
    expect(static_cast<bool>(shared.drain_for(std::chrono::seconds(0))), "nothing is left inside");
    const auto stats = shared.stats();
    expect(stats.made == stats.torn_down + stats.live, "the books balance");
    expect(static_cast<std::uint64_t>(alive.load()) == stats.live, "and they are right");

    shared.seal();
    expect(symbol<char(services*)>(one, "part_try")(&shared) == 's', "sealed, and thrown as such, in every object");
  }
  {
    // One asks for an instance; its factory asks the other object, which asks for the same instance.
    services circular{"circular", service_traits{&alive, &ask_through_the_other_part}};
    asked = &circular;
    other_part_try = symbol<char(services*)>(two, "part_try");
    expect(symbol<char(services*)>(one, "part_try")(&circular) == 'i', "the outer one gets its instance");
    expect(inner == 'r', "recursion is seen through two shared objects");
  }
  expect(alive == 0, "everything was destroyed");
  std::puts("one singleton for all");
}
