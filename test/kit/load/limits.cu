/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that use what the limits of a context stand for. They are a module of their own: with one that allocates, the driver
 * may take the heap as soon as the module is loaded.
 */
#define KERNEL extern "C" __attribute__((global)) void

typedef unsigned long long u64;

extern "C" __attribute__((device)) void *malloc(unsigned long);
extern "C" __attribute__((device)) int vprintf(const char *, void *);

/* Takes memory of the heap, and keeps it. */
KERNEL kit_heap(u64 bytes, u64 *out)
{
	void *p = malloc(bytes);
	if (p)
		*(volatile char *)p = 1;
	*out = (u64)p;
}

KERNEL kit_printf(u64 n)
{
	u64 arguments[1] = { n };
	vprintf("%llu\n", arguments);
}

/* Uses a stack of 4 KiB. */
KERNEL kit_stack(u64 n, u64 *out)
{
	volatile u64 x[512];
	for (u64 i = 0; i < 512; i++)
		x[(i * n) & 511] = i;
	*out = x[n & 511];
}
