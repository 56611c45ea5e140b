/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the programs that test libcuda.so.1 share.
 */
#ifndef GPUSIM_CHECK_CUDA_H
#define GPUSIM_CHECK_CUDA_H

#include "check.h"
#include "cuda_abi.h"

#define MIB ((uint64_t)1 << 20)

static size_t free_now(void)
{
	size_t free, total;
	EQ(CALL(cuMemGetInfo_v2)(&free, &total), 0);
	return free;
}

static CUcontext start(void)
{
	CUcontext c;
	EQ(CALL(cuInit)(0), 0);
	EQ(CALL(cuDevicePrimaryCtxRetain)(&c, 0), 0);
	EQ(CALL(cuCtxSetCurrent)(c), 0);
	return c;
}

#endif
