/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * counter layout                          prints the layout of the region
 * counter load LIMITS USAGE THREADS ROUNDS BYTES   registers, then reserves and returns in threads; ROUNDS 0: for ever.
 *                                         Exit 3: a reservation was refused; 4: a total was past the limit.
 * counter hold LIMITS USAGE BYTES         reserves once, prints "held" or "refused", and waits
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "counter.h"

static const struct kerf_limits *limits;
static struct kerf_usage *usage;
static struct kerf_slot *slot;
static uint64_t bytes;
static long rounds;

static void *map(const char *path, size_t size, int flags, int protection)
{
	int fd = open(path, flags);
	void *m = fd < 0 ? MAP_FAILED : mmap(NULL, size, protection, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	close(fd);
	return m;
}

static uint64_t start_time(void)
{
	static char line[1024];
	FILE *f = fopen("/proc/self/stat", "r");
	if (!f || !fgets(line, sizeof line, f))
		exit(1);
	fclose(f);
	char *at = strrchr(line, ')');
	for (int i = 0; at && i < 20; i++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at, NULL, 10) : 0;
}

static void *work(void *unused)
{
	(void)unused;
	for (long i = 0; rounds == 0 || i < rounds; i++) {
		if (!kerf_reserve(limits, usage, slot, 0, bytes)) {
			if (rounds)
				exit(3);
			continue;
		}
		if (atomic_load(&usage->total[0].bytes) > atomic_load(&limits->device[0].limit))
			exit(4);
		kerf_return(usage, slot, 0, bytes);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "layout") == 0) {
		printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu "
		       "%zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %d %d %llu %llu\n",
		       sizeof(struct kerf_limits),
		       offsetof(struct kerf_limits, device), offsetof(struct kerf_limit, overhead),
		       offsetof(struct kerf_limits, percent), offsetof(struct kerf_limits, rejects_managed),
		       offsetof(struct kerf_limits, bound), offsetof(struct kerf_limits, least),
		       offsetof(struct kerf_total, budget), offsetof(struct kerf_total, past),
		       sizeof(struct kerf_usage),
		       offsetof(struct kerf_usage, total), offsetof(struct kerf_usage, slot), sizeof(struct kerf_slot),
		       offsetof(struct kerf_slot, begun), offsetof(struct kerf_slot, held),
		       offsetof(struct kerf_limit, moves), offsetof(struct kerf_slot, making),
		       offsetof(struct kerf_slot, waiting), offsetof(struct kerf_total, refused),
		       offsetof(struct kerf_total, turn), offsetof(struct kerf_total, occupied),
		       offsetof(struct kerf_usage, rejected),
		       offsetof(struct kerf_usage, managed), KERF_DEVICES, KERF_SLOTS,
		       KERF_LIMITS_MAGIC, KERF_USAGE_MAGIC);
		return 0;
	}
	if (argc < 5)
		return 2;
	limits = map(argv[2], sizeof *limits, O_RDONLY, PROT_READ);
	usage = map(argv[3], sizeof *usage, O_RDWR, PROT_READ | PROT_WRITE);
	slot = kerf_claim(usage, start_time() << 22 | (uint64_t)getpid());
	if (!slot)
		return 1;
	if (strcmp(argv[1], "hold") == 0) {
		bytes = strtoull(argv[4], NULL, 10);
		puts(kerf_reserve(limits, usage, slot, 0, bytes) ? "held" : "refused");
		fflush(stdout);
		return getchar() == EOF ? 0 : 1;
	}
	if (argc != 7)
		return 2;
	int threads = atoi(argv[4]);
	rounds = atol(argv[5]);
	bytes = strtoull(argv[6], NULL, 10);
	pthread_t thread[64];
	for (int i = 0; i < threads && i < 64; i++)
		if (pthread_create(&thread[i], NULL, work, NULL))
			return 1;
	for (int i = 0; i < threads && i < 64; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
