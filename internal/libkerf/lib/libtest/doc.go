// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libtest has the tests of libkerf.so, the library that counts a program's device memory. They are not among
// the C files, because Go builds no package in a folder of C files without cgo.
//
// They promise that programs which reach the simulated driver in each of the usual ways stay within the limit of a
// region. Other programs do not notice the library. Every wrapper, over a driver made of the published prototypes,
// passes on what it was called with. They do not show how the real driver behaves if its documentation is silent.
package libtest
