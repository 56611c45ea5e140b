/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies, fills, and what streams write to words of memory. Nothing is written to a GPU. What a GPU copies or fills in
 * its own memory takes its time, a gigabyte in a millisecond; copies from and to the host, and words, take none.
 */
#include "cuda_core.h"

#define BYTES_IN_NS 1000

/* Occupies the GPU for as long as so many bytes take. */
static CUresult move(uint64_t bytes, CUstream stream, bool per_thread)
{
	CUcontext context;
	CUgraph graph;
	uint64_t when, args[GPUSIM_NARGS] = { 0, 1, 1, 0, bytes / BYTES_IN_NS };
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	if (graph)
		return CUDA_ERROR_NOT_SUPPORTED; /* graphs have no such nodes here */
	if (!args[4])
		return CUDA_SUCCESS;
	TRY(cuda_current(&context));
	TRY(cuda_stream_id(stream, per_thread, &args[3]));
	args[0] = context->id;
	TRY(cuda_call(context->device, GPUSIM_OP_LAUNCH, args, &when, 1));
	cuda_stream_extend(stream, per_thread, when);
	return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr ptr, size_t bytes, CUstream stream, bool per_thread)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (!bytes)
		return CUDA_SUCCESS;
	TRY(cuda_touch(ptr, bytes));
	return move(bytes, stream, per_thread);
}

CUresult cuMemsetD8_v2(CUdeviceptr ptr, unsigned char value, size_t bytes)
{
	(void)value;
	return fill(ptr, bytes, NULL, false);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr ptr, unsigned char value, size_t bytes)
{
	(void)value;
	return fill(ptr, bytes, NULL, true);
}

CUresult cuMemsetD8Async(CUdeviceptr ptr, unsigned char value, size_t bytes, CUstream stream)
{
	(void)value;
	return fill(ptr, bytes, stream, false);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr ptr, unsigned char value, size_t bytes, CUstream stream)
{
	(void)value;
	return fill(ptr, bytes, stream, true);
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool per_thread)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (!bytes)
		return CUDA_SUCCESS;
	TRY(cuda_touch(from, bytes));
	return fill(to, bytes, stream, per_thread);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy(to, from, bytes, NULL, false);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return copy(to, from, bytes, NULL, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy(to, from, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return copy(to, from, bytes, stream, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (!bytes)
		return CUDA_SUCCESS;
	NEED(from);
	return cuda_touch(to, bytes);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (!bytes)
		return CUDA_SUCCESS;
	NEED(to);
	TRY(cuda_touch(from, bytes));
	memset(to, 0, bytes);
	return CUDA_SUCCESS;
}

/* The variants for per-thread default streams wait for another stream, and none of these waits for any. */
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
	return cuMemcpyHtoD_v2(to, from, bytes);
}

CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
	return cuMemcpyDtoH_v2(to, from, bytes);
}

static CUresult word(CUstream stream, CUdeviceptr at, bool per_thread)
{
	uint64_t id;
	NEED(at % 4 == 0);
	TRY(cuda_stream_id(stream, per_thread, &id));
	return cuda_touch(at, 4);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, unsigned value, unsigned flags)
{
	(void)value;
	(void)flags;
	return word(stream, at, false);
}

CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr at, unsigned value, unsigned flags)
{
	(void)value;
	(void)flags;
	return word(stream, at, true);
}
