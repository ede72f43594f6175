// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A plugin that is unloaded while threads call it: no thread is inside its code, or will be, when dlclose() runs.

#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <curfew/admission_fence.hpp>

// [plugin]
class plugin {
 public:
  explicit plugin(const char* path) : path_(path) { load(); }
  ~plugin() { unload(); }

  /// Empty while the plugin is not loaded. Any thread.
  std::optional<int> price(int amount) {
    const auto inside = calls_.try_enter();
    if (!inside) return std::nullopt;
    return price_(amount);
  }

  /// Waits for the calls under way. Not from inside a call, and by one thread at a time, as load().
  void unload() {
    calls_.drain();
    if (library_ != nullptr) ::dlclose(library_);
    library_ = nullptr;
  }
  void load() {
    library_ = ::dlopen(path_, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(::dlerror());
    price_ = reinterpret_cast<int (*)(int)>(::dlsym(library_, "price"));
    if (price_ == nullptr) {
      const std::runtime_error failed(::dlerror());
      unload();
      throw failed;
    }
    calls_.reopen();  // what was written above is visible to whoever it admits
  }

 private:
  const char* path_;
  void* library_ = nullptr;
  int (*price_)(int) = nullptr;
  curfew::admission_fence calls_{"plugin"};  // the fence lives here and not in the plugin, whose memory goes away
};
// [/plugin]

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  plugin shop(argv[1]);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 2; ++i) {
      callers.emplace_back([&](const std::stop_token& token) {
        while (!token.stop_requested()) {
          if (const auto answer = shop.price(20); answer.has_value() && *answer != 42) ++wrong;
        }
      });
    }
    for (int round = 0; round < 50; ++round) {
      shop.unload();
      if (shop.price(20).has_value()) ++wrong;
      shop.load();
    }
  }
  std::printf("unloaded 50 times under load, wrong answers: %d\n", wrong.load());
  return wrong == 0 ? 0 : 1;
}
