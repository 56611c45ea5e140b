/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small allocations, which the driver packs into blocks of 2 MiB.
 */
#include "kerfcheck.h"

#define MIB ((size_t)1 << 20)

enum { MOST = 4096 };

static CUresult fill_block(CUdeviceptr filled[2], size_t bytes)
{
	CUdeviceptr ptr;
	for (int i = 0; i < 2; i++) {
		CUresult ret = CALL(cuMemAlloc_v2)(&filled[i], bytes);
		if (!ret && (ret = CALL(cuMemAlloc_v2)(&ptr, 1))) /* this one stays */
			CALL(cuMemFree_v2)(filled[i]);
		if (ret)
			filled[i] = 0;
		if (ret)
			return ret;
	}
	return CUDA_SUCCESS;
}

/* In each round fills what there is with blocks of which 1 KiB stays in use, and prints how many blocks those were.
 * The gaps are too small for the next round. */
static void gaps(int rounds)
{
	static CUdeviceptr filled[MOST][2];
	int made = 0;
	for (int left = rounds; left > 0; left--) {
		int n = 0;
		memset(filled, 0, sizeof filled);
		while (n < MOST - 1 && fill_block(filled[n], MIB - (size_t)left * 512) == CUDA_SUCCESS)
			n++;
		for (int i = 0; i <= n; i++)
			for (int k = 0; k < 2; k++)
				CALL(cuMemFree_v2)(filled[i][k]);
		made += n;
	}
	printf("%d\n", made);
}

/* Fills what there is with allocations of a size, then prints how many there are, and how many more after every second
 * is freed. */
static void refill(size_t bytes)
{
	static CUdeviceptr all[1 << 16];
	size_t n = 0, more = 0;
	CUdeviceptr ptr;
	while (n < sizeof all / sizeof all[0] && CALL(cuMemAlloc_v2)(&all[n], bytes) == CUDA_SUCCESS)
		n++;
	for (size_t i = 0; i < n; i += 2)
		CALL(cuMemFree_v2)(all[i]);
	while (more < n && CALL(cuMemAlloc_v2)(&ptr, bytes) == CUDA_SUCCESS)
		more++;
	printf("%zu %zu\n", n, more);
}

/* What the first versions answer, and how much is taken after. */
static void first(void)
{
	CUdeviceptr_v1 ptr;
	unsigned pitch;
	CUcontext context;
	printf("%d ", CALL(cuMemAlloc)(&ptr, MIB));
	printf("%d ", CALL(cuMemAllocPitch)(&ptr, &pitch, 256, 4096, 4));
	printf("%d\n", ((CUresult (*)(CUcontext *, unsigned, CUdevice))resolve("cuCtxCreate"))(&context, 0, 0));
}

bool small_step(char **arg)
{
	if (!strcmp(arg[0], "gaps"))
		gaps(atoi(arg[1]));
	else if (!strcmp(arg[0], "refill"))
		refill(strtoull(arg[1], NULL, 10));
	else if (!strcmp(arg[0], "first"))
		first();
	else
		return pool_step(arg);
	return true;
}
