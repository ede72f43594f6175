// SPDX-License-Identifier: MIT
// Copyright (c) 2026 the curfew authors

/// \file
/// The list of bodies. CURFEW_CASES_ONLY, when defined, names the one family that is compiled: 1 fence, 2 singleton,
/// 3 parts, 4 the fence on restartable sequences, 5 lifespan, 6 provider. CURFEW_CASES_FILTER narrows that to the
/// bodies whose name contains one of some parts (`a,b`; a part that ends in a dot is a whole name): a program for a
/// single broken header need not compile them all.

#ifndef CURFEW_TESTS_MODEL_CASES_ALL_HPP
#define CURFEW_TESTS_MODEL_CASES_ALL_HPP

#include <string_view>

#ifndef CURFEW_CASES_ONLY
#define CURFEW_CASES_ONLY 0
#endif

#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 1
#include "model/cases/fence.hpp"
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 2
#include "model/cases/singleton.hpp"
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 3
#include "model/cases/parts.hpp"
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 4
#include "model/cases/fence.hpp"
#include "model/cases/fence_rseq.hpp"
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 5
#include "model/cases/lifespan.hpp"
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 6
#include "model/cases/provider.hpp"
#endif

#ifndef CURFEW_CASES_FILTER
#define CURFEW_CASES_FILTER ""
#endif

namespace curfew_cases {

constexpr bool selected(std::string_view only, std::string_view name) {
  while (true) {
    const std::size_t comma = only.find(',');
    const std::string_view part = only.substr(0, comma);
    if (part.ends_with('.') ? name == part.substr(0, part.size() - 1) : name.find(part) != part.npos) return true;
    if (comma == only.npos) return false;
    only.remove_prefix(comma + 1);
  }
}

/// Calls `visit.template operator()<Case>(name)` for every body, with the policy \p Sync.
template <class Sync, class Visit>
void for_each_case(Visit&& visit) {
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 1
  using striped = curfew::basic_admission_fence<Sync>;
  using compact = curfew::basic_compact_admission_fence<Sync>;
  using traced = curfew::basic_traced_admission_fence<Sync>;
#define CURFEW_BOTH(body)                                             \
  if constexpr (selected(CURFEW_CASES_FILTER, #body)) {               \
    visit.template operator()<body<striped, Sync>>(#body);            \
  }                                                                   \
  if constexpr (selected(CURFEW_CASES_FILTER, "compact_" #body)) {    \
    visit.template operator()<body<compact, Sync>>("compact_" #body); \
  }                                                                   \
  static_assert(true)
  CURFEW_BOTH(fence_enter_close);
  CURFEW_BOTH(fence_destroyed_by_drainer);
  CURFEW_BOTH(fence_destroyed_under_closer);
  CURFEW_BOTH(fence_destroyed_by_poller);
  CURFEW_BOTH(fence_destructor_waits);
  CURFEW_BOTH(fence_refused_stays_refused);
  CURFEW_BOTH(fence_refused_after_close);
  CURFEW_BOTH(fence_leavers_publish);
  CURFEW_BOTH(fence_clone_while_closing);
  CURFEW_BOTH(fence_reopen_slow_leaver);
  CURFEW_BOTH(fence_reopen_late_entrant);
  CURFEW_BOTH(fence_reopen_publishes);
  CURFEW_BOTH(fence_cancel_carries_over);
  CURFEW_BOTH(fence_two_drainers);
  CURFEW_BOTH(fence_drainer_misses_nothing);
  CURFEW_BOTH(fence_two_closers);
  CURFEW_BOTH(fence_drain_times_out);
  CURFEW_BOTH(fence_hook_destroys);
  CURFEW_BOTH(fence_hook_cancelled);
  CURFEW_BOTH(fence_reopen_slow_signaller);
  CURFEW_BOTH(fence_reopen_slow_signaller_told);
  CURFEW_BOTH(fence_destroyed_under_drainer);
  CURFEW_BOTH(fence_coroutine_destroys);
  CURFEW_BOTH(fence_coroutine_abandoned);
  CURFEW_BOTH(fence_closed_together);
  CURFEW_BOTH(fence_closed_together_entered);
  CURFEW_BOTH(fence_closed_together_cancelled);
  CURFEW_BOTH(fence_closed_together_hooks);
#define CURFEW_TRACED(body)                                         \
  if constexpr (selected(CURFEW_CASES_FILTER, "traced_" #body)) {   \
    visit.template operator()<body<traced, Sync>>("traced_" #body); \
  }                                                                 \
  static_assert(true)
  CURFEW_TRACED(fence_enter_close);
  CURFEW_TRACED(fence_destroyed_by_drainer);
  CURFEW_TRACED(fence_clone_while_closing);
  CURFEW_TRACED(fence_listed);
#undef CURFEW_TRACED
#undef CURFEW_BOTH
#endif
#define CURFEW_ONE(body) \
  if constexpr (selected(CURFEW_CASES_FILTER, #body)) visit.template operator()<body<Sync>>(#body)
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 2
  CURFEW_ONE(singleton_cold_start);
  CURFEW_ONE(singleton_loser_throws);
  CURFEW_ONE(singleton_get_reset);
  CURFEW_ONE(singleton_two_resets);
  CURFEW_ONE(singleton_in_flight);
  CURFEW_ONE(singleton_seal);
  CURFEW_ONE(singleton_recycle);
  CURFEW_ONE(singleton_recycle_seen);
  CURFEW_ONE(singleton_recycle_three);
  CURFEW_ONE(singleton_set);
  CURFEW_ONE(singleton_set_never_empty);
  CURFEW_ONE(singleton_override);
  CURFEW_ONE(singleton_override_reset);
  CURFEW_ONE(singleton_destroyed_with_handle);
  CURFEW_ONE(singleton_drain);
  CURFEW_ONE(singleton_single_flight);
  CURFEW_ONE(singleton_flight_outdated);
  CURFEW_ONE(singleton_crosswise);
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 3
  CURFEW_ONE(slot_two_teardowns);
  CURFEW_ONE(slot_install_seal);
  CURFEW_ONE(slot_replace_take);
  CURFEW_ONE(detach_then_once);
  CURFEW_ONE(once_joined);
  CURFEW_ONE(once_retried);
  CURFEW_ONE(once_destroyed_by_joiner);
  CURFEW_ONE(once_joined_for);
  CURFEW_ONE(serializer_excludes);
  CURFEW_ONE(serializer_closed);
  CURFEW_ONE(serializer_abandoned);
  CURFEW_ONE(ledger_line);
  CURFEW_ONE(ledger_gives_up);
  CURFEW_ONE(ledger_closed);
  CURFEW_ONE(ledger_cap);
  CURFEW_ONE(worker_stopped);
  CURFEW_ONE(worker_two_stops);
  CURFEW_ONE(lot_parked);
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 5
  CURFEW_ONE(lifespan_late_stop);
  CURFEW_ONE(lifespan_two_stops);
  CURFEW_ONE(lifespan_start_stop);
  CURFEW_ONE(lifespan_request_in_start);
  CURFEW_ONE(lifespan_signal_request);
  CURFEW_ONE(lifespan_two_wait);
  CURFEW_ONE(lifespan_reset_signal);
  CURFEW_ONE(lifespan_barriers);
  CURFEW_ONE(lifespan_hook);
  CURFEW_ONE(lifespan_failure_stop);
#endif
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 6
  CURFEW_ONE(provider_commit);
  CURFEW_ONE(provider_two_shutdowns);
  CURFEW_ONE(provider_release_shutdown);
  CURFEW_ONE(provider_one_owner);
  CURFEW_ONE(provider_destroy_acquire);
  CURFEW_ONE(provider_destroy_release);
  CURFEW_ONE(provider_evict);
  CURFEW_ONE(provider_cap);
  CURFEW_ONE(provider_line);
  CURFEW_ONE(provider_failed_stop);
#endif
#undef CURFEW_ONE
}

/// The same for the bodies that need the policy with restartable sequences.
template <class Visit>
void for_each_restartable_case([[maybe_unused]] Visit&& visit) {
#if CURFEW_CASES_ONLY == 0 || CURFEW_CASES_ONLY == 4
#define CURFEW_ON(fence, prefix, body)                                               \
  if constexpr (selected(CURFEW_CASES_FILTER, #prefix #body)) {                      \
    visit.template operator()<fence_##body<fence, restartable_sync>>(#prefix #body); \
  }                                                                                  \
  static_assert(true)
  CURFEW_ON(per_cpu_fence, rseq_, enter_close);
  CURFEW_ON(per_cpu_fence, rseq_, destroyed_by_drainer);
  CURFEW_ON(per_cpu_fence, rseq_, destroyed_under_closer);
  CURFEW_ON(per_cpu_fence, rseq_, destroyed_by_poller);
  CURFEW_ON(per_cpu_fence, rseq_, destructor_waits);
  CURFEW_ON(per_cpu_fence, rseq_, refused_stays_refused);
  CURFEW_ON(per_cpu_fence, rseq_, refused_after_close);
  CURFEW_ON(per_cpu_fence, rseq_, leavers_publish);
  CURFEW_ON(per_cpu_fence, rseq_, clone_while_closing);
  CURFEW_ON(per_cpu_fence, rseq_, reopen_slow_leaver);
  CURFEW_ON(per_cpu_fence, rseq_, reopen_late_entrant);
  CURFEW_ON(per_cpu_fence, rseq_, reopen_publishes);
  CURFEW_ON(per_cpu_fence, rseq_, cancel_carries_over);
  CURFEW_ON(per_cpu_fence, rseq_, two_drainers);
  CURFEW_ON(per_cpu_fence, rseq_, drainer_misses_nothing);
  CURFEW_ON(per_cpu_fence, rseq_, two_closers);
  CURFEW_ON(per_cpu_fence, rseq_, hook_destroys);
  CURFEW_ON(per_cpu_fence, rseq_, closed_together_entered);
  CURFEW_ON(per_cpu_fence, rseq_, closed_together_cancelled);
  CURFEW_ON(per_cpu_fence, rseq_, reopen_slow_signaller);
  CURFEW_ON(per_cpu_fence, rseq_, carried_over);
  CURFEW_ON(per_cpu_fence, rseq_, crosses_over);
  CURFEW_ON(undecided_fence, rseq_undecided_, enter_close);
  CURFEW_ON(undecided_fence, rseq_undecided_, refused_stays_refused);
  CURFEW_ON(undecided_fence, rseq_undecided_, refused_after_close);
  CURFEW_ON(undecided_fence, rseq_undecided_, two_closers);
#undef CURFEW_ON
#endif
}

}  // namespace curfew_cases

#endif  // CURFEW_TESTS_MODEL_CASES_ALL_HPP
