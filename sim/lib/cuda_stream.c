/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Streams over simulated time. Only launches, and copies within a GPU, take time. A stream is a moment at
 * which its work will be done, by the clock of cuda_clock.c.
 */
#include "cuda_core.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Streams are kept for good, like contexts. */
struct CUstream_st {
	uint64_t id; /* 0: destroyed */
	CUcontext context;
	bool non_blocking;
	int priority;
	uint64_t done_at;
	uint64_t memory; /* the daemon's address of what it takes; 0: nothing */
	CUgraph capture; /* NULL: it runs what it is given */
	struct CUstream_st *next;
};

static struct CUstream_st *streams; /* guarded by cuda_mu, like last_id */
static uint64_t last_id;
static __thread struct CUstream_st own; /* the per-thread default stream, for whichever context is current */

uint64_t cuda_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void cuda_sleep_until(uint64_t when)
{
	struct timespec ts = { .tv_sec = (time_t)(when / 1000000000u), .tv_nsec = (long)(when % 1000000000u) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

/* The default stream: the legacy one waits for every blocking stream of its context and they for it, so its
 * moment is the last of theirs. */
static bool is_legacy(CUstream stream, bool per_thread)
{
	return stream == CU_STREAM_LEGACY || (!stream && !per_thread);
}

/* With cuda_mu held. NULL: not there. */
static struct CUstream_st *find(CUstream stream, bool per_thread, CUcontext current)
{
	if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread)) {
		if (own.context != current)
			own = (struct CUstream_st){ .context = current };
		if (!own.id)
			own.id = ++last_id;
		return &own;
	}
	for (struct CUstream_st *s = streams; s; s = s->next)
		if (s == stream && s->id)
			return s;
	return NULL;
}

CUresult cuda_stream_busy_until(CUstream stream, bool per_thread, uint64_t *when)
{
	CUcontext context;
	TRY(cuda_current(&context));
	CUresult ret = CUDA_SUCCESS;
	pthread_mutex_lock(&cuda_mu);
	if (is_legacy(stream, per_thread)) {
		*when = context->blocking_at;
	} else {
		const struct CUstream_st *s = find(stream, per_thread, context);
		if (s)
			*when = s->done_at;
		else
			ret = CUDA_ERROR_INVALID_HANDLE;
	}
	pthread_mutex_unlock(&cuda_mu);
	return ret;
}

CUresult cuda_stream_after(CUstream stream, bool per_thread, uint64_t *when)
{
	CUcontext context;
	TRY(cuda_stream_busy_until(stream, per_thread, when));
	TRY(cuda_current(&context));
	pthread_mutex_lock(&cuda_mu);
	const struct CUstream_st *s = is_legacy(stream, per_thread) ? NULL : find(stream, per_thread, context);
	if (s && !s->non_blocking && *when < s->context->legacy_at)
		*when = s->context->legacy_at;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuda_stream_id(CUstream stream, bool per_thread, uint64_t *id)
{
	CUcontext context;
	TRY(cuda_current(&context));
	*id = 0;
	if (is_legacy(stream, per_thread))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&cuda_mu);
	const struct CUstream_st *s = find(stream, per_thread, context);
	if (s)
		*id = s->id;
	pthread_mutex_unlock(&cuda_mu);
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuda_stream_settings(CUstream stream, bool per_thread, unsigned *flags, int *priority)
{
	CUcontext context;
	TRY(cuda_current(&context));
	*flags = 0;
	*priority = 0;
	if (is_legacy(stream, per_thread))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&cuda_mu);
	const struct CUstream_st *s = find(stream, per_thread, context);
	if (s) {
		*flags = s->non_blocking ? CU_STREAM_NON_BLOCKING : 0;
		*priority = s->priority;
	}
	pthread_mutex_unlock(&cuda_mu);
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuda_stream_context(CUstream stream, bool per_thread, CUcontext *context)
{
	CUcontext here;
	uint64_t id;
	NEED(context);
	TRY(cuda_stream_id(stream, per_thread, &id));
	TRY(cuda_current(&here));
	pthread_mutex_lock(&cuda_mu);
	const struct CUstream_st *s = is_legacy(stream, per_thread) ? NULL : find(stream, per_thread, here);
	*context = s ? s->context : here;
	pthread_mutex_unlock(&cuda_mu);
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	return cuda_stream_context(stream, false, context);
}

CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context)
{
	return cuda_stream_context(stream, true, context);
}

static void later(uint64_t *when, uint64_t than)
{
	if (*when < than)
		*when = than;
}

void cuda_stream_extend(CUstream stream, bool per_thread, uint64_t when)
{
	CUcontext context;
	if (cuda_current(&context))
		return;
	pthread_mutex_lock(&cuda_mu);
	struct CUstream_st *s = is_legacy(stream, per_thread) ? NULL : find(stream, per_thread, context);
	later(&context->done_at, when);
	if (!s || !s->non_blocking)
		later(&context->blocking_at, when);
	later(s ? &s->done_at : &context->legacy_at, when);
	pthread_mutex_unlock(&cuda_mu);
}

CUresult cuda_stream_capture(CUstream stream, bool per_thread, CUgraph *graph)
{
	CUcontext context;
	TRY(cuda_current(&context));
	*graph = NULL;
	if (is_legacy(stream, per_thread))
		return CUDA_SUCCESS; /* it cannot be captured */
	pthread_mutex_lock(&cuda_mu);
	const struct CUstream_st *s = find(stream, per_thread, context);
	if (s)
		*graph = s->capture;
	pthread_mutex_unlock(&cuda_mu);
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuda_stream_set_capture(CUstream stream, bool per_thread, CUgraph graph)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(!is_legacy(stream, per_thread));
	pthread_mutex_lock(&cuda_mu);
	struct CUstream_st *s = find(stream, per_thread, context);
	if (s)
		s->capture = graph;
	pthread_mutex_unlock(&cuda_mu);
	return s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void cuda_forget_streams(CUcontext context)
{
	for (struct CUstream_st *s = streams; s; s = s->next)
		if (s->context == context)
			s->id = 0;
}

/* What a driver takes for a stream is the context's, and ends with it at the latest. */
static CUresult take_memory(CUcontext context, uint64_t *address)
{
	struct device *d;
	TRY(cuda_device(context->device, &d));
	*address = 0;
	if (!d->stream_bytes)
		return CUDA_SUCCESS;
	return cuda_call(context->device, GPUSIM_OP_ALLOC,
		(const uint64_t[GPUSIM_NARGS]){ d->stream_bytes, context->id, GPUSIM_KIND_LINEAR }, address, 1);
}

static CUresult free_memory(CUcontext context, uint64_t address)
{
	if (!address)
		return CUDA_SUCCESS;
	return cuda_call(context->device, GPUSIM_OP_FREE, (const uint64_t[GPUSIM_NARGS]){ address }, NULL, 0);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	CUcontext context;
	uint64_t memory;
	TRY(cuda_current(&context));
	NEED(stream && !(flags & ~(unsigned)CU_STREAM_NON_BLOCKING));
	TRY(take_memory(context, &memory));
	pthread_mutex_lock(&cuda_mu);
	struct CUstream_st *s = streams;
	while (s && s->id)
		s = s->next;
	if (!s && (s = calloc(1, sizeof *s))) {
		s->next = streams;
		streams = s;
	}
	if (s) {
		s->id = ++last_id;
		s->context = context;
		s->non_blocking = flags & CU_STREAM_NON_BLOCKING;
		s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority; /* known, and without effect */
		s->done_at = 0;
		s->memory = memory;
		s->capture = NULL;
		*stream = s;
	}
	pthread_mutex_unlock(&cuda_mu);
	if (s)
		return CUDA_SUCCESS;
	free_memory(context, memory);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

/* Work that is under way goes on; the context still waits for it. */
CUresult cuStreamDestroy_v2(CUstream stream)
{
	TRY(cuda_enter());
	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&cuda_mu);
	struct CUstream_st *s = find(stream, false, NULL);
	struct CUstream_st was = s ? *s : (struct CUstream_st){ 0 };
	if (s)
		s->id = 0;
	pthread_mutex_unlock(&cuda_mu);
	return s ? free_memory(was.context, was.memory) : CUDA_ERROR_INVALID_HANDLE;
}

/* A captured stream runs nothing that could be waited for. */
static CUresult state_of(CUstream stream, bool per_thread, CUcontext *context, CUdevice *device, uint64_t *id,
			 uint64_t *when)
{
	CUcontext owner;
	CUgraph graph;
	TRY(cuda_stream_capture(stream, per_thread, &graph));
	if (graph)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	TRY(cuda_current(context));
	TRY(cuda_stream_id(stream, per_thread, id));
	TRY(cuda_stream_context(stream, per_thread, &owner));
	*device = owner->device;
	return cuda_stream_busy_until(stream, per_thread, when);
}

static CUresult query(CUstream stream, bool per_thread)
{
	CUcontext context;
	CUdevice device;
	struct cuda_moment m;
	uint64_t id, when;
	TRY(state_of(stream, per_thread, &context, &device, &id, &when));
	TRY(cuda_moment(device, when, &m));
	return !m.passed || cuda_callbacks_pending(context, id) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream, bool per_thread)
{
	CUcontext context;
	CUdevice device;
	uint64_t id, when;
	TRY(state_of(stream, per_thread, &context, &device, &id, &when));
	TRY(cuda_wait_for(device, when));
	cuda_callbacks_wait(context, id);
	return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
	return query(stream, false);
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
	return query(stream, true);
}

CUresult cuStreamSynchronize(CUstream stream)
{
	return cuda_pools_settle(synchronize(stream, false));
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return cuda_pools_settle(synchronize(stream, true));
}
