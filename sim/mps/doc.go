// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mps stands in for NVIDIA's nvidia-cuda-mps-control and nvidia-cuda-mps-server, for the simulated driver:
// the control daemon, the servers that it starts, and the front end that passes commands on.
//
// It promises the commands, answers and failures that NVIDIA documents for the interface of version 2, and what was
// seen of them elsewhere: one server at a time, of the user of its clients, started by the first of them (a client of
// another user waits until the server has none); defaults that only later servers take over, and a server's limits that
// only later clients do; a daemon whose socket's path is too long, which starts and is not found; a server whose
// CUDA_VISIBLE_DEVICES names no GPU, which ends without a word; a server that ends with its daemon. Where the real
// programs say nothing in public, the answer here is plain and its form no promise: texts of errors, ps, and what a
// limit that is not set reads as.
//
// Whoever reaches the socket may give any command, as with the real one. It does not run on MIG GPUs or on ones older
// than Volta, and knows neither priorities nor partitions nor the interface of version 3.
package mps
