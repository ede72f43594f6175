// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: curfew: Traits::on_shutdown must be callable as on_shutdown(T&, teardown_reason)

#include <memory>

#include <curfew/guarded_singleton.hpp>

struct traits {
  std::unique_ptr<int> make() { return std::make_unique<int>(1); }
#ifdef CURFEW_MUST_COMPILE
  void on_shutdown(int&, curfew::teardown_reason) {}
#else
  void on_shutdown(int&) {}  // would never be called
#endif
};

curfew::guarded_singleton<int, traits> number{"number"};

int main() {
  return *number.get() - 1;
}
