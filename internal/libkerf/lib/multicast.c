/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory that is bound to multicast objects, which hold it when its handle has gone. An object is an entry
 * like physical memory, of no bytes: what the driver takes for one is overhead. Its field physical is the list of
 * what is bound to it: key is the offset, physical what it holds.
 */
#include "kerf.h"

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
	KERF_NEED(cuMulticastCreate, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *team = kerf_entry(), *named = team ? kerf_entry() : NULL;
	pthread_mutex_t *held = named ? kerf_lock_handles() : NULL;
	CUresult ret = held ? real(handle, prop) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!ret) {
		team->kind = KERF_TEAM;
		team->key = 1;
		team->place = KERF_NO_PLACE;
		named->kind = KERF_HANDLE;
		named->key = *handle;
		named->bytes = 1;
		named->physical = team;
		kerf_put(named);
	}
	if (held)
		pthread_mutex_unlock(held);
	if (ret && named)
		kerf_drop(named);
	if (ret && team)
		kerf_drop(team);
	return ret;
}

/* With handles held: the object behind a handle; NULL: another process made it, or it is none. */
static struct kerf_entry *team_of(CUmemGenericAllocationHandle handle)
{
	struct kerf_entry *named = kerf_remove(KERF_HANDLE, handle);
	if (!named)
		return NULL;
	kerf_put(named);
	return named->physical->kind == KERF_TEAM ? named->physical : NULL;
}

void kerf_team_ended(struct kerf_entry *team)
{
	for (struct kerf_entry *b = team->physical, *next; b; b = next) {
		next = b->next;
		kerf_let_go(b->physical);
		kerf_drop(b);
	}
}

/* After the driver has bound it, with handles held. */
static void bound(CUmemGenericAllocationHandle handle, uint64_t offset, struct kerf_entry *physical,
	struct kerf_entry *e)
{
	struct kerf_entry *team = team_of(handle);
	if (!team || !physical) { /* another process's memory, or another kind of it */
		if (physical)
			kerf_let_go(physical);
		kerf_drop(e);
		return;
	}
	e->key = offset;
	e->physical = physical;
	e->next = team->physical;
	team->physical = e;
}

static struct kerf_entry *at(CUdeviceptr ptr)
{
	struct kerf_entry *m = kerf_covering(KERF_MAPPING, ptr);
	if (!m)
		return NULL;
	m->physical->key++;
	return m->physical;
}

/* Calls the driver, and on success notes what was bound. */
#define BIND(call, handle, offset, physical)                                 \
	struct kerf_entry *e = kerf_entry();                                 \
	pthread_mutex_t *held = e ? kerf_lock_handles() : NULL;              \
	CUresult ret = held ? (call) : CUDA_ERROR_OUT_OF_MEMORY;             \
	if (!ret)                                                            \
		bound(handle, offset, physical, e);                          \
	else if (e)                                                          \
		kerf_drop(e);                                                \
	if (held)                                                            \
		pthread_mutex_unlock(held);                                  \
	return ret

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
			    size_t from, size_t bytes, unsigned long long flags)
{
	KERF_NEED(cuMulticastBindMem, CUDA_ERROR_NOT_INITIALIZED);
	BIND(real(handle, offset, memory, from, bytes, flags), handle, offset, kerf_hold(memory));
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
			       CUmemGenericAllocationHandle memory, size_t from, size_t bytes, unsigned long long flags)
{
	KERF_NEED(cuMulticastBindMem_v2, CUDA_ERROR_NOT_INITIALIZED);
	BIND(real(handle, device, offset, memory, from, bytes, flags), handle, offset, kerf_hold(memory));
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr ptr, size_t bytes,
			     unsigned long long flags)
{
	KERF_NEED(cuMulticastBindAddr, CUDA_ERROR_NOT_INITIALIZED);
	BIND(real(handle, offset, ptr, bytes, flags), handle, offset, at(ptr));
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, CUdeviceptr ptr,
				size_t bytes, unsigned long long flags)
{
	KERF_NEED(cuMulticastBindAddr_v2, CUDA_ERROR_NOT_INITIALIZED);
	BIND(real(handle, device, offset, ptr, bytes, flags), handle, offset, at(ptr));
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes)
{
	KERF_NEED(cuMulticastUnbind, CUDA_ERROR_NOT_INITIALIZED);
	pthread_mutex_t *held = kerf_lock_handles();
	CUresult ret = real(handle, device, offset, bytes);
	struct kerf_entry *team = held && !ret ? team_of(handle) : NULL, **from = team ? &team->physical : NULL;
	int place = team ? kerf_place(device) : KERF_NO_PLACE;
	while (from && *from) {
		struct kerf_entry *b = *from;
		if (b->physical->place != place || b->key - offset >= bytes) {
			from = &b->next;
			continue;
		}
		*from = b->next;
		kerf_let_go(b->physical);
		kerf_drop(b);
	}
	if (held)
		pthread_mutex_unlock(held);
	return ret;
}
