/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Another preloaded library, as tools are: it stands in front of two functions, and asks for those after it each
 * time.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

int cuMemAlloc_v2(uint64_t *ptr, size_t bytes);
int getppid(void);
int next_sees(void);
int next_allocates(uint64_t *ptr, size_t bytes);

static int calls;

int next_allocates(uint64_t *ptr, size_t bytes)
{
	int (*next)(uint64_t *, size_t) = (int (*)(uint64_t *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
	calls++;
	return next ? next(ptr, bytes) : -1;
}

int cuMemAlloc_v2(uint64_t *ptr, size_t bytes)
{
	return next_allocates(ptr, bytes);
}

int getppid(void)
{
	int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "getppid");
	int (*again)(void) = (int (*)(void))dlsym(RTLD_NEXT, "getppid");
	return next && next == again && next != getppid ? next() : -1;
}

/* Its own calls; -1 where "next" is not what it should be. */
int next_sees(void)
{
	return getppid() > 0 ? calls : -1;
}
