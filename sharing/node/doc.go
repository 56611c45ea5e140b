// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package node is the node runtime: it reserves, activates and releases grants, with ledger, allocator, backends,
// cgroups and a checkpoint.
//
// It promises:
//   - No guaranteed byte of a GPU is granted twice, whatever crashes or races. The store makes every decision on the
//     ledger, and the ledger checks it again.
//   - a cap is set and read back before its process moves into the cgroup, and the checkpoint is on disk before the cap
//     is set;
//   - a crash at any instant leaves what Restore resolves: a cgroup with processes is an attachment, one without is
//     removed;
//   - what State reports is the driver's and the kernel's own word, or is said to be unknown.
//
// It does not promise isolation beyond the enforcement level of the grant. It does not observe hardware: SetHealth
// reports the health of GPUs to it.
//
// Each owner has one lock. The order is: sampler, lender, the caps of a grant (handles.Handles), store. All others are
// taken inside of the store or without it, and never the reverse. They are those of settings, MIG instances, mode
// switches, health, conditions, recovery, the findings of the reactive backend, and backends. The store alone has the
// ledger. Its lock is held while a function runs that Update, Note or Read of the store was given. Settings of package
// applied and Switcher of package mode call the node runtime without their lock.
package node
