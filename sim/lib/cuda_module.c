/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries. A module is any image and costs a block of memory; one of PTX whose first array of bytes
 * (".b8 NAME[N]") is larger costs that. A function is any name.
 */
#include "cuda_export.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct CUmod_st {
	bool loaded;
	CUcontext context;
	uint64_t context_id, handle; /* what it costs, and the context that this lives in */
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

static CUresult load(CUmodule *module, uint64_t bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(module);
	if (bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct CUmod_st *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->loaded = true;
	m->context = context;
	m->context_id = context->id;
	const uint64_t args[GPUSIM_NARGS] = { cuda_round(bytes ? bytes : 1), m->context_id, GPUSIM_KIND_LINEAR };
	CUresult ret = cuda_call(context->device, GPUSIM_OP_ALLOC, args, &m->handle, 1);
	if (ret) {
		free(m);
		return ret;
	}
	pthread_mutex_lock(&cuda_mu);
	m->next = modules;
	modules = m;
	pthread_mutex_unlock(&cuda_mu);
	*module = m;
	return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	unsigned long long bytes = 1;
	NEED(image);
	/* Only PTX is text, and ends in a zero byte. */
	const char *array = strncmp(image, ".version", 8) == 0 ? strstr(image, ".b8 ") : NULL;
	if (array && sscanf(array, ".b8 %*[A-Za-z0-9_][%llu]", &bytes) != 1)
		bytes = 1;
	return load(module, bytes);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values)
{
	(void)options; /* they concern a compiler that is not there */
	(void)values;
	(void)n;
	return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return cuModuleLoadData(module, image);
}

CUresult cuda_fatbin_load(CUmodule *module, const void *wrapper)
{
	return cuModuleLoadData(module, wrapper);
}

CUresult cuda_fatbin_load_ext(CUmodule *module, const void *wrapper, void *a, void *b, unsigned c)
{
	(void)a;
	(void)b;
	(void)c;
	return cuda_fatbin_load(module, wrapper);
}

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	struct stat st;
	TRY(cuda_enter());
	NEED(path);
	if (stat(path, &st) != 0)
		return CUDA_ERROR_FILE_NOT_FOUND;
	return load(module, (uint64_t)st.st_size);
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
	bool costs = was && module->context->id == module->context_id;
	pthread_mutex_unlock(&cuda_mu);
	if (!was)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!costs) /* it went with its context */
		return CUDA_SUCCESS;
	const uint64_t args[GPUSIM_NARGS] = { module->handle };
	return cuda_call(module->context->device, GPUSIM_OP_FREE, args, NULL, 0);
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

const char *cuda_function_name(CUfunction function)
{
	const char *name = NULL;
	pthread_mutex_lock(&cuda_mu);
	for (struct CUmod_st *m = modules; m && !name; m = m->next)
		for (struct CUfunc_st *f = m->loaded ? m->functions : NULL; f && !name; f = f->next)
			if (f == function)
				name = f->name;
	pthread_mutex_unlock(&cuda_mu);
	return name;
}

/* Lazy is the default since CUDA 12.2. */
API(cuModuleGetLoadingMode, (int *mode))
{
	const char *asked = getenv("CUDA_MODULE_LOADING");
	TRY(cuda_enter());
	NEED(mode);
	*mode = asked && strcmp(asked, "EAGER") == 0 ? 1 : 2;
	return CUDA_SUCCESS;
}

/* A library is a module of the current context: the real one is loaded into each context that uses it. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *options, void **values, unsigned n,
			   int *library_options, void **library_values, unsigned library_n)
{
	(void)library_options;
	(void)library_values;
	(void)library_n;
	return cuModuleLoadDataEx(library, image, n, options, values);
}

CUresult cuLibraryUnload(CUlibrary library)
{
	return cuModuleUnload(library);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
	TRY(cuda_enter());
	NEED(module);
	pthread_mutex_lock(&cuda_mu);
	bool ok = loaded(library);
	pthread_mutex_unlock(&cuda_mu);
	*module = ok ? library : NULL;
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	return cuModuleGetFunction(kernel, library, name);
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	TRY(cuda_enter());
	NEED(function);
	if (!cuda_function_name(kernel))
		return CUDA_ERROR_INVALID_HANDLE;
	*function = kernel;
	return CUDA_SUCCESS;
}
