/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The clock by which work on a GPU ends. Without time slices, it is real time. With them, it stands still while other
 * processes have their turn, and only the daemon knows it.
 */
#include "cuda_core.h"

#define SHORTEST_SLEEP 20000 /* nanoseconds, so that a wait does not ask all the time */

CUresult cuda_moment(CUdevice device, uint64_t moment, struct cuda_moment *out)
{
	struct device *d;
	uint64_t v[3], now = cuda_now();
	TRY(cuda_device(device, &d));
	*out = (struct cuda_moment){ .passed = now >= moment, .soonest = moment, .real = moment };
	if (!d->sliced || !out->passed || !moment)
		return CUDA_SUCCESS; /* the clock is never ahead */
	TRY(cuda_call(device, GPUSIM_OP_CLOCK, (const uint64_t[GPUSIM_NARGS]){ moment }, v, 3));
	*out = (struct cuda_moment){ .passed = v[2] != 0, .soonest = v[1], .real = v[2] };
	return CUDA_SUCCESS;
}

CUresult cuda_wait_for(CUdevice device, uint64_t moment)
{
	struct cuda_moment m;
	for (;;) {
		TRY(cuda_moment(device, moment, &m));
		if (m.passed)
			return CUDA_SUCCESS;
		uint64_t least = cuda_now() + SHORTEST_SLEEP;
		cuda_sleep_until(m.soonest > least ? m.soonest : least);
	}
}
