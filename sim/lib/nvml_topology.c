/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How the GPUs hang together: PCIe distance, peer access, NVLinks.
 */
#include "nvml_core.h"

#include <stdio.h>

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level)
{
	uint64_t v[2];
	TRY(nvml_gpu(a));
	TRY(nvml_gpu(b));
	NEED(level);
	TRY(nvml_vals(a.handle->minor, GPUSIM_OP_TOPOLOGY, (uint64_t)b.handle->minor, v, 2));
	*level = (nvmlGpuTopologyLevel_t)v[0];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level, unsigned int *count,
					      nvmlDevice_t *out)
{
	unsigned n = 0;
	TRY(nvml_gpu(device));
	NEED(count && (out || *count == 0));
	unsigned room = *count;
	for (int i = 0; i < nvml_count(); i++) {
		uint64_t v[2];
		int other = nvml_minor(i);
		if (other == device.handle->minor)
			continue;
		TRY(nvml_vals(device.handle->minor, GPUSIM_OP_TOPOLOGY, (uint64_t)other, v, 2));
		if (v[0] != (uint64_t)level)
			continue;
		if (room && n == room)
			break;
		if (room)
			out[n] = nvml_handle(other);
		n++;
	}
	*count = n;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
				    nvmlGpuP2PStatus_t *status)
{
	uint64_t v[2];
	TRY(nvml_gpu(a));
	TRY(nvml_gpu(b));
	NEED(status && index <= NVML_P2P_CAPS_INDEX_PCI);
	TRY(nvml_vals(a.handle->minor, GPUSIM_OP_TOPOLOGY, (uint64_t)b.handle->minor, v, 2));
	if (index == NVML_P2P_CAPS_INDEX_NVLINK)
		*status = v[1] ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
	else if (v[1] || v[0] <= NVML_TOPOLOGY_HOSTBRIDGE)
		*status = NVML_P2P_STATUS_OK;
	else
		*status = NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

struct link {
	uint64_t active, remote, domain, bus, device, version;
};

static nvmlReturn_t read_link(nvmlDevice_t device, unsigned number, struct link *link)
{
	uint64_t v[6];
	TRY(nvml_gpu(device));
	TRY(nvml_vals(device.handle->minor, GPUSIM_OP_NVLINK, number, v, 6));
	*link = (struct link){ v[0], v[1], v[2], v[3], v[4], v[5] };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int number, nvmlEnableState_t *active)
{
	struct link link;
	NEED(active);
	TRY(read_link(device, number, &link));
	*active = link.active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int number, unsigned int *version)
{
	struct link link;
	NEED(version);
	TRY(read_link(device, number, &link));
	*version = (unsigned)link.version;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int number, nvmlNvLinkCapability_t capability,
					   unsigned int *result)
{
	struct link link;
	NEED(result && capability < NVML_NVLINK_CAP_COUNT);
	TRY(read_link(device, number, &link));
	*result = link.active && capability != NVML_NVLINK_CAP_SLI_BRIDGE;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *pci)
{
	struct link link;
	NEED(pci);
	TRY(read_link(device, number, &link));
	if (!link.active)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(pci, 0, sizeof *pci);
	pci->domain = (unsigned)link.domain;
	pci->bus = (unsigned)link.bus;
	pci->device = (unsigned)link.device;
	snprintf(pci->busId, sizeof pci->busId, NVML_DEVICE_PCI_BUS_ID_FMT, NVML_DEVICE_PCI_BUS_ID_FMT_ARGS(pci));
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xFFFF, pci->bus & 0xFF,
		 pci->device & 0xFF);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *pci)
{
	nvmlPciInfo_t whole;
	NEED(pci);
	TRY(nvmlDeviceGetNvLinkRemotePciInfo_v2(device, number, &whole));
	memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId)); /* the older struct ends there */
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int number,
	nvmlIntNvLinkDeviceType_t *type)
{
	struct link link;
	NEED(type);
	TRY(read_link(device, number, &link));
	if (!link.active)
		return NVML_ERROR_NOT_SUPPORTED;
	*type = link.remote == 1   ? NVML_NVLINK_DEVICE_TYPE_GPU
		: link.remote == 2 ? NVML_NVLINK_DEVICE_TYPE_SWITCH
				   : NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
	return NVML_SUCCESS;
}
