/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contents of small allocations, by address. Whatever was never written reads as zeros, and so does a large allocation
 * and what another process has written.
 */
#include "cuda_core.h"

#include <stdlib.h>

#define CHUNK ((uint64_t)64 << 10)
#define LARGE ((uint64_t)4 << 20) /* from this size of an allocation on nothing is kept */
#define MOST ((64 << 20) / CHUNK) /* chunks of a process */
#define BUCKETS 256
#define NOWHERE (UINT64_C(1) << 63) /* from here on: what has no contents */

struct chunk {
	uint64_t at; /* a multiple of CHUNK */
	struct chunk *next;
	unsigned char bytes[CHUNK];
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct chunk *chunks[BUCKETS];
static uint64_t count;

/* With mu held. NULL: it has no contents, or no room for them. */
static struct chunk *chunk_of(uint64_t address, bool make)
{
	uint64_t at = address / CHUNK * CHUNK;
	struct chunk **list = &chunks[address / CHUNK % BUCKETS], *c = *list;
	while (c && c->at != at)
		c = c->next;
	if (c || !make || count == MOST || !(c = calloc(1, sizeof *c)))
		return c;
	c->at = at;
	c->next = *list;
	*list = c;
	count++;
	return c;
}

void cuda_bytes_write(uint64_t to, const void *from, size_t bytes)
{
	struct allocation a;
	if (to >= NOWHERE || (cuda_holds(to, 1, &a) && a.bytes >= LARGE))
		return;
	pthread_mutex_lock(&mu);
	for (size_t done = 0, n; done < bytes && bytes < LARGE; done += n) {
		uint64_t at = to + done;
		n = CHUNK - at % CHUNK < bytes - done ? CHUNK - at % CHUNK : bytes - done;
		struct chunk *c = chunk_of(at, true);
		if (c)
			memcpy(c->bytes + at % CHUNK, (const char *)from + done, n);
	}
	pthread_mutex_unlock(&mu);
}

void cuda_bytes_read(void *to, uint64_t from, size_t bytes)
{
	pthread_mutex_lock(&mu);
	for (size_t done = 0, n; done < bytes; done += n) {
		uint64_t at = from + done;
		n = CHUNK - at % CHUNK < bytes - done ? CHUNK - at % CHUNK : bytes - done;
		const struct chunk *c = count ? chunk_of(at, false) : NULL;
		if (c)
			memcpy((char *)to + done, c->bytes + at % CHUNK, n);
		else
			memset((char *)to + done, 0, n);
	}
	pthread_mutex_unlock(&mu);
}

void cuda_bytes_drop(uint64_t from, uint64_t bytes)
{
	pthread_mutex_lock(&mu);
	for (int i = 0; count && i < BUCKETS; i++)
		for (struct chunk **at = &chunks[i]; *at;) {
			struct chunk *c = *at;
			if (c->at < from || c->at >= from + bytes) {
				at = &c->next;
				continue;
			}
			*at = c->next;
			count--;
			free(c);
		}
	pthread_mutex_unlock(&mu);
}
