// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mps stands in for NVIDIA's nvidia-cuda-mps-control and nvidia-cuda-mps-server, for the simulated driver:
// the control daemon, the servers that it starts, and the front end that passes commands on.
//
// It promises the commands, answers and failures that NVIDIA documents for the interface of version 2, and what was
// observed elsewhere:
//   - One server runs at a time, for the user of its clients. The first client starts it; a client of another user
//     waits until the server has none.
//   - Only later servers take over defaults, and only later clients take over a server's limits.
//   - A daemon whose socket's path is too long starts, and clients do not find it.
//   - A fault of one client ends the clients of its server. Until all of them have exited, the server has status FAULT
//     and takes no new client.
//   - A server whose CUDA_VISIBLE_DEVICES names no GPU ends without a message. A server ends with its daemon.
//
// Where the real programs say nothing in public, the answer here is plain and its form no promise: texts of errors, ps,
// and what a limit that is not set reads as.
//
// Any process that reaches the socket may give any command, as with the real one. It does not run on MIG GPUs or on
// ones older than Volta. It knows neither priorities nor partitions nor the interface of version 3.
package mps
