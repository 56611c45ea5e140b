/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Steps that take no memory: NVML, and what the library must leave as it was.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "kerfcheck.h"

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;

void nvml_memory(const char *uuid)
{
	void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device = NULL;
	int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
	int (*by_uuid)(const char *, void **) = (int (*)(const char *, void **))dlsym(lib, "nvmlDeviceGetHandleByUUID");
	int (*info)(void *, memory_t *) = (int (*)(void *, memory_t *))dlsym(lib, "nvmlDeviceGetMemoryInfo");
	int (*info2)(void *, memory_v2_t *) = (int (*)(void *, memory_v2_t *))dlsym(lib, "nvmlDeviceGetMemoryInfo_v2");
	memory_t m = { 0 };
	memory_v2_t m2 = { .version = (unsigned)sizeof m2 | 2u << 24 };
	int ret = init();
	if (!ret)
		ret = by_uuid(uuid, &device);
	if (!ret)
		ret = info(device, &m);
	if (!ret)
		ret = info2(device, &m2);
	printf("%d %llu %llu %llu %llu %llu %llu\n", ret, m.total, m.free, m.used, m2.total, m2.free, m2.used);
}

static int threads(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n - 2;
}

/* Prints what a library could have changed. */
static void state(void)
{
	mode_t mask = umask(0);
	umask(mask);
	printf("umask %o threads %d handlers", (unsigned)mask, threads());
	sigset_t blocked;
	sigprocmask(SIG_SETMASK, NULL, &blocked);
	for (int s = 1; s <= 64; s++) {
		struct sigaction a;
		if (sigaction(s, NULL, &a) == 0 && a.sa_handler != SIG_DFL)
			printf(" %d", s);
		if (sigismember(&blocked, s) == 1)
			printf(" blocked %d", s);
	}
	printf("\n");
}

/* Asks twice for a name, and says whether that is found and where no error is left. */
static void look(const char *where, const char *name)
{
	void *handle = !strcmp(where, "next") ? RTLD_NEXT : !strcmp(where, "default") ? RTLD_DEFAULT
		: dlopen(NULL, RTLD_NOW);
	dlerror();
	void *first = dlsym(handle, name);
	const char *error = dlerror();
	void *second = dlsym(handle, name);
	const char *again = dlerror();
	printf("%s%s%s\n", first ? "found" : "none", first == second ? "" : " then another",
		!first != !error && !error == !again ? "" : " without error");
}

/* Allocates through the other preloaded library, and prints what that says. */
static void next(size_t bytes)
{
	CUdeviceptr ptr;
	int (*allocate)(CUdeviceptr *, size_t) = (int (*)(CUdeviceptr *, size_t))dlsym(RTLD_DEFAULT, "next_allocates");
	int (*sees)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "next_sees");
	int ret = allocate(&ptr, bytes);
	printf("%d %d\n", ret, sees());
}

static void left(const char *when)
{
	size_t free = 0, total = 0;
	CALL(cuMemGetInfo_v2)(&free, &total);
	printf("%s %zu\n", when, (total - free) >> 20);
}

/* One block of 4 MiB, and what is taken while it has handles and mappings in turn. */
static void vmm(void)
{
	const size_t unit = 2 << 20;
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
					   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR };
	CUmemGenericAllocationHandle h, again, back;
	CUdeviceptr va;
	int fd;
	CALL(cuMemAddressReserve)(&va, 8 * unit, 0, 0, 0);
	CALL(cuMemCreate)(&h, 2 * unit, &prop, 0);
	left("made");
	CALL(cuMemMap)(va, 2 * unit, 0, h, 0);
	CALL(cuMemMap)(va + 2 * unit, 2 * unit, 0, h, 0);
	CALL(cuMemExportToShareableHandle)(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	CALL(cuMemRelease)(h);
	left("mapped");
	CALL(cuMemRelease)(h); /* it has none */
	CALL(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)(va + 3 * unit));
	CALL(cuMemUnmap)(va, 4 * unit);
	left("held");
	CALL(cuMemImportFromShareableHandle)(&back, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	CALL(cuMemRelease)(again);
	left("imported");
	CALL(cuMemMap)(va, unit, 0, back, 0);
	CALL(cuMemMap)(va + unit, unit, 0, back, 0);
	CALL(cuMemRelease)(back);
	CALL(cuMemUnmap)(va + unit, unit);
	left("half");
	CALL(cuMemUnmap)(va, unit);
	left("gone");
}

/* Arrays without memory of their own. */
static void sparse(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 1 << 20, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4,
		.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING };
	CUarray a;
	CUmipmappedArray m;
	printf("%d ", CALL(cuArray3DCreate_v2)(&a, &d));
	printf("%d ", CALL(cuMipmappedArrayCreate)(&m, &d, 1));
	left("sparse");
	CALL(cuArrayDestroy)(a);
	CALL(cuMipmappedArrayDestroy)(m);
}

/* Memory that only arrays hold: two parts of one, of which one is mapped again. */
static void tiles(void)
{
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = 2048, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1,
		.Flags = CUDA_ARRAY3D_SPARSE };
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
		.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL };
	CUarrayMapInfo m[2] = { { .memOperationType = CU_MEM_OPERATION_TYPE_MAP, .deviceBitMask = 1 } };
	CUmemGenericAllocationHandle h;
	CUarray a;
	CALL(cuArray3DCreate_v2)(&a, &d);
	CALL(cuMemCreate)(&h, 4 << 20, &prop, 0);
	m[0].resource.array = a;
	m[0].memHandle.memHandle = h;
	m[0].subresource.sparseLevel.extentWidth = m[0].subresource.sparseLevel.extentHeight = 1024;
	m[0].subresource.sparseLevel.extentDepth = 1;
	m[1] = m[0];
	m[1].subresource.sparseLevel.offsetX = 1024;
	printf("%d ", CALL(cuMemMapArrayAsync)(m, 2, NULL));
	printf("%d ", CALL(cuMemMapArrayAsync_ptsz)(m, 1, NULL));
	CALL(cuMemRelease)(h);
	left("mapped");
	CALL(cuMemCreate)(&h, 6 << 20, &prop, 0);
	m[0].memHandle.memHandle = h;
	CALL(cuMemMapArrayAsync)(m, 1, NULL);
	CALL(cuMemRelease)(h);
	left("again");
	m[1].memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
	CALL(cuMemMapArrayAsync)(m + 1, 1, NULL);
	left("unmapped");
	CALL(cuArrayDestroy)(a);
	left("destroyed");
}

/* Memory that only a multicast object holds, and what of it goes when. */
static void team(void)
{
	const size_t unit = 2 << 20;
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	const CUmulticastObjectProp object = { .numDevices = 1, .size = 16 * unit };
	CUmemGenericAllocationHandle mc, h;
	CUdeviceptr va, at;
	printf("%d ", CALL(cuMulticastCreate)(&mc, &object));
	printf("%d ", CALL(cuMulticastAddDevice)(mc, 0));
	CALL(cuMemCreate)(&h, 4 * unit, &prop, 0);
	printf("%d ", CALL(cuMulticastBindMem)(mc, 0, h, 0, 2 * unit, 0));
	printf("%d ", CALL(cuMulticastBindMem)(mc, 4 * unit, h, 2 * unit, 2 * unit, 0));
	CALL(cuMemRelease)(h);
	left("bound");
	CALL(cuMulticastUnbind)(mc, 0, 0, 2 * unit);
	left("half");
	CALL(cuMulticastUnbind)(mc, 0, 4 * unit, 2 * unit);
	left("unbound");
	CALL(cuMemAddressReserve)(&va, 32 * unit, 0, 0, 0);
	CALL(cuMemCreate)(&h, unit, &prop, 0);
	CALL(cuMemMap)(va, unit, 0, h, 0);
	CALL(cuMemRelease)(h);
	printf("%d ", CALL(cuMulticastBindAddr)(mc, 0, va, unit, 0));
	CALL(cuMemUnmap)(va, unit);
	left("by address");
	at = va + 16 * unit;
	printf("%d ", CALL(cuMemMap)(at, 16 * unit, 0, mc, 0));
	CALL(cuMemRelease)(mc);
	left("released");
	CALL(cuMemUnmap)(at, 16 * unit);
	left("gone");
}

/* Makes up to n contexts of the first GPU, and prints how many there were. */
static void several(long n)
{
	CUcontext c;
	long made = 0;
	CALL(cuInit)(0);
	while (made < n && CALL(cuCtxCreate_v2)(&c, 0, 0) == 0)
		made++;
	printf("%ld\n", made);
}

/* Launches twice what each launch takes again, of which the driver frees the first. */
static void relaunch(size_t bytes)
{
	CUgraph g;
	CUgraphExec e;
	CUgraphNode node;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = bytes,
	};
	CALL(cuGraphCreate)(&g, 0);
	printf("%d ", CALL(cuGraphAddMemAllocNode)(&node, g, NULL, 0, &p));
	CALL(cuGraphInstantiateWithFlags)(&e, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	left("ready");
	printf("%d ", CALL(cuGraphLaunch)(e, NULL));
	left("once");
	printf("%d ", CALL(cuGraphLaunch)(e, NULL));
	left("twice");
	CALL(cuMemFree_v2)(p.dptr);
	left("freed");
	CALL(cuDeviceGraphMemTrim)(0);
	left("trimmed");
}

/* Makes a graph ready and has it uploaded in the same call, then launches it: what the driver answered, and its
 * reason. */
static void upload(size_t bytes)
{
	CUgraph g;
	CUgraphExec e = NULL;
	CUgraphNode node;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = bytes,
	};
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { .flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .result_out = 9 };
	CALL(cuGraphCreate)(&g, 0);
	CALL(cuGraphAddMemAllocNode)(&node, g, NULL, 0, &p);
	CUresult ret = CALL(cuGraphInstantiateWithParams)(&e, g, &params);
	printf("%d %d", ret, params.result_out);
	if (!ret)
		printf(" launched %d", CALL(cuGraphLaunch)(e, NULL));
	printf("\n");
}

/* Memory goes with its context, primary or not. */
static void contexts(void)
{
	CUcontext c, p;
	CUdeviceptr ptr;
	CUarray a;
	const CUDA_ARRAY_DESCRIPTOR d = { .Width = 4 << 20, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1 };
	CALL(cuMemAlloc_v2)(&ptr, 8 << 20);
	CALL(cuCtxGetCurrent)(&p);
	CALL(cuCtxCreate_v2)(&c, 0, 0);
	CALL(cuMemAlloc_v2)(&ptr, 2 << 20);
	CALL(cuArrayCreate_v2)(&a, &d);
	left("both");
	CALL(cuCtxDestroy_v2)(c);
	CALL(cuCtxSetCurrent)(p);
	left("one");
	CALL(cuMemAllocAsync)(&ptr, 4 << 20, NULL);
	CALL(cuDevicePrimaryCtxRetain)(&p, 0);
	CALL(cuDevicePrimaryCtxRelease_v2)(0);
	left("more");
	CALL(cuDevicePrimaryCtxReset_v2)(0);
	CALL(cuDevicePrimaryCtxRetain)(&p, 0);
	CALL(cuCtxSetCurrent)(p);
	left("reset");
	CALL(cuMemAlloc_v2)(&ptr, 8 << 20);
	CALL(cuDevicePrimaryCtxRelease_v2)(0);
	CALL(cuDevicePrimaryCtxRetain)(&p, 0);
	CALL(cuCtxSetCurrent)(p);
	left("released");
}

/* Prints the nanoseconds that one allocation and its free take, in the best of some runs. */
static void pairs(long rounds)
{
	CUresult (*allocate)(CUdeviceptr *, size_t) = CALL(cuMemAlloc_v2);
	CUresult (*release)(CUdeviceptr) = CALL(cuMemFree_v2);
	double best = 0;
	for (int run = 0; run < 7; run++) {
		struct timespec from, to;
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (long i = 0; i < rounds; i++) {
			CUdeviceptr ptr;
			if (allocate(&ptr, 2 << 20) || release(ptr))
				exit(5);
		}
		clock_gettime(CLOCK_MONOTONIC, &to);
		double ns = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)rounds;
		best = run && best < ns ? best : ns;
	}
	printf("%.1f\n", best);
}

/* Calls a function by its name, as if it were a new form of cuMemAllocAsync, and prints the result. */
static void call(const char *name)
{
	CUdeviceptr ptr;
	printf("%d\n", ((CUresult (*)(CUdeviceptr *, size_t, CUstream, unsigned long long))resolve(name))(&ptr, 2 << 20,
		NULL, 0));
}

bool other_step(char **arg)
{
	if (!strcmp(arg[0], "state"))
		state();
	else if (!strcmp(arg[0], "bogus"))
		printf("%d %d\n", CALL(cuMemFree_v2)(12345), CALL(cuMemFreeAsync)(12345, NULL));
	else if (!strcmp(arg[0], "vmm"))
		vmm();
	else if (!strcmp(arg[0], "sparse"))
		sparse();
	else if (!strcmp(arg[0], "tiles"))
		tiles();
	else if (!strcmp(arg[0], "team"))
		team();
	else if (!strcmp(arg[0], "several"))
		several(atol(arg[1]));
	else if (!strcmp(arg[0], "contexts"))
		contexts();
	else if (!strcmp(arg[0], "relaunch"))
		relaunch(strtoull(arg[1], NULL, 10));
	else if (!strcmp(arg[0], "upload"))
		upload(strtoull(arg[1], NULL, 10));
	else if (!strcmp(arg[0], "pairs"))
		pairs(atol(arg[1]));
	else if (!strcmp(arg[0], "sync"))
		CALL(cuStreamSynchronize)(NULL);
	else if (!strcmp(arg[0], "next"))
		next(strtoull(arg[1], NULL, 10));
	else if (!strcmp(arg[0], "spin"))
		spin(strtoull(arg[1], NULL, 10));
	else if (!strcmp(arg[0], "call"))
		call(arg[1]);
	else if (!strcmp(arg[0], "look"))
		look(arg[1], arg[2]);
	else
		return small_step(arg);
	return true;
}
