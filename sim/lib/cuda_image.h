/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a module's image contains: functions and variables by name.
 */
#ifndef GPUSIM_CUDA_IMAGE_H
#define GPUSIM_CUDA_IMAGE_H

#include "cuda_core.h"

struct image_symbol {
	char *name;
	bool function;
	uint64_t offset, bytes; /* of a variable, in the module's memory */
	struct image_symbol *next;
};

struct image {
	struct image_symbol *first;
	uint64_t bytes; /* of all variables */
	bool open;	/* nothing is known of its symbols: any name is a function */
};

/* cuda_image_read reads PTX, a cubin, or the part of a fat binary that the GPU would run; cuda_image_free frees what it
 * made. */
CUresult cuda_image_read(struct image *image, const void *data, const struct device *d);
void cuda_image_free(struct image *image);
const struct image_symbol *cuda_image_find(const struct image *image, const char *name, bool function);

/* cuda_lz4 unpacks a block of LZ4 into exactly bytes; false: it is not one. */
bool cuda_lz4(unsigned char *out, size_t bytes, const unsigned char *in, size_t packed);

#endif
