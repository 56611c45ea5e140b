/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Compiles a kernel by NVRTC while it runs, loads it by the driver API and launches it.
 */
#include "userland.h"

#include <nvrtc.h>

static const char source[] = "extern \"C\" __global__ void add(float *p, float x) { p[threadIdx.x] += x; }";

int main(void)
{
	nvrtcProgram program;
	size_t bytes;
	CUmodule module;
	CUfunction function;
	void *p;
	float x = 1;
	OK(cudaMalloc(&p, MIB));
	cap_is_seen(total_now());
	TRUE(nvrtcCreateProgram(&program, source, "add.cu", 0, NULL, NULL) == NVRTC_SUCCESS);
	TRUE(nvrtcCompileProgram(program, 0, NULL) == NVRTC_SUCCESS);
	TRUE(nvrtcGetPTXSize(program, &bytes) == NVRTC_SUCCESS);
	char *ptx = (char *)malloc(bytes);
	TRUE(ptx && nvrtcGetPTX(program, ptx) == NVRTC_SUCCESS);
	DRIVER(cuModuleLoadData(&module, ptx));
	DRIVER(cuModuleGetFunction(&function, module, "add"));
	TRUE(cuModuleGetFunction(&function, module, "none") == CUDA_ERROR_NOT_FOUND);
	DRIVER(cuModuleGetFunction(&function, module, "add"));
	void *args[] = { &p, &x };
	DRIVER(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, args, NULL));
	OK(cudaDeviceSynchronize());
	DRIVER(cuModuleUnload(module));
	OK(cudaFree(p));
	REFUSED(cudaMalloc(&p, too_much()));
	OK(cudaDeviceReset());
	puts("nvrtc");
	return 0;
}
