// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/smi"
)

// runSMI is the part of nvidia-smi for time slices, started by its path in DIR/bin.
func runSMI(ctx context.Context, self string, args []string) error {
	if !filepath.IsAbs(self) {
		return sharing.Invalid("program", self, "start it by its absolute path, DIR/bin/"+smi.PolicyName,
			"does not tell the node's directory")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return smi.Run(ctx, filepath.Dir(filepath.Dir(self)), args, os.Stdout)
}
