// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// A shared object with hidden visibility that names every exception of the kit.

#include <typeinfo>

#include <curfew/admission_fence.hpp>
#include <curfew/guarded_singleton.hpp>
#include <curfew/ordered_lifespan.hpp>
#include <curfew/sandbox/lease_store.hpp>
#include <curfew/sandbox/transport.hpp>

extern "C" __attribute__((visibility("default"))) const std::type_info* const errors[] = {
    &typeid(curfew::admission_refused),          &typeid(curfew::singleton_sealed),
    &typeid(curfew::recursive_creation),         &typeid(curfew::bad_graph),
    &typeid(curfew::ownership_conflict),         &typeid(curfew::sandbox::backend_error),
    &typeid(curfew::sandbox::capacity_exceeded), &typeid(curfew::sandbox::identity_conflict),
    &typeid(curfew::sandbox::lease_store_error), &typeid(curfew::sandbox::transport_error),
};
