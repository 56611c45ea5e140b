// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package cdi is the door to the Container Device Interface: the files in which container runtimes look up
// the device names that kubelet and NRI hand them.
//
// Kerf's own kinds stand in four files. Guard, ask and near are the same for every container and every day:
// Static makes them of amounts alone. The GPUs' file is made by Derive of the nvidia.com/gpu specs that
// NVIDIA's toolkit writes, which Source reads. InstallHook puts kerf-hook where the guard's hook points.
//
// Promised: a name that was ever written keeps resolving, with the same meaning, as long as the file stays,
// since Install never takes an amount away; a file is replaced as a whole or not at all, and only when its
// content differs; every device node is "rw" and never more; every hook has an environment of its own and a
// timeout; a device of a GPU gives that GPU's device file and no other GPU's. Names of Kerf's kinds in
// files of others are an error (Conflicts), because a container runtime might follow them.
//
// Not promised: that a container runtime has read a file when Install returns, and that nobody with root
// changes a file afterwards; Verify tells.
package cdi
