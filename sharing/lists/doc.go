// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package lists reads the driver's process lists and joins them with what the kernel tells: to whom the memory of each
// entry belongs, and which processes keep the memory of those that have ended. Package listing decides; this package
// reads.
//
// It promises: an answer is to a call that began no earlier than the question, the kernel is asked after the driver,
// and all checks of a GPU share one memory of what was seen. What cannot be read is unclear: it counts for no owner,
// and not as unattributed.
//
// Files of processes are read when an entry appears, when its process has ended, and before a signal; not in each
// check.
package lists
