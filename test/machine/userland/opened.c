/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Finds the CUDA runtime by dlopen, as programs do that also run without it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define OUT_OF_MEMORY 2

static void *library;

static void *symbol(const char *name)
{
	void *found = dlsym(library, name);
	if (!found) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return found;
}

int main(void)
{
	size_t left, total, after;
	void *p;
	const char *text = getenv("USERLAND_CAP");
	size_t cap = text && !getenv("USERLAND_TOTAL") ? strtoull(text, NULL, 10) : 0;
	if (!(library = dlopen("libcudart.so.11.0", RTLD_NOW | RTLD_LOCAL))) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))symbol("cudaMemGetInfo");
	int (*take)(void **, size_t) = (int (*)(void **, size_t))symbol("cudaMalloc");
	int (*drop)(void *) = (int (*)(void *))symbol("cudaFree");
	if (info(&left, &total) || (cap && total != cap) || take(&p, (size_t)64 << 20) || drop(p) || info(&after, &total) ||
	    after != left || take(&p, total + 1) != OUT_OF_MEMORY) {
		fprintf(stderr, "total %zu, free %zu, then %zu\n", total, left, after);
		return 1;
	}
	puts("opened");
	return 0;
}
