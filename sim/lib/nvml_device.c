/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which GPUs there are, and who each one is. The daemon answers each time for every identity, so that a GPU that
 * was lost in between answers GPU_IS_LOST, as the header has it.
 */
#include "nvml_core.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

nvmlReturn_t nvml_copy(const char *from, char *to, unsigned length)
{
	NEED(to && length);
	size_t need = strlen(from) + 1;
	if (need > length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, from, need);
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_status(int status)
{
	switch (status) {
	case GPUSIM_OK:
		return NVML_SUCCESS;
	case GPUSIM_INVALID:
	case GPUSIM_INVALID_LIMIT:
		return NVML_ERROR_INVALID_ARGUMENT;
	case GPUSIM_NOT_SUPPORTED:
		return NVML_ERROR_NOT_SUPPORTED;
	case GPUSIM_NO_PERMISSION:
		return NVML_ERROR_NO_PERMISSION;
	case GPUSIM_NOT_FOUND:
		return NVML_ERROR_NOT_FOUND;
	case GPUSIM_CANNOT_OPEN:
		return NVML_ERROR_OPERATING_SYSTEM;
	case GPUSIM_OUT_OF_MEMORY:
		return NVML_ERROR_MEMORY;
	case GPUSIM_LOST:
	case GPUSIM_BROKEN: /* without its kernel driver a GPU cannot be reached either */
		return NVML_ERROR_GPU_IS_LOST;
	case GPUSIM_IN_USE:
		return NVML_ERROR_IN_USE;
	case GPUSIM_INSUFFICIENT:
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	case GPUSIM_TIMEOUT:
		return NVML_ERROR_TIMEOUT;
	case GPUSIM_BAD_VERSION:
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

nvmlReturn_t nvml_vals(int minor, uint32_t op, uint64_t arg0, uint64_t *vals, size_t n)
{
	struct gpusim_reply reply = { .vals = vals, .max_vals = n };
	TRY(nvml_call(minor, op, arg0, 0, NULL, &reply));
	return reply.nvals < n ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

nvmlReturn_t nvml_info(int minor, struct gpu_info *info)
{
	uint64_t v[20] = { 0 };
	char text[MAX_TEXT] = "";
	struct gpusim_reply reply = { .vals = v, .max_vals = 20, .text = text, .max_text = sizeof text };
	TRY(nvml_call(minor, GPUSIM_OP_GPU_INFO, 0, 0, NULL, &reply));
	if (reply.nvals < 20)
		return NVML_ERROR_UNKNOWN;
	*info = (struct gpu_info){
		.minor = v[0], .index = v[1], .total = v[2], .reserved = v[3], .cc_major = v[4], .cc_minor = v[5],
		.sms = v[6], .arch = v[7], .brand = v[8], .domain = v[9], .bus = v[10], .device = v[11],
		.pci_id = v[12], .pci_subsystem = v[13], .numa = v[14], .context_cost = v[15], .nvlinks = v[16],
		.max_mig = v[17], .threads_per_sm = v[18], .bar1 = v[19],
	};
	bool whole = gpusim_line(text, 0, info->uuid, sizeof info->uuid) &&
		     gpusim_line(text, 1, info->name, sizeof info->name) &&
		     gpusim_line(text, 2, info->serial, sizeof info->serial) &&
		     gpusim_line(text, 3, info->pci_bus_id, sizeof info->pci_bus_id);
	return whole ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	TRY(nvml_enter());
	NEED(count);
	*count = (unsigned)nvml_count();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	struct gpu_info info;
	TRY(nvml_enter());
	NEED(device && index < (unsigned)nvml_count());
	TRY(nvml_info(nvml_minor((int)index), &info));
	*device = nvml_handle(nvml_minor((int)index));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* Looks through all GPUs for one that match accepts. A lost GPU may be the one that was meant, so it is
 * the answer when no other is. */
static nvmlReturn_t find(bool (*match)(const struct gpu_info *, const void *), const void *what, nvmlDevice_t *device)
{
	nvmlReturn_t miss = NVML_ERROR_NOT_FOUND;
	for (int i = 0; i < nvml_count(); i++) {
		struct gpu_info info;
		nvmlReturn_t ret = nvml_info(nvml_minor(i), &info);
		if (ret == NVML_SUCCESS && match(&info, what)) {
			*device = nvml_handle(nvml_minor(i));
			return NVML_SUCCESS;
		}
		if (ret == NVML_ERROR_GPU_IS_LOST)
			miss = ret;
	}
	return miss;
}

static bool has_uuid(const struct gpu_info *info, const void *uuid)
{
	return strcasecmp(info->uuid, uuid) == 0;
}

static bool has_serial(const struct gpu_info *info, const void *serial)
{
	return strcmp(info->serial, serial) == 0;
}

static bool has_address(const struct gpu_info *info, const void *address)
{
	const unsigned *a = address;
	return info->domain == a[0] && info->bus == a[1] && info->device == a[2];
}

static nvmlReturn_t find_mig(const char *uuid, nvmlDevice_t *device)
{
	for (int i = 0; i < nvml_count(); i++) {
		struct instance list[MAX_INSTANCES];
		int n;
		if (nvml_instances(nvml_minor(i), list, &n) != NVML_SUCCESS)
			continue;
		for (int j = 0; j < n; j++)
			if (strcasecmp(list[j].uuid, uuid) == 0)
				return nvml_mig_handle(nvml_minor(i), (unsigned)list[j].gi, (unsigned)list[j].ci,
						       device);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	TRY(nvml_enter());
	NEED(uuid && device);
	if (strncasecmp(uuid, "MIG-", 4) == 0)
		return find_mig(uuid, device);
	return find(has_uuid, uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	TRY(nvml_enter());
	NEED(serial && device);
	return find(has_serial, serial, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
	unsigned a[3] = { 0 };
	char rest;
	TRY(nvml_enter());
	NEED(id && device);
	/* "domain:bus:device[.0]" or "bus:device[.0]" */
	int n = sscanf(id, "%x:%x:%x.0%c", &a[0], &a[1], &a[2], &rest);
	if (n != 3) {
		a[0] = 0;
		NEED(sscanf(id, "%x:%x.0%c", &a[1], &a[2], &rest) == 2);
	}
	return find(has_address, a, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	struct gpu_info info;
	char text[200], profile[96];
	TRY(nvml_resolve(device));
	TRY(nvml_info(device.handle->minor, &info));
	if (!device.handle->mig)
		return nvml_copy(info.name, name, length);
	struct instance inst;
	struct profile prof;
	TRY(nvml_instance_of(device, &inst));
	TRY(nvml_profile(device.handle->minor, (unsigned)inst.profile, &prof));
	nvml_profile_name(&inst, &prof, profile, sizeof profile);
	snprintf(text, sizeof text, "%s MIG %s", info.name, profile);
	return nvml_copy(text, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct gpu_info info;
	struct instance inst;
	TRY(nvml_resolve(device));
	if (device.handle->mig) {
		TRY(nvml_instance_of(device, &inst));
		return nvml_copy(inst.uuid, uuid, length);
	}
	TRY(nvml_info(device.handle->minor, &info));
	return nvml_copy(info.uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	struct gpu_info info;
	TRY(nvml_gpu(device));
	TRY(nvml_info(device.handle->minor, &info));
	return nvml_copy(info.serial, serial, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	TRY(nvml_gpu(device));
	NEED(index);
	*index = (unsigned)nvml_index(device.handle->minor);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	TRY(nvml_gpu(device));
	NEED(minor);
	*minor = (unsigned)device.handle->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	struct gpu_info info;
	TRY(nvml_gpu(device));
	NEED(pci);
	TRY(nvml_info(device.handle->minor, &info));
	memset(pci, 0, sizeof *pci);
	pci->domain = (unsigned)info.domain;
	pci->bus = (unsigned)info.bus;
	pci->device = (unsigned)info.device;
	pci->pciDeviceId = (unsigned)info.pci_id;
	pci->pciSubSystemId = (unsigned)info.pci_subsystem;
	snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, NVML_DEVICE_PCI_BUS_ID_FMT_ARGS(pci));
	/* Four digits of the domain at most: the legacy field has room for no more. */
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF,
		 pci->bus & 0xFF, pci->device & 0xFF);
	return NVML_SUCCESS;
}

/* Callers of the older two know a struct that ends before busId: nothing is written there. */
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlPciInfo_t whole;
	NEED(pci);
	TRY(nvmlDeviceGetPciInfo_v3(device, &whole));
	memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetPciInfo_v2(device, pci);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type)
{
	struct gpu_info info;
	TRY(nvml_resolve(device));
	NEED(type);
	TRY(nvml_info(device.handle->minor, &info));
	*type = (nvmlBrandType_t)info.brand;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
	struct gpu_info info;
	TRY(nvml_resolve(device));
	NEED(arch);
	TRY(nvml_info(device.handle->minor, &info));
	*arch = (nvmlDeviceArchitecture_t)info.arch;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	struct gpu_info info;
	TRY(nvml_resolve(device));
	NEED(major && minor);
	TRY(nvml_info(device.handle->minor, &info));
	*major = (int)info.cc_major;
	*minor = (int)info.cc_minor;
	return NVML_SUCCESS;
}

/* Sockets of the simulated machines have one node each, so that both scopes are the same. */
nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *nodes,
					 nvmlAffinityScope_t scope)
{
	const unsigned bits = 8 * sizeof *nodes;
	struct gpu_info info;
	TRY(nvml_gpu(device));
	NEED(words && nodes && (scope == NVML_AFFINITY_SCOPE_NODE || scope == NVML_AFFINITY_SCOPE_SOCKET));
	TRY(nvml_info(device.handle->minor, &info));
	if (info.numa == GPUSIM_UNKNOWN)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(nodes, 0, words * sizeof *nodes);
	if (info.numa / bits < words)
		nodes[info.numa / bits] = 1UL << (info.numa % bits);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
	struct gpu_info info;
	TRY(nvml_gpu(device));
	NEED(node);
	TRY(nvml_info(device.handle->minor, &info));
	if (info.numa == GPUSIM_UNKNOWN)
		return NVML_ERROR_NOT_SUPPORTED;
	*node = (unsigned)info.numa;
	return NVML_SUCCESS;
}
