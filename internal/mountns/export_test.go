// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

// KernelThread is kernelThread for tests.
var KernelThread = kernelThread
