// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins runc for the test node.
package tools

import _ "github.com/opencontainers/runc"
