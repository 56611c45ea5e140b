// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mode switches the MIG mode of idle GPUs for requests that no GPU of the node answers as it is.
//
// A Switcher remembers these requests, has package turn decide which GPUs to switch, and switches them. From the
// decision to the next inventory, a GPU takes no grant. A GPU that could not be switched is left alone for a while.
//
// The decisions are functions of a Snapshot of the node and of what the Switcher remembers. The node shows the Snapshot
// while no grant changes, so that a GPU that is idle in a decision stays idle.
package mode
