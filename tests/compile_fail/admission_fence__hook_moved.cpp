// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// expect: deleted

#include <utility>

#include <curfew/admission_fence.hpp>

int main() {
#ifdef CURFEW_MUST_COMPILE
  curfew::drain_hook hook{[](void*) noexcept {}, nullptr};
#else
  curfew::drain_hook hook{[](void*) noexcept {}, nullptr};
  auto other = std::move(hook);
#endif
}
