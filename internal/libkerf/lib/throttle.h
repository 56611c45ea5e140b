/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A launch, or a copy, takes its turn: it waits for the container's budget of GPU time, and is charged for.
 */
#ifndef KERF_THROTTLE_H
#define KERF_THROTTLE_H

#include "kerf.h"

struct kerf_turn {
	struct kerf_total *account; /* NULL: it is not counted */
	struct kerf_estimate *estimate; /* NULL: what it takes is not estimated */
	struct kerf_sample *sample; /* NULL: it is not measured */
	uint64_t charged;
	CUstream stream;
	bool per_thread;
};

/* kerf_begin_turn before the driver's launch, kerf_end_turn with its result after it. key tells apart what takes
 * different times. No lock is held in between. */
void kerf_begin_turn(struct kerf_turn *t, uint64_t key, CUstream stream, bool per_thread);
/* The same for a copy, and for count operations on words; neither waits for longer than a second. */
void kerf_begin_copy(struct kerf_turn *t, uint64_t key, CUstream stream, bool per_thread);
void kerf_begin_mem_op(struct kerf_turn *t, unsigned count, CUstream stream, bool per_thread);
CUresult kerf_end_turn(struct kerf_turn *t, CUresult ret);
/* After a wait: what was measured may have ended just now. */
void kerf_look(void);

#endif
