// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the other unit of mixed_main.cpp offers. Included after the kit.

#ifndef CURFEW_TESTS_MATRIX_MIXED_HPP
#define CURFEW_TESTS_MATRIX_MIXED_HPP

int mixed_use();
#ifdef CURFEW_TEST_SAME_TYPES
int mixed_enter_until_closed(curfew::admission_fence& door);
#endif

#endif  // CURFEW_TESTS_MATRIX_MIXED_HPP
