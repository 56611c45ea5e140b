// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package source reads GPUs for kerf-monitor: NVML through the driver's library, and DCGM with its values laid over
// NVML's. Both implement collect.Source.
//
// Promised: it only reads. While the agent asks for a GPU, it asks the driver nothing about that GPU and holds no
// library open (see package internal/quiet). A driver or an engine that is not there is looked for again.
//
// Not promised: that the program survives what crashes in the driver's libraries. For that kerf-monitor is a process of
// its own.
package source
