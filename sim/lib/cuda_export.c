/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Export tables: functions without a name that NVIDIA's CUDA runtime and tools ask for by UUID. Sizes are those of
 * driver 535. NVIDIA documents none of them; what is known comes from what the runtime 11.8 does with them. An entry
 * whose purpose is unknown rejects each call.
 */
#include "cuda_export.h"

#include <stdlib.h>

#define UUID_BYTES 16
#define ENTRY(function) ((const void *)(uintptr_t)(function))
#define SIZE(words) ((const void *)(uintptr_t)((words) * sizeof(void *)))

static CUresult unknown(void)
{
	return CUDA_ERROR_NOT_SUPPORTED;
}

#define NO ENTRY(unknown)

/* The runtime calls it for each binary when the program ends; its modules are unloaded by name. */
static CUresult fatbin_ends(const void *wrapper)
{
	(void)wrapper;
	return CUDA_SUCCESS;
}

/* The runtime's interface: modules of the binaries that nvcc puts into a program, and primary contexts. */
const void *const cuda_export_runtime[] = {
	SIZE(11), ENTRY(cuda_fatbin_load), ENTRY(cuda_primary_of), NO, NO, NO, ENTRY(cuda_fatbin_load_ext),
		ENTRY(fatbin_ends), NO, NO, NULL,
};

/* What tools hook into the runtime. Nothing does: the runtime sees two stretches of zeros. */
static uint32_t hooks_first[1024], hooks_second[14];

static void first_hooks(void **at, size_t *entries)
{
	*at = hooks_first;
	*entries = sizeof hooks_first / sizeof hooks_first[0];
}

static void second_hooks(void **at, size_t *entries)
{
	*at = hooks_second;
	*entries = sizeof hooks_second / sizeof hooks_second[0];
}

static const void *const hooks[] = { SIZE(7), NO, ENTRY(first_hooks), NO, NO, NO, ENTRY(second_hooks) };
static const void *const tools_tls[] = { SIZE(3), NO, NO };
static const void *const context_storage[] = { ENTRY(cuda_storage_put), ENTRY(cuda_storage_delete),
	ENTRY(cuda_storage_get), NULL };
const void *const cuda_export_identity[] = { SIZE(3), ENTRY(cuda_identify), NO };
static const void *const create_bypass[] = { SIZE(2), ENTRY(cuCtxCreate_v2) };

/* Records of two words that the runtime 12 keeps: the second argument comes back with the end of a record. */
struct record {
	size_t a, b;
};

static CUresult record_make(struct record **out, size_t a, size_t b)
{
	NEED(out);
	struct record *r = malloc(sizeof *r);
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct record){ a, b };
	*out = r;
	return CUDA_SUCCESS;
}

static CUresult record_end(struct record *r, size_t *a)
{
	NEED(r && a);
	*a = r->a;
	free(r);
	return CUDA_SUCCESS;
}

static const void *const records[] = { SIZE(3), ENTRY(record_make), ENTRY(record_end) };

/* What the runtimes 12 and 13 check of a context: nothing is ever set. */
static CUresult context_flags(CUcontext context, uint32_t *flags, const void **more)
{
	(void)context;
	NEED(flags && more);
	*flags = 0;
	*more = NULL;
	return CUDA_SUCCESS;
}

static unsigned no_flags(void)
{
	return 0;
}

static const void *const checks[] = { SIZE(4), NO, ENTRY(context_flags), ENTRY(no_flags) };
static const void *const device_runtime[] = { SIZE(27), [1 ... 26] = NO };
static const void *const tools[] = { SIZE(77), [1 ... 76] = NO };

static const struct {
	unsigned char uuid[UUID_BYTES];
	const void *const *table;
} tables[] = {
	{ { 0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9 },
		cuda_export_runtime },
	{ { 0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a, 0x66 }, hooks },
	{ { 0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc }, tools_tls },
	{ { 0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95, 0x93 },
		context_storage },
	{ { 0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2 },
		cuda_export_identity },
	{ { 0x0c, 0xa5, 0x0b, 0x8c, 0x10, 0x04, 0x92, 0x9a, 0x89, 0xa7, 0xd0, 0xdf, 0x10, 0xe7, 0x72, 0x86 },
		create_bypass },
	{ { 0xb1, 0x05, 0x41, 0xe1, 0xf7, 0xc7, 0xc7, 0x4a, 0x9f, 0x64, 0xf2, 0x23, 0xbe, 0x99, 0xf1, 0xe2 },
		device_runtime },
	{ { 0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2 }, tools },
	{ { 0x19, 0x5b, 0xcb, 0xf4, 0xd6, 0x7d, 0x02, 0x4a, 0xac, 0xc5, 0x1d, 0x29, 0xce, 0xa6, 0x31, 0xae }, records },
	{ { 0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa, 0x7e }, checks },
};

CUresult cuGetExportTable(const void **table, const CUuuid *uuid)
{
	NEED(table && uuid);
	*table = NULL;
	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
		if (memcmp(tables[i].uuid, uuid->bytes, UUID_BYTES) == 0)
			*table = (const void *)tables[i].table;
	NEED(*table);
	return CUDA_SUCCESS;
}
