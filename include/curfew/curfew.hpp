// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The whole kit in one include. Costs the compile time of all of it: include the one header you need where that
/// counts.

#ifndef CURFEW_HPP
#define CURFEW_HPP

#include <curfew/version.hpp>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/signals.hpp>
#include <curfew/teardown.hpp>

#include <curfew/keyed_serializer.hpp>
#include <curfew/periodic_worker.hpp>
#include <curfew/slot_ledger.hpp>

// The sandbox providers report by exception; without exceptions the kit ends here.
#if CURFEW_EXCEPTIONS
#include <curfew/sandbox/aio.hpp>
#include <curfew/sandbox/aio_rest_backend.hpp>
#include <curfew/sandbox/backend.hpp>
#include <curfew/sandbox/docker_cli_backend.hpp>
#include <curfew/sandbox/e2b.hpp>
#include <curfew/sandbox/e2b_rest_backend.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/process_backend.hpp>
#include <curfew/sandbox/sandbox_pool.hpp>
#include <curfew/sandbox/transport.hpp>
#endif

#endif  // CURFEW_HPP
