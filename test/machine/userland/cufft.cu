/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cuFFT: a plan with its work area and a transform that is launched.
 */
#include "userland.h"

#include <cufft.h>

#define FFT(call)                                               \
	do {                                                    \
		cufftResult is_ = (call);                       \
		if (is_ != CUFFT_SUCCESS)                       \
			FAIL("%s: result %d", #call, (int)is_); \
	} while (0)

int main(void)
{
	cufftHandle plan;
	cufftComplex *data;
	size_t work;
	cap_is_seen(total_now());
	FFT(cufftPlan1d(&plan, 4096, CUFFT_C2C, 16));
	FFT(cufftGetSize(plan, &work));
	OK(cudaMalloc((void **)&data, 16 * 4096 * sizeof *data));
	FFT(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
	OK(cudaDeviceSynchronize());
	OK(cudaFree(data));
	FFT(cufftDestroy(plan));
	printf("cufft, work area of %zu bytes\n", work);
	return 0;
}
