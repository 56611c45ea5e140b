// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libtest has the tests of libkerf.so, the library that counts a program's device memory. They are not among
// the C files, because Go builds no package in a folder of C files without cgo.
//
// They promise that programs which reach the simulated driver in each of the usual ways are held to the limit of a
// region as the agent makes it, and that other programs do not notice; and that every wrapper, over a driver made of
// the published prototypes, hands on what it was called with. What they do not show is how the real driver behaves
// where its documentation is silent.
package libtest
