/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * random: 10,000 allocations through NVIDIA's CUDA runtime, in a fixed sequence of sizes, kinds and frees. At each
 * checkpoint it prints what it has, again for each "?" on stdin, until another byte comes. It counts in the driver's
 * blocks of 2 MiB: those of a request, and those that small allocations share by their addresses. It counts pools by
 * what the runtime says that they reserve.
 */
#include "userland.h"

#define BLOCK (2 * MIB)
#define MOST (1536 * MIB)

enum { ALLOCATIONS = 10000, CHECKPOINT = 1000, SLOTS = 128 };
enum kind { LINEAR, DRIVER_API, PITCHED, DEEP, ARRAY, ASYNC, MANAGED, PINNED, KINDS };

struct slot {
	void *p;
	enum kind kind;
	size_t counted;
	bool small; /* it may share a block with others, and is not in counted */
};

static struct slot slots[SLOTS];
static size_t blocks, managed, requests, rejections;
static unsigned seed = 20261124, made_by_kind[KINDS];
static cudaStream_t stream;
static cudaMemPool_t pool;

static size_t whole(size_t bytes)
{
	return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static size_t linear(struct slot *s, size_t bytes)
{
	s->small = bytes <= MIB;
	return s->small ? 0 : whole(bytes);
}

static bool shares(const struct slot *a, const struct slot *b)
{
	return b->p && b->small && (size_t)a->p / BLOCK == (size_t)b->p / BLOCK;
}

/* The blocks of all small allocations. */
static size_t packed(void)
{
	size_t sum = 0;
	for (int i = 0; i < SLOTS; i++) {
		bool counted = !slots[i].p || !slots[i].small;
		for (int k = 0; k < i && !counted; k++)
			counted = shares(&slots[i], &slots[k]);
		sum += counted ? 0 : BLOCK;
	}
	return sum;
}

static unsigned below(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static size_t reserved(void)
{
	uint64_t bytes;
	OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes));
	return bytes;
}

static void drop(struct slot *s)
{
	switch (s->kind) {
	case ARRAY:
		OK(cudaFreeArray((cudaArray_t)s->p));
		break;
	case ASYNC:
		OK(cudaFreeAsync(s->p, stream));
		break;
	case DRIVER_API:
		DRIVER(cuMemFree((CUdeviceptr)s->p));
		break;
	case PINNED:
		OK(cudaFreeHost(s->p));
		break;
	default:
		OK(cudaFree(s->p));
	}
	*(s->kind == MANAGED ? &managed : &blocks) -= s->counted;
	s->p = NULL;
}

/* Only an array without memory tells what it needs. */
static size_t array(struct slot *s, size_t bytes)
{
	cudaArray_t a;
	cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
	cudaArrayMemoryRequirements r;
	size_t height = bytes / 4096 + 1;
	OK(cudaMallocArray(&a, &f, 1024, height, cudaArrayDeferredMapping));
	OK(cudaArrayGetMemoryRequirements(&r, a, 0));
	OK(cudaFreeArray(a));
	OK(cudaMallocArray(&a, &f, 1024, height));
	s->p = a;
	return whole(r.size);
}

static size_t pitched(struct slot *s, size_t bytes)
{
	size_t pitch, width = 512 + below(8192), height = bytes / width + 1;
	OK(cudaMallocPitch(&s->p, &pitch, width, height));
	return linear(s, pitch * height);
}

static size_t deep(struct slot *s, size_t bytes)
{
	cudaPitchedPtr d;
	size_t width = 512 + below(1024), depth = bytes / (width * 64) + 1;
	OK(cudaMalloc3D(&d, make_cudaExtent(width, 64, depth)));
	s->p = d.ptr;
	return linear(s, d.pitch * 64 * depth);
}

/* Returns what is counted of the allocation itself: nothing of a pool, and nothing of the host's memory. */
static size_t make(struct slot *s, size_t bytes)
{
	switch (s->kind) {
	case PITCHED:
		return pitched(s, bytes);
	case DEEP:
		return deep(s, bytes);
	case ARRAY:
		return array(s, bytes);
	case ASYNC:
		OK(cudaMallocAsync(&s->p, bytes, stream));
		return 0;
	case PINNED:
		OK(cudaMallocHost(&s->p, bytes));
		return 0;
	case MANAGED: /* no function of the driver tells how it packs less than a block */
		OK(cudaMallocManaged(&s->p, whole(bytes)));
		return whole(bytes);
	case DRIVER_API:
		DRIVER(cuMemAlloc((CUdeviceptr *)&s->p, bytes));
		return linear(s, bytes);
	default:
		OK(cudaMalloc(&s->p, bytes));
		return linear(s, bytes);
	}
}

/* More than is free, also if the pool gives back what it does not use. It is rejected, and counts for nothing. */
static void reject(void)
{
	void *q;
	size_t bytes = free_now() + reserved() + 1 + below(GIB);
	REFUSED(below(2) ? cudaMalloc(&q, bytes) : cudaMallocAsync(&q, bytes, stream));
	rejections++;
}

static void print_account(void)
{
	size_t left, total;
	OK(cudaMemGetInfo(&left, &total));
	printf("{\"allocations\": %zu, \"rejections\": %zu, \"blocks\": %zu, \"pool\": %zu, \"managed\": %zu, "
	       "\"free\": %zu, \"total\": %zu}\n", requests, rejections, blocks + packed(), reserved(), managed, left, total);
	fflush(stdout);
}

static void checkpoint(void)
{
	char next = '?';
	OK(cudaStreamSynchronize(stream));
	while (next == '?') {
		print_account();
		if (read(STDIN_FILENO, &next, 1) != 1)
			FAIL("stdin is closed");
	}
}

static void step(void)
{
	struct slot *s = &slots[below(SLOTS)];
	size_t bytes = 1 + below(below(10) ? 4 * MIB : 64 * MIB);
	if (s->p)
		drop(s);
	if (blocks + packed() + managed + reserved() + 2 * bytes + 64 * MIB > MOST) /* rows end at a multiple of 512 */
		return;
	s->kind = (enum kind)below(KINDS);
	s->small = false;
	s->counted = make(s, bytes);
	*(s->kind == MANAGED ? &managed : &blocks) += s->counted;
	made_by_kind[s->kind]++;
	if (++requests % (CHECKPOINT / 10) == 0)
		reject();
	if (requests % CHECKPOINT == 0)
		checkpoint();
}

int main(void)
{
	OK(cudaFree(NULL));
	OK(cudaStreamCreate(&stream));
	OK(cudaDeviceGetDefaultMemPool(&pool, 0));
	checkpoint();
	while (requests < ALLOCATIONS)
		step();
	for (int i = 0; i < KINDS; i++)
		TRUE(made_by_kind[i] > ALLOCATIONS / KINDS / 2);
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].p)
			drop(&slots[i]);
	TRUE(blocks == 0 && packed() == 0 && managed == 0);
	checkpoint();
	return 0;
}
