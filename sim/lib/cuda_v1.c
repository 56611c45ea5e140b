/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * First versions, of which sizes and addresses have 32 bits. Linear memory by them is rejected in every context, and
 * so are contexts: seen on an H200 with driver 580.159.04. That the others work is assumed.
 */
#include "cuda_core.h"

#include <limits.h>

/* Their addresses have no room for those of a process of 64 bits. */
CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(ptr && bytes);
	return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(ptr && pitch && width && height && element);
	return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
	CUcontext context;
	(void)ptr;
	TRY(cuda_current(&context));
	return CUDA_ERROR_INVALID_CONTEXT;
}

static unsigned narrow(size_t n)
{
	return n > UINT_MAX ? UINT_MAX : (unsigned)n;
}

CUresult cuMemGetInfo(unsigned *free, unsigned *total)
{
	size_t f, t;
	NEED(free && total);
	TRY(cuMemGetInfo_v2(&f, &t));
	*free = narrow(f);
	*total = narrow(t);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
	size_t n;
	NEED(bytes);
	TRY(cuDeviceTotalMem_v2(&n, device));
	*bytes = narrow(n);
	return CUDA_SUCCESS;
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	NEED(d);
	return cuArrayCreate_v2(array, &(CUDA_ARRAY_DESCRIPTOR){ d->Width, d->Height, d->Format, d->NumChannels });
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	NEED(d);
	return cuArray3DCreate_v2(array, &(CUDA_ARRAY3D_DESCRIPTOR){ d->Width, d->Height, d->Depth, d->Format,
								     d->NumChannels, d->Flags });
}

API(cuCtxCreate, (CUcontext *context, unsigned flags, CUdevice device))
{
	struct device *d;
	(void)flags;
	TRY(cuda_device(device, &d));
	NEED(context);
	return CUDA_ERROR_OUT_OF_MEMORY;
}
