// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroup is the one door to cgroup v2: it finds the hierarchy, makes and removes groups, moves
// processes into them, and tells when a group has become empty.
//
// A group is named by its directory and that directory's inode. The kernel does not give an inode number of
// the cgroup filesystem out again within a boot, so a group that was removed and made anew under the same name is never taken for the
// old one: every operation opens the directory beneath the mount, without following a link or leaving the
// filesystem, and compares the inode first.
//
// It promises to touch nothing outside the mount, and of the root group nothing but that Enable adds a
// controller to those of its children. It writes no limit; limits on GPU memory are the driver's (see package caps). Version 1 hierarchies are not
// supported; on a hybrid system the version 2 one is found wherever it is mounted.
package cgroup
