/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver takes for itself: stages of a process, with a pause after each in which others measure it.
 */
#include "kitload.h"

#include <stdio.h>
#include <stdlib.h>

/* Prints the stage, and waits for a line. */
static CUresult pause_at(struct gpu *g, const char *stage, uint64_t asked)
{
	size_t left, total;
	CALL(g, mem_info(&left, &total));
	printf("{\"stage\":\"%s\",\"asked_bytes\":%llu,\"free_bytes\":%zu,\"total_bytes\":%zu}\n", stage,
	       (unsigned long long)asked, left, total);
	fflush(stdout);
	int c;
	while ((c = getchar()) != '\n' && c != EOF)
		;
	return CUDA_SUCCESS;
}

#define STAGE(name, asked)                                  \
	do {                                                \
		CUresult at_ = pause_at(g, (name), (asked)); \
		if (at_)                                    \
			return at_;                         \
	} while (0)

static CUresult small_pieces(struct gpu *g)
{
	static const size_t sizes[] = { 1, 4096, 65536, 1 << 20, 2 << 20, 4 << 20 };
	enum { EACH = 16 };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		CUdeviceptr ptr[EACH];
		char name[40];
		for (int k = 0; k < EACH; k++)
			CALL(g, alloc(&ptr[k], sizes[i]));
		snprintf(name, sizeof name, "16 of %zu", sizes[i]);
		STAGE(name, EACH * sizes[i]);
		for (int k = 0; k < EACH; k++)
			CALL(g, free(ptr[k]));
	}
	return CUDA_SUCCESS;
}

/* A kernel that uses what a limit of the context stands for. */
static CUresult limited(struct gpu *g, int limit, size_t value, CUfunction f)
{
	uint64_t n = 1024;
	CUdeviceptr out;
	CALL(g, alloc(&out, 8));
	void *params[] = { &n, &out };
	CALL(g, set_limit(limit, value));
	CALL(g, launch(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CALL(g, ctx_sync());
	CALL(g, free(out));
	return CUDA_SUCCESS;
}

/* The heap comes last: a driver may refuse its limit once a kernel that allocates was launched. */
static CUresult limits(struct gpu *g)
{
	CUresult ret = load_limits(g);
	if (ret)
		return ret;
	STAGE("module with a heap", 0);
	const struct {
		const char *name, *refused;
		int limit;
		size_t value;
		CUfunction f;
	} all[] = {
		{ "stack of 16 KiB used", "stack refused", CU_LIMIT_STACK_SIZE, 16 << 10, g->stack },
		{ "printf buffer of 64 MiB used", "printf refused", CU_LIMIT_PRINTF_FIFO_SIZE, 64 << 20, g->print },
		{ "heap of 256 MiB used", "heap refused", CU_LIMIT_MALLOC_HEAP_SIZE, 256 << 20, g->heap },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		ret = limited(g, all[i].limit, all[i].value, all[i].f);
		STAGE(ret ? all[i].refused : all[i].name, all[i].value);
	}
	return CUDA_SUCCESS;
}

static CUresult by_family(struct gpu *g)
{
	static const char *const names[] = { "linear", "async", "vmm", "pitched", "managed" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		const struct family *f = find_family(names[i]);
		struct block p = { .bytes = (size_t)1 << 30 };
		CUresult ret = take(g, f, &p);
		if (ret)
			return ret;
		CALL(g, memset(p.ptr, 1, p.bytes)); /* managed memory moves to the GPU */
		CALL(g, ctx_sync());
		STAGE(names[i], p.bytes);
		give(g, f, &p);
	}
	return CUDA_SUCCESS;
}

CUresult do_stages(struct gpu *g, const struct arguments *a)
{
	CUcontext second;
	STAGE("context", 0);
	CUresult ret = load_kernels(g);
	if (ret)
		return ret;
	CALL(g, launch(g->empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CALL(g, ctx_sync());
	STAGE("module", 0);
	if (a->count) /* the context alone is wanted */
		return CUDA_SUCCESS;
	CALL(g, ctx_create(&second, 0, g->device));
	STAGE("second context", 0);
	CALL(g, ctx_destroy(second));
	CALL(g, set_current(g->context));
	ret = small_pieces(g);
	if (!ret)
		ret = by_family(g);
	return ret ? ret : limits(g);
}
