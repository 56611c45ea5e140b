/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cuGetProcAddress: the runtime's way to every other function. It is asked by base name ("cuMemAlloc") with a
 * CUDA version, and answers with the newest form that is not newer than that.
 */
#include "cuda_core.h"

struct entry {
	const char *name;
	int since; /* CUDA version, 1000*major+10*minor */
	void *function;
	bool per_thread; /* the form for per-thread default streams */
};

/* ISO C has no cast from a function to void *; POSIX has dlsym return one all the same. */
#define F(function) ((void *)(uintptr_t)&function)

static const struct entry table[] = {
	{ "cuInit", 2000, F(cuInit), false },
	{ "cuDriverGetVersion", 2020, F(cuDriverGetVersion), false },
	{ "cuGetErrorName", 6000, F(cuGetErrorName), false },
	{ "cuGetErrorString", 6000, F(cuGetErrorString), false },
	{ "cuGetProcAddress", 11030, F(cuGetProcAddress), false },
	{ "cuGetProcAddress", 12000, F(cuGetProcAddress_v2), false },
	{ "cuDeviceGet", 2000, F(cuDeviceGet), false },
	{ "cuDeviceGetCount", 2000, F(cuDeviceGetCount), false },
	{ "cuDeviceGetName", 2000, F(cuDeviceGetName), false },
	{ "cuDeviceGetUuid", 9020, F(cuDeviceGetUuid), false },
	{ "cuDeviceGetUuid", 11040, F(cuDeviceGetUuid_v2), false },
	{ "cuDeviceTotalMem", 3020, F(cuDeviceTotalMem_v2), false },
	{ "cuDeviceGetAttribute", 2000, F(cuDeviceGetAttribute), false },
	{ "cuDeviceGetPCIBusId", 4010, F(cuDeviceGetPCIBusId), false },
	{ "cuDeviceGetByPCIBusId", 4010, F(cuDeviceGetByPCIBusId), false },
	{ "cuDeviceComputeCapability", 2000, F(cuDeviceComputeCapability), false },
	{ "cuDevicePrimaryCtxRetain", 7000, F(cuDevicePrimaryCtxRetain), false },
	{ "cuDevicePrimaryCtxRelease", 7000, F(cuDevicePrimaryCtxRelease), false },
	{ "cuDevicePrimaryCtxRelease", 11000, F(cuDevicePrimaryCtxRelease_v2), false },
	{ "cuDevicePrimaryCtxReset", 7000, F(cuDevicePrimaryCtxReset), false },
	{ "cuDevicePrimaryCtxReset", 11000, F(cuDevicePrimaryCtxReset_v2), false },
	{ "cuDevicePrimaryCtxGetState", 7000, F(cuDevicePrimaryCtxGetState), false },
	{ "cuDevicePrimaryCtxSetFlags", 7000, F(cuDevicePrimaryCtxSetFlags), false },
	{ "cuDevicePrimaryCtxSetFlags", 11000, F(cuDevicePrimaryCtxSetFlags_v2), false },
	{ "cuCtxCreate", 3020, F(cuCtxCreate_v2), false },
	{ "cuCtxCreate", 11040, F(cuCtxCreate_v3), false },
	{ "cuCtxCreate", 12050, F(cuCtxCreate_v4), false },
	{ "cuCtxDestroy", 4000, F(cuCtxDestroy_v2), false },
	{ "cuCtxSetCurrent", 4000, F(cuCtxSetCurrent), false },
	{ "cuCtxGetCurrent", 4000, F(cuCtxGetCurrent), false },
	{ "cuCtxPushCurrent", 4000, F(cuCtxPushCurrent_v2), false },
	{ "cuCtxPopCurrent", 4000, F(cuCtxPopCurrent_v2), false },
	{ "cuCtxGetDevice", 2000, F(cuCtxGetDevice), false },
	{ "cuCtxGetDevice", 13000, F(cuCtxGetDevice_v2), false },
	{ "cuCtxGetFlags", 7000, F(cuCtxGetFlags), false },
	{ "cuCtxGetApiVersion", 3020, F(cuCtxGetApiVersion), false },
	{ "cuCtxSynchronize", 2000, F(cuCtxSynchronize), false },
	{ "cuCtxSynchronize", 13000, F(cuCtxSynchronize_v2), false },
	{ "cuMemAlloc", 3020, F(cuMemAlloc_v2), false },
	{ "cuMemFree", 3020, F(cuMemFree_v2), false },
	{ "cuMemGetInfo", 3020, F(cuMemGetInfo_v2), false },
	{ "cuMemGetAddressRange", 3020, F(cuMemGetAddressRange_v2), false },
	{ "cuMemAllocAsync", 11020, F(cuMemAllocAsync), false },
	{ "cuMemAllocAsync", 11020, F(cuMemAllocAsync_ptsz), true },
	{ "cuMemFreeAsync", 11020, F(cuMemFreeAsync), false },
	{ "cuMemFreeAsync", 11020, F(cuMemFreeAsync_ptsz), true },
	{ "cuMemsetD8", 3020, F(cuMemsetD8_v2), false },
	{ "cuMemsetD8", 7000, F(cuMemsetD8_v2_ptds), true },
	{ "cuMemcpyHtoD", 3020, F(cuMemcpyHtoD_v2), false },
	{ "cuMemcpyHtoD", 7000, F(cuMemcpyHtoD_v2_ptds), true },
	{ "cuMemcpyDtoH", 3020, F(cuMemcpyDtoH_v2), false },
	{ "cuMemcpyDtoH", 7000, F(cuMemcpyDtoH_v2_ptds), true },
	{ "cuMemcpyDtoD", 3020, F(cuMemcpyDtoD_v2), false },
	{ "cuMemcpyDtoD", 7000, F(cuMemcpyDtoD_v2_ptds), true },
	{ "cuMemGetAllocationGranularity", 10020, F(cuMemGetAllocationGranularity), false },
	{ "cuMemCreate", 10020, F(cuMemCreate), false },
	{ "cuMemRelease", 10020, F(cuMemRelease), false },
	{ "cuMemAddressReserve", 10020, F(cuMemAddressReserve), false },
	{ "cuMemAddressFree", 10020, F(cuMemAddressFree), false },
	{ "cuMemMap", 10020, F(cuMemMap), false },
	{ "cuMemUnmap", 10020, F(cuMemUnmap), false },
	{ "cuMemSetAccess", 10020, F(cuMemSetAccess), false },
	{ "cuMemRetainAllocationHandle", 11000, F(cuMemRetainAllocationHandle), false },
	{ "cuStreamCreate", 2000, F(cuStreamCreate), false },
	{ "cuStreamCreateWithPriority", 5050, F(cuStreamCreateWithPriority), false },
	{ "cuStreamDestroy", 4000, F(cuStreamDestroy_v2), false },
	{ "cuStreamQuery", 2000, F(cuStreamQuery), false },
	{ "cuStreamQuery", 7000, F(cuStreamQuery_ptsz), true },
	{ "cuStreamSynchronize", 2000, F(cuStreamSynchronize), false },
	{ "cuStreamSynchronize", 7000, F(cuStreamSynchronize_ptsz), true },
	{ "cuEventCreate", 2000, F(cuEventCreate), false },
	{ "cuEventDestroy", 4000, F(cuEventDestroy_v2), false },
	{ "cuEventRecord", 2000, F(cuEventRecord), false },
	{ "cuEventRecord", 7000, F(cuEventRecord_ptsz), true },
	{ "cuEventQuery", 2000, F(cuEventQuery), false },
	{ "cuEventSynchronize", 2000, F(cuEventSynchronize), false },
	{ "cuEventElapsedTime", 2000, F(cuEventElapsedTime), false },
	{ "cuEventElapsedTime", 12080, F(cuEventElapsedTime_v2), false },
	{ "cuModuleLoadData", 2000, F(cuModuleLoadData), false },
	{ "cuModuleLoadDataEx", 2010, F(cuModuleLoadDataEx), false },
	{ "cuModuleUnload", 2000, F(cuModuleUnload), false },
	{ "cuModuleGetFunction", 2000, F(cuModuleGetFunction), false },
	{ "cuLaunchKernel", 4000, F(cuLaunchKernel), false },
	{ "cuLaunchKernel", 7000, F(cuLaunchKernel_ptsz), true },
};

/* symbolStatus, as in CUdriverProcAddressQueryResult */
enum { FOUND = 0, UNKNOWN_NAME = 1, VERSION_TOO_OLD = 2 };

/* Needs no cuInit: the runtime asks before it initialises anything. */
static CUresult look_up(const char *symbol, void **function, int version, cuuint64_t flags, int *status)
{
	const struct entry *best = NULL;
	bool named = false;
	NEED(symbol && function && version > 0);
	/* 0 and 1 mean the legacy default stream, 2 the per-thread ones. */
	NEED(flags <= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		const struct entry *e = &table[i];
		if (strcmp(e->name, symbol) != 0)
			continue;
		if (e->since > gpusim_cuda_version)
			continue; /* this driver does not have it */
		named = true;
		if (e->since > version || (e->per_thread && !per_thread))
			continue;
		/* the per-thread form wins wherever there is one that is old enough */
		if (!best || e->per_thread > best->per_thread ||
		    (e->per_thread == best->per_thread && e->since > best->since))
			best = e;
	}
	*function = best ? best->function : NULL;
	*status = best ? FOUND : named ? VERSION_TOO_OLD : UNKNOWN_NAME;
	return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags, int *status)
{
	int ignored;
	return look_up(symbol, function, version, flags, status ? status : &ignored);
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	int ignored;
	return look_up(symbol, function, version, flags, &ignored);
}
