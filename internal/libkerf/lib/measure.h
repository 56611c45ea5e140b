/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What launches take of the GPU's time, as libkerf learns it between two events.
 */
#ifndef KERF_MEASURE_H
#define KERF_MEASURE_H

#include "throttle.h"

#define KERF_KINDS 2048
#define KERF_SAMPLES 8
#define KERF_MEASURE_EVERY 32            /* launches of a kind, */
#define KERF_FIRST_MEASURED 4            /* the first ones, */
#define KERF_LONG UINT64_C(1000000)      /* and all that take so long: two events then cost little */
#define KERF_FIRST_GUESS UINT64_C(20000) /* nanoseconds */

/* Launches of one kind; those that share a place in the table share the estimate. */
struct kerf_estimate {
	_Atomic uint64_t ns;      /* 0: none yet */
	_Atomic uint64_t lowest;  /* of this window; 0: none yet */
	_Atomic uint64_t before;  /* of the window before; 0: there was none */
	_Atomic unsigned seen;    /* measurements in this window */
	_Atomic uint64_t guessed; /* launches that were charged before there was one */
	_Atomic uint64_t settled; /* those of them that were charged by the lowest one so far */
	_Atomic uint64_t alone;   /* the shortest in the last turn alone with a measurement; 0: none yet */
	_Atomic uint64_t alone_at;
	_Atomic uint64_t alone_turn;
	_Atomic uint64_t turn;    /* the last turn alone with a launch, and how many there were */
	_Atomic unsigned launched;
	_Atomic unsigned count;
};

struct kerf_sample {
	_Atomic int state;
	CUcontext context; /* that the events belong to; NULL: there are none */
	CUevent begin, end;
	struct kerf_estimate *estimate;
	struct kerf_total *account;
	uint64_t turn;     /* in which it began alone; 0: others may run */
	uint64_t weight;   /* how many launches it stands for */
	uint64_t launched; /* when */
};

struct kerf_clock {
	_Atomic uint64_t looked; /* when */
	_Atomic uint64_t given_up; /* the number of refills that was seen when no more came, plus 1; 0: they come */
	_Atomic unsigned running;
	struct kerf_sample sample[KERF_SAMPLES];
	struct kerf_estimate estimate[KERF_KINDS];
};

/* The process's; NULL: there is no memory for one. */
struct kerf_clock *kerf_clock(void);
/* Nanoseconds of the monotonic clock. */
uint64_t kerf_now(void);
void kerf_charge(struct kerf_total *account, uint64_t ns);
void kerf_give_back(struct kerf_total *account, uint64_t ns);
/* Takes in the measurements that have come to their end, if there are any. */
void kerf_look_at(struct kerf_clock *c);
/* Begins a measurement, which stands for so many launches; NULL: there is none. */
struct kerf_sample *kerf_measure(struct kerf_clock *c, const struct kerf_turn *t, uint64_t weight);
/* Ends it after its launch. ret is the result of the launch. */
void kerf_measured(struct kerf_sample *s, const struct kerf_turn *t, CUresult ret);

#endif
