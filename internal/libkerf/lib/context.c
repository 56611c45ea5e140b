/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contexts. What one takes is reserved before it is made, so that many processes that start at once find no more
 * room than there is; the driver's own figure takes its place when the agent has read it. Where the size is not known,
 * a context takes an upper bound, or all the room, until the agent has seen it (first.c). With a context's end goes
 * what was allocated in it.
 */
#include "kerf.h"

/* What is known of a context's memory is taken out before the driver is asked, and put back where it refuses. */
static CUresult ended(struct kerf_entry *all, CUresult ret)
{
	while (all) {
		struct kerf_entry *next = all->next;
		kerf_freed(all, ret);
		all = next;
	}
	return ret;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	KERF_NEED(cuCtxDestroy_v2, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *all = context ? kerf_remove_context(context) : NULL;
	return ended(all, real(context));
}

CUresult cuCtxDestroy(CUcontext context)
{
	KERF_NEED(cuCtxDestroy, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *all = context ? kerf_remove_context(context) : NULL;
	return ended(all, real(context));
}

static bool active(CUdevice device)
{
	unsigned flags;
	int is = 0;
	__typeof__(&cuDevicePrimaryCtxGetState) get = KERF_REAL(cuDevicePrimaryCtxGetState);
	return get && get(device, &flags, &is) == CUDA_SUCCESS && is;
}

struct making {
	int place;
	uint64_t bytes;
	bool first;
};

/* Begins to make a context of which only a bound is known. Room that others take for theirs and do not need is free
 * soon. */
static bool begin_within(struct making *m, uint64_t bound)
{
	do {
		kerf_making(true);
		m->bytes = kerf_take_bound(m->place, bound);
		m->first = m->bytes && m->bytes < bound;
		if (m->bytes)
			return true;
		kerf_making(false);
	} while (kerf_await_room(m->place, kerf_least_room(m->place), true));
	kerf_refused(m->place);
	return false;
}

static CUresult begin(struct making *m, CUdevice device)
{
	m->place = kerf_place(device);
	uint64_t bound = kerf_context_bound(m->place);
	if (bound)
		return begin_within(m, bound) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	m->bytes = kerf_first_begin(m->place);
	m->first = m->bytes > 0;
	if (!m->first)
		m->bytes = kerf_context_size(m->place);
	if (m->bytes == KERF_UNKNOWN) { /* and no room, or no agent */
		kerf_refused(m->place);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	kerf_making(true);
	if (m->first || !m->bytes || kerf_take_or_make_room(m->place, m->bytes))
		return CUDA_SUCCESS;
	kerf_making(false);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* False: the driver has refused it. */
static bool made(const struct making *m, CUresult ret)
{
	if (ret)
		kerf_give(m->place, m->bytes);
	else
		kerf_hand_over(m->place, m->bytes);
	kerf_making(false);
	return ret == CUDA_SUCCESS;
}

static void undo(CUcontext context)
{
	__typeof__(&cuCtxDestroy_v2) destroy = KERF_REAL(cuCtxDestroy_v2);
	if (destroy)
		destroy(context);
}

#define MAKE(device, call, undo)                                               \
	struct making m;                                                       \
	CUresult ret = begin(&m, device);                                      \
	if (ret)                                                               \
		return ret;                                                    \
	if (!made(&m, ret = call) || !m.first || kerf_first_fits(m.place, m.bytes)) \
		return ret;                                                    \
	undo;                                                                  \
	return CUDA_ERROR_OUT_OF_MEMORY

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	KERF_NEED(cuDevicePrimaryCtxRetain, CUDA_ERROR_NOT_INITIALIZED);
	__typeof__(&cuDevicePrimaryCtxRelease_v2) release = KERF_REAL(cuDevicePrimaryCtxRelease_v2);
	if (active(device))
		return real(context, device);
	MAKE(device, real(context, device), if (release) release(device));
}

CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
	KERF_NEED(cuCtxCreate, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, flags, device), undo(*context));
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	KERF_NEED(cuCtxCreate_v2, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, flags, device), undo(*context));
}

CUresult cuCtxCreate_v3(CUcontext *context, void *params, int n, unsigned flags, CUdevice device)
{
	KERF_NEED(cuCtxCreate_v3, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, params, n, flags, device), undo(*context));
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device)
{
	KERF_NEED(cuCtxCreate_v4, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, params, flags, device), undo(*context));
}

CUresult cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
	KERF_NEED(cuGLCtxCreate, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, flags, device), undo(*context));
}

CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	KERF_NEED(cuGLCtxCreate_v2, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, flags, device), undo(*context));
}

CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice device, unsigned with, void *resolver)
{
	KERF_NEED(cuVDPAUCtxCreate, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, flags, device, with, resolver), undo(*context));
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, unsigned with, void *resolver)
{
	KERF_NEED(cuVDPAUCtxCreate_v2, CUDA_ERROR_NOT_INITIALIZED);
	MAKE(device, real(context, flags, device, with, resolver), undo(*context));
}

CUresult cuGreenCtxCreate(void **green, void *resources, CUdevice device, unsigned flags)
{
	KERF_NEED(cuGreenCtxCreate, CUDA_ERROR_NOT_INITIALIZED);
	__typeof__(&cuGreenCtxDestroy) destroy = KERF_REAL(cuGreenCtxDestroy);
	MAKE(device, real(green, resources, device, flags), if (destroy) destroy(*green));
}

/* A primary context has a name only for who holds it. */
static CUcontext primary(CUdevice device, CUresult (*release)(CUdevice))
{
	CUcontext context = NULL;
	__typeof__(&cuDevicePrimaryCtxRetain) retain = KERF_REAL(cuDevicePrimaryCtxRetain);
	if (!active(device) || !retain || retain(&context, device) != CUDA_SUCCESS)
		return NULL;
	release(device);
	return context;
}

static CUresult release(CUdevice device, CUresult (*real)(CUdevice), CUresult (*unretain)(CUdevice))
{
	if (!real || !unretain)
		return CUDA_ERROR_NOT_INITIALIZED;
	CUcontext context = primary(device, unretain);
	CUresult ret = real(device);
	if (!ret && context && !active(device)) {
		ended(kerf_remove_context(context), CUDA_SUCCESS);
		kerf_pools(kerf_place(device));
	}
	return ret;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	__typeof__(&cuDevicePrimaryCtxRelease_v2) real = KERF_REAL(cuDevicePrimaryCtxRelease_v2);
	return release(device, real, real);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	__typeof__(&cuDevicePrimaryCtxRelease) real = KERF_REAL(cuDevicePrimaryCtxRelease);
	return release(device, real, real);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	return release(device, KERF_REAL(cuDevicePrimaryCtxReset_v2), KERF_REAL(cuDevicePrimaryCtxRelease_v2));
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return release(device, KERF_REAL(cuDevicePrimaryCtxReset), KERF_REAL(cuDevicePrimaryCtxRelease));
}
