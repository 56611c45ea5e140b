// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy gives programs the values and presets of the chart.
package deploy

import "embed"

// Values is the file of the chart's values in Files, and Presets is the folder of its presets.
const (
	Values  = "chart/values.yaml"
	Presets = "chart/presets"
)

// Files has the chart's values and presets.
//
//go:embed chart/values.yaml chart/presets/*.yaml
var Files embed.FS
