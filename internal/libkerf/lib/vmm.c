/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory with handles and mappings. It goes back when the last of them does, so it is a separate entry,
 * in no table: bytes and place, and as its key how many handles and mappings hold it. A handle's entry counts
 * in bytes how often the program has to release it. What another process exported is that one's. All of it is
 * guarded by handles, which is held while the driver is asked: it gives released handles' numbers out again.
 */
#include "kerf.h"

#define GRANULE ((uint64_t)2 << 20) /* the least that a mapping can have */

pthread_mutex_t *kerf_lock_handles(void)
{
	struct kerf_self *s = kerf_self();
	if (s)
		pthread_mutex_lock(&s->handles);
	return s ? &s->handles : NULL;
}

void kerf_let_go(struct kerf_entry *physical)
{
	if (--physical->key)
		return;
	if (physical->kind == KERF_TEAM)
		kerf_team_ended(physical);
	kerf_give(physical->place, physical->bytes);
	kerf_drop(physical);
}

struct kerf_entry *kerf_hold(CUmemGenericAllocationHandle handle)
{
	struct kerf_entry *named = kerf_remove(KERF_HANDLE, handle);
	if (!named)
		return NULL;
	named->physical->key++;
	kerf_put(named);
	return named->physical;
}

static void put(struct kerf_entry *e, int kind, uint64_t key, uint64_t bytes, struct kerf_entry *physical)
{
	e->kind = kind;
	e->key = key;
	e->bytes = bytes;
	e->physical = physical;
	kerf_put(e);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags)
{
	struct kerf_charge c;
	KERF_NEED(cuMemCreate, CUDA_ERROR_NOT_INITIALIZED);
	if (!prop || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return real(handle, bytes, prop, flags);
	CUresult ret = kerf_begin(&c, kerf_place(prop->location.id), bytes);
	if (ret)
		return ret;
	struct kerf_entry *named = kerf_entry();
	pthread_mutex_t *held = named ? kerf_lock_handles() : NULL;
	ret = held ? real(handle, bytes, prop, flags) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!ret) {
		c.entry->key = 1;
		c.entry->bytes = bytes;
		c.entry->place = c.place;
		put(named, KERF_HANDLE, *handle, 1, c.entry);
	}
	if (held)
		pthread_mutex_unlock(held);
	if (ret)
		kerf_cancel(&c);
	if (ret && named)
		kerf_drop(named);
	return ret;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	KERF_NEED(cuMemRelease, CUDA_ERROR_NOT_INITIALIZED);
	pthread_mutex_t *held = kerf_lock_handles();
	if (!held)
		return real(handle);
	CUresult ret = real(handle);
	struct kerf_entry *e = ret ? NULL : kerf_remove(KERF_HANDLE, handle);
	if (e) {
		kerf_let_go(e->physical);
		if (--e->bytes)
			kerf_put(e);
		else
			kerf_drop(e);
	}
	pthread_mutex_unlock(held);
	return ret;
}

/* One more holder of a handle; false: it is not known. */
static bool hold_again(CUmemGenericAllocationHandle handle)
{
	struct kerf_entry *e = kerf_remove(KERF_HANDLE, handle);
	if (!e)
		return false;
	e->bytes++;
	e->physical->key++;
	kerf_put(e);
	return true;
}

/* The handle may be another one than memory was made with. */
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	KERF_NEED(cuMemRetainAllocationHandle, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_entry();
	pthread_mutex_t *held = e ? kerf_lock_handles() : NULL;
	if (!held)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = real(handle, address);
	struct kerf_entry *mapping = NULL;
	if (!ret && !hold_again(*handle))
		mapping = kerf_covering(KERF_MAPPING, (uint64_t)(uintptr_t)address);
	if (mapping) {
		mapping->physical->key++;
		put(e, KERF_HANDLE, *handle, 1, mapping->physical);
	} else {
		kerf_drop(e);
	}
	pthread_mutex_unlock(held);
	return ret;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *from, int type)
{
	KERF_NEED(cuMemImportFromShareableHandle, CUDA_ERROR_NOT_INITIALIZED);
	pthread_mutex_t *held = kerf_lock_handles();
	CUresult ret = real(handle, from, type);
	if (held && !ret)
		hold_again(*handle); /* its own memory, which has come back to it */
	if (held)
		pthread_mutex_unlock(held);
	return ret;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	KERF_NEED(cuMemMap, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_entry *e = kerf_entry();
	pthread_mutex_t *held = e ? kerf_lock_handles() : NULL;
	if (!held)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = real(ptr, bytes, offset, handle, flags);
	struct kerf_entry *named = ret ? NULL : kerf_remove(KERF_HANDLE, handle);
	if (named) {
		named->physical->key++;
		put(e, KERF_MAPPING, ptr, bytes, named->physical);
		kerf_put(named);
	} else {
		kerf_drop(e);
	}
	pthread_mutex_unlock(held);
	return ret;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	KERF_NEED(cuMemUnmap, CUDA_ERROR_NOT_INITIALIZED);
	pthread_mutex_t *held = kerf_lock_handles();
	CUresult ret = real(ptr, bytes);
	for (uint64_t at = ptr; held && !ret && at - ptr < bytes;) {
		struct kerf_entry *e = kerf_remove(KERF_MAPPING, at);
		at += e ? e->bytes : GRANULE;
		if (e) {
			kerf_let_go(e->physical);
			kerf_drop(e);
		}
	}
	if (held)
		pthread_mutex_unlock(held);
	return ret;
}
