/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of the host that the GPU can reach: allocated here, or the program's own, registered. It has one address for
 * both.
 */
#include "cuda_core.h"

#include <stdlib.h>

#define PAGE 4096
enum { PORTABLE = 1, DEVICE_MAP = 2, WRITE_COMBINED = 4, IO_MEMORY = 4, READ_ONLY = 8 };
enum { ALLOCATED = 0, REGISTERED = 1 };

/* An allocation's handle has the flags, and taken whose memory it is. */
static CUresult keep(void *ptr, size_t bytes, unsigned flags, uint64_t whose)
{
	CUcontext context;
	TRY(cuda_current(&context));
	const struct allocation a = { .ptr = (CUdeviceptr)(uintptr_t)ptr, .bytes = bytes, .device = context->device,
				      .origin = HOST, .handle = flags, .taken = whose };
	return cuda_remember(&a);
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	CUcontext context;
	TRY(cuda_current(&context));
	TRY(cuda_prohibited());
	NEED(ptr && bytes && !(flags & ~(unsigned)(PORTABLE | DEVICE_MAP | WRITE_COMBINED)));
	if (bytes > (uint64_t)1 << 46 || posix_memalign(ptr, PAGE, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = keep(*ptr, bytes, flags | DEVICE_MAP, ALLOCATED);
	if (ret)
		free(*ptr);
	return ret;
}

CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	return cuMemHostAlloc(ptr, bytes, 0);
}

static CUresult forget(void *ptr, uint64_t whose)
{
	struct allocation a;
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
	TRY(cuda_enter());
	NEED(cuda_holds(at, 1, &a) && a.ptr == at && a.origin == HOST && a.taken == whose && cuda_forget(at, &a));
	return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *ptr)
{
	TRY(forget(ptr, ALLOCATED));
	free(ptr);
	return CUDA_SUCCESS;
}

API(cuMemHostRegister_v2, (void *ptr, size_t bytes, unsigned flags))
{
	struct allocation a;
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(ptr && bytes && !(flags & ~(unsigned)(PORTABLE | DEVICE_MAP | IO_MEMORY | READ_ONLY)));
	if (flags & (IO_MEMORY | READ_ONLY))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (cuda_holds(at, 1, &a) || cuda_holds(at + bytes - 1, 1, &a))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return keep(ptr, bytes, flags | DEVICE_MAP, REGISTERED);
}

API(cuMemHostUnregister, (void *ptr))
{
	CUresult ret = forget(ptr, REGISTERED);
	return ret == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : ret;
}

static CUresult find(const void *ptr, struct allocation *a)
{
	TRY(cuda_enter());
	NEED(cuda_holds((CUdeviceptr)(uintptr_t)ptr, 1, a) && a->origin == HOST);
	return CUDA_SUCCESS;
}

API(cuMemHostGetDevicePointer_v2, (CUdeviceptr *device, void *ptr, unsigned flags))
{
	struct allocation a;
	NEED(device && flags == 0);
	TRY(find(ptr, &a));
	*device = (CUdeviceptr)(uintptr_t)ptr;
	return CUDA_SUCCESS;
}

API(cuMemHostGetFlags, (unsigned *flags, void *ptr))
{
	struct allocation a;
	NEED(flags);
	TRY(find(ptr, &a));
	*flags = (unsigned)a.handle;
	return CUDA_SUCCESS;
}
