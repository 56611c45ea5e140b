// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpumode sets the time slice, the compute mode and the power limit of GPUs, and puts back what was there
// before.
//
// It promises that what was there before is on disk before anything is changed, so that a crash at any moment loses
// nothing; that it is put back only where the GPU still has what was set here, since another's later choice is not
// ours to undo; and that a setting which was made is read back.
//
// Not promised: a reboot or a reload of the driver sets all back by itself, and nothing is put back after a reboot.
// A time slice that nvidia-smi does not tell in a way that is understood counts as the driver's default.
package gpumode
