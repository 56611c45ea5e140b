/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * libdcgm.so.4 for the calls that a monitor makes: groups of fields are watched on GPUs or on GPU instances, and
 * their values are enumerated. A value is read from the simulated driver when it is asked for, so that the engine has
 * no thread; each call of dcgmGetValuesSince_v2 gives one sample. GPU instances have profiling values alone. A remote
 * engine is the program that listens at its address: the values come from here, and the connection has to hold.
 *
 * The ABI comes from the headers that go-dcgm carries. A file dcgm.crash next to the node's dev folder makes the next
 * enumeration end the process with a SIGSEGV, as a fault in the library would.
 */
#define DCGM_API_EXPORT 1
#include <dcgm_agent.h>
#include <dcgm_fields.h>
#include <dcgm_structs.h>

#include <netdb.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "dcgm_core.h"

_Static_assert(sizeof(dcgmFieldValue_v1) == 32 - 8 + DCGM_MAX_BLOB_LENGTH, "layout of dcgmFieldValue_v1");
_Static_assert(offsetof(dcgmFieldValue_v1, ts) == 16 && offsetof(dcgmFieldValue_v1, value) == 24,
	"layout of dcgmFieldValue_v1");
_Static_assert(offsetof(dcgmMigHierarchy_v2, entityList) == 8 && sizeof(dcgmMigHierarchyInfo_v2) == 16 + 128 + 20,
	"layout of dcgmMigHierarchy_v2");
_Static_assert(sizeof(dcgmConnectV2Params_v2) == 16, "layout of dcgmConnectV2Params_v2");
_Static_assert(offsetof(dcgmProfGetMetricGroups_t, numMetricGroups) == 12, "layout of dcgmProfGetMetricGroups_v3");

#define HANDLE ((dcgmHandle_t)0x7fffffff)
#define MAX_GROUPS 16
#define MAX_ENTITIES 256
#define IDS_PER_GPU 64 /* the number of a GPU instance is minor * IDS_PER_GPU + its id */
#define MAX_FIELDS GPUSIM_DCGM_FIELDS
#define MIB 1048576

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and the connections' order */
static bool initialised, running;
static struct {
	bool used, watched;
	int n;
	unsigned short ids[MAX_FIELDS];
} groups[MAX_GROUPS];
static struct {
	bool used;
	int n;
	dcgm_field_entity_group_t kind; /* of all its entities */
	dcgm_field_eid_t ids[MAX_ENTITIES];
} sets[MAX_GROUPS];
static int remote = -1; /* the connection to another process's engine */
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
	memset(sets, 0, sizeof sets);
	return DCGM_ST_OK;
}

/* Connects to HOST:PORT, HOST being an address or localhost. */
dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_t *params, dcgmHandle_t *handle)
{
	char host[64];
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	if (!initialised)
		return DCGM_ST_UNINITIALIZED;
	const char *port = address ? strrchr(address, ':') : NULL;
	if (!port || !params || !handle || params->addressIsUnixSocket || (size_t)(port - address) >= sizeof host)
		return DCGM_ST_BADPARAM;
	if (params->version != dcgmConnectV2Params_version2)
		return DCGM_ST_VER_MISMATCH;
	snprintf(host, sizeof host, "%.*s", (int)(port - address), address);
	if (getaddrinfo(host, port + 1, &hints, &found) != 0)
		return DCGM_ST_CONNECTION_NOT_VALID;
	remote = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = remote >= 0 && connect(remote, found->ai_addr, found->ai_addrlen) == 0;
	freeaddrinfo(found);
	if (!ok) {
		if (remote >= 0)
			close(remote);
		remote = -1;
		return DCGM_ST_CONNECTION_NOT_VALID;
	}
	running = true;
	*handle = HANDLE;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle)
{
	if (handle != HANDLE || remote < 0)
		return DCGM_ST_BADPARAM;
	close(remote);
	remote = -1;
	return dcgmStopEmbedded(handle);
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
	case DCGM_ST_CONNECTION_NOT_VALID:
		return "The connection to the host engine is not valid any longer";
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

/* A remote engine that ended has closed the connection. */
static bool connected(void)
{
	char c;
	return remote < 0 || recv(remote, &c, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

static bool known_set(dcgmGpuGrp_t set)
{
	return set >= 1 && set <= MAX_GROUPS && sets[set - 1].used;
}

dcgmReturn_t dcgmGroupCreate(dcgmHandle_t handle, dcgmGroupType_t type, const char *name, dcgmGpuGrp_t *out)
{
	if (!ready(handle) || type != DCGM_GROUP_EMPTY || !name || !out)
		return DCGM_ST_BADPARAM;
	for (int i = 0; i < MAX_GROUPS; i++) {
		if (sets[i].used)
			continue;
		sets[i].used = true;
		sets[i].n = 0;
		*out = (dcgmGpuGrp_t)(i + 1);
		return DCGM_ST_OK;
	}
	return DCGM_ST_MAX_LIMIT;
}

dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t handle, dcgmGpuGrp_t set)
{
	if (!ready(handle) || !known_set(set))
		return DCGM_ST_BADPARAM;
	sets[set - 1].used = false;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t handle, dcgmGpuGrp_t set, dcgm_field_entity_group_t kind,
	dcgm_field_eid_t id)
{
	if (!ready(handle) || !known_set(set) || (kind != DCGM_FE_GPU && kind != DCGM_FE_GPU_I) ||
	    (sets[set - 1].n > 0 && sets[set - 1].kind != kind) || sets[set - 1].n == MAX_ENTITIES)
		return DCGM_ST_BADPARAM;
	sets[set - 1].kind = kind;
	sets[set - 1].ids[sets[set - 1].n++] = id;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t handle, int n, const unsigned short *ids, const char *name,
	dcgmFieldGrp_t *out)
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

dcgmReturn_t dcgmWatchFields(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group, long long every, double keep,
	int samples)
{
	if (!ready(handle) || (gpus != DCGM_GROUP_ALL_GPUS && !known_set(gpus)) || !known(group) || every <= 0 ||
		keep < 0 || samples < 0)
		return DCGM_ST_BADPARAM;
	for (int i = 0; i < groups[group - 1].n; i++)
		if (groups[group - 1].ids[i] >= DCGM_FI_PROF_GR_ENGINE_ACTIVE && geteuid() != 0)
			return DCGM_ST_REQUIRES_ROOT;
	groups[group - 1].watched = true;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group)
{
	if (!ready(handle) || (gpus != DCGM_GROUP_ALL_GPUS && !known_set(gpus)) || !known(group))
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

/* What one GPU, or one instance of it, tells at one moment: what OP_TELEMETRY says, memory and all. */
enum { POWER, POWER_LIMIT, SM_CLOCK, MEMORY_CLOCK = 4, TEMPERATURE = 6, CORRECTED, UNCORRECTED, REASONS = 11,
       BUSY, MEMORY_BUSY, TOTAL, RESERVED, FREE, USED, SYSTEM_MEMORY, SENSORS };
struct state {
	bool ok;
	uint64_t v[SENSORS];
	char uuid[96];
};

/* Asks a GPU for what the fields need: one question for the UUID, and one for all others. */
static struct state look(int minor, const unsigned short *fields, int n)
{
	struct state s = { .ok = false };
	char text[1024] = "";
	uint64_t info[32];
	bool uuid = false;
	for (int i = 0; i < n; i++)
		uuid = uuid || fields[i] == DCGM_FI_DEV_UUID;
	struct gpusim_conn *c = &conns[minor];
	if (!gpusim_open(c, minor))
		return s;
	struct gpusim_reply reply = { .vals = info, .max_vals = sizeof info / sizeof *info, .text = text,
		.max_text = sizeof text };
	if (uuid && (gpusim_call(c, GPUSIM_OP_GPU_INFO, (const uint64_t[GPUSIM_NARGS]){ 0 }, NULL, &reply) != GPUSIM_OK ||
		     !gpusim_line(text, 0, s.uuid, sizeof s.uuid)))
		return s;
	reply = (struct gpusim_reply){ .vals = s.v, .max_vals = SENSORS };
	s.ok = (uuid && n == 1) ||
		(gpusim_call(c, GPUSIM_OP_TELEMETRY, (const uint64_t[GPUSIM_NARGS]){ 1 }, NULL, &reply) == GPUSIM_OK &&
				    reply.nvals >= SENSORS);
	return s;
}

/* The instances of a GPU. */
#define MAX_INSTANCES 16
struct instances {
	int n;
	uint64_t gi[MAX_INSTANCES], profile[MAX_INSTANCES], size[MAX_INSTANCES];
};

static bool list_instances(int minor, struct instances *c)
{
	enum { ROW = GPUSIM_MIG_VALS, MOST = 2 * MAX_INSTANCES };
	static uint64_t list[1 + ROW * MOST]; /* guarded by mu */
	uint64_t args[GPUSIM_NARGS] = { 0 };
	struct gpusim_reply reply = { .vals = list, .max_vals = sizeof list / sizeof *list };
	c->n = 0;
	if (!gpusim_open(&conns[minor], minor) ||
		gpusim_call(&conns[minor], GPUSIM_OP_MIG_INSTANCES, args, NULL, &reply) != GPUSIM_OK)
		return false;
	for (uint64_t i = 0; i < list[0] && i < MOST && c->n < MAX_INSTANCES; i++) {
		if (c->n && c->gi[c->n - 1] == list[1 + ROW * i])
			continue; /* another compute instance of the same one */
		c->gi[c->n] = list[1 + ROW * i];
		c->profile[c->n] = list[2 + ROW * i];
		c->size[c->n++] = list[4 + ROW * i];
	}
	return true;
}

dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t handle, dcgmMigHierarchy_v2 *out)
{
	int minors[GPUSIM_MAX_MINORS];
	if (!ready(handle) || !out)
		return DCGM_ST_BADPARAM;
	if (out->version != dcgmMigHierarchy_version2)
		return DCGM_ST_VER_MISMATCH;
	out->count = 0;
	pthread_mutex_lock(&mu);
	int n = gpusim_minors(minors);
	for (int i = 0; i < n; i++) {
		struct instances c;
		struct state s = look(minors[i], (const unsigned short[]){ DCGM_FI_DEV_UUID }, 1);
		if (!s.ok || !list_instances(minors[i], &c))
			continue;
		for (int k = 0; k < c.n && out->count < DCGM_MAX_HIERARCHY_INFO; k++) {
			dcgmMigHierarchyInfo_v2 *h = &out->entityList[out->count++];
			*h = (dcgmMigHierarchyInfo_v2){
				.entity = { DCGM_FE_GPU_I, (dcgm_field_eid_t)(minors[i] * IDS_PER_GPU + (int)c.gi[k]) },
				.parent = { DCGM_FE_GPU, (dcgm_field_eid_t)minors[i] },
				.info = { .nvmlGpuIndex = (unsigned)i, .nvmlInstanceId = (unsigned)c.gi[k],
					  .nvmlComputeInstanceId = (unsigned)-1,
					  .nvmlMigProfileId = (unsigned)c.profile[k], .nvmlProfileSlices = (unsigned)c.size[k] },
			};
			snprintf(h->info.gpuUuid, sizeof h->info.gpuUuid, "%s", s.uuid);
		}
	}
	pthread_mutex_unlock(&mu);
	return DCGM_ST_OK;
}

static void number(dcgmFieldValue_v1 *v, int64_t value)
{
	v->fieldType = DCGM_FT_INT64;
	v->value.i64 = value;
}

/* An amount of memory in MiB. A GPU that uses the machine's memory has none to report. */
static void memory(dcgmFieldValue_v1 *v, const struct state *s, int which)
{
	number(v, s->v[SYSTEM_MEMORY] ? DCGM_INT64_NOT_SUPPORTED : (int64_t)(s->v[which] / MIB));
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
		return real(v, (double)s->v[POWER] / 1000);
	case DCGM_FI_DEV_ENFORCED_POWER_LIMIT:
		return real(v, (double)s->v[POWER_LIMIT] / 1000);
	case DCGM_FI_DEV_SM_CLOCK:
		return number(v, (int64_t)s->v[SM_CLOCK]);
	case DCGM_FI_DEV_MEM_CLOCK:
		return number(v, (int64_t)s->v[MEMORY_CLOCK]);
	case DCGM_FI_DEV_GPU_TEMP:
		return number(v, (int64_t)s->v[TEMPERATURE]);
	case DCGM_FI_DEV_CLOCK_THROTTLE_REASONS:
		return number(v, (int64_t)s->v[REASONS]);
	case DCGM_FI_DEV_ECC_SBE_VOL_TOTAL:
		return number(v, (int64_t)s->v[CORRECTED]);
	case DCGM_FI_DEV_ECC_DBE_VOL_TOTAL:
		return number(v, (int64_t)s->v[UNCORRECTED]);
	case DCGM_FI_DEV_FB_TOTAL:
		return memory(v, s, TOTAL);
	case DCGM_FI_DEV_FB_RESERVED:
		return memory(v, s, RESERVED);
	case DCGM_FI_DEV_FB_FREE:
		return memory(v, s, FREE);
	case DCGM_FI_DEV_FB_USED:
		return memory(v, s, USED);
	case DCGM_FI_DEV_GPU_UTIL:
		return number(v, (int64_t)s->v[BUSY]);
	case DCGM_FI_DEV_MEM_COPY_UTIL:
		return number(v, (int64_t)s->v[MEMORY_BUSY]);
	case DCGM_FI_PROF_GR_ENGINE_ACTIVE:
	case DCGM_FI_PROF_SM_ACTIVE:
		return real(v, (double)s->v[BUSY] / 100);
	case DCGM_FI_PROF_DRAM_ACTIVE:
		return real(v, (double)s->v[MEMORY_BUSY] / 100);
	}
	if (id >= DCGM_FI_PROF_GR_ENGINE_ACTIVE)
		return real(v, DCGM_FP64_NOT_SUPPORTED);
	number(v, DCGM_INT64_NOT_SUPPORTED);
}

char gpusim_dcgm_type(unsigned short field)
{
	static const struct state none;
	dcgmFieldValue_v1 v;
	fill(&v, field, &none);
	return (char)v.fieldType;
}

bool gpusim_dcgm_ready(unsigned long handle)
{
	return ready((dcgmHandle_t)handle);
}

static void crash_if_told(void)
{
	char path[4096];
	struct stat st;
	if (gpusim_node_file("dcgm.crash", path, sizeof path) && stat(path, &st) == 0)
		raise(SIGSEGV);
}

/* Enumerates the values of GPU instances: each is as busy as its processes were in the last second, and one that was
 * destroyed has none. The ids come in order, so that each GPU is looked at once. mu is held. */
static void each_instance(const dcgm_field_eid_t *ids, int n, const unsigned short *fields, int nfields,
			  dcgmFieldValue_v1 *values,
			  dcgmFieldValueEntityEnumeration_f each, void *user)
{
	uint64_t busy[1 + 2 * MAX_INSTANCES], args[GPUSIM_NARGS] = { 0 };
	int seen = -1;
	for (int i = 0; i < n; i++) {
		int minor = (int)(ids[i] / IDS_PER_GPU);
		if (minor != seen) {
			struct gpusim_reply reply = { .vals = busy, .max_vals = sizeof busy / sizeof *busy };
			busy[0] = 0;
			if (!gpusim_open(&conns[minor], minor) ||
			    gpusim_call(&conns[minor], GPUSIM_OP_INSTANCE_UTIL, args, NULL, &reply) != GPUSIM_OK)
				busy[0] = 0;
		}
		seen = minor;
		for (uint64_t k = 0; k < busy[0] && k < MAX_INSTANCES; k++) {
			if (busy[1 + 2 * k] != ids[i] % IDS_PER_GPU)
				continue;
			struct state s = { .ok = true };
			s.v[BUSY] = busy[2 + 2 * k];
			s.v[MEMORY_BUSY] = s.v[BUSY] / 2;
			for (int f = 0; f < nfields; f++)
				fill(&values[f], fields[f], &s);
			each(DCGM_FE_GPU_I, ids[i], values, nfields, user);
		}
	}
}

dcgmReturn_t dcgmGetValuesSince_v2(dcgmHandle_t handle, dcgmGpuGrp_t gpus, dcgmFieldGrp_t group, long long since,
				   long long *next,
				   dcgmFieldValueEntityEnumeration_f each, void *user)
{
	static dcgmFieldValue_v1 values[MAX_FIELDS]; /* half a MiB: too much for a stack; guarded by mu */
	int minors[GPUSIM_MAX_MINORS], n = 0;
	bool all = gpus == DCGM_GROUP_ALL_GPUS;
	if (!ready(handle) || (!all && !known_set(gpus)) || !known(group) || !groups[group - 1].watched || !next || !each)
		return DCGM_ST_BADPARAM;
	if (!connected())
		return DCGM_ST_CONNECTION_NOT_VALID;
	crash_if_told();
	pthread_mutex_lock(&mu);
	if (all)
		n = gpusim_minors(minors);
	else if (sets[gpus - 1].kind == DCGM_FE_GPU_I)
		each_instance(sets[gpus - 1].ids, sets[gpus - 1].n, groups[group - 1].ids, groups[group - 1].n, values, each,
			user);
	else
		while (n < sets[gpus - 1].n && n < GPUSIM_MAX_MINORS) {
			minors[n] = (int)sets[gpus - 1].ids[n];
			n++;
		}
	for (int i = 0; i < n; i++) {
		struct state s = look(minors[i], groups[group - 1].ids, groups[group - 1].n);
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

static int found(dcgm_field_entity_group_t kind, dcgm_field_eid_t id, dcgmFieldValue_v1 *values, int n, void *user)
{
	(void)kind;
	(void)id;
	(void)values;
	(void)n;
	*(bool *)user = true;
	return 0;
}

dcgmReturn_t gpusim_dcgm_latest(dcgm_field_entity_group_t kind, dcgm_field_eid_t id, const unsigned short *fields,
				int n, dcgmFieldValue_v1 *values)
{
	bool ok = false;
	if (n < 1 || n > MAX_FIELDS || (kind == DCGM_FE_GPU && id >= GPUSIM_MAX_MINORS) ||
	    (kind == DCGM_FE_GPU_I && id >= GPUSIM_MAX_MINORS * IDS_PER_GPU))
		return DCGM_ST_BADPARAM;
	if (kind != DCGM_FE_GPU && kind != DCGM_FE_GPU_I)
		return DCGM_ST_NOT_SUPPORTED;
	pthread_mutex_lock(&mu);
	if (kind == DCGM_FE_GPU_I) {
		each_instance(&id, 1, fields, n, values, found, &ok);
	} else {
		struct state s = look((int)id, fields, n);
		ok = s.ok;
		for (int i = 0; ok && i < n; i++)
			fill(&values[i], fields[i], &s);
	}
	pthread_mutex_unlock(&mu);
	return ok ? DCGM_ST_OK : DCGM_ST_GPU_IS_LOST;
}

bool gpusim_dcgm_info(unsigned minor, char *text, unsigned room)
{
	uint64_t info[32];
	struct gpusim_reply reply = { .vals = info, .max_vals = sizeof info / sizeof *info, .text = text,
		.max_text = room };
	if (minor >= GPUSIM_MAX_MINORS)
		return false;
	pthread_mutex_lock(&mu);
	bool ok = gpusim_open(&conns[minor], (int)minor) && gpusim_call(&conns[minor], GPUSIM_OP_GPU_INFO,
		(const uint64_t[GPUSIM_NARGS]){ 0 }, NULL, &reply) == GPUSIM_OK;
	pthread_mutex_unlock(&mu);
	return ok;
}
