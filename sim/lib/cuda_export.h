/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is behind the export tables of cuda_export.c.
 */
#ifndef GPUSIM_CUDA_EXPORT_H
#define GPUSIM_CUDA_EXPORT_H

#include "cuda_core.h"

/* Two of the tables, whose addresses the runtime checks; and the check. */
extern const void *const cuda_export_runtime[], *const cuda_export_identity[];
CUresult cuda_identify(unsigned version, uint64_t seconds, uint64_t out[2]);

/* Values that the runtime keeps in a context. */
CUresult cuda_storage_put(CUcontext context, void *key, void *value, cuda_storage_end end);
CUresult cuda_storage_get(void **value, CUcontext context, void *key);
CUresult cuda_storage_delete(CUcontext context, void *key);

CUresult cuda_primary_of(CUcontext *context, CUdevice device);
CUresult cuda_fatbin_load(CUmodule *module, const void *wrapper);
CUresult cuda_fatbin_load_ext(CUmodule *module, const void *wrapper, void *a, void *b, unsigned c);

#endif
