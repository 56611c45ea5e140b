/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory pools. A pool holds whole blocks, each in use or free; a free one is used again for whatever fits it
 * well. What is freed stays in the pool as far as its release threshold allows. The real driver gives the rest
 * back when it next waits for the stream; here that is at once.
 */
#include "cuda_pool.h"

#include <stdlib.h>

struct block {
	uint64_t handle, bytes;
	struct block *next;
};

/* By device: the default pool, the one in its place, and that of graphs, which keeps all until it is trimmed. */
static struct CUmemPoolHandle_st defaults[GPUSIM_MAX_MINORS], graphs[GPUSIM_MAX_MINORS];
static CUmemoryPool current[GPUSIM_MAX_MINORS];
static CUmemoryPool created; /* entries are never taken out; all of it guarded by cuda_mu */

/* With cuda_mu held: takes free blocks out until no more than keep is reserved, or none is free. */
static struct block *cut(CUmemoryPool pool, uint64_t keep)
{
	struct block *out = NULL;
	while (pool->free && pool->reserved > keep) {
		struct block *b = pool->free;
		pool->free = b->next;
		pool->reserved -= b->bytes;
		b->next = out;
		out = b;
	}
	return out;
}

static CUresult give_back(CUdevice device, struct block *list)
{
	CUresult ret = CUDA_SUCCESS;
	while (list) {
		struct block *b = list;
		uint64_t args[GPUSIM_NARGS] = { b->handle };
		CUresult gave = cuda_call(device, GPUSIM_OP_FREE, args, NULL, 0);
		ret = ret ? ret : gave;
		list = b->next;
		free(b);
	}
	return ret;
}

CUresult cuda_pool_trim(CUmemoryPool pool, uint64_t keep)
{
	pthread_mutex_lock(&cuda_mu);
	struct block *out = cut(pool, keep);
	pthread_mutex_unlock(&cuda_mu);
	return give_back(pool->device, out);
}

/* With cuda_mu held: the smallest free block that bytes fit in without half of it being wasted. */
static struct block *reuse(CUmemoryPool pool, uint64_t bytes)
{
	struct block **best = NULL;
	for (struct block **at = &pool->free; *at; at = &(*at)->next)
		if ((*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes && (!best || (*at)->bytes < (*best)->bytes))
			best = at;
	if (!best)
		return NULL;
	struct block *b = *best;
	*best = b->next;
	return b;
}

CUresult cuda_pool_take(CUmemoryPool pool, size_t bytes, uint64_t *handle, uint64_t *taken)
{
	if (bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t whole = cuda_round(bytes), args[GPUSIM_NARGS] = { whole, 0, GPUSIM_KIND_ASYNC };
	pthread_mutex_lock(&cuda_mu);
	struct block *b = reuse(pool, whole);
	bool keeps = pool->free;
	bool full = !b && pool->max && (whole > pool->max || pool->reserved > pool->max - whole);
	pthread_mutex_unlock(&cuda_mu);
	if (full)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (b) {
		*handle = b->handle;
		*taken = b->bytes;
		free(b);
	} else {
		CUresult ret = cuda_call(pool->device, GPUSIM_OP_ALLOC, args, handle, 1);
		if (ret == CUDA_ERROR_OUT_OF_MEMORY && keeps) { /* what the pool only keeps makes room */
			TRY(cuda_pool_trim(pool, 0));
			ret = cuda_call(pool->device, GPUSIM_OP_ALLOC, args, handle, 1);
		}
		TRY(ret);
		*taken = whole;
	}
	pthread_mutex_lock(&cuda_mu);
	pool->used += *taken;
	pool->reserved += b ? 0 : whole;
	pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
	pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved : pool->reserved_high;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_pool_put(CUmemoryPool pool, uint64_t handle, uint64_t taken)
{
	struct block *b = malloc(sizeof *b);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*b = (struct block){ .handle = handle, .bytes = taken };
	pthread_mutex_lock(&cuda_mu);
	pool->used -= taken;
	b->next = pool->free;
	pool->free = b;
	struct block *out = cut(pool, pool->live ? pool->threshold : 0);
	pthread_mutex_unlock(&cuda_mu);
	return give_back(pool->device, out);
}

static CUresult fixed(struct CUmemPoolHandle_st *pool, CUdevice device, uint64_t threshold)
{
	pthread_mutex_lock(&cuda_mu);
	if (!pool->live) {
		pool->live = true;
		pool->device = device;
		pool->threshold = threshold;
	}
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_graph_pool(CUmemoryPool *pool, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	*pool = &graphs[device];
	return fixed(*pool, device, UINT64_MAX);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(pool);
	*pool = &defaults[device];
	return fixed(*pool, device, 0);
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
	pool->reserved = pool->reserved > pool->used ? pool->reserved - pool->used : 0;
	pool->used = 0;
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
