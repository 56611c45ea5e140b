/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A driver that does nothing, so that what the library adds can be measured: one GPU, whose UUID is 16 bytes of 1,
 * and memory that is numbers.
 */
#include <stdatomic.h>
#include <string.h>

#include "cuda_abi.h"

static _Atomic uint64_t next = 1 << 21;

CUresult cuInit(unsigned flags)
{
	return (int)flags;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	*context = (CUcontext)(uintptr_t)(device + 16);
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	*context = (CUcontext)(uintptr_t)16;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	*device = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	memset(uuid, device + 1, sizeof *uuid);
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	*ptr = atomic_fetch_add(&next, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	return ptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count)
{
	*count = 1;
	return CUDA_SUCCESS;
}

/* Other addresses than those that are exported, as a driver may have them. One of them changes with CUDA 13.4. */
static CUresult inner_alloc(CUdeviceptr *ptr, size_t bytes)
{
	return cuMemAlloc_v2(ptr, bytes);
}

static CUresult inner_free(CUdeviceptr ptr)
{
	return cuMemFree_v2(ptr);
}

static CUresult inner_async(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return cuMemAllocAsync(ptr, bytes, stream);
}

static CUresult inner_free_async(CUdeviceptr ptr, CUstream stream)
{
	return cuMemFreeAsync(ptr, stream);
}

CUresult cuMemAllocAsync_v3(CUdeviceptr *ptr, size_t bytes, CUstream stream, unsigned long long flags);
CUresult cuMemAllocAsync_v3(CUdeviceptr *ptr, size_t bytes, CUstream stream, unsigned long long flags)
{
	return flags ? CUDA_ERROR_INVALID_VALUE : cuMemAllocAsync(ptr, bytes, stream);
}

static CUresult inner_async_v3(CUdeviceptr *ptr, size_t bytes, CUstream stream, unsigned long long flags)
{
	return cuMemAllocAsync_v3(ptr, bytes, stream, flags);
}

static CUresult inner_size(CUdeviceptr ptr)
{
	return ptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags, int *status)
{
	static const struct {
		const char *name;
		int since;
		void *function;
	} all[] = {
		{ "cuInit", 2000, (void *)(uintptr_t)cuInit },
		{ "cuDevicePrimaryCtxRetain", 7000, (void *)(uintptr_t)cuDevicePrimaryCtxRetain },
		{ "cuCtxSetCurrent", 4000, (void *)(uintptr_t)cuCtxSetCurrent },
		{ "cuMemAlloc", 3020, (void *)(uintptr_t)inner_alloc },
		{ "cuMemFree", 3020, (void *)(uintptr_t)inner_free },
		{ "cuMemAllocAsync", 11020, (void *)(uintptr_t)inner_async },
		{ "cuMemAllocAsync", 13040, (void *)(uintptr_t)inner_async_v3 },
		{ "cuMemFreeAsync", 11020, (void *)(uintptr_t)inner_free_async },
		{ "cuMemGetSize", 13040, (void *)(uintptr_t)inner_size },
	};
	*status = version < 0 || flags > 2;
	*function = NULL;
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (strcmp(all[i].name, symbol) == 0 && all[i].since <= version)
			*function = all[i].function;
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	*status = 0;
	return stream ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	*event = (CUevent)(uintptr_t)(flags + 16);
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return event && !stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventQuery(CUevent event)
{
	return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* A microsecond, whatever was launched. */
CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
	*ms = 0.001f;
	return begin && end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	(void)gx;
	(void)gy;
	(void)gz;
	(void)bx;
	(void)by;
	(void)bz;
	(void)shared;
	(void)params;
	(void)extra;
	return function || stream ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
