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
	{ "cuMemsetD8Async", 3020, F(cuMemsetD8Async), false },
	{ "cuMemsetD8Async", 7000, F(cuMemsetD8Async_ptsz), true },
	{ "cuMemcpyHtoD", 3020, F(cuMemcpyHtoD_v2), false },
	{ "cuMemcpyHtoD", 7000, F(cuMemcpyHtoD_v2_ptds), true },
	{ "cuMemcpyDtoH", 3020, F(cuMemcpyDtoH_v2), false },
	{ "cuMemcpyDtoH", 7000, F(cuMemcpyDtoH_v2_ptds), true },
	{ "cuMemcpyDtoD", 3020, F(cuMemcpyDtoD_v2), false },
	{ "cuMemcpyDtoD", 7000, F(cuMemcpyDtoD_v2_ptds), true },
	{ "cuMemcpyDtoDAsync", 3020, F(cuMemcpyDtoDAsync_v2), false },
	{ "cuMemcpyDtoDAsync", 7000, F(cuMemcpyDtoDAsync_v2_ptsz), true },
	{ "cuStreamWriteValue32", 11070, F(cuStreamWriteValue32_v2), false },
	{ "cuStreamWriteValue32", 11070, F(cuStreamWriteValue32_v2_ptsz), true },
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
	{ "cuStreamGetCtx", 9020, F(cuStreamGetCtx), false },
	{ "cuStreamGetCtx", 9020, F(cuStreamGetCtx_ptsz), true },
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
	{ "cuMemAllocPitch", 3020, F(cuMemAllocPitch_v2), false },
	{ "cuMemAllocManaged", 6000, F(cuMemAllocManaged), false },
	{ "cuMemPrefetchAsync", 8000, F(cuMemPrefetchAsync), false },
	{ "cuMemPrefetchAsync", 12020, F(cuMemPrefetchAsync_v2), false },
	{ "cuMemPrefetchAsync", 8000, F(cuMemPrefetchAsync_ptsz), true },
	{ "cuMemPrefetchAsync", 12020, F(cuMemPrefetchAsync_v2_ptsz), true },
	{ "cuMemAdvise", 8000, F(cuMemAdvise), false },
	{ "cuMemAdvise", 12020, F(cuMemAdvise_v2), false },
	{ "cuMemAllocHost", 3020, F(cuMemAllocHost_v2), false },
	{ "cuMemHostAlloc", 2020, F(cuMemHostAlloc), false },
	{ "cuMemFreeHost", 2000, F(cuMemFreeHost), false },
	{ "cuMemPoolCreate", 11020, F(cuMemPoolCreate), false },
	{ "cuMemPoolDestroy", 11020, F(cuMemPoolDestroy), false },
	{ "cuMemPoolSetAttribute", 11020, F(cuMemPoolSetAttribute), false },
	{ "cuMemPoolGetAttribute", 11020, F(cuMemPoolGetAttribute), false },
	{ "cuMemPoolTrimTo", 11020, F(cuMemPoolTrimTo), false },
	{ "cuMemPoolSetAccess", 11020, F(cuMemPoolSetAccess), false },
	{ "cuMemPoolGetAccess", 11020, F(cuMemPoolGetAccess), false },
	{ "cuMemPoolExportToShareableHandle", 11020, F(cuMemPoolExportToShareableHandle), false },
	{ "cuMemPoolImportFromShareableHandle", 11020, F(cuMemPoolImportFromShareableHandle), false },
	{ "cuMemPoolExportPointer", 11020, F(cuMemPoolExportPointer), false },
	{ "cuMemPoolImportPointer", 11020, F(cuMemPoolImportPointer), false },
	{ "cuDeviceGetDefaultMemPool", 11020, F(cuDeviceGetDefaultMemPool), false },
	{ "cuDeviceGetMemPool", 11020, F(cuDeviceGetMemPool), false },
	{ "cuDeviceSetMemPool", 11020, F(cuDeviceSetMemPool), false },
	{ "cuMemAllocFromPoolAsync", 11020, F(cuMemAllocFromPoolAsync), false },
	{ "cuMemAllocFromPoolAsync", 11020, F(cuMemAllocFromPoolAsync_ptsz), true },
	{ "cuMemGetDefaultMemPool", 13000, F(cuMemGetDefaultMemPool), false },
	{ "cuMemGetMemPool", 13000, F(cuMemGetMemPool), false },
	{ "cuMemSetMemPool", 13000, F(cuMemSetMemPool), false },
	{ "cuMemExportToShareableHandle", 10020, F(cuMemExportToShareableHandle), false },
	{ "cuMemImportFromShareableHandle", 10020, F(cuMemImportFromShareableHandle), false },
	{ "cuGraphicsGLRegisterBuffer", 3000, F(cuGraphicsGLRegisterBuffer), false },
	{ "cuGraphicsGLRegisterImage", 3000, F(cuGraphicsGLRegisterImage), false },
	{ "cuGraphicsEGLRegisterImage", 7000, F(cuGraphicsEGLRegisterImage), false },
	{ "cuGraphicsVDPAURegisterVideoSurface", 3010, F(cuGraphicsVDPAURegisterVideoSurface), false },
	{ "cuGraphicsVDPAURegisterOutputSurface", 3010, F(cuGraphicsVDPAURegisterOutputSurface), false },
	{ "cuGraphicsMapResources", 3000, F(cuGraphicsMapResources), false },
	{ "cuGraphicsMapResources", 7000, F(cuGraphicsMapResources_ptsz), true },
	{ "cuGraphicsUnmapResources", 3000, F(cuGraphicsUnmapResources), false },
	{ "cuGraphicsUnmapResources", 7000, F(cuGraphicsUnmapResources_ptsz), true },
	{ "cuGraphicsResourceGetMappedPointer", 3020, F(cuGraphicsResourceGetMappedPointer_v2), false },
	{ "cuGraphicsSubResourceGetMappedArray", 3000, F(cuGraphicsSubResourceGetMappedArray), false },
	{ "cuGraphicsResourceGetMappedMipmappedArray", 5000, F(cuGraphicsResourceGetMappedMipmappedArray), false },
	{ "cuGraphicsResourceGetMappedEglFrame", 7000, F(cuGraphicsResourceGetMappedEglFrame), false },
	{ "cuGLInit", 2000, F(cuGLInit), false },
	{ "cuGLRegisterBufferObject", 2000, F(cuGLRegisterBufferObject), false },
	{ "cuGLMapBufferObject", 3020, F(cuGLMapBufferObject_v2), false },
	{ "cuGLMapBufferObject", 7000, F(cuGLMapBufferObject_v2_ptds), true },
	{ "cuGLMapBufferObjectAsync", 3020, F(cuGLMapBufferObjectAsync_v2), false },
	{ "cuGLMapBufferObjectAsync", 7000, F(cuGLMapBufferObjectAsync_v2_ptsz), true },
	{ "cuGLUnmapBufferObject", 2000, F(cuGLUnmapBufferObject), false },
	{ "cuGLUnmapBufferObjectAsync", 2030, F(cuGLUnmapBufferObjectAsync), false },
	{ "cuGLUnregisterBufferObject", 2000, F(cuGLUnregisterBufferObject), false },
	{ "cuGLSetBufferObjectMapFlags", 2030, F(cuGLSetBufferObjectMapFlags), false },
	{ "cuEGLStreamConsumerConnect", 7000, F(cuEGLStreamConsumerConnect), false },
	{ "cuEGLStreamConsumerConnectWithFlags", 8000, F(cuEGLStreamConsumerConnectWithFlags), false },
	{ "cuEGLStreamConsumerDisconnect", 7000, F(cuEGLStreamConsumerDisconnect), false },
	{ "cuEGLStreamConsumerAcquireFrame", 7000, F(cuEGLStreamConsumerAcquireFrame), false },
	{ "cuEGLStreamConsumerReleaseFrame", 7000, F(cuEGLStreamConsumerReleaseFrame), false },
	{ "cuEGLStreamProducerConnect", 7000, F(cuEGLStreamProducerConnect), false },
	{ "cuEGLStreamProducerDisconnect", 7000, F(cuEGLStreamProducerDisconnect), false },
	{ "cuEGLStreamProducerPresentFrame", 7000, F(cuEGLStreamProducerPresentFrame), false },
	{ "cuEGLStreamProducerReturnFrame", 7000, F(cuEGLStreamProducerReturnFrame), false },
	{ "cuGraphicsUnregisterResource", 3000, F(cuGraphicsUnregisterResource), false },
	{ "cuGLCtxCreate", 3020, F(cuGLCtxCreate_v2), false },
	{ "cuVDPAUCtxCreate", 3020, F(cuVDPAUCtxCreate_v2), false },
	{ "cuIpcGetMemHandle", 4010, F(cuIpcGetMemHandle), false },
	{ "cuIpcOpenMemHandle", 4010, F(cuIpcOpenMemHandle), false },
	{ "cuIpcOpenMemHandle", 11000, F(cuIpcOpenMemHandle_v2), false },
	{ "cuIpcCloseMemHandle", 4010, F(cuIpcCloseMemHandle), false },
	{ "cuArrayCreate", 3020, F(cuArrayCreate_v2), false },
	{ "cuArrayGetDescriptor", 3020, F(cuArrayGetDescriptor_v2), false },
	{ "cuArray3DCreate", 3020, F(cuArray3DCreate_v2), false },
	{ "cuArray3DGetDescriptor", 3020, F(cuArray3DGetDescriptor_v2), false },
	{ "cuArrayDestroy", 2000, F(cuArrayDestroy), false },
	{ "cuArrayGetMemoryRequirements", 11060, F(cuArrayGetMemoryRequirements), false },
	{ "cuMipmappedArrayCreate", 5000, F(cuMipmappedArrayCreate), false },
	{ "cuMipmappedArrayGetLevel", 5000, F(cuMipmappedArrayGetLevel), false },
	{ "cuMipmappedArrayDestroy", 5000, F(cuMipmappedArrayDestroy), false },
	{ "cuMipmappedArrayGetMemoryRequirements", 11060, F(cuMipmappedArrayGetMemoryRequirements), false },
	{ "cuGraphCreate", 10000, F(cuGraphCreate), false },
	{ "cuGraphDestroy", 10000, F(cuGraphDestroy), false },
	{ "cuGraphAddEmptyNode", 10000, F(cuGraphAddEmptyNode), false },
	{ "cuGraphAddKernelNode", 10000, F(cuGraphAddKernelNode), false },
	{ "cuGraphAddKernelNode", 12000, F(cuGraphAddKernelNode_v2), false },
	{ "cuGraphAddMemAllocNode", 11040, F(cuGraphAddMemAllocNode), false },
	{ "cuGraphAddMemFreeNode", 11040, F(cuGraphAddMemFreeNode), false },
	{ "cuGraphAddNode", 12020, F(cuGraphAddNode), false },
	{ "cuGraphAddNode", 12030, F(cuGraphAddNode_v2), false },
	{ "cuGraphInstantiate", 11000, F(cuGraphInstantiate_v2), false },
	{ "cuGraphInstantiate", 12000, F(cuGraphInstantiateWithFlags), false },
	{ "cuGraphInstantiateWithFlags", 11040, F(cuGraphInstantiateWithFlags), false },
	{ "cuGraphInstantiateWithParams", 12000, F(cuGraphInstantiateWithParams), false },
	{ "cuGraphInstantiateWithParams", 12000, F(cuGraphInstantiateWithParams_ptsz), true },
	{ "cuGraphUpload", 11010, F(cuGraphUpload), false },
	{ "cuGraphUpload", 11010, F(cuGraphUpload_ptsz), true },
	{ "cuGraphLaunch", 10000, F(cuGraphLaunch), false },
	{ "cuGraphLaunch", 10000, F(cuGraphLaunch_ptsz), true },
	{ "cuGraphExecDestroy", 10000, F(cuGraphExecDestroy), false },
	{ "cuDeviceGetGraphMemAttribute", 11040, F(cuDeviceGetGraphMemAttribute), false },
	{ "cuDeviceSetGraphMemAttribute", 11040, F(cuDeviceSetGraphMemAttribute), false },
	{ "cuDeviceGraphMemTrim", 11040, F(cuDeviceGraphMemTrim), false },
	{ "cuStreamBeginCapture", 10010, F(cuStreamBeginCapture_v2), false },
	{ "cuStreamBeginCapture", 10010, F(cuStreamBeginCapture_v2_ptsz), true },
	{ "cuStreamEndCapture", 10000, F(cuStreamEndCapture), false },
	{ "cuStreamEndCapture", 10000, F(cuStreamEndCapture_ptsz), true },
	{ "cuStreamIsCapturing", 10000, F(cuStreamIsCapturing), false },
	{ "cuStreamIsCapturing", 10000, F(cuStreamIsCapturing_ptsz), true },
	{ "cuCtxSetLimit", 3010, F(cuCtxSetLimit), false },
	{ "cuCtxGetLimit", 3010, F(cuCtxGetLimit), false },
	{ "cuModuleLoad", 2000, F(cuModuleLoad), false },
	{ "cuModuleLoadFatBinary", 2000, F(cuModuleLoadFatBinary), false },
	{ "cuLibraryLoadData", 12000, F(cuLibraryLoadData), false },
	{ "cuLibraryUnload", 12000, F(cuLibraryUnload), false },
	{ "cuLibraryGetModule", 12000, F(cuLibraryGetModule), false },
	{ "cuLibraryGetKernel", 12000, F(cuLibraryGetKernel), false },
	{ "cuKernelGetFunction", 12000, F(cuKernelGetFunction), false },
	{ "cuLaunchKernelEx", 11060, F(cuLaunchKernelEx), false },
	{ "cuLaunchKernelEx", 11060, F(cuLaunchKernelEx_ptsz), true },
	{ "cuLaunchCooperativeKernel", 9000, F(cuLaunchCooperativeKernel), false },
	{ "cuLaunchCooperativeKernel", 9000, F(cuLaunchCooperativeKernel_ptsz), true },
	{ "cuLaunchCooperativeKernelMultiDevice", 9000, F(cuLaunchCooperativeKernelMultiDevice), false },
	{ "cuMemAlloc", 2000, F(cuMemAlloc), false },
	{ "cuMemAllocPitch", 2000, F(cuMemAllocPitch), false },
	{ "cuMemFree", 2000, F(cuMemFree), false },
	{ "cuMemGetInfo", 2000, F(cuMemGetInfo), false },
	{ "cuDeviceTotalMem", 2000, F(cuDeviceTotalMem), false },
	{ "cuArrayCreate", 2000, F(cuArrayCreate), false },
	{ "cuArray3DCreate", 2000, F(cuArray3DCreate), false },
	{ "cuDeviceGetDevResource", 12040, F(cuDeviceGetDevResource), false },
	{ "cuDevResourceGenerateDesc", 12040, F(cuDevResourceGenerateDesc), false },
	{ "cuGreenCtxCreate", 12040, F(cuGreenCtxCreate), false },
	{ "cuGreenCtxDestroy", 12040, F(cuGreenCtxDestroy), false },
	{ "cuCtxFromGreenCtx", 12040, F(cuCtxFromGreenCtx), false },
	{ "cuMemMapArrayAsync", 11010, F(cuMemMapArrayAsync), false },
	{ "cuMemMapArrayAsync", 11010, F(cuMemMapArrayAsync_ptsz), true },
	{ "cuArrayGetSparseProperties", 11010, F(cuArrayGetSparseProperties), false },
	{ "cuMipmappedArrayGetSparseProperties", 11010, F(cuMipmappedArrayGetSparseProperties), false },
	{ "cuMulticastGetGranularity", 12010, F(cuMulticastGetGranularity), false },
	{ "cuMulticastCreate", 12010, F(cuMulticastCreate), false },
	{ "cuMulticastAddDevice", 12010, F(cuMulticastAddDevice), false },
	{ "cuMulticastBindMem", 12010, F(cuMulticastBindMem), false },
	{ "cuMulticastBindAddr", 12010, F(cuMulticastBindAddr), false },
	{ "cuMulticastBindMem", 13010, F(cuMulticastBindMem_v2), false },
	{ "cuMulticastBindAddr", 13010, F(cuMulticastBindAddr_v2), false },
	{ "cuMulticastUnbind", 12010, F(cuMulticastUnbind), false },
	{ "cuCheckpointProcessGetState", 12080, F(cuCheckpointProcessGetState), false },
	{ "cuCheckpointProcessGetRestoreThreadId", 12080, F(cuCheckpointProcessGetRestoreThreadId), false },
	{ "cuCheckpointProcessLock", 12080, F(cuCheckpointProcessLock), false },
	{ "cuCheckpointProcessCheckpoint", 12080, F(cuCheckpointProcessCheckpoint), false },
	{ "cuCheckpointProcessRestore", 12080, F(cuCheckpointProcessRestore), false },
	{ "cuCheckpointProcessUnlock", 12080, F(cuCheckpointProcessUnlock), false },
	{ "cuImportExternalMemory", 10000, F(cuImportExternalMemory), false },
	{ "cuDestroyExternalMemory", 10000, F(cuDestroyExternalMemory), false },
	{ "cuExternalMemoryGetMappedBuffer", 10000, F(cuExternalMemoryGetMappedBuffer), false },
	{ "cuExternalMemoryGetMappedMipmappedArray", 10000, F(cuExternalMemoryGetMappedMipmappedArray), false },
	{ "cuMemPrefetchBatchAsync", 13000, F(cuMemPrefetchBatchAsync), false },
	{ "cuMemPrefetchBatchAsync", 13000, F(cuMemPrefetchBatchAsync_ptsz), true },
	{ "cuMemDiscardAndPrefetchBatchAsync", 13000, F(cuMemDiscardAndPrefetchBatchAsync), false },
	{ "cuMemDiscardAndPrefetchBatchAsync", 13000, F(cuMemDiscardAndPrefetchBatchAsync_ptsz), true },
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
