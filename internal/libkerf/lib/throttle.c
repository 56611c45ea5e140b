/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * GPU time. What a launch takes is learned between two events, from some launches of its kind. The estimate is the
 * shortest of the last ones, since others on the GPU only make a launch seem longer. Each launch is charged by its
 * estimate before it runs. What was launched before there was one is charged afterwards. The agent corrects the rate of
 * charges where the driver's samples contradict it.
 */
#include "throttle.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KINDS 2048
#define SAMPLES 8
#define FIRST_GUESS UINT64_C(20000)
#define LOOK_EVERY UINT64_C(100000)     /* nanoseconds between two looks at what is being measured */
#define MEASURE_EVERY 32                /* launches of a kind, */
#define FIRST_MEASURED 4                /* the first ones, */
#define LONG UINT64_C(1000000)          /* and all that take so long: two events then cost little */
#define WINDOW 32                       /* measurements after which the shortest one is forgotten, at the latest two */
#define WAIT UINT64_C(10000000)         /* at most, before the budget is looked at again */
#define GIVE_UP_AFTER UINT64_C(2000000000)
#define PATIENCE UINT64_C(1000000000)   /* of a copy */
#define MEM_OP_TAKES UINT64_C(1000)

/* Launches of one kind; those that share a place in the table share the estimate. */
struct kerf_estimate {
	_Atomic uint64_t ns;      /* 0: none yet */
	_Atomic uint64_t lowest;  /* of this window; 0: none yet */
	_Atomic uint64_t before;  /* of the window before; 0: there was none */
	_Atomic unsigned seen;    /* measurements in this window */
	_Atomic uint64_t guessed; /* launches that were charged before there was one */
	_Atomic uint64_t settled; /* those of them that were charged by the lowest one so far */
	_Atomic unsigned count;
};

enum { FREE, TAKEN, RUNNING };

struct kerf_sample {
	_Atomic int state;
	CUcontext context; /* that the events belong to; NULL: there are none */
	CUevent begin, end;
	struct kerf_estimate *estimate;
	struct kerf_total *account;
};

struct kerf_clock {
	_Atomic uint64_t looked; /* when */
	_Atomic uint64_t given_up; /* the number of refills that was seen when no more came, plus 1; 0: they come */
	_Atomic unsigned running;
	struct kerf_sample sample[SAMPLES];
	struct kerf_estimate estimate[KINDS];
};

static uint64_t now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static struct kerf_clock *clock_of_process(void)
{
	struct kerf_self *self = kerf_self();
	if (!self)
		return NULL;
	struct kerf_clock *c = atomic_load_explicit(&self->clock, memory_order_acquire), *none = NULL;
	if (c || !(c = kerf_memory(sizeof *c)))
		return c;
	return atomic_compare_exchange_strong(&self->clock, &none, c) ? c : none;
}

static void charge(struct kerf_total *account, uint64_t ns)
{
	atomic_fetch_sub(&account->budget, (int64_t)ns);
	atomic_fetch_add(&account->charged, ns);
}

static void give_back(struct kerf_total *account, uint64_t ns)
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

static void learn(struct kerf_estimate *e, struct kerf_total *account, uint64_t ns)
{
	uint64_t had = atomic_load(&e->ns), guessed = atomic_exchange(&e->guessed, 0);
	ns = ns ? ns : 1;
	if (!had) {
		atomic_store(&e->ns, shortest(e, ns));
		if (guessed && ns > FIRST_GUESS)
			charge(account, (ns - FIRST_GUESS) * guessed);
		atomic_store(&e->settled, ns > FIRST_GUESS ? guessed : 0);
		return;
	}
	uint64_t settled = atomic_load(&e->settled);
	if (settled && ns < had && ns > FIRST_GUESS)
		give_back(account, (had - ns) * settled); /* the first one had waited for others */
	atomic_store(&e->ns, shortest(e, ns));
	if (ns > 2 * had || had > 2 * ns)
		atomic_store(&e->count, 0); /* it has changed: the next one is measured, too */
}

/* Takes in one measurement that has come to its end, if there is any. */
static void look(struct kerf_clock *c)
{
	uint64_t t, before = atomic_load_explicit(&c->looked, memory_order_relaxed);
	if (!atomic_load_explicit(&c->running, memory_order_relaxed) || (t = now()) - before < LOOK_EVERY ||
	    !atomic_compare_exchange_strong(&c->looked, &before, t))
		return;
	__typeof__(&cuEventQuery) query = KERF_REAL(cuEventQuery);
	__typeof__(&cuEventElapsedTime) elapsed = KERF_REAL(cuEventElapsedTime);
	CUcontext here = current();
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	relax(&mode);
	for (int i = 0; i < SAMPLES; i++) {
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
			learn(s->estimate, s->account, (uint64_t)((double)ms * 1e6));
		atomic_fetch_sub(&c->running, 1);
		atomic_store(&s->state, FREE);
	}
	relax(&mode);
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
	for (int i = 0; i < SAMPLES; i++) {
		int free = FREE;
		if (atomic_compare_exchange_strong(&c->sample[i].state, &free, TAKEN))
			return &c->sample[i];
	}
	for (int i = 0; i < SAMPLES; i++) {
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

static struct kerf_sample *measure(struct kerf_clock *c, struct kerf_turn *t)
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
		s->estimate = t->estimate;
		s->account = t->account;
		return s;
	}
	s->context = NULL;
	atomic_store(&s->state, FREE);
	return NULL;
}

/* Sleeps until the agent refills, or for WAIT. */
static void sleep_at(struct kerf_total *account, uint64_t refills)
{
	const struct timespec most = { .tv_nsec = (long)WAIT };
	int before = errno;
	syscall(SYS_futex, (uint32_t *)&account->refills, FUTEX_WAIT, (uint32_t)refills, &most, NULL, 0);
	errno = before;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the counter's lower half");

/* Waits until there is a budget, and takes ns of it. Without an agent that refills, a program waits once for
 * GIVE_UP_AFTER and then runs on until one comes back; what it takes is counted all the same. Nothing waits for
 * longer than most. */
static void pay(struct kerf_clock *c, int place, struct kerf_total *account, uint64_t ns, uint64_t most)
{
	uint64_t seen = atomic_load(&account->refills), since = 0, percent;
	uint64_t began = 0;
	int64_t left = atomic_load(&account->budget);
	for (;;) {
		while (left > 0)
			if (atomic_compare_exchange_weak(&account->budget, &left, left - (int64_t)ns)) {
				atomic_fetch_add(&account->charged, ns);
				if (began)
					atomic_fetch_add(&account->waited, now() - began);
				return;
			}
		uint64_t refills = atomic_load(&account->refills), t = now();
		began = began ? began : t;
		if (!since || refills != seen) {
			since = t;
			seen = refills;
		}
		if (t - since >= GIVE_UP_AFTER)
			atomic_store(&c->given_up, seen + 1);
		if (atomic_load(&c->given_up) == seen + 1 || t - began >= most || !kerf_account(place, &percent) || !percent) {
			atomic_fetch_add(&account->past, 1);
			atomic_fetch_add(&account->waited, t - began);
			charge(account, ns);
			return;
		}
		sleep_at(account, seen);
		look(c);
		left = atomic_load(&account->budget);
	}
}

static bool captured(CUstream stream, bool per_thread)
{
	int status = 0;
	__typeof__(&cuStreamIsCapturing) real = KERF_REAL(cuStreamIsCapturing), ptsz = KERF_REAL(cuStreamIsCapturing_ptsz);
	real = per_thread && ptsz ? ptsz : real;
	return real && (real(stream, &status) != CUDA_SUCCESS || status);
}

/* The account of the current context's GPU, and where it is; NULL: nothing is counted there. */
static struct kerf_total *account_here(int *place, CUstream stream, bool per_thread)
{
	uint64_t percent;
	if (kerf_here(place) != CUDA_SUCCESS)
		return NULL;
	struct kerf_total *account = kerf_account(*place, &percent);
	return account && percent && !captured(stream, per_thread) ? account : NULL;
}

static void begin(struct kerf_turn *t, uint64_t key, CUstream stream, bool per_thread, uint64_t most)
{
	int place = KERF_NO_PLACE;
	struct kerf_clock *c;
	t->account = NULL;
	struct kerf_total *account = account_here(&place, stream, per_thread);
	if (!account || !(c = clock_of_process()))
		return;
	look(c);
	struct kerf_estimate *e = &c->estimate[(key * UINT64_C(0x9E3779B97F4A7C15)) >> 53];
	uint64_t ns = atomic_load_explicit(&e->ns, memory_order_relaxed);
	*t = (struct kerf_turn){ .account = account, .estimate = e, .charged = ns ? ns : FIRST_GUESS, .stream = stream,
				 .per_thread = per_thread };
	pay(c, place, account, t->charged, most);
	atomic_fetch_add_explicit(&account->launches, 1, memory_order_relaxed);
	if (!ns)
		atomic_fetch_add(&e->guessed, 1);
	unsigned count = atomic_fetch_add_explicit(&e->count, 1, memory_order_relaxed);
	if (count < FIRST_MEASURED || count % MEASURE_EVERY == 0 || ns >= LONG)
		t->sample = measure(c, t);
}

void kerf_begin_turn(struct kerf_turn *t, uint64_t key, CUstream stream, bool per_thread)
{
	begin(t, key, stream, per_thread, UINT64_MAX);
}

void kerf_begin_copy(struct kerf_turn *t, uint64_t key, CUstream stream, bool per_thread)
{
	begin(t, key, stream, per_thread, PATIENCE);
}

void kerf_begin_mem_op(struct kerf_turn *t, unsigned count, CUstream stream, bool per_thread)
{
	int place = KERF_NO_PLACE;
	struct kerf_clock *c = NULL;
	struct kerf_total *account = account_here(&place, stream, per_thread);
	if (account)
		c = clock_of_process();
	*t = (struct kerf_turn){ .account = c ? account : NULL, .charged = count * MEM_OP_TAKES };
	if (!c)
		return;
	pay(c, place, account, t->charged, PATIENCE);
	atomic_fetch_add_explicit(&account->launches, 1, memory_order_relaxed);
}
_Static_assert(KINDS == 1 << (64 - 53), "the hash takes the top bits");

CUresult kerf_end_turn(struct kerf_turn *t, CUresult ret)
{
	if (!t->account)
		return ret;
	struct kerf_sample *s = t->sample;
	if (s) {
		int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
		relax(&mode);
		bool ok = !ret && record(s->end, t->stream, t->per_thread);
		relax(&mode);
		if (ok)
			atomic_fetch_add(&clock_of_process()->running, 1);
		atomic_store(&s->state, ok ? RUNNING : FREE);
	}
	if (ret)
		give_back(t->account, t->charged); /* it does not run */
	return ret;
}
