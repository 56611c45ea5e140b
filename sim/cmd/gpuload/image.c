/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory for images: mipmapped arrays, with memory of their own or of another API, and what a graphics driver takes
 * without CUDA.
 */
#include <unistd.h>

#include "load.h"

/* Rows of 64 KiB of which a second level would add a half of a half, so that one level has it all. */
#define ROW ((size_t)64 << 10)

static CUDA_ARRAY3D_DESCRIPTOR image_of(size_t bytes)
{
	const size_t most = 16384;
	size_t rows = (bytes + ROW - 1) / ROW, layers = (rows + most - 1) / most;
	return (CUDA_ARRAY3D_DESCRIPTOR){ .Width = ROW / 16, .Height = rows / layers, .Depth = layers > 1 ? layers : 0,
					  .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4 };
}

CUresult take_mipmap(struct load *l, struct block *p)
{
	CUDA_ARRAY3D_DESCRIPTOR d = image_of(p->bytes);
	if (!l->cuda.mipmap_create || !l->cuda.mipmap_destroy)
		return CUDA_ERROR_NOT_SUPPORTED;
	return l->cuda.mipmap_create(&p->mipmap, &d, 1);
}

/* The array alone holds what was imported. */
CUresult take_external_mipmap(struct load *l, struct block *p)
{
	CUmemGenericAllocationHandle handle;
	CUexternalMemory memory;
	int fd = -1;
	if (!l->cuda.export_handle || !l->cuda.import_external || !l->cuda.external_mipmap || !l->cuda.external_destroy ||
	    !l->cuda.mipmap_destroy)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(make_whole(l, p, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, &handle));
	CUresult ret = l->cuda.export_handle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (!ret) {
		const CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = { .type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
								.handle.fd = fd, .size = p->bytes };
		ret = l->cuda.import_external(&memory, &desc);
		if (ret)
			close(fd); /* else it is the driver's */
	}
	l->cuda.release_handle(handle);
	if (ret)
		return ret;
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC image = { .arrayDesc = image_of(p->bytes), .numLevels = 1 };
	ret = l->cuda.external_mipmap(&p->mipmap, memory, &image);
	l->cuda.external_destroy(memory);
	return ret;
}

void give_mipmap(struct load *l, struct block *p)
{
	l->cuda.mipmap_destroy(p->mipmap);
}

CUresult take_graphics(struct load *l, struct block *p)
{
	int (*take)(int, uint64_t, uint64_t *) = (int (*)(int, uint64_t, uint64_t *))graphics("gpusim_graphics_take");
	if (!take)
		return CUDA_ERROR_NOT_SUPPORTED;
	int status = take(l->device, p->bytes, &p->graphics);
	return !status ? CUDA_SUCCESS : status == GRAPHICS_NO_ROOM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

void give_graphics(struct load *l, struct block *p)
{
	int (*give)(int, uint64_t) = (int (*)(int, uint64_t))graphics("gpusim_graphics_give");
	if (give)
		give(l->device, p->graphics);
}
