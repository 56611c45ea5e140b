// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package daemon plays the kernel driver of a simulated node: it puts package model behind sockets that stand
// where the device files would.
//
// It promises:
//   - The daemon identifies a caller only by the socket's peer credentials from the kernel. It rejects a peer without a
//     known process id.
//   - The daemon frees what a process uses when the last descriptor of its connection closes, not when the process
//     ends. A forked child, or a process that received the descriptor, keeps it. Until then the lists name the ended
//     process, and add up its memory and that of a process that reuses its number. Such a connection answers no
//     request. After the last process with the descriptor has ended (seen by wait, or by its empty cgroup), the next
//     answer shows the memory as free.
//   - The lists have the pids of the caller's pid namespace, and leave out processes that are not in it. An ended
//     process keeps the pids that it had when it connected.
//   - The cgroup is read at each allocation. A limit's directory is resolved in the mount namespace and root of the
//     process that names it, and must be in the cgroup v2 filesystem. The limit belongs to the cgroup (its inode),
//     whatever its path.
//   - One daemon per directory. It removes what a killed one has left there.
//   - Run has joined every goroutine when it returns.
//
// It must live in the host's pid namespace. It is no security boundary: a tenant can make it busy, as with a real
// driver.
package daemon
