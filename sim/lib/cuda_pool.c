/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory pools. A pool reserves segments, of which allocations are parts. What is freed stays in the pool as far as its
 * release threshold allows; a segment goes back as a whole, once nothing of it is in use and the program next waits.
 *
 * Seen of the default pool on an H200 with driver 580.159.04: it grows by whole 32 MiB, tells the bytes in use as they
 * were asked for, and with threshold 0 gives memory back when the program next waits for the stream. How the driver
 * divides its segments is not documented.
 */
#include "cuda_pool.h"

#include <stdatomic.h>
#include <stdlib.h>

#define CHUNK ((uint64_t)32 << 20)
#define PART 512

/* By device: the default pool, the one in its place, and that of graphs, which keeps all until it is trimmed. */
static struct CUmemPoolHandle_st defaults[GPUSIM_MAX_MINORS], graphs[GPUSIM_MAX_MINORS];
static CUmemoryPool current[GPUSIM_MAX_MINORS];
static CUmemoryPool created; /* entries are never taken out; all of it guarded by cuda_mu */

/* Held while a pool grows or gives back, and taken before cuda_mu: no allocation grows a pool while memory of it is on
 * its way back. That drivers do the same is assumed. It was not measured. */
static pthread_mutex_t changes = PTHREAD_MUTEX_INITIALIZER;

/* With changes held. What a pool tells of itself never is less than what the device counts. */
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

static CUresult gives_back(CUmemoryPool pool, uint64_t keep, bool least)
{
	pthread_mutex_lock(&changes);
	CUresult ret = give_back(pool, keep, least);
	pthread_mutex_unlock(&changes);
	return ret;
}

CUresult cuda_pool_trim(CUmemoryPool pool, uint64_t keep)
{
	return gives_back(pool, keep, true);
}

/*
 * With changes held. Adds bytes to a pool. What the pool only keeps makes room
 * on a full device: then nothing may have been added.
 */
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
	TRY(give_back(pool, 0, true));
	pthread_mutex_lock(&cuda_mu);
	bool trimmed = pool->memory.reserved < before;
	pthread_mutex_unlock(&cuda_mu);
	return trimmed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Of memory that other processes import, each allocation is a segment; and graphs have pages. */
static uint64_t part_of(const struct CUmemPoolHandle_st *pool, uint64_t bytes)
{
	if (pool->memory.whole || pool->memory.remaps)
		return cuda_round(bytes);
	return (bytes + PART - 1) / PART * PART;
}

/* By how much a pool grows that has to. With a bound, by less than a chunk if no more is left of it. 0: it may not. */
static uint64_t growth(const struct CUmemPoolHandle_st *pool, uint64_t missing)
{
	const uint64_t left = pool->max > pool->memory.reserved ? pool->max - pool->memory.reserved : 0;
	uint64_t more = missing;
	if (!pool->memory.whole && !pool->memory.remaps)
		more = (missing + CHUNK - 1) / CHUNK * CHUNK;
	if (!pool->max || more <= left)
		return more;
	return cuda_round(missing) <= left ? cuda_round(missing) : 0;
}

static uint64_t higher(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* With changes held. */
static CUresult take(struct allocation *a)
{
	CUmemoryPool pool = a->owner;
	if (a->bytes > UINT64_MAX - CHUNK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a->taken = part_of(pool, a->bytes);
	for (;;) { /* until it fits, or the device gives no more */
		pthread_mutex_lock(&cuda_mu);
		struct segments *m = &pool->memory;
		uint64_t missing = segments_missing(m, a->taken), more = missing ? growth(pool, missing) : 0;
		a->handle = missing ? segments_none : segments_take(m, a->taken);
		bool taken = a->handle != segments_none;
		pool->used += taken ? a->bytes : 0;
		pool->used_high = higher(pool->used_high, pool->used);
		pool->reserved_high = higher(pool->reserved_high, m->reserved);
		pthread_mutex_unlock(&cuda_mu);
		if (taken)
			return CUDA_SUCCESS;
		if (!more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		TRY(grow(pool, more));
	}
}

CUresult cuda_pool_take(struct allocation *a)
{
	pthread_mutex_lock(&changes);
	CUresult ret = take(a);
	pthread_mutex_unlock(&changes);
	return ret;
}

/* Something may have to be given back. */
static atomic_bool freed;

CUresult cuda_pool_put(const struct allocation *a)
{
	CUmemoryPool pool = a->owner;
	pthread_mutex_lock(&cuda_mu);
	segments_put(&pool->memory, a->handle, a->taken);
	pool->used -= a->bytes;
	bool live = pool->live;
	pthread_mutex_unlock(&cuda_mu);
	atomic_store(&freed, true);
	return live ? CUDA_SUCCESS : gives_back(pool, 0, false);
}

static void settle(CUmemoryPool pool)
{
	pthread_mutex_lock(&cuda_mu);
	uint64_t keep = pool->live ? pool->threshold : 0;
	pthread_mutex_unlock(&cuda_mu);
	gives_back(pool, keep, false);
}

CUresult cuda_pools_settle(CUresult ret)
{
	if (ret || !atomic_exchange(&freed, false))
		return ret;
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		settle(&defaults[i]);
	pthread_mutex_lock(&cuda_mu);
	CUmemoryPool p = created; /* new ones come before it */
	pthread_mutex_unlock(&cuda_mu);
	for (; p; p = p->next)
		settle(p);
	return ret;
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

static CUresult default_of(CUmemoryPool *pool, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(pool);
	*pool = &defaults[device];
	return fixed(*pool, device, 0, false);
}

/* On an H200 (driver 580.159), asking for the device's pool or the stream's device ended a capture that had no pool
 * yet. Which of the calls it was is not known, so none is accepted. */
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	TRY(cuda_prohibited());
	return default_of(pool, device);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	TRY(cuda_prohibited());
	return cuda_pool_of(pool, device);
}

CUresult cuda_pool_of(CUmemoryPool *pool, CUdevice device)
{
	TRY(default_of(pool, device));
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
