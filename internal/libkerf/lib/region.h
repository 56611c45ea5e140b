/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The region that a container's processes share with the agent: two files in one folder. "limits" is
 * written by the agent and mapped read-only by processes; "usage" holds the counters. Every number is a 64-bit word
 * that is read and written in one step. internal/libkerf/layout.go has the same layout, and a test compares.
 */
#ifndef KERF_REGION_H
#define KERF_REGION_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define KERF_LIMITS_MAGIC 0x334d494c4652454bULL /* "KERFLIM3" */
#define KERF_USAGE_MAGIC 0x334553554652454bULL  /* "KERFUSE3" */
#define KERF_DEVICES 16
#define KERF_SLOTS 1024
#define KERF_UNKNOWN UINT64_MAX

struct kerf_limit {
	unsigned char uuid[16];
	_Atomic uint64_t limit;    /* bytes */
	_Atomic uint64_t overhead; /* bytes that the driver holds beyond what is counted */
	/* what one context takes; 0: nothing is put aside; KERF_UNKNOWN: none was seen yet */
	_Atomic uint64_t context;
	_Atomic uint64_t moves;	   /* odd while bytes move from the counters to overhead: they count twice */
};

struct kerf_limits {
	uint64_t magic;
	uint64_t devices;
	struct kerf_limit device[KERF_DEVICES];
	_Atomic uint64_t percent[KERF_DEVICES]; /* of the GPU's time; 0: it is not counted */
	_Atomic uint64_t rejects_managed; /* 1: managed memory is rejected; an older agent's page has no such word */
	/* Both count where context is KERF_UNKNOWN; an older agent's page has no such words. bound is at least what one
	 * context takes; 0: not known. least is the least that a context of this region was seen to take; 0: none was
	 * seen. */
	_Atomic uint64_t bound[KERF_DEVICES];
	_Atomic uint64_t least[KERF_DEVICES];
};

/* One process. owner is pid (22 bits) and, above it, start time, as its own pid namespace has them; 0: free.
 * A process that adds to or takes from a counter counts begun before and ended after. What it reserved for a context
 * is part of held, and of waiting from when the context is there until the agent has taken it over into overhead. */
struct kerf_slot {
	_Atomic uint64_t owner;
	_Atomic uint64_t spare; /* tells the programs apart that follow each other in a process */
	_Atomic uint64_t begun;
	_Atomic uint64_t ended;
	_Atomic uint64_t held[KERF_DEVICES];
	_Atomic uint64_t space;	 /* the pid namespace; 0: not known */
	_Atomic uint64_t making; /* how many contexts are being made */
	_Atomic uint64_t waiting[KERF_DEVICES];
	uint64_t pad[2];
};

/* Other words of kerf_total.turn: launches as the budget allows, and no launches. */
#define KERF_OPEN 0
#define KERF_HOLD 1
#define KERF_FIRST_ALONE 2

/* Times are of the GPU, in nanoseconds. */
struct kerf_total {
	_Atomic uint64_t bytes;
	_Atomic int64_t budget;    /* what may still be run; below 0: a debt. The agent adds, processes take */
	_Atomic uint64_t charged;  /* what was taken in all */
	_Atomic uint64_t refills;  /* counts the agent's; its lower half is the futex that processes wait at */
	_Atomic uint64_t launches; /* how many were charged */
	/* of these, how many ran on without a budget: no agent refilled it, or a copy waited too long */
	_Atomic uint64_t past;
	_Atomic uint64_t waited;   /* how long launches waited for a budget, summed over threads */
	_Atomic uint64_t ran;      /* what ran in all, as the driver reported, or else as charged; the agent adds */
	_Atomic uint64_t refused;  /* how many calls were refused for want of room */
	/* KERF_OPEN, KERF_HOLD, or the number of a turn in which only this container launches. An older agent writes
	 * none. */
	_Atomic uint64_t turn;
	_Atomic uint64_t occupied; /* from launches to their seen ends, as far as it was measured */
	uint64_t pad[5];
};

struct kerf_usage {
	uint64_t magic;
	_Atomic uint64_t rejected; /* allocating functions that programs asked for and libkerf does not know */
	uint64_t pad[6];
	struct kerf_total total[KERF_DEVICES]; /* never less than the sum of what the slots hold */
	struct kerf_slot slot[KERF_SLOTS];
	/* The part of a slot's held that is managed memory, with which the driver lists no process. It is changed after
	 * held is added to, and before it is taken from; an older agent's page has no such words. */
	_Atomic uint64_t managed[KERF_SLOTS][KERF_DEVICES];
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics without locks");
_Static_assert(sizeof(struct kerf_limit) == 48, "kerf_limit");
_Static_assert(sizeof(struct kerf_slot) == 320, "kerf_slot");
_Static_assert(sizeof(struct kerf_total) == 128, "kerf_total");

#endif
