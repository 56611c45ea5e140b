/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Linear and pitched memory. The first versions' addresses have 32 bits.
 */
#include "kerf.h"

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	struct kerf_charge c;
	KERF_NEED(cuMemAlloc_v2, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = kerf_begin_here(&c, kerf_round(bytes));
	if (ret)
		return ret;
	ret = real(ptr, bytes);
	return kerf_end(&c, ret, KERF_POINTER, ret ? 0 : *ptr);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned bytes)
{
	struct kerf_charge c;
	KERF_NEED(cuMemAlloc, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = kerf_begin_here(&c, kerf_round(bytes));
	if (ret)
		return ret;
	ret = real(ptr, bytes);
	return kerf_end(&c, ret, KERF_POINTER, ret ? 0 : *ptr);
}

/* Rows begin at multiples of 512 bytes on the GPUs that there are. */
static uint64_t pitched(uint64_t width, uint64_t height)
{
	uint64_t bytes;
	if (width > UINT64_MAX - 511 || __builtin_mul_overflow((width + 511) / 512 * 512, height, &bytes))
		return UINT64_MAX;
	return kerf_round(bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	struct kerf_charge c;
	KERF_NEED(cuMemAllocPitch_v2, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = kerf_begin_here(&c, pitched(width, height));
	if (ret)
		return ret;
	ret = real(ptr, pitch, width, height, element);
	if (!ret && !kerf_correct(&c, kerf_round(*pitch * height))) {
		KERF_REAL(cuMemFree_v2)(*ptr);
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return kerf_end(&c, ret, KERF_POINTER, ret ? 0 : *ptr);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
	struct kerf_charge c;
	KERF_NEED(cuMemAllocPitch, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = kerf_begin_here(&c, pitched(width, height));
	if (ret)
		return ret;
	ret = real(ptr, pitch, width, height, element);
	if (!ret && !kerf_correct(&c, kerf_round((uint64_t)*pitch * height))) {
		KERF_REAL(cuMemFree)(*ptr);
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return kerf_end(&c, ret, KERF_POINTER, ret ? 0 : *ptr);
}

/* What is known of a pointer is taken out first: as soon as the driver has it back, it may be another thread's. */
CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	KERF_NEED(cuMemFree_v2, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_POINTER, ptr);
	return kerf_freed(e, real(ptr));
}

CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
	KERF_NEED(cuMemFree, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_POINTER, ptr);
	return kerf_freed(e, real(ptr));
}
