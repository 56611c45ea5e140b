/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small allocations, which a context packs into blocks of 2 MiB. Seen on an H200 with driver 580.159.04: a request is
 * rounded up to 512 bytes, and up to 1 MiB it shares a block. A block goes back when nothing of it is in use.
 */
#include "cuda_core.h"

#include <stdlib.h>

#define UNIT 512
#define UNITS (GRANULARITY / UNIT)

struct block {
	uint64_t at;
	CUcontext context;
	unsigned live;	   /* how many allocations it has */
	unsigned fits;	   /* no gap has more units */
	char used[UNITS]; /* by unit: 1 or 0 */
	struct block *next;
};

static struct block *blocks; /* guarded by cuda_mu */

/* Who adds a block holds the one of its device; taken before cuda_mu. */
static pthread_mutex_t adding[GPUSIM_MAX_MINORS] = { [0 ... GPUSIM_MAX_MINORS - 1] = PTHREAD_MUTEX_INITIALIZER };

static size_t units_of(uint64_t bytes)
{
	return (bytes + UNIT - 1) / UNIT;
}

/* The first gap of a block; NULL: none is large enough. */
static char *gap(struct block *b, size_t units)
{
	char *end = b->used + UNITS, *at = b->used;
	while ((at = memchr(at, 0, (size_t)(end - at))) && units <= (size_t)(end - at)) {
		char *taken = memchr(at, 1, units);
		if (!taken)
			return at;
		at = taken;
	}
	b->fits = (unsigned)units - 1;
	return NULL;
}

/* With cuda_mu held. */
static bool take(struct block *b, uint64_t bytes, struct allocation *a)
{
	const size_t units = units_of(bytes);
	char *at = units <= b->fits ? gap(b, units) : NULL;
	if (!at)
		return false;
	memset(at, 1, units);
	b->live++;
	a->handle = b->at;
	a->ptr = b->at + (uint64_t)(at - b->used) * UNIT;
	a->owner = b;
	return true;
}

static bool take_any(uint64_t bytes, struct allocation *a)
{
	bool found = false;
	pthread_mutex_lock(&cuda_mu);
	for (struct block *b = blocks; b && !found; b = b->next)
		found = b->context == a->context && take(b, bytes, a);
	pthread_mutex_unlock(&cuda_mu);
	return found;
}

static CUresult add(uint64_t bytes, struct allocation *a)
{
	const uint64_t args[GPUSIM_NARGS] = { GRANULARITY, a->context->id, GPUSIM_KIND_LINEAR };
	struct block *b = calloc(1, sizeof *b);
	CUresult ret = b ? cuda_call(a->device, GPUSIM_OP_ALLOC, args, &b->at, 1) : CUDA_ERROR_OUT_OF_MEMORY;
	if (ret) {
		free(b);
		return ret;
	}
	b->context = a->context;
	b->fits = UNITS;
	pthread_mutex_lock(&cuda_mu);
	take(b, bytes, a);
	b->next = blocks;
	blocks = b;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_block_take(struct allocation *a)
{
	pthread_mutex_lock(&adding[a->device]);
	CUresult ret = take_any(a->bytes, a) ? CUDA_SUCCESS : add(a->bytes, a);
	pthread_mutex_unlock(&adding[a->device]);
	return ret;
}

CUresult cuda_block_put(const struct allocation *a)
{
	struct block *b = a->owner;
	pthread_mutex_lock(&cuda_mu);
	memset(b->used + (a->ptr - a->handle) / UNIT, 0, units_of(a->bytes));
	b->fits = UNITS;
	bool last = !--b->live;
	for (struct block **at = &blocks; last && *at; at = &(*at)->next)
		if (*at == b) {
			*at = b->next;
			break;
		}
	pthread_mutex_unlock(&cuda_mu);
	if (!last)
		return CUDA_SUCCESS;
	free(b);
	return cuda_call(a->device, GPUSIM_OP_FREE, (const uint64_t[GPUSIM_NARGS]){ a->handle }, NULL, 0);
}

void cuda_forget_blocks(CUcontext context)
{
	for (struct block **at = &blocks; *at;) {
		struct block *b = *at;
		if (b->context != context) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		free(b);
	}
}
