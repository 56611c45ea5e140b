// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins KubeRay, with which its page is tested.
package tools

import (
	_ "github.com/ray-project/kuberay/ray-operator"
)
