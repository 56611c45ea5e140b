/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contexts whose size is not known.
 *
 * If the agent knows an upper bound, a context takes that much. Otherwise, or if the bound does not fit, it takes all
 * the room that is left, and the call that makes it returns when the agent has read from the driver what it took. A
 * process that finds no room meanwhile waits for the same moment. So the grant stays within its cap, and Kerf rejects
 * nothing for which there is room. The only exception is a context that takes more than the room that is left: it
 * exists for that moment, and is undone. If the room that is left is less than a context of this region was seen to
 * take, none is made. No lock is taken. Without an agent the wait ends, and what is kept is more than contexts take.
 */
#include <time.h>

#include "kerf.h"

#define PAUSE 5000000                   /* nanoseconds */
#define PATIENCE UINT64_C(3000000000)
#define ALL_PATIENCE UINT64_C(30000000000)
#define LEAST ((uint64_t)2 << 20)
#define MOST ((uint64_t)1 << 30)        /* that a context takes, if no bound is known */

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
	if (!self || !atomic_load(&self->slot) || atomic_load(&self->tired[place]))
		return false;
	if (now() - since > PATIENCE) {
		atomic_store(&self->tired[place], true);
		return false;
	}
	nanosleep(&pause, NULL);
	return true;
}

/* What is put aside for contexts may be more than they take. A process tells that it waits before it ends to make
 * one. While the agent moves bytes to the overhead, they count twice, and their process does not wait any more. */
static bool unseen(int place)
{
	if (kerf_moves(place) % 2)
		return true;
	if (kerf_context_bound(place))
		return kerf_anybody_makes() || kerf_anybody_waits(place);
	return kerf_context_size(place) == KERF_UNKNOWN || kerf_anybody_waits(place);
}

/* There is room. Another try takes it, unless another process is faster. */
static bool room(int place, uint64_t bytes)
{
	const struct kerf_self *self = kerf_self();
	return bytes && self && atomic_load(&self->slot) && kerf_left_of(place) >= bytes;
}

/* Each move of bytes to the overhead shows that the agent is there. Where many make contexts, each waits for its turn.
 * The first contexts after a driver was loaded can take many seconds. The last wait may have ended after the caller
 * found no room. */
bool kerf_await_room(int place, uint64_t bytes, bool turns)
{
	uint64_t begun = now(), since = begun, moves = kerf_moves(place);
	bool waited = false;
	while (place != KERF_NO_PLACE && unseen(place)) {
		if (turns && (kerf_moves(place) != moves || kerf_anybody_makes()) && now() - begun < ALL_PATIENCE) {
			moves = kerf_moves(place);
			since = now();
		}
		if (!patient(place, since))
			return false;
		waited = true;
		if (kerf_left_of(place) >= bytes)
			return true;
	}
	return waited || room(place, bytes);
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
	uint64_t since = now(), bound = kerf_context_bound(place);
	while (kerf_waits(place))
		if (!patient(place, since)) {
			kerf_wait_with(place, bytes, bound ? bound : MOST);
			return true;
		}
	if (!kerf_over(place))
		return true;
	kerf_refused(place);
	return false;
}

uint64_t kerf_least_room(int place)
{
	uint64_t least = kerf_context_least(place);
	return least > LEAST ? least : LEAST;
}

uint64_t kerf_take_bound(int place, uint64_t bound)
{
	if (kerf_take(place, bound) || kerf_take_from_pools(place, bound))
		return bound;
	return kerf_take_rest(place, kerf_least_room(place));
}

void kerf_await_own(int place)
{
	uint64_t since = now();
	while (kerf_context_bound(place) && kerf_waits(place))
		if (!patient(place, since))
			return;
}
