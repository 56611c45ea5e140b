/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How much of a GPU is used, and by whom.
 */
#include "nvml_core.h"

#include <stdlib.h>
#include <time.h>

struct memory {
	uint64_t total, reserved, free, used;
};

/* Lists the processes of one of the three lists; pages through the list, which may change between the pages. */
static nvmlReturn_t processes(nvmlDevice_t device, uint64_t which, nvmlProcessInfo_t **list, unsigned *count)
{
	uint64_t *vals = malloc(GPUSIM_MAX_VALS * sizeof *vals);
	nvmlReturn_t ret = vals ? NVML_SUCCESS : NVML_ERROR_MEMORY;
	uint64_t offset = 0, all = 1;
	*list = NULL;
	*count = 0;
	while (ret == NVML_SUCCESS && offset < all) {
		struct gpusim_reply reply = { .vals = vals, .max_vals = GPUSIM_MAX_VALS };
		ret = nvml_call(device.handle->minor, GPUSIM_OP_PROCESSES, offset, which, NULL, &reply);
		if (ret != NVML_SUCCESS)
			break;
		size_t n = reply.nvals ? (reply.nvals - 1) / 4 : 0;
		if (n == 0)
			break;
		all = vals[0];
		offset += n;
		nvmlProcessInfo_t *more = realloc(*list, (*count + n) * sizeof **list);
		if (!more) {
			ret = NVML_ERROR_MEMORY;
			break;
		}
		*list = more;
		for (size_t i = 0; i < n; i++) {
			const uint64_t *v = vals + 1 + 4 * i;
			if (device.handle->mig && (v[2] != device.handle->gi || v[3] != device.handle->ci))
				continue;
			(*list)[(*count)++] = (nvmlProcessInfo_t){
				.pid = (unsigned)v[0],
				.usedGpuMemory = v[1], /* GPUSIM_UNKNOWN is NVML's "not available", too */
				.gpuInstanceId = (unsigned)v[2],
				.computeInstanceId = (unsigned)v[3],
			};
		}
	}
	free(vals);
	if (ret != NVML_SUCCESS) {
		free(*list);
		*list = NULL;
		*count = 0;
	}
	return ret;
}
_Static_assert(GPUSIM_UNKNOWN == (unsigned long long)NVML_VALUE_NOT_AVAILABLE, "not available");

/* A MIG device's memory is its instance's. */
static nvmlReturn_t memory(nvmlDevice_t device, struct memory *m)
{
	uint64_t v[5];
	TRY(nvml_resolve(device));
	const struct nvmlDevice_st *h = device.handle;
	nvmlReturn_t ret = nvml_vals(h->minor, GPUSIM_OP_MEMORY, h->mig ? GPUSIM_MIG_DEVICE(h->gi, h->ci) : 0, v, 5);
	if (ret == NVML_ERROR_NOT_FOUND)
		return NVML_ERROR_INVALID_ARGUMENT; /* destroyed: the handle is invalid now */
	TRY(ret);
	if (v[4])
		return NVML_ERROR_NOT_SUPPORTED; /* the memory is the machine's, as of a GB10 */
	*m = (struct memory){ .total = v[0], .reserved = v[1], .free = v[2], .used = v[3] };
	return NVML_SUCCESS;
}

/* The first version has no field for what is reserved and counts it as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
	struct memory m;
	NEED(out);
	TRY(memory(device, &m));
	*out = (nvmlMemory_t){ .total = m.total, .free = m.free, .used = m.reserved + m.used };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
	struct memory m;
	NEED(out);
	if (out->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	TRY(memory(device, &m));
	out->total = m.total;
	out->reserved = m.reserved;
	out->free = m.free;
	out->used = m.used;
	return NVML_SUCCESS;
}

/* Nothing maps the simulated window. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
	struct gpu_info info;
	TRY(nvml_gpu(device));
	NEED(out);
	TRY(nvml_info(device.handle->minor, &info));
	if (!info.bar1)
		return NVML_ERROR_NOT_SUPPORTED;
	*out = (nvmlBAR1Memory_t){ .bar1Total = info.bar1, .bar1Free = info.bar1 };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
	uint64_t v[2];
	TRY(nvml_resolve(device));
	NEED(out);
	if (device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED; /* "on MIG-enabled GPUs, querying device utilization rates is not
						    currently supported", says the header */
	TRY(nvml_vals(device.handle->minor, GPUSIM_OP_UTILIZATION, 0, v, 2));
	out->gpu = (unsigned)v[0];
	out->memory = (unsigned)v[1];
	return NVML_SUCCESS;
}

/* All versions and kinds of the process list agree on how its size is settled: count says how many fit, and
 * when they do not, how many there are. */
static nvmlReturn_t list_processes(nvmlDevice_t device, uint64_t which, unsigned *count, void *out, size_t size)
{
	nvmlProcessInfo_t *list;
	unsigned n;
	TRY(nvml_resolve(device));
	NEED(count);
	TRY(processes(device, which, &list, &n));
	nvmlReturn_t ret = NVML_SUCCESS;
	if (n > *count)
		ret = NVML_ERROR_INSUFFICIENT_SIZE;
	else if (n && !out)
		ret = NVML_ERROR_INVALID_ARGUMENT;
	else
		for (unsigned i = 0; i < n; i++)
			memcpy((char *)out + i * size, &list[i], size);
	*count = n;
	free(list);
	return ret;
}

/* The first version is the head of the later ones, so one copy of its size does. */
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_v2_t) == 24, "process info");
_Static_assert(offsetof(nvmlProcessInfo_v1_t, usedGpuMemory) == offsetof(nvmlProcessInfo_t, usedGpuMemory), "head");

#define PROCESS_LIST(name, type, which)                                                              \
	nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *out)                       \
	{                                                                                            \
		return list_processes(device, which, count, out, sizeof *out);                       \
	}
#define PROCESS_LISTS(version, type)                                                                 \
	PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses##version, type, GPUSIM_LIST_COMPUTE)       \
	PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses##version, type, GPUSIM_LIST_GRAPHICS)     \
	PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses##version, type, GPUSIM_LIST_MPS)

PROCESS_LISTS(, nvmlProcessInfo_v1_t)
PROCESS_LISTS(_v2, nvmlProcessInfo_v2_t)
PROCESS_LISTS(_v3, nvmlProcessInfo_t)

static long long now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * 1000000LL + ts.tv_nsec / 1000;
}

/* One field is simulated: what has to be done to get the GPU well again. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, nvmlFieldValue_t *values)
{
	TRY(nvml_resolve(device));
	NEED(values && n > 0);
	for (int i = 0; i < n; i++) {
		uint64_t action = 0;
		values[i].timestamp = now_us();
		values[i].latencyUsec = 0;
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
			continue;
		values[i].nvmlReturn = nvml_vals(device.handle->minor, GPUSIM_OP_RECOVERY, 0, &action, 1);
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].value.uiVal = (unsigned)action;
	}
	return NVML_SUCCESS;
}
