/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Green contexts: one of some of a GPU's multiprocessors. Each costs what a context does, and holds the primary
 * context, whose memory, streams and modules are those of the green one. Work is not kept to the multiprocessors.
 */
#include "cuda_core.h"

#include <stdlib.h>

#define OWN UINT32_C(0x6B677265)

struct CUdevResourceDesc_st {
	CUdevice device;
};

/* Kept for good, so that a destroyed one is an error and not a crash. */
struct CUgreenCtx_st {
	CUcontext context; /* NULL: destroyed */
	struct CUgreenCtx_st *next;
};

static struct CUgreenCtx_st *greens; /* guarded by cuda_mu */

/* What a resource hides. */
struct inside {
	uint32_t own;
	CUdevice device;
};

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(resource && type == CU_DEV_RESOURCE_TYPE_SM);
	const struct inside in = { OWN, device };
	memset(resource, 0, sizeof *resource);
	resource->type = type;
	resource->sm.smCount = (unsigned)d->sms;
	memcpy(resource->internal, &in, sizeof in);
	return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources, unsigned n)
{
	struct inside in, first;
	TRY(cuda_enter());
	NEED(desc && resources && n);
	memcpy(&first, resources[0].internal, sizeof first);
	for (unsigned i = 0; i < n; i++) {
		memcpy(&in, resources[i].internal, sizeof in);
		if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM || in.own != OWN || in.device != first.device)
			return CUDA_ERROR_INVALID_VALUE;
	}
	CUdevResourceDesc made = malloc(sizeof *made);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->device = first.device;
	*desc = made;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device, unsigned flags)
{
	struct device *d;
	CUcontext primary;
	TRY(cuda_device(device, &d));
	NEED(green && desc && desc->device == device && flags == CU_GREEN_CTX_DEFAULT_STREAM);
	CUgreenCtx g = calloc(1, sizeof *g);
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = cuDevicePrimaryCtxRetain(&primary, device);
	if (!ret && (ret = cuda_context_new(&g->context, 0, device, primary)))
		cuDevicePrimaryCtxRelease_v2(device);
	if (ret) {
		free(g);
		return ret;
	}
	pthread_mutex_lock(&cuda_mu);
	g->next = greens;
	greens = g;
	pthread_mutex_unlock(&cuda_mu);
	*green = g;
	return CUDA_SUCCESS;
}

/* With cuda_mu held. */
static bool known(CUgreenCtx green)
{
	for (CUgreenCtx g = greens; g; g = g->next)
		if (g == green)
			return g->context;
	return false;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	TRY(cuda_enter());
	pthread_mutex_lock(&cuda_mu);
	CUcontext context = known(green) ? green->context : NULL;
	if (context)
		green->context = NULL;
	pthread_mutex_unlock(&cuda_mu);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult ret = cuda_context_end(context), released = cuDevicePrimaryCtxRelease_v2(context->device);
	return ret ? ret : released;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
	TRY(cuda_enter());
	NEED(context);
	pthread_mutex_lock(&cuda_mu);
	bool is = known(green);
	if (is)
		*context = green->context;
	pthread_mutex_unlock(&cuda_mu);
	return is ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
