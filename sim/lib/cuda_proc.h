/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The table of cuGetProcAddress, generated from cuda-functions.txt.
 */
#ifndef GPUSIM_CUDA_PROC_H
#define GPUSIM_CUDA_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_ERROR_NOT_SUPPORTED 801

struct cuda_entry {
	const char *name; /* by which it is asked for; NULL ends the table */
	int since;	  /* CUDA version, 1000*major+10*minor */
	void *function;
	bool per_thread; /* the form for per-thread default streams */
};

extern const struct cuda_entry cuda_table[];

#endif
