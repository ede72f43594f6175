// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// What the other unit of mixed_main.cpp offers. Included after the kit.

#ifndef CURFEW_TESTS_MATRIX_MIXED_HPP
#define CURFEW_TESTS_MATRIX_MIXED_HPP

int mixed_use();

// Whether the other unit sees that a lifespan owns SIGTERM.
bool mixed_sees_owner();

// Calls \p f while a lifespan of the other unit owns SIGTERM and SIGINT.
void mixed_while_owner(void (*f)());

#ifdef CURFEW_TEST_STRAY_OBJECT
// Of a type that the linker can tell from that of this name in a unit with exceptions.
extern curfew::compact_admission_fence mixed_door;
#endif
#ifdef CURFEW_TEST_STRAY_RESULT
curfew::compact_admission_fence& mixed_gate();
#endif
#ifdef CURFEW_TEST_SAME_TYPES
int mixed_enter_until_closed(curfew::admission_fence& door);
#endif

#endif  // CURFEW_TESTS_MATRIX_MIXED_HPP
