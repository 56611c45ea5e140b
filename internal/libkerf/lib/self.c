/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this process knows of its own allocations. It lies in memory that the kernel empties in a child however it was
 * forked, locks included: what the parent holds is none of the child's. The program's own malloc is left alone.
 */
#include <sys/mman.h>

#include "kerf.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#define CHUNK (256 << 10)

/* What pthread_atfork comes to in glibc; musl has none of that name, and loads this library all the same. */
int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
	void *object) __attribute__((weak));

static struct kerf_self *_Atomic self;

static void empty(void)
{
	mmap(self, sizeof *self, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

struct kerf_self *kerf_self(void)
{
	struct kerf_self *now = atomic_load_explicit(&self, memory_order_acquire), *none = NULL;
	if (now)
		return now;
	now = mmap(NULL, sizeof *now, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (now == MAP_FAILED)
		return NULL;
	bool wiped = madvise(now, sizeof *now, MADV_WIPEONFORK) == 0; /* a kernel before 4.14 cannot */
	if (!atomic_compare_exchange_strong(&self, &none, now)) {
		munmap(now, sizeof *now);
		return none;
	}
	if (!wiped && (!__register_atfork || __register_atfork(NULL, NULL, empty, NULL) != 0))
		return NULL;
	return now;
}

/* With making held. */
static void *take_bytes(struct kerf_self *s, size_t bytes)
{
	bytes = (bytes + 15) / 16 * 16;
	if (s->left < bytes) {
		void *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (chunk == MAP_FAILED)
			return NULL;
		s->chunk = chunk;
		s->left = CHUNK;
	}
	void *here = s->chunk;
	s->chunk += bytes;
	s->left -= bytes;
	return here;
}

void *kerf_memory(size_t bytes)
{
	struct kerf_self *s = kerf_self();
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->making);
	void *made = take_bytes(s, bytes);
	pthread_mutex_unlock(&s->making);
	return made;
}

struct kerf_entry *kerf_entry(void)
{
	struct kerf_self *s = kerf_self();
	if (!s)
		return NULL;
	pthread_mutex_lock(&s->making);
	struct kerf_entry *e = s->spare;
	if (e)
		s->spare = e->next;
	else
		e = take_bytes(s, sizeof *e);
	pthread_mutex_unlock(&s->making);
	if (e)
		*e = (struct kerf_entry){ 0 };
	return e;
}

void kerf_drop(struct kerf_entry *e)
{
	struct kerf_self *s = kerf_self();
	if (!s)
		return;
	pthread_mutex_lock(&s->making);
	e->next = s->spare;
	s->spare = e;
	pthread_mutex_unlock(&s->making);
}

static uint64_t hash(int kind, uint64_t key)
{
	return ((key ^ (uint64_t)kind << 56) * UINT64_C(0x9E3779B97F4A7C15)) >> 49;
}
_Static_assert(KERF_BUCKETS == 1 << (64 - 49), "the hash takes the top bits");

void kerf_put(struct kerf_entry *e)
{
	struct kerf_self *s = kerf_self();
	uint64_t h = hash(e->kind, e->key);
	pthread_mutex_lock(&s->shard[h % KERF_SHARDS]);
	e->next = s->bucket[h];
	s->bucket[h] = e;
	pthread_mutex_unlock(&s->shard[h % KERF_SHARDS]);
}

struct kerf_entry *kerf_remove(int kind, uint64_t key)
{
	struct kerf_self *s = kerf_self();
	if (!s)
		return NULL;
	uint64_t h = hash(kind, key);
	pthread_mutex_lock(&s->shard[h % KERF_SHARDS]);
	struct kerf_entry **at = &s->bucket[h], *e;
	while (*at && ((*at)->key != key || (*at)->kind != kind))
		at = &(*at)->next;
	e = *at;
	if (e)
		*at = e->next;
	pthread_mutex_unlock(&s->shard[h % KERF_SHARDS]);
	return e;
}

struct kerf_entry *kerf_covering(int kind, uint64_t address)
{
	struct kerf_self *s = kerf_self();
	struct kerf_entry *found = NULL;
	for (uint64_t h = 0; s && h < KERF_BUCKETS && !found; h++) {
		pthread_mutex_lock(&s->shard[h % KERF_SHARDS]);
		for (found = s->bucket[h]; found; found = found->next)
			if (found->kind == kind && address - found->key < found->bytes)
				break;
		pthread_mutex_unlock(&s->shard[h % KERF_SHARDS]);
	}
	return found;
}

struct kerf_entry *kerf_remove_context(CUcontext context)
{
	struct kerf_self *s = kerf_self();
	struct kerf_entry *all = NULL;
	for (uint64_t h = 0; s && h < KERF_BUCKETS; h++) {
		pthread_mutex_lock(&s->shard[h % KERF_SHARDS]);
		for (struct kerf_entry **at = &s->bucket[h]; *at;) {
			struct kerf_entry *e = *at;
			if (e->context != context || e->kind > KERF_OF_CONTEXTS) {
				at = &e->next;
				continue;
			}
			*at = e->next;
			e->next = all;
			all = e;
		}
		pthread_mutex_unlock(&s->shard[h % KERF_SHARDS]);
	}
	return all;
}
