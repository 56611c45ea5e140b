/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of another API, by the file that stands for it. What such an API would hand over is not simulated: it is
 * taken here from who exported physical memory, and charged to that process. It is held until both the import and all
 * that was mapped of it have ended.
 */
#include "cuda_core.h"

#include <stdlib.h>
#include <unistd.h>

struct CUextMemory_st {
	struct physical *physical;
	uint64_t bytes;
};

/* The file is the driver's when this succeeds. */
CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	CUmemGenericAllocationHandle handle;
	TRY(cuda_enter());
	NEED(memory && desc && desc->size && !(desc->flags & ~1u));
	if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	CUexternalMemory made = malloc(sizeof *made);
	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->bytes = desc->size;
	CUresult ret = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)desc->handle.fd,
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (!ret) {
		ret = cuda_hold(handle, 0, desc->size, &made->physical);
		cuMemRelease(handle);
	}
	if (ret) {
		free(made);
		return ret;
	}
	close(desc->handle.fd);
	*memory = made;
	return CUDA_SUCCESS;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
	TRY(cuda_enter());
	if (!memory)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult ret = cuda_let_go(memory->physical);
	free(memory);
	return ret;
}

/* Freed by cuMemFree, also after the import's end. */
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ptr, CUexternalMemory memory,
					 const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
	TRY(cuda_enter());
	NEED(ptr && memory && desc && desc->size && desc->flags == 0);
	NEED(desc->offset <= memory->bytes && desc->size <= memory->bytes - desc->offset);
	struct allocation a = { .bytes = desc->size, .origin = EXTERNAL, .device = cuda_physical_device(memory->physical),
				.taken = cuda_round(desc->size), .owner = memory->physical };
	TRY(cuMemAddressReserve(&a.ptr, a.taken, 0, 0, 0));
	CUresult ret = cuda_remember(&a);
	if (ret) {
		cuMemAddressFree(a.ptr, a.taken);
		return ret;
	}
	cuda_hold_again(memory->physical);
	*ptr = a.ptr;
	return CUDA_SUCCESS;
}

/* Ended by cuMipmappedArrayDestroy, which may come after the import's end. */
CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *array, CUexternalMemory memory,
						 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc)
{
	TRY(cuda_enter());
	NEED(array && memory && desc && desc->offset <= memory->bytes);
	return cuda_mipmap_of(array, &desc->arrayDesc, desc->numLevels, memory->physical, memory->bytes - desc->offset);
}

CUresult cuda_external_end(const struct allocation *a)
{
	cuMemAddressFree(a->ptr, a->taken);
	return cuda_let_go(a->owner);
}
