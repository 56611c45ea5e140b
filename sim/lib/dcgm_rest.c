/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The other functions of libdcgm.so.4 that go-dcgm calls. Programs that link it do not start without them. The engine
 * lists its GPUs and describes its fields. It has no policies, health checks, diagnostics and latest values.
 */
#define DCGM_API_EXPORT 1
#include <dcgm_agent.h>
#include <dcgm_errors.h>
#include <dcgm_fields.h>
#include <dcgm_structs.h>

#include <pthread.h>
#include <stdio.h>

#include "client.h"
#include "dcgm_core.h"

static dcgm_field_output_format_t format;
static dcgm_field_meta_t fields[DCGM_FI_MAX_FIELDS];

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
		dcgm_field_meta_t *f = &fields[i];
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
	return field < DCGM_FI_MAX_FIELDS ? &fields[field] : NULL;
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
NOT_SUPPORTED(dcgmEntitiesGetLatestValues)
NOT_SUPPORTED(dcgmEntityGetLatestValues)
NOT_SUPPORTED(dcgmGetCpuHierarchy)
NOT_SUPPORTED(dcgmGetCpuHierarchy_v2)
NOT_SUPPORTED(dcgmGetDeviceAttributes)
NOT_SUPPORTED(dcgmGetDeviceTopology)
NOT_SUPPORTED(dcgmGetGpuStatus)
NOT_SUPPORTED(dcgmGetLatestValuesForFields)
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
