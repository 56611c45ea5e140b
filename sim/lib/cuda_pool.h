/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools as the other files of libcuda.so.1 see them.
 */
#ifndef GPUSIM_CUDA_POOL_H
#define GPUSIM_CUDA_POOL_H

#include "cuda_core.h"
#include "segments.h"

/* Kept for good, like contexts. Guarded by cuda_mu. */
struct CUmemPoolHandle_st {
	bool live, imported;
	bool shareable; /* made for other processes to import */
	CUdevice device;
	uint64_t threshold, max; /* max 0: none */
	struct segments memory;
	uint64_t used; /* as asked for */
	uint64_t reserved_high, used_high;
	CUmemoryPool next;
};

/* cuda_pool: is this a pool that lives? */
CUresult cuda_pool(CUmemoryPool pool);
CUresult cuda_pool_new(CUmemoryPool *pool, CUdevice device);
/* cuda_pool_of: the pool that a device's allocations without one are from, also while a stream is captured. */
CUresult cuda_pool_of(CUmemoryPool *pool, CUdevice device);

/* cuda_graph_pool: what the graphs of a device have their memory from. */
CUresult cuda_graph_pool(CUmemoryPool *pool, CUdevice device);

/* cuda_pool_take takes memory for an allocation of which pool (owner) and bytes are set. It fills in taken, its size
 * in the pool, and handle, its address, 0 in the memory of graphs. cuda_pool_put puts it back into the pool. */
CUresult cuda_pool_take(struct allocation *a);
CUresult cuda_pool_put(const struct allocation *a);

/* cuda_pool_trim gives back unused segments as long as keep bytes stay reserved. */
CUresult cuda_pool_trim(CUmemoryPool pool, uint64_t keep);

#endif
