/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools as the files see them that take from one: the driver's memory pools, and what it keeps for the graphs of a
 * device.
 */
#ifndef KERF_POOL_H
#define KERF_POOL_H

#include "kerf.h"

struct kerf_pool {
	struct kerf_pool *next;
	CUmemoryPool pool;
	pthread_mutex_t lock;
	uint64_t booked, held; /* held: in use of it, by what was asked for */
	uint64_t slack;        /* by how much it has grown past what was expected */
	int place;
	CUdevice graphs; /* the device of which it is the graphs', plus 1; 0: it is a memory pool */
	bool gone, host;
};

struct kerf_pool *kerf_pool_find(CUmemoryPool pool);
struct kerf_pool *kerf_pool_add(CUmemoryPool pool, int place); /* or finds it */
struct kerf_pool *kerf_pool_of_graphs(CUdevice device);
/* With the pool's lock held: books what the driver says that the pool has. */
void kerf_pool_settle(struct kerf_pool *p);
/* The same after taken more bytes were booked than it had; false: it has grown past them and past what there is. */
bool kerf_pool_grown(struct kerf_pool *p, uint64_t taken);

#endif
