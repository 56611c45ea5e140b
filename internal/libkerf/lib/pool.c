/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools. One holds more than is in use of it, so what is booked is what the driver says that it has reserved:
 * before an allocation the most that it may grow by, after it what it has grown to. What a device keeps for its
 * graphs is a pool, too, with other calls.
 */
#include "pool.h"

#define DISTRUST 64

static CUresult attribute(const struct kerf_pool *p, int of_pool, int of_graphs, cuuint64_t *now)
{
	__typeof__(&cuMemPoolGetAttribute) get = KERF_REAL(cuMemPoolGetAttribute);
	__typeof__(&cuDeviceGetGraphMemAttribute) get_graphs = KERF_REAL(cuDeviceGetGraphMemAttribute);
	if (p->graphs)
		return get_graphs ? get_graphs(p->graphs - 1, of_graphs, now) : CUDA_ERROR_NOT_INITIALIZED;
	return get && !p->gone ? get(p->pool, of_pool, now) : CUDA_ERROR_NOT_INITIALIZED;
}

static uint64_t reserved(const struct kerf_pool *p)
{
	cuuint64_t now = p->booked; /* what was taken for it stays taken where the driver does not tell */
	return attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now)
		? p->booked : now;
}

/* What is booked and not in use; 0 also where the driver does not tell. */
static uint64_t unused(const struct kerf_pool *p)
{
	cuuint64_t used = p->booked;
	if (attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used) || used > p->booked)
		return 0;
	return p->booked - used;
}

/* Memory that the driver has given is there, whether there was room for it or not. */
static void book(struct kerf_pool *p, uint64_t now)
{
	if (now < p->booked)
		kerf_give(p->place, p->booked - now);
	else if (now > p->booked)
		kerf_force(p->place, now - p->booked);
	p->booked = now;
}

bool kerf_pool_settle(struct kerf_pool *p)
{
	uint64_t now = reserved(p);
	bool less = now < p->booked;
	if (less)
		kerf_idle_forget(&p->idle);
	book(p, now);
	return less;
}

bool kerf_pool_serves(struct kerf_pool *p, uint64_t bytes)
{
	kerf_pool_settle(p);
	if (p->distrust) {
		p->distrust--;
		return false;
	}
	return kerf_idle_fits(&p->idle, kerf_pool_part(bytes)) && unused(p) >= kerf_pool_part(bytes);
}

uint64_t kerf_pool_growth(const struct kerf_pool *p, uint64_t bytes)
{
	const uint64_t unit = p->unit ? p->unit : KERF_POOL_UNIT;
	return (bytes + unit - 1) / unit * unit; /* bytes is at most half of what there are */
}

/* The pool has grown by so much for bytes. If that is no multiple of what was taken for its unit, or more than
 * expected, the unit is the largest power of 2 that divides it. */
static void learn(struct kerf_pool *p, uint64_t grown, uint64_t bytes)
{
	const uint64_t unit = p->unit ? p->unit : KERF_POOL_UNIT;
	if (grown % unit || grown > kerf_pool_growth(p, bytes))
		p->unit = grown & -grown;
}

/* Where e lies, and what is left of the memory that came with it. A pool that has grown has not used an idle part, and
 * one that has not grown has: else it has given memory back and grown again unseen, and what is known of it may be
 * wrong. */
static void put(struct kerf_pool *p, uint64_t grown, struct kerf_entry *e)
{
	e->origin = kerf_idle_take(&p->idle, e->key, e->bytes);
	if ((e->origin != 0) == (grown != 0))
		kerf_idle_forget(&p->idle);
	if (!e->origin)
		e->origin = e->key;
	if (grown > e->bytes)
		kerf_idle_add(&p->idle, e->key + e->bytes, grown - e->bytes, e->origin);
}

bool kerf_pool_grown(struct kerf_pool *p, uint64_t taken, struct kerf_entry *e)
{
	const uint64_t before = p->booked;
	p->booked += taken;
	const uint64_t now = reserved(p), grown = now > before ? now - before : 0, more = grown > taken ? grown - taken : 0;
	if (now < before || (grown && !taken))
		kerf_idle_forget(&p->idle);
	if (grown && !taken)
		p->distrust = DISTRUST;
	if (e && grown)
		learn(p, grown, e->bytes);
	bool fits = !more || kerf_take(p->place, more);
	if (fits)
		p->booked += more;
	else
		kerf_refused(p->place);
	book(p, now);
	if (e && fits)
		put(p, grown, e);
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

static void trim_to(const struct kerf_pool *p, uint64_t keep)
{
	__typeof__(&cuMemPoolTrimTo) trim = KERF_REAL(cuMemPoolTrimTo);
	__typeof__(&cuDeviceGraphMemTrim) of_graphs = KERF_REAL(cuDeviceGraphMemTrim);
	if (p->graphs && of_graphs)
		of_graphs(p->graphs - 1);
	else if (!p->graphs && !p->gone && trim)
		trim(p->pool, keep);
}

bool kerf_pool_trim(struct kerf_pool *p, uint64_t missing)
{
	pthread_mutex_lock(&p->lock);
	uint64_t had = p->booked;
	trim_to(p, had > missing ? had - missing : 0);
	kerf_pool_settle(p);
	/* The driver keeps at least what the call names, so it gives no part back that is larger than what is
	 * missing. */
	if (had - p->booked < missing && p->booked <= had && unused(p)) {
		trim_to(p, 0);
		kerf_pool_settle(p);
	}
	bool gave = p->booked < had;
	pthread_mutex_unlock(&p->lock);
	return gave;
}

static uint64_t unused_of(struct kerf_pool *p)
{
	pthread_mutex_lock(&p->lock);
	uint64_t n = unused(p);
	pthread_mutex_unlock(&p->lock);
	return n;
}

/* One pool that has all that is missing comes before several that have a part of it. */
bool kerf_take_from_pools(int place, uint64_t bytes)
{
	struct kerf_self *s = kerf_self();
	const int device = KERF_DEVICE(place);
	kerf_pools(device);
	if (kerf_take(place, bytes))
		return true;
	for (int several = 0; s && several < 2; several++)
		for (struct kerf_pool *p = s->pools; p; p = p->next) {
			uint64_t left = kerf_left_of(device), missing = bytes > left ? bytes - left : 0;
			uint64_t has = KERF_DEVICE(p->place) == device && missing ? unused_of(p) : 0;
			bool trims = has && several == (has < missing);
			if (trims)
				kerf_pool_trim(p, missing);
			if ((trims || !missing) && kerf_take(place, bytes))
				return true;
		}
	return false;
}

void kerf_pools(int place)
{
	struct kerf_self *s = kerf_self();
	for (struct kerf_pool *p = s ? s->pools : NULL; p; p = p->next) {
		if (place != KERF_ALL_PLACES && KERF_DEVICE(p->place) != place)
			continue;
		pthread_mutex_lock(&p->lock);
		kerf_pool_settle(p);
		pthread_mutex_unlock(&p->lock);
	}
}

/* With the lock held. True: the pool has given nothing back. */
static bool put_back(struct kerf_pool *p, const struct kerf_entry *part)
{
	p->held -= part->bytes;
	if (p->gone) {
		kerf_give(p->place, p->booked > p->held ? p->booked - p->held : 0);
		p->booked = p->booked > p->held ? p->held : p->booked;
	}
	return !kerf_pool_settle(p);
}

static void unlock(struct kerf_pool *p)
{
	bool rest = p->booked > p->held;
	pthread_mutex_unlock(&p->lock);
	if (rest)
		atomic_store_explicit(&kerf_self()->freed, true, memory_order_relaxed);
}

void kerf_pool_freed(const struct kerf_entry *part)
{
	pthread_mutex_lock(&part->pool->lock);
	put_back(part->pool, part);
	unlock(part->pool);
}

/* The driver may give the memory to another thread as soon as it has it. The lock keeps that thread out until the part
 * is known to be idle. */
CUresult kerf_pool_free(struct kerf_entry *part, CUstream stream, CUresult (*real)(CUdeviceptr, CUstream))
{
	struct kerf_pool *p = part->pool;
	pthread_mutex_lock(&p->lock);
	CUresult ret = real(part->key, stream);
	if (!ret && put_back(p, part))
		kerf_idle_add(&p->idle, part->key, part->bytes, part->origin);
	unlock(p);
	if (ret)
		kerf_put(part);
	else
		kerf_drop(part);
	return ret;
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
	struct kerf_pool *p = kerf_pool_find(pool);
	if (!p)
		return real(pool, keep);
	pthread_mutex_lock(&p->lock);
	CUresult ret = real(pool, keep);
	kerf_pool_settle(p);
	pthread_mutex_unlock(&p->lock);
	return ret;
}
