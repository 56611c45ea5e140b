/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Linear and managed memory, of which small allocations share blocks of the driver's. See block.c.
 */
#ifndef KERF_BLOCK_H
#define KERF_BLOCK_H

#include "kerf.h"

#define KERF_BLOCK ((uint64_t)2 << 20)
#define KERF_SMALL ((uint64_t)1 << 20) /* the largest allocation that shares a block */

/* The driver is expected to serve bytes from a block; NULL: from none. With all, each block is searched. */
struct kerf_block *kerf_block_with_gap(CUcontext context, int place, uint64_t bytes, bool all);
void kerf_block_has_none(struct kerf_block *b); /* the driver has not served what seemed to fit */
/* Puts what an entry's key, bytes, context and place tell into the block that it lies in. False: that block is not
 * counted yet. */
bool kerf_block_join(struct kerf_entry *e);
/* The same with a block that is new, for which the caller has taken KERF_BLOCK. False: no memory. */
bool kerf_block_open(struct kerf_entry *e);
/* The driver is asked to free what an entry stands for, or has refused; the entry may be NULL or in no block. */
void kerf_block_leaves(struct kerf_entry *e, bool leaves);
/* It has been freed. With the last of a block goes what was taken for that. */
void kerf_block_freed(struct kerf_entry *e);

/* linear.c: an allocation of the driver's that may share a block. ask calls the driver; managed memory has the place of
 * that. */
struct kerf_request {
	CUresult (*ask)(const struct kerf_request *r, uint64_t *bytes); /* corrects bytes by what the driver says */
	CUdeviceptr *ptr;
	size_t *pitch, width, height;
	unsigned element;
	unsigned flags;
	uint64_t bytes;
};
CUresult kerf_linear(const struct kerf_request *r, int place);

#endif
