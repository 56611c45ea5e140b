/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What kerfcheck's files share.
 */
#ifndef KERFCHECK_H
#define KERFCHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

struct block {
	CUdeviceptr ptr;
	size_t bytes;
	union {
		CUmemGenericAllocationHandle handle;
		CUarray array;
		CUmipmappedArray mipmap;
		struct {
			CUgraph graph;
			CUgraphExec exec;
		};
	};
	void (*give)(struct block *p);
};

/* A way to take memory: take fills in p, of which bytes is set, or leaves nothing behind. */
struct family {
	const char *name;
	CUresult (*take)(struct block *p);
	void (*give)(struct block *p);
};
const struct family *find_family(const char *name);

/* Functions are resolved each time, in the way that was chosen. */
void choose(const char *way);
void reopen(void);
void *resolve(const char *name);
void *open_deep(const char *which, bool by_path);
#ifdef LINKED
#define CALL(f) (f)
#else
#define CALL(f) ((__typeof__(f) *)resolve(#f))
#endif

/* nvml.c: prints total, free and used of a GPU by its UUID, with both functions. */
void nvml_memory(const char *uuid);

/* steps.c: what is less common; false: there is no such step. */
bool other_step(char **arg);

/* mix.c: so many threads take so many steps; with until, the process kills itself at that step of all. Prints how many
 * allocations were served, and how many refused. */
void mix(int threads, long steps, unsigned seed, long until);

/* small.c: those with small allocations. */
bool small_step(char **arg);

/* pools.c: those with pools. */
bool pool_step(char **arg);

/* spin.c: prints the result and the nanoseconds of each of n launches. */
void spin(unsigned long long n);

extern struct block blocks[];
extern int held;

#endif
