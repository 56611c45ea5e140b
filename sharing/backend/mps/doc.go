// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mps runs NVIDIA's MPS for grants: one control daemon for each GPU and trust domain. It starts when the first
// attachment of the domain needs it, and ends with the last.
//
// Promises:
//   - Acquire returns once the daemon has answered and its server lives, so that a process which is started then finds
//     it.
//   - A daemon that dies or hangs is started again, with growing pauses, in the same pipe directory, which its
//     containers have mounted.
//   - Daemons outlive this process and are found again by pid, start time and boot, never by what is in a pipe
//     directory.
//   - A daemon without an attachment is ended, and so is an unknown one below the root.
//   - The limits of the daemon are those of the largest attachment of its domain, whatever a process does to its
//     environment.
//
// While one domain alone is on a GPU, the GPU takes one process alone, which is that domain's server. A process without
// its pipe directory fails instead of running without limits. Several domains on a GPU have a server each, so that does
// not apply; see State.Exclusive. When the last domain has gone, the earlier mode is restored. Options.Rule can leave
// the mode as it is. Then each GPU's mode decides what happens to a process without a pipe directory.
//
// Not promised: protection of a domain's members from each other. They reach one control daemon and may give it any
// command, and a fault of one ends all. The limits are each process's and not each container's, and a daemon that ends
// takes its clients' memory along.
package mps
