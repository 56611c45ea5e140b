/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the simulated libdcgm.so.4 share.
 */
#ifndef GPUSIM_DCGM_CORE_H
#define GPUSIM_DCGM_CORE_H

#include <dcgm_structs.h>
#include <stdbool.h>

/* Is this the handle of a running engine? */
bool gpusim_dcgm_ready(unsigned long handle);
/* The type of a field's values, DCGM_FT_*. */
char gpusim_dcgm_type(unsigned short field);
/* The values of a GPU or a GPU instance now, at most GPUSIM_DCGM_FIELDS of them. */
enum { GPUSIM_DCGM_FIELDS = 128 };
dcgmReturn_t gpusim_dcgm_latest(dcgm_field_entity_group_t kind, dcgm_field_eid_t id, const unsigned short *fields,
				int n, dcgmFieldValue_v1 *values);
/* What GPU_INFO says of a GPU in lines. */
bool gpusim_dcgm_info(unsigned minor, char *text, unsigned room);

#endif
