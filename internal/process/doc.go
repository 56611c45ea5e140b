// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package process holds on to one process, so that nothing is ever done to another one that was given the
// same pid later.
//
// A Handle is a pidfd, which the kernel binds to the process itself, and the process's start time, which
// together with the pid and BootID can be written down and compared after a restart. PeerOf tells who is at
// the other end of a unix socket, from the kernel and never from what the peer says.
// OpenDevices tells which device files a process has open.
//
// Not promised: a process that executes another program stays the same process (same pid, same start time),
// and a socket that was handed on to another process still names the one that connected. Zombies count as
// dead.
package process
