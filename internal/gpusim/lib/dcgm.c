/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * libdcgm.so.4 for the calls that a monitor with an embedded host engine makes: groups of fields are watched on all
 * GPUs, and their values are enumerated. A value is read from the simulated driver when it is asked for, so that the
 * engine has no thread; each call of dcgmGetValuesSince_v2 gives one sample. GPU instances have no values here.
 *
 * The ABI comes from the headers that go-dcgm carries. A file dcgm.crash beside the node's dev folder makes the next
 * enumeration end the process with a SIGSEGV, as a fault in the library would.
 */
#define DCGM_API_EXPORT 1
#include <dcgm_agent.h>
#include <dcgm_fields.h>
#include <dcgm_structs.h>

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

_Static_assert(sizeof(dcgmFieldValue_v1) == 32 - 8 + DCGM_MAX_BLOB_LENGTH, "layout of dcgmFieldValue_v1");
_Static_assert(offsetof(dcgmFieldValue_v1, ts) == 16 && offsetof(dcgmFieldValue_v1, value) == 24, "layout of dcgmFieldValue_v1");
_Static_assert(offsetof(dcgmProfGetMetricGroups_t, numMetricGroups) == 12, "layout of dcgmProfGetMetricGroups_v3");

#define HANDLE ((dcgmHandle_t)0x7fffffff)
#define MAX_GROUPS 16
#define MAX_FIELDS 128
#define MIB 1048576

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and the connections' order */
static bool initialised, running;
static struct {
	bool used, watched;
	int n;
	unsigned short ids[MAX_FIELDS];
} groups[MAX_GROUPS];
static struct gpusim_conn conns[GPUSIM_MAX_MINORS];

static __attribute__((constructor)) void init_conns(void)
{
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		conns[i] = (struct gpusim_conn)GPUSIM_CONN_INIT;
}

dcgmReturn_t dcgmInit(void)
{
	initialised = true;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmShutdown(void)
{
	initialised = false;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t mode, dcgmHandle_t *handle)
{
	int minors[GPUSIM_MAX_MINORS];
	if (!initialised)
		return DCGM_ST_UNINITIALIZED;
	if (!handle || (mode != DCGM_OPERATION_MODE_AUTO && mode != DCGM_OPERATION_MODE_MANUAL))
		return DCGM_ST_BADPARAM;
	if (gpusim_minors(minors) == 0)
		return DCGM_ST_NVML_NOT_LOADED;
	running = true;
	*handle = HANDLE;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t handle)
{
	if (handle != HANDLE || !running)
		return DCGM_ST_BADPARAM;
	running = false;
	for (int i = 0; i < GPUSIM_MAX_MINORS; i++)
		gpusim_close(&conns[i]);
	memset(groups, 0, sizeof groups);
	return DCGM_ST_OK;
}

const char *errorString(dcgmReturn_t result)
{
	switch (result) {
	case DCGM_ST_OK:
		return "Success";
	case DCGM_ST_BADPARAM:
		return "Bad parameter passed to function";
	case DCGM_ST_UNINITIALIZED:
		return "DCGM is not initialized";
	case DCGM_ST_NVML_NOT_LOADED:
		return "Cannot perform the requested operation because NVML doesn't exist on this system.";
	case DCGM_ST_REQUIRES_ROOT:
		return "This operation requires root";
	default:
		return "Error";
	}
}

static bool ready(dcgmHandle_t handle)
{
	return handle == HANDLE && running;
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int n, const unsigned short *ids, const char *name, dcgmFieldGrp_t *out)
{
	if (!ready(handle) || !ids || !name || !out || n <= 0 || n > MAX_FIELDS)
		return DCGM_ST_BADPARAM;
	dcgmReturn_t ret = DCGM_ST_MAX_LIMIT;
	pthread_mutex_lock(&mu);
	for (int i = 0; i < MAX_GROUPS && ret != DCGM_ST_OK; i++) {
		if (groups[i].used)
			continue;
		groups[i].used = true;
		groups[i].watched = false;
		groups[i].n = n;
		memcpy(groups[i].ids, ids, n * sizeof *ids);
		*out = (dcgmFieldGrp_t)(i + 1);
		ret = DCGM_ST_OK;
	}
	pthread_mutex_unlock(&mu);
	return ret;
}

static bool known(dcgmFieldGrp_t group)
{
	return group >= 1 && group <= MAX_GROUPS && groups[group - 1].used;
}

dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t handle, dcgmFieldGrp_t group)
{
	if (!ready(handle) || !known(group))
		return DCGM_ST_BADPARAM;
	groups[group - 1].used = false;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group, long long every, double keep, int samples)
{
	if (!ready(handle) || gpus != DCGM_GROUP_ALL_GPUS || !known(group) || every <= 0 || keep < 0 || samples < 0)
		return DCGM_ST_BADPARAM;
	for (int i = 0; i < groups[group - 1].n; i++)
		if (groups[group - 1].ids[i] >= DCGM_FI_PROF_GR_ENGINE_ACTIVE && geteuid() != 0)
			return DCGM_ST_REQUIRES_ROOT;
	groups[group - 1].watched = true;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group)
{
	if (!ready(handle) || gpus != DCGM_GROUP_ALL_GPUS || !known(group))
		return DCGM_ST_BADPARAM;
	groups[group - 1].watched = false;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t handle, int wait)
{
	(void)wait;
	return ready(handle) ? DCGM_ST_OK : DCGM_ST_BADPARAM;
}

/* The profiling fields are those of Volta and later. */
dcgmReturn_t dcgmProfGetSupportedMetricGroups(dcgmHandle_t handle, dcgmProfGetMetricGroups_t *out)
{
	uint64_t vals[20], args[GPUSIM_NARGS] = { 0 };
	struct gpusim_reply reply = { .vals = vals, .max_vals = 20 };
	if (!ready(handle) || !out || out->gpuId >= GPUSIM_MAX_MINORS)
		return DCGM_ST_BADPARAM;
	if (out->version != dcgmProfGetMetricGroups_version)
		return DCGM_ST_VER_MISMATCH;
	if (geteuid() != 0)
		return DCGM_ST_REQUIRES_ROOT;
	struct gpusim_conn *c = &conns[out->gpuId];
	if (!gpusim_open(c, (int)out->gpuId) || gpusim_call(c, GPUSIM_OP_GPU_INFO, args, NULL, &reply) != GPUSIM_OK)
		return DCGM_ST_GPU_IS_LOST;
	out->numMetricGroups = 0;
	if (vals[4] < 7)
		return DCGM_ST_PROFILING_NOT_SUPPORTED;
	out->numMetricGroups = 1;
	out->metricGroups[0] = (dcgmProfMetricGroupInfo_v2){ .numFieldIds = 3,
		.fieldIds = { DCGM_FI_PROF_GR_ENGINE_ACTIVE, DCGM_FI_PROF_SM_ACTIVE, DCGM_FI_PROF_DRAM_ACTIVE } };
	return DCGM_ST_OK;
}

/* What one GPU tells at one moment. */
struct state {
	bool ok;
	uint64_t memory[4], busy[2], sensors[9];
	char uuid[96];
};

static bool ask(struct gpusim_conn *c, uint32_t op, uint64_t *vals, size_t n, char *text, size_t size)
{
	uint64_t args[GPUSIM_NARGS] = { 0 }, all[32];
	struct gpusim_reply reply = { .vals = all, .max_vals = 32, .text = text, .max_text = size };
	if (gpusim_call(c, op, args, NULL, &reply) != GPUSIM_OK || reply.nvals < n)
		return false;
	memcpy(vals, all, n * sizeof *vals);
	return true;
}

static struct state look(int minor)
{
	struct state s = { .ok = false };
	char text[1024] = "";
	uint64_t info[1];
	if (!gpusim_open(&conns[minor], minor))
		return s;
	s.ok = ask(&conns[minor], GPUSIM_OP_GPU_INFO, info, 1, text, sizeof text) && gpusim_line(text, 0, s.uuid, sizeof s.uuid) &&
	       ask(&conns[minor], GPUSIM_OP_MEMORY, s.memory, 4, NULL, 0) && ask(&conns[minor], GPUSIM_OP_UTILIZATION, s.busy, 2, NULL, 0) &&
	       ask(&conns[minor], GPUSIM_OP_TELEMETRY, s.sensors, 9, NULL, 0);
	return s;
}

static void number(dcgmFieldValue_v1 *v, int64_t value)
{
	v->fieldType = DCGM_FT_INT64;
	v->value.i64 = value;
}

static void real(dcgmFieldValue_v1 *v, double value)
{
	v->fieldType = DCGM_FT_DOUBLE;
	v->value.dbl = value;
}

/* One value; what is not simulated is DCGM's blank. */
static void fill(dcgmFieldValue_v1 *v, unsigned short id, const struct state *s)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	v->version = dcgmFieldValue_version1;
	v->fieldId = id;
	v->status = DCGM_ST_OK;
	v->ts = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
	switch (id) {
	case DCGM_FI_DEV_UUID:
		v->fieldType = DCGM_FT_STRING;
		snprintf(v->value.str, sizeof v->value.str, "%s", s->uuid);
		return;
	case DCGM_FI_DEV_POWER_USAGE:
		return real(v, (double)s->sensors[0] / 1000);
	case DCGM_FI_DEV_ENFORCED_POWER_LIMIT:
		return real(v, (double)s->sensors[1] / 1000);
	case DCGM_FI_DEV_SM_CLOCK:
		return number(v, (int64_t)s->sensors[2]);
	case DCGM_FI_DEV_MEM_CLOCK:
		return number(v, (int64_t)s->sensors[4]);
	case DCGM_FI_DEV_GPU_TEMP:
		return number(v, (int64_t)s->sensors[6]);
	case DCGM_FI_DEV_ECC_SBE_VOL_TOTAL:
		return number(v, (int64_t)s->sensors[7]);
	case DCGM_FI_DEV_ECC_DBE_VOL_TOTAL:
		return number(v, (int64_t)s->sensors[8]);
	case DCGM_FI_DEV_FB_TOTAL:
		return number(v, (int64_t)(s->memory[0] / MIB));
	case DCGM_FI_DEV_FB_RESERVED:
		return number(v, (int64_t)(s->memory[1] / MIB));
	case DCGM_FI_DEV_FB_FREE:
		return number(v, (int64_t)(s->memory[2] / MIB));
	case DCGM_FI_DEV_FB_USED:
		return number(v, (int64_t)(s->memory[3] / MIB));
	case DCGM_FI_DEV_GPU_UTIL:
		return number(v, (int64_t)s->busy[0]);
	case DCGM_FI_DEV_MEM_COPY_UTIL:
		return number(v, (int64_t)s->busy[1]);
	case DCGM_FI_PROF_GR_ENGINE_ACTIVE:
	case DCGM_FI_PROF_SM_ACTIVE:
		return real(v, (double)s->busy[0] / 100);
	case DCGM_FI_PROF_DRAM_ACTIVE:
		return real(v, (double)s->busy[1] / 100);
	}
	if (id >= DCGM_FI_PROF_GR_ENGINE_ACTIVE)
		return real(v, DCGM_FP64_NOT_SUPPORTED);
	number(v, DCGM_INT64_NOT_SUPPORTED);
}

static void crash_if_told(void)
{
	char path[4096];
	struct stat st;
	if (gpusim_node_file("dcgm.crash", path, sizeof path) && stat(path, &st) == 0)
		raise(SIGSEGV);
}

dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group, long long since, long long *next,
				   dcgmFieldValueEntityEnumeration_f each, void *user)
{
	static dcgmFieldValue_v1 values[MAX_FIELDS]; /* half a MiB: too much for a stack; guarded by mu */
	int minors[GPUSIM_MAX_MINORS];
	if (!ready(handle) || gpus != DCGM_GROUP_ALL_GPUS || !known(group) || !groups[group - 1].watched || !next || !each)
		return DCGM_ST_BADPARAM;
	crash_if_told();
	pthread_mutex_lock(&mu);
	int n = gpusim_minors(minors);
	for (int i = 0; i < n; i++) {
		struct state s = look(minors[i]);
		if (!s.ok)
			continue; /* a lost GPU has no new values */
		for (int k = 0; k < groups[group - 1].n; k++)
			fill(&values[k], groups[group - 1].ids[k], &s);
		each(DCGM_FE_GPU, (dcgm_field_eid_t)minors[i], values, groups[group - 1].n, user);
	}
	pthread_mutex_unlock(&mu);
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	long long at = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
	*next = at > since ? at : since;
	return DCGM_ST_OK;
}
