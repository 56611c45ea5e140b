/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What programs call of memory pools, and stream-ordered memory, which comes out of them. Memory is there at
 * once and is free in its pool at once, whatever its stream still does.
 */
#include "cuda_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#define SHARED_POOL "gpusim pool"

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	struct device *d;
	TRY(cuda_enter());
	NEED(pool && props && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED);
	NEED(!(props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED; /* host memory */
	TRY(cuda_device(props->location.id, &d));
	TRY(cuda_pool_new(pool, props->location.id));
	(*pool)->max = props->maxSize;
	(*pool)->shareable = props->handleTypes != 0;
	(*pool)->memory.whole = (*pool)->shareable; /* other processes import allocations one by one */
	return CUDA_SUCCESS;
}

/* 1 to 3 are about reuse between streams, which this driver does not distinguish: an int that is 1. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	TRY(cuda_pool(pool));
	NEED(value && attribute >= 1 && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH);
	uint64_t n = attribute <= 3 ? 0 : *(cuuint64_t *)value;
	bool high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
	NEED(attribute <= 3 || attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD || (high && n == 0));
	pthread_mutex_lock(&cuda_mu);
	if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		pool->threshold = n;
	else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
		pool->reserved_high = pool->memory.reserved;
	else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		pool->used_high = pool->used;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	TRY(cuda_pool(pool));
	NEED(value && attribute >= 1 && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH);
	if (attribute <= 3) {
		*(int *)value = 1;
		return CUDA_SUCCESS;
	}
	pthread_mutex_lock(&cuda_mu);
	const uint64_t all[] = { pool->threshold, pool->memory.reserved, pool->reserved_high, pool->used,
				 pool->used_high };
	pthread_mutex_unlock(&cuda_mu);
	*(cuuint64_t *)value = all[attribute - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	TRY(cuda_pool(pool));
	return cuda_pool_trim(pool, keep);
}

/* Other GPUs' access is checked and has no effect: there are no copies between GPUs. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count)
{
	struct device *d;
	TRY(cuda_pool(pool));
	NEED(list && count);
	for (size_t i = 0; i < count; i++) {
		NEED(list[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE);
		TRY(cuda_device(list[i].location.id, &d));
		NEED(list[i].location.id != pool->device || list[i].flags);
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
	struct device *d;
	TRY(cuda_pool(pool));
	NEED(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
	TRY(cuda_device(location->id, &d));
	*flags = location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
	return CUDA_SUCCESS;
}

static CUresult on_device(const CUmemLocation *location, int type)
{
	NEED(location && location->type == CU_MEM_LOCATION_TYPE_DEVICE);
	return type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	TRY(on_device(location, type));
	return cuDeviceGetDefaultMemPool(pool, location->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	TRY(on_device(location, type));
	return cuDeviceGetMemPool(pool, location->id);
}

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
	TRY(on_device(location, type));
	return cuDeviceSetMemPool(location->id, pool);
}

static CUresult allocate(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread)
{
	CUcontext context;
	uint64_t when;
	bool captured;
	TRY(cuda_stream_busy_until(stream, per_thread, &when));
	TRY(cuda_current(&context));
	NEED(ptr && bytes);
	if (!pool)
		TRY(cuda_pool_of(&pool, context->device));
	TRY(cuda_pool(pool));
	NEED(!pool->imported);
	TRY(cuda_capture_alloc(ptr, bytes, pool->device, stream, per_thread, &captured));
	if (captured)
		return CUDA_SUCCESS;
	struct allocation a = { .bytes = bytes, .device = pool->device, .origin = POOLED, .owner = pool };
	TRY(cuda_pool_take(&a));
	a.ptr = a.handle;
	CUresult ret = cuda_remember(&a);
	if (ret)
		cuda_pool_put(&a);
	else
		*ptr = a.ptr;
	return ret;
}

static CUresult release(CUdeviceptr ptr, CUstream stream, bool per_thread)
{
	struct allocation a;
	uint64_t when;
	bool captured;
	TRY(cuda_stream_busy_until(stream, per_thread, &when));
	NEED(ptr);
	TRY(cuda_capture_free(ptr, stream, per_thread, &captured));
	if (captured)
		return CUDA_SUCCESS;
	if (!cuda_holds(ptr, 1, &a) || a.ptr != ptr || a.origin != POOLED)
		return cuMemFree_v2(ptr);
	NEED(cuda_forget(ptr, &a));
	return cuda_pool_put(&a);
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate(ptr, bytes, NULL, stream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return allocate(ptr, bytes, NULL, stream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	NEED(pool);
	return allocate(ptr, bytes, pool, stream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	NEED(pool);
	return allocate(ptr, bytes, pool, stream, true);
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return release(ptr, stream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
	return release(ptr, stream, true);
}

/* A pool's file says which GPU it is of; what is in it is named pointer by pointer. */
struct shared_pool {
	char magic[16];
	int minor;
};

CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, int type, unsigned long long flags)
{
	struct device *d;
	TRY(cuda_pool(pool));
	NEED(handle && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && pool->shareable);
	TRY(cuda_device(pool->device, &d));
	const struct shared_pool s = { .magic = SHARED_POOL, .minor = d->minor };
	int fd = memfd_create("gpusim-pool", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (pwrite(fd, &s, sizeof s, 0) != (ssize_t)sizeof s) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*(int *)handle = fd;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type, unsigned long long flags)
{
	struct device *list;
	struct shared_pool s;
	TRY(cuda_enter());
	NEED(pool && flags == 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	int fd = (int)(intptr_t)handle;
	NEED(pread(fd, &s, sizeof s, 0) == (ssize_t)sizeof s && strncmp(s.magic, SHARED_POOL, sizeof s.magic) == 0);
	int n = cuda_devices(&list);
	for (int i = 0; i < n; i++)
		if (list[i].minor == s.minor) {
			TRY(cuda_pool_new(pool, i));
			(*pool)->imported = true;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
{
	struct allocation a;
	TRY(cuda_enter());
	NEED(data && cuda_holds(ptr, 1, &a) && a.ptr == ptr && a.origin == POOLED && a.handle == a.ptr);
	NEED(((CUmemoryPool)a.owner)->shareable);
	memset(data, 0, sizeof *data);
	memcpy(data->reserved, &a.ptr, sizeof a.ptr);
	memcpy(data->reserved + 8, &a.bytes, sizeof a.bytes);
	return CUDA_SUCCESS;
}

/* Charged to who exported it, and only to them. It is to be freed here before it is there (cuMemPoolImportPointer);
 * that it lives on where it was not is inferred, as for IPC handles. */
CUresult cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	uint64_t bytes;
	struct allocation a = { .origin = IMPORTED_POINTER };
	TRY(cuda_pool(pool));
	NEED(ptr && data && pool->imported);
	memcpy(&a.ptr, data->reserved, sizeof a.ptr);
	memcpy(&a.bytes, data->reserved + 8, sizeof a.bytes);
	a.device = pool->device;
	a.handle = a.ptr;
	const uint64_t args[GPUSIM_NARGS] = { a.ptr };
	TRY(cuda_call(pool->device, GPUSIM_OP_IMPORT, args, &bytes, 1));
	CUresult ret = cuda_remember(&a);
	if (ret)
		cuda_call(pool->device, GPUSIM_OP_FREE, args, NULL, 0);
	else
		*ptr = a.ptr;
	return ret;
}
