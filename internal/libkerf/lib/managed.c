/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Managed memory. It is charged in full when it is allocated, or rejected where the grant's limits page says so. Then
 * the device has no managed memory, and moves no memory of the host to itself, as far as a program can ask. The
 * variables of a module (__managed__) and what a kernel touches reach no function of the driver, so the library cannot
 * reject them.
 */
#include "block.h"
#include "pool.h"

static CUresult ask(const struct kerf_request *r, uint64_t *bytes)
{
	return KERF_REAL(cuMemAllocManaged)(r->ptr, *bytes, r->flags);
}

CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned flags)
{
	int place;
	if (!KERF_REAL(cuMemAllocManaged))
		return CUDA_ERROR_NOT_INITIALIZED;
	if (kerf_rejects_managed())
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult ret = kerf_here(&place);
	return ret ? ret
		: kerf_linear(&(struct kerf_request){ .ask = ask, .ptr = ptr, .bytes = bytes, .flags = flags },
			KERF_MANAGED(place));
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	KERF_NEED(cuDeviceGetAttribute, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(value, attribute, device);
	if (ret || !kerf_rejects_managed())
		return ret;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
	case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
	case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
		*value = 0;
	}
	return ret;
}

/* A driver that has managed memory also moves other memory of the host by these, where the kernel lets it. */
static bool rejects(const CUmemLocation *to, size_t n)
{
	for (size_t i = 0; kerf_rejects_managed() && i < n; i++)
		if (to[i].type == CU_MEM_LOCATION_TYPE_DEVICE)
			return true;
	return false;
}

#define PREFETCH(name, refused, params, args)                      \
	CUresult name params                                       \
	{                                                          \
		KERF_NEED(name, CUDA_ERROR_NOT_INITIALIZED);       \
		return (refused) ? CUDA_ERROR_NOT_SUPPORTED : real args; \
	}

#define ONE_V1 (CUdeviceptr ptr, size_t bytes, CUdevice to, CUstream stream)
#define ONE_V2 (CUdeviceptr ptr, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream)
#define BATCH (CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to, size_t *first, size_t places, \
	       unsigned long long flags, CUstream stream)
#define IN_BATCH (ptrs, sizes, n, to, first, places, flags, stream)

PREFETCH(cuMemPrefetchAsync, to >= 0 && kerf_rejects_managed(), ONE_V1, (ptr, bytes, to, stream))
PREFETCH(cuMemPrefetchAsync_ptsz, to >= 0 && kerf_rejects_managed(), ONE_V1, (ptr, bytes, to, stream))
PREFETCH(cuMemPrefetchAsync_v2, rejects(&to, 1), ONE_V2, (ptr, bytes, to, flags, stream))
PREFETCH(cuMemPrefetchAsync_v2_ptsz, rejects(&to, 1), ONE_V2, (ptr, bytes, to, flags, stream))
PREFETCH(cuMemPrefetchBatchAsync, rejects(to, to ? places : 0), BATCH, IN_BATCH)
PREFETCH(cuMemPrefetchBatchAsync_ptsz, rejects(to, to ? places : 0), BATCH, IN_BATCH)
PREFETCH(cuMemDiscardAndPrefetchBatchAsync, rejects(to, to ? places : 0), BATCH, IN_BATCH)
PREFETCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, rejects(to, to ? places : 0), BATCH, IN_BATCH)

/* Pools of managed memory came with CUDA 13.0. What is allocated from one may come to any device. */
static CUresult pool_for(CUresult (*real)(CUmemoryPool *, CUmemLocation *, int), CUmemoryPool *pool,
			 CUmemLocation *location,
			 int type)
{
	int place;
	bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
	if (managed && kerf_rejects_managed())
		return CUDA_ERROR_NOT_SUPPORTED;
	CUresult ret = real(pool, location, type);
	if (ret || !managed)
		return ret;
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		place = kerf_place(location->id);
	else if (kerf_here(&place))
		return ret; /* without a context there is no allocation, either */
	return kerf_pool_add(*pool, KERF_MANAGED(place)) ? ret : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	KERF_NEED(cuMemGetDefaultMemPool, CUDA_ERROR_NOT_INITIALIZED);
	return pool_for(real, pool, location, type);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	KERF_NEED(cuMemGetMemPool, CUDA_ERROR_NOT_INITIALIZED);
	return pool_for(real, pool, location, type);
}
