/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory. A pool holds more than is in use of it, so what is booked is what the driver says that
 * it has reserved: before an allocation the most that the pool may grow by, after it what it has grown to.
 */
#include "kerf.h"

#define UNIT ((uint64_t)2 << 20) /* the least that pools grow by */

struct kerf_pool {
	struct kerf_pool *next;
	CUmemoryPool pool;
	pthread_mutex_t lock;
	uint64_t booked, held; /* held: in use of it, by what was asked for */
	uint64_t slack;        /* by how much it has grown past what was expected */
	int place;
	bool gone, host;
};

static uint64_t reserved(const struct kerf_pool *p, uint64_t otherwise)
{
	cuuint64_t now;
	__typeof__(&cuMemPoolGetAttribute) get = KERF_REAL(cuMemPoolGetAttribute);
	if (p->gone || !get || get(p->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &now) != CUDA_SUCCESS)
		return otherwise;
	return now;
}

/* With the pool's lock held: gives back what of the booked the pool does not have. */
static void settle(struct kerf_pool *p)
{
	uint64_t now = reserved(p, p->booked);
	if (now < p->booked) {
		kerf_give(p->place, p->booked - now);
		p->booked = now;
	}
}

static struct kerf_pool *find(CUmemoryPool pool)
{
	struct kerf_self *s = kerf_self();
	for (struct kerf_pool *p = s ? s->pools : NULL; p; p = p->next)
		if (p->pool == pool && !p->gone)
			return p;
	return NULL;
}

/* Pools are few and are never taken out of the list: what was allocated from one refers to it. */
static struct kerf_pool *add(CUmemoryPool pool, int place)
{
	struct kerf_self *s = kerf_self();
	struct kerf_pool *p = kerf_memory(sizeof *p), *other;
	if (!p)
		return NULL;
	p->pool = pool;
	p->place = place;
	pthread_mutex_lock(&s->registering);
	other = find(pool);
	if (!other) {
		p->next = s->pools;
		s->pools = p;
	}
	pthread_mutex_unlock(&s->registering);
	return other ? other : p;
}

static int place_of(CUmemoryPool pool, CUdevice hint)
{
	int devices = 0;
	CUmemoryPool candidate;
	__typeof__(&cuDeviceGetCount) count = KERF_REAL(cuDeviceGetCount);
	__typeof__(&cuDeviceGetDefaultMemPool) get = KERF_REAL(cuDeviceGetDefaultMemPool);
	if (count && get && count(&devices) == CUDA_SUCCESS)
		for (CUdevice d = 0; d < devices; d++)
			if (get(&candidate, d) == CUDA_SUCCESS && candidate == pool)
				return kerf_place(d);
	return kerf_place(hint);
}

static CUresult device_of(CUstream stream, CUdevice *device)
{
	__typeof__(&cuStreamGetDevice) get = KERF_REAL(cuStreamGetDevice);
	if (get && (uintptr_t)stream > 2 && get(stream, device) == CUDA_SUCCESS) /* 0 to 2 are default streams */
		return CUDA_SUCCESS;
	KERF_NEED(cuCtxGetDevice, CUDA_ERROR_NOT_INITIALIZED);
	return real(device);
}

/* The pool of a call. */
static CUresult pool_of(CUmemoryPool named, CUstream stream, struct kerf_pool **p)
{
	CUdevice device = 0;
	CUresult ret = device_of(stream, &device);
	__typeof__(&cuDeviceGetMemPool) get = KERF_REAL(cuDeviceGetMemPool);
	if (!ret && !named)
		ret = get ? get(&named, device) : CUDA_ERROR_NOT_INITIALIZED;
	if (ret)
		return ret;
	*p = find(named);
	if (!*p)
		*p = add(named, place_of(named, device));
	return *p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool capturing(CUstream stream, bool per_thread)
{
	int status = 0;
	__typeof__(&cuStreamIsCapturing) ask = per_thread ? KERF_REAL(cuStreamIsCapturing_ptsz) : KERF_REAL(cuStreamIsCapturing);
	return ask && ask(stream, &status) == CUDA_SUCCESS && status;
}

/* Memory that the stream has yet to give back comes back. */
static void wait_for(CUstream stream, bool per_thread)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* another stream's capture is not disturbed */
	__typeof__(&cuThreadExchangeStreamCaptureMode) exchange = KERF_REAL(cuThreadExchangeStreamCaptureMode);
	__typeof__(&cuStreamSynchronize) wait = per_thread ? KERF_REAL(cuStreamSynchronize_ptsz) : KERF_REAL(cuStreamSynchronize);
	bool exchanged = exchange && exchange(&mode) == CUDA_SUCCESS;
	if (wait)
		wait(stream);
	if (exchanged)
		exchange(&mode);
}

void kerf_pools(int place, bool trim)
{
	struct kerf_self *s = kerf_self();
	__typeof__(&cuMemPoolTrimTo) cut = KERF_REAL(cuMemPoolTrimTo);
	for (struct kerf_pool *p = s ? s->pools : NULL; p; p = p->next) {
		if (p->place != place || p->gone)
			continue;
		pthread_mutex_lock(&p->lock);
		if (trim && cut && !p->gone)
			cut(p->pool, 0);
		settle(p);
		pthread_mutex_unlock(&p->lock);
	}
}

static bool take(struct kerf_pool *p, uint64_t bytes, CUstream stream, bool per_thread)
{
	if (kerf_take_or_make_room(p->place, bytes))
		return true;
	if (p->place == KERF_NO_PLACE)
		return false;
	wait_for(stream, per_thread);
	return kerf_take_or_make_room(p->place, bytes);
}

/* With the pool's lock held, after taken more bytes were booked than it had: books what it has. False: it has
 * grown past what there is. */
static bool grown(struct kerf_pool *p, uint64_t taken)
{
	uint64_t booked = p->booked + taken, now = reserved(p, booked);
	p->booked = booked;
	if (now <= booked) {
		settle(p);
		return true;
	}
	if (now - booked > p->slack)
		p->slack = now - booked;
	if (!kerf_take(p->place, now - booked))
		return false;
	p->booked = now;
	return true;
}

struct call {
	CUdeviceptr *ptr;
	size_t bytes;
	CUmemoryPool pool; /* NULL: that of the device */
	CUstream stream;
	bool per_thread;
};

static CUresult ask(const struct call *c)
{
	if (c->pool) {
		__typeof__(&cuMemAllocFromPoolAsync) real =
			c->per_thread ? KERF_REAL(cuMemAllocFromPoolAsync_ptsz) : KERF_REAL(cuMemAllocFromPoolAsync);
		return real ? real(c->ptr, c->bytes, c->pool, c->stream) : CUDA_ERROR_NOT_INITIALIZED;
	}
	__typeof__(&cuMemAllocAsync) real = c->per_thread ? KERF_REAL(cuMemAllocAsync_ptsz) : KERF_REAL(cuMemAllocAsync);
	return real ? real(c->ptr, c->bytes, c->stream) : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult allocate(const struct call *c)
{
	struct kerf_pool *p;
	CUresult ret = pool_of(c->pool, c->stream, &p);
	if (ret)
		return ret;
	if (p->host)
		return ask(c);
	struct kerf_entry *e = kerf_entry();
	uint64_t bytes = c->bytes > UINT64_MAX / 2 ? UINT64_MAX / 2 : (c->bytes + UNIT - 1) / UNIT * UNIT, want = bytes + p->slack;
	bool captured = capturing(c->stream, c->per_thread);
	if (!e || (!captured && !take(p, want, c->stream, c->per_thread))) {
		if (e)
			kerf_drop(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (captured) { /* it has memory from the graph's launch on */
		kerf_drop(e);
		return ask(c);
	}
	pthread_mutex_lock(&p->lock);
	ret = ask(c);
	bool fits = grown(p, want);
	if (!ret && fits)
		p->held += bytes;
	pthread_mutex_unlock(&p->lock);
	if (ret || !fits)
		kerf_drop(e);
	if (!ret && !fits) {
		__typeof__(&cuMemFreeAsync) undo = c->per_thread ? KERF_REAL(cuMemFreeAsync_ptsz) : KERF_REAL(cuMemFreeAsync);
		undo(*c->ptr, c->stream);
		wait_for(c->stream, c->per_thread);
		kerf_pools(p->place, true);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!ret) {
		struct kerf_charge charge = { .entry = e, .bytes = bytes, .place = p->place };
		e->pool = p;
		kerf_keep(&charge, KERF_POINTER, *c->ptr);
	}
	return ret;
}

void kerf_pool_freed(struct kerf_pool *p, uint64_t bytes)
{
	pthread_mutex_lock(&p->lock);
	p->held -= bytes;
	if (p->gone) {
		kerf_give(p->place, p->booked > p->held ? p->booked - p->held : 0);
		p->booked = p->booked > p->held ? p->held : p->booked;
	}
	settle(p);
	pthread_mutex_unlock(&p->lock);
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate(&(struct call){ ptr, bytes, NULL, stream, false });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate(&(struct call){ ptr, bytes, NULL, stream, true });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return allocate(&(struct call){ ptr, bytes, pool, stream, false });
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return allocate(&(struct call){ ptr, bytes, pool, stream, true });
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	KERF_NEED(cuMemFreeAsync, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_POINTER, ptr);
	return kerf_freed(e, real(ptr, stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	KERF_NEED(cuMemFreeAsync_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_POINTER, ptr);
	return kerf_freed(e, real(ptr, stream));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	KERF_NEED(cuMemPoolCreate, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(pool, props);
	if (ret)
		return ret;
	bool host = props->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
	struct kerf_pool *p = add(*pool, host ? KERF_NO_PLACE : kerf_place(props->location.id));
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
	struct kerf_pool *p = find(pool);
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
	struct kerf_pool *p = find(pool);
	if (p) {
		pthread_mutex_lock(&p->lock);
		settle(p);
		pthread_mutex_unlock(&p->lock);
	}
	return ret;
}
