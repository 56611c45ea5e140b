/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The one pool of the driver that does nothing. It gives back what its threshold does not keep when the program waits.
 * It grows by whole multiples of STUB_CHUNK bytes, if the environment has that, and counts the calls to trim.
 */
#include <pthread.h>
#include <stdlib.h>

#include "cuda_abi.h"
#include "segments.h"

#define UNIT ((uint64_t)2 << 20)

static struct segments memory;
static uint64_t threshold, next = UINT64_C(1) << 40;
static _Atomic unsigned long trims;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device)
{
	*out = device ? NULL : (CUmemoryPool)(void *)&memory;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device)
{
	return cuDeviceGetMemPool(out, device);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool p, int attribute, void *value)
{
	pthread_mutex_lock(&mu);
	*(uint64_t *)value = attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? memory.used : memory.reserved;
	pthread_mutex_unlock(&mu);
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool p, int attribute, void *value)
{
	threshold = *(uint64_t *)value;
	return p && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With the lock held. */
static void give_back(uint64_t keep, bool least)
{
	uint64_t bytes;
	while (segments_release(&memory, keep, least, &bytes))
		segments_released(&memory, bytes);
}

CUresult cuMemPoolTrimTo(CUmemoryPool p, size_t keep)
{
	trims++;
	pthread_mutex_lock(&mu);
	give_back(keep, true);
	pthread_mutex_unlock(&mu);
	return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

unsigned long stub_trims(void);
unsigned long stub_trims(void)
{
	return trims;
}

static uint64_t chunk(void)
{
	const char *text = getenv("STUB_CHUNK");
	return text ? strtoull(text, NULL, 10) : UNIT;
}

static uint64_t up(uint64_t bytes, uint64_t to)
{
	return (bytes + to - 1) / to * to;
}

/* What was allocated, by address: the address tells no size. */
static struct { uint64_t at, bytes; } live[4096];

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	const uint64_t whole = up(bytes, UNIT);
	size_t i = 0;
	(void)stream;
	pthread_mutex_lock(&mu);
	if (segments_missing(&memory, whole)) {
		segments_grow(&memory, next, up(whole, chunk()));
		next += up(whole, chunk()); /* segments may be neighbours */
	}
	*ptr = segments_take(&memory, whole);
	while (i < sizeof live / sizeof live[0] && live[i].bytes)
		i++;
	if (i == sizeof live / sizeof live[0])
		abort();
	live[i].at = *ptr;
	live[i].bytes = whole;
	pthread_mutex_unlock(&mu);
	return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	CUresult ret = CUDA_ERROR_INVALID_VALUE;
	(void)stream;
	pthread_mutex_lock(&mu);
	for (size_t i = 0; i < sizeof live / sizeof live[0] && ret; i++)
		if (live[i].bytes && live[i].at == ptr) {
			segments_put(&memory, ptr, live[i].bytes);
			live[i].bytes = 0;
			ret = CUDA_SUCCESS;
		}
	pthread_mutex_unlock(&mu);
	return ret;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	(void)stream;
	pthread_mutex_lock(&mu);
	give_back(threshold, false);
	pthread_mutex_unlock(&mu);
	return CUDA_SUCCESS;
}
