/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The other functions of libdcgm.so.4 that go-dcgm calls. Programs that link it do not start without them. The engine
 * lists and describes its GPUs and fields, and answers with values. It has no policies, health checks and diagnostics.
 */
#define DCGM_API_EXPORT 1
#include <dcgm_agent.h>
#include <dcgm_errors.h>
#include <dcgm_fields.h>
#include <dcgm_structs.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client.h"
#include "dcgm_core.h"

static dcgm_field_output_format_t format;
static dcgm_field_meta_t described[DCGM_FI_MAX_FIELDS];

int DcgmFieldsInit(void)
{
	return DCGM_ST_OK;
}

int DcgmFieldsTerm(void)
{
	return DCGM_ST_OK;
}

/* The names of fields are in no header: these have their numbers. */
static void describe(void)
{
	for (int i = 1; i < DCGM_FI_MAX_FIELDS; i++) {
		dcgm_field_meta_t *f = &described[i];
		f->fieldId = (unsigned short)i;
		f->fieldType = gpusim_dcgm_type(f->fieldId);
		f->size = f->fieldType == DCGM_FT_STRING ? 0 : 8;
		f->scope = DCGM_FS_DEVICE;
		f->entityLevel = DCGM_FE_GPU;
		f->valueFormat = &format;
		snprintf(f->tag, sizeof f->tag, "field_%d", i);
	}
}

dcgm_field_meta_p DcgmFieldGetById(unsigned short field)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, describe);
	return field < DCGM_FI_MAX_FIELDS ? &described[field] : NULL;
}

dcgmReturn_t dcgmGetAllDevices(dcgmHandle_t handle, unsigned int gpus[DCGM_MAX_NUM_DEVICES], int *count)
{
	int minors[GPUSIM_MAX_MINORS];
	if (!gpusim_dcgm_ready(handle) || !gpus || !count)
		return DCGM_ST_BADPARAM;
	int n = gpusim_minors(minors);
	*count = n < DCGM_MAX_NUM_DEVICES ? n : DCGM_MAX_NUM_DEVICES;
	for (int i = 0; i < *count; i++)
		gpus[i] = (unsigned)minors[i];
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmGetAllSupportedDevices(dcgmHandle_t handle, unsigned int gpus[DCGM_MAX_NUM_DEVICES], int *count)
{
	return dcgmGetAllDevices(handle, gpus, count);
}

dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t handle, dcgm_field_entity_group_t group,
					dcgm_field_eid_t *entities, int *count, unsigned int flags)
{
	int minors[GPUSIM_MAX_MINORS], room;
	(void)flags;
	if (!gpusim_dcgm_ready(handle) || !entities || !count)
		return DCGM_ST_BADPARAM;
	room = *count;
	if (group != DCGM_FE_GPU) {
		*count = 0;
		return group == DCGM_FE_SWITCH || group == DCGM_FE_CPU ? DCGM_ST_OK : DCGM_ST_NOT_SUPPORTED;
	}
	*count = gpusim_minors(minors);
	if (*count > room)
		return DCGM_ST_INSUFFICIENT_SIZE;
	for (int i = 0; i < *count; i++)
		entities[i] = (dcgm_field_eid_t)minors[i];
	return DCGM_ST_OK;
}

/* Names, size and power limit of a GPU; the rest is blank. */
dcgmReturn_t dcgmGetDeviceAttributes(dcgmHandle_t handle, unsigned int gpu, dcgmDeviceAttributes_t *out)
{
	const unsigned short fields[] = { DCGM_FI_DEV_FB_TOTAL, DCGM_FI_DEV_ENFORCED_POWER_LIMIT };
	dcgmFieldValue_v1 values[2];
	char text[1024] = "";
	if (!gpusim_dcgm_ready(handle) || !out)
		return DCGM_ST_BADPARAM;
	if (out->version != dcgmDeviceAttributes_version)
		return DCGM_ST_VER_MISMATCH;
	dcgmReturn_t ret = gpusim_dcgm_latest(DCGM_FE_GPU, gpu, fields, 2, values);
	if (ret != DCGM_ST_OK)
		return ret;
	if (!gpusim_dcgm_info(gpu, text, sizeof text))
		return DCGM_ST_GPU_IS_LOST;
	memset(out, 0, sizeof *out);
	out->version = dcgmDeviceAttributes_version;
	dcgmDeviceIdentifiers_t *names = &out->identifiers;
	gpusim_line(text, 0, names->uuid, sizeof names->uuid);
	gpusim_line(text, 1, names->deviceName, sizeof names->deviceName);
	gpusim_line(text, 2, names->serial, sizeof names->serial);
	gpusim_line(text, 3, names->pciBusId, sizeof names->pciBusId);
	out->powerLimits.defaultPowerLimit = (unsigned)values[1].value.dbl;
	out->memoryUsage.fbTotal = DCGM_INT64_IS_BLANK(values[0].value.i64) ? DCGM_INT32_NOT_SUPPORTED
									     : (unsigned)values[0].value.i64;
	out->memoryUsage.bar1Total = DCGM_INT32_NOT_SUPPORTED;
	return DCGM_ST_OK;
}

dcgmReturn_t dcgmEntityGetLatestValues(dcgmHandle_t handle, dcgm_field_entity_group_t kind, int id,
				       unsigned short fields[], unsigned int count, dcgmFieldValue_v1 values[])
{
	if (!gpusim_dcgm_ready(handle) || !fields || !values || count > GPUSIM_DCGM_FIELDS)
		return DCGM_ST_BADPARAM;
	return gpusim_dcgm_latest(kind, (dcgm_field_eid_t)id, fields, (int)count, values);
}

dcgmReturn_t dcgmGetLatestValuesForFields(dcgmHandle_t handle, int gpu, unsigned short fields[], unsigned int count,
					  dcgmFieldValue_v1 values[])
{
	return dcgmEntityGetLatestValues(handle, DCGM_FE_GPU, gpu, fields, count, values);
}

/* An entity without values has their status. */
dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t handle, dcgmGroupEntityPair_t entities[], unsigned int n,
					 unsigned short fields[], unsigned int count, unsigned int flags,
					 dcgmFieldValue_v2 values[])
{
	dcgmFieldValue_v1 one;
	(void)flags;
	if (!gpusim_dcgm_ready(handle) || !entities || !fields || !values || n > DCGM_GROUP_MAX_ENTITIES_V2)
		return DCGM_ST_BADPARAM;
	for (unsigned i = 0; i < n * count; i++) {
		const dcgmGroupEntityPair_t *e = &entities[i / count];
		dcgmFieldValue_v2 *v = &values[i];
		dcgmReturn_t ret = gpusim_dcgm_latest(e->entityGroupId, e->entityId, &fields[i % count], 1, &one);
		*v = (dcgmFieldValue_v2){ .version = dcgmFieldValue_version2, .entityGroupId = e->entityGroupId,
			.entityId = e->entityId, .fieldId = fields[i % count], .status = (int)ret };
		if (ret != DCGM_ST_OK)
			continue;
		v->fieldType = one.fieldType;
		v->ts = one.ts;
		memcpy(&v->value, &one.value, sizeof v->value);
	}
	return DCGM_ST_OK;
}

const dcgm_error_meta_t *dcgmGetErrorMeta(dcgmError_t error)
{
	(void)error;
	return NULL; /* no check finds an error */
}

/* Each has other parameters and looks at none of them. */
__attribute__((used)) static dcgmReturn_t not_supported(void)
{
	return DCGM_ST_NOT_SUPPORTED;
}

#define NOT_SUPPORTED(name) __asm__(".globl " #name "\n.type " #name ", @function\n.set " #name ", not_supported");

NOT_SUPPORTED(dcgmAttachDriver)
NOT_SUPPORTED(dcgmConnect_v3)
NOT_SUPPORTED(dcgmCreateFakeEntities)
NOT_SUPPORTED(dcgmDetachDriver)
NOT_SUPPORTED(dcgmGetCpuHierarchy)
NOT_SUPPORTED(dcgmGetCpuHierarchy_v2)
NOT_SUPPORTED(dcgmGetDeviceTopology)
NOT_SUPPORTED(dcgmGetGpuStatus)
NOT_SUPPORTED(dcgmGetNvLinkLinkStatus)
NOT_SUPPORTED(dcgmGetNvLinkP2PStatus)
NOT_SUPPORTED(dcgmGetPidInfo)
NOT_SUPPORTED(dcgmGroupAddDevice)
NOT_SUPPORTED(dcgmGroupGetInfo)
NOT_SUPPORTED(dcgmHealthCheck)
NOT_SUPPORTED(dcgmHealthGet)
NOT_SUPPORTED(dcgmHealthSet)
NOT_SUPPORTED(dcgmHostengineVersionInfo)
NOT_SUPPORTED(dcgmInjectFieldValue)
NOT_SUPPORTED(dcgmIntrospectGetHostengineCpuUtilization)
NOT_SUPPORTED(dcgmIntrospectGetHostengineMemoryUsage)
NOT_SUPPORTED(dcgmPolicyGet)
NOT_SUPPORTED(dcgmPolicyRegister_v2)
NOT_SUPPORTED(dcgmPolicySet)
NOT_SUPPORTED(dcgmPolicyUnregister)
NOT_SUPPORTED(dcgmRunDiagnostic)
NOT_SUPPORTED(dcgmVersionInfo)
NOT_SUPPORTED(dcgmWatchPidFields)
