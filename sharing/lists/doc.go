// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package lists reads the driver's process lists and joins them with what the kernel tells: to whom the memory of each
// entry belongs, and which processes keep the memory of those that have ended. Package listing decides; this package reads.
//
// It promises that an answer is to a call that began no earlier than the question, that the kernel is asked after the driver, that all looks at a GPU share one memory of what was seen, and that
// what cannot be read is unclear, and never somebody's or nobody's.
//
// Files of processes are looked at when an entry appears, when its process has ended, and before a signal; not in each look.
package lists
