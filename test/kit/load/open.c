/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver, a context, and the kernels.
 */
#include "kitload.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MULTIPROCESSOR_COUNT = 16, THREADS = 256, BLOCKS_EACH = 8 };

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

uint64_t quantile(uint64_t *values, size_t n, double q)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof *values, ascending);
	size_t i = (size_t)(q * (double)n);
	return values[i < n ? i : n - 1];
}

bool open_driver(struct gpu *g)
{
	static const struct {
		size_t offset;
		const char *symbol;
	} functions[] = {
#define X(member, symbol) { offsetof(struct gpu, member), #symbol },
		KIT_FUNCTIONS(X)
#undef X
	};
	g->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!g->library) {
		g->failed = dlerror();
		return false;
	}
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
		void *f = dlsym(g->library, functions[i].symbol);
		if (!f) {
			g->failed = functions[i].symbol;
			return false;
		}
		memcpy((char *)g + functions[i].offset, &f, sizeof f);
	}
	return true;
}

CUresult open_gpu(struct gpu *g, int device)
{
	CALL(g, init(0));
	CALL(g, device_get(&g->device, device));
	CALL(g, attribute(&g->processors, MULTIPROCESSOR_COUNT, g->device));
	CALL(g, retain(&g->context, g->device));
	CALL(g, set_current(g->context));
	return CUDA_SUCCESS;
}

/* The text of a file in this program's folder; NULL: there is none. */
static char *read_text(const char *name)
{
	char path[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
	if (n < 0)
		return NULL;
	path[n] = 0;
	char *slash = strrchr(path, '/');
	snprintf(slash ? slash + 1 : path, 64, "%s", name);
	FILE *f = fopen(path, "re");
	if (!f)
		return NULL;
	char *text = calloc(1, 1 << 20);
	if (text && !fread(text, 1, (1 << 20) - 1, f)) {
		free(text);
		text = NULL;
	}
	fclose(f);
	return text;
}

static CUresult find_kernels(struct gpu *g, CUmodule m)
{
	const struct {
		CUfunction *f;
		const char *name;
	} all[] = {
		{ &g->empty, "kit_empty" }, { &g->fill, "kit_fill" }, { &g->check, "kit_check" },
		{ &g->fma, "gpusim_sleep_ns_fma" }, { &g->read, "gpusim_sleep_ns_read" },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		CALL(g, get_function(all[i].f, m, all[i].name));
	return CUDA_SUCCESS;
}

/* Loads the first of the files that the driver takes. */
static CUresult load_module(struct gpu *g, const char *const files[2], CUmodule *m)
{
	enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_SIZE = 6 };
	static char log[4096];
	CUresult last = CUDA_ERROR_FILE_NOT_FOUND;
	g->failed = "no PTX next to kitload";
	for (size_t i = 0; i < 2; i++) {
		int options[] = { JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE };
		void *values[] = { log, (void *)(uintptr_t)(sizeof log - 1) };
		char *text = read_text(files[i]);
		if (!text)
			continue;
		uint64_t from = now_ns();
		last = g->module_load(m, text, 2, options, values);
		g->jit_ns = now_ns() - from;
		free(text);
		if (!last) {
			g->ptx = files[i];
			return last;
		}
		g->failed = log[0] ? log : "cuModuleLoadDataEx";
	}
	return last;
}

CUresult load_kernels(struct gpu *g)
{
	static const char *const files[] = { "kernels_sm_80.ptx", "kernels_sm_70.ptx" };
	CUmodule m;
	CUresult ret = load_module(g, files, &m);
	return ret ? ret : find_kernels(g, m);
}

CUresult load_limits(struct gpu *g)
{
	static const char *const files[] = { "limits_sm_80.ptx", "limits_sm_70.ptx" };
	CUmodule m;
	CUresult ret = load_module(g, files, &m);
	if (ret)
		return ret;
	CALL(g, get_function(&g->heap, m, "kit_heap"));
	CALL(g, get_function(&g->print, m, "kit_printf"));
	CALL(g, get_function(&g->stack, m, "kit_stack"));
	return CUDA_SUCCESS;
}

CUresult run(struct gpu *g, CUfunction f, void **params, CUstream stream)
{
	CALL(g, launch(f, (unsigned)g->processors * BLOCKS_EACH, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	return CUDA_SUCCESS;
}

CUresult kernels_run(struct gpu *g, bool *yes)
{
	CUdeviceptr ptr;
	uint64_t n = 512, seed = 7, words[512];
	CALL(g, alloc(&ptr, sizeof words));
	CALL(g, memset(ptr, 0, sizeof words));
	void *params[] = { &ptr, &n, &seed };
	CUresult ret = run(g, g->fill, params, NULL);
	if (ret)
		return ret;
	CALL(g, ctx_sync());
	CALL(g, to_host(words, ptr, sizeof words));
	CALL(g, free(ptr));
	*yes = words[0] == seed && words[511] == 511 * 0x9e3779b97f4a7c15ull + seed;
	return CUDA_SUCCESS;
}
