/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory limits of a cgroup, which drivers have from r615 on: this file is not linked into an older build, so
 * that the symbols are really absent there.
 */
#include "nvml_core.h"

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
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
