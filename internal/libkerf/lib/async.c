/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered allocation. What a stream captures is a graph's, and has memory from the graph's launch on.
 */
#include "pool.h"

#define UNIT ((uint64_t)2 << 20) /* the least that pools grow by */

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

static CUresult allocate(const struct call *c)
{
	struct kerf_pool *p;
	CUdevice device = 0;
	CUresult ret = device_of(c->stream, &device);
	if (!ret)
		ret = pool_of(c->pool, device, &p);
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
	if (captured) {
		kerf_drop(e);
		ret = ask(c);
		return ret ? ret : kerf_captured(device, c->stream, c->per_thread, *c->ptr, bytes);
	}
	pthread_mutex_lock(&p->lock);
	ret = ask(c);
	bool fits = kerf_pool_grown(p, want);
	if (!ret && fits)
		p->held += bytes;
	pthread_mutex_unlock(&p->lock);
	if (ret || !fits)
		kerf_drop(e);
	if (!ret && !fits) {
		__typeof__(&cuMemFreeAsync) undo = c->per_thread ? KERF_REAL(cuMemFreeAsync_ptsz) : KERF_REAL(cuMemFreeAsync);
		undo(*c->ptr, c->stream);
		wait_for(c->stream, c->per_thread);
		kerf_pools(KERF_DEVICE(p->place), true);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!ret) {
		struct kerf_charge charge = { .entry = e, .bytes = bytes, .place = p->place };
		e->pool = p;
		kerf_keep(&charge, KERF_POINTER, *c->ptr);
	}
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
