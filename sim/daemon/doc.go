// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package daemon plays the kernel driver of a simulated node: it puts package model behind sockets that stand
// where the device files would.
//
// It promises:
//   - Who calls is learnt from the kernel (the socket's peer credentials) alone; a peer whose process id cannot
//     be told is refused.
//   - What a process holds is given back when the last descriptor of its connection closes, and not when it ends: a
//     forked child, or whoever was sent the descriptor, keeps it. The lists name the ended process until then, and add
//     up what it and a process with its number hold. Nothing can be asked any more on such a connection. Whoever sees
//     the last process with the descriptor gone (by wait, or by its empty cgroup) and asks then, finds the memory given
//     back.
//   - The lists have the pids of the caller's pid namespace, and leave out processes that are not in it. An ended
//     process keeps the pids that it had when it connected.
//   - The cgroup is read at each allocation. A limit's directory is resolved in the mount namespace and root of
//     the process that names it, and must be in the cgroup v2 filesystem; the limit is the cgroup's (its inode),
//     whatever its path.
//   - One daemon per directory; what a killed one has left there is cleared away.
//   - Run has joined every goroutine when it returns.
//
// It must live in the host's pid namespace. It is no security boundary of its own: a tenant can make it
// busy, as with a real driver.
package daemon
