/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The first context on a GPU of whose kind no agent has seen one. What it will take is not known, so it gets all the
 * room that is left, and the call that makes it returns when the agent has read from the driver what it took. Nobody
 * can be past the cap meanwhile, and nobody is refused: who finds no room waits for the same moment. No lock is taken; a
 * process that dies gives its room back like every other. Without an agent the wait ends, and what is kept is
 * more than contexts take.
 */
#include <time.h>

#include "kerf.h"

#define PAUSE 5000000                   /* nanoseconds */
#define PATIENCE UINT64_C(3000000000)
#define LEAST ((uint64_t)2 << 20)
#define MOST ((uint64_t)1 << 30)        /* that a context takes; the agent believes no more either */

static uint64_t now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* Waits a bit. False: it has been long enough; this process does not wait again. */
static bool patient(int place, uint64_t since)
{
	const struct timespec pause = { .tv_nsec = PAUSE };
	struct kerf_self *self = kerf_self();
	if (!self || atomic_load(&self->tired[place]))
		return false;
	if (now() - since > PATIENCE) {
		atomic_store(&self->tired[place], true);
		return false;
	}
	nanosleep(&pause, NULL);
	return true;
}

/* What is put aside for contexts is more than they take, or all there is. */
static bool unseen(int place)
{
	return kerf_context_size(place) == KERF_UNKNOWN || kerf_anybody_waits(place);
}

bool kerf_await_seen(int place)
{
	uint64_t since = now();
	if (place == KERF_NO_PLACE || !unseen(place))
		return false;
	while (unseen(place))
		if (!patient(place, since))
			return false;
	return true;
}

uint64_t kerf_first_begin(int place)
{
	uint64_t since = now();
	while (kerf_context_size(place) == KERF_UNKNOWN) {
		uint64_t rest = kerf_take_rest(place, LEAST);
		if (rest)
			return rest;
		if (!patient(place, since))
			return 0;
	}
	return 0;
}

bool kerf_first_fits(int place, uint64_t bytes)
{
	uint64_t since = now();
	while (kerf_waits(place))
		if (!patient(place, since)) {
			kerf_wait_with(place, bytes, MOST);
			return true;
		}
	if (!kerf_over(place))
		return true;
	kerf_refused(place);
	return false;
}
