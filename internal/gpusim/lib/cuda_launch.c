/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Modules and launches. No code runs: a module is any image, a function any name, and a launch occupies the
 * GPU for the time that the daemon sees in its grid. The function "gpusim_sleep_ns" takes the time that its
 * first parameter, a 64-bit number of nanoseconds, says.
 */
#include "cuda_core.h"

#include <stdlib.h>

#define SLEEP_FUNCTION "gpusim_sleep_ns"

struct CUmod_st {
	bool loaded;
	CUcontext context;
	struct CUfunc_st *functions;
	struct CUmod_st *next;
};

/* Freed with nothing: a function of an unloaded module is an error and not a crash. */
struct CUfunc_st {
	struct CUmod_st *module;
	char *name;
	struct CUfunc_st *next;
};

static struct CUmod_st *modules; /* guarded by cuda_mu */

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(module && image);
	struct CUmod_st *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->loaded = true;
	m->context = context;
	pthread_mutex_lock(&cuda_mu);
	m->next = modules;
	modules = m;
	pthread_mutex_unlock(&cuda_mu);
	*module = m;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values)
{
	(void)options; /* they concern a compiler that is not there */
	(void)values;
	(void)n;
	return cuModuleLoadData(module, image);
}

/* With cuda_mu held. */
static bool loaded(CUmodule module)
{
	for (struct CUmod_st *m = modules; m; m = m->next)
		if (m == module)
			return m->loaded;
	return false;
}

CUresult cuModuleUnload(CUmodule module)
{
	TRY(cuda_enter());
	pthread_mutex_lock(&cuda_mu);
	bool was = loaded(module);
	if (was)
		module->loaded = false;
	pthread_mutex_unlock(&cuda_mu);
	return was ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	TRY(cuda_enter());
	NEED(function && name && *name);
	CUresult ret = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&cuda_mu);
	if (loaded(module)) {
		struct CUfunc_st *f = module->functions;
		while (f && strcmp(f->name, name) != 0)
			f = f->next;
		if (!f && (f = calloc(1, sizeof *f))) {
			f->module = module;
			f->name = strdup(name);
			f->next = module->functions;
			module->functions = f;
		}
		ret = f && f->name ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		*function = f;
	}
	pthread_mutex_unlock(&cuda_mu);
	return ret;
}

/* With cuda_mu held: a function of a module that is loaded. */
static bool callable(CUfunction function)
{
	for (struct CUmod_st *m = modules; m; m = m->next)
		for (struct CUfunc_st *f = m->functions; f; f = f->next)
			if (f == function)
				return m->loaded;
	return false;
}

static CUresult launch(CUfunction function, uint64_t blocks, uint64_t threads, CUstream stream, void **params,
		       bool per_thread)
{
	CUcontext context;
	uint64_t when, args[GPUSIM_NARGS] = { 0 };
	TRY(cuda_current(&context));
	NEED(blocks && threads && threads <= 1024);
	pthread_mutex_lock(&cuda_mu);
	bool ok = callable(function);
	bool sleeps = ok && strcmp(function->name, SLEEP_FUNCTION) == 0;
	pthread_mutex_unlock(&cuda_mu);
	if (!ok)
		return CUDA_ERROR_INVALID_HANDLE;
	if (sleeps) {
		NEED(params && params[0]);
		memcpy(&args[4], params[0], sizeof args[4]);
	}
	args[0] = context->id;
	args[1] = blocks;
	args[2] = threads;
	TRY(cuda_stream_id(stream, per_thread, &args[3]));
	TRY(cuda_call(context->device, GPUSIM_OP_LAUNCH, args, &when, 1));
	cuda_stream_extend(stream, per_thread, when);
	return CUDA_SUCCESS;
}

/* The product of a grid or a block; 0 when a side is 0 or the product does not fit. */
static uint64_t volume(unsigned x, unsigned y, unsigned z)
{
	uint64_t n;
	return __builtin_mul_overflow((uint64_t)x * y, (uint64_t)z, &n) ? 0 : n;
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	(void)shared;
	(void)extra;
	return launch(function, volume(gx, gy, gz), volume(bx, by, bz), stream, params, false);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			     unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	(void)shared;
	(void)extra;
	return launch(function, volume(gx, gy, gz), volume(bx, by, bz), stream, params, true);
}
