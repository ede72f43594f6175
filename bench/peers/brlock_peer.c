/* SPDX-License-Identifier: MIT
   Copyright (c) 2026 the curfew authors */

#include "brlock_peer.h"

#include <ck_brlock.h>
#include <stdlib.h>

static ck_brlock_t lock = CK_BRLOCK_INITIALIZER;

struct ck_brlock_reader* brlock_peer_register(void) {
  ck_brlock_reader_t* mine = aligned_alloc(64, (sizeof(ck_brlock_reader_t) + 63) / 64 * 64);
  if (mine == NULL) abort();
  ck_brlock_read_register(&lock, mine);
  return mine;
}

void brlock_peer_unregister(struct ck_brlock_reader* mine) {
  ck_brlock_read_unregister(&lock, mine);
  free(mine);
}

void brlock_peer_sections(struct ck_brlock_reader* mine, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    ck_brlock_read_lock(&lock, mine);
    ck_brlock_read_unlock(mine);
  }
}
