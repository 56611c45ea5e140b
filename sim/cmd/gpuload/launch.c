/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ways to launch kernels, and to keep a GPU busy without. The kernel waits by the GPU's clock for the time that
 * it gets; the simulated driver knows it by its name. On a real GPU that several processes share, its time goes on
 * while another's slice runs.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "load.h"

#define KERNEL "gpusim_sleep_ns"
#define NODES 4 /* of a graph */

static const char image[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .entry " KERNEL "(.param .u64 ns)\n{\n"
	".reg .u64 %t<4>;\n.reg .pred %more;\n"
	"ld.param.u64 %t0, [ns];\nmov.u64 %t1, %globaltimer;\n"
	"LOOP:\nmov.u64 %t2, %globaltimer;\nsub.u64 %t3, %t2, %t1;\nsetp.lt.u64 %more, %t3, %t0;\n@%more bra LOOP;\nret;\n"
		"}\n";

struct kernel {
	CUfunction function;
	CUgraph graph;
	CUgraphExec exec;
	CUstream stream;
	CUdeviceptr buffer; /* for what moves memory */
	uint64_t ns;
	void *params[1];
};

struct launcher {
	const char *name;
	int kernels; /* of one launch, or how often it takes a kernel's time */
	CUresult (*launch)(struct load *l, struct kernel *k);
};

static CUresult plain(struct load *l, struct kernel *k)
{
	return l->cuda.launch(k->function, 1, 1, 1, 1, 1, 1, 0, NULL, k->params, NULL);
}

static CUresult ex(struct load *l, struct kernel *k)
{
	const CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
					.blockDimX = 1, .blockDimY = 1, .blockDimZ = 1 };
	return l->cuda.launch_ex(&config, k->function, k->params, NULL);
}

static CUresult cooperative(struct load *l, struct kernel *k)
{
	return l->cuda.launch_cooperative(k->function, 1, 1, 1, 1, 1, 1, 0, NULL, k->params);
}

static CUresult graph(struct load *l, struct kernel *k)
{
	const CUDA_KERNEL_NODE_PARAMS params = { .func = k->function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
						 .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
						 .kernelParams = k->params };
	CUgraphNode node, before;
	if (!k->graph) {
		TRY(l->cuda.graph_create(&k->graph, 0));
		for (int i = 0; i < NODES; i++, before = node)
			TRY(l->cuda.add_kernel(&node, k->graph, i ? &before : NULL, i ? 1 : 0, &params));
		TRY(l->cuda.instantiate(&k->exec, k->graph, 0));
	}
	return l->cuda.graph_launch(k->exec, NULL);
}

static CUresult multi(struct load *l, struct kernel *k)
{
	if (!l->cuda.launch_multi)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!k->stream)
		TRY(l->cuda.stream_create(&k->stream, CU_STREAM_NON_BLOCKING));
	CUDA_LAUNCH_PARAMS p = { .function = k->function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				 .blockDimY = 1, .blockDimZ = 1, .hStream = k->stream, .kernelParams = k->params };
	return l->cuda.launch_multi(&p, 1, 0);
}

/* The simulated GPU moves so much in a kernel's time. */
static size_t moved(const struct kernel *k)
{
	return k->ns * 1000;
}

static CUresult fill(struct load *l, struct kernel *k)
{
	if (!k->buffer)
		TRY(l->cuda.alloc(&k->buffer, moved(k)));
	return l->cuda.memset_async(k->buffer, 1, moved(k), NULL);
}

static CUresult copy(struct load *l, struct kernel *k)
{
	if (!k->buffer)
		TRY(l->cuda.alloc(&k->buffer, 2 * moved(k)));
	return l->cuda.copy_async(k->buffer + moved(k), k->buffer, moved(k), NULL);
}

static CUresult word(struct load *l, struct kernel *k)
{
	if (!l->cuda.write_word)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!k->buffer)
		TRY(l->cuda.alloc(&k->buffer, 4));
	return l->cuda.write_word(NULL, k->buffer, 1, 0);
}

static const struct launcher launchers[] = {
	{ "plain", 1, plain },
	{ "ex", 1, ex },
	{ "cooperative", 1, cooperative },
	{ "graph", NODES, graph },
	{ "multi", 1, multi },
	{ "fill", 1, fill },
	{ "copy", 1, copy },
	{ "word", 0, word },
};
enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

const struct launcher *find_launch(const char *name)
{
	for (int i = 0; i < LAUNCHERS; i++)
		if (strcmp(name, launchers[i].name) == 0)
			return &launchers[i];
	return NULL;
}

void launch_names(char *out, size_t size)
{
	size_t n = 0;
	out[0] = 0;
	for (int i = 0; i < LAUNCHERS && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "", launchers[i].name);
}

static uint64_t now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

CUresult keep_busy(struct load *l, const struct options *o, struct busy *b)
{
	struct kernel k = { .ns = o->kernel_ns };
	CUmodule module;
	CUresult ret;
	k.params[0] = &k.ns;
	TRY(l->cuda.module_load(&module, image));
	ret = l->cuda.get_function(&k.function, module, KERNEL);
	for (uint64_t start = now(); !ret && b->wall_ns < o->hold_ns; b->wall_ns = now() - start) {
		int i;
		for (i = 0; !ret && i < o->queue; i++)
			ret = o->launch->launch(l, &k);
		if (!ret)
			ret = l->cuda.ctx_sync();
		if (ret)
			break;
		b->launches += (uint64_t)i;
		b->kernels += (uint64_t)i * (uint64_t)o->launch->kernels;
	}
	if (k.exec)
		l->cuda.exec_destroy(k.exec);
	if (k.graph)
		l->cuda.graph_destroy(k.graph);
	if (k.stream)
		l->cuda.stream_destroy(k.stream);
	if (k.buffer)
		l->cuda.free(k.buffer);
	l->cuda.module_unload(module);
	return ret;
}
