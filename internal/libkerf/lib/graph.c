/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of graphs. It is there from a launch on and is kept until it is trimmed. What a graph needs at most is
 * added up as its nodes come, in the order in which they come; a launch that finds no room for that is refused. What a
 * graph needs that is put together in other ways is booked after its launch.
 *
 * A graph's entry, an executable's and a capture's have the device in place; a node's has its memory's bytes. All are
 * guarded by the graph lock.
 */
#include "pool.h"

static pthread_mutex_t *lock(void)
{
	struct kerf_self *s = kerf_self();
	if (!s)
		return NULL;
	atomic_store_explicit(&s->graphs, true, memory_order_relaxed);
	pthread_mutex_lock(&s->graph);
	return &s->graph;
}

static bool seen(void)
{
	struct kerf_self *s = kerf_self();
	return s && atomic_load_explicit(&s->graphs, memory_order_relaxed);
}

static uint64_t number(const void *pointer)
{
	return (uint64_t)(uintptr_t)pointer;
}

/* The default streams of threads are each thread's own. */
static uint64_t stream_key(CUstream stream, bool per_thread)
{
	return (uintptr_t)stream > 2 ? number(stream) : per_thread || (uintptr_t)stream == 2 ? (uint64_t)pthread_self() : 1;
}

static struct kerf_entry *get(int kind, uint64_t key, CUdevice device)
{
	struct kerf_entry *e = kerf_remove(kind, key);
	if (!e && (e = kerf_entry())) {
		e->kind = kind;
		e->key = key;
		e->place = device;
	}
	return e;
}

static bool more(int kind, uint64_t key, CUdevice device, CUdeviceptr ptr, uint64_t bytes)
{
	struct kerf_entry *e = get(kind, key, device), *node = get(KERF_NODE, ptr, device);
	if (e && node) {
		node->bytes = bytes;
		if (e->place == device) /* what is on a second device is booked after the launch */
			e->bytes += bytes;
		if (e->bytes > e->peak)
			e->peak = e->bytes;
	}
	if (e)
		kerf_put(e);
	if (node)
		kerf_put(node);
	return e && node;
}

static void less(int kind, uint64_t key, CUdeviceptr ptr)
{
	struct kerf_entry *node = kerf_remove(KERF_NODE, ptr), *e = node ? kerf_remove(kind, key) : NULL;
	if (e) {
		if (e->place == node->place)
			e->bytes -= e->bytes < node->bytes ? e->bytes : node->bytes;
		kerf_put(e);
	}
	if (node)
		kerf_drop(node);
}

CUresult kerf_captured(CUdevice device, CUstream stream, bool per_thread, CUdeviceptr ptr, uint64_t bytes)
{
	pthread_mutex_t *held = lock();
	if (held) {
		more(KERF_CAPTURE, stream_key(stream, per_thread), device, ptr, bytes);
		pthread_mutex_unlock(held);
	}
	return CUDA_SUCCESS;
}

void kerf_captured_free(CUstream stream, bool per_thread, CUdeviceptr ptr)
{
	pthread_mutex_t *held = seen() ? lock() : NULL;
	if (held) {
		less(KERF_CAPTURE, stream_key(stream, per_thread), ptr);
		pthread_mutex_unlock(held);
	}
}

static CUresult end_capture(CUresult ret, CUstream stream, bool per_thread, const CUgraph *graph)
{
	pthread_mutex_t *held = seen() ? lock() : NULL;
	struct kerf_entry *e = held ? kerf_remove(KERF_CAPTURE, stream_key(stream, per_thread)) : NULL;
	if (e && !ret && *graph) {
		e->kind = KERF_GRAPH;
		e->key = number(*graph);
		kerf_put(e);
	} else if (e) {
		kerf_drop(e);
	}
	if (held)
		pthread_mutex_unlock(held);
	return ret;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	KERF_NEED(cuStreamEndCapture, CUDA_ERROR_NOT_INITIALIZED);
	return end_capture(real(stream, graph), stream, false, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	KERF_NEED(cuStreamEndCapture_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	return end_capture(real(stream, graph), stream, true, graph);
}

/* More than the whole limit is refused at once. */
static bool can_ever(CUdevice device, uint64_t bytes)
{
	uint64_t limit, used;
	kerf_size(kerf_place(device), &limit, &used);
	if (bytes <= limit)
		return true;
	kerf_refused(kerf_place(device));
	return false;
}

static CUresult added(CUresult ret, CUgraph graph, const CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	pthread_mutex_t *held = ret ? NULL : lock();
	if (held) {
		more(KERF_GRAPH, number(graph), p->pool.location.id, p->ptr, (p->bytes + (2 << 20) - 1) >> 21 << 21);
		pthread_mutex_unlock(held);
	}
	return ret;
}

static CUresult freed(CUresult ret, CUgraph graph, CUdeviceptr ptr)
{
	pthread_mutex_t *held = ret ? NULL : lock();
	if (held) {
		less(KERF_GRAPH, number(graph), ptr);
		pthread_mutex_unlock(held);
	}
	return ret;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
				CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	KERF_NEED(cuGraphAddMemAllocNode, CUDA_ERROR_NOT_INITIALIZED);
	if (params && !can_ever(params->pool.location.id, params->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	return added(real(node, graph, after, n, params), graph, params);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n, CUdeviceptr ptr)
{
	KERF_NEED(cuGraphAddMemFreeNode, CUDA_ERROR_NOT_INITIALIZED);
	return freed(real(node, graph, after, n, ptr), graph, ptr);
}

static bool refuse(const CUgraphNodeParams *p)
{
	return p && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !can_ever(p->alloc.pool.location.id, p->alloc.bytes);
}

static CUresult added_node(CUresult ret, CUgraph graph, const CUgraphNodeParams *p)
{
	if (!ret && p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return added(ret, graph, &p->alloc);
	return !ret && p->type == CU_GRAPH_NODE_TYPE_MEM_FREE ? freed(ret, graph, p->free) : ret;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t n,
			CUgraphNodeParams *params)
{
	KERF_NEED(cuGraphAddNode, CUDA_ERROR_NOT_INITIALIZED);
	return refuse(params) ? CUDA_ERROR_OUT_OF_MEMORY : added_node(real(node, graph, after, n, params), graph, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, size_t n,
			   CUgraphNodeParams *params)
{
	KERF_NEED(cuGraphAddNode_v2, CUDA_ERROR_NOT_INITIALIZED);
	return refuse(params) ? CUDA_ERROR_OUT_OF_MEMORY
		: added_node(real(node, graph, after, edges, n, params), graph, params);
}

static CUresult forget(CUresult ret, int kind, const void *what)
{
	pthread_mutex_t *held = !ret && seen() ? lock() : NULL;
	struct kerf_entry *e = held ? kerf_remove(kind, number(what)) : NULL;
	if (e)
		kerf_drop(e);
	if (held)
		pthread_mutex_unlock(held);
	return ret;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	KERF_NEED(cuGraphDestroy, CUDA_ERROR_NOT_INITIALIZED);
	return forget(real(graph), KERF_GRAPH, graph);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	KERF_NEED(cuGraphExecDestroy, CUDA_ERROR_NOT_INITIALIZED);
	return forget(real(exec), KERF_EXEC, exec);
}
