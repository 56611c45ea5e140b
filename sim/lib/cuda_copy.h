/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills, as calls and as nodes of graphs.
 */
#ifndef GPUSIM_CUDA_COPY_H
#define GPUSIM_CUDA_COPY_H

#include "cuda_core.h"

enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2, CU_MEMORYTYPE_ARRAY = 3, CU_MEMORYTYPE_UNIFIED = 4 };

/* One side of CUDA_MEMCPY3D, in which source and destination have the same members. */
struct copy_side {
	size_t x, y, z, level;
	int type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	CUcontext context; /* reserved where the copy is not between contexts */
	size_t pitch, height;
};
typedef struct {
	struct copy_side from, to;
	size_t width, height, depth;
} CUDA_MEMCPY3D;
_Static_assert(sizeof(CUDA_MEMCPY3D) == 200, "CUDA_MEMCPY3D");

struct copy_side_2d {
	size_t x, y;
	int type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t pitch;
};
typedef struct {
	struct copy_side_2d from, to;
	size_t width, height;
} CUDA_MEMCPY2D;
_Static_assert(sizeof(CUDA_MEMCPY2D) == 128, "CUDA_MEMCPY2D");

typedef struct {
	CUdeviceptr ptr;
	size_t pitch;
	unsigned value, element;
	size_t width, height; /* in elements and rows */
} CUDA_MEMSET_NODE_PARAMS;
_Static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == 40, "CUDA_MEMSET_NODE_PARAMS");

/* cuda_copy and cuda_fill check their ranges and do it in the order of the stream. */
CUresult cuda_copy(const CUDA_MEMCPY3D *c, CUstream stream, bool per_thread);
CUresult cuda_fill(const CUDA_MEMSET_NODE_PARAMS *p, CUstream stream, bool per_thread);

/* cuda_graph_add_copy and cuda_graph_add_fill add them to a graph, from which they are done at each launch. */
CUresult cuda_graph_add_copy(CUgraph graph, CUgraphNode *out, const CUDA_MEMCPY3D *c);
CUresult cuda_graph_add_fill(CUgraph graph, CUgraphNode *out, const CUDA_MEMSET_NODE_PARAMS *p);

#endif
