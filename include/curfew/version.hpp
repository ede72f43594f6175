// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The version of the kit, and the only place that says it: CMake and the package files read it from here.

#ifndef CURFEW_VERSION_HPP
#define CURFEW_VERSION_HPP

#define CURFEW_VERSION_MAJOR 0
#define CURFEW_VERSION_MINOR 1
#define CURFEW_VERSION_PATCH 0

#endif  // CURFEW_VERSION_HPP

// Outside the guard, so that it is seen each time. Two copies of the kit (a module header and the single header, say)
// may meet in one translation unit, but only as the same version: the guards would drop half of the second in silence.
#if CURFEW_VERSION_MAJOR != 0 || CURFEW_VERSION_MINOR != 1 || CURFEW_VERSION_PATCH != 0
#error "curfew: two different versions of the kit meet in one translation unit"
#endif
