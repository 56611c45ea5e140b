/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arrays: memory of a shape, without an address. Sparse arrays and those whose mapping is deferred have no
 * memory of their own; see cuda_sparse.c.
 */
#include "cuda_core.h"

#include <stdlib.h>

#define NO_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)
#define MAX_LEVELS 32
#define SINGLE_TAIL 1 /* CU_ARRAY_SPARSE_PROPERTIES_SINGLE_MIPTAIL */

struct CUarray_st {
	CUDA_ARRAY3D_DESCRIPTOR desc;
	uint64_t bytes;
	uint64_t handle; /* the daemon's; 0: none */
	CUcontext context;
	uint64_t context_id; /* of when it was made: a primary context may be another one later */
	bool level; /* of a mipmapped array, which owns the memory */
};

struct CUmipmappedArray_st {
	struct CUarray_st whole;
	unsigned levels;
	struct physical *external; /* whose memory it is in; NULL: its own */
	struct CUarray_st level[MAX_LEVELS];
};

/* The bytes of one channel of a format; 0 for formats that are not simulated. */
static uint64_t channel(int format)
{
	switch (format) {
	case 0x01: /* UNSIGNED_INT8 */
	case 0x08: /* SIGNED_INT8 */
		return 1;
	case 0x02: /* UNSIGNED_INT16 */
	case 0x09: /* SIGNED_INT16 */
	case 0x10: /* HALF */
		return 2;
	case 0x03: /* UNSIGNED_INT32 */
	case 0x0a: /* SIGNED_INT32 */
	case 0x20: /* FLOAT */
		return 4;
	default:
		return 0;
	}
}

/* The size of an array, of which a height or depth of 0 means that it has no such side. */
static CUresult size_of(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t *bytes)
{
	NEED(d->Width && (d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4));
	if (!channel(d->Format))
		return CUDA_ERROR_NOT_SUPPORTED;
	uint64_t n = channel(d->Format) * d->NumChannels;
	if (__builtin_mul_overflow(n, d->Width, &n) || __builtin_mul_overflow(n, d->Height ? d->Height : 1, &n) ||
	    __builtin_mul_overflow(n, d->Depth ? d->Depth : 1, &n))
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = n;
	return CUDA_SUCCESS;
}

/* Takes memory for an array that is otherwise filled in. */
static CUresult back(struct CUarray_st *a)
{
	TRY(cuda_current(&a->context));
	a->context_id = a->context->id;
	if (a->desc.Flags & NO_MEMORY)
		return CUDA_SUCCESS;
	if (a->bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	const uint64_t args[GPUSIM_NARGS] = { cuda_round(a->bytes), a->context_id, GPUSIM_KIND_LINEAR };
	return cuda_call(a->context->device, GPUSIM_OP_ALLOC, args, &a->handle, 1);
}

static CUresult give_back(const struct CUarray_st *a)
{
	const uint64_t args[GPUSIM_NARGS] = { a->handle };
	if (a->handle)
		cuda_bytes_drop(a->handle, a->bytes);
	if (!a->handle || a->context->id != a->context_id) /* it went with its context */
		return CUDA_SUCCESS;
	return cuda_call(a->context->device, GPUSIM_OP_FREE, args, NULL, 0);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(array && desc);
	struct CUarray_st a = { .desc = *desc };
	TRY(size_of(desc, &a.bytes));
	CUarray made = malloc(sizeof *made);
	CUresult ret = made ? back(&a) : CUDA_ERROR_OUT_OF_MEMORY;
	if (ret) {
		free(made);
		return ret;
	}
	*made = a;
	*array = made;
	return CUDA_SUCCESS;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	NEED(desc);
	const CUDA_ARRAY3D_DESCRIPTOR d = { .Width = desc->Width, .Height = desc->Height, .Format = desc->Format,
					    .NumChannels = desc->NumChannels };
	return cuArray3DCreate_v2(array, &d);
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
	TRY(cuda_enter());
	NEED(desc && array);
	*desc = array->desc;
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
	TRY(cuda_enter());
	NEED(desc && array);
	*desc = (CUDA_ARRAY_DESCRIPTOR){ .Width = array->desc.Width, .Height = array->desc.Height,
					 .Format = array->desc.Format, .NumChannels = array->desc.NumChannels };
	return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array)
{
	TRY(cuda_enter());
	if (!array || array->level)
		return CUDA_ERROR_INVALID_HANDLE;
	cuda_array_unmap(array);
	CUresult ret = give_back(array);
	free(array);
	return ret;
}

/* Only an array without its own memory may be asked. */
static CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, const struct CUarray_st *a, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(out && a && a->desc.Flags & NO_MEMORY);
	*out = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = cuda_round(a->bytes), .alignment = GRANULARITY };
	return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUarray array, CUdevice device)
{
	return requirements(out, array, device);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *out, CUmipmappedArray array,
					       CUdevice device)
{
	return requirements(out, array ? &array->whole : NULL, device);
}

static size_t half(size_t side)
{
	return side > 1 ? side / 2 : side;
}

/* Each level is half of the one before on every side, down to 1. */
static CUresult mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels,
		       struct physical *external, uint64_t room)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(array && desc && levels && levels <= MAX_LEVELS && (!external || !(desc->Flags & NO_MEMORY)));
	CUmipmappedArray m = calloc(1, sizeof *m);
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = CUDA_SUCCESS;
	m->levels = levels;
	m->whole.desc = *desc;
	CUDA_ARRAY3D_DESCRIPTOR d = *desc;
	for (unsigned i = 0; i < levels && !ret; i++) {
		m->level[i] = (struct CUarray_st){ .desc = d, .level = true };
		ret = size_of(&d, &m->level[i].bytes);
		if (!ret && __builtin_add_overflow(m->whole.bytes, m->level[i].bytes, &m->whole.bytes))
			ret = CUDA_ERROR_INVALID_VALUE;
		d.Width = half(d.Width);
		d.Height = half(d.Height);
		d.Depth = half(d.Depth);
	}
	if (!ret && external) {
		if (m->whole.bytes <= room) {
			cuda_hold_again(external);
			m->external = external;
		} else {
			ret = CUDA_ERROR_INVALID_VALUE;
		}
	} else if (!ret) {
		ret = back(&m->whole);
	}
	if (ret)
		free(m);
	else
		*array = m;
	return ret;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels)
{
	return mipmap(array, desc, levels, NULL, 0);
}

CUresult cuda_mipmap_of(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned levels,
			struct physical *memory, uint64_t room)
{
	return mipmap(array, desc, levels, memory, room);
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray array, unsigned n)
{
	TRY(cuda_enter());
	NEED(level && array && n < array->levels);
	*level = &array->level[n];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	TRY(cuda_enter());
	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	cuda_array_unmap(array);
	CUresult ret = array->external ? cuda_let_go(array->external) : give_back(&array->whole);
	free(array);
	return ret;
}

/* The sides of a tile of 64 KiB, by the bytes of a texel: 1, 2, 4, 8, 16. */
static CUDA_ARRAY_SPARSE_PROPERTIES tile(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	static const unsigned flat[][3] = { { 256, 256, 1 }, { 256, 128, 1 }, { 128, 128, 1 }, { 128, 64, 1 },
		{ 64, 64, 1 } };
	static const unsigned deep[][3] = { { 64, 32, 32 }, { 32, 32, 32 }, { 32, 32, 16 }, { 32, 16, 16 },
		{ 16, 16, 16 } };
	const unsigned *side = (d->Depth ? deep : flat)[__builtin_ctzll(channel(d->Format) * d->NumChannels)];
	return (CUDA_ARRAY_SPARSE_PROPERTIES){ .tileExtent = { side[0], side[1], side[2] } };
}

/* Is each side at least as long as a tile's? */
static bool has_tiles(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	const CUDA_ARRAY_SPARSE_PROPERTIES p = tile(d);
	return d->Width >= p.tileExtent.width && d->Height >= p.tileExtent.height &&
	       (!d->Depth || d->Depth >= p.tileExtent.depth);
}

/* Levels with a side that is shorter than a tile's share one stretch, the tail. An array without levels has level 0 as
 * its first one, whether or not it has a tail. */
static CUresult sparse_properties(CUDA_ARRAY_SPARSE_PROPERTIES *out, const struct CUarray_st *level, unsigned levels)
{
	unsigned first = 0;
	NEED(out && level->desc.Flags & CUDA_ARRAY3D_SPARSE && level->desc.Height);
	*out = tile(&level->desc);
	while (first < levels && has_tiles(&level[first].desc))
		first++;
	out->miptailFirstLevel = levels > 1 ? first : 0;
	for (unsigned i = first; i < levels; i++)
		out->miptailSize += level[i].bytes;
	out->miptailSize = cuda_round(out->miptailSize);
	out->flags = out->miptailSize ? SINGLE_TAIL : 0;
	return CUDA_SUCCESS;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUarray array)
{
	TRY(cuda_enter());
	NEED(array);
	return sparse_properties(out, array, 1);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUmipmappedArray array)
{
	TRY(cuda_enter());
	NEED(array);
	return sparse_properties(out, array->level, array->levels);
}

/* Contents are kept by the daemon's address. Levels of a mipmapped array and arrays without memory have none of their
 * own. */
CUresult cuda_array_place(CUarray a, const size_t at[3], const size_t extent[3], uint64_t *begin, uint64_t *row,
	uint64_t *slice)
{
	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	const CUDA_ARRAY3D_DESCRIPTOR *d = &a->desc;
	size_t height = d->Height ? d->Height : 1, depth = d->Depth ? d->Depth : 1;
	*row = channel(d->Format) * d->NumChannels * d->Width;
	*slice = *row * height;
	NEED(at[0] + extent[0] <= *row && at[1] + extent[1] <= height && at[2] + extent[2] <= depth);
	*begin = (a->handle ? a->handle : UINT64_C(1) << 63) + at[0] + at[1] * *row + at[2] * *slice;
	return CUDA_SUCCESS;
}

static CUresult tail(const CUarrayMapInfo *m, uint64_t *bytes)
{
	CUDA_ARRAY_SPARSE_PROPERTIES p;
	bool mipmap = m->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
	TRY(mipmap ? cuMipmappedArrayGetSparseProperties(&p, m->resource.mipmap) :
		     cuArrayGetSparseProperties(&p, m->resource.array));
	unsigned long long from = m->subresource.miptail.offset, size = m->subresource.miptail.size;
	NEED(m->subresource.miptail.layer == 0 && size && from <= p.miptailSize && size <= p.miptailSize - from);
	*bytes = size;
	return CUDA_SUCCESS;
}

static bool inside(unsigned from, unsigned extent, size_t side)
{
	return extent && (uint64_t)from + extent <= (side ? side : 1);
}

CUresult cuda_array_region(const CUarrayMapInfo *m, uint64_t *bytes)
{
	const struct CUarray_st *a = m->resource.array;
	unsigned level = m->subresource.sparseLevel.level;
	NEED(a && m->resourceType >= CU_RESOURCE_TYPE_ARRAY && m->resourceType <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY);
	if (m->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
		return tail(m, bytes);
	if (m->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
		NEED(level < m->resource.mipmap->levels);
		a = &m->resource.mipmap->level[level];
	} else {
		NEED(level == 0);
	}
	const CUDA_ARRAY3D_DESCRIPTOR *d = &a->desc;
	NEED(d->Flags & NO_MEMORY);
	NEED(!(d->Flags & CUDA_ARRAY3D_SPARSE) || !d->Height || has_tiles(d));
	NEED(inside(m->subresource.sparseLevel.offsetX, m->subresource.sparseLevel.extentWidth, d->Width));
	NEED(inside(m->subresource.sparseLevel.offsetY, m->subresource.sparseLevel.extentHeight, d->Height));
	NEED(inside(m->subresource.sparseLevel.offsetZ, m->subresource.sparseLevel.extentDepth, d->Depth));
	const CUDA_ARRAY3D_DESCRIPTOR part = { m->subresource.sparseLevel.extentWidth,
					       m->subresource.sparseLevel.extentHeight,
					       m->subresource.sparseLevel.extentDepth, d->Format, d->NumChannels, 0 };
	return size_of(&part, bytes);
}
