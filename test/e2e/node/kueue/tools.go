// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins Kueue, whose quota the recipe for it is tried with.
package tools

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
