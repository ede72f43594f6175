// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// std::stop_token, or a sentence that says why it is missing: libc++ has it from LLVM 18 on, at first only with a
/// flag. Of the primitives, ordered_lifespan and periodic_worker need it.

#ifndef CURFEW_DETAIL_STOP_TOKEN_HPP
#define CURFEW_DETAIL_STOP_TOKEN_HPP

#include <version>

#if defined(__cpp_lib_jthread)
#include <stop_token>
#else
#error "std::stop_token is missing (libc++: from LLVM 18 on, with -fexperimental-library)"
#endif

#endif  // CURFEW_DETAIL_STOP_TOKEN_HPP
