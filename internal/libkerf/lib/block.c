/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small allocations. The driver packs them into blocks of 2 MiB, and a block goes back with the last allocation in it.
 * Seen on an H200 with driver 580.159.04: a request is rounded up to 512 bytes, and up to 1 MiB it shares a block. So
 * a block is charged as a whole while anything is in it. Its address tells which block it is. What fits into a gap is
 * served without more room; if the driver takes a block all the same, that is charged after, or the memory is freed.
 */
#include <limits.h>

#include "block.h"

#define UNIT 512
#define UNITS (KERF_BLOCK / UNIT)
#define NEAR 64 /* blocks that are searched for a gap before more memory is taken */

struct kerf_block {
	struct kerf_block *same; /* of a bucket */
	struct kerf_block *next, *before; /* those that changed last come first */
	uint64_t number; /* address / KERF_BLOCK */
	CUcontext context;
	int place;
	unsigned live, leaving; /* allocations; of these, those that are being freed */
	unsigned fits;		/* no gap has more units */
	uint64_t used[UNITS / 64];
};

static struct kerf_block **bucket(struct kerf_self *s, uint64_t number)
{
	return &s->block[(number * UINT64_C(0x9E3779B97F4A7C15)) >> 52];
}
_Static_assert(KERF_BLOCK_BUCKETS == 1 << (64 - 52), "the hash takes the top bits");

static struct kerf_block *find(struct kerf_self *s, uint64_t number, int place)
{
	struct kerf_block *b = *bucket(s, number);
	while (b && (b->number != number || b->place != place))
		b = b->same;
	return b;
}

static void unlist(struct kerf_self *s, struct kerf_block *b)
{
	*(b->before ? &b->before->next : &s->blocks) = b->next;
	if (b->next)
		b->next->before = b->before;
}

static void list_first(struct kerf_self *s, struct kerf_block *b)
{
	b->before = NULL;
	b->next = s->blocks;
	if (b->next)
		b->next->before = b;
	s->blocks = b;
}

static void mark(struct kerf_block *b, const struct kerf_entry *e, bool used)
{
	uint64_t from = e->key % KERF_BLOCK / UNIT, end = from + (e->bytes + UNIT - 1) / UNIT;
	for (uint64_t i = from; i < end && i < UNITS; i++)
		if (used)
			b->used[i / 64] |= UINT64_C(1) << i % 64;
		else
			b->used[i / 64] &= ~(UINT64_C(1) << i % 64);
}

static bool has_gap(struct kerf_block *b, unsigned units)
{
	unsigned run = 0;
	for (unsigned i = 0; i < UNITS && run < units;) {
		uint64_t word = b->used[i / 64] >> i % 64;
		if (i % 64 == 0 && (word == 0 || word == UINT64_MAX)) {
			run = word ? 0 : run + 64;
			i += 64;
		} else {
			run = word & 1 ? 0 : run + 1;
			i++;
		}
	}
	if (run < units)
		b->fits = units - 1;
	return run >= units;
}

struct kerf_block *kerf_block_with_gap(CUcontext context, int place, uint64_t bytes, bool all)
{
	struct kerf_self *s = kerf_self();
	struct kerf_block *found = NULL;
	const unsigned units = (unsigned)((bytes + UNIT - 1) / UNIT);
	int left = all ? INT_MAX : NEAR;
	pthread_mutex_lock(&s->packed);
	for (struct kerf_block *b = s->blocks; b && !found && left--; b = b->next)
		if (b->context == context && b->place == place && b->live > b->leaving && units <= b->fits &&
		    has_gap(b, units))
			found = b;
	pthread_mutex_unlock(&s->packed);
	return found;
}

void kerf_block_has_none(struct kerf_block *b)
{
	struct kerf_self *s = kerf_self();
	pthread_mutex_lock(&s->packed);
	b->fits = 0;
	pthread_mutex_unlock(&s->packed);
}

static struct kerf_block *added(struct kerf_self *s, const struct kerf_entry *e)
{
	struct kerf_block *b = s->spare_block, **to = bucket(s, e->key / KERF_BLOCK);
	if (b)
		s->spare_block = b->next;
	else if (!(b = kerf_memory(sizeof *b)))
		return NULL;
	*b = (struct kerf_block){ .number = e->key / KERF_BLOCK, .context = e->context, .place = e->place, .fits = UNITS,
		.same = *to };
	*to = b;
	list_first(s, b);
	return b;
}

static bool put(struct kerf_entry *e, bool adds)
{
	struct kerf_self *s = kerf_self();
	pthread_mutex_lock(&s->packed);
	struct kerf_block *b = adds ? added(s, e) : find(s, e->key / KERF_BLOCK, e->place);
	if (b) {
		e->block = b;
		b->live++;
		mark(b, e, true);
	}
	pthread_mutex_unlock(&s->packed);
	return b;
}

bool kerf_block_join(struct kerf_entry *e)
{
	return put(e, false);
}

bool kerf_block_open(struct kerf_entry *e)
{
	return put(e, true);
}

void kerf_block_leaves(struct kerf_entry *e, bool leaves)
{
	struct kerf_self *s = kerf_self();
	if (!e || !e->block || e->leaves == leaves)
		return;
	pthread_mutex_lock(&s->packed);
	e->leaves = leaves;
	e->block->leaving += leaves ? 1u : -1u;
	pthread_mutex_unlock(&s->packed);
}

static void removed(struct kerf_self *s, struct kerf_block *b)
{
	struct kerf_block **at = bucket(s, b->number);
	while (*at != b)
		at = &(*at)->same;
	*at = b->same;
	b->next = s->spare_block;
	s->spare_block = b;
}

void kerf_block_freed(struct kerf_entry *e)
{
	struct kerf_self *s = kerf_self();
	struct kerf_block *b = e->block;
	pthread_mutex_lock(&s->packed);
	mark(b, e, false);
	b->fits = UNITS;
	b->leaving -= e->leaves;
	unlist(s, b);
	const bool last = --b->live == 0;
	if (last)
		removed(s, b);
	else
		list_first(s, b);
	pthread_mutex_unlock(&s->packed);
	if (last)
		kerf_give(e->place, KERF_BLOCK);
}
