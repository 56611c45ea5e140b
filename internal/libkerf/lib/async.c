/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered allocation. What a stream captures is a graph's, and has memory from the graph's launch on.
 */
#include "block.h"
#include "pool.h"

static CUresult device_of(CUstream stream, CUdevice *device)
{
	__typeof__(&cuStreamGetDevice) get = KERF_REAL(cuStreamGetDevice);
	if (get && (uintptr_t)stream > 2 && get(stream, device) == CUDA_SUCCESS) /* 0 to 2 are default streams */
		return CUDA_SUCCESS;
	KERF_NEED(cuCtxGetDevice, CUDA_ERROR_NOT_INITIALIZED);
	return real(device);
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

/* The pool of a call. */
static CUresult pool_of(CUmemoryPool named, CUdevice device, struct kerf_pool **p)
{
	CUresult ret = CUDA_SUCCESS;
	__typeof__(&cuDeviceGetMemPool) get = KERF_REAL(cuDeviceGetMemPool);
	if (!named)
		ret = get ? get(&named, device) : CUDA_ERROR_NOT_INITIALIZED;
	if (ret)
		return ret;
	*p = kerf_pool_find(named);
	if (!*p)
		*p = kerf_pool_add(named, place_of(named, device));
	return *p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool capturing(CUstream stream, bool per_thread)
{
	int status = 0;
	__typeof__(&cuStreamIsCapturing) ask = per_thread ? KERF_REAL(cuStreamIsCapturing_ptsz)
		: KERF_REAL(cuStreamIsCapturing);
	return ask && ask(stream, &status) == CUDA_SUCCESS && status;
}

/* Memory that the stream has yet to give back comes back. */
static void wait_for(CUstream stream, bool per_thread)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* another stream's capture is not disturbed */
	__typeof__(&cuThreadExchangeStreamCaptureMode) exchange = KERF_REAL(cuThreadExchangeStreamCaptureMode);
	__typeof__(&cuStreamSynchronize) wait = per_thread ? KERF_REAL(cuStreamSynchronize_ptsz)
		: KERF_REAL(cuStreamSynchronize);
	bool exchanged = exchange && exchange(&mode) == CUDA_SUCCESS;
	if (wait)
		wait(stream);
	if (exchanged)
		exchange(&mode);
}

static bool take(struct kerf_pool *p, uint64_t bytes, CUstream stream, bool per_thread)
{
	if (kerf_take_with_room(p->place, bytes))
		return true;
	if (p->place == KERF_NO_PLACE)
		return false;
	wait_for(stream, per_thread);
	return kerf_take_or_make_room(p->place, bytes);
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

/* Gives back what the driver has given past what there is. */
static void undo(const struct call *c, struct kerf_pool *p, uint64_t bytes)
{
	__typeof__(&cuMemFreeAsync) real = c->per_thread ? KERF_REAL(cuMemFreeAsync_ptsz) : KERF_REAL(cuMemFreeAsync);
	real(*c->ptr, c->stream);
	wait_for(c->stream, c->per_thread);
	kerf_pool_trim(p, bytes);
}

enum outcome { DONE, NO_ROOM, GREW };

/* With the pool's lock held, and taken bytes reserved for what the pool grows by. */
static enum outcome serve(const struct call *c, struct kerf_pool *p, uint64_t taken, struct kerf_entry *e,
	CUresult *ret)
{
	*ret = ask(c);
	if (!*ret)
		e->key = *c->ptr;
	if (!kerf_pool_grown(p, taken, *ret ? NULL : e) && !*ret)
		return GREW;
	if (!*ret)
		p->held += e->bytes;
	return DONE;
}

static enum outcome from_pool(const struct call *c, struct kerf_pool *p, struct kerf_entry *e, CUresult *ret)
{
	enum outcome outcome = GREW;
	pthread_mutex_lock(&p->lock);
	if (kerf_pool_serves(p, c->bytes))
		outcome = serve(c, p, 0, e, ret);
	else
		*ret = CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t want = kerf_pool_growth(p, e->bytes);
	pthread_mutex_unlock(&p->lock);
	if (outcome == DONE)
		return DONE;
	if (!*ret)
		undo(c, p, e->bytes);
	if (!take(p, want, c->stream, c->per_thread))
		return NO_ROOM;
	pthread_mutex_lock(&p->lock);
	outcome = serve(c, p, want, e, ret);
	pthread_mutex_unlock(&p->lock);
	if (outcome == GREW)
		undo(c, p, e->bytes);
	return outcome;
}

/* While a stream is captured, most calls would end the capture: the driver is asked for the allocation first, and for
 * the device as a thread that is allowed to. The graph is charged when it is launched. */
static CUresult capture(const struct call *c)
{
	CUdevice device = 0;
	const struct kerf_pool *p = c->pool ? kerf_pool_find(c->pool) : NULL;
	CUresult ret = ask(c);
	if (ret || (p && p->host))
		return ret;
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	__typeof__(&cuThreadExchangeStreamCaptureMode) exchange = KERF_REAL(cuThreadExchangeStreamCaptureMode);
	bool exchanged = exchange && exchange(&mode) == CUDA_SUCCESS;
	ret = device_of(c->stream, &device);
	if (exchanged)
		exchange(&mode);
	return ret ? ret : kerf_captured(device, c->stream, c->per_thread, *c->ptr, kerf_round(c->bytes));
}

static CUresult allocate(const struct call *c)
{
	struct kerf_pool *p;
	CUdevice device = 0;
	if (capturing(c->stream, c->per_thread))
		return capture(c);
	CUresult ret = device_of(c->stream, &device);
	if (!ret)
		ret = pool_of(c->pool, device, &p);
	if (ret)
		return ret;
	if (p->host)
		return ask(c);
	struct kerf_entry *e = kerf_entry();
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->bytes = kerf_pool_part(c->bytes);
	if (from_pool(c, p, e, &ret) != DONE)
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	if (ret) {
		kerf_drop(e);
		return ret;
	}
	struct kerf_charge charge = { .entry = e, .bytes = e->bytes, .place = p->place };
	e->pool = p;
	kerf_keep(&charge, KERF_POINTER, *c->ptr);
	return ret;
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

static CUresult freed(CUdeviceptr ptr, CUstream stream, bool per_thread, CUresult (*real)(CUdeviceptr, CUstream))
{
	if (!real)
		return CUDA_ERROR_NOT_INITIALIZED;
	struct kerf_entry *e = kerf_remove(KERF_POINTER, ptr);
	if (e && e->pool)
		return kerf_pool_free(e, stream, real);
	kerf_block_leaves(e, true);
	CUresult ret = real(ptr, stream);
	if (!e && !ret)
		kerf_captured_free(stream, per_thread, ptr);
	return kerf_freed(e, ret);
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return freed(ptr, stream, false, KERF_REAL(cuMemFreeAsync));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	return freed(ptr, stream, true, KERF_REAL(cuMemFreeAsync_ptsz));
}
