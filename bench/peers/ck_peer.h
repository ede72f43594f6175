/* SPDX-License-Identifier: MIT
   Copyright (c) 2026 the curfew authors */

/* The headers of Concurrency Kit are C: so is what is measured of them. */

#ifndef CURFEW_BENCH_PEERS_CK_PEER_H
#define CURFEW_BENCH_PEERS_CK_PEER_H

#ifdef __cplusplus
extern "C" {
#endif

struct ck_epoch_record;
/* Aligned as the library asks; never given back. */
struct ck_epoch_record* ck_peer_register(void);
/* So many sections, with a use of the instance in each. */
unsigned ck_peer_sections(struct ck_epoch_record* mine, unsigned count);

#ifdef __cplusplus
}
#endif

#endif
