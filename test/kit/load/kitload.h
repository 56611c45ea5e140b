/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * kitload is the hardware kit's program for a GPU. It calls libcuda.so.1, which it opens with dlopen, and prints JSON
 * lines.
 */
#ifndef KITLOAD_H
#define KITLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

/* X(member, symbol): functions that each driver has. */
#define KIT_FUNCTIONS(X)                         \
	X(init, cuInit)                          \
	X(version, cuDriverGetVersion)           \
	X(error_name, cuGetErrorName)            \
	X(device_get, cuDeviceGet)               \
	X(device_name, cuDeviceGetName)          \
	X(attribute, cuDeviceGetAttribute)       \
	X(retain, cuDevicePrimaryCtxRetain)      \
	X(release, cuDevicePrimaryCtxRelease_v2) \
	X(ctx_create, cuCtxCreate_v2)            \
	X(ctx_destroy, cuCtxDestroy_v2)          \
	X(set_current, cuCtxSetCurrent)          \
	X(ctx_sync, cuCtxSynchronize)            \
	X(get_limit, cuCtxGetLimit)              \
	X(set_limit, cuCtxSetLimit)              \
	X(mem_info, cuMemGetInfo_v2)             \
	X(alloc, cuMemAlloc_v2)                  \
	X(free, cuMemFree_v2)                    \
	X(alloc_async, cuMemAllocAsync)          \
	X(free_async, cuMemFreeAsync)            \
	X(alloc_pitch, cuMemAllocPitch_v2)       \
	X(alloc_managed, cuMemAllocManaged)      \
	X(granularity, cuMemGetAllocationGranularity) \
	X(create, cuMemCreate)                   \
	X(release_handle, cuMemRelease)          \
	X(reserve, cuMemAddressReserve)          \
	X(unreserve, cuMemAddressFree)           \
	X(map, cuMemMap)                         \
	X(unmap, cuMemUnmap)                     \
	X(set_access, cuMemSetAccess)            \
	X(pool_create, cuMemPoolCreate)          \
	X(pool_destroy, cuMemPoolDestroy)        \
	X(alloc_from_pool, cuMemAllocFromPoolAsync) \
	X(memset, cuMemsetD8_v2)                 \
	X(to_host, cuMemcpyDtoH_v2)              \
	X(to_device, cuMemcpyHtoD_v2)            \
	X(copy, cuMemcpyDtoD_v2)                 \
	X(stream_create, cuStreamCreate)         \
	X(stream_sync, cuStreamSynchronize)      \
	X(module_load, cuModuleLoadDataEx)       \
	X(get_function, cuModuleGetFunction)     \
	X(launch, cuLaunchKernel)                \
	X(launch_ex, cuLaunchKernelEx)           \
	X(graph_create, cuGraphCreate)           \
	X(add_kernel, cuGraphAddKernelNode_v2)   \
	X(instantiate, cuGraphInstantiateWithFlags) \
	X(graph_launch, cuGraphLaunch)

/* A GPU with a context. Functions are NULL until load_kernels. */
struct gpu {
#define X(member, symbol) __typeof__(symbol) *member;
	KIT_FUNCTIONS(X)
#undef X
	void *library;
	CUdevice device;
	CUcontext context;
	int processors; /* multiprocessors */
	const char *ptx; /* the file that was loaded; NULL: none */
	uint64_t jit_ns;
	CUfunction empty, fill, check, fma, read, heap, print, stack;
	const char *failed; /* the call that failed, or a text of the loader */
};

/* What the command line says. */
struct arguments {
	const char *command, *api, *kind, *names;
	uint64_t alloc, step, every_ns; /* bytes, bytes, nanoseconds */
	double seconds;
	int device;
	unsigned count;
};

/* CALL leaves the function with the result unless it is success, and notes the call. */
#define CALL(g, call)                          \
	do {                                   \
		CUresult result_ = (g)->call;  \
		if (result_) {                 \
			(g)->failed = #call;   \
			return result_;        \
		}                              \
	} while (0)

uint64_t now_ns(void);

/* open_driver finds the functions; false: failed says why. open_gpu makes a context; load_kernels compiles the PTX in
 * the program's folder, the newest that the driver takes. */
bool open_driver(struct gpu *g);
CUresult open_gpu(struct gpu *g, int device);
CUresult load_kernels(struct gpu *g);
/* load_limits does the same for the kernels heap, print and stack. */
CUresult load_limits(struct gpu *g);
/* run launches a function with enough threads for the whole GPU. */
CUresult run(struct gpu *g, CUfunction f, void **params, CUstream stream);
/* kernels_run reports whether kernels change memory. The simulated driver runs none. */
CUresult kernels_run(struct gpu *g, bool *yes);

/* take and give memory by a family's name; NULL: no such family. */
struct family;
const struct family *find_family(const char *name);
struct block {
	CUdeviceptr ptr;
	size_t bytes;
	CUmemGenericAllocationHandle handle;
};
CUresult take(struct gpu *g, const struct family *f, struct block *p);
void give(struct gpu *g, const struct family *f, const struct block *p);

/* The commands. Each prints its lines; *failed of the GPU tells which call did not work. */
CUresult do_info(struct gpu *g, const struct arguments *a);
CUresult do_abi(struct gpu *g, const struct arguments *a);
CUresult do_fill(struct gpu *g, const struct arguments *a);
CUresult do_grow(struct gpu *g, const struct arguments *a);
CUresult do_stages(struct gpu *g, const struct arguments *a);
CUresult do_cost(struct gpu *g, const struct arguments *a);
CUresult do_work(struct gpu *g, const struct arguments *a);

/* median and other quantiles of n numbers, which it sorts. */
uint64_t quantile(uint64_t *values, size_t n, double q);

#endif
