/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA's cuRAND makes random numbers on the device, with its own memory and kernels.
 */
#include "userland.h"

#include <curand.h>

int main(void)
{
	curandGenerator_t g;
	float *p;
	OK(cudaMalloc(&p, MIB));
	cap_is_seen(total_now());
	TRUE(curandCreateGenerator(&g, CURAND_RNG_PSEUDO_DEFAULT) == CURAND_STATUS_SUCCESS);
	TRUE(curandSetPseudoRandomGeneratorSeed(g, 1) == CURAND_STATUS_SUCCESS);
	curandStatus_t made = curandGenerateUniform(g, p, 1024);
	if (made != CURAND_STATUS_SUCCESS)
		FAIL("curandGenerateUniform: %d", (int)made);
	OK(cudaDeviceSynchronize());
	TRUE(curandDestroyGenerator(g) == CURAND_STATUS_SUCCESS);
	OK(cudaFree(p));
	void *q;
	REFUSED(cudaMalloc(&q, too_much()));
	OK(cudaDeviceReset());
	puts("curand");
	return 0;
}
