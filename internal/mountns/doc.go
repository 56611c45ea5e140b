// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mountns hides device files from the calling thread, and from the program that it executes next. It uses
// mounts in a separate mount namespace. It also mounts volumes of fixed size in the host's mount namespace.
//
// It promises that nothing outside that namespace changes by Mask, Bind and Only. A file counts as hidden only after
// another check of the mount over it. An error means that the thread must not go on to run the program: some files may
// be hidden and others not.
//
// It does not hold against a program that may mount (CAP_SYS_ADMIN) or make device files (CAP_MKNOD): such
// a program can undo it. A path that does not exist is not hidden, and a file that appears there later is
// visible.
package mountns
