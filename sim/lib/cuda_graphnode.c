/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Nodes that copy, fill, call the program, or run another graph; and what a graph says of its nodes.
 */
#include "cuda_graph.h"

#include <stdlib.h>

struct host_params {
	void (*call)(void *);
	void *data;
};

static void *copied(const void *from, size_t bytes)
{
	void *to = malloc(bytes);
	return to ? memcpy(to, from, bytes) : NULL;
}

CUresult cuda_graph_add_copy(CUgraph graph, CUgraphNode *out, const CUDA_MEMCPY3D *c)
{
	struct CUgraphNode_st n = { .type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = copied(c, sizeof *c) };
	CUresult ret = n.copy ? cuda_graph_add(out, graph, &n) : CUDA_ERROR_OUT_OF_MEMORY;
	if (ret)
		free(n.copy);
	return ret;
}

CUresult cuda_graph_add_fill(CUgraph graph, CUgraphNode *out, const CUDA_MEMSET_NODE_PARAMS *p)
{
	struct CUgraphNode_st n = { .type = CU_GRAPH_NODE_TYPE_MEMSET, .fill = copied(p, sizeof *p) };
	CUresult ret = n.fill ? cuda_graph_add(out, graph, &n) : CUDA_ERROR_OUT_OF_MEMORY;
	if (ret)
		free(n.fill);
	return ret;
}

API(cuGraphAddMemcpyNode,
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, const CUDA_MEMCPY3D *c, CUcontext context))
{
	(void)context;
	NEED(node && c && (after || !n));
	return cuda_graph_add_copy(graph, node, c);
}

API(cuGraphAddMemsetNode,
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, const CUDA_MEMSET_NODE_PARAMS *p,
    CUcontext context))
{
	(void)context;
	NEED(node && p && (after || !n) && (p->element == 1 || p->element == 2 || p->element == 4));
	return cuda_graph_add_fill(graph, node, p);
}

API(cuGraphAddHostNode,
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, const struct host_params *p))
{
	NEED(node && p && p->call && (after || !n));
	const struct CUgraphNode_st host = { .type = CU_GRAPH_NODE_TYPE_HOST, .call = p->call, .data = p->data };
	return cuda_graph_add(node, graph, &host);
}

/* Memory that a graph allocates may not be in a child. */
static bool has_memory(CUgraph graph)
{
	bool some = false;
	for (CUgraphNode n = graph->first; n; n = n->next)
		some = some || n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || n->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
	return some;
}

API(cuGraphAddChildGraphNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUgraph child))
{
	NEED(node && (after || !n) && child != graph);
	pthread_mutex_lock(&cuda_mu);
	bool ok = cuda_graph_lives(child);
	bool memory = ok && has_memory(child);
	pthread_mutex_unlock(&cuda_mu);
	NEED(ok);
	if (memory)
		return CUDA_ERROR_NOT_SUPPORTED;
	const struct CUgraphNode_st of = { .type = CU_GRAPH_NODE_TYPE_GRAPH, .child = child };
	return cuda_graph_add(node, graph, &of);
}

CUresult cuda_node_run(const struct CUgraphNode_st *n, CUstream stream, bool per_thread)
{
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuda_copy(n->copy, stream, per_thread);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cuda_fill(n->fill, stream, per_thread);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cuda_callback_add(stream, n->call, n->data, per_thread);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuda_graph_run(n->child, NULL, stream, per_thread);
	default:
		return CUDA_SUCCESS;
	}
}

static CUresult typed(CUgraphNode node, int type)
{
	TRY(cuda_enter());
	NEED(node && node->type == type);
	return CUDA_SUCCESS;
}

API(cuGraphNodeGetType, (CUgraphNode node, int *type))
{
	TRY(cuda_enter());
	NEED(node && type);
	*type = node->type;
	return CUDA_SUCCESS;
}

API(cuGraphMemcpyNodeGetParams, (CUgraphNode node, CUDA_MEMCPY3D *out))
{
	NEED(out);
	TRY(typed(node, CU_GRAPH_NODE_TYPE_MEMCPY));
	*out = *node->copy;
	return CUDA_SUCCESS;
}

API(cuGraphMemsetNodeGetParams, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *out))
{
	NEED(out);
	TRY(typed(node, CU_GRAPH_NODE_TYPE_MEMSET));
	*out = *node->fill;
	return CUDA_SUCCESS;
}

API(cuGraphHostNodeGetParams, (CUgraphNode node, struct host_params *out))
{
	NEED(out);
	TRY(typed(node, CU_GRAPH_NODE_TYPE_HOST));
	*out = (struct host_params){ node->call, node->data };
	return CUDA_SUCCESS;
}

API(cuGraphChildGraphNodeGetGraph, (CUgraphNode node, CUgraph *out))
{
	NEED(out);
	TRY(typed(node, CU_GRAPH_NODE_TYPE_GRAPH));
	*out = node->child;
	return CUDA_SUCCESS;
}

API(cuGraphMemAllocNodeGetParams, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *out))
{
	NEED(out);
	TRY(typed(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC));
	*out = (CUDA_MEM_ALLOC_NODE_PARAMS){ .bytesize = node->bytes, .dptr = node->ptr };
	out->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	out->poolProps.location = (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, node->device };
	return CUDA_SUCCESS;
}

API(cuGraphMemFreeNodeGetParams, (CUgraphNode node, CUdeviceptr *out))
{
	NEED(out);
	TRY(typed(node, CU_GRAPH_NODE_TYPE_MEM_FREE));
	*out = node->ptr;
	return CUDA_SUCCESS;
}

API(cuGraphGetNodes, (CUgraph graph, CUgraphNode *nodes, size_t *n))
{
	TRY(cuda_enter());
	NEED(n);
	size_t room = nodes ? *n : 0, count = 0;
	pthread_mutex_lock(&cuda_mu);
	bool ok = cuda_graph_lives(graph);
	for (CUgraphNode at = ok ? graph->first : NULL; at; at = at->next, count++)
		if (count < room)
			nodes[count] = at;
	pthread_mutex_unlock(&cuda_mu);
	NEED(ok);
	for (size_t i = count; i < room; i++)
		nodes[i] = NULL;
	*n = nodes && room < count ? room : count;
	return CUDA_SUCCESS;
}
