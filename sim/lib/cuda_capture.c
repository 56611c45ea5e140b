/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What graphs keep of a device's memory, and the capture of a stream into a graph.
 */
#include "cuda_pool.h"

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	CUmemoryPool pool;
	TRY(cuda_graph_pool(&pool, device));
	NEED(value && attribute >= 0 && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
	pthread_mutex_lock(&cuda_mu);
	const uint64_t all[] = { pool->memory.used, pool->used_high, pool->memory.reserved, pool->reserved_high };
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
		pool->used_high = pool->memory.used;
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

static CUresult begin(CUstream stream, int mode, bool per_thread)
{
	CUgraph graph;
	NEED(mode >= 0 && mode <= 2);
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	NEED(!graph);
	TRY(cuGraphCreate(&graph, 0));
	CUresult ret = cuda_stream_set_capture(stream, per_thread, graph);
	if (ret)
		cuGraphDestroy(graph);
	return ret;
}

static CUresult end(CUstream stream, CUgraph *graph, bool per_thread)
{
	NEED(graph);
	TRY(cuda_stream_capture(stream, per_thread, graph));
	NEED(*graph);
	return cuda_stream_set_capture(stream, per_thread, NULL);
}

static CUresult is_capturing(CUstream stream, int *status, bool per_thread)
{
	CUgraph graph;
	NEED(status);
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	*status = graph ? 1 : 0;
	return CUDA_SUCCESS;
}

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
