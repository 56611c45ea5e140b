// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvml is the one door to NVIDIA's driver: inventory, memory and processes as the driver sees them,
// faults, the driver's own memory limits per cgroup, and MIG: what a GPU can be cut into, what it is cut into, and the
// calls that cut.
//
// It promises that a library without a function, a library that is missing, a driver that is not loaded, a
// GPU that fell off the bus and a driver that hangs are all errors of the vocabulary in package sharing, and
// never a crash or a caller that waits for ever:
//
//   - Nothing is called before the library has been looked at and initialised, and every function that some
//     supported driver lacks is looked up before it is called (a missing one would kill the process).
//   - Every call ends with its context, or after Options.CallTimeout. A call that hangs in the driver keeps
//     one goroutine per GPU; further calls on that GPU fail at once until it returns. Such a call may still
//     take effect later, which matters for what sets: memory limits, compute mode, MIG.
//   - What the driver cannot tell is said to be unknown. What no real GPU reports (no memory, no UUID, two
//     GPUs with one UUID) leaves the GPU out, with the reason.
//
// A process binds to one copy of the library for its life: bind resolves its functions once and keeps it loaded. So one
// Library is open at a time, Open after Close works when the driver was reloaded, and another version of the library needs
// a new process. The program itself needs no function of the library, so it starts on a machine without a driver and with
// LD_BIND_NOW set.
package nvml
