// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// NVIDIALimitEnv are the container variables from which NVIDIA's hook apply-cuda-memory-limits (Container Toolkit 1.20.1)
// takes a GPU memory limit, in MiB. The tenant writes them, so they must not reach that hook beside a grant.
func NVIDIALimitEnv() []string {
	return []string{"NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"}
}
