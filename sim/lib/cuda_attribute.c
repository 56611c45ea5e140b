/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Attributes of devices, by their numbers in CUdevice_attribute. Values of an architecture are those that NVIDIA's
 * programming guide gives for its compute capability.
 */
#include "cuda_core.h"

/* What is the same on every GPU from Turing on. */
static const struct {
	int attribute, value;
} fixed[] = {
	{ 1, 1024 }, { 2, 1024 }, { 3, 1024 }, { 4, 64 }, { 5, 2147483647 }, { 6, 65535 },
	{ 7, 65535 }, { 8, 48 << 10 }, { 9, 64 << 10 }, { 10, 32 }, { 11, 2147483647 }, { 12, 65536 },
	{ 14, 512 }, { 15, 1 }, { 17, 0 }, { 18, 0 }, { 19, 1 }, { 21, 131072 }, { 22, 131072 },
	{ 23, 65536 }, { 24, 16384 }, { 25, 16384 }, { 26, 16384 }, { 27, 32768 }, { 28, 32768 },
	{ 29, 2048 }, { 30, 512 }, { 31, 1 }, { 32, 1 }, { 35, 0 }, { 40, 3 }, { 41, 1 },
	{ 42, 32768 }, { 43, 2048 }, { 44, 1 }, { 45, 32768 }, { 46, 32768 }, { 47, 8192 },
	{ 48, 8192 }, { 49, 32768 }, { 51, 32 }, { 52, 32768 }, { 53, 32768 }, { 54, 2046 },
	{ 55, 32768 }, { 56, 131072 }, { 57, 65536 }, { 58, 16384 }, { 59, 16384 }, { 60, 16384 },
	{ 61, 32768 }, { 62, 2048 }, { 63, 32768 }, { 64, 32768 }, { 65, 2048 }, { 66, 32768 },
	{ 67, 32768 }, { 68, 2046 }, { 69, 268435456 }, { 70, 131072 }, { 71, 65000 }, { 72, 2097120 },
	{ 73, 32768 }, { 74, 32768 }, { 77, 32768 }, { 78, 1 }, { 79, 1 }, { 80, 1 }, { 82, 65536 },
	{ 83, 1 }, { 84, 0 }, { 85, 0 }, { 86, 0 }, { 88, 0 }, { 89, 1 }, { 90, 1 }, { 91, 1 },
	{ 95, 1 }, { 96, 1 }, { 98, 0 }, { 99, 1 }, { 100, 0 }, { 101, 0 }, { 102, 1 }, { 103, 1 },
	{ 104, 0 }, { 105, 0 }, { 107, 0 }, { 112, 1 }, { 113, 0 }, { 114, 0 },
	{ 115, 1 }, { 119, 1 }, { 121, 1 }, { 128, 0 }, { 130, 0 }, { 131, -1 },
	/* What the simulator does not have: operations of streams on words, direct access by other PCI devices, IPC
	 * events. */
	{ 92, 0 }, { 93, 0 }, { 94, 0 }, { 110, 0 }, { 116, 0 }, { 117, 0 }, { 118, 0 }, { 122, 0 },
	{ 123, 0 }, { 124, 0 }, { 125, 0 },
	/* Nor has it Direct3D, Vulkan, decompression, or memory and pools of the host's NUMA nodes. */
	{ 134, 0 }, { 135, 0 }, { 136, 0 }, { 137, 0 }, { 138, 0 }, { 141, 0 }, { 142, 0 }, { 143, 0 }, { 144, 0 },
	{ 145, 0 }, { 146, 0 }, { 147, 0 },
};
#define LAST 147 /* that driver 580.159.04 knows */

/* By compute capability, 10 * major + minor, ascending: shared memory of a multiprocessor, the most of it that one
 * block can have, blocks of a multiprocessor, bits of the memory bus, KiB of L2 cache, single-precision units for each
 * double-precision one, KiB of that cache which can be kept, bytes of a window of it. */
static const struct arch {
	unsigned capability;
	int shared, shared_of_block, blocks, bus, cache, ratio, kept, window;
} archs[] = {
	{ 75, 64 << 10, 64 << 10, 16, 256, 4096, 32, 0, 134213632 },
	{ 80, 164 << 10, 163 << 10, 32, 5120, 40960, 2, 20480, 134213632 },
	{ 89, 100 << 10, 99 << 10, 24, 384, 98304, 64, 49152, 134213632 },
	{ 90, 228 << 10, 227 << 10, 32, 5120, 51200, 2, 25600, 134213632 },
	{ 100, 228 << 10, 227 << 10, 32, 8192, 129024, 2, 64512, 134213632 },
	{ 120, 100 << 10, 99 << 10, 24, 512, 131072, 64, 65536, 134213632 },
};

/* As seen, with driver 580.159.04. */
static const struct arch h200 = { 90, 228 << 10, 227 << 10, 32, 6016, 61440, 2, 38400, 134217728 };

static const struct arch *arch_of(const struct device *d)
{
	const struct arch *found = &archs[0];
	if (strstr(d->name, "H200"))
		return &h200;
	for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
		if (archs[i].capability <= 10 * d->cc_major + d->cc_minor)
			found = &archs[i];
	return found;
}

static CUresult of_arch(int *value, int attribute, const struct device *d)
{
	const struct arch *a = arch_of(d);
	bool hopper = d->cc_major >= 9;
	switch (attribute) {
	case 37: *value = a->bus; break;		  /* GLOBAL_MEMORY_BUS_WIDTH */
	case 38: *value = a->cache << 10; break;	  /* L2_CACHE_SIZE */
	case 81: *value = a->shared; break;		  /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
	case 87: *value = a->ratio; break;		  /* SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO */
	case 97: *value = a->shared_of_block; break;	  /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
	case 106: *value = a->blocks; break;		  /* MAX_BLOCKS_PER_MULTIPROCESSOR */
	case 108: *value = a->kept << 10; break;	  /* MAX_PERSISTING_L2_CACHE_SIZE */
	case 109: *value = a->window; break;		  /* MAX_ACCESS_POLICY_WINDOW_SIZE */
	case 111: *value = d->cc_major >= 8 ? 1024 : 0; break; /* RESERVED_SHARED_MEMORY_PER_BLOCK */
	case 120: *value = hopper; break;		  /* CLUSTER_LAUNCH */
	case 126: *value = hopper ? 4 : 1; break;	  /* MEM_SYNC_DOMAIN_COUNT */
	case 127: *value = hopper; break;		  /* TENSOR_MAP_ACCESS_SUPPORTED */
	case 129: *value = hopper; break;		  /* UNIFIED_FUNCTION_POINTERS */
	case 133: *value = d->mps; break;		  /* MPS_ENABLED */
	case 139: *value = (int)d->pci_id; break;	  /* GPU_PCI_DEVICE_ID */
	case 140: *value = (int)d->subsystem_id; break;	  /* GPU_PCI_SUBSYSTEM_ID */
	default: return attribute > 0 && attribute <= LAST ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* The highest clocks in kHz: 0 where the machine file has none. */
static CUresult clock_of(int *value, size_t which, CUdevice device)
{
	uint64_t v[6];
	TRY(cuda_call(device, GPUSIM_OP_TELEMETRY, (const uint64_t[GPUSIM_NARGS]){ 0 }, v, 6));
	*value = (int)v[which] * 1000;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	struct device *d;
	uint64_t mode;
	TRY(cuda_device(device, &d));
	NEED(value);
	for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
		if (fixed[i].attribute == attribute) {
			*value = fixed[i].value;
			return CUDA_SUCCESS;
		}
	switch (attribute) {
	case 13: return clock_of(value, 3, device); /* CLOCK_RATE */
	case 16: *value = (int)d->sms; break;	    /* MULTIPROCESSOR_COUNT */
	case 20:				    /* COMPUTE_MODE */
		TRY(cuda_call(device, GPUSIM_OP_COMPUTE_MODE, (const uint64_t[GPUSIM_NARGS]){ GPUSIM_UNKNOWN }, &mode, 1));
		*value = (int)mode;
		break;
	case 33: *value = (int)d->bus; break;		  /* PCI_BUS_ID */
	case 34: *value = (int)d->device; break;	  /* PCI_DEVICE_ID */
	case 36: return clock_of(value, 5, device);	  /* MEMORY_CLOCK_RATE */
	case 39: *value = (int)d->threads_per_sm; break;  /* MAX_THREADS_PER_MULTIPROCESSOR */
	case 50: *value = (int)d->domain; break;	  /* PCI_DOMAIN_ID */
	case 75: *value = (int)d->cc_major; break;	  /* COMPUTE_CAPABILITY_MAJOR */
	case 76: *value = (int)d->cc_minor; break;	  /* COMPUTE_CAPABILITY_MINOR */
	case 132: *value = cuda_multicast(device); break; /* MULTICAST_SUPPORTED */
	default: return of_arch(value, attribute, d);
	}
	return CUDA_SUCCESS;
}

/* CUdevprop, which newer programs have replaced by attributes. */
struct properties {
	int max_threads, max_block[3], max_grid[3], shared, constant, warp, pitch, registers, clock, alignment;
};
_Static_assert(sizeof(struct properties) == 56, "CUdevprop");

API(cuDeviceGetProperties, (struct properties *p, CUdevice device))
{
	struct device *d;
	TRY(cuda_device(device, &d));
	NEED(p);
	int *const value[] = { &p->max_threads, &p->max_block[0], &p->max_block[1], &p->max_block[2], &p->max_grid[0],
			       &p->max_grid[1],
			       &p->max_grid[2], &p->shared, &p->constant, &p->warp, &p->pitch, &p->registers, &p->clock,
			       &p->alignment };
	for (int i = 0; i < (int)(sizeof value / sizeof value[0]); i++)
		TRY(cuDeviceGetAttribute(value[i], i + 1, device));
	return CUDA_SUCCESS;
}

/* GPUs reach each other's memory by NVLink. */
static CUresult reaches(bool *yes, CUdevice device, CUdevice peer)
{
	struct device *d, *p;
	uint64_t v[2];
	TRY(cuda_device(device, &d));
	TRY(cuda_device(peer, &p));
	*yes = false;
	if (d->minor == p->minor || d->instance || p->instance)
		return CUDA_SUCCESS;
	TRY(cuda_call(device, GPUSIM_OP_TOPOLOGY, (const uint64_t[GPUSIM_NARGS]){ (uint64_t)p->minor }, v, 2));
	*yes = v[1] > 0;
	return CUDA_SUCCESS;
}

API(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice peer))
{
	bool yes;
	NEED(can);
	TRY(reaches(&yes, device, peer));
	*can = yes;
	return CUDA_SUCCESS;
}

/* 1: performance rank, 2: access, 3: native atomics, 4: access to arrays. */
API(cuDeviceGetP2PAttribute, (int *value, int attribute, CUdevice device, CUdevice peer))
{
	bool yes;
	NEED(value && attribute >= 1 && attribute <= 4);
	if (device == peer)
		return CUDA_ERROR_INVALID_DEVICE;
	TRY(reaches(&yes, device, peer));
	*value = attribute == 1 ? 0 : yes;
	return CUDA_SUCCESS;
}

API(cuDeviceGetTexture1DLinearMaxWidth, (size_t *width, int format, unsigned channels, CUdevice device))
{
	struct device *d;
	(void)format;
	TRY(cuda_device(device, &d));
	NEED(width && (channels == 1 || channels == 2 || channels == 4));
	*width = 268435456;
	return CUDA_SUCCESS;
}
