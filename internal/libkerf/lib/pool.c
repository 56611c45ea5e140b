/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools. One holds more than is in use of it, so what is booked is what the driver says that it has reserved:
 * before an allocation the most that it may grow by, after it what it has grown to. What a device keeps for its
 * graphs is a pool, too, with calls of its own.
 */
#include "pool.h"

static uint64_t reserved(const struct kerf_pool *p)
{
	cuuint64_t now;
	__typeof__(&cuMemPoolGetAttribute) get = KERF_REAL(cuMemPoolGetAttribute);
	__typeof__(&cuDeviceGetGraphMemAttribute) of_graphs = KERF_REAL(cuDeviceGetGraphMemAttribute);
	CUresult ret = CUDA_ERROR_NOT_INITIALIZED;
	if (p->graphs && of_graphs)
		ret = of_graphs(p->graphs - 1, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now);
	else if (!p->graphs && !p->gone && get)
		ret = get(p->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &now);
	return ret ? p->booked : now;
}

/* Memory that the driver has given is there, whether there was room for it or not. */
void kerf_pool_settle(struct kerf_pool *p)
{
	uint64_t now = reserved(p);
	if (now < p->booked)
		kerf_give(p->place, p->booked - now);
	else if (now > p->booked)
		kerf_force(p->place, now - p->booked);
	p->booked = now;
}

bool kerf_pool_grown(struct kerf_pool *p, uint64_t taken)
{
	p->booked += taken;
	uint64_t now = reserved(p), more = now > p->booked ? now - p->booked : 0;
	if (more > p->slack)
		p->slack = more;
	bool fits = !more || kerf_take(p->place, more);
	if (fits)
		p->booked += more;
	else
		kerf_refused(p->place);
	kerf_pool_settle(p);
	return fits;
}

static struct kerf_pool *look(CUmemoryPool pool, CUdevice graphs)
{
	struct kerf_self *s = kerf_self();
	for (struct kerf_pool *p = s ? s->pools : NULL; p; p = p->next)
		if (p->pool == pool && p->graphs == graphs && !p->gone)
			return p;
	return NULL;
}

/* Pools are few and are never taken out of the list: what was allocated from one refers to it. */
static struct kerf_pool *add(CUmemoryPool pool, CUdevice graphs, int place)
{
	struct kerf_self *s = kerf_self();
	struct kerf_pool *p = kerf_memory(sizeof *p), *other;
	if (!p)
		return NULL;
	p->pool = pool;
	p->graphs = graphs;
	p->place = place;
	pthread_mutex_lock(&s->registering);
	other = look(pool, graphs);
	if (!other) {
		p->next = s->pools;
		s->pools = p;
	}
	pthread_mutex_unlock(&s->registering);
	return other ? other : p;
}

struct kerf_pool *kerf_pool_find(CUmemoryPool pool)
{
	return look(pool, 0);
}

struct kerf_pool *kerf_pool_add(CUmemoryPool pool, int place)
{
	return add(pool, 0, place);
}

struct kerf_pool *kerf_pool_of_graphs(CUdevice device)
{
	struct kerf_pool *p = look(NULL, device + 1);
	return p ? p : add(NULL, device + 1, kerf_place(device));
}

static void cut(const struct kerf_pool *p)
{
	__typeof__(&cuMemPoolTrimTo) trim = KERF_REAL(cuMemPoolTrimTo);
	__typeof__(&cuDeviceGraphMemTrim) of_graphs = KERF_REAL(cuDeviceGraphMemTrim);
	if (p->graphs && of_graphs)
		of_graphs(p->graphs - 1);
	else if (!p->graphs && trim)
		trim(p->pool, 0);
}

void kerf_pools(int place, bool trim)
{
	struct kerf_self *s = kerf_self();
	for (struct kerf_pool *p = s ? s->pools : NULL; p; p = p->next) {
		if (place != KERF_ALL_PLACES && KERF_DEVICE(p->place) != place)
			continue;
		pthread_mutex_lock(&p->lock);
		if (trim && !p->gone)
			cut(p);
		kerf_pool_settle(p);
		pthread_mutex_unlock(&p->lock);
	}
}

void kerf_pool_freed(struct kerf_pool *p, uint64_t bytes)
{
	pthread_mutex_lock(&p->lock);
	p->held -= bytes;
	if (p->gone) {
		kerf_give(p->place, p->booked > p->held ? p->booked - p->held : 0);
		p->booked = p->booked > p->held ? p->held : p->booked;
	}
	kerf_pool_settle(p);
	bool rest = p->booked > p->held;
	pthread_mutex_unlock(&p->lock);
	if (rest)
		atomic_store_explicit(&kerf_self()->freed, true, memory_order_relaxed);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	KERF_NEED(cuMemPoolCreate, CUDA_ERROR_NOT_INITIALIZED);
	bool managed = props && props->type == CU_MEM_ALLOCATION_TYPE_MANAGED;
	if (managed && kerf_rejects_managed())
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult ret = real(pool, props);
	if (ret)
		return ret;
	bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE, host = !on_device && !managed;
	int place = on_device ? kerf_place(props->location.id) : KERF_NO_PLACE;
	if (managed && !on_device) /* it may come to any device */
		kerf_here(&place);
	struct kerf_pool *p = kerf_pool_add(*pool, managed ? KERF_MANAGED(place) : place);
	if (p)
		p->host = host;
	else if (KERF_REAL(cuMemPoolDestroy))
		KERF_REAL(cuMemPoolDestroy)(*pool);
	return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* What is in use outlives its pool. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	KERF_NEED(cuMemPoolDestroy, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_pool *p = kerf_pool_find(pool);
	if (!p)
		return real(pool);
	pthread_mutex_lock(&p->lock);
	CUresult ret = real(pool);
	if (!ret) {
		p->gone = true;
		uint64_t rest = p->booked > p->held ? p->held : p->booked;
		kerf_give(p->place, p->booked - rest);
		p->booked = rest;
	}
	pthread_mutex_unlock(&p->lock);
	return ret;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	KERF_NEED(cuMemPoolTrimTo, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(pool, keep);
	struct kerf_pool *p = kerf_pool_find(pool);
	if (p) {
		pthread_mutex_lock(&p->lock);
		kerf_pool_settle(p);
		pthread_mutex_unlock(&p->lock);
	}
	return ret;
}
