/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of launches, allocations and frees, built node by node or captured from a stream. Nodes run in the
 * order in which they were added. An allocation has its address from the start and its memory from the launch
 * on; what is freed stays with the device's graphs until it is trimmed.
 */
#include "cuda_graph.h"
#include "cuda_pool.h"

#include <stdlib.h>

struct CUgraphExec_st {
	CUgraph graph;
	CUgraphNode end; /* the last node that there was: later ones are not part of it */
	bool auto_free, live;
	CUgraphExec next;
};

static CUgraph graphs; /* guarded by cuda_mu */
static CUgraphExec execs;

CUresult cuGraphCreate(CUgraph *graph, unsigned flags)
{
	TRY(cuda_enter());
	NEED(graph && flags == 0);
	CUgraph g = calloc(1, sizeof *g);
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->live = true;
	g->last = &g->first;
	pthread_mutex_lock(&cuda_mu);
	g->next = graphs;
	graphs = g;
	pthread_mutex_unlock(&cuda_mu);
	*graph = g;
	return CUDA_SUCCESS;
}

bool cuda_graph_lives(CUgraph graph)
{
	for (CUgraph g = graphs; g; g = g->next)
		if (g == graph)
			return g->live;
	return false;
}

static CUgraphExec find_exec(CUgraphExec exec)
{
	for (CUgraphExec e = execs; e; e = e->next)
		if (e == exec && e->live)
			return e;
	return NULL;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	TRY(cuda_enter());
	pthread_mutex_lock(&cuda_mu);
	bool ok = cuda_graph_lives(graph);
	if (ok)
		graph->live = false;
	pthread_mutex_unlock(&cuda_mu);
	NEED(ok);
	return CUDA_SUCCESS;
}

/* Dependencies are satisfied by the order of the nodes. */
CUresult cuda_graph_add(CUgraphNode *out, CUgraph graph, const struct CUgraphNode_st *node)
{
	TRY(cuda_enter());
	CUgraphNode n = malloc(sizeof *n);
	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*n = *node;
	pthread_mutex_lock(&cuda_mu);
	bool ok = cuda_graph_lives(graph);
	if (ok) {
		*graph->last = n;
		graph->last = &n->next;
	}
	pthread_mutex_unlock(&cuda_mu);
	if (!ok) {
		free(n);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (out)
		*out = n;
	return CUDA_SUCCESS;
}

CUresult cuda_graph_add_kernel(CUgraph graph, CUgraphNode *out, CUfunction function, uint64_t blocks,
			       uint64_t threads, uint64_t asked_ns)
{
	const struct CUgraphNode_st n = { .type = CU_GRAPH_NODE_TYPE_KERNEL, .function = function, .blocks = blocks,
					  .threads = threads, .asked_ns = asked_ns };
	return cuda_graph_add(out, graph, &n);
}

CUresult cuda_graph_add_alloc(CUgraph graph, CUgraphNode *out, CUdevice device, size_t bytes, CUdeviceptr *ptr)
{
	struct CUgraphNode_st n = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .device = device, .bytes = bytes };
	if (bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	TRY(cuMemAddressReserve(&n.ptr, cuda_round(bytes), 0, 0, 0));
	CUresult ret = cuda_graph_add(out, graph, &n);
	if (ret)
		cuMemAddressFree(n.ptr, cuda_round(bytes));
	else
		*ptr = n.ptr;
	return ret;
}

CUresult cuda_graph_add_free(CUgraph graph, CUgraphNode *out, CUdeviceptr ptr)
{
	const struct CUgraphNode_st n = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .ptr = ptr };
	return cuda_graph_add(out, graph, &n);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count)
{
	const struct CUgraphNode_st n = { .type = CU_GRAPH_NODE_TYPE_EMPTY };
	NEED(node && (after || !count));
	return cuda_graph_add(node, graph, &n);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
				 const CUDA_KERNEL_NODE_PARAMS *p)
{
	uint64_t blocks, threads, ns;
	NEED(node && p && (after || !count));
	blocks = cuda_volume(p->gridDimX, p->gridDimY, p->gridDimZ);
	threads = cuda_volume(p->blockDimX, p->blockDimY, p->blockDimZ);
	TRY(cuda_function_time(p->func, blocks, threads, p->kernelParams, &ns));
	return cuda_graph_add_kernel(graph, node, p->func, blocks, threads, ns);
}

/* The first version of the parameters is the head of the second, of which no more is read. */
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
			      const CUDA_KERNEL_NODE_PARAMS *p)
{
	return cuGraphAddKernelNode_v2(node, graph, after, count, p);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
				CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	struct device *d;
	NEED(node && p && p->bytesize && (after || !count));
	NEED(p->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED && !p->poolProps.handleTypes);
	NEED(p->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE);
	TRY(cuda_device(p->poolProps.location.id, &d));
	return cuda_graph_add_alloc(graph, node, p->poolProps.location.id, p->bytesize, &p->dptr);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
			       CUdeviceptr ptr)
{
	NEED(node && ptr && (after || !count));
	return cuda_graph_add_free(graph, node, ptr);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
			CUgraphNodeParams *p)
{
	NEED(p);
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphAddKernelNode_v2(node, graph, after, count, &p->kernel);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(node, graph, after, count);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return cuGraphAddMemAllocNode(node, graph, after, count, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(node, graph, after, count, p->free.dptr);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges,
			   size_t count, CUgraphNodeParams *p)
{
	(void)edges;
	return cuGraphAddNode(node, graph, after, count, p);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	TRY(cuda_enter());
	NEED(exec && !(flags & ~15ull));
	CUgraphExec e = calloc(1, sizeof *e);
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&cuda_mu);
	bool ok = cuda_graph_lives(graph);
	if (ok) {
		*e = (struct CUgraphExec_st){ .graph = graph, .live = true, .next = execs,
					      .auto_free = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH };
		for (CUgraphNode n = graph->first; n; n = n->next)
			e->end = n;
		execs = e;
		*exec = e;
	}
	pthread_mutex_unlock(&cuda_mu);
	if (!ok)
		free(e);
	NEED(ok);
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *log, size_t size)
{
	if (bad)
		*bad = NULL;
	if (log && size)
		*log = 0;
	return cuGraphInstantiateWithFlags(exec, graph, 0);
}

static CUresult with_params(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *p, bool per_thread)
{
	NEED(p);
	p->hErrNode_out = NULL;
	CUresult ret = cuGraphInstantiateWithFlags(exec, graph, p->flags);
	if (!ret && p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		ret = per_thread ? cuGraphUpload_ptsz(*exec, p->hUploadStream) : cuGraphUpload(*exec, p->hUploadStream);
	p->result_out = ret ? 1 : 0; /* CUDA_GRAPH_INSTANTIATE_ERROR */
	return ret;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return with_params(exec, graph, params, false);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return with_params(exec, graph, params, true);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	TRY(cuda_enter());
	pthread_mutex_lock(&cuda_mu);
	bool ok = find_exec(exec);
	if (ok)
		exec->live = false;
	pthread_mutex_unlock(&cuda_mu);
	NEED(ok);
	return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec exec, CUstream stream, bool per_thread)
{
	uint64_t when;
	TRY(cuda_stream_busy_until(stream, per_thread, &when));
	pthread_mutex_lock(&cuda_mu);
	bool ok = find_exec(exec);
	pthread_mutex_unlock(&cuda_mu);
	NEED(ok);
	return CUDA_SUCCESS; /* the memory comes with the launch */
}

static CUresult allocate(const struct CUgraphNode_st *n)
{
	CUmemoryPool pool;
	struct allocation a = { .ptr = n->ptr, .bytes = n->bytes, .device = n->device, .origin = POOLED };
	TRY(cuda_graph_pool(&pool, n->device));
	a.owner = pool;
	TRY(cuda_pool_take(&a));
	CUresult ret = cuda_remember(&a);
	if (ret)
		cuda_pool_put(&a);
	return ret;
}

static CUresult run(const struct CUgraphNode_st *n, CUstream stream, bool per_thread)
{
	switch (n->type) {
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return allocate(n);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuMemFree_v2(n->ptr);
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuda_run(n->function, n->blocks, n->threads, n->asked_ns, stream, per_thread);
	default:
		return cuda_node_run(n, stream, per_thread);
	}
}

CUresult cuda_graph_run(CUgraph graph, CUgraphNode end, CUstream stream, bool per_thread)
{
	for (CUgraphNode n = graph->first; n; n = n == end ? NULL : n->next)
		TRY(run(n, stream, per_thread));
	return CUDA_SUCCESS;
}

/* Is memory of an earlier launch still there? With drop it is freed. */
static CUresult left_over(CUgraphExec exec, bool drop)
{
	struct allocation a;
	for (CUgraphNode n = exec->end ? exec->graph->first : NULL; n; n = n == exec->end ? NULL : n->next) {
		if (n->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !cuda_holds(n->ptr, 1, &a))
			continue;
		NEED(drop);
		TRY(cuMemFree_v2(n->ptr));
	}
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream, bool per_thread)
{
	TRY(upload(exec, stream, per_thread));
	TRY(left_over(exec, exec->auto_free));
	CUresult ret = exec->end ? cuda_graph_run(exec->graph, exec->end, stream, per_thread) : CUDA_SUCCESS;
	if (ret)
		left_over(exec, true);
	return ret;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	return upload(exec, stream, false);
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	return upload(exec, stream, true);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, true);
}
