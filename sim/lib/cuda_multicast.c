/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Multicast objects: a team of GPUs, and memory of each that is bound to it, which it holds until it is unbound or the
 * object has ended. What an object itself takes of each GPU, one granule, is a guess. Objects of one process alone;
 * writes through one are not simulated.
 */
#include "cuda_core.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MAX_TEAM 32

struct binding {
	uint64_t offset, bytes;
	CUdevice device;
	struct physical *physical;
	struct binding *next;
};

struct team {
	unsigned wanted;
	_Atomic unsigned joined;
	uint64_t size;
	CUdevice device[MAX_TEAM];
	uint64_t cost[MAX_TEAM]; /* the daemon's address of what it takes there */
	struct binding *bindings;
};

static pthread_mutex_t teams_mu = PTHREAD_MUTEX_INITIALIZER; /* taken before cuda_mu */

bool cuda_team_ready(const struct team *t)
{
	return atomic_load(&t->joined) == t->wanted;
}

void cuda_team_end(struct team *t)
{
	pthread_mutex_lock(&teams_mu); /* every thread that found it is done with it */
	pthread_mutex_unlock(&teams_mu);
	for (struct binding *b = t->bindings, *next; b; b = next) {
		next = b->next;
		cuda_let_go(b->physical);
		free(b);
	}
	for (unsigned i = 0; i < t->joined; i++) {
		const uint64_t args[GPUSIM_NARGS] = { t->cost[i] };
		cuda_call(t->device[i], GPUSIM_OP_FREE, args, NULL, 0);
	}
	free(t);
}

/* NVSwitch came to multicast with Hopper. */
static bool able(const struct device *d)
{
	return d->cc_major >= 9;
}

bool cuda_multicast(CUdevice device)
{
	struct device *d;
	return cuda_device(device, &d) == CUDA_SUCCESS && able(d);
}

static CUresult check(const CUmulticastObjectProp *prop)
{
	struct device *list;
	int n;
	TRY(cuda_enter());
	NEED(prop && prop->numDevices && prop->numDevices <= MAX_TEAM && prop->size && prop->flags == 0);
	n = cuda_devices(&list);
	for (int i = 0; i < n; i++)
		if (able(&list[i]))
			return prop->handleTypes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop, int option)
{
	TRY(check(prop));
	NEED(granularity && (option == 0 || option == 1));
	*granularity = GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
	TRY(check(prop));
	NEED(handle && prop->size % GRANULARITY == 0);
	struct team *t = calloc(1, sizeof *t);
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	t->wanted = prop->numDevices;
	t->size = prop->size;
	CUresult ret = cuda_physical_of(t, t->size, handle);
	if (ret)
		free(t);
	return ret;
}

static CUresult join(struct team *t, CUdevice device)
{
	const uint64_t args[GPUSIM_NARGS] = { GRANULARITY, 0, GPUSIM_KIND_VMM };
	unsigned n = t->joined;
	if (!cuda_multicast(device))
		return CUDA_ERROR_NOT_SUPPORTED;
	NEED(n < t->wanted);
	for (unsigned i = 0; i < n; i++)
		NEED(t->device[i] != device);
	t->device[n] = device;
	TRY(cuda_call(device, GPUSIM_OP_ALLOC, args, &t->cost[n], 1));
	t->joined = n + 1;
	return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
	struct device *d;
	TRY(cuda_enter());
	TRY(cuda_device(device, &d));
	pthread_mutex_lock(&teams_mu);
	struct team *t = cuda_team(handle);
	CUresult ret = t ? join(t, device) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&teams_mu);
	return ret;
}

/* Binds what physical stands for, which is held already. */
static CUresult bind(struct team *t, uint64_t offset, struct physical *physical, uint64_t bytes)
{
	CUdevice device = cuda_physical_device(physical);
	bool member = false;
	if (!cuda_team_ready(t))
		return CUDA_ERROR_ILLEGAL_STATE;
	NEED(offset <= t->size && bytes <= t->size - offset);
	for (unsigned i = 0; i < t->joined; i++)
		member |= t->device[i] == device;
	NEED(member);
	for (const struct binding *b = t->bindings; b; b = b->next)
		NEED(b->device != device || offset >= b->offset + b->bytes || b->offset >= offset + bytes);
	struct binding *b = malloc(sizeof *b);
	if (!b)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*b = (struct binding){ offset, bytes, device, physical, t->bindings };
	t->bindings = b;
	return CUDA_SUCCESS;
}

static CUresult bind_held(CUmemGenericAllocationHandle handle, uint64_t offset, struct physical *physical,
			  uint64_t bytes)
{
	pthread_mutex_lock(&teams_mu);
	struct team *t = cuda_team(handle);
	CUresult ret = t ? bind(t, offset, physical, bytes) : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&teams_mu);
	if (ret)
		cuda_let_go(physical);
	return ret;
}

static CUresult bind_of(CUdevice device, CUmemGenericAllocationHandle handle, uint64_t offset,
	struct physical *physical,
			uint64_t bytes)
{
	if (cuda_physical_device(physical) == device)
		return bind_held(handle, offset, physical, bytes);
	cuda_let_go(physical);
	return CUDA_ERROR_INVALID_VALUE;
}

static bool whole(uint64_t offset, uint64_t bytes)
{
	return bytes && offset % GRANULARITY == 0 && bytes % GRANULARITY == 0;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
			    size_t from, size_t bytes, unsigned long long flags)
{
	struct physical *p;
	TRY(cuda_enter());
	NEED(whole(offset, bytes) && from % GRANULARITY == 0 && flags == 0);
	TRY(cuda_hold(memory, from, bytes, &p));
	return bind_held(handle, offset, p, bytes);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr ptr, size_t bytes,
			     unsigned long long flags)
{
	struct physical *p;
	TRY(cuda_enter());
	NEED(whole(offset, bytes) && ptr % GRANULARITY == 0 && flags == 0);
	TRY(cuda_hold_mapped(ptr, bytes, &p));
	return bind_held(handle, offset, p, bytes);
}

/* Since 13.1 a binding may name the GPU that it is for, which has to be that of the memory: another's is refused. */
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
			       CUmemGenericAllocationHandle memory, size_t from, size_t bytes, unsigned long long flags)
{
	struct physical *p;
	TRY(cuda_enter());
	NEED(whole(offset, bytes) && from % GRANULARITY == 0 && flags == 0);
	TRY(cuda_hold(memory, from, bytes, &p));
	return bind_of(device, handle, offset, p, bytes);
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, CUdeviceptr ptr,
				size_t bytes, unsigned long long flags)
{
	struct physical *p;
	TRY(cuda_enter());
	NEED(whole(offset, bytes) && ptr % GRANULARITY == 0 && flags == 0);
	TRY(cuda_hold_mapped(ptr, bytes, &p));
	return bind_of(device, handle, offset, p, bytes);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes)
{
	struct binding *out = NULL;
	TRY(cuda_enter());
	NEED(whole(offset, bytes));
	pthread_mutex_lock(&teams_mu);
	struct team *t = cuda_team(handle);
	for (struct binding **at = t ? &t->bindings : &out; *at;) {
		struct binding *b = *at;
		if (b->device != device || b->offset < offset || b->offset + b->bytes > offset + bytes) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		b->next = out;
		out = b;
	}
	pthread_mutex_unlock(&teams_mu);
	NEED(out);
	for (struct binding *next; out; out = next) {
		next = out->next;
		cuda_let_go(out->physical);
		free(out);
	}
	return CUDA_SUCCESS;
}
