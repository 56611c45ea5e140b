/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Steps with the pool of a device.
 */
#include "kerfcheck.h"

static CUmemoryPool pool(void)
{
	CUmemoryPool p = NULL;
	CALL(cuDeviceGetMemPool)(&p, 0);
	return p;
}

static void keep(void)
{
	cuuint64_t all = UINT64_MAX;
	printf("%d\n", CALL(cuMemPoolSetAttribute)(pool(), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
}

/* Prints what the pool has, in MiB. */
static void reserved(void)
{
	cuuint64_t n = 0;
	CALL(cuMemPoolGetAttribute)(pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &n);
	printf("%llu\n", (unsigned long long)n >> 20);
}

/* Allocates sizes in MiB, each after the one before was freed, so many times, and prints how often that was refused. */
static void cycle(long times, char *sizes)
{
	size_t bytes[16], n = 0;
	int refused = 0;
	for (char *s = strtok(sizes, ","); s && n < 16; s = strtok(NULL, ","))
		bytes[n++] = strtoull(s, NULL, 10) << 20;
	for (long i = 0; n && i < times; i++) {
		CUdeviceptr ptr;
		if (CALL(cuMemAllocAsync)(&ptr, bytes[i % (long)n], NULL))
			refused++;
		else
			CALL(cuMemFreeAsync)(ptr, NULL);
	}
	printf("%d\n", refused);
}

/* Allocates and frees blocks of up to most MiB at random, of which live MiB at most are there at a time, and prints how
 * often that was refused. */
static void churn(long times, unsigned seed, size_t most, size_t live)
{
	enum { PLACES = 256 };
	static struct { CUdeviceptr ptr; size_t mib; } held_now[PLACES];
	size_t sum = 0;
	int refused = 0;
	for (long i = 0; i < times;) {
		int at = rand_r(&seed) % PLACES;
		size_t mib = 2 + (size_t)rand_r(&seed) % most / 2 * 2;
		if (held_now[at].mib) {
			CALL(cuMemFreeAsync)(held_now[at].ptr, NULL);
			sum -= held_now[at].mib;
			held_now[at].mib = 0;
		} else if (sum + mib <= live) {
			i++;
			if (CALL(cuMemAllocAsync)(&held_now[at].ptr, mib << 20, NULL)) {
				refused++;
				continue;
			}
			held_now[at].mib = mib;
			sum += mib;
		}
	}
	printf("%d\n", refused);
}

/* Prints how often a program called trim, if the driver counts that. */
static void trims(void)
{
	printf("%lu\n", ((unsigned long (*)(void))resolve("stub_trims"))());
}

bool pool_step(char **arg)
{
	if (!strcmp(arg[0], "keep"))
		keep();
	else if (!strcmp(arg[0], "reserved"))
		reserved();
	else if (!strcmp(arg[0], "cycle"))
		cycle(atol(arg[1]), arg[2]);
	else if (!strcmp(arg[0], "churn"))
		churn(atol(arg[1]), (unsigned)atol(arg[2]), strtoull(arg[3], NULL, 10), strtoull(arg[4], NULL, 10));
	else if (!strcmp(arg[0], "trims"))
		trims();
	else
		return false;
	return true;
}
