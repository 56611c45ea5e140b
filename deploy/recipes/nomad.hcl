# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Run with Nomad 1.6.1 and simulated GPUs: make e2e-neighbors. docs/use/nomad.md has what it is for, and its limits.
job "train" {
  type = "batch"
  group "train" {
    task "main" {
      driver = "raw_exec"
      # The user is a member of the group kerf.
      user = "trainer"
      config {
        command = "/usr/local/bin/kerf"
        # Nomad has chosen a GPU and counts its memory. Kerf enforces this cap on the same GPU.
        args = ["run", "--name", "nomad-${NOMAD_ALLOC_ID}", "--gpu-uuid", "${KERF_NOMAD_GPU}", "--memory", "${KERF_NOMAD_MEMORY}",
        "--min-enforcement", "userspace", "--", "python3", "train.py"]
      }
      # Grants that Nomad does not know can leave too little memory. Then kerf run fails, and Nomad tries again.
      restart {
        attempts = 10
        delay    = "30s"
        mode     = "delay"
      }
      resources {
        cpu    = 500
        memory = 1024
        # 20 GiB of one GPU.
        device "kerf/gpu" {
          count = 20
        }
      }
    }
  }
}
