/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Fills, and words that streams write.
 */
#include "cuda_copy.h"

#define THREADS 1024 /* of a block */
#define BYTES_IN_NS 1000
#define BUFFER ((size_t)64 << 10)

static void pattern(unsigned char *buffer, size_t bytes, unsigned value, unsigned element)
{
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (unsigned char)(value >> 8 * (i % element));
}

/* One row, whose memory may be touched. */
static void fill_row(CUdeviceptr at, size_t bytes, const unsigned char *buffer)
{
	struct allocation a;
	bool host = cuda_holds(at, 1, &a) && (a.origin == HOST || a.origin == MANAGED);
	for (size_t done = 0, n; done < bytes; done += n) {
		n = bytes - done < BUFFER ? bytes - done : BUFFER;
		if (host)
			memcpy((void *)(uintptr_t)(at + done), buffer, n);
		else
			cuda_bytes_write(at + done, buffer, n);
	}
}

/* A fill is a kernel of all threads. */
static CUresult take_time(uint64_t bytes, CUstream stream, bool per_thread)
{
	CUcontext context;
	struct device *d;
	uint64_t when, args[GPUSIM_NARGS] = { 0, 0, THREADS, 0, bytes / BYTES_IN_NS };
	TRY(cuda_current(&context));
	TRY(cuda_device(context->device, &d));
	args[1] = 1 + (d->sms * d->threads_per_sm - 1) / THREADS;
	TRY(cuda_stream_id(stream, per_thread, &args[3]));
	TRY(cuda_stream_after(stream, per_thread, &args[5]));
	if (!args[4])
		return CUDA_SUCCESS;
	args[0] = context->id;
	TRY(cuda_call(context->device, GPUSIM_OP_LAUNCH, args, &when, 1));
	cuda_stream_extend(stream, per_thread, when);
	return CUDA_SUCCESS;
}

CUresult cuda_fill(const CUDA_MEMSET_NODE_PARAMS *p, CUstream stream, bool per_thread)
{
	CUcontext context;
	CUgraph graph;
	struct allocation a;
	unsigned char buffer[BUFFER];
	TRY(cuda_current(&context));
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	if (graph)
		return cuda_graph_add_fill(graph, NULL, p);
	NEED((p->element == 1 || p->element == 2 || p->element == 4) && p->ptr % p->element == 0);
	size_t row = p->width * p->element, pitch = p->height > 1 ? p->pitch : row;
	if (!row || !p->height)
		return CUDA_SUCCESS;
	NEED(pitch >= row);
	TRY(cuda_touch(p->ptr, (p->height - 1) * pitch + row));
	bool large = cuda_holds(p->ptr, 1, &a) && a.bytes >= (uint64_t)4 << 20 && a.origin != HOST && a.origin != MANAGED;
	pattern(buffer, row < BUFFER ? row : BUFFER, p->value, p->element);
	for (size_t y = 0; y < p->height && !large; y++)
		fill_row(p->ptr + y * pitch, row, buffer);
	return take_time(row * p->height, stream, per_thread);
}

static CUresult fill(CUdeviceptr ptr, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
		     CUstream stream,
		     bool per_thread)
{
	const CUDA_MEMSET_NODE_PARAMS p = { ptr, pitch, value, element, width, height };
	return cuda_fill(&p, stream, per_thread);
}

#define FILLS(bits, type) \
	STREAM_API(cuMemsetD##bits##_v2, _ptds, (CUdeviceptr ptr, type value, size_t n), \
		   fill(ptr, 0, value, bits / 8, n, 1, NULL, per_thread)) \
	STREAM_API(cuMemsetD##bits##Async, _ptsz, (CUdeviceptr ptr, type value, size_t n, CUstream stream), \
		   fill(ptr, 0, value, bits / 8, n, 1, stream, per_thread)) \
	STREAM_API(cuMemsetD2D##bits##_v2, _ptds, (CUdeviceptr ptr, size_t pitch, type value, size_t width, \
					size_t height), \
		   fill(ptr, pitch, value, bits / 8, width, height, NULL, per_thread)) \
	STREAM_API(cuMemsetD2D##bits##Async, _ptsz, \
		   (CUdeviceptr ptr, size_t pitch, type value, size_t width, size_t height, CUstream stream), \
		   fill(ptr, pitch, value, bits / 8, width, height, stream, per_thread))

FILLS(8, unsigned char)
FILLS(16, unsigned short)
FILLS(32, unsigned)

static CUresult word(CUstream stream, CUdeviceptr at, unsigned value, bool per_thread)
{
	uint64_t id;
	NEED(at % sizeof value == 0);
	TRY(cuda_stream_id(stream, per_thread, &id));
	TRY(cuda_touch(at, sizeof value));
	fill_row(at, sizeof value, (const unsigned char *)&value);
	return CUDA_SUCCESS;
}

STREAM_API(cuStreamWriteValue32_v2, _ptsz, (CUstream stream, CUdeviceptr at, unsigned value, unsigned flags),
	   ((void)flags, word(stream, at, value, per_thread)))
