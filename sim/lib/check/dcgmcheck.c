/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * dcgmcheck: calls libdcgm.so.4 as NVIDIA's dcgm-exporter does, and prints one line for each GPU. Each function that
 * has no answer is asked, too.
 */
#include <dcgm_agent.h>
#include <dcgm_errors.h>
#include <dcgm_fields.h>
#include <dcgm_structs.h>

#include "check.h"

#define KEEP_SECONDS 0.0
#define EVERY_US 1000000

static dcgmHandle_t handle;
static unsigned short fields[] = { DCGM_FI_DEV_FB_USED, DCGM_FI_DEV_POWER_USAGE, DCGM_FI_DEV_GPU_TEMP };
enum { FIELDS = sizeof fields / sizeof fields[0] };

static int count_values(dcgm_field_entity_group_t kind, dcgm_field_eid_t id, dcgmFieldValue_v1 *values, int n,
			void *user)
{
	(void)id;
	EQ(kind, DCGM_FE_GPU);
	EQ(n, FIELDS);
	EQ(values[0].fieldId, DCGM_FI_DEV_FB_USED);
	++*(int *)user;
	return 0;
}

/* A group of GPUs whose fields are watched. */
static void watch(const unsigned *gpus, int n)
{
	dcgmGpuGrp_t group;
	dcgmFieldGrp_t watched;
	long long next;
	int enumerated = 0;
	EQ(CALL(dcgmGroupCreate)(handle, DCGM_GROUP_EMPTY, "gpus", &group), DCGM_ST_OK);
	for (int i = 0; i < n; i++)
		EQ(CALL(dcgmGroupAddEntity)(handle, group, DCGM_FE_GPU, gpus[i]), DCGM_ST_OK);
	EQ(CALL(dcgmGroupAddEntity)(handle, group, DCGM_FE_GPU_I, 0), DCGM_ST_BADPARAM);
	EQ(CALL(dcgmFieldGroupCreate)(handle, FIELDS, fields, "fields", &watched), DCGM_ST_OK);
	EQ(CALL(dcgmWatchFields)(handle, group, watched, EVERY_US, KEEP_SECONDS, 1), DCGM_ST_OK);
	EQ(CALL(dcgmUpdateAllFields)(handle, 1), DCGM_ST_OK);
	EQ(CALL(dcgmGetValuesSince_v2)(handle, group, watched, 0, &next, count_values, &enumerated), DCGM_ST_OK);
	EQ(enumerated, n);
	EQ(CALL(dcgmFieldGroupDestroy)(handle, watched), DCGM_ST_OK);
	EQ(CALL(dcgmGroupDestroy)(handle, group), DCGM_ST_OK);
}

static void print_gpu(unsigned gpu)
{
	static dcgmDeviceAttributes_t about;
	static dcgmFieldValue_v1 values[FIELDS];
	about.version = 0;
	EQ(CALL(dcgmGetDeviceAttributes)(handle, gpu, &about), DCGM_ST_VER_MISMATCH);
	about.version = dcgmDeviceAttributes_version;
	EQ(CALL(dcgmGetDeviceAttributes)(handle, gpu, &about), DCGM_ST_OK);
	EQ(CALL(dcgmEntityGetLatestValues)(handle, DCGM_FE_GPU, (int)gpu, fields, FIELDS, values), DCGM_ST_OK);
	EQ(CALL(dcgmGetLatestValuesForFields)(handle, (int)gpu, fields, FIELDS, values), DCGM_ST_OK);
	printf("%u %s %s %s total=%u limit=%u used=%lld power=%.0f temperature=%lld\n", gpu, about.identifiers.uuid,
	       about.identifiers.pciBusId, about.identifiers.deviceName, about.memoryUsage.fbTotal,
	       about.powerLimits.defaultPowerLimit, (long long)values[0].value.i64, values[1].value.dbl,
	       (long long)values[2].value.i64);
}

/* One entity answers, and one is of a kind that is not there. */
static void ask_several(unsigned gpu)
{
	static dcgmFieldValue_v2 values[2 * FIELDS];
	dcgmGroupEntityPair_t pairs[] = { { DCGM_FE_GPU, gpu }, { DCGM_FE_SWITCH, 0 } };
	EQ(CALL(dcgmEntitiesGetLatestValues)(handle, pairs, 2, fields, FIELDS, 0, values), DCGM_ST_OK);
	for (int i = 0; i < 2 * FIELDS; i++) {
		EQ(values[i].fieldId, fields[i % FIELDS]);
		EQ(values[i].entityGroupId, pairs[i / FIELDS].entityGroupId);
		EQ(values[i].status, i < FIELDS ? DCGM_ST_OK : DCGM_ST_NOT_SUPPORTED);
	}
}

static void ask_what_is_missing(void)
{
	static const char *const names[] = { "dcgmAttachDriver", "dcgmConnect_v3", "dcgmCreateFakeEntities",
		"dcgmDetachDriver", "dcgmGetCpuHierarchy", "dcgmGetCpuHierarchy_v2", "dcgmGetDeviceTopology",
		"dcgmGetGpuStatus", "dcgmGetNvLinkLinkStatus", "dcgmGetNvLinkP2PStatus", "dcgmGetPidInfo",
		"dcgmGroupAddDevice", "dcgmGroupGetInfo", "dcgmHealthCheck", "dcgmHealthGet", "dcgmHealthSet",
		"dcgmHostengineVersionInfo", "dcgmInjectFieldValue", "dcgmIntrospectGetHostengineCpuUtilization",
		"dcgmIntrospectGetHostengineMemoryUsage", "dcgmPolicyGet", "dcgmPolicyRegister_v2", "dcgmPolicySet",
		"dcgmPolicyUnregister", "dcgmRunDiagnostic", "dcgmVersionInfo", "dcgmWatchPidFields" };
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		EQ(((dcgmReturn_t (*)(dcgmHandle_t, void *))symbol(names[i]))(handle, NULL), DCGM_ST_NOT_SUPPORTED);
}

int main(void)
{
	unsigned gpus[DCGM_MAX_NUM_DEVICES], entities[DCGM_GROUP_MAX_ENTITIES_V2];
	int n, found = DCGM_GROUP_MAX_ENTITIES_V2;
	static dcgmMigHierarchy_v2 instances = { .version = dcgmMigHierarchy_version2 };
	load("libdcgm.so.4");
	EQ(CALL(dcgmInit)(), DCGM_ST_OK);
	EQ(CALL(dcgmStartEmbedded)(DCGM_OPERATION_MODE_AUTO, &handle), DCGM_ST_OK);
	EQ(CALL(DcgmFieldsInit)(), DCGM_ST_OK);
	EQ(CALL(DcgmFieldGetById)(DCGM_FI_DEV_FB_USED)->fieldType, DCGM_FT_INT64);
	EQ(CALL(DcgmFieldGetById)(DCGM_FI_MAX_FIELDS) == NULL, 1);
	EQ(CALL(dcgmGetAllDevices)(handle, gpus, &n), DCGM_ST_OK);
	EQ(CALL(dcgmGetAllSupportedDevices)(handle, gpus, &n), DCGM_ST_OK);
	EQ(CALL(dcgmGetEntityGroupEntities)(handle, DCGM_FE_GPU, entities, &found, 0), DCGM_ST_OK);
	EQ(found, n);
	EQ(CALL(dcgmGetGpuInstanceHierarchy)(handle, &instances), DCGM_ST_OK);
	for (int i = 0; i < n; i++)
		print_gpu(gpus[i]);
	watch(gpus, n);
	ask_several(gpus[0]);
	ask_what_is_missing();
	EQ(CALL(dcgmEntityGetLatestValues)(handle, DCGM_FE_GPU, 1000, fields, FIELDS, NULL), DCGM_ST_BADPARAM);
	EQ(CALL(dcgmGetErrorMeta)(0) == NULL, 1);
	EQ(CALL(DcgmFieldsTerm)(), DCGM_ST_OK);
	EQ(CALL(dcgmStopEmbedded)(handle), DCGM_ST_OK);
	EQ(CALL(dcgmShutdown)(), DCGM_ST_OK);
	return 0;
}
