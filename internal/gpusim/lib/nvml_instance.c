/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * GPU instances and compute instances as objects of their own. A simulated GPU instance holds at most one
 * compute instance, which takes all of it; that is what Kerf makes, and profiles of smaller ones are not offered.
 */
#include "nvml_core.h"

#define MAX_GI 32

struct nvmlGpuInstance_st {
	int minor;
	unsigned gi;
	bool given;
};

struct nvmlComputeInstance_st {
	struct nvmlGpuInstance_st *parent;
};

static struct nvmlGpuInstance_st gpu_instances[GPUSIM_MAX_MINORS][MAX_GI];
static struct nvmlComputeInstance_st compute_instances[GPUSIM_MAX_MINORS][MAX_GI];

nvmlReturn_t nvml_give_gi(int minor, uint64_t gi, nvmlGpuInstance_t *out)
{
	if (gi >= MAX_GI)
		return NVML_ERROR_NOT_FOUND;
	struct nvmlGpuInstance_st *h = &gpu_instances[minor][gi];
	h->minor = minor;
	h->gi = (unsigned)gi;
	h->given = true;
	compute_instances[minor][gi].parent = h;
	out->handle = h;
	return NVML_SUCCESS;
}

/* Checks a handle and reads the instance as it is now; one that was destroyed is not there any more. */
static nvmlReturn_t read_instance(const struct nvmlGpuInstance_st *h, struct instance *out)
{
	struct instance list[MAX_INSTANCES];
	const struct nvmlGpuInstance_st *first = &gpu_instances[0][0];
	int n;
	TRY(nvml_enter());
	NEED(h >= first && h < first + sizeof gpu_instances / sizeof *first && h->given);
	NEED(nvml_index(h->minor) >= 0);
	TRY(nvml_instances(h->minor, list, &n));
	for (int i = 0; i < n; i++)
		if (list[i].gi == h->gi) {
			*out = list[i];
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out,
				       unsigned int *count)
{
	struct instance list[MAX_INSTANCES];
	struct profile p;
	int n;
	TRY(nvml_gpu(device));
	NEED(out && count);
	TRY(nvml_instances(device.handle->minor, list, &n));
	TRY(nvml_profile_by_id(device.handle->minor, id, &p));
	*count = 0;
	for (int i = 0; i < n; i++)
		if (list[i].profile_id == id)
			TRY(nvml_give_gi(device.handle->minor, list[i].gi, &out[(*count)++]));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out)
{
	struct instance list[MAX_INSTANCES];
	int n;
	TRY(nvml_gpu(device));
	NEED(out);
	TRY(nvml_instances(device.handle->minor, list, &n));
	for (int i = 0; i < n; i++)
		if (list[i].gi == id)
			return nvml_give_gi(device.handle->minor, id, out);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *out)
{
	struct instance inst;
	NEED(out);
	TRY(read_instance(instance.handle, &inst));
	*out = (nvmlGpuInstanceInfo_t){
		.device = nvml_handle(instance.handle->minor),
		.id = (unsigned)inst.gi,
		.profileId = (unsigned)inst.profile_id,
		.placement = { .start = (unsigned)inst.start, .size = (unsigned)inst.size },
	};
	return NVML_SUCCESS;
}

/* The compute profile that takes a whole GPU instance of so many slices; its id is its number, as on the real
 * GPUs. COUNT: none. */
static unsigned compute_profile(uint64_t slices)
{
	switch (slices) {
	case 1:
		return NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE;
	case 2:
		return NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE;
	case 3:
		return NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE;
	case 4:
		return NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE;
	case 6:
		return NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE;
	case 7:
		return NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE;
	case 8:
		return NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE;
	default:
		return NVML_COMPUTE_INSTANCE_PROFILE_COUNT;
	}
}

/* Reads an instance, its profile and its compute profile. */
static nvmlReturn_t read_profile(nvmlGpuInstance_t instance, struct instance *inst, struct profile *p, unsigned *compute)
{
	TRY(read_instance(instance.handle, inst));
	TRY(nvml_profile(instance.handle->minor, (unsigned)inst->profile, p));
	*compute = compute_profile(p->slices);
	return *compute == NVML_COMPUTE_INSTANCE_PROFILE_COUNT ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvml_read_gi(nvmlGpuInstance_t instance, struct instance *out, int *minor)
{
	TRY(read_instance(instance.handle, out));
	*minor = instance.handle->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_compute_profile(nvmlGpuInstance_t instance, unsigned *compute)
{
	struct instance inst;
	struct profile p;
	return read_profile(instance, &inst, &p, compute);
}

nvmlReturn_t nvml_give_ci(nvmlGpuInstance_t instance, nvmlComputeInstance_t *out)
{
	out->handle = &compute_instances[instance.handle->minor][instance.handle->gi];
	return NVML_SUCCESS;
}

static bool has_compute(const struct instance *inst)
{
	return inst->ci != ALL_ONES && inst->ci != GPUSIM_UNKNOWN;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile,
							  unsigned int engine, nvmlComputeInstanceProfileInfo_t *out)
{
	struct instance inst;
	struct profile p;
	unsigned compute;
	NEED(out && profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT);
	NEED(engine == NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED);
	TRY(read_profile(instance, &inst, &p, &compute));
	if (profile != compute)
		return NVML_ERROR_NOT_SUPPORTED;
	*out = (nvmlComputeInstanceProfileInfo_t){
		.id = compute, .sliceCount = (unsigned)p.slices, .instanceCount = 1,
		.multiprocessorCount = (unsigned)p.sms, .sharedCopyEngineCount = (unsigned)p.copy,
		.sharedDecoderCount = (unsigned)p.decoders, .sharedEncoderCount = (unsigned)p.encoders,
		.sharedJpegCount = (unsigned)p.jpeg, .sharedOfaCount = (unsigned)p.ofa,
	};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned int id,
								unsigned int *count)
{
	struct instance inst;
	struct profile p;
	unsigned compute;
	NEED(count);
	TRY(read_profile(instance, &inst, &p, &compute));
	if (id != compute)
		return NVML_ERROR_NOT_SUPPORTED;
	*count = !has_compute(&inst);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *out,
						unsigned int *count)
{
	struct instance inst;
	struct profile p;
	unsigned compute;
	NEED(out && count);
	TRY(read_profile(instance, &inst, &p, &compute));
	*count = 0;
	if (id == compute && has_compute(&inst)) {
		out[0].handle = &compute_instances[instance.handle->minor][inst.gi];
		*count = 1;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *out)
{
	struct instance inst;
	NEED(out);
	TRY(read_instance(instance.handle, &inst));
	if (!has_compute(&inst) || inst.ci != id)
		return NVML_ERROR_NOT_FOUND;
	out->handle = &compute_instances[instance.handle->minor][inst.gi];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *out)
{
	const struct nvmlComputeInstance_st *h = instance.handle, *first = &compute_instances[0][0];
	struct instance inst;
	struct profile p;
	unsigned compute;
	TRY(nvml_enter());
	NEED(out && h >= first && h < first + sizeof compute_instances / sizeof *first && h->parent);
	TRY(read_profile((nvmlGpuInstance_t){ .handle = h->parent }, &inst, &p, &compute));
	if (!has_compute(&inst))
		return NVML_ERROR_NOT_FOUND;
	*out = (nvmlComputeInstanceInfo_t){
		.device = nvml_handle(h->parent->minor),
		.gpuInstance = { .handle = h->parent },
		.id = (unsigned)inst.ci,
		.profileId = compute,
		.placement = { .start = 0, .size = (unsigned)p.slices },
	};
	return NVML_SUCCESS;
}
