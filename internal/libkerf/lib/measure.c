/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a launch takes is learned between two events, from some launches of its kind. The estimate is the shortest of
 * the last ones, since others on the GPU only make a launch seem longer. A launch that takes longer than a time slice
 * of the GPU seems longer each time: the agent holds the others for a moment, and what is measured then counts for a
 * minute. What was launched before there was an estimate is charged afterwards.
 */
#include "measure.h"

#include <time.h>

#define LOOK_EVERY UINT64_C(100000)      /* nanoseconds between two looks at what is being measured */
#define WINDOW 32                        /* measurements after which the shortest one is forgotten, at the latest two */
#define MOST_PENDING UINT64_C(50000000)  /* that a launch waits for others, as far as is believed */
#define KEEP_ALONE UINT64_C(60000000000) /* how long a measurement counts that no other container's launch disturbed */

enum { FREE, TAKEN, RUNNING };

uint64_t kerf_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

struct kerf_clock *kerf_clock(void)
{
	struct kerf_self *self = kerf_self();
	if (!self)
		return NULL;
	struct kerf_clock *c = atomic_load_explicit(&self->clock, memory_order_acquire), *none = NULL;
	if (c || !(c = kerf_memory(sizeof *c)))
		return c;
	return atomic_compare_exchange_strong(&self->clock, &none, c) ? c : none;
}

void kerf_charge(struct kerf_total *account, uint64_t ns)
{
	atomic_fetch_sub(&account->budget, (int64_t)ns);
	atomic_fetch_add(&account->charged, ns);
}

void kerf_give_back(struct kerf_total *account, uint64_t ns)
{
	atomic_fetch_add(&account->budget, (int64_t)ns);
	atomic_fetch_sub(&account->charged, ns);
}

/* Calls that a capture of another stream would not allow are made as if there were none. */
static void relax(int *mode)
{
	__typeof__(&cuThreadExchangeStreamCaptureMode) exchange = KERF_REAL(cuThreadExchangeStreamCaptureMode);
	if (exchange)
		exchange(mode);
}

static CUcontext current(void)
{
	CUcontext context = NULL;
	__typeof__(&cuCtxGetCurrent) get = KERF_REAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? context : NULL;
}

static bool record(CUevent event, CUstream stream, bool per_thread)
{
	__typeof__(&cuEventRecord) real = KERF_REAL(cuEventRecord), ptsz = KERF_REAL(cuEventRecord_ptsz);
	real = per_thread && ptsz ? ptsz : real;
	return real && real(event, stream) == CUDA_SUCCESS;
}

/* Takes a measurement into its window, and returns the shortest one of this and of the one before. */
static uint64_t shortest(struct kerf_estimate *e, uint64_t ns)
{
	uint64_t low = atomic_load(&e->lowest), before = atomic_load(&e->before);
	low = low && low < ns ? low : ns;
	if (atomic_fetch_add(&e->seen, 1) + 1 >= WINDOW) {
		atomic_store(&e->seen, 0);
		atomic_store(&e->lowest, 0);
		atomic_store(&e->before, low);
		atomic_store(&e->settled, 0); /* those that were guessed are long over */
	} else {
		atomic_store(&e->lowest, low);
	}
	return before && before < low ? before : low;
}

/* The shortest measurement, or what was measured alone, as long as that counts. turn is the one in which it was alone,
 * or 0. At the begin of a turn, what others launched before may still run: the shortest of a turn counts. */
static uint64_t best(struct kerf_estimate *e, uint64_t ns, uint64_t turn)
{
	uint64_t low = shortest(e, ns), kept = atomic_load(&e->alone);
	if (turn && (atomic_exchange(&e->alone_turn, turn) != turn || ns <= kept)) {
		atomic_store(&e->alone_at, kerf_now());
		atomic_store(&e->alone, ns);
		kept = ns;
	}
	return kept && kept < low && kerf_now() - atomic_load(&e->alone_at) < KEEP_ALONE ? kept : low;
}

static void learn(struct kerf_estimate *e, struct kerf_total *account, uint64_t ns, uint64_t turn)
{
	uint64_t had = atomic_load(&e->ns), guessed = atomic_exchange(&e->guessed, 0);
	ns = ns ? ns : 1;
	if (!had) {
		atomic_store(&e->ns, best(e, ns, turn));
		if (guessed && ns > KERF_FIRST_GUESS)
			kerf_charge(account, (ns - KERF_FIRST_GUESS) * guessed);
		atomic_store(&e->settled, ns > KERF_FIRST_GUESS ? guessed : 0);
		return;
	}
	uint64_t settled = atomic_load(&e->settled);
	if (settled && ns < had && ns > KERF_FIRST_GUESS)
		kerf_give_back(account, (had - ns) * settled); /* the first one had waited for others */
	atomic_store(&e->ns, best(e, ns, turn));
	if (ns > 2 * had || had > 2 * ns)
		atomic_store(&e->count, 0); /* it has changed: the next one is measured, too */
}

/* Takes in a measurement that has come to its end. */
static void taken(struct kerf_sample *s, uint64_t ns)
{
	bool alone = s->turn && atomic_load(&s->account->turn) == s->turn;
	uint64_t since = kerf_now() - s->launched, most = ns + MOST_PENDING;
	atomic_fetch_add(&s->account->occupied, (since < most ? since : most) * s->weight);
	learn(s->estimate, s->account, ns, alone ? s->turn : 0);
}

void kerf_look_at(struct kerf_clock *c)
{
	uint64_t t, before = atomic_load_explicit(&c->looked, memory_order_relaxed);
	if (!atomic_load_explicit(&c->running, memory_order_relaxed) || (t = kerf_now()) - before < LOOK_EVERY ||
	    !atomic_compare_exchange_strong(&c->looked, &before, t))
		return;
	__typeof__(&cuEventQuery) query = KERF_REAL(cuEventQuery);
	__typeof__(&cuEventElapsedTime) elapsed = KERF_REAL(cuEventElapsedTime);
	CUcontext here = current();
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	relax(&mode);
	for (int i = 0; i < KERF_SAMPLES; i++) {
		struct kerf_sample *s = &c->sample[i];
		int running = RUNNING;
		float ms = 0;
		if (!atomic_compare_exchange_strong(&s->state, &running, TAKEN))
			continue;
		CUresult ret = s->context == here && query ? query(s->end) : CUDA_ERROR_NOT_READY;
		if (ret == CUDA_ERROR_NOT_READY) {
			atomic_store(&s->state, RUNNING);
			continue;
		}
		if (ret == CUDA_SUCCESS && elapsed && elapsed(&ms, s->begin, s->end) == CUDA_SUCCESS && ms >= 0)
			taken(s, (uint64_t)((double)ms * 1e6));
		atomic_fetch_sub(&c->running, 1);
		atomic_store(&s->state, FREE);
	}
	relax(&mode);
}

void kerf_look(void)
{
	struct kerf_self *self = kerf_self();
	struct kerf_clock *c = self ? atomic_load_explicit(&self->clock, memory_order_acquire) : NULL;
	if (c)
		kerf_look_at(c);
}

/* Makes the events of a sample in the current context. Those of a context that is gone went with it. */
static bool events(struct kerf_sample *s, CUcontext here)
{
	__typeof__(&cuEventCreate) create = KERF_REAL(cuEventCreate);
	__typeof__(&cuEventDestroy_v2) destroy = KERF_REAL(cuEventDestroy_v2);
	if (s->context == here)
		return true;
	s->context = NULL;
	if (!here || !create || !destroy || create(&s->begin, 0) != CUDA_SUCCESS)
		return false;
	if (create(&s->end, 0) != CUDA_SUCCESS) {
		destroy(s->begin);
		return false;
	}
	s->context = here;
	return true;
}

/* A free sample, else one of another context, which may be gone. */
static struct kerf_sample *find_sample(struct kerf_clock *c, CUcontext here)
{
	for (int i = 0; i < KERF_SAMPLES; i++) {
		int free = FREE;
		if (atomic_compare_exchange_strong(&c->sample[i].state, &free, TAKEN))
			return &c->sample[i];
	}
	for (int i = 0; i < KERF_SAMPLES; i++) {
		int running = RUNNING;
		if (!atomic_compare_exchange_strong(&c->sample[i].state, &running, TAKEN))
			continue;
		if (c->sample[i].context != here) {
			atomic_fetch_sub(&c->running, 1);
			return &c->sample[i];
		}
		atomic_store(&c->sample[i].state, RUNNING);
	}
	return NULL;
}

struct kerf_sample *kerf_measure(struct kerf_clock *c, const struct kerf_turn *t, uint64_t weight)
{
	CUcontext here = current();
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct kerf_sample *s = find_sample(c, here);
	if (!s)
		return NULL;
	relax(&mode);
	bool ok = events(s, here) && record(s->begin, t->stream, t->per_thread);
	relax(&mode);
	if (ok) {
		uint64_t turn = atomic_load(&t->account->turn);
		s->estimate = t->estimate;
		s->account = t->account;
		s->turn = turn >= KERF_FIRST_ALONE ? turn : 0;
		s->weight = weight;
		s->launched = kerf_now();
		return s;
	}
	s->context = NULL;
	atomic_store(&s->state, FREE);
	return NULL;
}

void kerf_measured(struct kerf_sample *s, const struct kerf_turn *t, CUresult ret)
{
	struct kerf_clock *c = kerf_clock();
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	relax(&mode);
	bool ok = !ret && c && record(s->end, t->stream, t->per_thread);
	relax(&mode);
	if (ok)
		atomic_fetch_add(&c->running, 1);
	atomic_store(&s->state, ok ? RUNNING : FREE);
}
