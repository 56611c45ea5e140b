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
int gpusim_graphics_name(int gpu, uint64_t bytes, unsigned *name);
int gpusim_graphics_drop(unsigned name);
int gpusim_graphics_find(unsigned name, int *minor, uint64_t *handle, uint64_t *bytes);
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
	return status ? status : call(&gpus[minor].conn, GPUSIM_OP_ALLOC, bytes, gpus[minor].context, GPUSIM_KIND_LINEAR,
		handle);
}

int gpusim_graphics_give(int gpu, uint64_t handle)
{
	int minor = find(gpu);
	return minor < 0 ? GPUSIM_NOT_FOUND : call(&gpus[minor].conn, GPUSIM_OP_FREE, handle, 0, 0, NULL);
}

/* Objects that other interfaces know by a name, a number above 0: buffers, images, surfaces. */
static struct {
	int gpu; /* as it was asked for */
	uint64_t handle, bytes; /* 0: there is none of this name */
} objects[1024];
enum { OBJECTS = sizeof objects / sizeof objects[0] };

int gpusim_graphics_name(int gpu, uint64_t bytes, unsigned *name)
{
	for (unsigned i = 1; i < OBJECTS; i++)
		if (!objects[i].bytes) {
			int status = gpusim_graphics_take(gpu, bytes, &objects[i].handle);
			if (status)
				return status;
			objects[i].gpu = gpu;
			objects[i].bytes = bytes;
			*name = i;
			return GPUSIM_OK;
		}
	return GPUSIM_INSUFFICIENT;
}

int gpusim_graphics_drop(unsigned name)
{
	if (name >= OBJECTS || !objects[name].bytes)
		return GPUSIM_NOT_FOUND;
	objects[name].bytes = 0;
	return gpusim_graphics_give(objects[name].gpu, objects[name].handle);
}

/* For libcuda.so.1, which real graphics drivers talk to in ways of their own. */
int gpusim_graphics_find(unsigned name, int *minor, uint64_t *handle, uint64_t *bytes)
{
	if (name >= OBJECTS || !objects[name].bytes)
		return GPUSIM_NOT_FOUND;
	*minor = find(objects[name].gpu);
	*handle = objects[name].handle;
	*bytes = objects[name].bytes;
	return GPUSIM_OK;
}
