/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A launch takes its turn: it waits for the container's budget of GPU time, and is charged for.
 */
#ifndef KERF_THROTTLE_H
#define KERF_THROTTLE_H

#include "kerf.h"

struct kerf_turn {
	struct kerf_total *account; /* NULL: it is not counted */
	struct kerf_estimate *estimate;
	struct kerf_sample *sample; /* NULL: it is not measured */
	uint64_t charged;
	CUstream stream;
	bool per_thread;
};

/* kerf_begin_turn before the driver's launch, kerf_end_turn with its result after it. key tells apart what takes
 * different times. No lock is held in between. */
void kerf_begin_turn(struct kerf_turn *t, uint64_t key, CUstream stream, bool per_thread);
CUresult kerf_end_turn(struct kerf_turn *t, CUresult ret);

#endif
