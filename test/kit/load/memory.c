/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory: families of allocation, their contents, their growth, and what each of them costs the GPU.
 */
#include "kitload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct family {
	const char *name;
	CUresult (*take)(struct gpu *g, struct block *p);
	void (*give)(struct gpu *g, const struct block *p);
};

static CUresult take_linear(struct gpu *g, struct block *p)
{
	CALL(g, alloc(&p->ptr, p->bytes));
	return CUDA_SUCCESS;
}

static void give_linear(struct gpu *g, const struct block *p)
{
	g->free(p->ptr);
}

static CUresult take_async(struct gpu *g, struct block *p)
{
	CALL(g, alloc_async(&p->ptr, p->bytes, NULL));
	CALL(g, stream_sync(NULL));
	return CUDA_SUCCESS;
}

static void give_async(struct gpu *g, const struct block *p)
{
	g->free_async(p->ptr, NULL);
	g->stream_sync(NULL);
}

static CUresult take_managed(struct gpu *g, struct block *p)
{
	CALL(g, alloc_managed(&p->ptr, p->bytes, CU_MEM_ATTACH_GLOBAL));
	return CUDA_SUCCESS;
}

static CUresult take_pitched(struct gpu *g, struct block *p)
{
	const size_t row = 64 << 10;
	size_t pitch;
	CALL(g, alloc_pitch(&p->ptr, &pitch, row, (p->bytes + row - 1) / row, 16));
	return CUDA_SUCCESS;
}

static void unmap(struct gpu *g, const struct block *p)
{
	g->unmap(p->ptr, p->bytes);
	g->unreserve(p->ptr, p->bytes);
}

static CUresult take_vmm(struct gpu *g, struct block *p)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, g->device } };
	const CUmemAccessDesc access = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	size_t unit;
	CALL(g, granularity(&unit, &prop, 0));
	p->bytes = (p->bytes + unit - 1) / unit * unit;
	CALL(g, create(&p->handle, p->bytes, &prop, 0));
	CUresult ret = g->reserve(&p->ptr, p->bytes, 0, 0, 0);
	if (!ret) {
		ret = g->map(p->ptr, p->bytes, 0, p->handle, 0);
		if (!ret)
			ret = g->set_access(p->ptr, p->bytes, &access, 1);
		if (!ret)
			return ret;
		unmap(g, p);
	}
	g->release_handle(p->handle);
	g->failed = "cuMemMap";
	return ret;
}

static void give_vmm(struct gpu *g, const struct block *p)
{
	unmap(g, p);
	g->release_handle(p->handle);
}

static const struct family families[] = {
	{ "linear", take_linear, give_linear }, { "async", take_async, give_async },
	{ "managed", take_managed, give_linear }, { "pitched", take_pitched, give_linear },
	{ "vmm", take_vmm, give_vmm },
};

const struct family *find_family(const char *name)
{
	for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
		if (strcmp(name, families[i].name) == 0)
			return &families[i];
	return NULL;
}

CUresult take(struct gpu *g, const struct family *f, struct block *p)
{
	return f->take(g, p);
}

void give(struct gpu *g, const struct family *f, const struct block *p)
{
	f->give(g, p);
}

static CUresult words(struct gpu *g, const struct block *p, uint64_t seed, CUdeviceptr bad)
{
	CUdeviceptr ptr = p->ptr;
	uint64_t n = p->bytes / sizeof(uint64_t);
	void *params[] = { &ptr, &n, &seed, &bad };
	CUresult ret = run(g, bad ? g->check : g->fill, params, NULL);
	if (ret)
		return ret;
	CALL(g, ctx_sync());
	return CUDA_SUCCESS;
}

enum { BLOCKS = 4096 };

/* Takes steps up to all bytes, and fills each. *n is how many it got. The result is that of the step that failed. */
static CUresult fill_all(struct gpu *g, const struct arguments *a, struct block *blocks, unsigned *n)
{
	const struct family *f = find_family(a->api);
	uint64_t got = 0;
	for (*n = 0; got < a->alloc && *n < BLOCKS; ++*n) {
		struct block *p = &blocks[*n];
		p->bytes = a->step && a->step < a->alloc - got ? a->step : a->alloc - got;
		CUresult ret = f->take(g, p);
		if (ret)
			return ret;
		ret = words(g, p, *n, 0);
		if (ret)
			return ret;
		got += p->bytes;
	}
	return CUDA_SUCCESS;
}

static const char *name_of(struct gpu *g, CUresult result)
{
	const char *name = "unnamed";
	if (result)
		g->error_name(result, &name);
	return result ? name : "";
}

/* Fills up to --alloc, checks all, frees all, and takes the half of it again. */
CUresult do_fill(struct gpu *g, const struct arguments *a)
{
	static struct block blocks[BLOCKS];
	CUdeviceptr bad;
	uint64_t wrong = 0, got = 0;
	size_t total = 0, left = 0;
	unsigned n;
	bool kernels = false;
	CUresult ret = load_kernels(g);
	if (!ret)
		ret = kernels_run(g, &kernels);
	if (ret)
		return ret;
	CALL(g, alloc(&bad, sizeof wrong));
	CALL(g, to_device(bad, &wrong, sizeof wrong));
	CUresult met = fill_all(g, a, blocks, &n);
	for (unsigned i = 0; i < n && !ret; got += blocks[i++].bytes)
		ret = words(g, &blocks[i], i, bad);
	if (ret)
		return ret;
	CALL(g, mem_info(&left, &total));
	CALL(g, to_host(&wrong, bad, sizeof wrong));
	for (unsigned i = 0; i < n; i++)
		give(g, find_family(a->api), &blocks[i]);
	struct block again = { .bytes = got / 2 };
	CUresult back = again.bytes ? take(g, find_family(a->api), &again) : CUDA_SUCCESS;
	printf("{\"allocated_bytes\":%llu,\"error\":\"%s\",\"bad_words\":%llu,\"kernels\":%s,"
		"\"total_bytes\":%zu,\"again\":\"%s\"}\n",
	       (unsigned long long)got, name_of(g, met), (unsigned long long)wrong, kernels ? "true" : "false", total,
	       name_of(g, back));
	return CUDA_SUCCESS;
}

/* Takes a step each --every until it is killed, has --alloc, or meets an error, with a line for each. Then it holds
 * what it has until its input ends. */
CUresult do_grow(struct gpu *g, const struct arguments *a)
{
	const struct family *f = find_family(a->api);
	const struct timespec every = { (time_t)(a->every_ns / 1000000000u), (long)(a->every_ns % 1000000000u) };
	for (uint64_t got = 0; got < a->alloc;) {
		struct block p = { .bytes = a->step };
		CUresult ret = take(g, f, &p);
		if (!ret) {
			CALL(g, memset(p.ptr, 1, p.bytes));
			CALL(g, ctx_sync());
			got += p.bytes;
		}
		printf("{\"pid\":%d,\"at_ns\":%llu,\"bytes\":%llu,\"error\":\"%s\"}\n", (int)getpid(),
		       (unsigned long long)now_ns(), (unsigned long long)got, name_of(g, ret));
		fflush(stdout);
		if (ret)
			break;
		nanosleep(&every, NULL);
	}
	while (getchar() != EOF)
		;
	return CUDA_SUCCESS;
}
