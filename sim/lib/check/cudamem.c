/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cudamem NAME: one way to device memory beyond cuMemAlloc against libcuda.so.1; ends with 1 and the place at
 * the first surprise.
 */
#include "cuda.h"

#include <sys/wait.h>
#include <unistd.h>

static void pitched(void)
{
	CUdeviceptr ptr;
	size_t pitch, before;
	start();
	before = free_now();
	EQ(CALL(cuMemAllocPitch_v2)(&ptr, &pitch, 1000, 8192, 3), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemAllocPitch_v2)(&ptr, &pitch, SIZE_MAX - 600, 2, 4), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(CALL(cuMemAllocPitch_v2)(&ptr, &pitch, 1000, 8192, 4), 0);
	EQ(pitch, 1024);
	EQ(free_now(), before - 8 * MIB);
	EQ(CALL(cuMemFree_v2)(ptr), 0);
	EQ(free_now(), before);
}

static void managed(void)
{
	CUdeviceptr ptr, linear;
	size_t before;
	start();
	before = free_now();
	EQ(CALL(cuMemAllocManaged)(&ptr, 64 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemAllocManaged)(&ptr, before * 4, CU_MEM_ATTACH_GLOBAL), 0);
	EQ(free_now(), before); /* nothing is there yet */
	*(volatile char *)(uintptr_t)(ptr + 10 * MIB) = 1;
	EQ(free_now(), before);
	EQ(CALL(cuMemPrefetchAsync)(ptr, 64 * MIB, 0, NULL), 0);
	EQ(free_now(), before - 64 * MIB);
	EQ(CALL(cuMemsetD8_v2)(ptr + 63 * MIB, 0, 2 * MIB), 0); /* one block more */
	EQ(free_now(), before - 66 * MIB);
	EQ(CALL(cuMemPrefetchAsync)(ptr, 32 * MIB, CU_DEVICE_CPU, NULL), 0);
	EQ(free_now(), before - 34 * MIB);
	EQ(CALL(cuMemPrefetchAsync_v2)(ptr, 2 * MIB, (CUmemLocation){ 1, 0 }, 0, NULL), 0);
	EQ(free_now(), before - 36 * MIB);
	EQ(CALL(cuMemAdvise)(ptr, 2 * MIB, 3, 0), 0);
	EQ(CALL(cuMemPrefetchAsync)(ptr, before * 4, 0, NULL), 0); /* as much as there is room for */
	EQ(free_now(), 0);
	EQ(CALL(cuMemAlloc_v2)(&linear, 128 * MIB), 0); /* pushes it out */
	EQ(CALL(cuMemFree_v2)(linear), 0);
	EQ(free_now(), 128 * MIB);
	EQ(CALL(cuMemPrefetchAsync)(ptr, before * 4 + 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemFree_v2)(ptr), 0);
	EQ(free_now(), before);
}

static uint64_t pool_value(CUmemoryPool pool, int attribute)
{
	cuuint64_t n;
	EQ(CALL(cuMemPoolGetAttribute)(pool, attribute, &n), 0);
	return n;
}

/* A segment serves several allocations, and goes back when none is left. */
static void pool_segments(CUmemoryPool pool)
{
	CUdeviceptr a, b, c;
	cuuint64_t all = UINT64_MAX, keep = 32 * MIB;
	size_t before = free_now();
	EQ(CALL(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&a, 20 * MIB, pool, NULL), 0);
	EQ(CALL(cuMemFreeAsync)(a, NULL), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&a, 6 * MIB, pool, NULL), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&b, 10 * MIB, pool, NULL), 0);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 16 * MIB);
	EQ(CALL(cuMemFreeAsync)(a, NULL), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&c, 20 * MIB, pool, NULL), 0); /* 22 are unused, in parts of 6 and 16 */
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
	EQ(CALL(cuMemPoolTrimTo)(pool, 0), 0);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
	EQ(CALL(cuMemFreeAsync)(c, NULL), 0);
	EQ(CALL(cuMemPoolTrimTo)(pool, 48 * MIB), 0); /* less would stay */
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
	EQ(CALL(cuMemPoolTrimTo)(pool, 32 * MIB), 0);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	EQ(CALL(cuMemFreeAsync)(b, NULL), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&b, 32 * MIB, pool, NULL), 0); /* its parts are one again */
	EQ(free_now(), before - 32 * MIB);
	EQ(CALL(cuMemFreeAsync)(b, NULL), 0);
	EQ(CALL(cuMemPoolTrimTo)(pool, 0), 0);
	EQ(CALL(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), 0);
}

/* The default pool grows by 32 MiB and tells the bytes that were asked for. It keeps what is free until the program
 * waits. */
static void pool_chunks(void)
{
	static const struct { size_t bytes, reserved; } each[] = { { 1, 32 * MIB }, { 33 * MIB, 64 * MIB },
		{ 64 * MIB, 64 * MIB }, { 100 * MIB, 128 * MIB } };
	CUmemoryPool pool;
	CUdeviceptr p;
	size_t before = free_now();
	EQ(CALL(cuDeviceGetDefaultMemPool)(&pool, 0), 0);
	for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
		EQ(CALL(cuMemAllocAsync)(&p, each[i].bytes, NULL), 0);
		EQ(free_now(), before - each[i].reserved);
		EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), each[i].reserved);
		EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), each[i].bytes);
		EQ(CALL(cuMemFreeAsync)(p, NULL), 0);
		EQ(free_now(), before - each[i].reserved);
		EQ(CALL(cuStreamSynchronize)(NULL), 0);
		EQ(free_now(), before);
	}
}

static void pools(void)
{
	const CUmemPoolProps props = { .allocType = 1, .location = { 1, 0 }, .maxSize = 64 * MIB };
	CUmemoryPool pool, standard, now;
	CUdeviceptr a, b, c;
	cuuint64_t keep = 32 * MIB;
	size_t before;
	start();
	before = free_now();
	pool_chunks();
	EQ(CALL(cuMemPoolCreate)(&pool, &props), 0);
	EQ(free_now(), before);
	EQ(CALL(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&a, 10 * MIB, pool, NULL), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&b, 20 * MIB, pool, NULL), 0);
	EQ(free_now(), before - 32 * MIB);
	EQ(CALL(cuMemAllocFromPoolAsync_ptsz)(&c, 40 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY); /* its own bound */
	EQ(CALL(cuMemAllocFromPoolAsync)(&c, 30 * MIB, pool, NULL), 0);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 60 * MIB);
	EQ(CALL(cuMemFreeAsync)(a, NULL), 0);
	EQ(CALL(cuMemFreeAsync)(b, NULL), 0);
	EQ(free_now(), before - 64 * MIB);
	EQ(CALL(cuCtxSynchronize)(), 0); /* 64 are reserved, 32 may be */
	EQ(free_now(), before - 32 * MIB);
	EQ(CALL(cuMemFree_v2)(c), 0); /* this waits too, and the pool keeps it */
	EQ(free_now(), before - 32 * MIB);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * MIB);
	EQ(CALL(cuMemAllocFromPoolAsync)(&b, 8 * MIB, pool, NULL), 0); /* out of what is kept */
	EQ(free_now(), before - 32 * MIB);
	EQ(CALL(cuMemFreeAsync)(b, NULL), 0);
	EQ(CALL(cuMemPoolTrimTo)(pool, 0), 0);
	EQ(free_now(), before);
	pool_segments(pool);
	EQ(free_now(), before);
	EQ(CALL(cuDeviceGetDefaultMemPool)(&standard, 0), 0);
	EQ(CALL(cuDeviceSetMemPool)(0, pool), 0);
	EQ(CALL(cuDeviceGetMemPool)(&now, 0), 0);
	EQ(now == pool && standard != pool, 1);
	EQ(CALL(cuMemAllocAsync)(&a, 4 * MIB, NULL), 0);
	EQ(pool_value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 * MIB);
	EQ(CALL(cuMemPoolDestroy)(standard), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemPoolDestroy)(pool), 0);
	EQ(CALL(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
	EQ(free_now(), before - 32 * MIB); /* in use still */
	EQ(CALL(cuMemFreeAsync)(a, NULL), 0);
	EQ(free_now(), before);
	EQ(CALL(cuMemAllocAsync)(&a, 4 * MIB, NULL), 0); /* the default one again */
	EQ(CALL(cuDevicePrimaryCtxReset_v2)(0), 0);
	start();
	EQ(free_now(), before); /* the device's end is its pools' end */
}

static void arrays(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = { 1024, 1024, CU_AD_FORMAT_FLOAT, 4 };
	CUDA_ARRAY3D_DESCRIPTOR cube = { 256, 256, 256, CU_AD_FORMAT_HALF, 1, 0 };
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	CUmipmappedArray mip;
	CUarray a, b;
	start();
	size_t before = free_now();
	EQ(CALL(cuArrayCreate_v2)(&a, &flat), 0);
	EQ(free_now(), before - 16 * MIB); /* 32 bits of 4 channels are 16 bytes */
	EQ(CALL(cuArray3DCreate_v2)(&b, &cube), 0);
	EQ(free_now(), before - 48 * MIB);
	EQ(CALL(cuArrayGetMemoryRequirements)(&need, b, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuArrayDestroy)(a), 0);
	EQ(CALL(cuArrayDestroy)(b), 0);
	cube.Flags = CUDA_ARRAY3D_SPARSE;
	EQ(CALL(cuArray3DCreate_v2)(&b, &cube), 0);
	EQ(free_now(), before);
	EQ(CALL(cuArrayGetMemoryRequirements)(&need, b, 0), 0);
	EQ(need.size, 32 * MIB);
	EQ(CALL(cuArrayDestroy)(b), 0);
	cube.Flags = 0;
	EQ(CALL(cuMipmappedArrayCreate)(&mip, &cube, 3), 0); /* 32 + 4 + 0.5 MiB */
	EQ(free_now(), before - 38 * MIB);
	EQ(CALL(cuMipmappedArrayGetLevel)(&a, mip, 1), 0);
	EQ(CALL(cuArray3DGetDescriptor_v2)(&cube, a), 0);
	EQ(cube.Width, 128);
	EQ(CALL(cuArrayDestroy)(a), CUDA_ERROR_INVALID_HANDLE);
	EQ(CALL(cuMipmappedArrayDestroy)(mip), 0);
	EQ(free_now(), before);
	flat.Format = 0x77;
	EQ(CALL(cuArrayCreate_v2)(&a, &flat), CUDA_ERROR_NOT_SUPPORTED);
	flat.Format = CU_AD_FORMAT_UNSIGNED_INT8;
	flat.Width = flat.Height = (size_t)1 << 30;
	EQ(CALL(cuArrayCreate_v2)(&a, &flat), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(free_now(), before);
}

static uint64_t graph_value(int attribute)
{
	cuuint64_t n;
	EQ(CALL(cuDeviceGetGraphMemAttribute)(0, attribute, &n), 0);
	return n;
}

static void graphs(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = { .poolProps = { .allocType = 1, .location = { 1, 0 } },
					      .bytesize = 32 * MIB };
	CUgraph graph, captured;
	CUgraphNode node;
	CUgraphExec exec, again;
	CUdeviceptr ptr;
	CUstream stream;
	int capturing;
	start();
	size_t before = free_now();
	EQ(CALL(cuGraphCreate)(&graph, 0), 0);
	EQ(CALL(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params), 0);
	EQ(CALL(cuGraphInstantiateWithFlags)(&exec, graph, 0), 0);
	EQ(free_now(), before); /* nothing before the launch */
	EQ(CALL(cuMemsetD8_v2)(params.dptr, 0, 1), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGraphLaunch)(exec, NULL), 0);
	EQ(free_now(), before - 32 * MIB);
	EQ(CALL(cuMemsetD8_v2)(params.dptr, 0, 32 * MIB), 0);
	EQ(CALL(cuGraphLaunch)(exec, NULL), CUDA_ERROR_INVALID_VALUE); /* not freed yet */
	EQ(CALL(cuMemFreeAsync)(params.dptr, NULL), 0);
	EQ(free_now(), before - 32 * MIB); /* kept until it is trimmed */
	EQ(graph_value(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), 0);
	EQ(graph_value(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	EQ(CALL(cuGraphLaunch)(exec, NULL), 0);
	EQ(free_now(), before - 32 * MIB); /* and used again */
	EQ(CALL(cuMemFree_v2)(params.dptr), 0);
	EQ(CALL(cuGraphAddMemFreeNode)(&node, graph, &node, 1, params.dptr), 0);
	EQ(CALL(cuGraphInstantiateWithFlags)(&again, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH), 0);
	EQ(CALL(cuGraphLaunch)(again, NULL), 0);
	EQ(CALL(cuGraphLaunch)(again, NULL), 0);
	EQ(CALL(cuGraphExecDestroy)(again), 0);
	EQ(CALL(cuGraphExecDestroy)(exec), 0);
	EQ(CALL(cuGraphLaunch)(exec, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuDeviceGraphMemTrim)(0), 0);
	EQ(free_now(), before);

	EQ(CALL(cuStreamCreate)(&stream, 1), 0);
	EQ(CALL(cuStreamBeginCapture_v2)(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuStreamBeginCapture_v2)(stream, 0), 0);
	EQ(CALL(cuStreamIsCapturing)(stream, &capturing), 0);
	EQ(capturing, 1);
	EQ(CALL(cuMemAllocAsync)(&ptr, 8 * MIB, stream), 0);
	EQ(CALL(cuMemFreeAsync)(ptr, stream), 0);
	EQ(CALL(cuStreamEndCapture)(stream, &captured), 0);
	EQ(free_now(), before);
	EQ(CALL(cuGraphInstantiateWithFlags)(&exec, captured, 0), 0);
	EQ(CALL(cuGraphUpload)(exec, stream), 0);
	EQ(CALL(cuGraphLaunch)(exec, stream), 0);
	EQ(free_now(), before - 8 * MIB);
	EQ(CALL(cuDeviceGraphMemTrim)(0), 0);
	EQ(free_now(), before);

	CUgraphNodeParams big = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = params };
	big.alloc.bytesize = before + 2 * MIB;
	EQ(CALL(cuGraphAddNode_v2)(&node, captured, NULL, NULL, 0, &big), 0);
	EQ(CALL(cuGraphInstantiateWithFlags)(&again, captured, 0), 0);
	EQ(CALL(cuGraphLaunch)(again, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(CALL(cuDeviceGraphMemTrim)(0), 0);
	EQ(free_now(), before);
}

static void overhead(void)
{
	CUmodule small, large;
	CUlibrary code;
	CUkernel kernel;
	CUfunction f;
	CUlaunchConfig grid = { 1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0 };
	size_t value;
	start();
	size_t before = free_now();
	EQ(CALL(cuModuleLoadData)(&small, "image"), 0);
	EQ(free_now(), before - 2 * MIB);
	EQ(CALL(cuModuleLoadData)(&large, ".version 7.0 .visible .global .b8 big[33554432];"), 0);
	EQ(free_now(), before - 34 * MIB);
	EQ(CALL(cuModuleLoad)(&large, "/no/such/file"), CUDA_ERROR_FILE_NOT_FOUND);
	EQ(CALL(cuModuleUnload)(large), 0);
	EQ(CALL(cuLibraryLoadData)(&code, "image", NULL, NULL, 0, NULL, NULL, 0), 0);
	EQ(CALL(cuLibraryGetKernel)(&kernel, code, "k"), 0);
	EQ(CALL(cuKernelGetFunction)(&f, kernel), 0);
	EQ(free_now(), before - 4 * MIB);
	EQ(CALL(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 72 * MIB), 0);
	EQ(CALL(cuCtxGetLimit)(&value, CU_LIMIT_MALLOC_HEAP_SIZE), 0);
	EQ(value, 72 * MIB);
	EQ(free_now(), before - 4 * MIB); /* not before a launch needs it */
	EQ(CALL(cuLaunchKernelEx)(&grid, f, NULL, NULL), 0);
	EQ(free_now(), before - 68 * MIB);
	EQ(CALL(cuLaunchCooperativeKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), 0);
	EQ(free_now(), before - 68 * MIB);
	EQ(CALL(cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, before + 16 * MIB), 0);
	EQ(CALL(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(CALL(cuLibraryUnload)(code), 0);
	EQ(CALL(cuModuleUnload)(small), 0);
	EQ(CALL(cuDevicePrimaryCtxReset_v2)(0), 0);
	start();
	EQ(free_now(), before);
}

static void host(void)
{
	void *ptr;
	start();
	size_t before = free_now();
	EQ(CALL(cuMemHostAlloc)(&ptr, 64 * MIB, 0), 0);
	memset(ptr, 1, 4096);
	EQ(free_now(), before);
	EQ(CALL(cuMemFree_v2)((CUdeviceptr)(uintptr_t)ptr), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemFreeHost)(ptr), 0);
	EQ(CALL(cuMemFreeHost)(ptr), CUDA_ERROR_INVALID_VALUE);
}

/* A child and its parent, each with the driver to itself, over a socket. */
static void sharing(void)
{
	const CUmemPoolProps props = { .allocType = 1, .handleTypes = 1, .location = { 1, 0 } };
	const CUmemAllocationProp prop = { .type = 1, .requestedHandleTypes = 1, .location = { 1, 0 } };
	const CUmemAccessDesc access = { { 1, 0 }, 3 };
	struct {
		CUipcMemHandle ipc;
		CUmemPoolPtrExportData pointer;
	} sent;
	CUmemGenericAllocationHandle handle, again;
	CUmemoryPool pool;
	CUdeviceptr ptr, other;
	int to[2], status, shared, memory;
	char byte;
	EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, to), 0);
	pid_t pid = fork();
	if (pid == 0) {
		EQ(read(to[0], &sent, sizeof sent), sizeof sent);
		int fd = handed(to[0]);
		memory = handed(to[0]);
		start();
		size_t before = free_now();
		EQ(CALL(cuIpcOpenMemHandle_v2)(&ptr, sent.ipc, 1), 0);
		EQ(CALL(cuIpcOpenMemHandle_v2)(&other, sent.ipc, 1), 0); /* once more, and to be closed as often */
		EQ(other, ptr);
		EQ(CALL(cuIpcCloseMemHandle)(ptr), 0);
		EQ(CALL(cuMemsetD8_v2)(ptr, 0, 4 * MIB), 0);
		EQ(CALL(cuMemFree_v2)(ptr), CUDA_ERROR_INVALID_VALUE);
		EQ(CALL(cuMemPoolImportFromShareableHandle)(&pool, (void *)(intptr_t)fd, 1, 0), 0);
		EQ(CALL(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, 1), CUDA_ERROR_INVALID_VALUE);
		EQ(CALL(cuMemAllocFromPoolAsync)(&other, MIB, pool, NULL), CUDA_ERROR_INVALID_VALUE);
		EQ(CALL(cuMemPoolImportPointer)(&other, pool, &sent.pointer), 0);
		EQ(CALL(cuMemsetD8_v2)(other, 0, 6 * MIB), 0);
		EQ(CALL(cuMemFreeAsync)(other, NULL), 0);
		EQ(CALL(cuIpcCloseMemHandle)(ptr), 0);
		EQ(CALL(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)memory, 1), 0);
		EQ(CALL(cuMemAddressReserve)(&ptr, 8 * MIB, 0, 0, 0), 0);
		EQ(CALL(cuMemMap)(ptr, 8 * MIB, 0, handle, 0), 0);
		EQ(CALL(cuMemSetAccess)(ptr, 8 * MIB, &access, 1), 0);
		EQ(CALL(cuMemsetD8_v2)(ptr, 0, 8 * MIB), 0);
		EQ(CALL(cuIpcCloseMemHandle)(ptr), CUDA_ERROR_INVALID_VALUE);
		EQ(free_now(), before); /* charged to the parent alone, and once */
		EQ(write(to[0], "", 1), 1);
		EQ(read(to[0], &byte, 1), 1);
		EQ(free_now(), before + 4 * MIB); /* the parent has released both; what is mapped here lives on */
		EQ(CALL(cuMemsetD8_v2)(ptr, 0, 8 * MIB), 0);
		EQ(CALL(cuMemUnmap)(ptr, 8 * MIB), 0);
		EQ(CALL(cuMemRelease)(handle), 0);
		EQ(free_now(), before + 4 * MIB); /* a file stands for it */
		EQ(close(memory), 0);
		EQ(write(to[0], "", 1), 1);
		EQ(read(to[0], &byte, 1), 1);
		EQ(free_now(), before + 12 * MIB);
		_exit(0);
	}
	start();
	EQ(CALL(cuMemAlloc_v2)(&ptr, 4 * MIB), 0);
	EQ(CALL(cuIpcGetMemHandle)(&sent.ipc, ptr), 0);
	EQ(CALL(cuIpcOpenMemHandle_v2)(&other, sent.ipc, 1), CUDA_ERROR_INVALID_CONTEXT); /* one's own */
	EQ(CALL(cuMemPoolCreate)(&pool, &props), 0);
	EQ(CALL(cuMemAllocFromPoolAsync)(&other, 6 * MIB, pool, NULL), 0);
	EQ(CALL(cuMemPoolExportPointer)(&sent.pointer, other), 0);
	EQ(CALL(cuMemPoolExportToShareableHandle)(&shared, pool, 1, 0), 0);
	EQ(CALL(cuMemCreate)(&handle, 8 * MIB, &prop, 0), 0);
	EQ(CALL(cuMemExportToShareableHandle)(&memory, handle, 1, 0), 0);
	EQ(CALL(cuMemImportFromShareableHandle)(&again, (void *)(intptr_t)memory, 1), 0); /* one's own, once more */
	EQ(again, handle);
	EQ(CALL(cuMemRelease)(again), 0);
	size_t before = free_now();
	EQ(write(to[1], &sent, sizeof sent), sizeof sent);
	hand(to[1], shared);
	hand(to[1], memory);
	EQ(read(to[1], &byte, 1), 1);
	EQ(CALL(cuMemRelease)(handle), 0);
	EQ(CALL(cuMemFree_v2)(ptr), 0); /* the child has closed it */
	EQ(write(to[1], "", 1), 1);
	EQ(read(to[1], &byte, 1), 1);
	EQ(close(memory), 0);
	EQ(write(to[1], "", 1), 1);
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	EQ(free_now(), before + 12 * MIB);
}

/* Small allocations share blocks of 2 MiB, in which gaps are used again. */
static void packed(void)
{
	static const struct { size_t bytes, step, blocks; } each[] = {
		{ 1, 512, 1 }, { 513, 1024, 1 }, { 65536, 65536, 2 }, { 524289, 524800, 22 }, { MIB, MIB, 32 },
		{ MIB + 1, 2 * MIB, 64 },
	};
	CUdeviceptr p[64], in_gap;
	start();
	size_t before = free_now();
	for (size_t k = 0; k < sizeof each / sizeof each[0]; k++) {
		for (int i = 0; i < 64; i++)
			EQ(CALL(cuMemAlloc_v2)(&p[i], each[k].bytes), 0);
		EQ(p[1] - p[0], each[k].step);
		EQ(free_now(), before - each[k].blocks * 2 * MIB);
		EQ(CALL(cuMemFree_v2)(p[3]), 0);
		EQ(CALL(cuMemAlloc_v2)(&in_gap, each[k].bytes), 0);
		EQ(free_now(), before - each[k].blocks * 2 * MIB);
		p[3] = in_gap;
		for (int i = 0; i < 63; i++)
			EQ(CALL(cuMemFree_v2)(p[i]), 0);
		EQ(free_now(), before - 2 * MIB);
		EQ(CALL(cuMemFree_v2)(p[63]), 0);
		EQ(free_now(), before);
	}
}

/* Linear memory is rejected; arrays and sizes are not. */
static void v1(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR_v1 cube = { 256, 256, 256, CU_AD_FORMAT_HALF, 1, 0 };
	const CUDA_ARRAY_DESCRIPTOR_v1 flat = { 1024, 1024, CU_AD_FORMAT_FLOAT, 4 };
	CUdeviceptr_v1 a;
	CUarray array, layers;
	unsigned pitch, free, total, whole;
	start();
	size_t before = free_now();
	EQ(CALL(cuMemAlloc)(&a, MIB), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuMemAllocPitch)(&a, &pitch, 1000, 8192, 4), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuMemAlloc)(&a, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuArrayCreate)(&array, &flat), 0);
	EQ(CALL(cuArray3DCreate)(&layers, &cube), 0);
	EQ(free_now(), before - 48 * MIB);
	EQ(CALL(cuArrayDestroy)(array), 0);
	EQ(CALL(cuArrayDestroy)(layers), 0);
	EQ(CALL(cuMemGetInfo)(&free, &total), 0);
	EQ(CALL(cuDeviceTotalMem)(&whole, 0), 0);
	EQ(total == UINT32_MAX && whole == UINT32_MAX && free == UINT32_MAX, 1);
	EQ(free_now(), before);
}

/* What is done in a green context lives in the primary one. */
static void green(void)
{
	CUdevResource all;
	CUdevResourceDesc desc;
	CUgreenCtx g;
	CUcontext primary = start(), c;
	CUdeviceptr ptr;
	CUdevice device;
	size_t before = free_now();
	EQ(CALL(cuDeviceGetDevResource)(0, &all, 7), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuDeviceGetDevResource)(0, &all, CU_DEV_RESOURCE_TYPE_SM), 0);
	EQ(all.sm.smCount > 0, 1);
	EQ(CALL(cuDevResourceGenerateDesc)(&desc, &all, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuDevResourceGenerateDesc)(&desc, &all, 1), 0);
	EQ(CALL(cuGreenCtxCreate)(&g, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuGreenCtxCreate)(&g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM), 0);
	size_t cost = before - free_now();
	EQ(cost >= 2 * MIB, 1);
	EQ(CALL(cuCtxFromGreenCtx)(&c, g), 0);
	EQ(CALL(cuCtxSetCurrent)(c), 0);
	EQ(CALL(cuCtxGetDevice)(&device), 0);
	EQ(CALL(cuMemAlloc_v2)(&ptr, 64 * MIB), 0);
	EQ(CALL(cuCtxDestroy_v2)(c), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuGreenCtxDestroy)(g), 0);
	EQ(CALL(cuGreenCtxDestroy)(g), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuCtxFromGreenCtx)(&c, g), CUDA_ERROR_INVALID_CONTEXT);
	EQ(CALL(cuCtxSetCurrent)(primary), 0);
	EQ(free_now(), before - 64 * MIB);
	EQ(CALL(cuMemFree_v2)(ptr), 0);
	EQ(free_now(), before);
}

/* What is mapped stays when its handle goes, until the part is mapped again, unmapped, or gone with the array. */
static void sparse(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR cube = { 2048, 2048, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE };
	CUmemAllocationProp prop = { .type = 1, .location = { 1, 0 } };
	CUmemGenericAllocationHandle a, b;
	CUmipmappedArray mip;
	CUarray array;
	start();
	size_t before = free_now();
	EQ(CALL(cuArray3DCreate_v2)(&array, &cube), 0);
	EQ(CALL(cuMemCreate)(&b, 4 * MIB, &prop, 0), 0); /* for no tiles */
	prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
	EQ(CALL(cuMemCreate)(&a, 4 * MIB, &prop, 0), 0);
	CUarrayMapInfo both[2] = { { .memOperationType = CU_MEM_OPERATION_TYPE_MAP, .deviceBitMask = 1 } };
	both[0].resource.array = array;
	both[0].memHandle.memHandle = a;
	both[0].subresource.sparseLevel.extentWidth = 1024;
	both[0].subresource.sparseLevel.extentHeight = 1024;
	both[0].subresource.sparseLevel.extentDepth = 1;
	both[1] = both[0];
	both[1].memHandle.memHandle = b;
	EQ(CALL(cuMemMapArrayAsync)(both + 1, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMemRelease)(b), 0);
	EQ(CALL(cuMemCreate)(&b, 8 * MIB, &prop, 0), 0);
	both[1].subresource.sparseLevel.offsetX = 1024;
	both[1].memHandle.memHandle = b;
	both[1].offset = 6 * MIB;
	EQ(CALL(cuMemMapArrayAsync)(both, 2, NULL), CUDA_ERROR_INVALID_VALUE); /* the second has 2 MiB left */
	both[1].offset = 4 * MIB;
	EQ(CALL(cuMemMapArrayAsync)(both, 2, NULL), 0);
	EQ(CALL(cuMemRelease)(a), 0);
	EQ(CALL(cuMemRelease)(b), 0);
	EQ(free_now(), before - 12 * MIB);
	both[0].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	EQ(CALL(cuMemMapArrayAsync_ptsz)(both, 1, NULL), 0);
	EQ(free_now(), before - 8 * MIB);
	EQ(CALL(cuMemCreate)(&a, 4 * MIB, &prop, 0), 0);
	both[1].memHandle.memHandle = a;
	both[1].offset = 0;
	EQ(CALL(cuMemMapArrayAsync)(both + 1, 1, NULL), 0);
	EQ(free_now(), before - 4 * MIB);
	both[1].subresource.sparseLevel.offsetX = 1025;
	EQ(CALL(cuMemMapArrayAsync)(both + 1, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(CALL(cuMipmappedArrayCreate)(&mip, &cube, 2), 0);
	both[1].resourceType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
	both[1].resource.mipmap = mip;
	both[1].subresource.sparseLevel.offsetX = 0;
	both[1].subresource.sparseLevel.level = 1;
	EQ(CALL(cuMemMapArrayAsync)(both + 1, 1, NULL), 0);
	EQ(CALL(cuMemRelease)(a), 0);
	EQ(CALL(cuArrayDestroy)(array), 0);
	EQ(free_now(), before - 4 * MIB);
	EQ(CALL(cuMipmappedArrayDestroy)(mip), 0);
	EQ(free_now(), before);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {
		{ "pitched", pitched }, { "managed", managed },	  { "pools", pools }, { "arrays", arrays },
		{ "graphs", graphs },	{ "overhead", overhead }, { "host", host },   { "sharing", sharing },
		{ "v1", v1 },		{ "packed", packed },		{ "green", green },	  { "sparse", sparse },
	};
	for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof scenarios[0]; i++)
		if (strcmp(argv[1], scenarios[i].name) == 0) {
			load("libcuda.so.1");
			scenarios[i].run();
			return 0;
		}
	fprintf(stderr, "usage: cudamem SCENARIO\n");
	return 2;
}
