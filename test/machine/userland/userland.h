/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What each case of the program checks besides its own results. USERLAND_CAP is the cap in bytes; without it there is
 * none. USERLAND_MANAGED=free: nothing limits managed memory here. Lines on stdout have to be the same with and without
 * a cap.
 */
#ifndef USERLAND_H
#define USERLAND_H

#include <cuda.h>
#include <cuda_runtime.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define FAIL(...)                                                      \
	do {                                                           \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);        \
		fprintf(stderr, __VA_ARGS__);                          \
		fputc('\n', stderr);                                   \
		exit(1);                                               \
	} while (0)
#define OK(call) IS(call, cudaSuccess)
#define IS(call, want)                                                                        \
	do {                                                                                  \
		cudaError_t is_ = (call);                                                     \
		if (is_ != (want))                                                            \
			FAIL("%s: %s, want %s", #call, cudaGetErrorName(is_), cudaGetErrorName(want)); \
	} while (0)
#define DRIVER(call)                                                 \
	do {                                                         \
		CUresult is_ = (call);                               \
		if (is_ != CUDA_SUCCESS)                             \
			FAIL("%s: CUresult %d", #call, (int)is_);    \
	} while (0)
#define TRUE(condition)                              \
	do {                                         \
		if (!(condition))                    \
			FAIL("not so: %s", #condition); \
	} while (0)

static inline size_t cap(void)
{
	const char *text = getenv("USERLAND_CAP");
	return text ? strtoull(text, NULL, 10) : 0;
}

static inline bool managed_is_free(void)
{
	const char *text = getenv("USERLAND_MANAGED");
	return text && strcmp(text, "free") == 0;
}

/* USERLAND_LATE: memory for this program's code that the agent may find after the code was loaded, in bytes. */
static inline size_t late(void)
{
	const char *text = getenv("USERLAND_LATE");
	return text ? strtoull(text, NULL, 10) : 0;
}

static inline size_t total_now(void)
{
	size_t left, total;
	OK(cudaMemGetInfo(&left, &total));
	return total;
}

static inline size_t free_now(void)
{
	size_t left, total;
	OK(cudaMemGetInfo(&left, &total));
	return left;
}

/* Everything was freed. The agent's own account follows when it next looks. */
static inline void all_is_free(size_t before)
{
	size_t now = 0;
	for (int i = 0; i < 200; i++) {
		now = free_now();
		if (now == before || now + late() == before)
			return;
		usleep(50000);
	}
	FAIL("%zu bytes are free, %zu were", now, before);
}

/* The cap is the size of the GPU, or with USERLAND_TOTAL=whole what is free of it. */
static inline void cap_is_seen(size_t total)
{
	const char *text = getenv("USERLAND_TOTAL");
	bool whole = text && strcmp(text, "whole") == 0;
	if (!cap())
		return;
	TRUE(whole ? total > cap() : total == cap());
	TRUE(total_now() == total && free_now() <= cap());
}

/* More than there can be. */
static inline size_t too_much(void)
{
	return total_now() + GIB;
}

/* An allocation that has to be refused as out of memory, which leaves no error behind. */
#define REFUSED(call)                                  \
	do {                                           \
		IS(call, cudaErrorMemoryAllocation);   \
		IS(cudaGetLastError(), cudaErrorMemoryAllocation); \
		OK(cudaGetLastError());                \
	} while (0)

#endif
