/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Reserve, allocate, then keep or give back. What an allocation is remembered by is there before the driver is
 * asked, so that nothing can be held that is not counted.
 */
#include "block.h"

uint64_t kerf_round(uint64_t bytes)
{
	return bytes > UINT64_MAX - KERF_BLOCK ? UINT64_MAX : (bytes + KERF_BLOCK - 1) / KERF_BLOCK * KERF_BLOCK;
}

bool kerf_take_with_room(int place, uint64_t bytes)
{
	if (kerf_take(place, bytes) || (place != KERF_NO_PLACE && kerf_take_from_pools(place, bytes)))
		return true;
	/* Where contexts have more room than they take, what is left of it is known soon. */
	while (place != KERF_NO_PLACE && kerf_await_room(KERF_DEVICE(place), bytes, false))
		if (kerf_take(place, bytes))
			return true;
	return false;
}

bool kerf_take_or_make_room(int place, uint64_t bytes)
{
	bool fits = kerf_take_with_room(place, bytes);
	if (!fits)
		kerf_refused(place);
	return fits;
}

CUresult kerf_begin(struct kerf_charge *c, int place, uint64_t bytes)
{
	*c = (struct kerf_charge){ .entry = kerf_entry(), .bytes = bytes, .place = place };
	if (c->entry && kerf_take_or_make_room(place, bytes))
		return CUDA_SUCCESS;
	if (c->entry)
		kerf_drop(c->entry);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult kerf_begin_here(struct kerf_charge *c, uint64_t bytes)
{
	int place;
	CUresult ret = kerf_here(&place);
	return ret ? ret : kerf_begin(c, place, bytes);
}

void kerf_cancel(struct kerf_charge *c)
{
	kerf_give(c->place, c->bytes);
	kerf_drop(c->entry);
}

bool kerf_correct(struct kerf_charge *c, uint64_t bytes)
{
	if (bytes > c->bytes && !kerf_take_or_make_room(c->place, bytes - c->bytes))
		return false;
	if (bytes < c->bytes)
		kerf_give(c->place, c->bytes - bytes);
	c->bytes = bytes;
	return true;
}

void kerf_keep(struct kerf_charge *c, int kind, uint64_t key)
{
	struct kerf_entry *old = kerf_remove(kind, key);
	if (old) /* the driver gives the address out again, so what was there has gone unseen */
		kerf_freed(old, CUDA_SUCCESS);
	c->entry->kind = kind;
	c->entry->key = key;
	c->entry->bytes = c->bytes;
	c->entry->place = c->place;
	kerf_put(c->entry);
}

CUresult kerf_end(struct kerf_charge *c, CUresult ret, int kind, uint64_t key)
{
	__typeof__(&cuCtxGetCurrent) get = KERF_REAL(cuCtxGetCurrent);
	if (ret) {
		kerf_cancel(c);
		return ret;
	}
	if (!get || get(&c->entry->context) != CUDA_SUCCESS)
		c->entry->context = NULL;
	kerf_keep(c, kind, key);
	return ret;
}

CUresult kerf_freed(struct kerf_entry *e, CUresult ret)
{
	if (e && ret) {
		kerf_block_leaves(e, false);
		kerf_put(e);
	} else if (e) {
		if (e->block)
			kerf_block_freed(e);
		else if (e->pool)
			kerf_pool_freed(e);
		else
			kerf_give(e->place, e->bytes);
		kerf_drop(e);
	}
	return ret;
}
