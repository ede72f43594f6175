/* SPDX-License-Identifier: MIT
   Copyright (c) 2026 the curfew authors */

/* The headers of Concurrency Kit are C: so is what is measured of them. */

#ifndef CURFEW_BENCH_PEERS_BRLOCK_PEER_H
#define CURFEW_BENCH_PEERS_BRLOCK_PEER_H

#ifdef __cplusplus
extern "C" {
#endif

struct ck_brlock_reader;
struct ck_brlock_reader* brlock_peer_register(void);
/* Before the thread ends, or the next writer looks into its stack. */
void brlock_peer_unregister(struct ck_brlock_reader* mine);
void brlock_peer_sections(struct ck_brlock_reader* mine, unsigned count);

#ifdef __cplusplus
}
#endif

#endif
