/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Events. One that waits for work is a moment of the clock of its device, until it has passed; then it is a time.
 */
#include "cuda_core.h"

#include <stdlib.h>

/* Events are kept for good, like contexts. */
struct CUevent_st {
	bool live, timing, recorded;
	CUcontext context;
	CUdevice device; /* of the clock */
	uint64_t at;	 /* the moment of the clock */
	uint64_t real;	 /* when it passed; 0: not known */
	struct CUevent_st *next;
};

static struct CUevent_st *events; /* guarded by cuda_mu */

void cuda_forget_events(CUcontext context)
{
	for (struct CUevent_st *e = events; e; e = e->next)
		if (e->context == context)
			e->live = false;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	CUcontext context;
	TRY(cuda_current(&context));
	NEED(event && !(flags & ~7u));
	pthread_mutex_lock(&cuda_mu);
	struct CUevent_st *e = events;
	while (e && e->live)
		e = e->next;
	if (!e && (e = calloc(1, sizeof *e))) {
		e->next = events;
		events = e;
	}
	if (e) {
		e->live = true;
		e->timing = !(flags & CU_EVENT_DISABLE_TIMING);
		e->recorded = false;
		e->context = context;
		*event = e;
	}
	pthread_mutex_unlock(&cuda_mu);
	return e ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Copies an event out under the mutex, after change (may be NULL) was applied to it. */
static CUresult with_event(CUevent event, void (*change)(struct CUevent_st *, const struct CUevent_st *),
			   const struct CUevent_st *arg, struct CUevent_st *out)
{
	TRY(cuda_enter());
	CUresult ret = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&cuda_mu);
	for (struct CUevent_st *e = events; e; e = e->next)
		if (e == event && e->live) {
			if (change)
				change(e, arg);
			*out = *e;
			ret = CUDA_SUCCESS;
			break;
		}
	pthread_mutex_unlock(&cuda_mu);
	return ret;
}

static void destroy(struct CUevent_st *e, const struct CUevent_st *unused)
{
	(void)unused;
	e->live = false;
}

static void set(struct CUevent_st *e, const struct CUevent_st *to)
{
	e->recorded = true;
	e->device = to->device;
	e->at = to->at;
	e->real = to->real;
}

/* It has not been recorded again meanwhile. */
static void set_passed(struct CUevent_st *e, const struct CUevent_st *was)
{
	if (e->at == was->at && e->device == was->device)
		e->real = was->real;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	struct CUevent_st e;
	return with_event(event, destroy, NULL, &e);
}

static CUresult record(CUevent event, CUstream stream, bool per_thread)
{
	struct CUevent_st e, to = { 0 };
	struct cuda_moment m;
	CUcontext context;
	uint64_t now = cuda_now();
	TRY(cuda_stream_busy_until(stream, per_thread, &to.at));
	TRY(cuda_stream_context(stream, per_thread, &context));
	to.device = context->device;
	TRY(cuda_moment(to.device, to.at, &m));
	if (m.passed)
		to.at = to.real = now; /* the stream has nothing to do */
	return with_event(event, set, &to, &e);
}

/* A copy of an event: with real if it has passed. One that was not recorded has. */
static CUresult see(CUevent event, struct CUevent_st *e, bool *passed)
{
	struct cuda_moment m;
	TRY(with_event(event, NULL, NULL, e));
	*passed = !e->recorded || e->real;
	if (*passed)
		return CUDA_SUCCESS;
	TRY(cuda_moment(e->device, e->at, &m));
	*passed = m.passed;
	if (!m.passed)
		return CUDA_SUCCESS;
	struct CUevent_st was = *e;
	was.real = m.real;
	return with_event(event, set_passed, &was, e);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return record(event, stream, false);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	return record(event, stream, true);
}

static CUresult record_with(CUevent event, CUstream stream, unsigned flags, bool per_thread)
{
	NEED(flags <= 1);
	return record(event, stream, per_thread);
}

STREAM_API(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream stream, unsigned flags),
	record_with(event, stream, flags, per_thread))

static CUresult wait_for(CUstream stream, CUevent event, unsigned flags, bool per_thread)
{
	struct CUevent_st e;
	struct cuda_moment m;
	CUcontext context;
	uint64_t id;
	NEED(flags <= 1);
	TRY(cuda_stream_id(stream, per_thread, &id));
	TRY(with_event(event, NULL, NULL, &e));
	if (!e.recorded || e.real)
		return CUDA_SUCCESS;
	TRY(cuda_stream_context(stream, per_thread, &context));
	m.soonest = e.at;
	if (context->device != e.device) /* by another clock: not before that time, which may be too soon */
		TRY(cuda_moment(e.device, e.at, &m));
	cuda_stream_extend(stream, per_thread, m.soonest);
	return CUDA_SUCCESS;
}

STREAM_API(cuStreamWaitEvent, _ptsz, (CUstream stream, CUevent event, unsigned flags),
	wait_for(stream, event, flags, per_thread))

CUresult cuEventQuery(CUevent event)
{
	struct CUevent_st e;
	bool passed;
	TRY(cuda_prohibited());
	TRY(see(event, &e, &passed));
	return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
	struct CUevent_st e;
	TRY(with_event(event, NULL, NULL, &e));
	if (e.recorded && !e.real)
		TRY(cuda_wait_for(e.device, e.at));
	return cuda_pools_settle(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	struct CUevent_st a, b;
	bool first, second;
	TRY(see(start, &a, &first));
	TRY(see(end, &b, &second));
	NEED(ms);
	if (!a.recorded || !b.recorded || !a.timing || !b.timing)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!first || !second)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(b.real - a.real) / 1e6);
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(ms, start, end);
}
