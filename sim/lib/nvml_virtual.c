/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Virtual GPUs: the simulated machines have none.
 */
#include "nvml_core.h"

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode)
{
	TRY(nvml_gpu(device));
	NEED(mode);
	*mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
	return NVML_SUCCESS;
}
