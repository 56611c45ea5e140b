/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory pools. A pool reserves segments, of which allocations are parts. What is freed stays in the pool as far as its
 * release threshold allows; a segment goes back as a whole, once nothing of it is in use. The real driver gives it back when
 * it next waits for the stream; here that is at once. How the real driver divides its segments is not documented.
 */
#include "cuda_pool.h"

#include <stdlib.h>

/* By device: the default pool, the one in its place, and that of graphs, which keeps all until it is trimmed. */
static struct CUmemPoolHandle_st defaults[GPUSIM_MAX_MINORS], graphs[GPUSIM_MAX_MINORS];
static CUmemoryPool current[GPUSIM_MAX_MINORS];
static CUmemoryPool created; /* entries are never taken out; all of it guarded by cuda_mu */

/* What a pool tells of itself never is less than what the device counts. */
static CUresult give_back(CUmemoryPool pool, uint64_t keep, bool least)
{
	for (CUresult ret = CUDA_SUCCESS;;) {
		uint64_t bytes;
		pthread_mutex_lock(&cuda_mu);
		uint64_t args[GPUSIM_NARGS] = { segments_release(&pool->memory, keep, least, &bytes) };
		pthread_mutex_unlock(&cuda_mu);
		if (!args[0])
			return ret;
		CUresult gave = cuda_call(pool->device, GPUSIM_OP_FREE, args, NULL, 0);
		ret = ret ? ret : gave;
		pthread_mutex_lock(&cuda_mu);
		segments_released(&pool->memory, bytes);
		pthread_mutex_unlock(&cuda_mu);
	}
}

CUresult cuda_pool_trim(CUmemoryPool pool, uint64_t keep)
{
	return give_back(pool, keep, true);
}

/* Adds bytes to a pool. What the pool only keeps makes room on a full device: then nothing may have been added. */
static CUresult grow(CUmemoryPool pool, uint64_t bytes)
{
	uint64_t handle, args[GPUSIM_NARGS] = { bytes, 0, GPUSIM_KIND_ASYNC };
	CUresult ret = cuda_call(pool->device, GPUSIM_OP_ALLOC, args, &handle, 1);
	pthread_mutex_lock(&cuda_mu);
	uint64_t before = pool->memory.reserved;
	bool ok = !ret && segments_grow(&pool->memory, handle, bytes);
	pthread_mutex_unlock(&cuda_mu);
	if (ok)
		return CUDA_SUCCESS;
	if (!ret)
		cuda_call(pool->device, GPUSIM_OP_FREE, (const uint64_t[GPUSIM_NARGS]){ handle }, NULL, 0);
	if (ret != CUDA_ERROR_OUT_OF_MEMORY)
		return ret ? ret : CUDA_ERROR_OUT_OF_MEMORY;
	TRY(cuda_pool_trim(pool, 0));
	pthread_mutex_lock(&cuda_mu);
	bool trimmed = pool->memory.reserved < before;
	pthread_mutex_unlock(&cuda_mu);
	return trimmed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t higher(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

CUresult cuda_pool_take(CUmemoryPool pool, size_t bytes, uint64_t *handle, uint64_t *taken)
{
	if (bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const uint64_t whole = cuda_round(bytes);
	for (;;) { /* until it fits, or the device gives no more */
		pthread_mutex_lock(&cuda_mu);
		struct segments *m = &pool->memory;
		uint64_t more = segments_missing(m, whole);
		bool full = more && pool->max && (more > pool->max || m->reserved > pool->max - more);
		*handle = more ? segments_none : segments_take(m, whole);
		pool->used_high = higher(pool->used_high, m->used);
		pool->reserved_high = higher(pool->reserved_high, m->reserved);
		pthread_mutex_unlock(&cuda_mu);
		*taken = whole;
		if (*handle != segments_none)
			return CUDA_SUCCESS;
		if (full || !more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		TRY(grow(pool, more));
	}
}

CUresult cuda_pool_put(CUmemoryPool pool, uint64_t handle, uint64_t taken)
{
	pthread_mutex_lock(&cuda_mu);
	segments_put(&pool->memory, handle, taken);
	uint64_t keep = pool->live ? pool->threshold : 0;
	pthread_mutex_unlock(&cuda_mu);
	return give_back(pool, keep, false);
}

static CUresult fixed(struct CUmemPoolHandle_st *pool, CUdevice device, uint64_t threshold, bool remaps)
{
	pthread_mutex_lock(&cuda_mu);
	if (!pool->live) {
		pool->live = true;
		pool->device = device;
		pool->threshold = threshold;
		pool->memory.remaps = remaps;
	}
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_graph_pool(CUmemoryPool *pool, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	*pool = &graphs[device];
	return fixed(*pool, device, UINT64_MAX, true);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(pool);
	*pool = &defaults[device];
	return fixed(*pool, device, 0, false);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	TRY(cuDeviceGetDefaultMemPool(pool, device));
	pthread_mutex_lock(&cuda_mu);
	if (current[device] && current[device]->live)
		*pool = current[device];
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_pool(CUmemoryPool pool)
{
	TRY(cuda_enter());
	bool ok = pool && pool >= defaults && pool < defaults + GPUSIM_MAX_MINORS;
	pthread_mutex_lock(&cuda_mu);
	for (CUmemoryPool p = created; p && !ok; p = p->next)
		ok = p == pool;
	ok = ok && pool->live;
	pthread_mutex_unlock(&cuda_mu);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	TRY(cuda_pool(pool));
	NEED(pool->device == device && !pool->imported);
	pthread_mutex_lock(&cuda_mu);
	current[device] = pool;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_pool_new(CUmemoryPool *pool, CUdevice device)
{
	CUmemoryPool p = calloc(1, sizeof *p);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->live = true;
	p->device = device;
	pthread_mutex_lock(&cuda_mu);
	p->next = created;
	created = p;
	pthread_mutex_unlock(&cuda_mu);
	*pool = p;
	return CUDA_SUCCESS;
}

/* A pool goes when the last of its memory has been freed; its name goes at once. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	TRY(cuda_pool(pool));
	NEED(pool < defaults || pool >= defaults + GPUSIM_MAX_MINORS);
	pthread_mutex_lock(&cuda_mu);
	pool->live = false;
	pthread_mutex_unlock(&cuda_mu);
	return cuda_pool_trim(pool, 0);
}

static void reset(CUmemoryPool pool)
{
	pthread_mutex_lock(&cuda_mu);
	segments_reset(&pool->memory);
	pthread_mutex_unlock(&cuda_mu);
	cuda_pool_trim(pool, 0);
}

void cuda_pools_reset(CUdevice device)
{
	cuda_forget_pooled(device);
	reset(&defaults[device]);
	reset(&graphs[device]);
	pthread_mutex_lock(&cuda_mu);
	CUmemoryPool p = created; /* new ones come before it */
	pthread_mutex_unlock(&cuda_mu);
	for (; p; p = p->next)
		if (p->device == device)
			reset(p);
}
