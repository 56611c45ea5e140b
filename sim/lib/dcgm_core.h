/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the simulated libdcgm.so.4 share.
 */
#ifndef GPUSIM_DCGM_CORE_H
#define GPUSIM_DCGM_CORE_H

#include <stdbool.h>

/* Is this the handle of a running engine? */
bool gpusim_dcgm_ready(unsigned long handle);
/* The type of a field's values, DCGM_FT_*. */
char gpusim_dcgm_type(unsigned short field);

#endif
