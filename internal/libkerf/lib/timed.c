/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies, fills, and what streams do to words of memory. Each takes its turn as a launch does, but waits for it no
 * longer than a second: a kernel that runs already may be waiting for what it brings, and would be charged for as long.
 * What streams do to words takes no time worth measuring, and a stream that waits for a word uses none: they are
 * charged a fixed little.
 */
#include "throttle.h"

static uint64_t kerf_plane(const CUDA_MEMCPY2D *c)
{
	return c ? c->width * c->height : 0;
}

static uint64_t kerf_block(const CUDA_MEMCPY3D *c)
{
	return c ? c->width * c->height * c->depth : 0;
}

/* Of the first ones: it only tells apart what takes different times. */
static uint64_t kerf_sum(const size_t *bytes, size_t count)
{
	uint64_t all = count;
	for (size_t i = 0; bytes && i < count && i < 64; i++)
		all += bytes[i];
	return all;
}

/* What takes about the same time shares an estimate: eight sizes for each power of two. */
static uint64_t kind(enum kerf_function f, uint64_t bytes)
{
	int top = 63 - __builtin_clzll(bytes | 1);
	uint64_t size = top < 3 ? bytes : (uint64_t)top << 3 | (bytes >> (top - 3) & 7);
	return (uint64_t)f << 32 | size << 8 | 1;
}

#define DEFINE_COPY(name, params, args, stream, per_thread, bytes)                  \
	CUresult name params                                                        \
	{                                                                           \
		struct kerf_turn t;                                                 \
		KERF_NEED(name, CUDA_ERROR_NOT_INITIALIZED);                        \
		kerf_begin_copy(&t, kind(KERF_##name, bytes), stream, per_thread);  \
		return kerf_end_turn(&t, real args);                                \
	}
#define DEFINE_MEM_OP(name, params, args, per_thread, count)         \
	CUresult name params                                         \
	{                                                            \
		struct kerf_turn t;                                  \
		KERF_NEED(name, CUDA_ERROR_NOT_INITIALIZED);         \
		kerf_begin_mem_op(&t, count, s, per_thread);         \
		return kerf_end_turn(&t, real args);                 \
	}
#define COPY(name, suffix, params, args, stream, bytes)       \
	DEFINE_COPY(name, params, args, stream, false, bytes) \
	DEFINE_COPY(name##suffix, params, args, stream, true, bytes)
#define COPY_V1(name, params, args, stream, bytes) DEFINE_COPY(name, params, args, stream, false, bytes)
#define MEM_OP(name, params, args, count)            \
	DEFINE_MEM_OP(name, params, args, false, count) \
	DEFINE_MEM_OP(name##_ptsz, params, args, true, count)
#include "timed.def"
