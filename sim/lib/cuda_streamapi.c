/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What streams are, attributes of streams, and managed memory that is attached to them.
 */
#include "cuda_core.h"

/* CUstreamAttrID */
enum { ACCESS_POLICY_WINDOW = 1, SYNCHRONIZATION_POLICY = 3 };

static CUresult number_of(CUstream stream, unsigned long long *id, bool per_thread)
{
	uint64_t number;
	NEED(id);
	TRY(cuda_stream_id(stream, per_thread, &number));
	*id = number;
	return CUDA_SUCCESS;
}
STREAM_API(cuStreamGetId, _ptsz, (CUstream stream, unsigned long long *id), number_of(stream, id, per_thread))

static CUresult device_of(CUstream stream, CUdevice *device, bool per_thread)
{
	CUcontext context;
	NEED(device);
	TRY(cuda_prohibited()); /* see cuDeviceGetDefaultMemPool */
	TRY(per_thread ? cuStreamGetCtx_ptsz(stream, &context) : cuStreamGetCtx(stream, &context));
	*device = context->device;
	return CUDA_SUCCESS;
}
STREAM_API(cuStreamGetDevice, _ptsz, (CUstream stream, CUdevice *device), device_of(stream, device, per_thread))

static CUresult priority_of(CUstream stream, int *priority, bool per_thread)
{
	unsigned flags;
	NEED(priority);
	return cuda_stream_settings(stream, per_thread, &flags, priority);
}
STREAM_API(cuStreamGetPriority, _ptsz, (CUstream stream, int *priority), priority_of(stream, priority, per_thread))

static CUresult flags_of(CUstream stream, unsigned *flags, bool per_thread)
{
	int priority;
	NEED(flags);
	return cuda_stream_settings(stream, per_thread, flags, &priority);
}
STREAM_API(cuStreamGetFlags, _ptsz, (CUstream stream, unsigned *flags), flags_of(stream, flags, per_thread))

static CUresult attach(CUstream stream, CUdeviceptr ptr, size_t bytes, unsigned flags, bool per_thread)
{
	struct allocation a;
	uint64_t id;
	TRY(cuda_stream_id(stream, per_thread, &id));
	NEED(flags == 1 || flags == 2 || flags == 4);
	NEED(cuda_holds(ptr, 1, &a) && a.origin == MANAGED && a.ptr == ptr && (!bytes || bytes == a.bytes));
	return CUDA_SUCCESS;
}
STREAM_API(cuStreamAttachMemAsync, _ptsz, (CUstream stream, CUdeviceptr ptr, size_t bytes, unsigned flags),
	   attach(stream, ptr, bytes, flags, per_thread))

/* Values are taken, and read as their defaults: they change nothing. */
static CUresult attribute(CUstream stream, int which, void *value, bool get, bool per_thread)
{
	uint64_t id;
	TRY(cuda_stream_id(stream, per_thread, &id));
	NEED(value && (which == ACCESS_POLICY_WINDOW || which == SYNCHRONIZATION_POLICY));
	if (get && which == ACCESS_POLICY_WINDOW)
		memset(value, 0, 32);
	else if (get)
		*(int *)value = 1; /* automatic */
	return CUDA_SUCCESS;
}
STREAM_API(cuStreamGetAttribute, _ptsz, (CUstream stream, int which, void *value),
	attribute(stream, which, value, true, per_thread))
STREAM_API(cuStreamSetAttribute, _ptsz, (CUstream stream, int which, void *value),
	attribute(stream, which, value, false, per_thread))

static CUresult copy_attributes(CUstream to, CUstream from, bool per_thread)
{
	uint64_t id;
	TRY(cuda_stream_id(to, per_thread, &id));
	return cuda_stream_id(from, per_thread, &id);
}
STREAM_API(cuStreamCopyAttributes, _ptsz, (CUstream to, CUstream from), copy_attributes(to, from, per_thread))
