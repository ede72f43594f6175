/* SPDX-License-Identifier: MIT
   Copyright (c) 2026 the curfew authors */

#include "ck_peer.h"

#include <ck_epoch.h>
#include <ck_pr.h>
#include <stdlib.h>

struct service {
  unsigned value;
};

static struct service instance = {1};
static struct service* current = &instance;
static ck_epoch_t epoch;

__attribute__((constructor)) static void begin(void) {
  ck_epoch_init(&epoch);
}

struct ck_epoch_record* ck_peer_register(void) {
  void* mine = aligned_alloc(64, (sizeof(ck_epoch_record_t) + 63) / 64 * 64);
  if (mine == NULL) abort();
  ck_epoch_register(&epoch, mine, NULL);
  return mine;
}

unsigned ck_peer_sections(struct ck_epoch_record* mine, unsigned count) {
  unsigned sum = 0;
  for (unsigned i = 0; i < count; ++i) {
    ck_epoch_begin(mine, NULL);
    const struct service* now = ck_pr_load_ptr(&current);
    sum += ck_pr_load_uint(&now->value);
    ck_epoch_end(mine, NULL);
  }
  return sum;
}
