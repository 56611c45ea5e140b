/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Modules and libraries. A module costs the memory of its variables, and no less than a block.
 */
#include "cuda_export.h"
#include "cuda_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct CUmod_st {
	bool loaded;
	CUcontext context;
	uint64_t context_id, handle; /* what it costs, and the context that this lives in */
	struct image image;
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

static CUresult load(CUmodule *module, const struct image *image)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (image->bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct CUmod_st *m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*m = (struct CUmod_st){ .loaded = true, .context = context, .context_id = context->id, .image = *image };
	const uint64_t args[GPUSIM_NARGS] = { cuda_round(image->bytes ? image->bytes : 1), m->context_id,
		GPUSIM_KIND_LINEAR };
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

CUresult cuModuleLoadData(CUmodule *module, const void *data)
{
	CUcontext context;
	struct device *d;
	struct image image = { .open = false };
	NEED(module && data);
	TRY(cuda_current(&context));
	TRY(cuda_device(context->device, &d));
	TRY(cuda_image_read(&image, data, d));
	CUresult ret = load(module, &image);
	if (ret)
		cuda_image_free(&image);
	return ret;
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
	NEED(module && path);
	FILE *file = fopen(path, "r");
	if (!file || fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode)) {
		if (file)
			fclose(file);
		return CUDA_ERROR_FILE_NOT_FOUND;
	}
	size_t bytes = (size_t)st.st_size;
	char *data = calloc(1, bytes + 8); /* PTX ends in a zero byte */
	CUresult ret = data && fread(data, 1, bytes, file) == bytes ? cuModuleLoadData(module, data)
		: CUDA_ERROR_OUT_OF_MEMORY;
	free(data);
	fclose(file);
	return ret;
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
	struct allocation a;
	if (cuda_holds(module->handle, 1, &a) && a.origin == MODULE && a.ptr == module->handle)
		cuda_forget(module->handle, &a);
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
	bool there = loaded(module);
	if (there && !module->image.open && !cuda_image_find(&module->image, name, true)) {
		ret = CUDA_ERROR_NOT_FOUND;
	} else if (there) {
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

/* Where a variable is. The memory of its module is remembered when the first one is asked for. */
API(cuModuleGetGlobal_v2, (CUdeviceptr *ptr, size_t *bytes, CUmodule module, const char *name))
{
	struct allocation a;
	TRY(cuda_enter());
	NEED(name);
	pthread_mutex_lock(&cuda_mu);
	bool there = loaded(module);
	const struct image_symbol *s = there ? cuda_image_find(&module->image, name, false) : NULL;
	pthread_mutex_unlock(&cuda_mu);
	if (!s)
		return there ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
	if (!cuda_holds(module->handle, 1, &a)) {
		a = (struct allocation){ .ptr = module->handle, .bytes = module->image.bytes, .origin = MODULE,
					 .handle = module->handle,
					 .device = module->context->device, .context = module->context };
		TRY(cuda_remember(&a));
	}
	if (ptr)
		*ptr = module->handle + s->offset;
	if (bytes)
		*bytes = s->bytes;
	return CUDA_SUCCESS;
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
