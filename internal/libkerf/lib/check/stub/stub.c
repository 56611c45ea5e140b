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

/* Other addresses than those that are exported, as a driver may have them. */
static CUresult inner_alloc(CUdeviceptr *ptr, size_t bytes)
{
	return cuMemAlloc_v2(ptr, bytes);
}

static CUresult inner_free(CUdeviceptr ptr)
{
	return cuMemFree_v2(ptr);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags, int *status)
{
	static const struct {
		const char *name;
		void *function;
	} all[] = {
		{ "cuInit", (void *)(uintptr_t)cuInit },
		{ "cuDevicePrimaryCtxRetain", (void *)(uintptr_t)cuDevicePrimaryCtxRetain },
		{ "cuCtxSetCurrent", (void *)(uintptr_t)cuCtxSetCurrent },
		{ "cuMemAlloc", (void *)(uintptr_t)inner_alloc },
		{ "cuMemFree", (void *)(uintptr_t)inner_free },
	};
	*status = version < 0 || flags > 2;
	*function = NULL;
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (strcmp(all[i].name, symbol) == 0)
			*function = all[i].function;
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
