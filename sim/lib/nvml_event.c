/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Event sets. Each has a separate connection, on which the daemon queues what is raised between two waits.
 */
#include "nvml_core.h"

#include <stdlib.h>
#include <time.h>

#define SUPPORTED                                                                                         \
	((uint64_t)(nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError | nvmlEventTypeXidCriticalError))

struct nvmlEventSet_st {
	struct gpusim_conn conn; /* must stay in place: the list of connections points to it */
	uint64_t types[GPUSIM_MAX_MINORS]; /* what each GPU was registered for */
	unsigned waiting;
	bool used, dead;
	struct nvmlEventSet_st *next;
};

/* Sets are kept and used again rather than freed: a connection stays listed for good, and a stale handle is
 * an error instead of a crash. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlEventSet_st *sets;

void nvml_events_in_child(void)
{
	pthread_mutex_init(&mu, NULL);
	for (struct nvmlEventSet_st *s = sets; s; s = s->next)
		s->waiting = 0;
}

/* With mu held. */
static struct nvmlEventSet_st *known(nvmlEventSet_t set)
{
	for (struct nvmlEventSet_st *s = sets; s; s = s->next)
		if (s == set.handle && s->used && !s->dead)
			return s;
	return NULL;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	TRY(nvml_enter());
	NEED(set);
	pthread_mutex_lock(&mu);
	struct nvmlEventSet_st *s = sets;
	while (s && s->used)
		s = s->next;
	if (!s && (s = calloc(1, sizeof *s))) {
		s->conn = (struct gpusim_conn)GPUSIM_CONN_INIT;
		s->next = sets;
		sets = s;
	}
	if (s) {
		s->used = true;
		s->dead = false;
		memset(s->types, 0, sizeof s->types);
		set->handle = s;
	}
	pthread_mutex_unlock(&mu);
	return s ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

/* With mu held, once no thread waits. */
static void put_back(struct nvmlEventSet_st *s)
{
	gpusim_close(&s->conn);
	s->used = false;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	TRY(nvml_enter());
	pthread_mutex_lock(&mu);
	struct nvmlEventSet_st *s = known(set);
	if (s) {
		s->dead = true;
		if (s->waiting)
			gpusim_interrupt(&s->conn); /* the last waiter puts it back */
		else
			put_back(s);
	}
	pthread_mutex_unlock(&mu);
	return s ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	struct gpu_info info;
	TRY(nvml_gpu(device));
	NEED(types);
	TRY(nvml_info(device.handle->minor, &info));
	*types = SUPPORTED;
	return NVML_SUCCESS;
}

/* Events are recorded from here on: opening the connection is what starts the daemon's queue. */
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	struct gpu_info info;
	TRY(nvml_gpu(device));
	TRY(nvml_info(device.handle->minor, &info));
	if (types & ~SUPPORTED)
		return NVML_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&mu);
	struct nvmlEventSet_st *s = known(set);
	nvmlReturn_t ret = s ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
	if (s && !s->waiting && !gpusim_open(&s->conn, GPUSIM_CTL))
		ret = NVML_ERROR_GPU_IS_LOST;
	if (ret == NVML_SUCCESS)
		s->types[device.handle->minor] |= types;
	pthread_mutex_unlock(&mu);
	return ret;
}

static uint64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* The daemon takes one mask of types for all GPUs, so what a GPU was not registered for is dropped here. */
static nvmlReturn_t wait_on(struct nvmlEventSet_st *s, nvmlEventData_t *data, unsigned timeout_ms)
{
	uint64_t end = now_ms() + timeout_ms;
	for (;;) {
		uint64_t args[GPUSIM_NARGS] = { 0 }, v[5];
		struct gpusim_reply reply = { .vals = v, .max_vals = 5 };
		uint64_t now = now_ms(), left = now < end ? end - now : 0;
		args[0] = left < 60000 ? left : 60000;
		pthread_mutex_lock(&mu);
		for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
			if (s->types[i]) {
				args[1] |= UINT64_C(1) << i;
				args[2] |= s->types[i];
			}
		pthread_mutex_unlock(&mu);
		int status = gpusim_call(&s->conn, GPUSIM_OP_WAIT_EVENT, args, NULL, &reply);
		if (status == GPUSIM_TIMEOUT) {
			if (left == 0 || now_ms() >= end)
				return NVML_ERROR_TIMEOUT;
			continue;
		}
		if (status != GPUSIM_OK)
			return nvml_status(status);
		if (reply.nvals < 5 || v[0] >= GPUSIM_MAX_MINORS)
			return NVML_ERROR_UNKNOWN;
		if (!(s->types[v[0]] & v[1]) || nvml_index((int)v[0]) < 0)
			continue;
		*data = (nvmlEventData_t){ .device = nvml_handle((int)v[0]), .eventType = v[1], .eventData = v[2],
					   .gpuInstanceId = (unsigned)v[3], .computeInstanceId = (unsigned)v[4] };
		return NVML_SUCCESS;
	}
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	TRY(nvml_enter());
	NEED(data);
	pthread_mutex_lock(&mu);
	struct nvmlEventSet_st *s = known(set);
	if (s)
		s->waiting++;
	pthread_mutex_unlock(&mu);
	NEED(s);
	nvmlReturn_t ret = wait_on(s, data, timeout_ms);
	pthread_mutex_lock(&mu);
	if (--s->waiting == 0 && s->dead)
		put_back(s);
	pthread_mutex_unlock(&mu);
	return ret;
}

/* The first version's callers know a struct that ends before gpuInstanceId. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
	nvmlEventData_t whole;
	NEED(data);
	TRY(nvmlEventSetWait_v2(set, &whole, timeout_ms));
	memcpy(data, &whole, offsetof(nvmlEventData_t, gpuInstanceId));
	return NVML_SUCCESS;
}
