/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory mapped into sparse arrays. It is held until the same part is mapped again or unmapped, or the array
 * is destroyed, whatever becomes of its handle. A part is identified by where it begins. Seen on an H200 with driver
 * 580.159.04: only memory made with CU_MEM_CREATE_USAGE_TILE_POOL can be mapped, and only levels that have whole tiles.
 */
#include "cuda_core.h"

#include <stdlib.h>

struct tile {
	const void *array; /* plain or mipmapped */
	unsigned level, layer, x, y, z; /* of the tail, level and layer */
	uint64_t tail;			/* where in the tail, plus 1; 0: in a level */
	struct physical *physical;
	struct tile *next;
};

static pthread_mutex_t tiles_mu = PTHREAD_MUTEX_INITIALIZER; /* taken before cuda_mu */
static struct tile *tiles;

static struct tile of(const CUarrayMapInfo *m)
{
	if (m->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
		return (struct tile){ .array = m->resource.array, .layer = m->subresource.miptail.layer,
				      .tail = m->subresource.miptail.offset + 1 };
	return (struct tile){ .array = m->resource.array, .level = m->subresource.sparseLevel.level,
			      .layer = m->subresource.sparseLevel.layer, .x = m->subresource.sparseLevel.offsetX,
			      .y = m->subresource.sparseLevel.offsetY, .z = m->subresource.sparseLevel.offsetZ };
}

static bool same(const struct tile *a, const struct tile *b)
{
	return a->array == b->array && a->tail == b->tail && a->level == b->level && a->layer == b->layer && a->x == b->x &&
	       a->y == b->y &&
	       a->z == b->z;
}

/* With tiles_mu held. */
static void unmap(const struct tile *which)
{
	for (struct tile **at = &tiles; *at; at = &(*at)->next)
		if (same(*at, which)) {
			struct tile *t = *at;
			*at = t->next;
			cuda_let_go(t->physical);
			free(t);
			return;
		}
}

void cuda_array_unmap(const void *array)
{
	pthread_mutex_lock(&tiles_mu);
	for (struct tile **at = &tiles; *at;) {
		struct tile *t = *at;
		if (t->array != array) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		cuda_let_go(t->physical);
		free(t);
	}
	pthread_mutex_unlock(&tiles_mu);
}

static CUresult check(const CUarrayMapInfo *m, uint64_t *bytes)
{
	NEED(m->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL ||
	     m->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL);
	NEED(m->memHandleType == 0 && m->flags == 0 && m->deviceBitMask);
	NEED(m->memOperationType == CU_MEM_OPERATION_TYPE_MAP || m->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP);
	NEED(m->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP || cuda_has_tiles(m->memHandle.memHandle));
	return cuda_array_region(m, bytes);
}

/* All of a list or nothing of it: what could be refused is held first. */
static CUresult map(const CUarrayMapInfo *list, unsigned n, CUstream stream, bool per_thread)
{
	uint64_t when, bytes;
	struct tile *made = NULL;
	CUresult ret = CUDA_SUCCESS;
	TRY(cuda_stream_busy_until(stream, per_thread, &when));
	NEED(list && n);
	for (unsigned i = n; i-- > 0 && !ret;) { /* from the last, so that made begins with the first */
		ret = check(&list[i], &bytes);
		if (ret || list[i].memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
			continue;
		struct tile *t = malloc(sizeof *t);
		if (!t) {
			ret = CUDA_ERROR_OUT_OF_MEMORY;
			continue;
		}
		*t = of(&list[i]);
		ret = cuda_hold(list[i].memHandle.memHandle, list[i].offset, bytes, &t->physical);
		if (ret) {
			free(t);
			continue;
		}
		t->next = made;
		made = t;
	}
	for (struct tile *t = made; ret && t; t = made) {
		made = t->next;
		cuda_let_go(t->physical);
		free(t);
	}
	pthread_mutex_lock(&tiles_mu);
	for (unsigned i = 0; !ret && i < n; i++) {
		const struct tile which = of(&list[i]);
		unmap(&which);
		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
			continue;
		struct tile *t = made;
		made = t->next;
		t->next = tiles;
		tiles = t;
	}
	pthread_mutex_unlock(&tiles_mu);
	return ret;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned n, CUstream stream)
{
	return map(list, n, stream, false);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned n, CUstream stream)
{
	return map(list, n, stream, true);
}
