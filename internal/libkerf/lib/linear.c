/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Linear and pitched memory. The first versions' addresses have 32 bits.
 */
#include "block.h"

static CUcontext current(void)
{
	CUcontext context;
	__typeof__(&cuCtxGetCurrent) get = KERF_REAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? context : NULL;
}

/* With packing held, after the driver has served e: counts its block. A block was taken for it unless it should fit
 * into a gap. False: the driver took a block for which there is no room. */
static bool packed(struct kerf_entry *e, struct kerf_block *gap)
{
	struct kerf_entry *old = kerf_remove(KERF_POINTER, e->key);
	if (old) /* the driver gives the address out again, so what was there has gone unseen */
		kerf_freed(old, CUDA_SUCCESS);
	if (kerf_block_join(e)) {
		kerf_give(e->place, gap ? 0 : KERF_BLOCK);
		return true;
	}
	if (gap)
		kerf_block_has_none(gap);
	if (gap && !kerf_take_or_make_room(e->place, KERF_BLOCK))
		return false;
	if (kerf_block_open(e))
		return true;
	kerf_give(e->place, KERF_BLOCK);
	return false;
}

/* With packing held. No GPU that there is makes a pitch so large that a small request becomes a large one. */
static CUresult serve(const struct kerf_request *r, struct kerf_entry *e, struct kerf_block *gap)
{
	CUresult ret = r->ask(r, &e->bytes);
	if (!ret) {
		e->kind = KERF_POINTER;
		e->key = *r->ptr;
	}
	if (ret || e->bytes > KERF_SMALL)
		kerf_give(e->place, gap ? 0 : KERF_BLOCK);
	if (ret)
		return ret;
	if (e->bytes > KERF_SMALL || !packed(e, gap)) {
		KERF_REAL(cuMemFree_v2)(*r->ptr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	kerf_put(e);
	return CUDA_SUCCESS;
}

/* Managed memory packs in ways that were not seen, so a block is taken for each, and given back where it needs none. */
static struct kerf_block *gap_for(const struct kerf_entry *e, bool all)
{
	const bool managed = e->place != KERF_DEVICE(e->place);
	return managed ? NULL : kerf_block_with_gap(e->context, e->place, e->bytes, all);
}

static CUresult small(const struct kerf_request *r, struct kerf_entry *e)
{
	pthread_mutex_t *packing = &kerf_self()->packing[KERF_DEVICE(e->place)];
	CUresult ret = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(packing);
	struct kerf_block *gap = gap_for(e, false);
	bool room = !gap && kerf_take(e->place, KERF_BLOCK);
	if (!gap && !room) {
		pthread_mutex_unlock(packing); /* to make room may take time */
		room = kerf_take_with_room(e->place, KERF_BLOCK);
		pthread_mutex_lock(packing);
		gap = room ? NULL : gap_for(e, true);
	}
	if (gap || room)
		ret = serve(r, e, gap);
	else
		kerf_refused(e->place);
	pthread_mutex_unlock(packing);
	return ret;
}

static CUresult large(const struct kerf_request *r, int place)
{
	struct kerf_charge c;
	uint64_t bytes = r->bytes;
	CUresult ret = kerf_begin(&c, place, kerf_round(bytes));
	if (ret)
		return ret;
	ret = r->ask(r, &bytes);
	if (!ret && !kerf_correct(&c, kerf_round(bytes))) {
		KERF_REAL(cuMemFree_v2)(*r->ptr);
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return kerf_end(&c, ret, KERF_POINTER, ret ? 0 : *r->ptr);
}

CUresult kerf_linear(const struct kerf_request *r, int place)
{
	if (!r->bytes || r->bytes > KERF_SMALL || place == KERF_NO_PLACE)
		return large(r, place);
	struct kerf_entry *e = kerf_entry();
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->bytes = r->bytes;
	e->place = place;
	e->context = current();
	CUresult ret = small(r, e);
	if (ret)
		kerf_drop(e);
	return ret;
}

static CUresult here(const struct kerf_request *r)
{
	int place;
	CUresult ret = kerf_here(&place);
	return ret ? ret : kerf_linear(r, place);
}

static CUresult ask_linear(const struct kerf_request *r, uint64_t *bytes)
{
	return KERF_REAL(cuMemAlloc_v2)(r->ptr, *bytes);
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	return KERF_REAL(cuMemAlloc_v2) ? here(&(struct kerf_request){ .ask = ask_linear, .ptr = ptr, .bytes = bytes })
		: CUDA_ERROR_NOT_INITIALIZED;
}

/* Rows begin at multiples of 512 bytes on the GPUs that there are. */
static uint64_t pitched(uint64_t width, uint64_t height)
{
	uint64_t bytes;
	if (width > UINT64_MAX - 511 || __builtin_mul_overflow((width + 511) / 512 * 512, height, &bytes))
		return UINT64_MAX;
	return bytes;
}

static CUresult ask_pitch(const struct kerf_request *r, uint64_t *bytes)
{
	CUresult ret = KERF_REAL(cuMemAllocPitch_v2)(r->ptr, r->pitch, r->width, r->height, r->element);
	if (!ret)
		*bytes = *r->pitch * r->height;
	return ret;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	return KERF_REAL(cuMemAllocPitch_v2)
		? here(&(struct kerf_request){ .ask = ask_pitch, .ptr = ptr, .pitch = pitch, .width = width,
			.height = height, .element = element, .bytes = pitched(width, height) })
		: CUDA_ERROR_NOT_INITIALIZED;
}

/* The first versions are rejected by a driver of 64 bits. Whatever another one gives is charged in whole blocks. */
CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned bytes)
{
	struct kerf_charge c;
	KERF_NEED(cuMemAlloc, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = kerf_begin_here(&c, kerf_round(bytes));
	if (ret)
		return ret;
	ret = real(ptr, bytes);
	return kerf_end(&c, ret, KERF_POINTER, ret ? 0 : *ptr);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
	struct kerf_charge c;
	KERF_NEED(cuMemAllocPitch, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = kerf_begin_here(&c, kerf_round(pitched(width, height)));
	if (ret)
		return ret;
	ret = real(ptr, pitch, width, height, element);
	if (!ret && !kerf_correct(&c, kerf_round((uint64_t)*pitch * height))) {
		KERF_REAL(cuMemFree)(*ptr);
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return kerf_end(&c, ret, KERF_POINTER, ret ? 0 : *ptr);
}

/* What is known of a pointer is taken out first: as soon as the driver has it back, it may be another thread's. */
CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	KERF_NEED(cuMemFree_v2, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_POINTER, ptr);
	kerf_block_leaves(e, true);
	return kerf_freed(e, real(ptr));
}

CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
	KERF_NEED(cuMemFree, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_remove(KERF_POINTER, ptr);
	return kerf_freed(e, real(ptr));
}
