/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Nodes of graphs.
 */
#ifndef GPUSIM_CUDA_GRAPH_H
#define GPUSIM_CUDA_GRAPH_H

#include "cuda_copy.h"

/* Nodes are never freed while their graph lives, and graphs not while an exec may refer to them: both are kept
 * for good, like contexts. */
struct CUgraphNode_st {
	int type;
	CUdevice device;
	CUdeviceptr ptr; /* MEM_ALLOC, MEM_FREE */
	uint64_t bytes;
	CUfunction function; /* KERNEL */
	uint64_t blocks, threads, asked_ns;
	CUDA_MEMCPY3D *copy;	       /* MEMCPY */
	CUDA_MEMSET_NODE_PARAMS *fill; /* MEMSET */
	void (*call)(void *);	       /* HOST */
	void *data;
	CUgraph child; /* GRAPH */
	CUgraphNode next;
};

struct CUgraph_st {
	CUgraphNode first, *last;
	bool live;
	CUgraph next;
};

/* cuda_graph_add adds a copy of a node. cuda_graph_lives, with cuda_mu held: is this a graph that was not destroyed? */
CUresult cuda_graph_add(CUgraphNode *out, CUgraph graph, const struct CUgraphNode_st *node);
bool cuda_graph_lives(CUgraph graph);
/* cuda_node_run does what a node does that is neither an allocation nor a free nor a launch. */
CUresult cuda_node_run(const struct CUgraphNode_st *n, CUstream stream, bool per_thread);
CUresult cuda_graph_run(CUgraph graph, CUgraphNode end, CUstream stream, bool per_thread);

/* cuda_callback_add has a stream call a function of the program. */
CUresult cuda_callback_add(CUstream stream, void (*call)(void *), void *data, bool per_thread);

#endif
