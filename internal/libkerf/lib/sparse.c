/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory that is mapped into sparse arrays, which hold it when its handle has gone. A part is known by where
 * it begins. One that is unmapped in other parts than it was mapped in counts until its array ends.
 */
#include "kerf.h"

/* In a separate list: key is the part, bytes the array, physical what it holds. */
static uint64_t mix(uint64_t h, uint64_t n)
{
	h = (h ^ n) * UINT64_C(0x9E3779B97F4A7C15);
	return h ^ h >> 29;
}

static uint64_t part(const CUarrayMapInfo *m)
{
	uint64_t h = mix(1, (uint64_t)m->part);
	if (m->part)
		return mix(mix(h, m->tail.layer), m->tail.offset);
	h = mix(mix(h, m->tiles.level), m->tiles.layer);
	return mix(mix(mix(h, m->tiles.x), m->tiles.y), m->tiles.z);
}

static void unmap(struct kerf_self *s, const CUarrayMapInfo *m)
{
	uint64_t key = part(m);
	struct kerf_entry *before = NULL, *e = s->tiles;
	while (e && (e->key != key || e->bytes != (uint64_t)(uintptr_t)m->array)) {
		before = e;
		e = e->next;
	}
	if (!e)
		return;
	if (before)
		before->next = e->next;
	else
		s->tiles = e->next;
	kerf_let_go(e->physical);
	kerf_drop(e);
}

static void drop_all(struct kerf_entry *list)
{
	while (list) {
		struct kerf_entry *next = list->next;
		kerf_drop(list);
		list = next;
	}
}

/* As many entries as there are mappings; false: there is no memory for them. */
static bool entries(struct kerf_entry **list, const CUarrayMapInfo *m, unsigned n)
{
	*list = NULL;
	for (unsigned i = 0; m && i < n; i++) {
		struct kerf_entry *e = m[i].operation == CU_MEM_OPERATION_TYPE_MAP ? kerf_entry() : NULL;
		if (!e && m[i].operation == CU_MEM_OPERATION_TYPE_MAP)
			return false;
		if (e) {
			e->next = *list;
			*list = e;
		}
	}
	return true;
}

static CUresult map(CUresult (*real)(CUarrayMapInfo *, unsigned, CUstream), CUarrayMapInfo *m, unsigned n,
	CUstream stream)
{
	struct kerf_entry *made;
	pthread_mutex_t *held = entries(&made, m, n) ? kerf_lock_handles() : NULL;
	CUresult ret = held ? real(m, n, stream) : CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; !ret && i < n; i++) {
		struct kerf_self *s = kerf_self();
		/* held before what was there is let go: it may be the same */
		struct kerf_entry *physical = m[i].operation == CU_MEM_OPERATION_TYPE_MAP ? kerf_hold(m[i].handle) : NULL;
		unmap(s, &m[i]);
		if (!physical)
			continue; /* unmapped, or another process's memory */
		struct kerf_entry *e = made;
		made = e->next;
		e->key = part(&m[i]);
		e->bytes = (uint64_t)(uintptr_t)m[i].array;
		e->physical = physical;
		e->next = s->tiles;
		s->tiles = e;
	}
	if (held)
		pthread_mutex_unlock(held);
	drop_all(made);
	return ret;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned n, CUstream stream)
{
	KERF_NEED(cuMemMapArrayAsync, CUDA_ERROR_NOT_INITIALIZED);
	return map(real, list, n, stream);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned n, CUstream stream)
{
	KERF_NEED(cuMemMapArrayAsync_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	return map(real, list, n, stream);
}

struct kerf_entry *kerf_unmapped(const void *array)
{
	struct kerf_self *s = kerf_self();
	struct kerf_entry *out = NULL, *keep = NULL;
	if (!s || !s->tiles)
		return NULL;
	pthread_mutex_t *held = kerf_lock_handles();
	for (struct kerf_entry *e = s->tiles, *next; e; e = next) {
		next = e->next;
		struct kerf_entry **to = e->bytes == (uint64_t)(uintptr_t)array ? &out : &keep;
		e->next = *to;
		*to = e;
	}
	s->tiles = keep;
	pthread_mutex_unlock(held);
	return out;
}

CUresult kerf_array_ended(struct kerf_entry *tiles, CUresult ret)
{
	pthread_mutex_t *held = tiles ? kerf_lock_handles() : NULL;
	for (struct kerf_entry *e = tiles, *next; e; e = next) {
		struct kerf_self *s = kerf_self();
		next = e->next;
		if (ret) {
			e->next = s->tiles;
			s->tiles = e;
		} else {
			kerf_let_go(e->physical);
			kerf_drop(e);
		}
	}
	if (held)
		pthread_mutex_unlock(held);
	return ret;
}
