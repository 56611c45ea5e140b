/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * MPS, for cuInit alone. All of it is called with cuInit's mutex held.
 */
#ifndef GPUSIM_CUDA_MPS_H
#define GPUSIM_CUDA_MPS_H

#include "cuda_core.h"

/* What the control daemon gave this process. */
struct mps {
	int server; /* the server's pid; 0: no MPS */
	unsigned percent;
	uint64_t limit[GPUSIM_MAX_MINORS]; /* by device.mps_at; GPUSIM_UNKNOWN: none */
};

/* cuda_mps_connect asks the control daemon, if one answers, and leaves of the n devices those of its server. */
CUresult cuda_mps_connect(struct mps *mps, struct device *list, int *n);
/* cuda_mps_join makes this process a client on the devices that it will use. */
CUresult cuda_mps_join(struct mps *mps, struct device *list, int n);
/* cuda_mps_leave ends the connection to the control daemon. */
void cuda_mps_leave(void);
/* cuda_mps_forget is for the child of a fork, which inherits the connection and does not use it. */
void cuda_mps_forget(void);

#endif
