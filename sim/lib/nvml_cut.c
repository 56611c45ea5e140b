/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Making and destroying MIG instances.
 */
#include "nvml_core.h"

static nvmlReturn_t create(nvmlDevice_t device, unsigned profile, uint64_t start, nvmlGpuInstance_t *out)
{
	uint64_t id;
	struct gpusim_reply reply = { .vals = &id, .max_vals = 1 };
	TRY(nvml_gpu(device));
	NEED(out);
	TRY(nvml_call(device.handle->minor, GPUSIM_OP_GI_CREATE, profile, start, NULL, &reply));
	if (reply.nvals < 1)
		return NVML_ERROR_UNKNOWN;
	return nvml_give_gi(device.handle->minor, id, out);
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profile, nvmlGpuInstance_t *out)
{
	return create(device, profile, GPUSIM_UNKNOWN, out);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profile,
						      const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *out)
{
	struct profile p;
	TRY(nvml_gpu(device));
	NEED(placement);
	if (nvml_profile_by_id(device.handle->minor, profile, &p) == NVML_SUCCESS && p.nplacements > 0)
		NEED(placement->size == p.placement[0].size);
	return create(device, profile, placement->start, out);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
	struct instance inst;
	int minor;
	TRY(nvml_read_gi(instance, &inst, &minor));
	return nvml_call(minor, GPUSIM_OP_GI_DESTROY, inst.gi, 0, NULL, NULL);
}

static nvmlReturn_t compute(nvmlGpuInstance_t instance, unsigned profile, uint64_t start, nvmlComputeInstance_t *out)
{
	struct instance inst;
	unsigned slices;
	int minor;
	uint64_t id;
	struct gpusim_reply reply = { .vals = &id, .max_vals = 1 };
	NEED(out);
	TRY(nvml_read_gi(instance, &inst, &minor));
	TRY(nvml_compute_slices(instance, profile, &slices));
	if (!slices)
		return NVML_ERROR_NOT_SUPPORTED;
	TRY(nvml_call3(minor, GPUSIM_OP_CI_CREATE, inst.gi, slices, start, &reply));
	return reply.nvals < 1 ? NVML_ERROR_UNKNOWN : nvml_give_ci(instance, id, out);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile,
						  nvmlComputeInstance_t *out)
{
	return compute(instance, profile, GPUSIM_UNKNOWN, out);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned int profile,
							       const nvmlComputeInstancePlacement_t *placement,
							       nvmlComputeInstance_t *out)
{
	unsigned slices;
	NEED(placement);
	TRY(nvml_compute_slices(instance, profile, &slices));
	NEED(!slices || placement->size == slices);
	return compute(instance, profile, placement->start, out);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
	nvmlComputeInstanceInfo_t info;
	nvmlGpuInstance_t parent;
	struct instance inst;
	int minor;
	TRY(nvmlComputeInstanceGetInfo_v2(instance, &info));
	parent = info.gpuInstance;
	TRY(nvml_read_gi(parent, &inst, &minor));
	return nvml_call(minor, GPUSIM_OP_CI_DESTROY, inst.gi, info.id, NULL, NULL);
}
