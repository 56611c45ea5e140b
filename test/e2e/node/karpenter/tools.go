// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins Karpenter with its provider of nodes without machines, with which its page is tested.
package tools

import (
	_ "sigs.k8s.io/karpenter/kwok"
)
