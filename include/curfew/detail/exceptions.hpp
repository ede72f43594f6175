// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Exceptions where the compiler has them, and the same code where it has not (`-fno-exceptions`): there, what would
/// throw ends the process with a message that names the error, and what would catch is compiled but never runs. The
/// headers of the core say throw, try and catch only through these macros; `cmake/check_layers.cmake` sees to it.

#ifndef CURFEW_DETAIL_EXCEPTIONS_HPP
#define CURFEW_DETAIL_EXCEPTIONS_HPP

#include <curfew/detail/config.hpp>

#if CURFEW_EXCEPTIONS

#define CURFEW_THROW(...) throw __VA_ARGS__
#define CURFEW_RETHROW throw
#define CURFEW_TRY try
#define CURFEW_CATCH(type, name) catch (const type& name)
#define CURFEW_CATCH_ALL catch (...)

#else

// `if constexpr`, so that no compiler takes what follows a block that returns for a way out without a result.
#define CURFEW_THROW(...) ::curfew::detail::cannot_throw(#__VA_ARGS__, __VA_ARGS__)
#define CURFEW_RETHROW ::std::terminate()
#define CURFEW_TRY if constexpr (true)
#define CURFEW_CATCH(type, name) else if (const type& name = ::curfew::detail::never_caught<type>(); true)
#define CURFEW_CATCH_ALL else

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// What a throw is without exceptions: prints `curfew: cannot throw <type>: <what>` to stderr and terminates.
/// \p expression is the source text of the thrown expression; its type is what comes before the first bracket.
template <class Error>
[[noreturn]] CURFEW_COLD void cannot_throw(const char* expression, const Error& error) noexcept {
  int length = 0;
  while (expression[length] != '\0' && expression[length] != '(' && expression[length] != '{') ++length;
  std::fprintf(stderr, "curfew: cannot throw %.*s: %s\n", length, expression, error.what());
  std::terminate();
}

/// What a handler that never runs is given to name.
template <class Error>
[[noreturn]] const Error& never_caught() noexcept {
  std::terminate();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_EXCEPTIONS

#endif  // CURFEW_DETAIL_EXCEPTIONS_HPP
