/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ABI of first versions, whose addresses have 32 bits; of green contexts; of prefetches in batches; of sparse
 * arrays; of multicast objects; of external memory; of memory shared with graphics; and of checkpoints. Part of
 * cuda_abi.h, which includes it.
 */
#ifndef GPUSIM_CUDA_ABI_MORE_H
#define GPUSIM_CUDA_ABI_MORE_H

typedef unsigned CUdeviceptr_v1;
typedef struct { unsigned Width, Height; int Format; unsigned NumChannels; } CUDA_ARRAY_DESCRIPTOR_v1;
typedef struct {
	unsigned Width, Height, Depth;
	int Format;
	unsigned NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;
typedef struct {
	int type;
	unsigned char internal[92];
	union {
		struct { unsigned smCount; } sm;
		uint64_t oversize[6];
	};
} CUdevResource;

typedef struct {
	int resourceType;
	union { CUmipmappedArray mipmap; CUarray array; } resource;
	int subresourceType;
	union {
		struct {
			unsigned level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth;
		} sparseLevel;
		struct { unsigned layer; unsigned long long offset, size; } miptail;
	} subresource;
	int memOperationType, memHandleType;
	union { CUmemGenericAllocationHandle memHandle; } memHandle;
	unsigned long long offset;
	unsigned deviceBitMask, flags, reserved[2];
} CUarrayMapInfo;

typedef struct {
	struct { unsigned width, height, depth; } tileExtent;
	unsigned miptailFirstLevel;
	unsigned long long miptailSize;
	unsigned flags, reserved[4];
} CUDA_ARRAY_SPARSE_PROPERTIES;

typedef struct {
	unsigned numDevices;
	size_t size;
	unsigned long long handleTypes, flags;
} CUmulticastObjectProp;

typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef struct CUeglStreamConnection_st *CUeglStreamConnection;
typedef struct {
	union {
		CUarray pArray[3];
		void *pPitch[3];
	} frame;
	unsigned width, height, depth, pitch, planeCount, numChannels;
	int frameType, eglColorFormat, cuFormat;
} CUeglFrame;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct {
	int type;
	union {
		int fd;
		struct { void *handle; const void *name; } win32;
		const void *nvSciBufObject;
	} handle;
	unsigned long long size;
	unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct {
	unsigned long long offset, size;
	unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

typedef struct {
	unsigned long long offset;
	CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
	unsigned numLevels, reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;

typedef int CUprocessState;
typedef struct { unsigned timeoutMs, reserved0; cuuint64_t reserved1[7]; } CUcheckpointLockArgs;

_Static_assert(sizeof(CUcheckpointLockArgs) == 64, "CUcheckpointLockArgs");
_Static_assert(sizeof(CUDA_ARRAY_SPARSE_PROPERTIES) == 48, "CUDA_ARRAY_SPARSE_PROPERTIES");
_Static_assert(sizeof(CUmulticastObjectProp) == 32, "CUmulticastObjectProp");
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104, "CUDA_EXTERNAL_MEMORY_HANDLE_DESC");
_Static_assert(offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) == 24, "CUDA_EXTERNAL_MEMORY_HANDLE_DESC.size");
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC) == 88, "CUDA_EXTERNAL_MEMORY_BUFFER_DESC");
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC) == 120, "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC");
_Static_assert(sizeof(CUarrayMapInfo) == 96 && offsetof(CUarrayMapInfo, subresource) == 24, "CUarrayMapInfo");
_Static_assert(offsetof(CUarrayMapInfo, memHandle) == 64, "CUarrayMapInfo.memHandle");
_Static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR_v1) == 16, "CUDA_ARRAY_DESCRIPTOR_v1");
_Static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR_v1) == 24, "CUDA_ARRAY3D_DESCRIPTOR_v1");
_Static_assert(sizeof(CUdevResource) == 144 && offsetof(CUdevResource, sm) == 96, "CUdevResource");

#define CU_DEV_RESOURCE_TYPE_SM 1
#define CU_GREEN_CTX_DEFAULT_STREAM 1
enum { CU_RESOURCE_TYPE_ARRAY = 0, CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1 };
enum { CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL = 0, CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL = 1 };
enum { CU_MEM_OPERATION_TYPE_MAP = 1, CU_MEM_OPERATION_TYPE_UNMAP = 2 };

#define CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD 1
enum { CU_PROCESS_STATE_RUNNING = 0, CU_PROCESS_STATE_LOCKED = 1, CU_PROCESS_STATE_CHECKPOINTED = 2 };

#pragma GCC visibility push(default)

CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned bytes);
CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned *pitch, unsigned width, unsigned height, unsigned element);
CUresult cuMemFree(CUdeviceptr_v1 ptr);
CUresult cuMemGetInfo(unsigned *free, unsigned *total);
CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device);
CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *desc);
CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc);

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources, unsigned n);
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice device, unsigned flags);
CUresult cuGreenCtxDestroy(CUgreenCtx green);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to, size_t *first,
				 size_t places, unsigned long long flags, CUstream stream);
CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to, size_t *first,
				      size_t places, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to, size_t *first,
					   size_t places, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *ptrs, size_t *sizes, size_t n, CUmemLocation *to,
						size_t *first, size_t places, unsigned long long flags,
						CUstream stream);

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned n, CUstream stream);
CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned n, CUstream stream);
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUarray array);
CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *out, CUmipmappedArray array);

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop, int option);
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop);
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
			    size_t from, size_t bytes, unsigned long long flags);
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr ptr, size_t bytes,
			     unsigned long long flags);
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
			       CUmemGenericAllocationHandle memory, size_t from, size_t bytes, unsigned long long flags);
CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, CUdeviceptr ptr,
				size_t bytes, unsigned long long flags);
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes);

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state);
CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread);
CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args);
CUresult cuCheckpointProcessCheckpoint(int pid, void *args);
CUresult cuCheckpointProcessRestore(int pid, void *args);
CUresult cuCheckpointProcessUnlock(int pid, void *args);

CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc);
CUresult cuDestroyExternalMemory(CUexternalMemory memory);
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ptr, CUexternalMemory memory,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc);
CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
						 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc);

CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *resource, unsigned buffer, unsigned flags);
CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *resource, unsigned image, unsigned target, unsigned flags);
CUresult cuGraphicsEGLRegisterImage(CUgraphicsResource *resource, void *image, unsigned flags);
CUresult cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource *resource, unsigned surface, unsigned flags);
CUresult cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource *resource, unsigned surface, unsigned flags);
CUresult cuGraphicsMapResources(unsigned n, CUgraphicsResource *list, CUstream stream);
CUresult cuGraphicsMapResources_ptsz(unsigned n, CUgraphicsResource *list, CUstream stream);
CUresult cuGraphicsUnmapResources(unsigned n, CUgraphicsResource *list, CUstream stream);
CUresult cuGraphicsUnmapResources_ptsz(unsigned n, CUgraphicsResource *list, CUstream stream);
CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *ptr, size_t *bytes, CUgraphicsResource resource);
CUresult cuGraphicsSubResourceGetMappedArray(CUarray *array, CUgraphicsResource resource, unsigned index,
	unsigned level);
CUresult cuGraphicsResourceGetMappedMipmappedArray(CUmipmappedArray *array, CUgraphicsResource resource);
CUresult cuGraphicsResourceGetMappedEglFrame(CUeglFrame *frame, CUgraphicsResource resource, unsigned index,
	unsigned level);
CUresult cuGraphicsUnregisterResource(CUgraphicsResource resource);
CUresult cuGLInit(void);
CUresult cuGLRegisterBufferObject(unsigned buffer);
CUresult cuGLMapBufferObject_v2(CUdeviceptr *ptr, size_t *bytes, unsigned buffer);
CUresult cuGLMapBufferObject_v2_ptds(CUdeviceptr *ptr, size_t *bytes, unsigned buffer);
CUresult cuGLMapBufferObjectAsync_v2(CUdeviceptr *ptr, size_t *bytes, unsigned buffer, CUstream stream);
CUresult cuGLMapBufferObjectAsync_v2_ptsz(CUdeviceptr *ptr, size_t *bytes, unsigned buffer, CUstream stream);
CUresult cuGLUnmapBufferObject(unsigned buffer);
CUresult cuGLUnmapBufferObjectAsync(unsigned buffer, CUstream stream);
CUresult cuGLUnregisterBufferObject(unsigned buffer);
CUresult cuGLSetBufferObjectMapFlags(unsigned buffer, unsigned flags);
CUresult cuEGLStreamConsumerConnect(CUeglStreamConnection *connection, void *stream);
CUresult cuEGLStreamConsumerConnectWithFlags(CUeglStreamConnection *connection, void *stream, unsigned flags);
CUresult cuEGLStreamConsumerDisconnect(CUeglStreamConnection *connection);
CUresult cuEGLStreamConsumerAcquireFrame(CUeglStreamConnection *connection, CUgraphicsResource *resource,
					 CUstream *stream,
					 unsigned microseconds);
CUresult cuEGLStreamConsumerReleaseFrame(CUeglStreamConnection *connection, CUgraphicsResource resource,
	CUstream *stream);
CUresult cuEGLStreamProducerConnect(CUeglStreamConnection *connection, void *stream, int width, int height);
CUresult cuEGLStreamProducerDisconnect(CUeglStreamConnection *connection);
CUresult cuEGLStreamProducerPresentFrame(CUeglStreamConnection *connection, CUeglFrame frame, CUstream *stream);
CUresult cuEGLStreamProducerReturnFrame(CUeglStreamConnection *connection, CUeglFrame *frame, CUstream *stream);
CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, unsigned with, void *resolver);

#pragma GCC visibility pop
#endif
