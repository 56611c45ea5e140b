/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Settings of contexts that change nothing in the simulator, and access between GPUs.
 */
#include "cuda_core.h"

#define LEAST_PRIORITY 0
#define GREATEST_PRIORITY (-5)

API(cuCtxGetCacheConfig, (int *config))
{
	CUcontext context;
	NEED(config);
	TRY(cuda_current(&context));
	*config = context->cache_config;
	return CUDA_SUCCESS;
}

API(cuCtxSetCacheConfig, (int config))
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(config >= 0 && config <= 3);
	context->cache_config = config;
	return CUDA_SUCCESS;
}

API(cuCtxGetSharedMemConfig, (int *config))
{
	CUcontext context;
	NEED(config);
	TRY(cuda_current(&context));
	*config = 1; /* banks of four bytes: no GPU since Kepler has others */
	return CUDA_SUCCESS;
}

API(cuCtxSetSharedMemConfig, (int config))
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(config >= 0 && config <= 2);
	return CUDA_SUCCESS;
}

API(cuCtxGetStreamPriorityRange, (int *least, int *greatest))
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (least)
		*least = LEAST_PRIORITY;
	if (greatest)
		*greatest = GREATEST_PRIORITY;
	return CUDA_SUCCESS;
}

API(cuCtxResetPersistingL2Cache, (void))
{
	CUcontext context;
	return cuda_current(&context);
}

/* Deprecated: a use of the current context more, and one fewer. The last one ends it. */
API(cuCtxAttach, (CUcontext *context, unsigned flags))
{
	CUcontext current;
	NEED(context && flags == 0);
	TRY(cuda_current(&current));
	if (current->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	current->refs++;
	*context = current;
	return CUDA_SUCCESS;
}

API(cuCtxDetach, (CUcontext context))
{
	CUcontext current;
	TRY(cuda_current(&current));
	if (context != current || current->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!current->refs)
		return cuda_context_end(current);
	current->refs--;
	return CUDA_SUCCESS;
}

API(cuCtxGetId, (CUcontext context, unsigned long long *id))
{
	NEED(id);
	if (!context)
		TRY(cuda_current(&context));
	else
		TRY(cuda_enter());
	*id = context->id;
	return CUDA_SUCCESS;
}

API(cuFlushGPUDirectRDMAWrites, (int target, int scope))
{
	(void)target;
	(void)scope;
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* The profiler is not there; programs mark what it should look at. */
API(cuProfilerStart, (void))
{
	CUcontext context;
	return cuda_current(&context);
}

API(cuProfilerStop, (void))
{
	CUcontext context;
	return cuda_current(&context);
}

static CUresult peer_of(CUcontext *context, CUcontext peer, CUcontext **at)
{
	TRY(cuda_current(context));
	if (!peer || peer == *context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*at = NULL;
	for (int i = 0; i < GPUSIM_MAX_MINORS && !*at; i++)
		if ((*context)->peers[i] == peer)
			*at = &(*context)->peers[i];
	return CUDA_SUCCESS;
}

API(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))
{
	CUcontext context, *at;
	int can;
	NEED(flags == 0);
	TRY(peer_of(&context, peer, &at));
	TRY(cuDeviceCanAccessPeer(&can, context->device, peer->device));
	if (!can)
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (at)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		if (!context->peers[i]) {
			context->peers[i] = peer;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_TOO_MANY_PEERS;
}

API(cuCtxDisablePeerAccess, (CUcontext peer))
{
	CUcontext context, *at;
	TRY(peer_of(&context, peer, &at));
	if (!at)
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	*at = NULL;
	return CUDA_SUCCESS;
}
