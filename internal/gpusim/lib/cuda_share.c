/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of another process, by IPC handles; and the host's memory, which costs the GPU nothing. What is opened
 * is charged to its owner alone. Unlike on a GPU it goes with its owner, also while others have it open.
 */
#include "cuda_core.h"

#include <stdlib.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x6B65726673696D31)

struct ipc {
	uint64_t magic, address, bytes;
	int minor, pid;
};
_Static_assert(sizeof(struct ipc) <= sizeof(CUipcMemHandle), "a handle has room for it");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
	struct allocation a;
	struct device *d;
	TRY(cuda_enter());
	NEED(handle && cuda_holds(ptr, 1, &a) && a.origin == LINEAR);
	TRY(cuda_device(a.device, &d));
	const struct ipc ipc = { .magic = MAGIC, .address = a.handle, .bytes = a.bytes, .minor = d->minor,
				 .pid = getpid() };
	memset(handle, 0, sizeof *handle);
	memcpy(handle, &ipc, sizeof ipc);
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	CUcontext context;
	struct device *d;
	struct ipc ipc;
	uint64_t bytes;
	TRY(cuda_current(&context));
	memcpy(&ipc, &handle, sizeof ipc);
	NEED(ptr && flags == 1 && ipc.magic == MAGIC); /* 1: lazy peer access, the only flag there is */
	TRY(cuda_device(context->device, &d));
	NEED(d->minor == ipc.minor);
	if (ipc.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	const uint64_t args[GPUSIM_NARGS] = { ipc.address };
	TRY(cuda_call(context->device, GPUSIM_OP_FIND, args, &bytes, 1));
	struct allocation a = { .ptr = ipc.address, .bytes = ipc.bytes, .context = context,
				.device = context->device, .origin = IMPORTED };
	TRY(cuda_remember(&a));
	*ptr = a.ptr;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	return cuIpcOpenMemHandle_v2(ptr, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	struct allocation a;
	TRY(cuda_enter());
	NEED(cuda_holds(ptr, 1, &a) && a.ptr == ptr && a.origin == IMPORTED);
	NEED(cuda_forget(ptr, &a));
	return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(ptr && bytes && !(flags & ~7u));
	if (bytes > (uint64_t)1 << 46 || posix_memalign(ptr, 4096, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct allocation a = { .ptr = (CUdeviceptr)(uintptr_t)*ptr, .bytes = bytes, .device = context->device,
				.origin = HOST };
	CUresult ret = cuda_remember(&a);
	if (ret)
		free(*ptr);
	return ret;
}

CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
	return cuMemHostAlloc(ptr, bytes, 0);
}

CUresult cuMemFreeHost(void *ptr)
{
	struct allocation a;
	CUdeviceptr at = (CUdeviceptr)(uintptr_t)ptr;
	TRY(cuda_enter());
	NEED(cuda_holds(at, 1, &a) && a.ptr == at && a.origin == HOST && cuda_forget(at, &a));
	free(ptr);
	return CUDA_SUCCESS;
}
