# Every header of the kit, by layer. The install set, the header checks and the umbrella check all read this one list.

set(CURFEW_HEADERS
    # L0
    curfew/version.hpp
    curfew/detail/config.hpp
    # L1
    curfew/detail/lot.hpp
    curfew/detail/sha256.hpp
    curfew/detail/sync.hpp
    # L2
    curfew/admission_fence.hpp
    curfew/guarded_singleton.hpp
    curfew/ordered_lifespan.hpp
    curfew/signals.hpp
    curfew/teardown.hpp
    # L3
    curfew/keyed_serializer.hpp
    curfew/periodic_worker.hpp
    curfew/slot_ledger.hpp
    # L4
    curfew/sandbox/aio.hpp
    curfew/sandbox/backend.hpp
    curfew/sandbox/lease_store.hpp
    curfew/sandbox/process_backend.hpp
    curfew/sandbox/sandbox_pool.hpp
    # umbrella
    curfew/curfew.hpp)
