// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"os"
	"testing"

	"github.com/kerf-gpu/kerf/sim/mpstest"
)

// gpusim is the program that stands in for NVIDIA's.
var gpusim string

func TestMain(m *testing.M) {
	os.Exit(mpstest.Run(m, func(exe string) { gpusim = exe }))
}
