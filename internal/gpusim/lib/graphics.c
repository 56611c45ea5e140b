/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * libgpusim-graphics.so.1: stands for a graphics driver (Vulkan, OpenGL, video), which goes to the GPU's file by
 * itself: nothing of what it takes is seen by libcuda.so.1, or by what stands in front of it. The real ones have other
 * names and other functions.
 */
#include "client.h"

#pragma GCC visibility push(default)
int gpusim_graphics_take(int gpu, uint64_t bytes, uint64_t *handle);
int gpusim_graphics_give(int gpu, uint64_t handle);
#pragma GCC visibility pop

static struct {
	struct gpusim_conn conn;
	uint64_t context; /* 0: none yet */
} gpus[GPUSIM_MAX_MINORS] = { [0 ... GPUSIM_MAX_MINORS - 1] = { .conn = GPUSIM_CONN_INIT } };

static int call(struct gpusim_conn *c, uint32_t op, uint64_t a, uint64_t b, uint64_t d, uint64_t *out)
{
	const uint64_t args[GPUSIM_NARGS] = { a, b, d };
	struct gpusim_reply reply = { .vals = out, .max_vals = out ? 1 : 0 };
	return gpusim_call(c, op, args, NULL, &reply);
}

/* Of the GPUs that this process can open, one by its number; -1: there are fewer. */
static int find(int gpu)
{
	int minors[GPUSIM_MAX_MINORS], n = gpusim_minors(minors);
	for (int i = 0; i < n; i++)
		if (gpusim_open(&gpus[minors[i]].conn, minors[i]) && gpu-- == 0)
			return minors[i];
	return -1;
}

/* Takes memory of a GPU that the process can open, counted from 0: a status of protocol.h. For one thread at a time. */
int gpusim_graphics_take(int gpu, uint64_t bytes, uint64_t *handle)
{
	int minor = find(gpu), status = GPUSIM_OK;
	if (minor < 0)
		return GPUSIM_NOT_FOUND;
	if (!gpus[minor].context)
		status = call(&gpus[minor].conn, GPUSIM_OP_CTX_CREATE, 0, GPUSIM_LIST_GRAPHICS, 0, &gpus[minor].context);
	return status ? status : call(&gpus[minor].conn, GPUSIM_OP_ALLOC, bytes, gpus[minor].context, GPUSIM_KIND_LINEAR, handle);
}

int gpusim_graphics_give(int gpu, uint64_t handle)
{
	int minor = find(gpu);
	return minor < 0 ? GPUSIM_NOT_FOUND : call(&gpus[minor].conn, GPUSIM_OP_FREE, handle, 0, 0, NULL);
}
