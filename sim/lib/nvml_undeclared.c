/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Excluded GPUs, and functions that each driver exports but the header does not declare: the earlier names of the
 * functions for excluded GPUs, and tables of functions for NVIDIA's tools. The simulator excludes no GPU and has no
 * table.
 */
#include "nvml_core.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *count);
EXPORTED nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info);
EXPORTED nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id);

/* NVML documents no error for a library that is not initialized. */
nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count)
{
	NEED(count);
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info)
{
	(void)index;
	(void)info;
	return NVML_ERROR_INVALID_ARGUMENT; /* no index is below the count */
}

nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *count)
{
	return nvmlGetExcludedDeviceCount(count);
}

nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info)
{
	return nvmlGetExcludedDeviceInfoByIndex(index, info);
}

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
	NEED(table && id);
	*table = NULL;
	return NVML_ERROR_NOT_SUPPORTED;
}
