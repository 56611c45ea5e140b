// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins helm, with which an administrator installs the chart.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
