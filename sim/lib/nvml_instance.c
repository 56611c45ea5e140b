/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * GPU instances and compute instances as objects of their own.
 */
#include "nvml_core.h"

#define MAX_GI 32
#define MAX_CI 8

struct nvmlGpuInstance_st {
	int minor;
	unsigned gi;
	bool given;
};

struct nvmlComputeInstance_st {
	struct nvmlGpuInstance_st *parent;
	unsigned ci;
};

static struct nvmlGpuInstance_st gpu_instances[GPUSIM_MAX_MINORS][MAX_GI];
static struct nvmlComputeInstance_st compute_instances[GPUSIM_MAX_MINORS][MAX_GI][MAX_CI];

nvmlReturn_t nvml_give_gi(int minor, uint64_t gi, nvmlGpuInstance_t *out)
{
	if (gi >= MAX_GI)
		return NVML_ERROR_NOT_FOUND;
	struct nvmlGpuInstance_st *h = &gpu_instances[minor][gi];
	h->minor = minor;
	h->gi = (unsigned)gi;
	h->given = true;
	for (unsigned ci = 0; ci < MAX_CI; ci++)
		compute_instances[minor][gi][ci] = (struct nvmlComputeInstance_st){ .parent = h, .ci = ci };
	out->handle = h;
	return NVML_SUCCESS;
}

/* Checks a handle and reads what is in the GPU instance now: its MIG devices or, where it has none, itself; one that
 * was destroyed is not there any more. */
static nvmlReturn_t read_devices(const struct nvmlGpuInstance_st *h, struct instance *list, int *count)
{
	const struct nvmlGpuInstance_st *first = &gpu_instances[0][0];
	int n;
	TRY(nvml_enter());
	NEED(h >= first && h < first + sizeof gpu_instances / sizeof *first && h->given);
	NEED(nvml_index(h->minor) >= 0);
	TRY(nvml_instances(h->minor, list, &n));
	*count = 0;
	for (int i = 0; i < n; i++)
		if (list[i].gi == h->gi)
			list[(*count)++] = list[i];
	return *count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t read_instance(const struct nvmlGpuInstance_st *h, struct instance *out)
{
	struct instance list[MAX_INSTANCES];
	int n;
	TRY(read_devices(h, list, &n));
	*out = list[0];
	return NVML_SUCCESS;
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
		if (list[i].profile_id == id && (i == 0 || list[i - 1].gi != list[i].gi))
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

/* How many compute slices each compute profile has, by its id, which is its number, as on the real GPUs. */
static const unsigned compute_slices[NVML_COMPUTE_INSTANCE_PROFILE_COUNT] = {
	[NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE] = 1, [NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE] = 2,
	[NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE] = 3, [NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE] = 4,
	[NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE] = 6, [NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE] = 7,
	[NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE] = 8,
};

/* The places of compute instances of so many slices in a GPU instance of that size, as the daemon has them. */
static unsigned compute_starts(uint64_t size, unsigned slices, unsigned *starts)
{
	unsigned count = 0, step = slices < 3 ? slices : 4;
	if (!slices || slices > size || (size == 4 && slices == 3) || (slices > 4 && slices != size))
		return 0;
	for (unsigned s = 0; s + slices <= size; s += step)
		starts[count++] = s;
	return count;
}

static unsigned compute_profile(uint64_t slices)
{
	unsigned id = 0;
	while (id < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && compute_slices[id] != slices)
		id++;
	return id;
}

/* Reads a GPU instance's profile, and the places of compute instances of a compute profile in it. */
static nvmlReturn_t read_places(nvmlGpuInstance_t instance, unsigned id, struct profile *p, unsigned *starts,
	unsigned *count)
{
	struct instance inst;
	TRY(read_instance(instance.handle, &inst));
	TRY(nvml_profile(instance.handle->minor, (unsigned)inst.profile, p));
	*count = id < NVML_COMPUTE_INSTANCE_PROFILE_COUNT ? compute_starts(p->slices, compute_slices[id], starts) : 0;
	return *count ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvml_read_gi(nvmlGpuInstance_t instance, struct instance *out, int *minor)
{
	TRY(read_instance(instance.handle, out));
	*minor = instance.handle->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_compute_slices(nvmlGpuInstance_t instance, unsigned id, unsigned *slices)
{
	unsigned starts[MAX_CI], count;
	struct profile p;
	nvmlReturn_t ret = read_places(instance, id, &p, starts, &count);
	*slices = ret == NVML_SUCCESS ? compute_slices[id] : 0;
	return ret == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : ret;
}

nvmlReturn_t nvml_give_ci(nvmlGpuInstance_t instance, uint64_t ci, nvmlComputeInstance_t *out)
{
	if (ci >= MAX_CI)
		return NVML_ERROR_NOT_FOUND;
	out->handle = &compute_instances[instance.handle->minor][instance.handle->gi][ci];
	return NVML_SUCCESS;
}

static bool is_compute(const struct instance *inst)
{
	return inst->ci != ALL_ONES && inst->ci != GPUSIM_UNKNOWN;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile,
							  unsigned int engine, nvmlComputeInstanceProfileInfo_t *out)
{
	unsigned starts[MAX_CI], count;
	struct profile p;
	NEED(out && profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT);
	NEED(engine == NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED);
	TRY(read_places(instance, profile, &p, starts, &count));
	*out = (nvmlComputeInstanceProfileInfo_t){
		.id = profile, .sliceCount = compute_slices[profile], .instanceCount = count,
		.multiprocessorCount = (unsigned)(p.sms * compute_slices[profile] / p.slices),
		.sharedCopyEngineCount = (unsigned)p.copy,
		.sharedDecoderCount = (unsigned)p.decoders, .sharedEncoderCount = (unsigned)p.encoders,
		.sharedJpegCount = (unsigned)p.jpeg, .sharedOfaCount = (unsigned)p.ofa,
	};
	return NVML_SUCCESS;
}

/* Whether a place in a GPU instance is free of the compute instances that there are. */
static bool place_is_free(const struct instance *list, int n, unsigned start, unsigned slices)
{
	for (int i = 0; i < n; i++)
		if (is_compute(&list[i]) && start < list[i].ci_start + list[i].ci_slices && list[i].ci_start < start + slices)
			return false;
	return true;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned int id,
								unsigned int *count)
{
	struct instance list[MAX_INSTANCES];
	unsigned starts[MAX_CI], places;
	struct profile p;
	int n;
	NEED(count);
	TRY(read_places(instance, id, &p, starts, &places));
	TRY(read_devices(instance.handle, list, &n));
	*count = 0;
	for (unsigned i = 0; i < places; i++)
		*count += place_is_free(list, n, starts[i], compute_slices[id]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned int id,
								 nvmlComputeInstancePlacement_t *out, unsigned int *count)
{
	unsigned starts[MAX_CI], places;
	struct profile p;
	NEED(count);
	TRY(read_places(instance, id, &p, starts, &places));
	*count = places;
	for (unsigned i = 0; out && i < places; i++)
		out[i] = (nvmlComputeInstancePlacement_t){ .start = starts[i], .size = compute_slices[id] };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *out,
						unsigned int *count)
{
	struct instance list[MAX_INSTANCES];
	int n;
	NEED(out && count && id < NVML_COMPUTE_INSTANCE_PROFILE_COUNT);
	TRY(read_devices(instance.handle, list, &n));
	*count = 0;
	for (int i = 0; i < n; i++)
		if (is_compute(&list[i]) && list[i].ci_slices == compute_slices[id])
			TRY(nvml_give_ci(instance, list[i].ci, &out[(*count)++]));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
	nvmlComputeInstance_t *out)
{
	struct instance list[MAX_INSTANCES];
	int n;
	NEED(out);
	TRY(read_devices(instance.handle, list, &n));
	for (int i = 0; i < n; i++)
		if (is_compute(&list[i]) && list[i].ci == id)
			return nvml_give_ci(instance, id, out);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *out)
{
	const struct nvmlComputeInstance_st *h = instance.handle, *first = &compute_instances[0][0][0];
	struct instance list[MAX_INSTANCES];
	int n;
	TRY(nvml_enter());
	NEED(out && h >= first && h < first + sizeof compute_instances / sizeof *first && h->parent);
	TRY(read_devices(h->parent, list, &n));
	for (int i = 0; i < n; i++) {
		if (!is_compute(&list[i]) || list[i].ci != h->ci)
			continue;
		*out = (nvmlComputeInstanceInfo_t){
			.device = nvml_handle(h->parent->minor),
			.gpuInstance = { .handle = h->parent },
			.id = h->ci,
			.profileId = compute_profile(list[i].ci_slices),
			.placement = { .start = (unsigned)list[i].ci_start, .size = (unsigned)list[i].ci_slices },
		};
		return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}
