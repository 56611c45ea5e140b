/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a pointer is, by the numbers of CUpointer_attribute and CUmem_range_attribute.
 */
#include "cuda_core.h"

enum {
	CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, SYNC_MEMOPS = 6, BUFFER_ID = 7, IS_MANAGED = 8,
	DEVICE_ORDINAL = 9, IS_LEGACY_IPC_CAPABLE = 10, RANGE_START = 11, RANGE_SIZE = 12, MAPPED = 13, HANDLE_TYPES = 14,
	IS_RDMA_CAPABLE = 15, ACCESS_FLAGS = 16, POOL = 17,
};
enum { OF_HOST = 1, OF_DEVICE = 2, OF_BOTH = 4 };

static int type_of(const struct allocation *a)
{
	return a->origin == HOST ? OF_HOST : OF_DEVICE;
}

static bool host_has_it(const struct allocation *a)
{
	return a->origin == HOST || a->origin == MANAGED;
}

static CUresult attribute_of(void *out, int attribute, CUdeviceptr ptr, const struct allocation *a)
{
	switch (attribute) {
	case CONTEXT: *(CUcontext *)out = a->context; break;
	case MEMORY_TYPE: *(unsigned *)out = (unsigned)type_of(a); break;
	case DEVICE_POINTER: *(CUdeviceptr *)out = ptr; break;
	case HOST_POINTER:
		if (!host_has_it(a))
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)out = ptr;
		break;
	case SYNC_MEMOPS: *(unsigned *)out = 0; break;
	case BUFFER_ID: *(unsigned long long *)out = a->ptr / 256; break;
	case IS_MANAGED: *(unsigned *)out = a->origin == MANAGED; break;
	case DEVICE_ORDINAL: *(int *)out = a->device; break;
	case IS_LEGACY_IPC_CAPABLE: *(unsigned char *)out = a->origin == LINEAR; break;
	case RANGE_START: *(CUdeviceptr *)out = a->ptr; break;
	case RANGE_SIZE: *(size_t *)out = a->bytes; break;
	case MAPPED: *(unsigned char *)out = 1; break;
	case HANDLE_TYPES: *(unsigned long long *)out = 0; break;
	case IS_RDMA_CAPABLE: *(unsigned char *)out = 0; break;
	case ACCESS_FLAGS: *(int *)out = CU_MEM_ACCESS_FLAGS_PROT_READWRITE; break;
	case POOL: *(CUmemoryPool *)out = a->origin == POOLED ? a->owner : NULL; break;
	default: return CUDA_ERROR_NOT_SUPPORTED;
	}
	return CUDA_SUCCESS;
}

/* Memory that is mapped by handles, as linear memory. */
static bool find(CUdeviceptr ptr, struct allocation *a)
{
	CUcontext context;
	if (cuda_holds(ptr, 1, a))
		return true;
	if (!cuda_mapped(ptr, 1) || cuda_current(&context))
		return false;
	*a = (struct allocation){ .ptr = ptr, .bytes = 1, .origin = EXTERNAL, .device = context->device };
	return true;
}

API(cuPointerGetAttribute, (void *out, int attribute, CUdeviceptr ptr))
{
	struct allocation a;
	TRY(cuda_enter());
	NEED(out && find(ptr, &a));
	return attribute_of(out, attribute, ptr, &a);
}

/* Of a pointer that the driver does not know each is zero, but for the device. */
static void nothing(void *out, int attribute)
{
	switch (attribute) {
	case MEMORY_TYPE: case SYNC_MEMOPS: case IS_MANAGED: case ACCESS_FLAGS: *(unsigned *)out = 0; break;
	case DEVICE_ORDINAL: *(int *)out = -2; break; /* CU_DEVICE_INVALID */
	case IS_LEGACY_IPC_CAPABLE: case MAPPED: case IS_RDMA_CAPABLE: *(unsigned char *)out = 0; break;
	default: *(uint64_t *)out = 0; break;
	}
}

API(cuPointerGetAttributes, (unsigned n, int *attributes, void **out, CUdeviceptr ptr))
{
	struct allocation a;
	TRY(cuda_enter());
	NEED(n && attributes && out);
	bool there = find(ptr, &a);
	for (unsigned i = 0; i < n; i++) {
		CUresult ret = there ? attribute_of(out[i], attributes[i], ptr, &a) : CUDA_ERROR_INVALID_VALUE;
		if (ret == CUDA_ERROR_NOT_SUPPORTED)
			return ret;
		if (ret)
			nothing(out[i], attributes[i]);
	}
	return CUDA_SUCCESS;
}

API(cuPointerSetAttribute, (const void *value, int attribute, CUdeviceptr ptr))
{
	struct allocation a;
	TRY(cuda_enter());
	NEED(value && attribute == SYNC_MEMOPS && find(ptr, &a) && a.origin != HOST);
	return CUDA_SUCCESS;
}

/* 1: mostly read, 2: preferred place, 3: who accesses it, 4: last prefetch. Advice changes nothing here, and so there
 * is none. */
API(cuMemRangeGetAttribute, (void *out, size_t size, int attribute, CUdeviceptr ptr, size_t bytes))
{
	struct allocation a;
	TRY(cuda_enter());
	NEED(out && size && size % sizeof(int) == 0 && attribute >= 1 && attribute <= 4);
	NEED(bytes && cuda_holds(ptr, bytes, &a) && a.origin == MANAGED);
	for (size_t i = 0; i < size / sizeof(int); i++)
		((int *)out)[i] = attribute == 1 ? 0 : -2; /* CU_DEVICE_INVALID */
	return CUDA_SUCCESS;
}

API(cuMemRangeGetAttributes, (void **out, size_t *sizes, int *attributes, size_t n, CUdeviceptr ptr, size_t bytes))
{
	NEED(out && sizes && attributes && n);
	for (size_t i = 0; i < n; i++)
		TRY(cuMemRangeGetAttribute(out[i], sizes[i], attributes[i], ptr, bytes));
	return CUDA_SUCCESS;
}
