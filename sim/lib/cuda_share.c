/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of another process, by IPC handles; and the host's memory, which costs the GPU nothing. What is opened
 * is charged to its owner alone. To free it in its owner while others have it open is undefined (cuIpcOpenMemHandle);
 * that it lives until the last of them has closed it, as what the driver counts references of, is inferred, and the
 * worst for who holds others to a cap.
 */
#include "cuda_core.h"

#include <stdlib.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x6B65726673696D31)

/* address is the daemon's, and offset where the memory is in it. */
struct ipc {
	uint64_t magic, address, offset, bytes;
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
	const struct ipc ipc = { .magic = MAGIC, .address = a.handle, .offset = a.ptr - a.handle,
				 .bytes = a.bytes, .minor = d->minor, .pid = getpid() };
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
	unsigned opens;
	TRY(cuda_current(&context));
	memcpy(&ipc, &handle, sizeof ipc);
	NEED(ptr && flags == 1 && ipc.magic == MAGIC); /* 1: lazy peer access, the only flag there is */
	TRY(cuda_device(context->device, &d));
	NEED(d->minor == ipc.minor);
	if (ipc.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	/* "If the memory handle has already been opened by the current context, the reference count on the handle is
	 * incremented by 1 and the existing device pointer is returned"; another context may not have it. */
	const CUdeviceptr at = ipc.address + ipc.offset;
	if (cuda_opened(at, context, 1, &opens)) {
		*ptr = at;
		return opens ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	}
	const uint64_t args[GPUSIM_NARGS] = { ipc.address, context->id };
	TRY(cuda_call(context->device, GPUSIM_OP_IMPORT, args, &bytes, 1));
	struct allocation a = { .ptr = at, .bytes = ipc.bytes, .context = context, .handle = ipc.address,
				.device = context->device, .origin = IMPORTED, .taken = 1 };
	CUresult ret = cuda_remember(&a);
	if (ret)
		cuda_call(context->device, GPUSIM_OP_FREE, args, NULL, 0);
	else
		*ptr = a.ptr;
	return ret;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
	return cuIpcOpenMemHandle_v2(ptr, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
	struct allocation a;
	unsigned opens;
	TRY(cuda_enter());
	NEED(cuda_holds(ptr, 1, &a) && a.ptr == ptr && a.origin == IMPORTED);
	NEED(cuda_opened(ptr, a.context, -1, &opens));
	if (opens)
		return CUDA_SUCCESS;
	NEED(cuda_forget(ptr, &a));
	const uint64_t args[GPUSIM_NARGS] = { a.handle };
	return cuda_call(a.device, GPUSIM_OP_FREE, args, NULL, 0);
}
