/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Managed memory. It is the host's memory at one address for both sides, and of its pages those are on the GPU
 * that a copy, a fill or a prefetch has brought there. The daemon pushes them out again when others need the
 * room; kernels run no code here and touch nothing, and what the host touches stays on the GPU as well.
 */
#include "cuda_core.h"

#include <stdlib.h>
#include <sys/mman.h>

struct managed {
	uint64_t pages, there; /* of GRANULARITY; there: how many are to be on the GPU */
	unsigned char on_gpu[];
};

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	CUcontext context;
	TRY(cuda_current(&context));
	TRY(cuda_prohibited());
	NEED(ptr && bytes && (flags == CU_MEM_ATTACH_GLOBAL || flags == 2)); /* 2: host */
	if (bytes > (uint64_t)1 << 46)
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint64_t whole = cuda_round(bytes), args[GPUSIM_NARGS] = { whole, context->id, GPUSIM_KIND_MANAGED };
	struct allocation a = { .bytes = bytes, .taken = whole, .context = context, .device = context->device,
				.origin = MANAGED };
	struct managed *m = calloc(1, sizeof *m + whole / GRANULARITY);
	void *host = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CUresult ret = m && host != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (!ret)
		ret = cuda_call(context->device, GPUSIM_OP_ALLOC, args, &a.handle, 1);
	if (!ret) {
		m->pages = whole / GRANULARITY;
		a.ptr = (CUdeviceptr)(uintptr_t)host;
		a.owner = m;
		ret = cuda_remember(&a);
		if (ret)
			cuda_call(context->device, GPUSIM_OP_FREE, (const uint64_t[GPUSIM_NARGS]){ a.handle }, NULL, 0);
	}
	if (ret) {
		free(m);
		if (host != MAP_FAILED)
			munmap(host, whole);
		return ret;
	}
	*ptr = a.ptr;
	return CUDA_SUCCESS;
}

void cuda_managed_end(const struct allocation *a)
{
	munmap((void *)(uintptr_t)a->ptr, a->taken);
	free(a->owner);
}

CUresult cuda_managed_move(const struct allocation *a, CUdeviceptr ptr, uint64_t bytes, bool to_gpu)
{
	struct managed *m = a->owner;
	uint64_t first = (ptr - a->ptr) / GRANULARITY, last = (ptr - a->ptr + bytes - 1) / GRANULARITY, there;
	pthread_mutex_lock(&cuda_mu);
	for (uint64_t i = first; i <= last; i++) {
		m->there += (uint64_t)to_gpu - (uint64_t)m->on_gpu[i];
		m->on_gpu[i] = to_gpu;
	}
	const uint64_t args[GPUSIM_NARGS] = { a->handle, m->there * GRANULARITY };
	pthread_mutex_unlock(&cuda_mu);
	return cuda_call(a->device, GPUSIM_OP_RESIDE, args, &there, 1);
}

static CUresult prefetch(CUdeviceptr ptr, size_t bytes, CUmemLocation to, CUstream stream, bool per_thread)
{
	struct allocation a;
	struct device *d;
	uint64_t when;
	TRY(cuda_stream_busy_until(stream, per_thread, &when));
	NEED(bytes && cuda_holds(ptr, bytes, &a) && a.origin == MANAGED);
	if (to.type == CU_MEM_LOCATION_TYPE_HOST)
		return cuda_managed_move(&a, ptr, bytes, false);
	NEED(to.type == CU_MEM_LOCATION_TYPE_DEVICE);
	TRY(cuda_device(to.id, &d));
	if (to.id != a.device)
		return CUDA_ERROR_NOT_SUPPORTED; /* it has one GPU here: that of its context */
	return cuda_managed_move(&a, ptr, bytes, true);
}

static CUmemLocation place(CUdevice device)
{
	return device == CU_DEVICE_CPU ? (CUmemLocation){ CU_MEM_LOCATION_TYPE_HOST, 0 }
				       : (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, device };
}

CUresult cuMemPrefetchAsync(CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream)
{
	return prefetch(ptr, bytes, place(device), stream, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream)
{
	return prefetch(ptr, bytes, place(device), stream, true);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream)
{
	NEED(flags == 0);
	return prefetch(ptr, bytes, to, stream, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr ptr, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream)
{
	NEED(flags == 0);
	return prefetch(ptr, bytes, to, stream, true);
}

/* Of a batch, first[i] is where what goes to to[i] begins. The legacy stream takes none. */
static CUresult batch(const CUdeviceptr *ptrs, const size_t *sizes, size_t n, const CUmemLocation *to,
		      const size_t *first, size_t places, unsigned long long flags, CUstream stream, bool per_thread)
{
	TRY(cuda_enter());
	NEED(ptrs && sizes && n && to && first && places && places <= n && first[0] == 0 && flags == 0);
	NEED(stream != CU_STREAM_LEGACY && (stream || per_thread));
	for (size_t i = 1; i < places; i++)
		NEED(first[i] > first[i - 1] && first[i] < n);
	for (size_t i = 0, place = 0; i < n; i++) {
		if (place + 1 < places && first[place + 1] == i)
			place++;
		TRY(prefetch(ptrs[i], sizes[i], to[place], stream, per_thread));
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to, size_t *first,
				 size_t places, unsigned long long flags, CUstream stream)
{
	return batch(ptrs, sizes, n, to, first, places, flags, stream, false);
}

CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to, size_t *first,
				      size_t places, unsigned long long flags, CUstream stream)
{
	return batch(ptrs, sizes, n, to, first, places, flags, stream, true);
}

/* Memory has no contents that could be discarded. */
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to, size_t *first,
					   size_t places, unsigned long long flags, CUstream stream)
{
	return batch(ptrs, sizes, n, to, first, places, flags, stream, false);
}

CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to,
						size_t *first, size_t places, unsigned long long flags,
						CUstream stream)
{
	return batch(ptrs, sizes, n, to, first, places, flags, stream, true);
}

/* Advice changes nothing here. */
CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t bytes, int advice, CUmemLocation location)
{
	struct allocation a;
	(void)location;
	TRY(cuda_enter());
	NEED(bytes && advice >= 1 && advice <= 6 && cuda_holds(ptr, bytes, &a) && a.origin == MANAGED);
	return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr ptr, size_t bytes, int advice, CUdevice device)
{
	return cuMemAdvise_v2(ptr, bytes, advice, place(device));
}
