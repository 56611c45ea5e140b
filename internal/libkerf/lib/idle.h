/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a pool that are known to be unused: they were allocated from it and freed, and the pool has given nothing
 * back since. The driver serves an allocation from unused memory only if one part is large enough, so the sum of what
 * is unused does not tell whether the pool grows. Callers hold the pool's lock.
 */
#ifndef KERF_IDLE_H
#define KERF_IDLE_H

#include <stdbool.h>
#include <stdint.h>

#define KERF_IDLE_PARTS 32

struct kerf_part {
	uint64_t at, bytes; /* bytes 0: the place is free */
	/* the allocation by which the pool grew; parts of one origin are contiguous memory of the driver's */
	uint64_t origin;
};

struct kerf_idle {
	struct kerf_part part[KERF_IDLE_PARTS]; /* of more parts, the largest */
};

bool kerf_idle_fits(const struct kerf_idle *idle, uint64_t bytes);
void kerf_idle_add(struct kerf_idle *idle, uint64_t at, uint64_t bytes, uint64_t origin);
/* Takes a range out. Returns its origin; 0: no part has it. */
uint64_t kerf_idle_take(struct kerf_idle *idle, uint64_t at, uint64_t bytes);
void kerf_idle_forget(struct kerf_idle *idle);

#endif
