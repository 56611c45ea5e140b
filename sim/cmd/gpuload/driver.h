/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions that gpuload calls, found in libcuda.so.1 when it runs.
 */
#ifndef GPULOAD_DRIVER_H
#define GPULOAD_DRIVER_H

#include "cuda_abi.h"

struct opening;

/* X(member, symbol) */
#define DRIVER_FUNCTIONS(X)                                  \
	X(init, cuInit)                                      \
	X(error_name, cuGetErrorName)                        \
	X(device_get, cuDeviceGet)                           \
	X(attribute, cuDeviceGetAttribute)                   \
	X(retain, cuDevicePrimaryCtxRetain)                  \
	X(release, cuDevicePrimaryCtxRelease_v2)             \
	X(set_current, cuCtxSetCurrent)                      \
	X(mem_info, cuMemGetInfo_v2)                         \
	X(alloc, cuMemAlloc_v2)                              \
	X(free, cuMemFree_v2)                                \
	X(alloc_async, cuMemAllocAsync)                      \
	X(free_async, cuMemFreeAsync)                        \
	X(stream_sync, cuStreamSynchronize)                  \
	X(ctx_sync, cuCtxSynchronize)                        \
	X(memset, cuMemsetD8_v2)                             \
	X(granularity, cuMemGetAllocationGranularity)        \
	X(create, cuMemCreate)                               \
	X(release_handle, cuMemRelease)                      \
	X(reserve, cuMemAddressReserve)                      \
	X(unreserve, cuMemAddressFree)                       \
	X(map, cuMemMap)                                     \
	X(unmap, cuMemUnmap)                                 \
	X(set_access, cuMemSetAccess)                        \
	X(alloc_pitch, cuMemAllocPitch_v2)                   \
	X(alloc_managed, cuMemAllocManaged)                  \
	X(prefetch, cuMemPrefetchAsync)                      \
	X(pool_create, cuMemPoolCreate)                      \
	X(pool_destroy, cuMemPoolDestroy)                    \
	X(pool_set, cuMemPoolSetAttribute)                   \
	X(alloc_from_pool, cuMemAllocFromPoolAsync)          \
	X(array_create, cuArray3DCreate_v2)                  \
	X(array_destroy, cuArrayDestroy)                     \
	X(graph_create, cuGraphCreate)                       \
	X(graph_destroy, cuGraphDestroy)                     \
	X(add_alloc, cuGraphAddMemAllocNode)                 \
	X(instantiate, cuGraphInstantiateWithFlags)          \
	X(exec_destroy, cuGraphExecDestroy)                  \
	X(graph_launch, cuGraphLaunch)                       \
	X(graph_trim, cuDeviceGraphMemTrim)                  \
	X(module_load, cuModuleLoadData)                     \
	X(module_unload, cuModuleUnload)                     \
	X(get_function, cuModuleGetFunction)                 \
	X(launch, cuLaunchKernel)                            \
	X(launch_ex, cuLaunchKernelEx)                       \
	X(launch_cooperative, cuLaunchCooperativeKernel)     \
	X(add_kernel, cuGraphAddKernelNode_v2)               \
	X(memset_async, cuMemsetD8Async)                     \
	X(copy_async, cuMemcpyDtoDAsync_v2)                  \
	X(stream_create, cuStreamCreate)                     \
	X(stream_destroy, cuStreamDestroy_v2)                \
	X(set_limit, cuCtxSetLimit)                          \
	X(get_limit, cuCtxGetLimit)                          \
	X(ctx_create, cuCtxCreate_v2)                        \
	X(ctx_destroy, cuCtxDestroy_v2)

/* Those that not every driver has; NULL where this one does not. */
#define DRIVER_OPTIONAL(X)                                   \
	X(launch_multi, cuLaunchCooperativeKernelMultiDevice) \
	X(write_word, cuStreamWriteValue32_v2)               \
	X(prefetch_batch, cuMemPrefetchBatchAsync)           \
	X(library_load, cuLibraryLoadData)                   \
	X(library_unload, cuLibraryUnload)                   \
	X(map_array, cuMemMapArrayAsync)                     \
	X(team_create, cuMulticastCreate)                    \
	X(team_add, cuMulticastAddDevice)                    \
	X(team_bind, cuMulticastBindMem)                     \
	X(team_bind_of, cuMulticastBindMem_v2)               \
	X(mipmap_create, cuMipmappedArrayCreate)             \
	X(mipmap_destroy, cuMipmappedArrayDestroy)           \
	X(external_mipmap, cuExternalMemoryGetMappedMipmappedArray) \
	X(export_handle, cuMemExportToShareableHandle)       \
	X(import_handle, cuMemImportFromShareableHandle)     \
	X(ipc_get, cuIpcGetMemHandle)                        \
	X(ipc_open, cuIpcOpenMemHandle_v2)                   \
	X(ipc_close, cuIpcCloseMemHandle)                    \
	X(pool_export, cuMemPoolExportToShareableHandle)     \
	X(pool_import, cuMemPoolImportFromShareableHandle)   \
	X(pool_export_pointer, cuMemPoolExportPointer)       \
	X(pool_import_pointer, cuMemPoolImportPointer)       \
	X(import_external, cuImportExternalMemory)           \
	X(external_buffer, cuExternalMemoryGetMappedBuffer)  \
	X(external_destroy, cuDestroyExternalMemory)         \
	X(checkpoint_lock, cuCheckpointProcessLock)          \
	X(checkpoint_save, cuCheckpointProcessCheckpoint)    \
	X(checkpoint_restore, cuCheckpointProcessRestore)    \
	X(checkpoint_unlock, cuCheckpointProcessUnlock)      \
	X(get_resource, cuDeviceGetDevResource)              \
	X(describe, cuDevResourceGenerateDesc)               \
	X(gl_buffer, cuGraphicsGLRegisterBuffer)             \
	X(gl_image, cuGraphicsGLRegisterImage)               \
	X(egl_image, cuGraphicsEGLRegisterImage)             \
	X(vdpau_surface, cuGraphicsVDPAURegisterVideoSurface) \
	X(map_resources, cuGraphicsMapResources)             \
	X(mapped_pointer, cuGraphicsResourceGetMappedPointer_v2) \
	X(unregister, cuGraphicsUnregisterResource)          \
	X(mapped_array, cuGraphicsSubResourceGetMappedArray) \
	X(gl_register, cuGLRegisterBufferObject)             \
	X(gl_map, cuGLMapBufferObject_v2)                    \
	X(gl_unmap, cuGLUnmapBufferObject)                   \
	X(gl_unregister, cuGLUnregisterBufferObject)         \
	X(egl_connect, cuEGLStreamConsumerConnect)           \
	X(egl_acquire, cuEGLStreamConsumerAcquireFrame)      \
	X(egl_disconnect, cuEGLStreamConsumerDisconnect)     \
	X(egl_produce, cuEGLStreamProducerConnect)           \
	X(egl_present, cuEGLStreamProducerPresentFrame)      \
	X(egl_return, cuEGLStreamProducerReturnFrame)        \
	X(egl_end, cuEGLStreamProducerDisconnect)            \
	X(gl_context, cuGLCtxCreate_v2)                      \
	X(vdpau_context, cuVDPAUCtxCreate_v2)                \
	X(green_create, cuGreenCtxCreate)                    \
	X(green_destroy, cuGreenCtxDestroy)

struct driver {
#define X(member, symbol) __typeof__(symbol) *member;
	DRIVER_FUNCTIONS(X)
	DRIVER_OPTIONAL(X)
#undef X
};

/* load_driver opens the driver as how says, and fills d; NULL, or in words why it could not (valid until the next call
 * of dlerror). */
const char *load_driver(struct driver *d, const struct opening *how);

#endif
