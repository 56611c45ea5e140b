/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Initialisation, counted as in the real library, the GPUs that this process sees, and what the system says
 * of itself.
 */
#include "nvml_core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* init_mu guards initialisation; between, the lists below do not change. refs is read without it. */
static pthread_mutex_t init_mu = PTHREAD_MUTEX_INITIALIZER;
static unsigned refs;

static struct gpusim_conn gpus[GPUSIM_MAX_MINORS] = {
	[0 ... GPUSIM_MAX_MINORS - 1] = GPUSIM_CONN_INIT,
};
static struct nvmlDevice_st handles[GPUSIM_MAX_MINORS];
static bool reopen[GPUSIM_MAX_MINORS]; /* this is the child of a fork, and has not connected yet */
static int order[GPUSIM_MAX_MINORS];   /* minors by NVML index */
static int count;
static int cuda_version;
static char driver_version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
static char nvml_version[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];

/* The child of a fork goes on with new connections, made at its first calls. */
static void in_child(void)
{
	pthread_mutex_init(&init_mu, NULL);
	nvml_events_in_child();
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		reopen[i] = true;
}

__attribute__((constructor)) static void on_load(void)
{
	gpusim_at_fork_child(in_child);
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		handles[i].minor = i;
}

/* A driver of another branch than the library is refused, as the real one does. */
static nvmlReturn_t ask_system(void)
{
	static struct gpusim_conn system_conn = GPUSIM_CONN_INIT; /* guarded by init_mu, open only here */
	uint64_t vals[3] = { 0 };
	char text[MAX_TEXT] = "";
	struct gpusim_reply reply = { .vals = vals, .max_vals = 3, .text = text, .max_text = sizeof text };
	if (!gpusim_open(&system_conn, GPUSIM_CTL))
		return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
	int status = gpusim_call(&system_conn, GPUSIM_OP_SYSTEM, NULL, NULL, &reply);
	gpusim_close(&system_conn);
	if (status == GPUSIM_BROKEN)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	if (status != GPUSIM_OK)
		return nvml_status(status);
	if (reply.nvals < 3)
		return NVML_ERROR_UNKNOWN;
	if (vals[1] != gpusim_driver_major)
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	cuda_version = (int)vals[0];
	if (!gpusim_line(text, 0, driver_version, sizeof driver_version) ||
	    !gpusim_line(text, 1, nvml_version, sizeof nvml_version))
		return NVML_ERROR_UNKNOWN;
	return NVML_SUCCESS;
}

struct seen {
	int minor;
	uint64_t address;
};

static int by_address(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;
	return x->address < y->address ? -1 : x->address > y->address;
}

/* A GPU is seen when its socket can be connected to; NVML's order is that of the PCI addresses. A GPU
 * that was lost before this process came cannot say its address: it takes its place by minor, so that the
 * others keep their indices. */
static void enumerate(void)
{
	int minors[GPUSIM_MAX_MINORS];
	struct seen known[GPUSIM_MAX_MINORS];
	int lost[GPUSIM_MAX_MINORS];
	int nknown = 0, nlost = 0;
	int n = gpusim_minors(minors);
	for (int i = 0; i < n; i++) {
		struct gpu_info info;
		reopen[minors[i]] = false;
		if (!gpusim_open(&gpus[minors[i]], minors[i]))
			continue;
		nvmlReturn_t ret = nvml_info(minors[i], &info);
		if (ret == NVML_SUCCESS)
			known[nknown++] = (struct seen){ .minor = minors[i],
				.address = info.domain << 32 | info.bus << 16 | info.device << 8 };
		else
			lost[nlost++] = minors[i];
	}
	qsort(known, (size_t)nknown, sizeof known[0], by_address);
	count = 0;
	for (int i = 0, l = 0; i < nknown || l < nlost;) {
		if (l < nlost && (i == nknown || lost[l] < known[i].minor))
			order[count++] = lost[l++];
		else
			order[count++] = known[i++].minor;
	}
}

static void close_all(void)
{
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++) {
		gpusim_interrupt(&gpus[i]); /* another thread's call may hang on this GPU, and holds the mutex */
		gpusim_close(&gpus[i]);
	}
	count = 0;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	NEED(!(flags & ~(unsigned)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH | NVML_INIT_FLAG_FORCE_INIT)));
	pthread_mutex_lock(&init_mu);
	nvmlReturn_t ret = NVML_SUCCESS;
	if (refs == 0) {
		ret = ask_system();
		if (ret == NVML_SUCCESS)
			enumerate();
	}
	if (ret == NVML_SUCCESS)
		__atomic_store_n(&refs, refs + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&init_mu);
	return ret;
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	pthread_mutex_lock(&init_mu);
	nvmlReturn_t ret = refs ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
	if (refs) {
		__atomic_store_n(&refs, refs - 1, __ATOMIC_RELEASE);
		if (refs == 0)
			close_all();
	}
	pthread_mutex_unlock(&init_mu);
	return ret;
}

nvmlReturn_t nvml_enter(void)
{
	return __atomic_load_n(&refs, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvml_unsupported(void)
{
	TRY(nvml_enter());
	return NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t call(int minor, uint32_t op, const uint64_t *args, const char *text, struct gpusim_reply *reply)
{
	if (reopen[minor]) {
		reopen[minor] = false;
		gpusim_open(&gpus[minor], minor);
	}
	return nvml_status(gpusim_call(&gpus[minor], op, args, text, reply));
}

nvmlReturn_t nvml_call(int minor, uint32_t op, uint64_t arg0, uint64_t arg1, const char *text,
		       struct gpusim_reply *reply)
{
	return call(minor, op, (const uint64_t[GPUSIM_NARGS]){ arg0, arg1 }, text, reply);
}

nvmlReturn_t nvml_call3(int minor, uint32_t op, uint64_t arg0, uint64_t arg1, uint64_t arg2, struct gpusim_reply *reply)
{
	return call(minor, op, (const uint64_t[GPUSIM_NARGS]){ arg0, arg1, arg2 }, NULL, reply);
}

int nvml_count(void)
{
	return count;
}

int nvml_minor(int index)
{
	return order[index];
}

int nvml_index(int minor)
{
	for (int i = 0; i < count; i++)
		if (order[i] == minor)
			return i;
	return -1;
}

nvmlDevice_t nvml_handle(int minor)
{
	return (nvmlDevice_t){ .handle = &handles[minor] };
}

nvmlReturn_t nvml_resolve(nvmlDevice_t device)
{
	TRY(nvml_enter());
	const struct nvmlDevice_st *h = device.handle;
	NEED(h && ((h >= handles && h < handles + GPUSIM_MAX_MINORS) || nvml_is_mig_handle(h)));
	NEED(nvml_index(h->minor) >= 0);
	return NVML_SUCCESS;
}

nvmlReturn_t nvml_gpu(nvmlDevice_t device)
{
	TRY(nvml_resolve(device));
	NEED(!device.handle->mig);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	TRY(nvml_enter());
	return nvml_copy(driver_version, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	TRY(nvml_enter());
	return nvml_copy(nvml_version, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	TRY(nvml_enter());
	NEED(version);
	*version = cuda_version;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* The real library, too, reads the caller's /proc, so a container's answer is about its own pids. */
nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[64], text[4096];
	TRY(nvml_enter());
	NEED(name && length);
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NVML_ERROR_NOT_FOUND;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return NVML_ERROR_NOT_FOUND; /* a kernel thread or a zombie */
	text[n] = 0;
	snprintf(name, length, "%s", text);
	return NVML_SUCCESS;
}
