/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies. Contents move at once. What a GPU copies in its own memory takes time: a gigabyte takes a millisecond if no
 * other process copies. Copies from and to the host take none.
 */
#include "cuda_copy.h"

#include <sys/uio.h>
#include <unistd.h>

#define BUFFER ((size_t)64 << 10)
#define SHORTEST 1000 /* bytes of a copy that takes time */

/* Where one side of a copy is: rows of a pitch, in slices. */
struct place {
	bool host, contents;
	uint64_t at, pitch, slice;
};

/* Can this process read that? It may be any address that a program takes for memory. */
static bool readable(uint64_t at, size_t bytes)
{
	char first, last;
	struct iovec into = { &first, 1 }, from = { (void *)(uintptr_t)at, 1 };
	struct iovec into_last = { &last, 1 }, from_last = { (void *)(uintptr_t)(at + bytes - 1), 1 };
	return at && process_vm_readv(getpid(), &into, 1, &from, 1, 0) == 1 &&
	       process_vm_readv(getpid(), &into_last, 1, &from_last, 1, 0) == 1;
}

/* An address of either: the host's memory has the same address on both. */
static CUresult at_address(struct place *p, uint64_t bytes, bool may_be_host)
{
	struct allocation a;
	if (cuda_holds(p->at, 1, &a) && (a.origin == HOST || a.origin == MANAGED)) {
		p->host = p->contents = true;
		NEED(cuda_holds(p->at, bytes, &a));
		return a.origin == MANAGED ? cuda_touch(p->at, bytes) : CUDA_SUCCESS;
	}
	CUresult ret = cuda_touch(p->at, bytes);
	if (!ret || !may_be_host || cuda_holds(p->at, 1, &a))
		return ret;
	p->host = p->contents = true;
	return readable(p->at, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult find(struct place *p, const struct copy_side *s, const CUDA_MEMCPY3D *c)
{
	if (s->type == CU_MEMORYTYPE_ARRAY)
		return cuda_array_place(s->array, (const size_t[]){ s->x, s->y, s->z }, (const size_t[]){ c->width, c->height,
			c->depth },
					&p->at, &p->pitch, &p->slice);
	NEED(s->type >= CU_MEMORYTYPE_HOST && s->type <= CU_MEMORYTYPE_UNIFIED);
	p->pitch = s->pitch ? s->pitch : s->x + c->width;
	p->slice = p->pitch * (s->height ? s->height : s->y + c->height);
	NEED(p->pitch >= s->x + c->width);
	uint64_t base = s->type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)s->host : s->device;
	p->at = base + s->x + s->y * p->pitch + s->z * p->slice;
	uint64_t bytes = (c->depth - 1) * p->slice + (c->height - 1) * p->pitch + c->width;
	if (s->type == CU_MEMORYTYPE_HOST) {
		struct allocation a;
		NEED(base);
		p->host = true;
		return cuda_holds(p->at, 1, &a) && a.origin == MANAGED ? cuda_touch(p->at, bytes) : CUDA_SUCCESS;
	}
	return at_address(p, bytes, s->type == CU_MEMORYTYPE_UNIFIED);
}

static void row(const struct place *to, uint64_t to_at, const struct place *from, uint64_t from_at, size_t bytes)
{
	unsigned char buffer[BUFFER];
	void *host_to = (void *)(uintptr_t)to_at;
	const void *host_from = (const void *)(uintptr_t)from_at;
	if (to->host && from->host) {
		memmove(host_to, host_from, bytes);
	} else if (to->host) {
		cuda_bytes_read(host_to, from_at, bytes);
	} else if (from->host) {
		cuda_bytes_write(to_at, host_from, bytes);
	} else {
		for (size_t done = 0, n; done < bytes; done += n) {
			n = bytes - done < BUFFER ? bytes - done : BUFFER;
			cuda_bytes_read(buffer, from_at + done, n);
			cuda_bytes_write(to_at + done, buffer, n);
		}
	}
}

/* Takes the time that so many bytes take. */
static CUresult take_time(uint64_t bytes, CUstream stream, bool per_thread)
{
	CUcontext context;
	uint64_t id, when, args[GPUSIM_NARGS] = { 0, bytes };
	TRY(cuda_stream_id(stream, per_thread, &id));
	if (bytes < SHORTEST)
		return CUDA_SUCCESS;
	TRY(cuda_stream_after(stream, per_thread, &args[2]));
	TRY(cuda_current(&context));
	args[0] = context->id;
	TRY(cuda_call(context->device, GPUSIM_OP_COPY, args, &when, 1));
	cuda_stream_extend(stream, per_thread, when);
	return CUDA_SUCCESS;
}

/* Large memory of the GPU has no contents: nothing of it is copied. */
static bool nothing_kept(const struct place *to, const struct place *from, const CUDA_MEMCPY3D *c)
{
	return !to->host && (!from->host || c->width * c->height * c->depth >= (uint64_t)4 << 20);
}

CUresult cuda_copy(const CUDA_MEMCPY3D *c, CUstream stream, bool per_thread)
{
	CUcontext context;
	CUgraph graph;
	struct place to = { .host = false }, from = { .host = false };
	TRY(cuda_current(&context));
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	if (graph)
		return cuda_graph_add_copy(graph, NULL, c);
	if (!c->width || !c->height || !c->depth)
		return CUDA_SUCCESS;
	TRY(find(&from, &c->from, c));
	TRY(find(&to, &c->to, c));
	uint64_t bytes = c->width * c->height * c->depth;
	if (!nothing_kept(&to, &from, c) || bytes < (uint64_t)4 << 20)
		for (size_t z = 0; z < c->depth; z++)
			for (size_t y = 0; y < c->height; y++)
				row(&to, to.at + z * to.slice + y * to.pitch, &from, from.at + z * from.slice + y * from.pitch,
				    c->width);
	return to.host || from.host ? take_time(0, stream, per_thread) : take_time(bytes, stream, per_thread);
}

static CUresult linear(int to_type, CUdeviceptr to, int from_type, CUdeviceptr from, size_t bytes, CUstream stream,
	bool per_thread)
{
	const CUDA_MEMCPY3D c = {
		.from = { .type = from_type, .device = from, .host = (const void *)(uintptr_t)from },
		.to = { .type = to_type, .device = to, .host = (const void *)(uintptr_t)to },
		.width = bytes, .height = 1, .depth = 1,
	};
	return cuda_copy(&c, stream, per_thread);
}

#define HOST_AT(ptr) CU_MEMORYTYPE_HOST, (CUdeviceptr)(uintptr_t)(ptr)
#define DEVICE_AT(ptr) CU_MEMORYTYPE_DEVICE, ptr
#define ANY_AT(ptr) CU_MEMORYTYPE_UNIFIED, ptr

STREAM_API(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
	   linear(DEVICE_AT(to), DEVICE_AT(from), bytes, NULL, per_thread))
STREAM_API(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
	   linear(DEVICE_AT(to), DEVICE_AT(from), bytes, stream, per_thread))
STREAM_API(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void *from, size_t bytes),
	   linear(DEVICE_AT(to), HOST_AT(from), bytes, NULL, per_thread))
STREAM_API(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
	   linear(DEVICE_AT(to), HOST_AT(from), bytes, stream, per_thread))
STREAM_API(cuMemcpyDtoH_v2, _ptds, (void *to, CUdeviceptr from, size_t bytes),
	   linear(HOST_AT(to), DEVICE_AT(from), bytes, NULL, per_thread))
STREAM_API(cuMemcpyDtoHAsync_v2, _ptsz, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
	   linear(HOST_AT(to), DEVICE_AT(from), bytes, stream, per_thread))
STREAM_API(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
	   linear(ANY_AT(to), ANY_AT(from), bytes, NULL, per_thread))
STREAM_API(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
	   linear(ANY_AT(to), ANY_AT(from), bytes, stream, per_thread))

static CUresult peer(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream,
	bool per_thread)
{
	NEED(there && here);
	return linear(DEVICE_AT(to), DEVICE_AT(from), bytes, stream, per_thread);
}

STREAM_API(cuMemcpyPeer, _ptds, (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes),
	   peer(to, there, from, here, bytes, NULL, per_thread))
STREAM_API(cuMemcpyPeerAsync, _ptsz,
	   (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream),
	   peer(to, there, from, here, bytes, stream, per_thread))

static struct copy_side deep(const struct copy_side_2d *s)
{
	return (struct copy_side){ .x = s->x, .y = s->y, .type = s->type, .host = s->host, .device = s->device,
				   .array = s->array,
				   .pitch = s->pitch };
}

static CUresult flat(const CUDA_MEMCPY2D *p, CUstream stream, bool per_thread)
{
	NEED(p);
	const CUDA_MEMCPY3D c = { deep(&p->from), deep(&p->to), p->width, p->height, 1 };
	return cuda_copy(&c, stream, per_thread);
}

static CUresult checked(const CUDA_MEMCPY3D *c, CUstream stream, bool per_thread)
{
	NEED(c && !c->from.level && !c->to.level);
	return cuda_copy(c, stream, per_thread);
}

STREAM_API(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *p), flat(p, NULL, per_thread))
STREAM_API(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *p), flat(p, NULL, per_thread))
STREAM_API(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *p, CUstream stream), flat(p, stream, per_thread))
STREAM_API(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *p), checked(p, NULL, per_thread))
STREAM_API(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *p, CUstream stream), checked(p, stream, per_thread))
STREAM_API(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D *p), checked(p, NULL, per_thread))
STREAM_API(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D *p, CUstream stream), checked(p, stream, per_thread))
