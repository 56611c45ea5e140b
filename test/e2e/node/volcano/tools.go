// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins Volcano, with which its recipe is tested.
package tools

import (
	_ "volcano.sh/volcano/cmd/controller-manager"
	_ "volcano.sh/volcano/cmd/scheduler"
)
