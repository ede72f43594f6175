// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

// The kit as a C++20 module: `import curfew;`. Made by docs/reference/generate.cpp; a change here does not last.
// What needs a package of somebody else's, curfew/testing and the macros are not in it: include those.

module;

#include <curfew/curfew.hpp>
#include <curfew/systemd_notifier.hpp>

export module curfew;

export namespace curfew {
using curfew::admission_fence;
using curfew::admission_refused;
using curfew::bad_graph;
using curfew::basic_admission_fence;
using curfew::basic_compact_admission_fence;
using curfew::basic_fallback_signal_guard;
using curfew::basic_fence;
using curfew::basic_fence_occupant;
using curfew::basic_once_teardown;
using curfew::basic_ordered_lifespan;
using curfew::basic_periodic_worker;
using curfew::basic_singleton_handle;
using curfew::basic_slot_ledger;
using curfew::basic_traced_admission_fence;
using curfew::compact_admission_fence;
using curfew::creation_mode;
using curfew::detach_slot;
using curfew::detach_then;
using curfew::drain_hook;
using curfew::drain_result;
using curfew::drain_status;
using curfew::exit_code_policy;
using curfew::fallback_signal_guard;
using curfew::fence_occupant;
using curfew::guarded_singleton;
using curfew::keyed_serializer;
using curfew::lifespan_event;
using curfew::lifespan_event_kind;
using curfew::lifespan_options;
using curfew::lifespan_phase;
using curfew::lifespan_report;
using curfew::lifespan_state;
using curfew::once_teardown;
using curfew::ordered_lifespan;
using curfew::ownership_conflict;
using curfew::periodic_worker;
using curfew::recursive_creation;
using curfew::scoped_singleton;
using curfew::serializer_outcome;
using curfew::shutdown_owned;
using curfew::singleton_sealed;
using curfew::singleton_stats;
using curfew::singleton_traits;
using curfew::slot_census;
using curfew::slot_ledger;
using curfew::slot_outcome;
using curfew::slot_state;
using curfew::source_location;
using curfew::stage_context;
using curfew::stage_outcome;
using curfew::stage_record;
using curfew::std_sync;
using curfew::stop_cause;
using curfew::systemd_notifier;
using curfew::teardown_reason;
using curfew::teardown_status;
using curfew::to_string;
using curfew::traced_admission_fence;
using curfew::urgency;
}  // namespace curfew

#if CURFEW_EXCEPTIONS
export namespace curfew::sandbox {
using curfew::sandbox::aio_options;
using curfew::sandbox::aio_provider;
using curfew::sandbox::aio_rest_backend;
using curfew::sandbox::aio_rest_options;
using curfew::sandbox::backend;
using curfew::sandbox::backend_error;
using curfew::sandbox::backend_fault;
using curfew::sandbox::basic_memory_lease_store;
using curfew::sandbox::basic_process_backend;
using curfew::sandbox::basic_socket_transport;
using curfew::sandbox::capacity_exceeded;
using curfew::sandbox::capacity_reason;
using curfew::sandbox::clock_fn;
using curfew::sandbox::create_request;
using curfew::sandbox::docker_cli_backend;
using curfew::sandbox::docker_mount;
using curfew::sandbox::docker_options;
using curfew::sandbox::e2b_options;
using curfew::sandbox::e2b_provider;
using curfew::sandbox::e2b_rest_backend;
using curfew::sandbox::e2b_rest_options;
using curfew::sandbox::exec_result;
using curfew::sandbox::http_headers;
using curfew::sandbox::http_request;
using curfew::sandbox::http_response;
using curfew::sandbox::identity_conflict;
using curfew::sandbox::lease;
using curfew::sandbox::lease_host;
using curfew::sandbox::lease_store;
using curfew::sandbox::lease_store_error;
using curfew::sandbox::list_budget;
using curfew::sandbox::listing;
using curfew::sandbox::liveness;
using curfew::sandbox::memory_lease_store;
using curfew::sandbox::overflow_policy;
using curfew::sandbox::owner_key;
using curfew::sandbox::process_backend;
using curfew::sandbox::process_limits;
using curfew::sandbox::process_options;
using curfew::sandbox::provider_front;
using curfew::sandbox::provider_stats;
using curfew::sandbox::reconcile_report;
using curfew::sandbox::renewal;
using curfew::sandbox::sandbox_info;
using curfew::sandbox::socket_transport;
using curfew::sandbox::stable_id;
using curfew::sandbox::transport;
using curfew::sandbox::transport_error;
}  // namespace curfew::sandbox
#endif
