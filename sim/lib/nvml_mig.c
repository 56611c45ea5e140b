/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * MIG as seen from the GPU: its mode, the profiles it offers, and the MIG devices on it.
 */
#include "nvml_core.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_GI 32
#define MAX_CI 8

/* One handle for each place that an instance can have; which instance is there is asked each time. */
static struct nvmlDevice_st mig[GPUSIM_MAX_MINORS][MAX_GI][MAX_CI];

bool nvml_is_mig_handle(const struct nvmlDevice_st *handle)
{
	const struct nvmlDevice_st *first = &mig[0][0][0];
	/* mig is set when the handle is given out */
	return handle >= first && handle < first + sizeof mig / sizeof *first && handle->mig;
}

nvmlReturn_t nvml_mig_handle(int minor, unsigned gi, unsigned ci, nvmlDevice_t *device)
{
	if (gi >= MAX_GI || ci >= MAX_CI)
		return NVML_ERROR_NOT_FOUND;
	struct nvmlDevice_st *h = &mig[minor][gi][ci];
	h->minor = minor;
	h->gi = gi;
	h->ci = ci;
	h->mig = true;
	device->handle = h;
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_instances(int minor, struct instance *list, int *count)
{
	uint64_t v[1 + GPUSIM_MIG_VALS * MAX_INSTANCES];
	char text[MAX_TEXT] = "";
	struct gpusim_reply reply = { .vals = v, .max_vals = sizeof v / sizeof *v, .text = text,
				      .max_text = sizeof text };
	TRY(nvml_call(minor, GPUSIM_OP_MIG_INSTANCES, 0, 0, NULL, &reply));
	if (reply.nvals < 1 || v[0] > MAX_INSTANCES || reply.nvals < 1 + GPUSIM_MIG_VALS * v[0])
		return NVML_ERROR_UNKNOWN;
	*count = (int)v[0];
	for (int i = 0; i < *count; i++) {
		const uint64_t *w = v + 1 + GPUSIM_MIG_VALS * i;
		list[i] = (struct instance){ .gi = w[0], .profile_id = w[1], .start = w[2], .size = w[3], .ci = w[4],
					     .memory = w[5], .profile = w[6], .ci_start = w[7], .ci_slices = w[8] };
		gpusim_line(text, (unsigned)i, list[i].uuid, sizeof list[i].uuid);
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_instance_of(nvmlDevice_t device, struct instance *out)
{
	struct instance list[MAX_INSTANCES];
	int n;
	NEED(device.handle->mig);
	TRY(nvml_instances(device.handle->minor, list, &n));
	for (int i = 0; i < n; i++)
		if (list[i].gi == device.handle->gi && list[i].ci == device.handle->ci) {
			*out = list[i];
			return NVML_SUCCESS;
		}
	return NVML_ERROR_INVALID_ARGUMENT; /* destroyed: the handle is invalid now */
}

void nvml_profile_name(const struct instance *inst, const struct profile *p, char *out, size_t size)
{
	if (inst->ci_slices < p->slices)
		snprintf(out, size, "%uc.%s", (unsigned)inst->ci_slices, p->name);
	else
		snprintf(out, size, "%s", p->name);
}

nvmlReturn_t nvml_profile(int minor, unsigned profile, struct profile *out)
{
	uint64_t v[11 + 64];
	struct gpusim_reply reply = { .vals = v, .max_vals = sizeof v / sizeof *v, .text = out->name,
				      .max_text = sizeof out->name };
	TRY(nvml_call(minor, GPUSIM_OP_MIG_PROFILE, profile, 0, NULL, &reply));
	if (reply.nvals < 11)
		return NVML_ERROR_UNKNOWN;
	out->id = v[0];
	out->memory = v[1];
	out->slices = v[2];
	out->sms = v[3];
	out->instances = v[4];
	out->copy = v[5];
	out->decoders = v[6];
	out->encoders = v[7];
	out->jpeg = v[8];
	out->ofa = v[9];
	out->remaining = v[10];
	out->nplacements = (reply.nvals - 11) / 2;
	if (out->nplacements > 32)
		out->nplacements = 32;
	for (uint64_t i = 0; i < out->nplacements; i++) {
		out->placement[i].start = v[11 + 2 * i];
		out->placement[i].size = v[12 + 2 * i];
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_profile_by_id(int minor, unsigned id, struct profile *out)
{
	for (unsigned p = 0; p < NVML_GPU_INSTANCE_PROFILE_COUNT; p++) {
		nvmlReturn_t ret = nvml_profile(minor, p, out);
		if (ret == NVML_SUCCESS && out->id == id)
			return NVML_SUCCESS;
		if (ret != NVML_SUCCESS && ret != NVML_ERROR_NOT_SUPPORTED && ret != NVML_ERROR_INVALID_ARGUMENT)
			return ret;
	}
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	uint64_t v[2];
	TRY(nvml_gpu(device));
	NEED(current && pending);
	TRY(nvml_vals(device.handle->minor, GPUSIM_OP_MIG_MODE, 0, v, 2));
	*current = (unsigned)v[0];
	*pending = (unsigned)v[1];
	return NVML_SUCCESS;
}

/* Whether the mode took effect at once is a second answer, in activation. */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
	static const nvmlReturn_t outcome[] = { NVML_SUCCESS, NVML_ERROR_IN_USE, NVML_ERROR_RESET_REQUIRED };
	uint64_t v;
	TRY(nvml_gpu(device));
	NEED(activation);
	TRY(nvml_vals(device.handle->minor, GPUSIM_OP_MIG_SET, mode, &v, 1));
	*activation = v < 3 ? outcome[v] : NVML_ERROR_UNKNOWN;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	struct gpu_info info;
	uint64_t mode[2];
	TRY(nvml_gpu(device));
	NEED(count);
	TRY(nvml_info(device.handle->minor, &info));
	nvmlReturn_t ret = nvml_vals(device.handle->minor, GPUSIM_OP_MIG_MODE, 0, mode, 2);
	*count = ret == NVML_SUCCESS && mode[0] == NVML_DEVICE_MIG_ENABLE ? (unsigned)info.max_mig : 0;
	return ret == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : ret;
}

/* MIG devices are the compute instances, in the order that the driver lists them. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *out)
{
	struct instance list[MAX_INSTANCES];
	int n;
	TRY(nvml_gpu(device));
	NEED(out);
	TRY(nvml_instances(device.handle->minor, list, &n));
	for (int i = 0; i < n; i++) {
		if (list[i].ci >= MAX_CI)
			continue;
		if (index-- == 0)
			return nvml_mig_handle(device.handle->minor, (unsigned)list[i].gi, (unsigned)list[i].ci, out);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
	TRY(nvml_resolve(device));
	NEED(is);
	*is = device.handle->mig;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *gpu)
{
	TRY(nvml_resolve(device));
	NEED(gpu && device.handle->mig);
	*gpu = nvml_handle(device.handle->minor);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct instance inst;
	TRY(nvml_resolve(device));
	NEED(id);
	if (!device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	TRY(nvml_instance_of(device, &inst));
	*id = (unsigned)inst.gi;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	struct instance inst;
	TRY(nvml_resolve(device));
	NEED(id);
	if (!device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	TRY(nvml_instance_of(device, &inst));
	*id = (unsigned)inst.ci;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	struct instance inst;
	struct profile p;
	TRY(nvml_resolve(device));
	NEED(out);
	if (!device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	TRY(nvml_instance_of(device, &inst));
	TRY(nvml_profile(device.handle->minor, (unsigned)inst.profile, &p));
	*out = (nvmlDeviceAttributes_t){
		.multiprocessorCount = (unsigned)(p.sms * inst.ci_slices / p.slices),
		.sharedCopyEngineCount = (unsigned)p.copy,
		.sharedDecoderCount = (unsigned)p.decoders,
		.sharedEncoderCount = (unsigned)p.encoders,
		.sharedJpegCount = (unsigned)p.jpeg,
		.sharedOfaCount = (unsigned)p.ofa,
		.gpuInstanceSliceCount = (unsigned)p.slices,
		.computeInstanceSliceCount = (unsigned)inst.ci_slices,
		.memorySizeMB = inst.memory >> 20,
	};
	return NVML_SUCCESS;
}

/* Callers of the first version know a struct that ends before memorySizeMB's present place: not offered. */
nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	(void)device;
	(void)out;
	return nvml_unsupported();
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
						 nvmlGpuInstanceProfileInfo_t *out)
{
	struct profile p;
	TRY(nvml_gpu(device));
	NEED(out && profile < NVML_GPU_INSTANCE_PROFILE_COUNT);
	TRY(nvml_profile(device.handle->minor, profile, &p));
	*out = (nvmlGpuInstanceProfileInfo_t){
		.id = (unsigned)p.id, .sliceCount = (unsigned)p.slices, .instanceCount = (unsigned)p.instances,
		.multiprocessorCount = (unsigned)p.sms, .copyEngineCount = (unsigned)p.copy,
		.decoderCount = (unsigned)p.decoders, .encoderCount = (unsigned)p.encoders,
		.jpegCount = (unsigned)p.jpeg, .ofaCount = (unsigned)p.ofa, .memorySizeMB = p.memory >> 20,
	};
	return NVML_SUCCESS;
}

/* The caller's version field says which of two structs it passed. */
static nvmlReturn_t profile_v(const struct profile *p, nvmlGpuInstanceProfileInfo_v2_t *out)
{
	if (out->version == nvmlGpuInstanceProfileInfo_v3) {
		nvmlGpuInstanceProfileInfo_v3_t *v3 = (void *)out;
		*v3 = (nvmlGpuInstanceProfileInfo_v3_t){
			.version = nvmlGpuInstanceProfileInfo_v3, .id = (unsigned)p->id,
			.sliceCount = (unsigned)p->slices, .instanceCount = (unsigned)p->instances,
			.multiprocessorCount = (unsigned)p->sms, .copyEngineCount = (unsigned)p->copy,
			.decoderCount = (unsigned)p->decoders, .encoderCount = (unsigned)p->encoders,
			.jpegCount = (unsigned)p->jpeg, .ofaCount = (unsigned)p->ofa, .memorySizeMB = p->memory >> 20,
		};
		return nvml_copy(p->name, v3->name, sizeof v3->name);
	}
	if (out->version != nvmlGpuInstanceProfileInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*out = (nvmlGpuInstanceProfileInfo_v2_t){
		.version = nvmlGpuInstanceProfileInfo_v2, .id = (unsigned)p->id,
		.sliceCount = (unsigned)p->slices, .instanceCount = (unsigned)p->instances,
		.multiprocessorCount = (unsigned)p->sms, .copyEngineCount = (unsigned)p->copy,
		.decoderCount = (unsigned)p->decoders, .encoderCount = (unsigned)p->encoders,
		.jpegCount = (unsigned)p->jpeg, .ofaCount = (unsigned)p->ofa, .memorySizeMB = p->memory >> 20,
	};
	return nvml_copy(p->name, out->name, sizeof out->name);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
						  nvmlGpuInstanceProfileInfo_v2_t *out)
{
	struct profile p;
	TRY(nvml_gpu(device));
	NEED(out && profile < NVML_GPU_INSTANCE_PROFILE_COUNT);
	TRY(nvml_profile(device.handle->minor, profile, &p));
	return profile_v(&p, out);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id,
						      nvmlGpuInstanceProfileInfo_v2_t *out)
{
	struct profile p;
	TRY(nvml_gpu(device));
	NEED(out);
	TRY(nvml_profile_by_id(device.handle->minor, id, &p));
	return profile_v(&p, out);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
							   nvmlGpuInstancePlacement_t *out, unsigned int *count)
{
	struct profile p;
	TRY(nvml_gpu(device));
	NEED(count);
	TRY(nvml_profile_by_id(device.handle->minor, id, &p));
	*count = (unsigned)p.nplacements;
	for (uint64_t i = 0; out && i < p.nplacements; i++)
		out[i] = (nvmlGpuInstancePlacement_t){ .start = (unsigned)p.placement[i].start,
						       .size = (unsigned)p.placement[i].size };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
	struct profile p;
	TRY(nvml_gpu(device));
	NEED(count);
	TRY(nvml_profile_by_id(device.handle->minor, id, &p));
	*count = (unsigned)p.remaining;
	return NVML_SUCCESS;
}
