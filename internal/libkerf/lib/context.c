/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The end of contexts, with which what was allocated in them goes.
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
		kerf_pools(kerf_place(device), false);
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
