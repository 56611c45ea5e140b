/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A driver that does nothing but write down each call, as the published prototype reads its arguments. It has one GPU,
 * whatever the number, whose UUID is 16 bytes of 1. With KERF_EVERY_INNER its cuGetProcAddress answers with other
 * addresses than those that are exported, as a driver may.
 */
#include "every.h"

#include <stdlib.h>
#include <string.h>

#define EXPORTED(name, params, ...)                                                         \
	int name params;                                                                    \
	int name params                                                                     \
	{                                                                                   \
		return noted(#name, COUNT(__VA_ARGS__), (const uint64_t[]){ __VA_ARGS__ }); \
	}
#define IGNORED(name, params, call, ...)

#ifdef OF_NVML
static int noted(const char *name, int n, const uint64_t *a)
{
	return note(name, n, a);
}

int nvmlDeviceGetUUID(uint64_t device, char *uuid, unsigned length);
int nvmlDeviceGetUUID(uint64_t device, char *uuid, unsigned length)
{
	(void)device;
	if (length < 41)
		return 7;
	strcpy(uuid, "GPU-01010101-0101-0101-0101-010101010101");
	return 0;
}

#define ASKED(by, since, name, per_thread)
#define CUDA IGNORED
#define NVML(name, params, call, ...) EXPORTED(name, params, __VA_ARGS__)
#include "every.def"
#else
static void find(const char *by, void **function, int version, uint64_t flags);

static int noted(const char *name, int n, const uint64_t *a)
{
	int result = note(name, n, a);
	if (!result && strncmp(name, "cuGetProcAddress", 16) == 0)
		find((const char *)(uintptr_t)a[0], (void **)(uintptr_t)a[1], (int)a[2], a[3]);
	return result;
}

#define ASKED(by, since, name, per_thread)
#define NVML IGNORED
#define CUDA(name, params, call, ...)                                                            \
	EXPORTED(name, params, __VA_ARGS__)                                                      \
	static int inner_##name params                                                           \
	{                                                                                        \
		return noted("inner_" #name, COUNT(__VA_ARGS__), (const uint64_t[]){ __VA_ARGS__ }); \
	}
#include "every.def"
#undef ASKED
#undef CUDA

static const struct {
	const char *by;
	int since;
	void *exported, *inner;
	bool per_thread;
} all[] = {
#define ASKED(by, since, name, per_thread) \
	{ #by, since, (void *)(uintptr_t)name, (void *)(uintptr_t)inner_##name, per_thread },
#define CUDA IGNORED
#include "every.def"
};

/* The newest form that is not newer than what is asked for, and that for per-thread streams where that is asked for. */
static void find(const char *by, void **function, int version, uint64_t flags)
{
	int best = -1;
	for (int i = 0; i < (int)(sizeof all / sizeof all[0]); i++)
		if (strcmp(all[i].by, by) == 0 && all[i].since <= version && (!all[i].per_thread || flags == 2) &&
		    (best < 0 || all[i].per_thread > all[best].per_thread ||
		     (all[i].per_thread == all[best].per_thread && all[i].since > all[best].since)))
			best = i;
	*function = best < 0 ? NULL : getenv("KERF_EVERY_INNER") ? all[best].inner : all[best].exported;
}

/* What the library asks without a request of the program. Those that depend on the stream are written down, too. */
#define HELPER(name, params) \
	int name params;     \
	int name params
#define ON_STREAM(name)                                                         \
	HELPER(cuStreamIsCapturing##name, (uint64_t stream, int *status))       \
	{                                                                       \
		*status = 0;                                                    \
		note("cuStreamIsCapturing" #name, 1, &stream);                  \
		return 0;                                                       \
	}                                                                       \
	HELPER(cuEventRecord##name, (void *event, uint64_t stream))             \
	{                                                                       \
		note("cuEventRecord" #name, 1, &stream);                        \
		return event ? 0 : 400;                                         \
	}
ON_STREAM()
ON_STREAM(_ptsz)

HELPER(cuCtxGetDevice, (int *device))
{
	*device = 0;
	return 0;
}

HELPER(cuCtxGetCurrent, (void **context))
{
	*context = (void *)(uintptr_t)16;
	return 0;
}

HELPER(cuDeviceGetUuid_v2, (void *uuid, int device))
{
	(void)device;
	memset(uuid, 1, 16);
	return 0;
}

HELPER(cuDeviceGetMemPool, (void **pool, int device))
{
	(void)device;
	*pool = (void *)(uintptr_t)32;
	return 0;
}

HELPER(cuStreamGetCtx, (uint64_t stream, void **context))
{
	(void)stream;
	return cuCtxGetCurrent(context);
}

HELPER(cuCtxPushCurrent_v2, (void *context))
{
	return context ? 0 : 201;
}

HELPER(cuCtxPopCurrent_v2, (void **context))
{
	return cuCtxGetCurrent(context);
}

HELPER(cuEventCreate, (void **event, unsigned flags))
{
	*event = (void *)(uintptr_t)(flags + 16);
	return 0;
}

HELPER(cuEventDestroy_v2, (void *event))
{
	return event ? 0 : 400;
}

HELPER(cuEventQuery, (void *event))
{
	return event ? 0 : 400;
}

HELPER(cuEventElapsedTime, (float *ms, void *begin, void *end))
{
	*ms = 0.001f;
	return begin && end ? 0 : 400;
}
#endif
