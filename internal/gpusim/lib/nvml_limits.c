/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory limits of a cgroup, which drivers have from r615 on: this file is not linked into an older build, so
 * that the symbols are really absent there. The header does not know them yet; the structs are as NVIDIA
 * documents them.
 */
#include "nvml_core.h"

typedef struct {
	const char *nameSpace; /* a cgroup v2 directory, absolute */
	unsigned long long softLimit, hardLimit; /* bytes */
} nvmlSetMemoryLimits_v1_t;

typedef struct {
	const char *nameSpace;
	unsigned long long softLimit, hardLimit, currentUsed;
} nvmlGetMemoryLimits_v1_t;

_Static_assert(sizeof(nvmlSetMemoryLimits_v1_t) == 24, "nvmlSetMemoryLimits_v1_t");
_Static_assert(sizeof(nvmlGetMemoryLimits_v1_t) == 32, "nvmlGetMemoryLimits_v1_t");

#pragma GCC visibility push(default)
nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits);
nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits);
#pragma GCC visibility pop

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits)
{
	TRY(nvml_gpu(device)); /* MIG handles are refused */
	NEED(limits && limits->nameSpace && limits->nameSpace[0] == '/');
	return nvml_call(device.handle->minor, GPUSIM_OP_SET_LIMIT, limits->softLimit, limits->hardLimit,
			 limits->nameSpace, NULL);
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	uint64_t v[3];
	struct gpusim_reply reply = { .vals = v, .max_vals = 3 };
	TRY(nvml_gpu(device));
	NEED(limits && limits->nameSpace && limits->nameSpace[0] == '/');
	TRY(nvml_call(device.handle->minor, GPUSIM_OP_GET_LIMIT, 0, 0, limits->nameSpace, &reply));
	if (reply.nvals < 3)
		return NVML_ERROR_UNKNOWN;
	limits->softLimit = v[0];
	limits->hardLimit = v[1];
	limits->currentUsed = v[2];
	return NVML_SUCCESS;
}
