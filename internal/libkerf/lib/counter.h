/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How a process counts in the region. A total is added to before the slot and taken from after it, so that a process
 * that dies in between leaves the total too high, never too low, and the agent finds what is too much.
 */
#ifndef KERF_COUNTER_H
#define KERF_COUNTER_H

#include <stdbool.h>

#include "region.h"

/* Nothing of what a slot holds is managed memory. */
static inline void kerf_none_managed(struct kerf_usage *u, const struct kerf_slot *s)
{
	for (int d = 0; d < KERF_DEVICES; d++)
		atomic_store(&u->managed[s - u->slot][d], 0);
}

/* Takes a slot for a process; NULL: all are taken, and nothing may be allocated. owner is not 0. */
static inline struct kerf_slot *kerf_claim(struct kerf_usage *u, uint64_t owner)
{
	for (int i = 0; i < KERF_SLOTS; i++) {
		uint64_t none = 0;
		if (atomic_compare_exchange_strong(&u->slot[i].owner, &none, owner)) {
			kerf_none_managed(u, &u->slot[i]); /* who had it may have been killed */
			return &u->slot[i];
		}
	}
	return NULL;
}

/* Tells that so many more of the bytes that a slot holds are managed memory, or fewer. */
static inline void kerf_are_managed(struct kerf_usage *u, struct kerf_slot *s, int device, int64_t bytes)
{
	atomic_fetch_add(&s->begun, 1);
	atomic_fetch_add(&u->managed[s - u->slot][device], (uint64_t)bytes);
	atomic_fetch_add(&s->ended, 1);
}

/* Reserves bytes of a device in one step, or nothing if they would exceed the limit. */
static inline bool kerf_reserve(const struct kerf_limits *l, struct kerf_usage *u, struct kerf_slot *s, int device,
				uint64_t bytes)
{
	_Atomic uint64_t *total = &u->total[device].bytes;
	bool fits = true;
	atomic_fetch_add(&s->begun, 1);
	uint64_t now = atomic_load(total);
	do {
		uint64_t limit = atomic_load(&l->device[device].limit), over = atomic_load(&l->device[device].overhead);
		fits = over <= limit && now <= limit - over && bytes <= limit - over - now;
	} while (fits && !atomic_compare_exchange_weak(total, &now, now + bytes));
	if (fits)
		atomic_fetch_add(&s->held[device], bytes);
	atomic_fetch_add(&s->ended, 1);
	return fits;
}

/* What is left of a device. */
static inline uint64_t kerf_left(const struct kerf_limits *l, const struct kerf_usage *u, int device)
{
	uint64_t limit = atomic_load(&l->device[device].limit), over = atomic_load(&l->device[device].overhead);
	uint64_t now = atomic_load(&u->total[device].bytes);
	return over < limit && now < limit - over ? limit - over - now : 0;
}

/* Reserves all that is left of a device in one step, if that is as much as least; 0: nothing was reserved. */
static inline uint64_t kerf_reserve_rest(const struct kerf_limits *l, struct kerf_usage *u, struct kerf_slot *s,
					 int device,
					 uint64_t least)
{
	_Atomic uint64_t *total = &u->total[device].bytes;
	uint64_t now, rest;
	atomic_fetch_add(&s->begun, 1);
	do {
		now = atomic_load(total);
		uint64_t limit = atomic_load(&l->device[device].limit), over = atomic_load(&l->device[device].overhead);
		rest = over < limit && now < limit - over ? limit - over - now : 0;
	} while (rest >= least && !atomic_compare_exchange_weak(total, &now, now + rest));
	rest = rest >= least ? rest : 0;
	atomic_fetch_add(&s->held[device], rest);
	atomic_fetch_add(&s->ended, 1);
	return rest;
}

/* Gives back bytes that kerf_reserve booked. */
static inline void kerf_return(struct kerf_usage *u, struct kerf_slot *s, int device, uint64_t bytes)
{
	atomic_fetch_add(&s->begun, 1);
	atomic_fetch_sub(&s->held[device], bytes);
	atomic_fetch_sub(&u->total[device].bytes, bytes);
	atomic_fetch_add(&s->ended, 1);
}

#endif
