// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The version of the kit, and the only place that says it: CMake and the package files read it from here.

#ifndef CURFEW_VERSION_HPP
#define CURFEW_VERSION_HPP

// Two copies of the kit in one translation unit (a module header and the single header, say) may meet, but only when
// they are the same version: with the include guards kept, the second one would otherwise be dropped in silence.
#define CURFEW_VERSION_MAJOR 0
#define CURFEW_VERSION_MINOR 1
#define CURFEW_VERSION_PATCH 0

#endif  // CURFEW_VERSION_HPP
