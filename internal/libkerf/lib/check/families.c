/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ways to take memory.
 */
#include "kerfcheck.h"

#define TRY(call)                       \
	do {                            \
		CUresult try_ = (call); \
		if (try_)               \
			return try_;    \
	} while (0)

static CUresult linear(struct piece *p)
{
	return CALL(cuMemAlloc_v2)(&p->ptr, p->bytes);
}

static CUresult managed(struct piece *p)
{
	return CALL(cuMemAllocManaged)(&p->ptr, p->bytes, CU_MEM_ATTACH_GLOBAL);
}

/* Rows of which each wastes half of its pitch. */
static CUresult pitch(struct piece *p)
{
	size_t got;
	return CALL(cuMemAllocPitch_v2)(&p->ptr, &got, 256, p->bytes / 512, 4);
}

static void free_linear(struct piece *p)
{
	CALL(cuMemFree_v2)(p->ptr);
}

static CUresult async(struct piece *p)
{
	return CALL(cuMemAllocAsync)(&p->ptr, p->bytes, NULL);
}

static void free_async(struct piece *p)
{
	CALL(cuMemFreeAsync)(p->ptr, NULL);
}

static CUmemoryPool made;

/* A pool that keeps what is freed. */
static CUresult pool(struct piece *p)
{
	const CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	cuuint64_t all = UINT64_MAX;
	if (!made) {
		TRY(CALL(cuMemPoolCreate)(&made, &props));
		TRY(CALL(cuMemPoolSetAttribute)(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	}
	return CALL(cuMemAllocFromPoolAsync)(&p->ptr, p->bytes, made, NULL);
}

static void free_pool(struct piece *p)
{
	CALL(cuMemFreeAsync)(p->ptr, NULL);
	CALL(cuMemPoolTrimTo)(made, 0);
}

const struct family *find_family(const char *name)
{
	static const struct family all[] = {
		{ "linear", linear, free_linear }, { "managed", managed, free_linear }, { "pitch", pitch, free_linear },
		{ "async", async, free_async }, { "pool", pool, free_pool }, { "kept", pool, free_async },
	};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (!strcmp(all[i].name, name))
			return &all[i];
	fprintf(stderr, "no family %s\n", name);
	exit(2);
}
