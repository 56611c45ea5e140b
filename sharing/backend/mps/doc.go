// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mps runs NVIDIA's MPS for grants: one control daemon for each GPU and trust domain, started when the first
// lease of the domain needs it, watched while there are any, ended with the last.
//
// It promises: Acquire returns once the daemon has answered and its server lives, so that a process which is started
// then finds it; a daemon that dies or hangs is started again, with growing pauses, in the same pipe directory, which
// its containers have mounted; daemons outlive this process and are found again by pid, start time and boot, never by
// what lies in a pipe directory; what has no lease, and what is below the root without being known, is ended; the
// limits of the daemon are those of the largest lease of its domain, whatever a process does to its own environment.
//
// While one domain alone is on a GPU, the GPU takes one process alone, which is that domain's server: a process without
// its pipe directory fails instead of running without limits. With several domains on a GPU that does not hold, because
// each has a server; State.Exclusive says which it is. The mode that was found is put back when the last domain has
// gone. Options.Rule can leave the mode as it is: then each GPU's mode decides what happens to a process without a pipe
// directory.
//
// Not promised: protection of a domain's members from each other. They reach one control daemon and may give it any
// command, a fault of one ends all, the limits are each process's and not each container's, and a daemon that ends
// takes what its clients hold along.
package mps
