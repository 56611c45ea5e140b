/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The part of CUDA's driver ABI that is simulated, written down from NVIDIA's driver API reference: cuda.h may
 * not be passed on, and comes with no package that this project builds from. Sizes are asserted. Everything
 * declared between the visibility pragmas is exported, and nothing else is.
 */
#ifndef GPUSIM_CUDA_ABI_H
#define GPUSIM_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t cuuint64_t;
typedef uint64_t CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct { char bytes[16]; } CUuuid;

typedef struct { int type, id; } CUmemLocation;
typedef struct {
	int type;
	int requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
#define CU_MEM_CREATE_USAGE_TILE_POOL 1
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;

_Static_assert(sizeof(void *) == 8, "64-bit only");
_Static_assert(sizeof(CUuuid) == 16, "CUuuid");
_Static_assert(sizeof(CUmemLocation) == 8, "CUmemLocation");
_Static_assert(sizeof(CUmemAllocationProp) == 32, "CUmemAllocationProp");
_Static_assert(offsetof(CUmemAllocationProp, location) == 8, "CUmemAllocationProp.location");
_Static_assert(offsetof(CUmemAllocationProp, allocFlags) == 24, "CUmemAllocationProp.allocFlags");
_Static_assert(sizeof(CUmemAccessDesc) == 12, "CUmemAccessDesc");

#define CU_MEM_ALLOCATION_TYPE_PINNED 1
#define CU_MEM_LOCATION_TYPE_DEVICE 1
#define CU_MEM_ACCESS_FLAGS_PROT_READWRITE 3
#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_STREAM_NON_BLOCKING 1
#define CU_EVENT_DISABLE_TIMING 2
#define CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM 2

/* X(name, code, text) for each result that the library gives. */
#define CUDA_RESULTS(X)                                                                            \
	X(CUDA_SUCCESS, 0, "no error")                                                             \
	X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                         \
	X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                            \
	X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                   \
	X(CUDA_ERROR_DEINITIALIZED, 4, "driver shutting down")                                     \
	X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46, "CUDA-capable device(s) is/are busy or unavailable")  \
	X(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                         \
	X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                \
	X(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                         \
	X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                               \
	X(CUDA_ERROR_ALREADY_MAPPED, 208, "resource already mapped")                               \
	X(CUDA_ERROR_NOT_MAPPED, 211, "resource not mapped")                                       \
	X(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, 212, "resource not mapped as array")                     \
	X(CUDA_ERROR_NOT_MAPPED_AS_POINTER, 213, "resource not mapped as pointer")                 \
	X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image is available for execution on the device") \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217, "peer access is not supported between these two devices") \
	X(CUDA_ERROR_FILE_NOT_FOUND, 301, "file not found")                                        \
	X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                               \
	X(CUDA_ERROR_ILLEGAL_STATE, 401, "the operation cannot be performed in the present state")         \
	X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                     \
	X(CUDA_ERROR_NOT_READY, 600, "device not ready")                                           \
	X(CUDA_ERROR_LAUNCH_TIMEOUT, 702, "the launch timed out and was terminated")               \
	X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is already enabled")           \
	X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705, "peer access has not been enabled")             \
	X(CUDA_ERROR_TOO_MANY_PEERS, 711, "peer mapping resources exhausted")                      \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712, "part or all of the requested memory range is already mapped") \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713, "pointer does not correspond to a registered memory region") \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")                            \
	X(CUDA_ERROR_NOT_PERMITTED, 800, "operation not permitted")                                \
	X(CUDA_ERROR_NOT_SUPPORTED, 801, "operation not supported")                                \
	X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803, "system has unsupported display driver / cuda driver combination") \
	X(CUDA_ERROR_MPS_CONNECTION_FAILED, 805, \
		"MPS client failed to connect to the MPS control daemon or the MPS server") \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "a kernel used an address that is not allowed")                 \
	X(CUDA_ERROR_LAUNCH_FAILED, 719, "a kernel failed")                                                \
	X(CUDA_ERROR_MPS_RPC_FAILURE, 806, "the remote procedural call between the MPS server and the MPS client failed") \
	X(CUDA_ERROR_MPS_SERVER_NOT_READY, 807, "the MPS server is not ready to accept new MPS client requests")   \
	X(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 808, \
		"the hardware resources required to create MPS client have been exhausted") \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900, "operation not permitted when stream is capturing") \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901, "operation failed due to a previous error during capture") \
	X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908, \
		"attempt to terminate a thread-local capture sequence from another thread") \
	X(CUDA_ERROR_UNKNOWN, 999, "unknown error")

enum cuda_result {
#define X(name, code, text) name = code,
	CUDA_RESULTS(X)
#undef X
};

#pragma GCC visibility push(default)

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetErrorString(CUresult error, const char **text);
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags, int *status);
CUresult cuGetExportTable(const void **table, const CUuuid *uuid);

CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device);
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);
CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, void *params, int nparams, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context);
CUresult cuCtxGetFlags(unsigned *flags);
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSynchronize_v2(CUcontext context);

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr ptr);
CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr);
CUresult cuMemsetD8_v2(CUdeviceptr ptr, unsigned char value, size_t count);
CUresult cuMemsetD8_v2_ptds(CUdeviceptr ptr, unsigned char value, size_t count);
CUresult cuMemsetD8Async(CUdeviceptr ptr, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr ptr, unsigned char value, size_t count, CUstream stream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr at, unsigned value, unsigned flags);
CUresult cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr at, unsigned value, unsigned flags);

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
		     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes);
CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *desc, size_t count);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr);

CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamQuery_ptsz(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end);
CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end);

CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, int *options, void **values);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			unsigned bz, unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			     unsigned bz, unsigned shared, CUstream stream, void **params, void **extra);

#pragma GCC visibility pop

#include "cuda_abi_memory.h"
#include "cuda_abi_more.h"
#endif
