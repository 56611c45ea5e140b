/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cuInit: which GPUs this process can reach, and which of them its environment lets it use.
 */
#include "cuda_mps.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

pthread_mutex_t cuda_mu = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t init_mu = PTHREAD_MUTEX_INITIALIZER;
static int state;   /* 0: not initialised; 1: ready; 2: the child of a process that was */
static pid_t owner; /* the process that was initialised: a child of clone(2) runs no handler of forks */
static struct gpusim_conn conns[GPUSIM_MAX_MINORS] = {
	[0 ... GPUSIM_MAX_MINORS - 1] = GPUSIM_CONN_INIT,
};
static struct device devices[GPUSIM_MAX_MINORS];
static int count;

/* CUDA does not survive a fork: a child of an initialised process has no use of the driver at all, while one
 * that was forked before is a process like any other. */
static void in_child(void)
{
	pthread_mutex_init(&cuda_mu, NULL);
	pthread_mutex_init(&init_mu, NULL);
	cuda_mps_forget();
	if (state)
		state = 2;
}

__attribute__((constructor)) static void on_load(void)
{
	gpusim_at_fork_child(in_child);
}

CUresult cuda_enter(void)
{
	bool ready = __atomic_load_n(&state, __ATOMIC_ACQUIRE) == 1 && owner == getpid();
	return ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

#define LOCKED_PAUSE 1000000 /* nanoseconds */

CUresult cuda_status(int status)
{
	switch (status) {
	case GPUSIM_OK:
		return CUDA_SUCCESS;
	case GPUSIM_INVALID:
	case GPUSIM_INVALID_LIMIT:
	case GPUSIM_NOT_FOUND:
		return CUDA_ERROR_INVALID_VALUE;
	case GPUSIM_NOT_SUPPORTED:
		return CUDA_ERROR_NOT_SUPPORTED;
	case GPUSIM_NO_PERMISSION:
		return CUDA_ERROR_NOT_PERMITTED;
	case GPUSIM_OUT_OF_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case GPUSIM_IN_USE:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	case GPUSIM_BAD_VERSION:
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	case GPUSIM_BAD_ADDRESS:
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	case GPUSIM_FAILED_LAUNCH:
		return CUDA_ERROR_LAUNCH_FAILED;
	case GPUSIM_SERVER_GONE:
		return CUDA_ERROR_MPS_RPC_FAILURE;
	default: /* a lost GPU and a daemon that is gone, too: the real library knows no more than that */
		return CUDA_ERROR_UNKNOWN;
	}
}

static int call(struct gpusim_conn *c, uint32_t op, const uint64_t args[GPUSIM_NARGS], uint64_t *vals, size_t n,
		char *text)
{
	struct gpusim_reply reply = { .vals = vals, .max_vals = n, .text = text, .max_text = text ? MAX_TEXT : 0 };
	int status = gpusim_call(c, op, args, NULL, &reply);
	return status == GPUSIM_OK && reply.nvals < n ? GPUSIM_UNKNOWN_ERROR : status;
}

CUresult cuda_call(CUdevice device, uint32_t op, const uint64_t args[GPUSIM_NARGS], uint64_t *vals, size_t n)
{
	int status;
	while ((status = call(devices[device].conn, op, args, vals, n, NULL)) == GPUSIM_LOCKED)
		cuda_sleep_until(cuda_now() + LOCKED_PAUSE);
	return cuda_status(status);
}

static CUresult check_driver(void)
{
	static struct gpusim_conn ctl = GPUSIM_CONN_INIT; /* guarded by init_mu, open only here */
	uint64_t v[2];
	if (!gpusim_open(&ctl, GPUSIM_CTL))
		return CUDA_ERROR_NO_DEVICE;
	int status = call(&ctl, GPUSIM_OP_SYSTEM, NULL, v, 2, NULL);
	gpusim_close(&ctl);
	if (status == GPUSIM_BROKEN)
		return CUDA_ERROR_NO_DEVICE;
	if (status == GPUSIM_OK && v[1] != gpusim_driver_major)
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	return cuda_status(status);
}

static bool read_device(int minor, struct device *d)
{
	uint64_t v[22];
	char text[MAX_TEXT] = "";
	if (!gpusim_open(&conns[minor], minor) || call(&conns[minor], GPUSIM_OP_GPU_INFO, NULL, v, 22, text))
		return false;
	*d = (struct device){ .minor = minor, .total = v[2], .reserved = v[3], .cc_major = v[4], .cc_minor = v[5],
			      .sms = v[6], .domain = v[9], .bus = v[10], .device = v[11], .pci_id = v[12],
			      .subsystem_id = v[13], .threads_per_sm = v[18], .stream_bytes = v[20],
			      .sliced = v[21],
			      .conn = &conns[minor] };
	return gpusim_line(text, 0, d->uuid, sizeof d->uuid) && gpusim_line(text, 1, d->name, sizeof d->name);
}

static int by_address(const void *a, const void *b)
{
	const struct device *x = a, *y = b;
	uint64_t p = x->domain << 32 | x->bus << 16 | x->device, q = y->domain << 32 | y->bus << 16 | y->device;
	return p < q ? -1 : p > q;
}

/* Connections stay only to the GPUs that the process will use: to another it has no hold. */
static CUresult enumerate(void)
{
	int minors[GPUSIM_MAX_MINORS];
	bool keep[GPUSIM_MAX_MINORS] = { false };
	struct mps mps;
	TRY(check_driver());
	int n = gpusim_minors(minors);
	count = 0;
	for (int i = 0; i < n; i++)
		if (read_device(minors[i], &devices[count]))
			count++;
	qsort(devices, (size_t)count, sizeof devices[0], by_address);
	TRY(cuda_mps_connect(&mps, devices, &count));
	count = cuda_instances(devices, count);
	count = cuda_select(devices, count, getenv("CUDA_DEVICE_ORDER"), getenv("CUDA_VISIBLE_DEVICES"));
	count = cuda_one_instance(devices, count);
	for (int i = 0; i < count; i++)
		keep[devices[i].minor] = true;
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		if (!keep[i])
			gpusim_close(&conns[i]);
	CUresult ret = count ? cuda_mps_join(&mps, devices, count) : CUDA_ERROR_NO_DEVICE;
	if (ret)
		cuda_mps_leave();
	return ret;
}

CUresult cuInit(unsigned flags)
{
	NEED(flags == 0);
	pthread_mutex_lock(&init_mu);
	CUresult ret = CUDA_SUCCESS;
	if (state == 2 || (state == 1 && owner != getpid())) {
		ret = CUDA_ERROR_NOT_INITIALIZED;
	} else if (state == 0 && !(ret = enumerate())) {
		owner = getpid();
		__atomic_store_n(&state, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&init_mu);
	return ret;
}

/* The library's own version, which needs neither cuInit nor a driver. */
CUresult cuDriverGetVersion(int *version)
{
	NEED(version);
	*version = gpusim_cuda_version;
	return CUDA_SUCCESS;
}

CUresult cuda_device(CUdevice device, struct device **out)
{
	TRY(cuda_enter());
	if (device < 0 || device >= count)
		return CUDA_ERROR_INVALID_DEVICE;
	*out = &devices[device];
	return CUDA_SUCCESS;
}

int cuda_devices(struct device **list)
{
	*list = devices;
	return count;
}
