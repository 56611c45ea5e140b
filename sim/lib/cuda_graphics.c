/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is shared with a graphics driver, for which libgpusim-graphics.so.1 stands: its objects are known by
 * their names. Their memory stays the graphics driver's, which took it; registering and mapping take nothing. A buffer
 * of GL is mapped as an address, an image as an array without its own memory, and an image of EGL as a frame of
 * that.
 */
#include "cuda_core.h"

#include <dlfcn.h>
#include <stdlib.h>

struct CUgraphicsResource_st {
	bool image, mapped;
	CUdevice device;
	CUdeviceptr ptr;
	uint64_t bytes;
	CUmipmappedArray shape; /* of an image, from when a program asked for it */
};

static int find(unsigned name, int *minor, uint64_t *handle, uint64_t *bytes)
{
	int (*ask)(unsigned, int *, uint64_t *, uint64_t *) = NULL;
	void *library = dlopen("libgpusim-graphics.so.1", RTLD_NOW | RTLD_NOLOAD);
	if (library)
		ask = (int (*)(unsigned, int *, uint64_t *, uint64_t *))dlsym(library, "gpusim_graphics_find");
	return ask ? ask(name, minor, handle, bytes) : GPUSIM_NOT_FOUND;
}

/* The current context has to be of the GPU that the object is on. */
static CUresult enlist(CUgraphicsResource *resource, uint64_t name, bool image)
{
	CUcontext context;
	struct device *d;
	struct CUgraphicsResource_st r = { .image = image };
	int minor;
	TRY(cuda_current(&context));
	NEED(resource && name <= UINT32_MAX && find((unsigned)name, &minor, &r.ptr, &r.bytes) == GPUSIM_OK);
	TRY(cuda_device(context->device, &d));
	if (d->minor != minor)
		return CUDA_ERROR_INVALID_VALUE;
	r.device = context->device;
	*resource = malloc(sizeof r);
	if (!*resource)
		return CUDA_ERROR_OUT_OF_MEMORY;
	**resource = r;
	return CUDA_SUCCESS;
}

CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *resource, unsigned buffer, unsigned flags)
{
	NEED(flags <= 2);
	return enlist(resource, buffer, false);
}

CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *resource, unsigned image, unsigned target, unsigned flags)
{
	(void)target;
	NEED(flags <= 15);
	return enlist(resource, image, true);
}

CUresult cuGraphicsEGLRegisterImage(CUgraphicsResource *resource, void *image, unsigned flags)
{
	NEED(flags <= 2);
	return enlist(resource, (uintptr_t)image, true);
}

CUresult cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource *resource, unsigned surface, unsigned flags)
{
	NEED(flags <= 2);
	return enlist(resource, surface, true);
}

CUresult cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource *resource, unsigned surface, unsigned flags)
{
	NEED(flags <= 2);
	return enlist(resource, surface, true);
}

/* A mapped buffer is memory at an address that cuMemFree does not free. */
static CUresult map(CUgraphicsResource r, bool mapped)
{
	if (!r)
		return CUDA_ERROR_INVALID_HANDLE;
	if (r->mapped == mapped)
		return mapped ? CUDA_ERROR_ALREADY_MAPPED : CUDA_ERROR_NOT_MAPPED;
	const struct allocation a = { .ptr = r->ptr, .bytes = r->bytes, .origin = GRAPHICS, .device = r->device };
	struct allocation gone;
	if (!r->image && mapped)
		TRY(cuda_remember(&a));
	if (!r->image && !mapped)
		cuda_forget(r->ptr, &gone);
	r->mapped = mapped;
	return CUDA_SUCCESS;
}

static CUresult map_all(unsigned n, CUgraphicsResource *list, bool mapped)
{
	TRY(cuda_enter());
	NEED(n && list);
	for (unsigned i = 0; i < n; i++)
		TRY(map(list[i], mapped));
	return CUDA_SUCCESS;
}

CUresult cuGraphicsMapResources(unsigned n, CUgraphicsResource *list, CUstream stream)
{
	(void)stream; /* nothing takes time */
	return map_all(n, list, true);
}

CUresult cuGraphicsMapResources_ptsz(unsigned n, CUgraphicsResource *list, CUstream stream)
{
	return cuGraphicsMapResources(n, list, stream);
}

CUresult cuGraphicsUnmapResources(unsigned n, CUgraphicsResource *list, CUstream stream)
{
	(void)stream;
	return map_all(n, list, false);
}

CUresult cuGraphicsUnmapResources_ptsz(unsigned n, CUgraphicsResource *list, CUstream stream)
{
	return cuGraphicsUnmapResources(n, list, stream);
}

CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *ptr, size_t *bytes, CUgraphicsResource r)
{
	TRY(cuda_enter());
	if (!r)
		return CUDA_ERROR_INVALID_HANDLE;
	NEED(ptr && bytes);
	if (!r->mapped)
		return CUDA_ERROR_NOT_MAPPED;
	if (r->image)
		return CUDA_ERROR_NOT_MAPPED_AS_POINTER;
	*ptr = r->ptr;
	*bytes = r->bytes;
	return CUDA_SUCCESS;
}

/* The names stand for objects of which only the size is known: each is one level of rows of 64 KiB. */
CUresult cuGraphicsResourceGetMappedMipmappedArray(CUmipmappedArray *array, CUgraphicsResource r)
{
	const uint64_t row = 64 << 10;
	TRY(cuda_enter());
	if (!r)
		return CUDA_ERROR_INVALID_HANDLE;
	NEED(array);
	if (!r->mapped)
		return CUDA_ERROR_NOT_MAPPED;
	if (!r->image)
		return CUDA_ERROR_NOT_MAPPED_AS_ARRAY;
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = row / 16, .Height = (r->bytes + row - 1) / row,
					    .Format = CU_AD_FORMAT_FLOAT,
					    .NumChannels = 4, .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING };
	if (!r->shape)
		TRY(cuMipmappedArrayCreate(&r->shape, &d, 1));
	*array = r->shape;
	return CUDA_SUCCESS;
}

CUresult cuGraphicsSubResourceGetMappedArray(CUarray *array, CUgraphicsResource r, unsigned index, unsigned level)
{
	CUmipmappedArray all;
	NEED(index == 0);
	TRY(cuGraphicsResourceGetMappedMipmappedArray(&all, r));
	return cuMipmappedArrayGetLevel(array, all, level);
}

CUresult cuGraphicsResourceGetMappedEglFrame(CUeglFrame *frame, CUgraphicsResource r, unsigned index, unsigned level)
{
	CUarray array;
	CUDA_ARRAY3D_DESCRIPTOR d;
	NEED(frame);
	TRY(cuGraphicsSubResourceGetMappedArray(&array, r, index, level));
	TRY(cuArray3DGetDescriptor_v2(&d, array));
	*frame = (CUeglFrame){ .frame.pArray = { array }, .width = (unsigned)d.Width, .height = (unsigned)d.Height,
			       .planeCount = 1,
			       .numChannels = d.NumChannels, .cuFormat = d.Format };
	return CUDA_SUCCESS;
}

CUresult cuGraphicsUnregisterResource(CUgraphicsResource r)
{
	TRY(cuda_enter());
	if (!r)
		return CUDA_ERROR_INVALID_HANDLE;
	if (r->mapped)
		TRY(map(r, false));
	if (r->shape)
		TRY(cuMipmappedArrayDestroy(r->shape));
	free(r);
	return CUDA_SUCCESS;
}

/* Contexts as any other. */
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	return cuCtxCreate_v2(context, flags, device);
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, unsigned with, void *resolver)
{
	(void)with;
	(void)resolver;
	return cuCtxCreate_v2(context, flags, device);
}
