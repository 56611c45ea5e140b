/* Copyright 2026 The Kerf Authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a build is for; compiled once for each driver with -DGPUSIM_DRIVER_MAJOR and -DGPUSIM_CUDA_VERSION.
 */
extern const unsigned gpusim_driver_major;
extern const int gpusim_cuda_version;

const unsigned gpusim_driver_major = GPUSIM_DRIVER_MAJOR;
const int gpusim_cuda_version = GPUSIM_CUDA_VERSION;
