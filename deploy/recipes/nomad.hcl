# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Rendered and validated only: the other side was not run with it. docs/use/other-tools.md has what it is for, and its limits.
job "train" {
  type = "batch"
  group "train" {
    task "main" {
      # The plugin raw_exec is to be enabled on the client, and the user a member of the group kerf.
      driver = "raw_exec"
      user   = "trainer"
      config {
        command = "/usr/local/bin/kerf"
        args    = ["run", "--memory", "10GiB", "--percent", "25", "--min-enforcement", "userspace", "--", "python3", "train.py"]
      }
      # Nomad does not count shares of GPUs: a task that does not fit fails, and is tried again.
      restart {
        attempts = 10
        delay    = "30s"
        mode     = "delay"
      }
      resources {
        cores  = 2
        memory = 8192
      }
    }
  }
}
