/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A driver may answer cuGetProcAddress with other addresses than those of its exported functions. Then the name that
 * was asked for decides, with version and flags as the published headers have them. Of versions after KERF_KNOWN_UP_TO
 * nothing is known.
 */
#include <string.h>

#include "kerf.h"

struct variant {
	size_t base; /* the length of the name without its suffixes */
	int since;   /* the CUDA version that has it by its base name */
	bool per_thread;
};

static bool ends(const char *name, size_t length, const char *with)
{
	size_t n = strlen(with);
	return length > n && memcmp(name + length - n, with, n) == 0;
}

static struct variant parse(const char *name)
{
	static const struct {
		const char *name;
		int since;
	} later[] = {
		{ "cuCtxDestroy_v2", 4000 },               { "cuCtxSynchronize_v2", 13000 },
		{ "cuCtxCreate_v3", 11040 },               { "cuCtxCreate_v4", 12050 },
		{ "cuMulticastBindMem_v2", 13010 },        { "cuMulticastBindAddr_v2", 13010 },
		{ "cuDevicePrimaryCtxRelease_v2", 11000 }, { "cuDevicePrimaryCtxReset_v2", 11000 },
		{ "cuGraphInstantiate_v2", 11000 },        { "cuGetProcAddress_v2", 12000 },
		{ "cuMemPrefetchAsync_v2", 12020 },
		{ "cuGraphAddNode_v2", 12030 },            { "cuStreamWaitValue32_v2", 11070 },
		{ "cuStreamWaitValue64_v2", 11070 },       { "cuStreamWriteValue32_v2", 11070 },
		{ "cuStreamWriteValue64_v2", 11070 },      { "cuStreamBatchMemOp_v2", 11070 },
		{ "cuMemcpyBatchAsync_v2", 13000 },        { "cuMemcpy3DBatchAsync_v2", 13000 },
	};
	struct variant v = { .base = strlen(name) };
	v.per_thread = ends(name, v.base, "_ptsz") || ends(name, v.base, "_ptds");
	if (v.per_thread)
		v.base -= strlen("_ptsz");
	size_t numbered = v.base;
	if (ends(name, v.base, "_v2") || ends(name, v.base, "_v3") || ends(name, v.base, "_v4")) {
		v.base -= strlen("_v2");
		v.since = 3020; /* what came with 64-bit addresses; every other one is in later */
	}
	for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
		if (strlen(later[i].name) == numbered && memcmp(name, later[i].name, numbered) == 0)
			v.since = later[i].since;
	return v;
}

int kerf_variant(const char *const *names, const char *name, int version, uint64_t flags)
{
	int best = -1;
	struct variant chosen = { 0 };
	size_t length = strlen(name);
	if (version > KERF_KNOWN_UP_TO)
		return -1;
	if (strcmp(name, "cuGraphInstantiate") == 0 && version >= 12000)
		return KERF_cuGraphInstantiateWithFlags;
	for (int f = 0; f < KERF_WRAPPED; f++) {
		struct variant v = parse(names[f]);
		if (v.base != length || memcmp(names[f], name, length) != 0 || v.since > version ||
			(v.per_thread && flags != 2))
			continue;
		if (best < 0 || v.per_thread > chosen.per_thread ||
			(v.per_thread == chosen.per_thread && v.since > chosen.since)) {
			best = f;
			chosen = v;
		}
	}
	return best;
}

/* The length of a name without "_ptsz" or "_ptds", and without "_v" and a number. */
static size_t base_length(const char *name)
{
	size_t n = strlen(name), digits;
	if (ends(name, n, "_ptsz") || ends(name, n, "_ptds"))
		n -= strlen("_ptsz");
	for (digits = 0; digits < n && name[n - 1 - digits] >= '0' && name[n - 1 - digits] <= '9'; digits++)
		;
	return digits && ends(name, n - digits, "_v") ? n - digits - strlen("_v") : n;
}

/* The functions of families.def that allocate. */
#define FAMILY(name, class) ALLOCATES_##class(name)
#define ALLOCATES_charge(name) #name,
#define ALLOCATES_release(name)
#define ALLOCATES_track(name)
#define ALLOCATES_size(name)
#define ALLOCATES_resolve(name)
#define ALLOCATES_overhead(name)
#define ALLOCATES_foreign(name)
#define ALLOCATES_time(name)
#define ALLOCATES_host(name)
#define ALLOCATES_none(name)

bool kerf_allocates(const char *name)
{
	static const char *const all[] = {
#include "families.def"
	};
	size_t length = base_length(name);
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		if (base_length(all[i]) == length && memcmp(all[i], name, length) == 0)
			return true;
	return false;
}
