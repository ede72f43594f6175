// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The least that a program does with a fence.

#include <curfew/admission_fence.hpp>

int work();

int main() {
  curfew::admission_fence requests{"requests"};
  int result = 0;
  if (const auto pass = requests.try_enter()) result = work();
  requests.close();
  requests.drain();
  return result;
}
