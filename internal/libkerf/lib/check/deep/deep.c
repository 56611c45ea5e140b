/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that is opened with RTLD_DEEPBIND and looks for the driver by itself. It is built in the ways in which an
 * import can be bound: at its first call, at load, as an address in a table, against the driver, and before there is a
 * chance to correct it.
 */
#include <dlfcn.h>
#include <string.h>

#include "cuda_abi.h"

void *deep_find(const char *name);

#ifdef LINKED
static CUresult call_alloc(CUdeviceptr *ptr, size_t bytes)
{
	return cuMemAlloc_v2(ptr, bytes);
}

static CUresult call_info(size_t *free, size_t *total)
{
	return cuMemGetInfo_v2(free, total);
}

void *deep_find(const char *name)
{
	return !strcmp(name, "cuMemAlloc_v2")    ? (void *)call_alloc
	       : !strcmp(name, "cuMemGetInfo_v2") ? (void *)call_info
	       : !strcmp(name, "cuMemFree_v2")    ? (void *)cuMemFree_v2
						  : dlsym(RTLD_DEFAULT, name);
}
#else
#if defined TABLE
static void *(*const volatile find)(void *restrict, const char *restrict) = dlsym;
#elif defined EARLY
static void *(*volatile find)(void *restrict, const char *restrict);
static __attribute__((constructor)) void early(void)
{
	find = dlsym;
}
#else
#define find dlsym
#endif

void *deep_find(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return driver ? find(driver, name) : NULL;
}
#endif
