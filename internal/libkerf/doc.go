// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libkerf knows through which entry points of the CUDA driver a program can get device memory, and
// what each of them means for a count of it. The knowledge is one file, lib/families.def, which C can include.
//
// It promises that the file is read strictly: a line that is not understood, a class that does not exist or a
// name that comes twice is an error. Its tests hold the file to the names that the driver has published from
// CUDA 11.4 to 13.2. It does not promise that a later driver has no other names: Table.Unknown tells them.
package libkerf
