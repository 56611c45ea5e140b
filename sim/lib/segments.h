/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one pool, without the driver: segments that the device gave, and what is in use of each. Callers hold a
 * lock of their own. All sizes are in bytes.
 */
#ifndef GPUSIM_SEGMENTS_H
#define GPUSIM_SEGMENTS_H

#include <stdbool.h>
#include <stdint.h>

struct segment;

struct segments {
	/* An allocation is part of a segment. With whole it is one by itself; with remaps, unused memory of all of them
	 * serves any, as graphs do it. */
	bool whole, remaps;
	uint64_t reserved, used;
	uint64_t leaving; /* of what is reserved, what was removed and the device does not have back yet */
	struct segment *first;
};

/* How much has to be added before bytes can be taken; 0: they fit. */
uint64_t segments_missing(const struct segments *s, uint64_t bytes);
/* Adds what the device gave at an address. False: no memory of the host. */
bool segments_grow(struct segments *s, uint64_t at, uint64_t bytes);
/* Takes bytes that fit, from the smallest unused part that is large enough; the address is 0 in segments that remap,
 * and segments_none if the host has no memory. */
#define segments_none UINT64_MAX
uint64_t segments_take(struct segments *s, uint64_t bytes);
void segments_put(struct segments *s, uint64_t at, uint64_t bytes);
/* Removes an unused segment while more than keep is reserved, and returns its address; 0: there is none. With least, no
 * less than keep stays. Its bytes stay reserved until segments_released reports that the device has them. */
uint64_t segments_release(struct segments *s, uint64_t keep, bool least, uint64_t *bytes);
void segments_released(struct segments *s, uint64_t bytes);
/* Nothing is in use any more. */
void segments_reset(struct segments *s);

#endif
