// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package root

// multiarch is Debian's name of the platform, and platform is NVIDIA's.
const (
	multiarch = "x86_64-linux-gnu"
	platform  = "x86_64"
)
