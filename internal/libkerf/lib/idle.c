/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "idle.h"

#include <stddef.h>

bool kerf_idle_fits(const struct kerf_idle *idle, uint64_t bytes)
{
	for (int i = 0; i < KERF_IDLE_PARTS; i++)
		if (idle->part[i].bytes >= bytes)
			return true;
	return false;
}

/* Joins a part with its neighbours of the same origin, which lose their places. */
static struct kerf_part join(struct kerf_idle *idle, struct kerf_part p)
{
	for (int i = 0; i < KERF_IDLE_PARTS; i++) {
		struct kerf_part *other = &idle->part[i];
		if (!other->bytes || other->origin != p.origin)
			continue;
		if (other->at + other->bytes == p.at)
			p.at = other->at;
		else if (p.at + p.bytes != other->at)
			continue;
		p.bytes += other->bytes;
		other->bytes = 0;
	}
	return p;
}

void kerf_idle_add(struct kerf_idle *idle, uint64_t at, uint64_t bytes, uint64_t origin)
{
	struct kerf_part p = join(idle, (struct kerf_part){ at, bytes, origin }), *smallest = &idle->part[0];
	for (int i = 1; i < KERF_IDLE_PARTS; i++)
		if (idle->part[i].bytes < smallest->bytes)
			smallest = &idle->part[i];
	if (smallest->bytes < p.bytes)
		*smallest = p;
}

uint64_t kerf_idle_take(struct kerf_idle *idle, uint64_t at, uint64_t bytes)
{
	uint64_t origin = 0;
	for (int i = 0; i < KERF_IDLE_PARTS; i++) {
		struct kerf_part p = idle->part[i];
		if (!p.bytes || at + bytes <= p.at || p.at + p.bytes <= at)
			continue;
		if (p.at <= at)
			origin = p.origin;
		idle->part[i].bytes = 0;
		if (p.at < at)
			kerf_idle_add(idle, p.at, at - p.at, p.origin);
		if (at + bytes < p.at + p.bytes)
			kerf_idle_add(idle, at + bytes, p.at + p.bytes - at - bytes, p.origin);
	}
	return origin;
}

void kerf_idle_forget(struct kerf_idle *idle)
{
	for (int i = 0; i < KERF_IDLE_PARTS; i++)
		idle->part[i].bytes = 0;
}
