// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpumode sets the time slice, the compute mode and the power limit of GPUs, and puts back what was there
// before.
//
// It promises three things:
//   - The earlier setting is on disk before any change, so that a crash at any moment loses nothing.
//   - A setting is restored only if the GPU still has the value that was set here. Another program's later choice
//     stays.
//   - Every new setting is read back.
//
// Not promised: a reboot or a reload of the driver sets all back by itself, and nothing is put back after a reboot.
// A time slice that nvidia-smi does not tell in a way that is understood counts as the driver's default.
package gpumode
