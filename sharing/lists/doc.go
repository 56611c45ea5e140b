// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package lists reads the driver's process lists and joins them with the kernel's reports. It finds the owner of each
// entry's memory, and which processes keep the memory of ended ones. Package listing decides; this package reads.
//
// It promises that an answer is to a call that began no earlier than the question. It asks the kernel after the driver,
// and all checks of a GPU share one memory of earlier samples. What cannot be read is unclear: it counts for no owner,
// and not as unattributed.
//
// Files of processes are read when an entry appears, when its process has ended, and before a signal; not in each
// check.
package lists
