/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * GPU time. Each launch is charged by its estimate (measure.c) before it runs. The agent corrects the rate of charges
 * where the driver's samples contradict it.
 */
#include "measure.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAIT UINT64_C(10000000)         /* nanoseconds at most, before the budget is looked at again */
#define GIVE_UP_AFTER UINT64_C(2000000000)
#define PATIENCE UINT64_C(1000000000)   /* of a copy */
#define MEM_OP_TAKES UINT64_C(1000)
#define FREE_LAUNCHES 3                 /* of a kind, in a turn alone */

/* Sleeps until the agent refills, or for WAIT. */
static void sleep_at(struct kerf_total *account, uint64_t refills)
{
	const struct timespec most = { .tv_nsec = (long)WAIT };
	int before = errno;
	syscall(SYS_futex, (uint32_t *)&account->refills, FUTEX_WAIT, (uint32_t)refills, &most, NULL, 0);
	errno = before;
}
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the counter's lower half");

/* The first launches of a kind in a turn alone need no budget: they are measured for all that follow. */
static bool is_free(struct kerf_estimate *e, uint64_t turn)
{
	if (atomic_exchange(&e->turn, turn) != turn)
		atomic_store(&e->launched, 0);
	return atomic_fetch_add(&e->launched, 1) < FREE_LAUNCHES;
}

/* Takes ns of the budget, if there is any and it is no other container's turn. */
static bool take(struct kerf_total *account, struct kerf_estimate *e, uint64_t ns)
{
	uint64_t turn = atomic_load(&account->turn);
	if (turn == KERF_HOLD)
		return false;
	if (turn >= KERF_FIRST_ALONE && e && is_free(e, turn)) {
		kerf_charge(account, ns);
		return true;
	}
	int64_t left = atomic_load(&account->budget);
	while (left > 0)
		if (atomic_compare_exchange_weak(&account->budget, &left, left - (int64_t)ns)) {
			atomic_fetch_add(&account->charged, ns);
			return true;
		}
	return false;
}

/* Waits until there is a budget, and takes ns of it. Without an agent that refills, a program waits once for
 * GIVE_UP_AFTER and then runs on until one comes back; what it takes is counted all the same. Nothing waits for
 * longer than most. */
static void pay(struct kerf_clock *c, int place, struct kerf_turn *turn, uint64_t most)
{
	struct kerf_total *account = turn->account;
	uint64_t seen = atomic_load(&account->refills), since = 0, percent;
	uint64_t began = 0, ns = turn->charged;
	for (;;) {
		if (take(account, turn->estimate, ns)) {
			if (began)
				atomic_fetch_add(&account->waited, kerf_now() - began);
			return;
		}
		uint64_t refills = atomic_load(&account->refills), t = kerf_now();
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
			kerf_charge(account, ns);
			return;
		}
		sleep_at(account, seen);
		kerf_look_at(c);
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
	if (!account || !(c = kerf_clock()))
		return;
	kerf_look_at(c);
	struct kerf_estimate *e = &c->estimate[(key * UINT64_C(0x9E3779B97F4A7C15)) >> 53];
	uint64_t ns = atomic_load_explicit(&e->ns, memory_order_relaxed);
	*t = (struct kerf_turn){ .account = account, .estimate = e, .charged = ns ? ns : KERF_FIRST_GUESS, .stream = stream,
				 .per_thread = per_thread };
	pay(c, place, t, most);
	atomic_fetch_add_explicit(&account->launches, 1, memory_order_relaxed);
	if (!ns)
		atomic_fetch_add(&e->guessed, 1);
	unsigned count = atomic_fetch_add_explicit(&e->count, 1, memory_order_relaxed);
	if (count < KERF_FIRST_MEASURED || ns >= KERF_LONG)
		t->sample = kerf_measure(c, t, 1);
	else if (count % KERF_MEASURE_EVERY == 0)
		t->sample = kerf_measure(c, t, KERF_MEASURE_EVERY);
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
		c = kerf_clock();
	*t = (struct kerf_turn){ .account = c ? account : NULL, .charged = count * MEM_OP_TAKES };
	if (!c)
		return;
	pay(c, place, t, PATIENCE);
	atomic_fetch_add_explicit(&account->launches, 1, memory_order_relaxed);
}
_Static_assert(KERF_KINDS == 1 << (64 - 53), "the hash takes the top bits");

CUresult kerf_end_turn(struct kerf_turn *t, CUresult ret)
{
	if (!t->account)
		return ret;
	if (t->sample)
		kerf_measured(t->sample, t, ret);
	if (ret)
		kerf_give_back(t->account, t->charged); /* it does not run */
	return ret;
}
