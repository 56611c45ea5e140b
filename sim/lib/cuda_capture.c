/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What graphs keep of a device's memory, and the capture of a stream into a graph.
 */
#include "cuda_graph.h"
#include "cuda_pool.h"

#include <stdlib.h>

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	CUmemoryPool pool;
	TRY(cuda_graph_pool(&pool, device));
	NEED(value && attribute >= 0 && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
	pthread_mutex_lock(&cuda_mu);
	const uint64_t all[] = { pool->used, pool->used_high, pool->memory.reserved, pool->reserved_high };
	pthread_mutex_unlock(&cuda_mu);
	*(cuuint64_t *)value = all[attribute];
	return CUDA_SUCCESS;
}

/* Only the high-water marks can be set, and only back. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	CUmemoryPool pool;
	TRY(cuda_graph_pool(&pool, device));
	bool used = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
	NEED(value && *(cuuint64_t *)value == 0 && (used || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH));
	pthread_mutex_lock(&cuda_mu);
	if (used)
		pool->used_high = pool->used;
	else
		pool->reserved_high = pool->memory.reserved;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	CUmemoryPool pool;
	TRY(cuda_graph_pool(&pool, device));
	return cuda_pool_trim(pool, 0);
}

CUresult cuda_capture_alloc(CUdeviceptr *ptr, size_t bytes, CUdevice device, CUstream stream, bool per_thread,
			    bool *captured)
{
	CUgraph graph;
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	*captured = graph;
	return graph ? cuda_graph_add_alloc(graph, NULL, device, bytes, ptr) : CUDA_SUCCESS;
}

CUresult cuda_capture_free(CUdeviceptr ptr, CUstream stream, bool per_thread, bool *captured)
{
	CUgraph graph;
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	*captured = graph;
	return graph ? cuda_graph_add_free(graph, NULL, ptr) : CUDA_SUCCESS;
}

enum { MODE_GLOBAL = 0, MODE_THREAD_LOCAL = 1, MODE_RELAXED = 2 };
enum { STATUS_NONE = 0, STATUS_ACTIVE = 1, STATUS_INVALIDATED = 2 };

struct capture {
	CUgraph graph;
	int mode;
	pthread_t thread;
	bool invalid;
	uint64_t id;
	struct capture *next;
};

static struct capture *captures; /* guarded by cuda_mu */
static uint64_t last_id;
static __thread int thread_mode = MODE_GLOBAL;

/* With cuda_mu held. */
static struct capture **find(CUgraph graph)
{
	struct capture **at = &captures;
	while (*at && (*at)->graph != graph)
		at = &(*at)->next;
	return at;
}

API(cuThreadExchangeStreamCaptureMode, (int *mode))
{
	TRY(cuda_enter());
	NEED(mode && *mode >= MODE_GLOBAL && *mode <= MODE_RELAXED);
	int was = thread_mode;
	thread_mode = *mode;
	*mode = was;
	return CUDA_SUCCESS;
}

CUresult cuda_prohibited(void)
{
	bool hit = false;
	if (thread_mode == MODE_RELAXED)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&cuda_mu);
	for (struct capture *c = captures; c; c = c->next) {
		bool own = pthread_equal(c->thread, pthread_self());
		if ((own && c->mode != MODE_RELAXED) || (c->mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL))
			hit = c->invalid = true;
	}
	pthread_mutex_unlock(&cuda_mu);
	return hit ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, int mode, bool per_thread)
{
	CUgraph graph;
	NEED(mode >= MODE_GLOBAL && mode <= MODE_RELAXED);
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	NEED(!graph);
	struct capture *c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = cuGraphCreate(&graph, 0);
	if (!ret && (ret = cuda_stream_set_capture(stream, per_thread, graph)))
		cuGraphDestroy(graph);
	if (ret) {
		free(c);
		return ret;
	}
	pthread_mutex_lock(&cuda_mu);
	*c = (struct capture){ graph, mode, pthread_self(), false, ++last_id, captures };
	captures = c;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

static CUresult end(CUstream stream, CUgraph *graph, bool per_thread)
{
	NEED(graph);
	TRY(cuda_stream_capture(stream, per_thread, graph));
	NEED(*graph);
	pthread_mutex_lock(&cuda_mu);
	struct capture **at = find(*graph), *c = *at;
	bool other = c && c->mode != MODE_RELAXED && !pthread_equal(c->thread, pthread_self());
	if (c && !other)
		*at = c->next;
	pthread_mutex_unlock(&cuda_mu);
	if (other)
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	bool invalid = c && c->invalid;
	free(c);
	TRY(cuda_stream_set_capture(stream, per_thread, NULL));
	if (!invalid)
		return CUDA_SUCCESS;
	cuGraphDestroy(*graph);
	*graph = NULL;
	return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

/* In a stream that is captured, its graph and the number of the capture. */
static CUresult capture_of(CUstream stream, int *status, unsigned long long *id, CUgraph *graph, bool per_thread)
{
	CUgraph of;
	NEED(status);
	TRY(cuda_stream_capture(stream, per_thread, &of));
	pthread_mutex_lock(&cuda_mu);
	const struct capture *c = of ? *find(of) : NULL;
	*status = !c ? STATUS_NONE : c->invalid ? STATUS_INVALIDATED : STATUS_ACTIVE;
	if (c && id)
		*id = c->id;
	pthread_mutex_unlock(&cuda_mu);
	if (graph)
		*graph = of;
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, int *status, bool per_thread)
{
	return capture_of(stream, status, NULL, NULL, per_thread);
}

/* Nodes run in the order in which they were added, so that the next one depends on the last. */
static CUresult info(CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **after,
		     size_t *n,
		     bool per_thread)
{
	static __thread CUgraphNode newest;
	CUgraph of;
	TRY(capture_of(stream, status, id, &of, per_thread));
	newest = NULL;
	pthread_mutex_lock(&cuda_mu);
	for (CUgraphNode at = of ? of->first : NULL; at; at = at->next)
		newest = at;
	pthread_mutex_unlock(&cuda_mu);
	if (graph)
		*graph = of;
	if (after)
		*after = &newest;
	if (n)
		*n = newest != NULL;
	return CUDA_SUCCESS;
}

STREAM_API(cuStreamGetCaptureInfo, _ptsz, (CUstream stream, int *status, unsigned long long *id),
	   capture_of(stream, status, id, NULL, per_thread))
STREAM_API(cuStreamGetCaptureInfo_v2, _ptsz,
	   (CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **after, size_t *n),
	   info(stream, status, id, graph, after, n, per_thread))

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	return begin(stream, mode, false);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
	return begin(stream, mode, true);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	return end(stream, graph, false);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return end(stream, graph, true);
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	return is_capturing(stream, status, false);
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status)
{
	return is_capturing(stream, status, true);
}
