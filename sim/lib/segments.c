/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 */
#include "segments.h"

#include <stdlib.h>

/* Unused memory of a segment. Neighbours are merged; the list is in order. */
struct part {
	uint64_t at, bytes;
	struct part *next;
};

struct segment {
	uint64_t at, bytes, used;
	struct part *unused;
	struct segment *next;
};

static struct part **find_part(const struct segments *s, uint64_t bytes, struct segment **of)
{
	struct part **best = NULL;
	for (struct segment *g = s->first; g; g = g->next)
		for (struct part **at = &g->unused; *at; at = &(*at)->next)
			if ((s->whole ? g->bytes == bytes && !g->used : (*at)->bytes >= bytes) &&
				(!best || (*at)->bytes < (*best)->bytes)) {
				best = at;
				*of = g;
			}
	return best;
}

uint64_t segments_missing(const struct segments *s, uint64_t bytes)
{
	struct segment *of;
	uint64_t unused = s->reserved - s->leaving - s->used;
	if (s->remaps)
		return bytes > unused ? bytes - unused : 0;
	return find_part(s, bytes, &of) ? 0 : bytes;
}

bool segments_grow(struct segments *s, uint64_t at, uint64_t bytes)
{
	struct segment *g = malloc(sizeof *g);
	struct part *all = malloc(sizeof *all);
	if (!g || !all) {
		free(g);
		free(all);
		return false;
	}
	*all = (struct part){ .at = at, .bytes = bytes };
	*g = (struct segment){ .at = at, .bytes = bytes, .unused = all, .next = s->first };
	s->first = g;
	s->reserved += bytes;
	return true;
}

uint64_t segments_take(struct segments *s, uint64_t bytes)
{
	struct segment *of = NULL;
	struct part **at = s->remaps ? NULL : find_part(s, bytes, &of), *p = at ? *at : NULL;
	if (!s->remaps && !p)
		return segments_none;
	s->used += bytes;
	if (s->remaps)
		return 0;
	uint64_t address = p->at;
	of->used += bytes;
	p->at += bytes;
	p->bytes -= bytes;
	if (!p->bytes) {
		*at = p->next;
		free(p);
	}
	return address;
}

static void merge(struct part *p)
{
	while (p && p->next)
		if (p->at + p->bytes == p->next->at) {
			struct part *gone = p->next;
			p->bytes += gone->bytes;
			p->next = gone->next;
			free(gone);
		} else {
			p = p->next;
		}
}

void segments_put(struct segments *s, uint64_t address, uint64_t bytes)
{
	struct segment *g = s->first;
	s->used -= bytes;
	while (!s->remaps && g && address - g->at >= g->bytes)
		g = g->next;
	struct part *p = s->remaps || !g ? NULL : malloc(sizeof *p);
	if (!p)
		return; /* a host without memory: these bytes stay in use */
	struct part **at = &g->unused;
	while (*at && (*at)->at < address)
		at = &(*at)->next;
	*p = (struct part){ .at = address, .bytes = bytes, .next = *at };
	*at = p;
	g->used -= bytes;
	merge(g->unused);
}

static void drop_parts(struct segment *g)
{
	while (g->unused) {
		struct part *p = g->unused;
		g->unused = p->next;
		free(p);
	}
}

uint64_t segments_release(struct segments *s, uint64_t keep, bool least, uint64_t *bytes)
{
	for (struct segment **at = &s->first; *at; at = &(*at)->next) {
		struct segment *g = *at;
		uint64_t stays = s->reserved - s->leaving, more = stays > keep ? stays - keep : 0;
		if (!more || (least && g->bytes > more) || (s->remaps ? g->bytes > stays - s->used : g->used))
			continue;
		uint64_t address = g->at;
		*at = g->next;
		*bytes = g->bytes;
		s->leaving += g->bytes;
		drop_parts(g);
		free(g);
		return address;
	}
	return 0;
}

void segments_released(struct segments *s, uint64_t bytes)
{
	s->leaving -= bytes;
	s->reserved -= bytes;
}

void segments_reset(struct segments *s)
{
	s->used = 0;
	for (struct segment *g = s->first; g && !s->remaps; g = g->next) {
		struct part *all = malloc(sizeof *all);
		if (!all)
			return;
		drop_parts(g);
		*all = (struct part){ .at = g->at, .bytes = g->bytes };
		g->unused = all;
		g->used = 0;
	}
}
