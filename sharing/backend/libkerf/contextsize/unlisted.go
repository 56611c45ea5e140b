// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextsize

import "github.com/kerf-gpu/kerf/sharing"

const (
	// driverSlack is what a driver may hold for itself on a GPU without contexts: some MiB, by what nvidia-smi shows.
	driverSlack = 32 * sharing.MiB
	// unlisted is what a driver may hold for itself per context (page tables, buffers of channels). It is in use, and
	// in no process list. This is an estimate until it is measured on hardware: NVIDIA publishes no number.
	unlisted = 8 * sharing.MiB
	// mostContexts is for how many contexts that is expected. A tenant cannot hide more behind many processes.
	mostContexts = 64
)

// Slack is how much of a GPU's used memory may belong to no process although nothing is wrong, given how many processes
// have a context. The driver does not tell how many contexts a process has, so each counts as one.
func Slack(processes int) sharing.Bytes {
	return driverSlack + sharing.Bytes(min(max(processes, 0), mostContexts))*unlisted
}
