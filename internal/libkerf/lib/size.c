/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The size of a GPU as the program is to see it: the limit, and what is left of it. Never more is said to be free
 * than the driver has.
 */
#include <string.h>

#include "kerf.h"

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static unsigned narrow(uint64_t bytes)
{
	return (unsigned)least(bytes, UINT32_MAX);
}

/* The room that this process took for its contexts and does not need is free when the agent has seen them. Programs
 * size their pools by what is free. */
static void seen_size(int place, uint64_t *limit, uint64_t *used)
{
	kerf_await_own(place);
	kerf_size(place, limit, used);
}

static CUresult shown(uint64_t *free, uint64_t *total)
{
	int place;
	uint64_t limit, used;
	CUresult ret = kerf_here(&place);
	if (ret)
		return ret;
	kerf_pools(place);
	seen_size(place, &limit, &used);
	*free = least(*free, limit - used);
	*total = limit;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	KERF_NEED(cuMemGetInfo_v2, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(free, total);
	uint64_t left = ret ? 0 : *free, all = 0;
	if (!ret)
		ret = shown(&left, &all);
	if (!ret) {
		*free = left;
		*total = all;
	}
	return ret;
}

CUresult cuMemGetInfo(unsigned *free, unsigned *total)
{
	KERF_NEED(cuMemGetInfo, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(free, total);
	uint64_t left = ret ? 0 : *free, all = 0;
	if (!ret)
		ret = shown(&left, &all);
	if (!ret) {
		*free = narrow(left);
		*total = narrow(all);
	}
	return ret;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	uint64_t limit, used;
	KERF_NEED(cuDeviceTotalMem_v2, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(bytes, device);
	if (ret)
		return ret;
	kerf_size(kerf_place(device), &limit, &used);
	*bytes = limit;
	return ret;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
	uint64_t limit, used;
	KERF_NEED(cuDeviceTotalMem, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(bytes, device);
	if (ret)
		return ret;
	kerf_size(kerf_place(device), &limit, &used);
	*bytes = narrow(limit);
	return ret;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F'
		? c - 'A' + 10 : -1;
}

/* "GPU-" or, for a MIG instance, "MIG-", and 32 hex digits with dashes between them. */
static int nvml_place(void *device)
{
	char text[96] = { 0 };
	unsigned char uuid[16] = { 0 };
	int n = 0;
	__typeof__(&nvmlDeviceGetUUID) get = KERF_REAL(nvmlDeviceGetUUID);
	if (!get || get(device, text, sizeof text) != 0 || (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0))
		return KERF_NO_PLACE;
	for (const char *c = text + 4; *c && n < 32; c++)
		if (digit(*c) >= 0) {
			uuid[n / 2] = (unsigned char)(uuid[n / 2] << 4 | digit(*c));
			n++;
		}
	return n == 32 ? kerf_find(uuid) : KERF_NO_PLACE;
}

int nvmlDeviceGetMemoryInfo(void *device, nvmlMemory_t *memory)
{
	uint64_t limit, used;
	KERF_NEED(nvmlDeviceGetMemoryInfo, NVML_ERROR_FUNCTION_NOT_FOUND);
	int ret = real(device, memory);
	if (ret)
		return ret;
	seen_size(nvml_place(device), &limit, &used);
	memory->free = least(memory->free, limit - used);
	memory->total = limit;
	memory->used = limit - memory->free;
	return ret;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, nvmlMemory_v2_t *memory)
{
	uint64_t limit, used;
	KERF_NEED(nvmlDeviceGetMemoryInfo_v2, NVML_ERROR_FUNCTION_NOT_FOUND);
	int ret = real(device, memory);
	if (ret)
		return ret;
	seen_size(nvml_place(device), &limit, &used);
	memory->free = least(memory->free, limit - used);
	memory->reserved = 0; /* the driver's own is not part of a limit */
	memory->total = limit;
	memory->used = limit - memory->free;
	return ret;
}

/* A process that has the driver is one that counts, also before it allocates. */
CUresult cuInit(unsigned flags)
{
	KERF_NEED(cuInit, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(flags);
	if (ret == CUDA_SUCCESS)
		kerf_register();
	return ret;
}
