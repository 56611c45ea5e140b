/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sensors: who uses how much of a GPU's time, power, clocks, temperature and memory errors; and the compute mode.
 */
#include "nvml_core.h"

#include <stdlib.h>

struct use {
	uint64_t pid, at, gpu, memory;
};

/* Lists the processes in the samples after a moment; the caller frees the list. */
static nvmlReturn_t uses(nvmlDevice_t device, unsigned long long since, struct use **list, unsigned *count)
{
	uint64_t *vals = malloc(GPUSIM_MAX_VALS * sizeof *vals);
	*list = malloc(GPUSIM_MAX_VALS * sizeof **list);
	*count = 0;
	struct gpusim_reply reply = { .vals = vals, .max_vals = GPUSIM_MAX_VALS };
	nvmlReturn_t ret = vals && *list ? nvml_call(device.handle->minor, GPUSIM_OP_PROCESS_UTIL, since, 0, NULL, &reply)
					 : NVML_ERROR_MEMORY;
	for (size_t i = 1; ret == NVML_SUCCESS && i + 4 <= reply.nvals; i += 4)
		(*list)[(*count)++] = (struct use){ vals[i], vals[i + 1], vals[i + 2], vals[i + 3] };
	free(vals);
	if (ret == NVML_ERROR_NOT_FOUND) /* no rows: settle says so */
		return NVML_SUCCESS;
	if (ret != NVML_SUCCESS) {
		free(*list);
		*list = NULL;
	}
	return ret;
}

/* Settles the size of a list as both forms of it do: without room the answer is how much is needed. */
static nvmlReturn_t settle(unsigned n, unsigned *count, const void *out)
{
	unsigned room = *count;
	if (out && n == 0) {
		*count = 0;
		return NVML_ERROR_NOT_FOUND;
	}
	*count = n;
	return !out || n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
					     unsigned int *count, unsigned long long seen)
{
	struct use *list;
	unsigned n;
	TRY(nvml_resolve(device));
	NEED(count);
	if (device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	TRY(uses(device, seen, &list, &n));
	nvmlReturn_t ret = settle(n, count, out);
	for (unsigned i = 0; ret == NVML_SUCCESS && i < n; i++)
		out[i] = (nvmlProcessUtilizationSample_t){ .pid = (unsigned)list[i].pid, .timeStamp = list[i].at,
			.smUtil = (unsigned)list[i].gpu, .memUtil = (unsigned)list[i].memory };
	free(list);
	return ret;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
	struct use *list;
	unsigned n;
	TRY(nvml_resolve(device));
	NEED(info);
	if (info->version != nvmlProcessesUtilizationInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (device.handle->mig)
		return NVML_ERROR_NOT_SUPPORTED;
	TRY(uses(device, info->lastSeenTimeStamp, &list, &n));
	nvmlReturn_t ret = settle(n, &info->processSamplesCount, info->procUtilArray);
	for (unsigned i = 0; ret == NVML_SUCCESS && i < n; i++)
		info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){ .pid = (unsigned)list[i].pid,
			.timeStamp = list[i].at, .smUtil = (unsigned)list[i].gpu, .memUtil = (unsigned)list[i].memory };
	free(list);
	return ret;
}

enum { POWER, POWER_LIMIT, SM_CLOCK, MAX_SM_CLOCK, MEMORY_CLOCK, MAX_MEMORY_CLOCK, TEMPERATURE, CORRECTED, UNCORRECTED,
       REMAP_PENDING, REMAP_FAILED, REASONS, SENSORS };

/* One sensor of a whole GPU; what its model does not say is not supported. */
static nvmlReturn_t sensor(nvmlDevice_t device, int which, bool needed, uint64_t *value)
{
	uint64_t v[SENSORS];
	TRY(nvml_gpu(device));
	NEED(value);
	TRY(nvml_vals(device.handle->minor, GPUSIM_OP_TELEMETRY, 0, v, SENSORS));
	*value = v[which];
	return needed && !v[which] ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static nvmlReturn_t number(nvmlDevice_t device, int which, unsigned *out)
{
	uint64_t value;
	NEED(out);
	TRY(sensor(device, which, true, &value));
	*out = (unsigned)value;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
	return number(device, POWER, power);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit)
{
	return number(device, POWER_LIMIT, limit);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)
{
	return number(device, POWER_LIMIT, limit);
}

/* The limit, the one that the GPU begins with, the least and the most, after it was set to a value that is not
 * GPUSIM_UNKNOWN. */
static nvmlReturn_t power_limits(nvmlDevice_t device, uint64_t set, uint64_t v[4])
{
	TRY(nvml_gpu(device));
	return nvml_vals(device.handle->minor, GPUSIM_OP_POWER_LIMIT, set, v, 4);
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *limit)
{
	uint64_t v[4];
	NEED(limit);
	TRY(power_limits(device, GPUSIM_UNKNOWN, v));
	*limit = (unsigned)v[1];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
	uint64_t v[4];
	NEED(least && most);
	TRY(power_limits(device, GPUSIM_UNKNOWN, v));
	*least = (unsigned)v[2];
	*most = (unsigned)v[3];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit)
{
	uint64_t v[4];
	return power_limits(device, limit, v);
}

/* Rows are remapped from Ampere on. */
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
				       unsigned int *pending, unsigned int *failed)
{
	struct gpu_info info;
	uint64_t v[SENSORS];
	TRY(nvml_gpu(device));
	NEED(corrected && uncorrected && pending && failed);
	TRY(nvml_info(device.handle->minor, &info));
	if (info.arch < NVML_DEVICE_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	TRY(nvml_vals(device.handle->minor, GPUSIM_OP_TELEMETRY, 0, v, SENSORS));
	*corrected = 0;
	*uncorrected = v[REMAP_PENDING] || v[REMAP_FAILED];
	*pending = (unsigned)v[REMAP_PENDING];
	*failed = (unsigned)v[REMAP_FAILED];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	uint64_t value;
	NEED(reasons);
	TRY(sensor(device, REASONS, false, &value));
	*reasons = value;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
	return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

/* Graphics and SM have one clock; the video engine has none here. */
static nvmlReturn_t clock_of(nvmlDevice_t device, nvmlClockType_t type, bool most, unsigned *clock)
{
	switch (type) {
	case NVML_CLOCK_GRAPHICS:
	case NVML_CLOCK_SM:
		return number(device, most ? MAX_SM_CLOCK : SM_CLOCK, clock);
	case NVML_CLOCK_MEM:
		return number(device, most ? MAX_MEMORY_CLOCK : MEMORY_CLOCK, clock);
	case NVML_CLOCK_VIDEO:
		TRY(nvml_gpu(device));
		return NVML_ERROR_NOT_SUPPORTED;
	default:
		return NVML_ERROR_INVALID_ARGUMENT;
	}
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	return clock_of(device, type, false, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	return clock_of(device, type, true, clock);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t type, unsigned int *degrees)
{
	NEED(type == NVML_TEMPERATURE_GPU);
	return number(device, TEMPERATURE, degrees);
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	uint64_t value;
	TRY(nvml_gpu(device));
	NEED(mode);
	TRY(nvml_vals(device.handle->minor, GPUSIM_OP_COMPUTE_MODE, GPUSIM_UNKNOWN, &value, 1));
	*mode = (nvmlComputeMode_t)value;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
	uint64_t value;
	TRY(nvml_gpu(device));
	NEED((unsigned)mode < NVML_COMPUTEMODE_COUNT);
	return nvml_vals(device.handle->minor, GPUSIM_OP_COMPUTE_MODE, (uint64_t)mode, &value, 1);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	uint64_t value;
	NEED(current && pending);
	TRY(sensor(device, CORRECTED, false, &value));
	*current = *pending = NVML_FEATURE_ENABLED;
	return NVML_SUCCESS;
}

/* Nothing resets the counters, so the volatile and the aggregate ones are the same. */
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t error, nvmlEccCounterType_t counter,
					 unsigned long long *out)
{
	uint64_t value;
	NEED(out && (unsigned)error < NVML_MEMORY_ERROR_TYPE_COUNT && (unsigned)counter < NVML_ECC_COUNTER_TYPE_COUNT);
	TRY(sensor(device, error == NVML_MEMORY_ERROR_TYPE_CORRECTED ? CORRECTED : UNCORRECTED, false, &value));
	*out = value;
	return NVML_SUCCESS;
}

/* All errors are the device memory's. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t error,
					     nvmlEccCounterType_t counter, nvmlMemoryLocation_t location,
					     unsigned long long *out)
{
	NEED((unsigned)location < NVML_MEMORY_LOCATION_COUNT);
	TRY(nvmlDeviceGetTotalEccErrors(device, error, counter, out));
	if (location != NVML_MEMORY_LOCATION_DEVICE_MEMORY)
		*out = 0;
	return NVML_SUCCESS;
}
