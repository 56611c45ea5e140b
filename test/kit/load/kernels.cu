/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of the hardware kit. clang compiles them to PTX without NVIDIA's headers. The amount of work is fixed: no kernel
 * reads a clock, so a time slice of another process adds nothing to it. The simulated driver runs no kernel; it takes the
 * time of gpusim_sleep_ns_* from the first argument, which the kernels ignore.
 */
#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE static __attribute__((device, always_inline))

typedef unsigned long long u64;

DEVICE u64 thread_index()
{
	return (u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}

DEVICE u64 threads()
{
	return (u64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
}

DEVICE u64 pattern(u64 i, u64 seed)
{
	return i * 0x9e3779b97f4a7c15ull + seed;
}

KERNEL kit_empty()
{
}

/* Writes a pattern to n words. */
KERNEL kit_fill(u64 *to, u64 n, u64 seed)
{
	for (u64 i = thread_index(); i < n; i += threads())
		to[i] = pattern(i, seed);
}

/* Adds to *bad how many of n words differ from the pattern. */
KERNEL kit_check(const u64 *from, u64 n, u64 seed, u64 *bad)
{
	u64 wrong = 0;
	for (u64 i = thread_index(); i < n; i += threads())
		wrong += from[i] != pattern(i, seed);
	if (wrong)
		__nvvm_atom_add_gen_ll((long long *)bad, (long long)wrong);
}

/* Work for the multiprocessors: n rounds of two dependent operations. */
KERNEL gpusim_sleep_ns_fma(u64, u64 n, float *out)
{
	float a = (float)thread_index() * 1e-9f, b = a;
	for (u64 i = 0; i < n; i++) {
		a = a * 0.999f + 0.5f;
		b = b * 0.998f + a;
	}
	if (a + b == -1.0f)
		*out = a;
}

/* Work for the memory: reads n words. */
KERNEL gpusim_sleep_ns_read(u64, const u64 *from, u64 n, u64 *out)
{
	u64 sum = 0;
	for (u64 i = thread_index(); i < n; i += threads())
		sum += from[i];
	if (sum == 1)
		*out = sum;
}
