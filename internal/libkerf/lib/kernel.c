/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ways to launch a kernel.
 */
#include "throttle.h"

/* Kernels of one function take different times by their grids. */
static uint64_t kind(const void *function, uint64_t x, uint64_t y, uint64_t z)
{
	return (uint64_t)(uintptr_t)function ^ (x * y * z) << 40 ^ x << 20;
}

CUresult cuLaunch(CUfunction function)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunch, CUDA_ERROR_NOT_INITIALIZED);
	kerf_begin_turn(&t, kind(function, 1, 1, 1), NULL, false);
	return kerf_end_turn(&t, real(function));
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchGrid, CUDA_ERROR_NOT_INITIALIZED);
	kerf_begin_turn(&t, kind(function, (unsigned)width, (unsigned)height, 1), NULL, false);
	return kerf_end_turn(&t, real(function, width, height));
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchGridAsync, CUDA_ERROR_NOT_INITIALIZED);
	kerf_begin_turn(&t, kind(function, (unsigned)width, (unsigned)height, 1), stream, false);
	return kerf_end_turn(&t, real(function, width, height, stream));
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
	unsigned bz,
			unsigned shared, CUstream stream, void **params, void **extra)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchKernel, CUDA_ERROR_NOT_INITIALIZED);
	kerf_begin_turn(&t, kind(function, gx, gy, gz), stream, false);
	return kerf_end_turn(&t, real(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			     unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchKernel_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	kerf_begin_turn(&t, kind(function, gx, gy, gz), stream, true);
	return kerf_end_turn(&t, real(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

/* A configuration that is none is the driver's to refuse. */
static void begin_config(struct kerf_turn *t, const CUlaunchConfig *c, CUfunction function, bool per_thread)
{
	t->account = NULL;
	if (c)
		kerf_begin_turn(t, kind(function, c->gridDimX, c->gridDimY, c->gridDimZ), c->hStream, per_thread);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchKernelEx, CUDA_ERROR_NOT_INITIALIZED);
	begin_config(&t, config, function, false);
	return kerf_end_turn(&t, real(config, function, params, extra));
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchKernelEx_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	begin_config(&t, config, function, true);
	return kerf_end_turn(&t, real(config, function, params, extra));
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
				   unsigned bz, unsigned shared, CUstream stream, void **params)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchCooperativeKernel, CUDA_ERROR_NOT_INITIALIZED);
	kerf_begin_turn(&t, kind(function, gx, gy, gz), stream, false);
	return kerf_end_turn(&t, real(function, gx, gy, gz, bx, by, bz, shared, stream, params));
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
					unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params)
{
	struct kerf_turn t;
	KERF_NEED(cuLaunchCooperativeKernel_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	kerf_begin_turn(&t, kind(function, gx, gy, gz), stream, true);
	return kerf_end_turn(&t, real(function, gx, gy, gz, bx, by, bz, shared, stream, params));
}

/* Makes the context of a stream the current one: the launch has parts on several GPUs. */
static bool enter(CUstream stream)
{
	CUcontext context = NULL;
	__typeof__(&cuStreamGetCtx) of = KERF_REAL(cuStreamGetCtx);
	__typeof__(&cuCtxPushCurrent_v2) push = KERF_REAL(cuCtxPushCurrent_v2);
	return of && push && of(stream, &context) == CUDA_SUCCESS && push(context) == CUDA_SUCCESS;
}

static void leave(void)
{
	CUcontext context;
	__typeof__(&cuCtxPopCurrent_v2) pop = KERF_REAL(cuCtxPopCurrent_v2);
	if (pop)
		pop(&context);
}

/* Each part waits for its own GPU's budget. There is one for each GPU at most, and a region has no more than
 * KERF_DEVICES. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags)
{
	struct kerf_turn turn[KERF_DEVICES];
	KERF_NEED(cuLaunchCooperativeKernelMultiDevice, CUDA_ERROR_NOT_INITIALIZED);
	unsigned counted = !list ? 0 : n < KERF_DEVICES ? n : KERF_DEVICES;
	for (unsigned i = 0; i < counted; i++) {
		const CUDA_LAUNCH_PARAMS *p = &list[i];
		turn[i].account = NULL;
		if (!enter(p->hStream))
			continue;
		kerf_begin_turn(&turn[i], kind(p->function, p->gridDimX, p->gridDimY, p->gridDimZ), p->hStream, false);
		leave();
	}
	CUresult ret = real(list, n, flags);
	for (unsigned i = 0; i < counted; i++) {
		bool in = turn[i].account && enter(list[i].hStream);
		kerf_end_turn(&turn[i], ret);
		if (in)
			leave();
	}
	return ret;
}
