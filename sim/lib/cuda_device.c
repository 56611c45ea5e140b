/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Questions about a device.
 */
#include "cuda_core.h"

#include <stdio.h>

CUresult cuDeviceGetCount(int *n)
{
	struct device *list;
	TRY(cuda_enter());
	NEED(n);
	*n = cuda_devices(&list);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	struct device *d;
	TRY(cuda_enter());
	NEED(device);
	TRY(cuda_device(ordinal, &d));
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(name && length > 0);
	snprintf(name, (size_t)length, "%s", d->name);
	return CUDA_SUCCESS;
}

/* The sixteen bytes behind "GPU-" or "MIG-". */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(uuid);
	memset(uuid, 0, sizeof *uuid);
	const char *p = d->uuid + (strncmp(d->uuid, "GPU-", 4) == 0 || d->instance ? 4 : 0);
	for (size_t i = 0; i < sizeof uuid->bytes; i++) {
		unsigned byte;
		p += *p == '-';
		if (sscanf(p, "%2x", &byte) != 1)
			return CUDA_ERROR_UNKNOWN;
		uuid->bytes[i] = (char)byte;
		p += 2;
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	return cuDeviceGetUuid_v2(uuid, device);
}

/* The same total as cuMemGetInfo's: under a hard limit on the caller's own cgroup, the limit. */
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	struct device *d;
	uint64_t v[4];
	TRY(cuda_device(device, &d));
	NEED(bytes);
	TRY(cuda_call(device, GPUSIM_OP_MEMORY, (const uint64_t[GPUSIM_NARGS]){ d->instance }, v, 4));
	*bytes = v[0] - v[1];
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(id && length > 0);
	int n = snprintf(id, (size_t)length, "%04x:%02x:%02x.0", (unsigned)d->domain, (unsigned)d->bus,
			 (unsigned)d->device);
	return n < length ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id)
{
	struct device *list;
	unsigned domain, bus, dev;
	TRY(cuda_enter());
	NEED(device && id);
	if (sscanf(id, "%x:%x:%x", &domain, &bus, &dev) != 3) {
		domain = 0;
		NEED(sscanf(id, "%x:%x", &bus, &dev) == 2);
	}
	int n = cuda_devices(&list);
	for (int i = 0; i < n; i++)
		if (list[i].domain == domain && list[i].bus == bus && list[i].device == dev) {
			*device = i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(major && minor);
	*major = (int)d->cc_major;
	*minor = (int)d->cc_minor;
	return CUDA_SUCCESS;
}

/* Numbers as in CUdevice_attribute. What the simulation has no notion of is not supported, rather than a
 * number that looks true. */
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	struct device *d;
	uint64_t mode;
	TRY(cuda_device(device, &d));
	NEED(value);
	switch (attribute) {
	case 1: /* MAX_THREADS_PER_BLOCK */
	case 2: /* MAX_BLOCK_DIM_X */
	case 3: /* MAX_BLOCK_DIM_Y */
		*value = 1024;
		break;
	case 4: /* MAX_BLOCK_DIM_Z */
		*value = 64;
		break;
	case 5: /* MAX_GRID_DIM_X */
		*value = 2147483647;
		break;
	case 6: /* MAX_GRID_DIM_Y */
	case 7: /* MAX_GRID_DIM_Z */
		*value = 65535;
		break;
	case 8: /* MAX_SHARED_MEMORY_PER_BLOCK */
		*value = 48 << 10;
		break;
	case 10: /* WARP_SIZE */
		*value = 32;
		break;
	case 16: /* MULTIPROCESSOR_COUNT */
		*value = (int)d->sms;
		break;
	case 31: /* CONCURRENT_KERNELS */
	case 41: /* UNIFIED_ADDRESSING */
	case 83: /* MANAGED_MEMORY */
	case 89: /* CONCURRENT_MANAGED_ACCESS */
	case 102: /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
	case 103: /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
	case 115: /* MEMORY_POOLS_SUPPORTED: cuMemAllocAsync */
		*value = 1;
		break;
	case 132: /* MULTICAST_SUPPORTED */
		*value = cuda_multicast(device);
		break;
	case 17: /* KERNEL_EXEC_TIMEOUT */
	case 18: /* INTEGRATED */
	case 35: /* TCC_DRIVER */
	case 84: /* MULTI_GPU_BOARD */
		*value = 0;
		break;
	case 20: /* COMPUTE_MODE */
		TRY(cuda_call(device, GPUSIM_OP_COMPUTE_MODE, (const uint64_t[GPUSIM_NARGS]){ GPUSIM_UNKNOWN }, &mode, 1));
		*value = (int)mode;
		break;
	case 33: /* PCI_BUS_ID */
		*value = (int)d->bus;
		break;
	case 34: /* PCI_DEVICE_ID */
		*value = (int)d->device;
		break;
	case 39: /* MAX_THREADS_PER_MULTIPROCESSOR */
		*value = (int)d->threads_per_sm;
		break;
	case 50: /* PCI_DOMAIN_ID */
		*value = (int)d->domain;
		break;
	case 75: /* COMPUTE_CAPABILITY_MAJOR */
		*value = (int)d->cc_major;
		break;
	case 76: /* COMPUTE_CAPABILITY_MINOR */
		*value = (int)d->cc_minor;
		break;
	default:
		return attribute > 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}
