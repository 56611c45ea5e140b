// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins CRI-O, and its program that loads images, for the test node.
package tools

import (
	_ "github.com/cri-o/cri-o/cmd/crio"
	_ "github.com/cri-o/cri-o/test/copyimg"
)
