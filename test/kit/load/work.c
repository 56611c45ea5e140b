/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Work that is counted in units, so that a share is what was done and not what a clock says.
 * train: kernels of some 5 ms for all multiprocessors. decode: a graph of 32 reads of 64 MiB is one token. serve:
 * requests of one such kernel (a prompt) and 64 tokens.
 */
#include "kitload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READS = 32, TOKENS = 64, MOST_TOKENS = 1 << 18, MOST_SECONDS = 120 };
#define READ_BYTES ((uint64_t)64 << 20)
#define TRAIN_NS 5000000u
#define READ_NS 200000u /* on the simulated driver, where calls take long: no GPU is so slow */

struct work {
	struct gpu *g;
	CUdeviceptr memory, out;
	CUgraphExec token;
	uint64_t rounds; /* of the kernel that takes TRAIN_NS alone */
	uint64_t units, tokens, began;
	uint64_t second[MOST_SECONDS];
	uint64_t *took; /* each token's time */
};

static CUresult train(struct work *w, uint64_t rounds)
{
	uint64_t ns = TRAIN_NS;
	void *params[] = { &ns, &rounds, &w->out };
	CUresult ret = run(w->g, w->g->fma, params, NULL);
	if (ret)
		return ret;
	CALL(w->g, ctx_sync());
	return CUDA_SUCCESS;
}

/* Finds how many rounds take TRAIN_NS. The program has the GPU alone meanwhile, or --count gives the number. */
static CUresult calibrate(struct work *w)
{
	w->rounds = 20000;
	for (int i = 0; i < 4; i++) {
		uint64_t from = now_ns();
		CUresult ret = train(w, w->rounds);
		uint64_t took = now_ns() - from;
		if (ret)
			return ret;
		double factor = (double)TRAIN_NS / (double)(took ? took : 1);
		w->rounds = (uint64_t)((double)w->rounds * (factor > 10 ? 10 : factor < 0.1 ? 0.1 : factor)) + 1;
	}
	return CUDA_SUCCESS;
}

static CUresult make_token(struct work *w)
{
	uint64_t ns = READ_NS, n = READ_BYTES / sizeof(uint64_t);
	CUdeviceptr from;
	void *params[] = { &ns, &from, &n, &w->out };
	const CUDA_KERNEL_NODE_PARAMS p = { .func = w->g->read, .gridDimX = (unsigned)w->g->processors * 8, .gridDimY = 1,
					    .gridDimZ = 1, .blockDimX = 256, .blockDimY = 1, .blockDimZ = 1,
					    .kernelParams = params };
	CUgraph graph;
	CUgraphNode node, before = NULL;
	CALL(w->g, alloc(&w->memory, 8 * READ_BYTES)); /* more than the cache */
	CALL(w->g, memset(w->memory, 0, 8 * READ_BYTES));
	CALL(w->g, graph_create(&graph, 0));
	for (int i = 0; i < READS; i++, before = node) {
		from = w->memory + (uint64_t)(i % 8) * READ_BYTES;
		CALL(w->g, add_kernel(&node, graph, i ? &before : NULL, i ? 1 : 0, &p));
	}
	CALL(w->g, instantiate(&w->token, graph, 0));
	return CUDA_SUCCESS;
}

static void count(struct work *w)
{
	uint64_t s = (now_ns() - w->began) / 1000000000u;
	w->units++;
	if (s < MOST_SECONDS)
		w->second[s]++;
}

static CUresult decode(struct work *w)
{
	uint64_t from = now_ns();
	CALL(w->g, graph_launch(w->token, NULL));
	CALL(w->g, stream_sync(NULL));
	if (w->tokens < MOST_TOKENS)
		w->took[w->tokens++] = now_ns() - from;
	count(w);
	return CUDA_SUCCESS;
}

static CUresult serve(struct work *w, uint64_t until)
{
	CUresult ret = train(w, w->rounds);
	for (int i = 0; i < TOKENS && !ret && now_ns() < until; i++)
		ret = decode(w);
	return ret;
}

static CUresult unit(struct work *w, const char *kind, uint64_t until)
{
	if (strcmp(kind, "serve") == 0)
		return serve(w, until);
	if (strcmp(kind, "decode") == 0)
		return decode(w);
	CUresult ret = train(w, w->rounds);
	if (!ret)
		count(w);
	return ret;
}

static void print_work(struct work *w, uint64_t wall)
{
	uint64_t seconds = wall / 1000000000u;
	printf("{\"units\":%llu,\"wall_ns\":%llu,\"rounds\":%llu,\"p50_ns\":%llu,\"p99_ns\":%llu,\"seconds\":[",
	       (unsigned long long)w->units, (unsigned long long)wall, (unsigned long long)w->rounds,
	       (unsigned long long)quantile(w->took, w->tokens, 0.5), (unsigned long long)quantile(w->took, w->tokens,
	       0.99));
	for (uint64_t i = 0; i < seconds && i < MOST_SECONDS; i++)
		printf("%s%llu", i ? "," : "", (unsigned long long)w->second[i]);
	printf("]}\n");
}

/* Prints {"ready":true}, waits for a line, and works for --seconds. */
CUresult do_work(struct gpu *g, const struct arguments *a)
{
	static struct work w;
	CUresult ret = load_kernels(g);
	w.g = g;
	w.took = calloc(MOST_TOKENS, sizeof *w.took);
	if (ret || !w.took)
		return ret ? ret : CUDA_ERROR_OUT_OF_MEMORY;
	CALL(g, alloc(&w.out, 64));
	w.rounds = a->count;
	ret = make_token(&w);
	if (!ret && !a->count)
		ret = calibrate(&w);
	if (ret)
		return ret;
	printf("{\"ready\":true,\"rounds\":%llu}\n", (unsigned long long)w.rounds);
	fflush(stdout);
	int c;
	while ((c = getchar()) != '\n' && c != EOF)
		;
	w.began = now_ns();
	uint64_t until = w.began + (uint64_t)(a->seconds * 1e9);
	while (!ret && now_ns() < until)
		ret = unit(&w, a->kind, until);
	print_work(&w, now_ns() - w.began);
	return ret;
}
