/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Graphs that are made ready and launched; a launch's time is that of the whole graph. An executable's entry has in
 * peak what its memory comes to at most, in origin what a launch leaves, in bytes whether the driver frees what an
 * earlier launch left, and in context anything once it has been launched.
 */
#include "pool.h"
#include "throttle.h"

static pthread_mutex_t *lock_seen(void)
{
	struct kerf_self *s = kerf_self();
	if (!s || !atomic_load_explicit(&s->graphs, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&s->graph);
	return &s->graph;
}

static CUresult ready(CUresult ret, const CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	pthread_mutex_t *held = ret ? NULL : lock_seen();
	if (!held)
		return ret;
	struct kerf_entry *e = kerf_remove(KERF_EXEC, (uint64_t)(uintptr_t)*exec);
	struct kerf_entry *from = kerf_remove(KERF_GRAPH, (uint64_t)(uintptr_t)graph);
	if (!e && from)
		e = kerf_entry();
	if (e && from) {
		e->kind = KERF_EXEC;
		e->key = (uint64_t)(uintptr_t)*exec;
		e->place = from->place;
		e->peak = from->peak;
		e->origin = from->bytes;
		e->bytes = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
		e->context = NULL;
		kerf_put(e);
	} else if (e) {
		kerf_drop(e);
	}
	if (from)
		kerf_put(from);
	pthread_mutex_unlock(held);
	return ret;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *log, size_t size)
{
	KERF_NEED(cuGraphInstantiate, CUDA_ERROR_NOT_INITIALIZED);
	return ready(real(exec, graph, bad, log, size), exec, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *bad, char *log, size_t size)
{
	KERF_NEED(cuGraphInstantiate_v2, CUDA_ERROR_NOT_INITIALIZED);
	return ready(real(exec, graph, bad, log, size), exec, graph, 0);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	KERF_NEED(cuGraphInstantiateWithFlags, CUDA_ERROR_NOT_INITIALIZED);
	return ready(real(exec, graph, flags), exec, graph, flags);
}

/* The bytes in use of a device's pool of graphs, as programs requested them. False: the driver does not report them. */
static bool used(CUdevice device, cuuint64_t *bytes)
{
	__typeof__(&cuDeviceGetGraphMemAttribute) get = KERF_REAL(cuDeviceGetGraphMemAttribute);
	return get && get(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, bytes) == CUDA_SUCCESS;
}

/* With the pool's lock held: by how much a launch may grow it, without what it keeps and what the driver frees. What is
 * in use takes whole pages. */
static uint64_t growth(struct kerf_pool *p, const struct kerf_entry *e)
{
	cuuint64_t asked = 0, reserved = 0;
	__typeof__(&cuDeviceGetGraphMemAttribute) get = KERF_REAL(cuDeviceGetGraphMemAttribute);
	if (!used(e->place, &asked) || get(e->place, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved))
		return e->peak;
	if (!asked)
		p->padding = 0;
	uint64_t busy = asked + p->padding;
	if (e->bytes && e->context)
		busy -= busy < e->peak ? busy : e->peak;
	uint64_t kept = reserved > busy ? reserved - busy : 0;
	return e->peak > kept ? e->peak - kept : 0;
}

/* With the pool's lock held, after the first launch of e: adds what it uses of its last pages beyond the request. The
 * sum only grows until no memory of graphs is in use. If it is too high, the next launch may trim the pool first. */
static void pad(struct kerf_pool *p, const struct kerf_entry *e, bool known, uint64_t before)
{
	cuuint64_t now = 0;
	uint64_t more = known && used(e->place, &now) && now > before ? now - before : 0;
	p->padding += e->origin > more ? e->origin - more : 0;
}

/* Takes what a launch may grow the pool of graphs by. The pool is locked then, so that it gives nothing back that the
 * launch counts on. NULL: there is no room, and no pool is locked. */
static struct kerf_pool *begin(const struct kerf_entry *e, uint64_t *taken)
{
	struct kerf_pool *p = kerf_pool_of_graphs(e->place);
	for (*taken = 0; p;) {
		pthread_mutex_lock(&p->lock);
		uint64_t want = growth(p, e);
		if (want <= *taken)
			return p;
		pthread_mutex_unlock(&p->lock);
		if (!kerf_take_or_make_room(p->place, want - *taken)) {
			kerf_give(p->place, *taken);
			return NULL;
		}
		*taken = want;
	}
	return NULL;
}

static void end(struct kerf_pool *p, uint64_t taken)
{
	p->booked += taken;
	kerf_pool_settle(p);
	pthread_mutex_unlock(&p->lock);
}

/* With the flag for it the driver does what it does for cuGraphUpload before it returns: what the graph needs has to
 * fit. */
static CUresult with_params(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
			    CUresult (*real)(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *))
{
	unsigned long long flags = params ? params->flags : 0;
	pthread_mutex_t *held = flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? lock_seen() : NULL;
	struct kerf_entry *from = held ? kerf_remove(KERF_GRAPH, (uint64_t)(uintptr_t)graph) : NULL;
	uint64_t taken = 0;
	struct kerf_pool *p = from ? begin(from, &taken) : NULL;
	bool fits = !from || p;
	CUresult ret = fits ? real(exec, graph, params) : CUDA_ERROR_OUT_OF_MEMORY;
	if (p)
		end(p, taken);
	if (from)
		kerf_put(from);
	if (held)
		pthread_mutex_unlock(held);
	if (!fits) {
		params->bad = NULL;
		params->result = CUDA_GRAPH_INSTANTIATE_ERROR;
	}
	return ready(ret, exec, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	KERF_NEED(cuGraphInstantiateWithParams, CUDA_ERROR_NOT_INITIALIZED);
	return with_params(exec, graph, params, real);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	KERF_NEED(cuGraphInstantiateWithParams_ptsz, CUDA_ERROR_NOT_INITIALIZED);
	return with_params(exec, graph, params, real);
}

/* With the graph lock held, which orders the launches of graphs with memory: each finds what the one before left. */
static CUresult launch(struct kerf_entry *e, CUgraphExec exec, CUstream stream, CUresult (*real)(CUgraphExec, CUstream))
{
	uint64_t taken;
	struct kerf_pool *p = begin(e, &taken);
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cuuint64_t before = 0;
	bool known = used(e->place, &before);
	CUresult ret = real(exec, stream);
	if (!ret && !e->context) {
		pad(p, e, known, before);
		e->context = (CUcontext)(uintptr_t)1;
	}
	end(p, taken);
	return ret;
}

static CUresult count(CUgraphExec exec, CUstream stream, CUresult (*real)(CUgraphExec, CUstream))
{
	if (!real)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_t *held = lock_seen();
	struct kerf_entry *e = held ? kerf_remove(KERF_EXEC, (uint64_t)(uintptr_t)exec) : NULL;
	if (e) {
		CUresult ret = launch(e, exec, stream, real);
		kerf_put(e);
		pthread_mutex_unlock(held);
		return ret;
	}
	if (held)
		pthread_mutex_unlock(held);
	CUresult ret = real(exec, stream);
	CUdevice device;
	__typeof__(&cuCtxGetDevice) here = KERF_REAL(cuCtxGetDevice);
	struct kerf_pool *p = held && here && here(&device) == CUDA_SUCCESS ? kerf_pool_of_graphs(device) : NULL;
	if (p) { /* it may have memory all the same */
		pthread_mutex_lock(&p->lock);
		end(p, 0);
	}
	return ret;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	return count(exec, stream, KERF_REAL(cuGraphUpload));
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	return count(exec, stream, KERF_REAL(cuGraphUpload_ptsz));
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	struct kerf_turn t;
	kerf_begin_turn(&t, (uint64_t)(uintptr_t)exec, stream, false);
	return kerf_end_turn(&t, count(exec, stream, KERF_REAL(cuGraphLaunch)));
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	struct kerf_turn t;
	kerf_begin_turn(&t, (uint64_t)(uintptr_t)exec, stream, true);
	return kerf_end_turn(&t, count(exec, stream, KERF_REAL(cuGraphLaunch_ptsz)));
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	KERF_NEED(cuDeviceGraphMemTrim, CUDA_ERROR_NOT_INITIALIZED);
	struct kerf_pool *p = kerf_pool_of_graphs(device);
	if (!p)
		return real(device);
	pthread_mutex_lock(&p->lock);
	CUresult ret = real(device);
	end(p, 0);
	return ret;
}
