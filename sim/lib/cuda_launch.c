/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches. No code runs: a launch occupies the GPU for the time that the daemon sees in its grid. A function whose
 * name begins with "gpusim_sleep_ns" takes the time that its first parameter, a 64-bit number of nanoseconds, says.
 */
#include "cuda_core.h"

#define GPUSIM_MAX_LAUNCHES 16
#define SLEEP_FUNCTION "gpusim_sleep_ns"

uint64_t cuda_volume(unsigned x, unsigned y, unsigned z)
{
	uint64_t n;
	return __builtin_mul_overflow((uint64_t)x * y, (uint64_t)z, &n) ? 0 : n;
}

CUresult cuda_function_time(CUfunction function, uint64_t blocks, uint64_t threads, void **params, uint64_t *ns)
{
	TRY(cuda_enter());
	NEED(blocks && threads && threads <= 1024);
	const char *name = cuda_function_name(function);
	if (!name)
		return CUDA_ERROR_INVALID_HANDLE;
	*ns = 0;
	if (strncmp(name, SLEEP_FUNCTION, strlen(SLEEP_FUNCTION)) == 0) {
		NEED(params && params[0]);
		memcpy(ns, params[0], sizeof *ns);
	}
	return CUDA_SUCCESS;
}

CUresult cuda_run(CUfunction function, uint64_t blocks, uint64_t threads, uint64_t ns, CUstream stream,
		  bool per_thread)
{
	CUcontext context;
	uint64_t when, args[GPUSIM_NARGS] = { 0, blocks, threads, 0, ns };
	TRY(cuda_current(&context));
	if (!cuda_function_name(function))
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(cuda_stream_id(stream, per_thread, &args[3]));
	TRY(cuda_stream_after(stream, per_thread, &args[5]));
	TRY(cuda_context_grow(context));
	args[0] = context->id;
	TRY(cuda_call(context->device, GPUSIM_OP_LAUNCH, args, &when, 1));
	cuda_stream_extend(stream, per_thread, when);
	return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, uint64_t blocks, uint64_t threads, CUstream stream, void **params,
		       bool per_thread)
{
	CUgraph graph;
	uint64_t ns;
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	TRY(cuda_function_time(function, blocks, threads, params, &ns));
	if (graph)
		return cuda_graph_add_kernel(graph, NULL, function, blocks, threads, ns);
	return cuda_run(function, blocks, threads, ns, stream, per_thread);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	(void)shared;
	(void)extra;
	return launch(function, cuda_volume(gx, gy, gz), cuda_volume(bx, by, bz), stream, params, false);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			     unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	(void)shared;
	(void)extra;
	return launch(function, cuda_volume(gx, gy, gz), cuda_volume(bx, by, bz), stream, params, true);
}

static CUresult launch_ex(const CUlaunchConfig *c, CUfunction function, void **params, bool per_thread)
{
	NEED(c);
	return launch(function, cuda_volume(c->gridDimX, c->gridDimY, c->gridDimZ),
		      cuda_volume(c->blockDimX, c->blockDimY, c->blockDimZ), c->hStream, params, per_thread);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	(void)extra;
	return launch_ex(config, function, params, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	(void)extra;
	return launch_ex(config, function, params, true);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
				   unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params)
{
	(void)shared;
	return launch(function, cuda_volume(gx, gy, gz), cuda_volume(bx, by, bz), stream, params, false);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
					unsigned by, unsigned bz, unsigned shared, CUstream stream, void **params)
{
	(void)shared;
	return launch(function, cuda_volume(gx, gy, gz), cuda_volume(bx, by, bz), stream, params, true);
}

/* Each part in its own stream's context. Streams have to be of different GPUs. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags)
{
	CUcontext context[GPUSIM_MAX_LAUNCHES], was;
	CUresult ret = CUDA_SUCCESS;
	NEED(list && n && n <= GPUSIM_MAX_LAUNCHES && flags <= 3);
	for (unsigned i = 0; i < n; i++) {
		NEED(list[i].hStream && list[i].hStream != CU_STREAM_LEGACY && list[i].hStream != CU_STREAM_PER_THREAD);
		TRY(cuStreamGetCtx(list[i].hStream, &context[i]));
		for (unsigned k = 0; k < i; k++)
			NEED(context[k]->device != context[i]->device);
	}
	for (unsigned i = 0; i < n && !ret; i++) {
		const CUDA_LAUNCH_PARAMS *p = &list[i];
		TRY(cuCtxPushCurrent_v2(context[i]));
		ret = launch(p->function, cuda_volume(p->gridDimX, p->gridDimY, p->gridDimZ),
			     cuda_volume(p->blockDimX, p->blockDimY, p->blockDimZ), p->hStream, p->kernelParams, false);
		cuCtxPopCurrent_v2(&was);
	}
	return ret;
}
