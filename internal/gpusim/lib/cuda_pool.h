/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools as the other files of libcuda.so.1 see them.
 */
#ifndef GPUSIM_CUDA_POOL_H
#define GPUSIM_CUDA_POOL_H

#include "cuda_core.h"

/* Kept for good, like contexts. Guarded by cuda_mu. */
struct CUmemPoolHandle_st {
	bool live, imported;
	bool shareable; /* made for other processes to import */
	CUdevice device;
	uint64_t threshold, max; /* max 0: none */
	uint64_t reserved, reserved_high, used, used_high;
	struct block *free;
	CUmemoryPool next;
};

/* cuda_pool: is this a pool that lives? */
CUresult cuda_pool(CUmemoryPool pool);
CUresult cuda_pool_new(CUmemoryPool *pool, CUdevice device);

/* cuda_graph_pool: what the graphs of a device have their memory from. */
CUresult cuda_graph_pool(CUmemoryPool *pool, CUdevice device);

/* cuda_pool_take and cuda_pool_put take a block for bytes, and put it back. taken is the block's size. */
CUresult cuda_pool_take(CUmemoryPool pool, size_t bytes, uint64_t *handle, uint64_t *taken);
CUresult cuda_pool_put(CUmemoryPool pool, uint64_t handle, uint64_t taken);

/* cuda_pool_trim gives back free blocks until keep bytes are reserved. */
CUresult cuda_pool_trim(CUmemoryPool pool, uint64_t keep);

#endif
