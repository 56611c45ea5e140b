/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools as the files see them that take from one: the driver's memory pools, and what it keeps for the graphs of a
 * device.
 */
#ifndef KERF_POOL_H
#define KERF_POOL_H

#include "idle.h"
#include "kerf.h"

/* Pools grow by whole multiples of that: seen on an H200 with driver 580.159.04. A driver of which another unit is seen
 * is believed that one. */
#define KERF_POOL_UNIT ((uint64_t)32 << 20)

/* A part of a pool is rounded up to 512 bytes. */
static inline uint64_t kerf_pool_part(uint64_t bytes)
{
	return bytes > UINT64_MAX / 2 ? UINT64_MAX / 2 : (bytes + 511) / 512 * 512;
}

struct kerf_pool {
	struct kerf_pool *next;
	CUmemoryPool pool;
	pthread_mutex_t lock;
	uint64_t booked, held; /* held: in use of it, by what was asked for */
	uint64_t unit;	       /* of what it grows by; 0: KERF_POOL_UNIT */
	unsigned distrust;     /* for so many allocations, what is idle does not count: the pool grew all the same */
	struct kerf_idle idle;
	int place;
	CUdevice graphs; /* the device of which it is the graphs', plus 1; 0: it is a memory pool */
	uint64_t padding; /* of the graphs' memory in use: the rest of its last pages, which the driver does not report */
	bool gone, host;
};

struct kerf_pool *kerf_pool_find(CUmemoryPool pool);
struct kerf_pool *kerf_pool_add(CUmemoryPool pool, int place); /* or finds it */
struct kerf_pool *kerf_pool_of_graphs(CUdevice device);
/* With the pool's lock held: counts what the driver says that the pool has. True: it has given memory back. */
bool kerf_pool_settle(struct kerf_pool *p);
/* With the lock held: does the pool serve bytes without growing? */
bool kerf_pool_serves(struct kerf_pool *p, uint64_t bytes);
/* With the lock held: by how much the pool is expected to grow for bytes that it does not serve without. */
uint64_t kerf_pool_growth(const struct kerf_pool *p, uint64_t bytes);
/* With the lock held, after the driver has served e, or NULL if it has refused, and taken bytes were reserved for that:
 * counts what the pool has. False: it has grown past that and past what there is. */
bool kerf_pool_grown(struct kerf_pool *p, uint64_t taken, struct kerf_entry *e);
/* Frees a part of a pool by the driver's function. */
CUresult kerf_pool_free(struct kerf_entry *part, CUstream stream, CUresult (*real)(CUdeviceptr, CUstream));
/* Has the pool give back as much as is missing, or more if it gives that back as a whole. True: it has given
 * something. */
bool kerf_pool_trim(struct kerf_pool *p, uint64_t missing);

#endif
