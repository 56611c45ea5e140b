// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver enforces caps with the NVIDIA driver's memory limits per cgroup (r615 and newer). If an allocation
// exceeds the limit, the driver rejects it.
//
// Limits do not cover memory that a process held before Kerf set them, so Kerf sets them before the process starts.
// They cover no managed (UVM) memory, and no process that may leave its cgroup.
package driver
