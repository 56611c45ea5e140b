/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Functions of the program that a stream calls. One thread calls them all, in the order in which they were added, each
 * when the work before it in its stream is done. A stream is busy until its functions have returned.
 */
#include "cuda_graph.h"

#include <stdlib.h>

struct callback {
	uint64_t when, stream;
	CUcontext context;
	CUstream given;
	void (*host)(void *);
	void (*status)(CUstream, CUresult, void *);
	void *data;
	struct callback *next;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct callback *first, **last = &first;
static bool running;
static __thread bool inside; /* this is the thread of the callbacks */

static void *run(void *unused)
{
	(void)unused;
	inside = true;
	pthread_mutex_lock(&mu);
	for (;;) {
		struct callback *c = first;
		if (!c) {
			pthread_cond_wait(&changed, &mu);
			continue;
		}
		pthread_mutex_unlock(&mu);
		cuda_wait_for(c->context->device, c->when); /* where that fails, nothing runs any more */
		if (c->host)
			c->host(c->data);
		else
			c->status(c->given, CUDA_SUCCESS, c->data);
		pthread_mutex_lock(&mu);
		first = c->next;
		if (!first)
			last = &first;
		free(c);
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

/* With mu held. */
static bool start(void)
{
	pthread_t thread;
	if (!running && pthread_create(&thread, NULL, run, NULL) == 0) {
		pthread_detach(thread);
		running = true;
	}
	return running;
}

static CUresult add(CUstream stream, void (*host)(void *), void (*status)(CUstream, CUresult, void *), void *data,
	bool per_thread)
{
	CUgraph graph;
	NEED(host || status);
	struct callback *c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*c = (struct callback){ .given = stream, .host = host, .status = status, .data = data };
	CUresult ret = cuda_current(&c->context);
	if (!ret)
		ret = cuda_stream_capture(stream, per_thread, &graph);
	if (!ret && graph) {
		const struct CUgraphNode_st n = { .type = CU_GRAPH_NODE_TYPE_HOST, .call = host, .data = data };
		ret = host ? cuda_graph_add(NULL, graph, &n) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		free(c);
		return ret;
	}
	if (!ret)
		ret = cuda_stream_id(stream, per_thread, &c->stream);
	if (!ret)
		ret = cuda_stream_busy_until(stream, per_thread, &c->when);
	pthread_mutex_lock(&mu);
	if (!ret && !start())
		ret = CUDA_ERROR_OUT_OF_MEMORY;
	if (!ret) {
		*last = c;
		last = &c->next;
		pthread_cond_broadcast(&changed);
	}
	pthread_mutex_unlock(&mu);
	if (ret)
		free(c);
	return ret;
}

CUresult cuda_callback_add(CUstream stream, void (*call)(void *), void *data, bool per_thread)
{
	return add(stream, call, NULL, data, per_thread);
}

/* With mu held. Stream 0 is that of the context, which waits for each of its streams. */
static bool pending(CUcontext context, uint64_t stream)
{
	for (const struct callback *c = first; c; c = c->next)
		if (c->context == context && (c->stream == stream || !stream))
			return true;
	return false;
}

bool cuda_callbacks_pending(CUcontext context, uint64_t stream)
{
	pthread_mutex_lock(&mu);
	bool some = pending(context, stream);
	pthread_mutex_unlock(&mu);
	return some;
}

void cuda_callbacks_wait(CUcontext context, uint64_t stream)
{
	pthread_mutex_lock(&mu);
	while (!inside && pending(context, stream))
		pthread_cond_wait(&changed, &mu);
	pthread_mutex_unlock(&mu);
}

STREAM_API(cuLaunchHostFunc, _ptsz, (CUstream stream, void (*call)(void *), void *data),
	   cuda_callback_add(stream, call, data, per_thread))

static CUresult add_callback(CUstream stream, void (*call)(CUstream, CUresult, void *), void *data, unsigned flags,
	bool per_thread)
{
	NEED(flags == 0);
	return add(stream, NULL, call, data, per_thread);
}

STREAM_API(cuStreamAddCallback, _ptsz,
	   (CUstream stream, void (*call)(CUstream, CUresult, void *), void *data, unsigned flags),
	   add_callback(stream, call, data, flags, per_thread))
