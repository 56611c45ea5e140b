/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Limits of a context that cost memory: the device's heap, the buffer of printf, and the stack of each thread
 * that can run at once. What is above the default is taken when the next launch needs it, as a real context
 * does, and kept while the context lives.
 */
#include "cuda_core.h"

/* The last four cost nothing: depth of device-side synchronization, launches that it may leave pending, granularity of
 * fetches into the L2 cache, and what of this is set aside for data that stays. */
static const size_t defaults[CUDA_LIMITS] = {
	[3] = 2, [4] = 2048, [5] = 64, [6] = 0,
	[CU_LIMIT_STACK_SIZE] = 1024, [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20, [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
};

CUresult cuCtxSetLimit(int limit, size_t value)
{
	CUcontext context;
	TRY(cuda_current(&context));
	if (limit < 0 || limit >= CUDA_LIMITS)
		return CUDA_ERROR_NOT_SUPPORTED;
	NEED(value <= (size_t)1 << 46 && (limit != CU_LIMIT_STACK_SIZE || value <= 512 << 10));
	pthread_mutex_lock(&cuda_mu);
	context->limit[limit] = value < defaults[limit] ? defaults[limit] : value;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, int limit)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(value);
	if (limit < 0 || limit >= CUDA_LIMITS)
		return CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&cuda_mu);
	*value = context->limit[limit] ? context->limit[limit] : defaults[limit];
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_context_grow(CUcontext context)
{
	struct device *d;
	uint64_t handle, want = 0, args[GPUSIM_NARGS] = { 0, 0, GPUSIM_KIND_LINEAR };
	TRY(cuda_device(context->device, &d));
	pthread_mutex_lock(&cuda_mu);
	for (int i = 0; i <= CU_LIMIT_MALLOC_HEAP_SIZE; i++) {
		uint64_t above = context->limit[i] > defaults[i] ? context->limit[i] - defaults[i] : 0;
		want += i == CU_LIMIT_STACK_SIZE ? above * d->sms * d->threads_per_sm : above;
	}
	want = cuda_round(want);
	args[0] = want > context->grown ? want - context->grown : 0;
	args[1] = context->id;
	pthread_mutex_unlock(&cuda_mu);
	if (!args[0])
		return CUDA_SUCCESS;
	TRY(cuda_call(context->device, GPUSIM_OP_ALLOC, args, &handle, 1)); /* it goes with the context */
	pthread_mutex_lock(&cuda_mu);
	context->grown += args[0];
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}
