/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Linear memory, and what pointers stand for.
 */
#include "cuda_pool.h"

#include <stdlib.h>

#define BUCKETS 4096

static struct allocation *table[BUCKETS]; /* by address; guarded by cuda_mu */

static struct allocation **slot(CUdeviceptr ptr)
{
	return &table[(ptr / 512 * UINT64_C(0x9E3779B97F4A7C15)) >> 52]; /* no two begin in the same 512 bytes */
}
_Static_assert(BUCKETS == 1 << (64 - 52), "the hash takes the top bits");

CUresult cuda_remember(const struct allocation *from)
{
	struct allocation *a = malloc(sizeof *a);
	if (!a)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = *from;
	pthread_mutex_lock(&cuda_mu);
	a->next = *slot(a->ptr);
	*slot(a->ptr) = a;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

bool cuda_forget(CUdeviceptr ptr, struct allocation *out)
{
	pthread_mutex_lock(&cuda_mu);
	struct allocation **at = slot(ptr), *a;
	while (*at && (*at)->ptr != ptr)
		at = &(*at)->next;
	a = *at;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&cuda_mu);
	if (a)
		*out = *a;
	if (a && a->origin != HOST && a->origin != MANAGED)
		cuda_bytes_drop(a->ptr, a->bytes);
	free(a);
	return a;
}

/* Memory that shares no block takes whole multiples of 2 MiB. */
static CUresult take(struct allocation *a)
{
	const uint64_t args[GPUSIM_NARGS] = { cuda_round(a->bytes), a->context->id, GPUSIM_KIND_LINEAR };
	if (a->bytes <= BLOCK_MOST)
		return cuda_block_take(a);
	TRY(cuda_call(a->device, GPUSIM_OP_ALLOC, args, &a->handle, 1));
	a->ptr = a->handle;
	return CUDA_SUCCESS;
}

static CUresult put(const struct allocation *a)
{
	const uint64_t args[GPUSIM_NARGS] = { a->handle };
	if (a->origin == LINEAR && a->owner)
		return cuda_block_put(a);
	return cuda_call(a->device, GPUSIM_OP_FREE, args, NULL, 0);
}

static CUresult allocate(CUdeviceptr *ptr, size_t bytes)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(ptr && bytes);
	TRY(cuda_prohibited());
	if (bytes > UINT64_MAX - GRANULARITY)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct allocation a = { .bytes = bytes, .origin = LINEAR, .context = context, .device = context->device };
	TRY(take(&a));
	CUresult ret = cuda_remember(&a);
	if (ret)
		put(&a);
	else
		*ptr = a.ptr;
	return ret;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	return allocate(ptr, bytes);
}

/* Rows begin at multiples of 512 bytes. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height, unsigned element)
{
	size_t row, bytes;
	NEED(pitch && width && height && (element == 4 || element == 8 || element == 16));
	if (__builtin_add_overflow(width, (size_t)511, &row) ||
	    __builtin_mul_overflow(row / 512 * 512, height, &bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	TRY(allocate(ptr, bytes));
	*pitch = row / 512 * 512;
	return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	struct allocation a;
	TRY(cuda_enter());
	if (!ptr)
		return CUDA_SUCCESS;
	NEED(cuda_holds(ptr, 1, &a) && a.ptr == ptr && a.origin != IMPORTED && a.origin != HOST && a.origin != MODULE &&
	     a.origin != GRAPHICS);
	NEED(cuda_forget(ptr, &a));
	if (a.origin == EXTERNAL)
		return cuda_external_end(&a);
	if (a.origin == POOLED)
		return cuda_pools_settle(cuda_pool_put(&a));
	if (a.origin == MANAGED)
		cuda_managed_end(&a);
	return put(&a);
}

void cuda_forget_memory(CUcontext context)
{
	cuda_forget_blocks(context);
	for (int i = 0; i < BUCKETS; i++)
		for (struct allocation **at = &table[i]; *at;) {
			struct allocation *a = *at;
			if (a->context != context) {
				at = &a->next;
				continue;
			}
			*at = a->next;
			if (a->origin == MANAGED)
				cuda_managed_end(a);
			free(a);
		}
}

void cuda_forget_pooled(CUdevice device)
{
	for (int i = 0; i < BUCKETS; i++)
		for (;;) {
			pthread_mutex_lock(&cuda_mu);
			struct allocation **at = &table[i], *a;
			while (*at && ((*at)->origin != POOLED || (*at)->device != device))
				at = &(*at)->next;
			a = *at;
			if (a)
				*at = a->next;
			pthread_mutex_unlock(&cuda_mu);
			if (!a)
				break;
			free(a);
		}
}

bool cuda_holds(CUdeviceptr ptr, size_t bytes, struct allocation *out)
{
	bool found = false;
	pthread_mutex_lock(&cuda_mu);
	for (struct allocation *a = *slot(ptr); a && !found; a = a->next) /* most often it is the pointer itself */
		if (a->ptr == ptr && bytes <= a->bytes) {
			*out = *a;
			found = true;
		}
	for (int i = 0; i < BUCKETS && !found; i++)
		for (struct allocation *a = table[i]; a && !found; a = a->next)
			if (ptr >= a->ptr && ptr - a->ptr < a->bytes && bytes <= a->bytes - (ptr - a->ptr)) {
				*out = *a;
				found = true;
			}
	pthread_mutex_unlock(&cuda_mu);
	return found;
}

bool cuda_opened(CUdeviceptr ptr, CUcontext context, int by, unsigned *opens)
{
	pthread_mutex_lock(&cuda_mu);
	struct allocation *a = *slot(ptr);
	while (a && (a->ptr != ptr || a->origin != IMPORTED))
		a = a->next;
	if (a && a->context == context)
		a->taken += (uint64_t)(int64_t)by;
	*opens = a && a->context == context ? (unsigned)a->taken : 0;
	pthread_mutex_unlock(&cuda_mu);
	return a;
}

CUresult cuda_touch(CUdeviceptr ptr, size_t bytes)
{
	struct allocation a;
	bool held = cuda_holds(ptr, bytes, &a);
	NEED(held || cuda_mapped(ptr, bytes));
	return held && a.origin == MANAGED ? cuda_managed_move(&a, ptr, bytes, true) : CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUcontext context;
	uint64_t v[4];
	TRY(cuda_current(&context));
	NEED(free && total);
	struct device *d;
	TRY(cuda_device(context->device, &d));
	TRY(cuda_call(context->device, GPUSIM_OP_MEMORY, (const uint64_t[GPUSIM_NARGS]){ d->instance }, v, 4));
	*free = v[2];
	*total = v[0] - v[1];
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	CUcontext context;
	struct allocation a;
	TRY(cuda_current(&context));
	if (!cuda_holds(ptr, 1, &a))
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = a.ptr;
	if (bytes)
		*bytes = a.bytes;
	return CUDA_SUCCESS;
}
