/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Attributes of functions, and how many blocks of one a multiprocessor has at once. Every function needs as little as
 * can be.
 */
#include "cuda_core.h"

#define REGISTERS 32
#define SHARED_BY_DEFAULT (48 << 10)
enum {
	MAX_THREADS_PER_BLOCK = 0, SHARED_SIZE = 1, CONST_SIZE = 2, LOCAL_SIZE = 3, NUM_REGS = 4, PTX_VERSION = 5,
		BINARY_VERSION = 6,
	CACHE_MODE_CA = 7, MAX_DYNAMIC_SHARED = 8, SHARED_CARVEOUT = 9, LAST = 15,
};

static CUresult checked(CUfunction function, CUdevice *device)
{
	CUcontext context;
	TRY(cuda_current(&context));
	*device = context->device;
	return cuda_function_name(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuFuncGetAttribute, (int *value, int attribute, CUfunction function))
{
	CUdevice device;
	struct device *d;
	NEED(value && attribute >= 0 && attribute <= LAST);
	TRY(checked(function, &device));
	TRY(cuda_device(device, &d));
	switch (attribute) {
	case MAX_THREADS_PER_BLOCK: *value = 1024; break;
	case NUM_REGS: *value = REGISTERS; break;
	case PTX_VERSION: case BINARY_VERSION: *value = (int)(10 * d->cc_major + d->cc_minor); break;
	case MAX_DYNAMIC_SHARED: *value = SHARED_BY_DEFAULT; break;
	case SHARED_CARVEOUT: *value = -1; break;
	default: *value = 0; break;
	}
	return CUDA_SUCCESS;
}

API(cuFuncSetAttribute, (CUfunction function, int attribute, int value))
{
	CUdevice device;
	int most;
	NEED(attribute >= MAX_DYNAMIC_SHARED && attribute <= LAST);
	TRY(checked(function, &device));
	TRY(cuDeviceGetAttribute(&most, 97, device)); /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
	NEED(attribute != MAX_DYNAMIC_SHARED || (value >= 0 && value <= most));
	NEED(attribute != SHARED_CARVEOUT || (value >= -1 && value <= 100));
	return CUDA_SUCCESS;
}

API(cuFuncSetCacheConfig, (CUfunction function, int config))
{
	CUdevice device;
	NEED(config >= 0 && config <= 3);
	return checked(function, &device);
}

API(cuFuncSetSharedMemConfig, (CUfunction function, int config))
{
	CUdevice device;
	NEED(config >= 0 && config <= 2);
	return checked(function, &device);
}

/* The two are for launches of the first kind, which are not simulated; newer ones have their own. */
API(cuFuncSetBlockShape, (CUfunction function, int x, int y, int z))
{
	CUdevice device;
	TRY(checked(function, &device));
	NEED(x > 0 && y > 0 && z > 0 && z <= 64);
	uint64_t threads = cuda_volume((unsigned)x, (unsigned)y, (unsigned)z);
	NEED(threads && threads <= 1024);
	return CUDA_SUCCESS;
}

API(cuFuncSetSharedSize, (CUfunction function, unsigned bytes))
{
	CUdevice device;
	int most;
	TRY(checked(function, &device));
	TRY(cuDeviceGetAttribute(&most, 97, device));
	NEED(bytes <= (unsigned)most);
	return CUDA_SUCCESS;
}

static CUresult blocks_of(int *blocks, CUfunction function, int threads, size_t shared)
{
	CUdevice device;
	int most_threads, most_blocks, most_shared;
	NEED(blocks && threads > 0);
	TRY(checked(function, &device));
	TRY(cuDeviceGetAttribute(&most_threads, 39, device));
	TRY(cuDeviceGetAttribute(&most_blocks, 106, device));
	TRY(cuDeviceGetAttribute(&most_shared, 81, device));
	int rounded = (threads + 31) / 32 * 32, n = most_threads / rounded;
	if (shared && (size_t)most_shared / shared < (size_t)n)
		n = (int)((size_t)most_shared / shared);
	*blocks = threads > 1024 ? 0 : n < most_blocks ? n : most_blocks;
	return CUDA_SUCCESS;
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, CUfunction function, int threads, size_t shared))
{
	return blocks_of(blocks, function, threads, shared);
}

API(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int *blocks, CUfunction function, int threads, size_t shared,
	unsigned flags))
{
	NEED(flags <= 1);
	return blocks_of(blocks, function, threads, shared);
}

API(cuOccupancyAvailableDynamicSMemPerBlock, (size_t *shared, CUfunction function, int blocks, int threads))
{
	CUdevice device;
	int most, most_of_block;
	NEED(shared && blocks > 0 && threads > 0 && threads <= 1024);
	TRY(checked(function, &device));
	TRY(cuDeviceGetAttribute(&most, 81, device));
	TRY(cuDeviceGetAttribute(&most_of_block, 97, device));
	*shared = (size_t)(most / blocks < most_of_block ? most / blocks : most_of_block);
	return CUDA_SUCCESS;
}

static CUresult potential(int *grid, int *block, CUfunction function, size_t (*need)(int), size_t shared, int limit)
{
	CUdevice device;
	int sms, n;
	NEED(grid && block);
	TRY(checked(function, &device));
	TRY(cuDeviceGetAttribute(&sms, 16, device));
	*block = limit > 0 && limit < 1024 ? limit : 1024;
	TRY(blocks_of(&n, function, *block, need ? need(*block) : shared));
	*grid = n * sms;
	return CUDA_SUCCESS;
}

API(cuOccupancyMaxPotentialBlockSize, (int *grid, int *block, CUfunction function, size_t (*need)(int), size_t shared,
	int limit))
{
	return potential(grid, block, function, need, shared, limit);
}

API(cuOccupancyMaxPotentialBlockSizeWithFlags,
    (int *grid, int *block, CUfunction function, size_t (*need)(int), size_t shared, int limit, unsigned flags))
{
	NEED(flags <= 1);
	return potential(grid, block, function, need, shared, limit);
}
