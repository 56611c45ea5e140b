/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arrays. What one takes is computed from its shape; sparse ones, and those whose mapping is deferred, take
 * nothing of their own.
 */
#include "kerf.h"

#define NO_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* The bits of one element. Compressed formats have theirs whatever the channels; one that is not known counts as
 * the largest there is. */
static uint64_t element_bits(int format, unsigned channels)
{
	switch (format) {
	case 0x01: /* 8 bits: integers, planes and normalized */
	case 0x08:
	case 0xb0:
	case 0xc0: case 0xc1: case 0xc2:
	case 0xc6: case 0xc7: case 0xc8:
		return 8u * channels;
	case 0x02: /* 16 bits */
	case 0x09:
	case 0x10:
	case 0xc3: case 0xc4: case 0xc5:
	case 0xc9: case 0xca: case 0xcb:
		return 16u * channels;
	case 0x03: /* 32 bits */
	case 0x0a:
	case 0x20:
		return 32u * channels;
	case 0x50: /* 10, 10, 10 and 2 bits */
		return 32;
	case 0x91: case 0x92: /* BC1 */
	case 0x97: case 0x98: /* BC4 */
		return 4;
	case 0x93: case 0x94: case 0x95: case 0x96: /* BC2, BC3, BC5 to BC7 */
	case 0x99: case 0x9a: case 0x9b: case 0x9c: case 0x9d: case 0x9e:
		return 8;
	default:
		return 128;
	}
}

/* A height or depth of 0 means that there is no such side. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	uint64_t n = element_bits(d->format, d->channels);
	if (__builtin_mul_overflow(n, (uint64_t)d->width, &n) ||
	    __builtin_mul_overflow(n, (uint64_t)(d->height ? d->height : 1), &n) ||
	    __builtin_mul_overflow(n, (uint64_t)(d->depth ? d->depth : 1), &n))
		return UINT64_MAX;
	return n / 8 + (n % 8 != 0);
}

static size_t half(size_t side)
{
	return side > 1 ? side / 2 : side;
}

/* Each level is half of the one before on every side, but layers stay as many. */
static uint64_t levels_of(CUDA_ARRAY3D_DESCRIPTOR d, unsigned levels)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < levels && i < 64; i++) {
		if (__builtin_add_overflow(sum, bytes_of(&d), &sum))
			return UINT64_MAX;
		d.width = half(d.width);
		d.height = half(d.height);
		d.depth = d.flags & CUDA_ARRAY3D_LAYERED ? d.depth : half(d.depth);
	}
	return sum;
}

/* Nothing of it is booked where d is not to be counted; c then has no entry. */
static CUresult begin(struct kerf_charge *c, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	*c = (struct kerf_charge){ .entry = NULL };
	if (d->flags & NO_MEMORY)
		return CUDA_SUCCESS;
	return kerf_begin_here(c, kerf_round(levels_of(*d, levels)));
}

static CUresult end(struct kerf_charge *c, CUresult ret, int kind, const void *array)
{
	return c->entry ? kerf_end(c, ret, kind, (uint64_t)(uintptr_t)array) : ret;
}

/* The driver may say what an array takes, which may be more for the shape of its tiles. */
static bool fits(struct kerf_charge *c, CUresult asked, const CUDA_ARRAY_MEMORY_REQUIREMENTS *r)
{
	return asked || kerf_round(r->size) <= c->bytes || kerf_correct(c, kerf_round(r->size));
}

static CUresult check(struct kerf_charge *c, CUarray array)
{
	CUdevice device;
	CUDA_ARRAY_MEMORY_REQUIREMENTS r;
	__typeof__(&cuArrayGetMemoryRequirements) get = KERF_REAL(cuArrayGetMemoryRequirements);
	KERF_NEED(cuCtxGetDevice, CUDA_SUCCESS);
	if (!c->entry || !get || real(&device) || fits(c, get(&r, array, device), &r))
		return CUDA_SUCCESS;
	KERF_REAL(cuArrayDestroy)(array);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct kerf_charge c;
	KERF_NEED(cuArray3DCreate_v2, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = d ? begin(&c, d, 1) : CUDA_SUCCESS;
	if (ret || !d)
		return ret ? ret : real(array, d);
	ret = real(array, d);
	if (!ret)
		ret = check(&c, *array);
	return end(&c, ret, KERF_ARRAY, ret ? NULL : *array);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	struct kerf_charge c;
	KERF_NEED(cuArray3DCreate, CUDA_ERROR_NOT_INITIALIZED);
	if (!d)
		return real(array, d);
	CUresult ret = begin(&c, &(CUDA_ARRAY3D_DESCRIPTOR){ d->width, d->height, d->depth, d->format, d->channels,
		d->flags }, 1);
	if (ret)
		return ret;
	ret = real(array, d);
	if (!ret)
		ret = check(&c, *array);
	return end(&c, ret, KERF_ARRAY, ret ? NULL : *array);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
	struct kerf_charge c;
	KERF_NEED(cuArrayCreate_v2, CUDA_ERROR_NOT_INITIALIZED);
	if (!d)
		return real(array, d);
	CUresult ret = begin(&c, &(CUDA_ARRAY3D_DESCRIPTOR){ d->width, d->height, 0, d->format, d->channels, 0 }, 1);
	if (ret)
		return ret;
	ret = real(array, d);
	if (!ret)
		ret = check(&c, *array);
	return end(&c, ret, KERF_ARRAY, ret ? NULL : *array);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	struct kerf_charge c;
	KERF_NEED(cuArrayCreate, CUDA_ERROR_NOT_INITIALIZED);
	if (!d)
		return real(array, d);
	CUresult ret = begin(&c, &(CUDA_ARRAY3D_DESCRIPTOR){ d->width, d->height, 0, d->format, d->channels, 0 }, 1);
	if (ret)
		return ret;
	ret = real(array, d);
	if (!ret)
		ret = check(&c, *array);
	return end(&c, ret, KERF_ARRAY, ret ? NULL : *array);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	struct kerf_charge c;
	CUdevice device;
	CUDA_ARRAY_MEMORY_REQUIREMENTS r;
	KERF_NEED(cuMipmappedArrayCreate, CUDA_ERROR_NOT_INITIALIZED);
	__typeof__(&cuMipmappedArrayGetMemoryRequirements) get = KERF_REAL(cuMipmappedArrayGetMemoryRequirements);
	__typeof__(&cuCtxGetDevice) here = KERF_REAL(cuCtxGetDevice);
	CUresult ret = d ? begin(&c, d, levels) : CUDA_SUCCESS;
	if (ret || !d)
		return ret ? ret : real(array, d, levels);
	ret = real(array, d, levels);
	if (!ret && c.entry && get && here && !here(&device) && !fits(&c, get(&r, *array, device), &r)) {
		KERF_REAL(cuMipmappedArrayDestroy)(*array);
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return end(&c, ret, KERF_MIPMAP, ret ? NULL : *array);
}

CUresult cuArrayDestroy(CUarray array)
{
	KERF_NEED(cuArrayDestroy, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_ARRAY, (uint64_t)(uintptr_t)array), *tiles = kerf_unmapped(array);
	return kerf_array_ended(tiles, kerf_freed(e, real(array)));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	KERF_NEED(cuMipmappedArrayDestroy, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_MIPMAP, (uint64_t)(uintptr_t)array), *tiles = kerf_unmapped(array);
	return kerf_array_ended(tiles, kerf_freed(e, real(array)));
}
