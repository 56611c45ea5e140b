/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contexts. Each costs GPU memory, which the daemon charges: creating one may fail for want of it.
 */
#include "cuda_export.h"

#include <stdlib.h>

#define STACK_DEPTH 64
#define FLAGS_MASK 0xFFu

static struct CUctx_st primary[GPUSIM_MAX_MINORS];
static struct CUctx_st *created; /* guarded by cuda_mu; entries are never taken out */
/* One creation or destruction of a device's primary context at a time; taken before cuda_mu. */
static pthread_mutex_t primary_mu[GPUSIM_MAX_MINORS] = {
	[0 ... GPUSIM_MAX_MINORS - 1] = PTHREAD_MUTEX_INITIALIZER,
};

static __thread struct {
	CUcontext at[STACK_DEPTH];
	int depth;
} stack;

/* With cuda_mu held: was this context ever given out? */
static bool known(CUcontext context)
{
	if (context >= primary && context < primary + GPUSIM_MAX_MINORS)
		return context->primary;
	for (CUcontext c = created; c; c = c->next)
		if (c == context)
			return true;
	return false;
}

static CUresult alive(CUcontext context)
{
	pthread_mutex_lock(&cuda_mu);
	CUresult ret = !context || !known(context) ? CUDA_ERROR_INVALID_CONTEXT
		       : context->id               ? CUDA_SUCCESS
						   : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	pthread_mutex_unlock(&cuda_mu);
	return ret;
}

CUresult cuda_current(CUcontext *context)
{
	TRY(cuda_enter());
	*context = stack.depth ? stack.at[stack.depth - 1] : NULL;
	TRY(alive(*context));
	if ((*context)->green_of)
		*context = (*context)->green_of;
	return alive(*context);
}

static CUresult push(CUcontext context)
{
	if (stack.depth == STACK_DEPTH)
		return CUDA_ERROR_INVALID_VALUE;
	stack.at[stack.depth++] = context;
	return CUDA_SUCCESS;
}

static CUresult start(CUcontext context, CUdevice device)
{
	uint64_t id;
	struct device *d;
	TRY(cuda_device(device, &d));
	TRY(cuda_call(device, GPUSIM_OP_CTX_CREATE, (const uint64_t[GPUSIM_NARGS]){ d->instance }, &id, 1));
	pthread_mutex_lock(&cuda_mu);
	context->device = device;
	context->id = id;
	context->api_version = 3020;
	context->done_at = context->blocking_at = context->legacy_at = 0;
	memset(context->limit, 0, sizeof context->limit);
	context->grown = 0;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

/* Forgets first, so that no other thread's free of what lived in it can reach the daemon's next context. */
static CUresult stop(CUcontext context)
{
	uint64_t args[GPUSIM_NARGS] = { 0 };
	pthread_mutex_lock(&cuda_mu);
	args[0] = context->id;
	context->id = 0;
	cuda_forget_memory(context);
	cuda_forget_streams(context);
	cuda_forget_events(context);
	pthread_mutex_unlock(&cuda_mu);
	if (args[0])
		cuda_storage_drop(context);
	if (args[0] && context->primary)
		cuda_pools_reset(context->device);
	return args[0] ? cuda_call(context->device, GPUSIM_OP_CTX_DESTROY, args, NULL, 0) : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(context);
	struct CUctx_st *c = &primary[device];
	pthread_mutex_lock(&primary_mu[device]);
	c->primary = true;
	CUresult ret = c->id ? CUDA_SUCCESS : start(c, device);
	if (!ret) {
		c->refs++;
		*context = c;
	}
	pthread_mutex_unlock(&primary_mu[device]);
	return ret;
}

/* The handle of a primary context, whether or not it is active. */
CUresult cuda_primary_of(CUcontext *context, CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(context);
	pthread_mutex_lock(&primary_mu[device]);
	primary[device].primary = true;
	pthread_mutex_unlock(&primary_mu[device]);
	*context = &primary[device];
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	struct CUctx_st *c = &primary[device];
	pthread_mutex_lock(&primary_mu[device]);
	CUresult ret = c->refs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (!ret && --c->refs == 0)
		ret = stop(c);
	pthread_mutex_unlock(&primary_mu[device]);
	return ret;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
	return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	pthread_mutex_lock(&primary_mu[device]);
	primary[device].refs = 0;
	CUresult ret = stop(&primary[device]);
	pthread_mutex_unlock(&primary_mu[device]);
	return ret;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
	return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(flags && active);
	pthread_mutex_lock(&primary_mu[device]);
	*flags = primary[device].flags;
	*active = primary[device].id != 0;
	pthread_mutex_unlock(&primary_mu[device]);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(!(flags & ~FLAGS_MASK));
	pthread_mutex_lock(&primary_mu[device]);
	primary[device].flags = flags;
	pthread_mutex_unlock(&primary_mu[device]);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuda_context_new(CUcontext *context, unsigned flags, CUdevice device, CUcontext green_of)
{
	struct CUctx_st *c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult ret = start(c, device);
	if (ret) {
		free(c);
		return ret;
	}
	c->flags = flags;
	c->green_of = green_of;
	pthread_mutex_lock(&cuda_mu);
	c->next = created;
	created = c;
	pthread_mutex_unlock(&cuda_mu);
	*context = c;
	return CUDA_SUCCESS;
}

CUresult cuda_context_end(CUcontext context)
{
	if (stack.depth && stack.at[stack.depth - 1] == context)
		stack.depth--;
	return stop(context);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
	struct device *d;
	CUcontext c;
	TRY(cuda_device(device, &d));
	NEED(context && !(flags & ~FLAGS_MASK));
	TRY(cuda_context_new(&c, flags, device, NULL));
	CUresult ret = push(c);
	if (ret)
		stop(c);
	else
		*context = c;
	return ret;
}

/* Execution affinity is not simulated; without any, the newer two are the same as the second. */
CUresult cuCtxCreate_v3(CUcontext *context, void *params, int nparams, unsigned flags, CUdevice device)
{
	if (params || nparams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device)
{
	if (params)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	TRY(cuda_enter());
	TRY(alive(context));
	if (context->primary || context->green_of)
		return CUDA_ERROR_INVALID_CONTEXT;
	return cuda_context_end(context);
}

/* A context that can be current: a primary one also before it is active, since the runtime retains it later. */
static CUresult settable(CUcontext context)
{
	CUresult ret = alive(context);
	return ret == CUDA_ERROR_CONTEXT_IS_DESTROYED && context->primary ? CUDA_SUCCESS : ret;
}

/* Replaces the top of the stack; on an error the thread keeps what it had. */
CUresult cuCtxSetCurrent(CUcontext context)
{
	TRY(cuda_enter());
	if (context)
		TRY(settable(context));
	if (stack.depth)
		stack.depth--;
	return context ? push(context) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	TRY(cuda_enter());
	NEED(context);
	*context = stack.depth ? stack.at[stack.depth - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	TRY(cuda_enter());
	TRY(alive(context));
	return push(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	TRY(cuda_enter());
	if (!stack.depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack.depth--;
	if (context)
		*context = stack.at[stack.depth];
	return CUDA_SUCCESS;
}

/* Resolves the context that a call names, or the current one for NULL. */
static CUresult named(CUcontext *context)
{
	TRY(cuda_enter());
	return *context ? alive(*context) : cuda_current(context);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
	NEED(device);
	TRY(named(&context));
	*device = context->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxGetFlags(unsigned *flags)
{
	CUcontext context;
	NEED(flags);
	TRY(cuda_current(&context));
	*flags = context->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version)
{
	NEED(version);
	TRY(named(&context));
	*version = context->api_version;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
	TRY(named(&context));
	pthread_mutex_lock(&cuda_mu);
	uint64_t when = context->done_at;
	pthread_mutex_unlock(&cuda_mu);
	TRY(cuda_wait_for(context->device, when));
	cuda_callbacks_wait(context, 0);
	return cuda_pools_settle(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
	return cuCtxSynchronize_v2(NULL);
}
