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
