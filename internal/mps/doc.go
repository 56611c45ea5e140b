// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mps is the door to nvidia-cuda-mps-control, the program by which NVIDIA's MPS is run: it starts control
// daemons, asks them, and says which of them run. It speaks the interface of version 2, which all drivers since Volta
// have.
//
// It promises: each call ends by its context or within ten seconds; nothing that the program prints is taken for an
// answer that is not of that answer's form; a daemon is of one GPU, which is its ordinal 0; a pipe directory whose socket
// could not be bound is refused, because the program would say nothing of it; what is missing is told with how to mend it.
//
// It does not promise that a daemon serves because it was started: NVIDIA's programs report neither a socket
// that cannot be bound nor a server that ends at once, so ask for the server. It holds no state and starts no goroutine.
package mps
