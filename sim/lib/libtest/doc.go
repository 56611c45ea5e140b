// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libtest holds the tests of the simulated driver's C libraries and of gpuload. They are in a separate folder
// because Go builds no package in a folder of C files without cgo.
//
// They promise that the libraries, loaded as on a real node, do what the header and the driver API reference
// say, against a kernel side that can be made to fail in every way. What they do not show is how the real
// driver behaves where its documentation is silent.
package libtest
