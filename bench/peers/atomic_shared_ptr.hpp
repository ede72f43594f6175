// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// WITH_ATOMIC_SHARED_PTR: whether std::atomic<std::shared_ptr> is there to be compared with. libstdc++ has it from 12
/// on, libc++ not at all. Its load() is a data race to the thread sanitizer, since libstdc++ unlocks its pointer with a
/// relaxed operation.

#ifndef CURFEW_BENCH_PEERS_ATOMIC_SHARED_PTR_HPP
#define CURFEW_BENCH_PEERS_ATOMIC_SHARED_PTR_HPP

#include <memory>

#if defined(__SANITIZE_THREAD__) || !defined(__cpp_lib_atomic_shared_ptr)
#define WITH_ATOMIC_SHARED_PTR 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_ATOMIC_SHARED_PTR 0
#endif
#endif
#if !defined(WITH_ATOMIC_SHARED_PTR)
#define WITH_ATOMIC_SHARED_PTR 1
#endif

#endif  // CURFEW_BENCH_PEERS_ATOMIC_SHARED_PTR_HPP
