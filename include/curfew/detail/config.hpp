// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// Feature probes, the ABI namespace and the one way out for misuse that cannot be reported. Standard headers only.

#ifndef CURFEW_DETAIL_CONFIG_HPP
#define CURFEW_DETAIL_CONFIG_HPP

#include <cstddef>
#include <cstdio>
#include <exception>

#include <curfew/version.hpp>

#if defined(__cplusplus) && __cplusplus < 202002L && (!defined(_MSVC_LANG) || _MSVC_LANG < 202002L)
#error "curfew needs C++20: compile with -std=c++20 or later"
#endif

#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
#define CURFEW_EXCEPTIONS 1
#else
#define CURFEW_EXCEPTIONS 0
#endif

// The inline namespace is an ABI epoch: bumped when a layout or a protocol changes, and not otherwise, so that two
// objects of one program that were built against different epochs do not merge each other's inline functions. Nor may
// those that throw be merged with those that terminate instead, so code without exceptions has a name of its own.
#if CURFEW_EXCEPTIONS
#define CURFEW_ABI abi1
#else
#define CURFEW_ABI abi1_no_exceptions
#endif
#define CURFEW_BEGIN_NAMESPACE \
  namespace curfew {           \
  inline namespace CURFEW_ABI {
#define CURFEW_END_NAMESPACE \
  }                          \
  }

// Process-wide state carries default visibility, so that shared objects built with -fvisibility=hidden still share it.
#if defined(__GNUC__) || defined(__clang__)
#define CURFEW_VISIBLE __attribute__((visibility("default")))
#define CURFEW_NOINLINE __attribute__((noinline))
#define CURFEW_ALWAYS_INLINE __attribute__((always_inline)) inline
#define CURFEW_COLD __attribute__((cold, noinline))
#else
#define CURFEW_VISIBLE
#define CURFEW_NOINLINE
#define CURFEW_ALWAYS_INLINE inline
#define CURFEW_COLD
#endif

// For clang's -Wthread-safety: that the caller must not hold the lock. Has no effect on locks that are not annotated.
#if defined(__clang__)
#define CURFEW_EXCLUDES(...) __attribute__((locks_excluded(__VA_ARGS__)))
#else
#define CURFEW_EXCLUDES(...)
#endif

#if defined(__unix__) || defined(__APPLE__)
#define CURFEW_POSIX 1
#else
#define CURFEW_POSIX 0
#endif

// What returns a type of the kit, and variables of one, do not say so in their symbols; here they do, so that a unit
// without exceptions is not linked to those of a unit with them. Said once, where the namespace is first opened.
#if !CURFEW_EXCEPTIONS && (defined(__GNUC__) || defined(__clang__)) && !defined(_MSC_VER)
namespace curfew {
inline namespace CURFEW_ABI __attribute__((abi_tag("curfew_no_exceptions"))) {}
}  // namespace curfew
#endif

CURFEW_BEGIN_NAMESPACE
namespace detail {

/// Bytes between two objects that different cores write. Fixed rather than taken from the compiler, because it is part
/// of the layout and std::hardware_destructive_interference_size may change with a tuning flag.
#if defined(__APPLE__) && defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// Ends the process after a precondition was broken in a way that would corrupt memory if the program went on.
/// Prints `curfew: <what> <name>` to stderr first; \p name may be empty.
[[noreturn]] CURFEW_COLD inline void fail(const char* what, const char* name = "") noexcept {
  std::fprintf(stderr, "curfew: %s%s%s\n", what, *name != '\0' ? " " : "", name);
  std::terminate();
}

}  // namespace detail
CURFEW_END_NAMESPACE

#endif  // CURFEW_DETAIL_CONFIG_HPP
