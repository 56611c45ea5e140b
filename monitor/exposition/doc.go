// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package exposition turns the monitor's newest snapshot into Prometheus metrics: Kerf's own series, and the names and
// labels that dcgm-exporter has for the same facts, so that dashboards made for it work.
//
// It promises that a value which is not known is absent, never zero; that the rows of a GPU's use add up to the GPU,
// because what no grant accounts for has rows of its own; and that the number of series is bounded by GPUs, MIG
// instances and living grants: no label holds a pid, an id of a container or anything else that comes and goes with
// processes.
//
// A scrape reads the newest snapshot and asks nobody.
package exposition
