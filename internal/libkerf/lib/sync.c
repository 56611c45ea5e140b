/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Waiting. A pool gives back what was freed of it, beyond what it is to keep, when the program next waits for a
 * stream, an event or a context; another process may be waiting for that memory. A measurement may have ended by then.
 */
#include "throttle.h"

static CUresult waited(CUresult ret)
{
	struct kerf_self *s = kerf_self();
	kerf_look();
	if (s && atomic_load_explicit(&s->freed, memory_order_relaxed) && atomic_exchange(&s->freed, false))
		kerf_pools(KERF_ALL_PLACES);
	return ret;
}

CUresult cuStreamSynchronize(CUstream stream)
{
	KERF_NEED(cuStreamSynchronize, CUDA_ERROR_NOT_INITIALIZED);
	return waited(real(stream));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	KERF_NEED(cuStreamSynchronize_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	return waited(real(stream));
}

CUresult cuEventSynchronize(CUevent event)
{
	KERF_NEED(cuEventSynchronize, CUDA_ERROR_NOT_INITIALIZED);
	return waited(real(event));
}

CUresult cuCtxSynchronize(void)
{
	KERF_NEED(cuCtxSynchronize, CUDA_ERROR_NOT_INITIALIZED);
	return waited(real());
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
	KERF_NEED(cuCtxSynchronize_v2, CUDA_ERROR_NOT_INITIALIZED);
	return waited(real(context));
}
