// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package command

import "os"

// takesSequences returns true: each terminal interprets them.
func takesSequences(*os.File) bool { return true }
