/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * First versions, of which sizes and addresses have 32 bits. What they allocate is given an address below 4 GiB of
 * the library's own, and is otherwise memory like any other.
 */
#include "cuda_core.h"

#include <limits.h>

static pthread_mutex_t low_mu = PTHREAD_MUTEX_INITIALIZER; /* taken before cuda_mu */

static CUresult lower(CUdeviceptr_v1 *out, CUdeviceptr high)
{
	struct allocation a;
	NEED(cuda_forget(high, &a));
	pthread_mutex_lock(&low_mu);
	a.ptr = cuda_low_room(cuda_round(a.bytes));
	CUresult ret = a.ptr ? cuda_remember(&a) : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&low_mu);
	if (ret)
		cuda_call(a.device, GPUSIM_OP_FREE, (const uint64_t[GPUSIM_NARGS]){ a.handle }, NULL, 0);
	else
		*out = (CUdeviceptr_v1)a.ptr;
	return ret;
}

CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned bytes)
{
	CUdeviceptr high;
	NEED(ptr);
	TRY(cuMemAlloc_v2(&high, bytes));
	return lower(ptr, high);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
	CUdeviceptr high;
	size_t row;
	NEED(ptr && pitch);
	TRY(cuMemAllocPitch_v2(&high, &row, width, height, element));
	*pitch = (unsigned)row;
	return lower(ptr, high);
}

CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
	return cuMemFree_v2(ptr);
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
