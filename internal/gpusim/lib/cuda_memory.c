/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Linear and stream-ordered memory. It has sizes and addresses and no contents: copies and fills check their
 * ranges and move nothing, and what is copied to the host is zeros.
 */
#include "cuda_core.h"

#include <stdlib.h>

struct allocation {
	CUdeviceptr ptr;
	uint64_t bytes; /* as asked for: what may be touched */
	CUcontext context;
	struct allocation *next;
};

#define BUCKETS 4096

static struct allocation *table[BUCKETS]; /* by address; guarded by cuda_mu */

static struct allocation **slot(CUdeviceptr ptr)
{
	return &table[(ptr / GRANULARITY * UINT64_C(0x9E3779B97F4A7C15)) >> 52];
}
_Static_assert(BUCKETS == 1 << (64 - 52), "the hash takes the top bits");

/* Everything is rounded up to 2 MiB. The real driver packs small allocations into such blocks and charges
 * large ones in them, so to the last block its account is the same. */
static CUresult allocate(CUdeviceptr *ptr, size_t bytes, uint64_t kind)
{
	CUcontext context;
	uint64_t address, args[GPUSIM_NARGS] = { 0 };
	TRY(cuda_current(&context));
	NEED(ptr && bytes);
	if (bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct allocation *a = malloc(sizeof *a);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	args[0] = (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
	args[1] = context->id;
	args[2] = kind;
	CUresult ret = cuda_call(context->device, GPUSIM_OP_ALLOC, args, &address, 1);
	if (ret) {
		free(a);
		return ret;
	}
	*a = (struct allocation){ .ptr = address, .bytes = bytes, .context = context };
	pthread_mutex_lock(&cuda_mu);
	a->next = *slot(address);
	*slot(address) = a;
	pthread_mutex_unlock(&cuda_mu);
	*ptr = address;
	return CUDA_SUCCESS;
}

static CUresult release(CUdeviceptr ptr)
{
	uint64_t args[GPUSIM_NARGS] = { ptr };
	TRY(cuda_enter());
	if (!ptr)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&cuda_mu);
	struct allocation **at = slot(ptr), *a;
	while (*at && (*at)->ptr != ptr)
		at = &(*at)->next;
	a = *at;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&cuda_mu);
	NEED(a);
	CUdevice device = a->context->device;
	free(a);
	return cuda_call(device, GPUSIM_OP_FREE, args, NULL, 0);
}

void cuda_forget_memory(CUcontext context)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct allocation **at = &table[i]; *at;) {
			struct allocation *a = *at;
			if (a->context != context) {
				at = &a->next;
				continue;
			}
			*at = a->next;
			free(a);
		}
}

/* Finds the allocation that holds [ptr, ptr+bytes). */
static bool holds(CUdeviceptr ptr, size_t bytes, struct allocation *out)
{
	bool found = false;
	pthread_mutex_lock(&cuda_mu);
	for (int i = 0; i < BUCKETS && !found; i++)
		for (struct allocation *a = table[i]; a && !found; a = a->next)
			if (ptr >= a->ptr && ptr - a->ptr < a->bytes && bytes <= a->bytes - (ptr - a->ptr)) {
				*out = *a;
				found = true;
			}
	pthread_mutex_unlock(&cuda_mu);
	return found;
}

static CUresult check(CUdeviceptr ptr, size_t bytes)
{
	struct allocation a;
	NEED(holds(ptr, bytes, &a) || cuda_mapped(ptr, bytes));
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	return allocate(ptr, bytes, GPUSIM_KIND_LINEAR);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	return release(ptr);
}

/* Stream-ordered memory is there at once and goes at once: the pool keeps nothing, as with its default
 * release threshold of 0 once the stream has come to rest. */
static CUresult allocate_async(CUdeviceptr *ptr, size_t bytes, CUstream stream, bool per_thread)
{
	uint64_t when;
	TRY(cuda_stream_busy_until(stream, per_thread, &when));
	return allocate(ptr, bytes, GPUSIM_KIND_ASYNC);
}

static CUresult release_async(CUdeviceptr ptr, CUstream stream, bool per_thread)
{
	uint64_t when;
	TRY(cuda_stream_busy_until(stream, per_thread, &when));
	NEED(ptr);
	return release(ptr);
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate_async(ptr, bytes, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate_async(ptr, bytes, stream, true);
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return release_async(ptr, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	return release_async(ptr, stream, true);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUcontext context;
	uint64_t v[4];
	TRY(cuda_current(&context));
	NEED(free && total);
	TRY(cuda_call(context->device, GPUSIM_OP_MEMORY, NULL, v, 4));
	*free = v[2];
	*total = v[0] - v[1];
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	CUcontext context;
	struct allocation a;
	TRY(cuda_current(&context));
	if (!holds(ptr, 1, &a))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = a.ptr;
	if (bytes)
		*bytes = a.bytes;
	return CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr ptr, unsigned char value, size_t count)
{
	CUcontext context;
	(void)value;
	TRY(cuda_current(&context));
	return count ? check(ptr, count) : CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (!bytes)
		return CUDA_SUCCESS;
	NEED(from);
	return check(to, bytes);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (!bytes)
		return CUDA_SUCCESS;
	NEED(to);
	TRY(check(from, bytes));
	memset(to, 0, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (!bytes)
		return CUDA_SUCCESS;
	TRY(check(from, bytes));
	return check(to, bytes);
}

/* The variants for per-thread default streams wait for another stream, and none of these waits for any. */
CUresult cuMemsetD8_v2_ptds(CUdeviceptr ptr, unsigned char value, size_t count)
{
	return cuMemsetD8_v2(ptr, value, count);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
	return cuMemcpyHtoD_v2(to, from, bytes);
}

CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
	return cuMemcpyDtoH_v2(to, from, bytes);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return cuMemcpyDtoD_v2(to, from, bytes);
}
