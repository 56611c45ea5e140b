/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which GPU a device is: programs number them as they like, so UUIDs decide.
 */
#include "kerf.h"

static bool uuid_of(CUdevice device, unsigned char uuid[16])
{
	CUuuid u;
	__typeof__(&cuDeviceGetUuid) get = KERF_REAL(cuDeviceGetUuid_v2);
	if (!get)
		get = KERF_REAL(cuDeviceGetUuid);
	if (!get || get(&u, device) != CUDA_SUCCESS)
		return false;
	__builtin_memcpy(uuid, u.bytes, 16);
	return true;
}

int kerf_place(CUdevice device)
{
	unsigned char uuid[16];
	struct kerf_self *s = kerf_self();
	if (!s)
		return KERF_NO_PLACE;
	bool known = device >= 0 && device < KERF_MAX_CUDEVICES;
	int place = known ? atomic_load_explicit(&s->place[device], memory_order_relaxed) - 1 : KERF_NO_PLACE;
	if (place != KERF_NO_PLACE || !uuid_of(device, uuid))
		return place;
	place = kerf_find(uuid);
	if (known)
		atomic_store_explicit(&s->place[device], place + 1, memory_order_relaxed);
	return place;
}

CUresult kerf_here(int *place)
{
	CUdevice device;
	KERF_NEED(cuCtxGetDevice, CUDA_ERROR_NOT_INITIALIZED);
	CUresult ret = real(&device);
	if (ret == CUDA_SUCCESS)
		*place = kerf_place(device);
	return ret;
}
