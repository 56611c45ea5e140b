// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package guest tests Kerf on a separate machine: a virtual machine with Debian's kernel, systemd as its first process,
// and cgroup v2 alone. hack/nightly-guest.sh makes its image. TestGuest boots it for each backend, and TestInside is
// what it runs. The GPUs are simulated.
//
// It shows that what systemd does to units and cgroups takes no GPU, cap or level from a running job. It shows nothing
// about a real driver's device files, nor about the dmem controller, which Debian's kernel does not have yet.
package guest
