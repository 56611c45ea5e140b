/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS: a handle with its workspace, a matrix that is copied to the GPU and back, and a sum of vectors that is
 * launched. For a product, cuBLAS 11.8 finds no algorithm on the simulator.
 */
#include "userland.h"

#include <cublas_v2.h>

#define BLAS(call)                                              \
	do {                                                    \
		cublasStatus_t is_ = (call);                    \
		if (is_ != CUBLAS_STATUS_SUCCESS)               \
			FAIL("%s: status %d", #call, (int)is_); \
	} while (0)

int main(void)
{
	enum { N = 64 };
	static float in[N * N], out[N * N];
	const float one = 1;
	float *a, *b;
	void *p;
	cublasHandle_t handle;
	int version;
	for (int i = 0; i < N * N; i++)
		in[i] = (float)i;
	cap_is_seen(total_now());
	BLAS(cublasCreate(&handle));
	BLAS(cublasGetVersion(handle, &version));
	OK(cudaMalloc((void **)&a, sizeof in));
	OK(cudaMalloc((void **)&b, sizeof in));
	BLAS(cublasSetMatrix(N, N, sizeof(float), in, N, a, N));
	BLAS(cublasGetMatrix(N, N, sizeof(float), a, N, out, N));
	TRUE(memcmp(in, out, sizeof in) == 0);
	BLAS(cublasSaxpy(handle, N * N, &one, a, 1, b, 1));
	OK(cudaDeviceSynchronize());
	REFUSED(cudaMalloc(&p, too_much()));
	OK(cudaFree(a));
	OK(cudaFree(b));
	BLAS(cublasDestroy(handle));
	printf("cublas %d\n", version);
	return 0;
}
