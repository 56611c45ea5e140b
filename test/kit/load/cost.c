/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What calls cost: the median of each in nanoseconds.
 */
#include "kitload.h"

#include <stdio.h>

enum { MOST = 4096 };

struct cost {
	const char *name;
	unsigned times;
	CUresult (*call)(struct gpu *g, void *with);
	void *with;
};

static CUresult pair(struct gpu *g, void *with)
{
	CUdeviceptr ptr;
	CALL(g, alloc(&ptr, *(size_t *)with));
	CALL(g, free(ptr));
	return CUDA_SUCCESS;
}

static CUresult launch(struct gpu *g, void *with)
{
	(void)with;
	CALL(g, launch(g->empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	return CUDA_SUCCESS;
}

static CUresult launch_ex(struct gpu *g, void *with)
{
	const CUlaunchConfig c = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
		.blockDimZ = 1 };
	(void)with;
	CALL(g, launch_ex(&c, g->empty, NULL, NULL));
	return CUDA_SUCCESS;
}

static CUresult launch_graph(struct gpu *g, void *with)
{
	CALL(g, graph_launch(with, NULL));
	return CUDA_SUCCESS;
}

static CUresult copy(struct gpu *g, void *with)
{
	const CUdeviceptr *ptr = with;
	CALL(g, copy(*ptr + 4096, *ptr, 4096));
	return CUDA_SUCCESS;
}

static CUresult graph_of(struct gpu *g, unsigned n, CUgraphExec *exec)
{
	const CUDA_KERNEL_NODE_PARAMS p = { .func = g->empty, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
					    .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1 };
	CUgraph graph;
	CUgraphNode node, before = NULL;
	CALL(g, graph_create(&graph, 0));
	for (unsigned i = 0; i < n; i++, before = node)
		CALL(g, add_kernel(&node, graph, i ? &before : NULL, i ? 1 : 0, &p));
	CALL(g, instantiate(exec, graph, 0));
	return CUDA_SUCCESS;
}

/* Each batch ends with the GPU idle, so that no call waits for room in a queue. */
static CUresult measure(struct gpu *g, const struct cost *c, const char *separator)
{
	enum { BATCH = 64 };
	static uint64_t took[MOST];
	for (unsigned i = 0; i < c->times; i++) {
		uint64_t from = now_ns();
		CUresult ret = c->call(g, c->with);
		took[i] = now_ns() - from;
		if (ret)
			return ret;
		if (i % BATCH == BATCH - 1)
			CALL(g, ctx_sync());
	}
	CALL(g, ctx_sync());
	printf("%s\"%s\":%llu", separator, c->name, (unsigned long long)quantile(took, c->times, 0.5));
	return CUDA_SUCCESS;
}

CUresult do_cost(struct gpu *g, const struct arguments *a)
{
	static size_t small = 4 << 10, middle = 2 << 20, large = 1 << 30;
	CUdeviceptr ptr;
	CUgraphExec one, hundred;
	unsigned n = a->count && a->count < MOST ? a->count : MOST;
	CUresult ret = load_kernels(g);
	if (!ret)
		ret = graph_of(g, 1, &one);
	if (!ret)
		ret = graph_of(g, 100, &hundred);
	if (ret)
		return ret;
	CALL(g, alloc(&ptr, 8192));
	const struct cost all[] = {
		{ "alloc 4 KiB", n, pair, &small },	{ "alloc 2 MiB", n, pair, &middle },
		{ "alloc 1 GiB", n / 16, pair, &large }, { "launch", n, launch, NULL },
		{ "launch_ex", n, launch_ex, NULL },	{ "graph of 1", n, launch_graph, one },
		{ "graph of 100", n / 16, launch_graph, hundred }, { "copy 4 KiB", n, copy, &ptr },
	};
	printf("{");
	for (size_t i = 0; i < sizeof all / sizeof all[0] && !ret; i++)
		ret = measure(g, &all[i], i ? "," : "");
	printf("}\n");
	return ret;
}
