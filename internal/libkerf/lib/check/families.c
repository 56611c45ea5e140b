/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ways to take memory.
 */
#include "kerfcheck.h"

#define TRY(call)                       \
	do {                            \
		CUresult try_ = (call); \
		if (try_)               \
			return try_;    \
	} while (0)

static CUresult linear(struct block *p)
{
	return CALL(cuMemAlloc_v2)(&p->ptr, p->bytes);
}

static CUresult managed(struct block *p)
{
	return CALL(cuMemAllocManaged)(&p->ptr, p->bytes, CU_MEM_ATTACH_GLOBAL);
}

/* Rows of which each wastes half of its pitch. */
static CUresult pitch(struct block *p)
{
	size_t got;
	return CALL(cuMemAllocPitch_v2)(&p->ptr, &got, 256, p->bytes / 512, 4);
}

static void free_linear(struct block *p)
{
	CALL(cuMemFree_v2)(p->ptr);
}

static CUresult async(struct block *p)
{
	return CALL(cuMemAllocAsync)(&p->ptr, p->bytes, NULL);
}

/* Its pool keeps it until the program waits. */
static void free_kept(struct block *p)
{
	CALL(cuMemFreeAsync)(p->ptr, NULL);
}

static void free_async(struct block *p)
{
	free_kept(p);
	CALL(cuStreamSynchronize)(NULL);
}

/* On the thread's own default stream. */
static CUresult async_thread(struct block *p)
{
	return CALL(cuMemAllocAsync_ptsz)(&p->ptr, p->bytes, NULL);
}

static void free_async_thread(struct block *p)
{
	CALL(cuMemFreeAsync_ptsz)(p->ptr, NULL);
	CALL(cuStreamSynchronize_ptsz)(NULL);
}

static CUmemoryPool made;

/* A pool that keeps what is freed. */
static CUresult pool(struct block *p)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	cuuint64_t all = UINT64_MAX;
	if (!made) {
		TRY(CALL(cuMemPoolCreate)(&made, &props));
		TRY(CALL(cuMemPoolSetAttribute)(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	}
	return CALL(cuMemAllocFromPoolAsync)(&p->ptr, p->bytes, made, NULL);
}

static void free_pool(struct block *p)
{
	CALL(cuMemFreeAsync)(p->ptr, NULL);
	CALL(cuMemPoolTrimTo)(made, 0);
}

static CUresult vmm(struct block *p)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	TRY(CALL(cuMemCreate)(&p->handle, p->bytes, &prop, 0));
	TRY(CALL(cuMemAddressReserve)(&p->ptr, p->bytes, 0, 0, 0));
	return CALL(cuMemMap)(p->ptr, p->bytes, 0, p->handle, 0);
}

static void free_vmm(struct block *p)
{
	CALL(cuMemRelease)(p->handle);
	CALL(cuMemUnmap)(p->ptr, p->bytes);
	CALL(cuMemAddressFree)(p->ptr, p->bytes);
}

/* Two channels of 16 bits. */
static CUresult array(struct block *p)
{
	const CUDA_ARRAY_DESCRIPTOR d = { .Width = 1024, .Height = p->bytes / 4096, .Format = CU_AD_FORMAT_HALF,
		.NumChannels = 2 };
	return CALL(cuArrayCreate_v2)(&p->array, &d);
}

static CUresult array3d(struct block *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 512, .Height = 512, .Depth = p->bytes >> 22,
		.Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4 };
	return CALL(cuArray3DCreate_v2)(&p->array, &d);
}

static void free_array(struct block *p)
{
	CALL(cuArrayDestroy)(p->array);
}

/* The second level is half of the first; the first two levels together are to be what was asked for. */
static CUresult mipmap(struct block *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = p->bytes / 3 * 2, .Format = CU_AD_FORMAT_UNSIGNED_INT8,
		.NumChannels = 1 };
	return CALL(cuMipmappedArrayCreate)(&p->mipmap, &d, 2);
}

static void free_mipmap(struct block *p)
{
	CALL(cuMipmappedArrayDestroy)(p->mipmap);
}

static CUresult run_graph(struct block *p)
{
	TRY(CALL(cuGraphInstantiateWithFlags)(&p->exec, p->graph, 0));
	return CALL(cuGraphLaunch)(p->exec, NULL);
}

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_of(size_t bytes)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = bytes,
	};
}

static CUresult graph(struct block *p)
{
	CUgraphNode node;
	CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_of(p->bytes);
	TRY(CALL(cuGraphCreate)(&p->graph, 0));
	TRY(CALL(cuGraphAddMemAllocNode)(&node, p->graph, NULL, 0, &params));
	p->ptr = params.dptr;
	return run_graph(p);
}

/* The same size over and over: no more than one of them is there at a time. */
static CUresult again(struct block *p)
{
	CUgraphNode node;
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC }, undo = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE };
	TRY(CALL(cuGraphCreate)(&p->graph, 0));
	for (int i = 0; i < 4; i++) {
		params.alloc = alloc_of(p->bytes);
		TRY(CALL(cuGraphAddNode)(&node, p->graph, NULL, 0, &params));
		p->ptr = undo.free.dptr = params.alloc.dptr;
		if (i < 3)
			TRY(CALL(cuGraphAddNode)(&node, p->graph, NULL, 0, &undo));
	}
	return run_graph(p);
}

static CUresult capture(struct block *p)
{
	CUstream s;
	TRY(CALL(cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING));
	TRY(CALL(cuStreamBeginCapture_v2)(s, 1)); /* this thread may make no unsafe calls */
	TRY(CALL(cuMemAllocAsync)(&p->ptr, p->bytes, s));
	TRY(CALL(cuMemFreeAsync)(p->ptr, s));
	TRY(CALL(cuMemAllocAsync)(&p->ptr, p->bytes, s));
	TRY(CALL(cuStreamEndCapture)(s, &p->graph));
	return run_graph(p);
}

/* What is captured of the thread's own default stream, and launched on it. */
static CUresult capture_thread(struct block *p)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { 0 };
	TRY(CALL(cuStreamBeginCapture_v2_ptsz)(NULL, 2));
	TRY(CALL(cuMemAllocAsync_ptsz)(&p->ptr, p->bytes, NULL));
	TRY(CALL(cuMemFreeAsync_ptsz)(p->ptr, NULL));
	TRY(CALL(cuMemAllocAsync_ptsz)(&p->ptr, p->bytes, NULL));
	TRY(CALL(cuStreamEndCapture_ptsz)(NULL, &p->graph));
	TRY(CALL(cuGraphInstantiateWithParams_ptsz)(&p->exec, p->graph, &params));
	TRY(CALL(cuGraphUpload_ptsz)(p->exec, NULL));
	return CALL(cuGraphLaunch_ptsz)(p->exec, NULL);
}

/* The same as again, with the other calls that there are for it. */
static CUresult again_v2(struct block *p)
{
	CUgraphNode node;
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	TRY(CALL(cuGraphCreate)(&p->graph, 0));
	for (int i = 0; i < 4; i++) {
		params.alloc = alloc_of(p->bytes);
		TRY(CALL(cuGraphAddNode_v2)(&node, p->graph, NULL, NULL, 0, &params));
		p->ptr = params.alloc.dptr;
		if (i < 3)
			TRY(CALL(cuGraphAddMemFreeNode)(&node, p->graph, NULL, 0, p->ptr));
	}
	return run_graph(p);
}

static void free_graph(struct block *p)
{
	CALL(cuMemFree_v2)(p->ptr);
	CALL(cuGraphExecDestroy)(p->exec);
	CALL(cuGraphDestroy)(p->graph);
	CALL(cuDeviceGraphMemTrim)(0);
}

static CUresult first_array(struct block *p)
{
	const CUDA_ARRAY_DESCRIPTOR_v1 d = { .Width = 1024, .Height = (unsigned)(p->bytes / 4096),
		.Format = CU_AD_FORMAT_HALF, .NumChannels = 2 };
	return CALL(cuArrayCreate)(&p->array, &d);
}

static CUresult first_array3d(struct block *p)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 d = { .Width = 512, .Height = 512, .Depth = (unsigned)(p->bytes >> 22),
		.Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4 };
	return CALL(cuArray3DCreate)(&p->array, &d);
}

/* Linear memory that is asked for in a green context. */
static CUresult green(struct block *p)
{
	static CUgreenCtx made_green;
	CUdevResource all;
	CUdevResourceDesc desc;
	CUcontext c;
	if (!made_green) {
		TRY(CALL(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM));
		TRY(CALL(cuDevResourceGenerateDesc)(&desc, &all, 1));
		TRY(CALL(cuGreenCtxCreate)(&made_green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
		TRY(CALL(cuCtxFromGreenCtx)(&c, made_green));
		TRY(CALL(cuCtxSetCurrent)(c));
	}
	return linear(p);
}

const struct family *find_family(const char *name)
{
	static const struct family all[] = {
		{ "linear", linear, free_linear }, { "managed", managed, free_linear }, { "pitch", pitch, free_linear },
		{ "async", async, free_async }, { "pool", pool, free_pool }, { "kept", pool, free_kept },
		{ "unwaited", async, free_kept },
		{ "vmm", vmm, free_vmm }, { "array", array, free_array }, { "array3d", array3d, free_array },
		{ "mipmap", mipmap, free_mipmap }, { "graph", graph, free_graph }, { "again", again, free_graph },
		{ "capture", capture, free_graph },
		{ "first-array", first_array, free_array }, { "first-array3d", first_array3d, free_array },
		{ "green", green, free_linear },
		{ "async-thread", async_thread, free_async_thread }, { "capture-thread", capture_thread, free_graph },
		{ "again-v2", again_v2, free_graph },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (!strcmp(all[i].name, name))
			return &all[i];
	fprintf(stderr, "no family %s\n", name);
	exit(2);
}
