/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a graphics driver takes and registers with CUDA: buffers, images and surfaces, which are mapped;
 * streams of frames; and the contexts that the graphics interfaces have calls of their own for. Only the
 * simulated driver's stand-in for a graphics driver makes such objects here.
 */
#include <dlfcn.h>

#include "load.h"

void *graphics(const char *name)
{
	void *library = dlopen("libgpusim-graphics.so.1", RTLD_NOW);
	return library ? dlsym(library, name) : NULL;
}

static void drop(struct block *p)
{
	int (*give)(unsigned) = (int (*)(unsigned))graphics("gpusim_graphics_drop");
	if (give)
		give(p->object.name);
}

enum interface { GL_BUFFER, GL_IMAGE, EGL_IMAGE, VDPAU_SURFACE };

static CUresult enlist(struct load *l, struct block *p, enum interface as)
{
	unsigned name = p->object.name;
	switch (as) {
	case GL_BUFFER:
		return l->cuda.gl_buffer(&p->object.resource, name, 0);
	case GL_IMAGE:
		return l->cuda.gl_image(&p->object.resource, name, 0x0DE1, 0); /* GL_TEXTURE_2D */
	case EGL_IMAGE:
		return l->cuda.egl_image(&p->object.resource, (void *)(uintptr_t)name, 0);
	case VDPAU_SURFACE:
		return l->cuda.vdpau_surface(&p->object.resource, name, 0);
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult make_object(struct load *l, struct block *p)
{
	int (*make)(int, uint64_t, unsigned *) = (int (*)(int, uint64_t, unsigned *))graphics("gpusim_graphics_name");
	int status = make ? make(l->device, p->bytes, &p->object.name) : -1;
	if (!make)
		return CUDA_ERROR_NOT_SUPPORTED;
	return !status ? CUDA_SUCCESS : status == GRAPHICS_NO_ROOM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

/* A buffer is memory at an address, images are mapped alone. */
static CUresult take(struct load *l, struct block *p, enum interface as)
{
	size_t bytes;
	if (!l->cuda.gl_buffer || !l->cuda.gl_image || !l->cuda.egl_image || !l->cuda.vdpau_surface ||
	    !l->cuda.map_resources || !l->cuda.mapped_pointer || !l->cuda.unregister)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(make_object(l, p));
	CUresult ret = enlist(l, p, as);
	if (ret) {
		drop(p);
		return ret;
	}
	ret = l->cuda.map_resources(1, &p->object.resource, NULL);
	if (!ret && as == GL_BUFFER)
		ret = l->cuda.mapped_pointer(&p->ptr, &bytes, p->object.resource);
	if (ret)
		give_object(l, p);
	return ret;
}

void give_object(struct load *l, struct block *p)
{
	l->cuda.unregister(p->object.resource);
	drop(p);
}

CUresult take_gl(struct load *l, struct block *p)
{
	return take(l, p, GL_BUFFER);
}

CUresult take_gl_image(struct load *l, struct block *p)
{
	return take(l, p, GL_IMAGE);
}

CUresult take_egl(struct load *l, struct block *p)
{
	return take(l, p, EGL_IMAGE);
}

CUresult take_vdpau(struct load *l, struct block *p)
{
	return take(l, p, VDPAU_SURFACE);
}

CUresult take_gl_array(struct load *l, struct block *p)
{
	CUarray array;
	if (!l->cuda.mapped_array)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(take(l, p, GL_IMAGE));
	CUresult ret = l->cuda.mapped_array(&array, p->object.resource, 0, 0);
	if (ret)
		give_object(l, p);
	return ret;
}

CUresult take_gl_old(struct load *l, struct block *p)
{
	size_t bytes;
	if (!l->cuda.gl_register || !l->cuda.gl_map || !l->cuda.gl_unmap || !l->cuda.gl_unregister)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(make_object(l, p));
	CUresult ret = l->cuda.gl_register(p->object.name);
	if (!ret)
		ret = l->cuda.gl_map(&p->ptr, &bytes, p->object.name);
	if (ret)
		give_gl_old(l, p);
	return ret;
}

/* Of what was not mapped or registered the driver says so, and that is no harm. */
void give_gl_old(struct load *l, struct block *p)
{
	l->cuda.gl_unmap(p->object.name);
	l->cuda.gl_unregister(p->object.name);
	drop(p);
}

CUresult take_egl_consumer(struct load *l, struct block *p)
{
	if (!l->cuda.egl_connect || !l->cuda.egl_acquire || !l->cuda.egl_disconnect)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(make_object(l, p));
	CUresult ret = l->cuda.egl_connect(&p->object.stream, (void *)(uintptr_t)p->object.name);
	if (ret) {
		drop(p);
		return ret;
	}
	ret = l->cuda.egl_acquire(&p->object.stream, &p->object.resource, NULL, 0);
	if (ret)
		give_egl_consumer(l, p);
	return ret;
}

void give_egl_consumer(struct load *l, struct block *p)
{
	l->cuda.egl_disconnect(&p->object.stream);
	drop(p);
}

/* The memory is CUDA's own; the stream needs no other end. */
CUresult take_egl_producer(struct load *l, struct block *p)
{
	if (!l->cuda.egl_produce || !l->cuda.egl_present || !l->cuda.egl_return || !l->cuda.egl_end)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(l->cuda.alloc(&p->ptr, p->bytes));
	CUresult ret = l->cuda.egl_produce(&p->object.stream, l, 0, 0);
	if (ret) {
		l->cuda.free(p->ptr);
		return ret;
	}
	const CUeglFrame frame = { .frame.pPitch = { (void *)(uintptr_t)p->ptr }, .planeCount = 1, .frameType = 1 };
	ret = l->cuda.egl_present(&p->object.stream, frame, NULL);
	if (ret)
		give_egl_producer(l, p);
	return ret;
}

void give_egl_producer(struct load *l, struct block *p)
{
	CUeglFrame frame;
	l->cuda.egl_return(&p->object.stream, &frame, NULL);
	l->cuda.egl_end(&p->object.stream);
	l->cuda.free(p->ptr);
}

/* What a context costs is seen by what is free; where that does not change, it is taken for all of the block. */
static CUresult counted(struct load *l, struct block *p, bool vdpau)
{
	size_t before, after, total;
	if (vdpau ? !l->cuda.vdpau_context : !l->cuda.gl_context)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(l->cuda.mem_info(&before, &total));
	TRY(vdpau ? l->cuda.vdpau_context(&p->context, 0, l->device, 0, NULL)
		: l->cuda.gl_context(&p->context, 0, l->device));
	TRY(l->cuda.mem_info(&after, &total));
	p->counted = before > after ? before - after : p->bytes;
	return l->cuda.set_current(l->context);
}

CUresult take_gl_context(struct load *l, struct block *p)
{
	return counted(l, p, false);
}

CUresult take_vdpau_context(struct load *l, struct block *p)
{
	return counted(l, p, true);
}
