// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package root makes the files that a real driver installs on a machine, for a simulated node: versioned libraries,
// device files, /proc/driver/nvidia, /proc/modules, /proc/devices, the GPUs on the PCI bus, and programs. NVIDIA's
// tools look for these files. Make writes them below a folder. Enter runs a program that sees them at the usual places.
package root
