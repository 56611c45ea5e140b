/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Many threads that allocate and free in every way, in an order that a seed gives.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "kerfcheck.h"

enum { PLACES = 12 };

static const char *const ways[] = {
	"linear", "managed", "pitch", "async", "async-thread", "unwaited", "kept", "kept", "pool", "vmm", "array", "mipmap",
	"graph", "again", "capture", "first-array", "first-array3d", "array3d",
};

struct worker {
	pthread_t thread;
	unsigned seed;
	long steps;
	CUcontext context;
};

static atomic_long served, refused, left;

/* A size that each way can have: whole 4 MiB, up to 32. */
static size_t size(unsigned *seed)
{
	return (size_t)(1 + rand_r(seed) % 8) << 22;
}

static void one(unsigned *seed, struct block *p)
{
	if (p->give) {
		p->give(p);
		p->give = NULL;
		return;
	}
	const struct family *f = find_family(ways[(size_t)rand_r(seed) % (sizeof ways / sizeof ways[0])]);
	*p = (struct block){ .bytes = size(seed) };
	if (f->take(p)) {
		refused++;
		return;
	}
	served++;
	p->give = f->give;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct block places[PLACES] = { 0 };
	CALL(cuCtxSetCurrent)(w->context);
	for (long i = 0; i < w->steps; i++) {
		one(&w->seed, &places[rand_r(&w->seed) % PLACES]);
		if (--left == 0)
			kill(getpid(), SIGKILL);
		if (rand_r(&w->seed) % 16 == 0)
			CALL(cuStreamSynchronize)(NULL);
	}
	for (int i = 0; i < PLACES; i++)
		if (places[i].give)
			places[i].give(&places[i]);
	return NULL;
}

void mix(int threads, long steps, unsigned seed, long until)
{
	struct worker w[64] = { 0 };
	CUcontext c;
	struct block first = { .bytes = 4 << 20 };
	CALL(cuCtxGetCurrent)(&c);
	if (!find_family("kept")->take(&first)) /* the pool is there before threads meet at it */
		find_family("kept")->give(&first);
	left = until ? until : -1;
	for (int i = 0; i < threads; i++) {
		w[i] = (struct worker){ .seed = seed * 1000 + (unsigned)i, .steps = steps, .context = c };
		pthread_create(&w[i].thread, NULL, work, &w[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(w[i].thread, NULL);
	printf("%ld %ld\n", served, refused);
}
