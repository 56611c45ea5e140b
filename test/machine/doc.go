// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package machine is the integration, crash and soak suite of one machine: the real programs of bin/, a
// simulated driver, real cgroups and real processes, no Kubernetes. All of it is tests.
//
// It promises that every test has its own driver, agent and directories, so that all can run at once; that
// after every test the agent's cgroups, the driver's limits and every process it started are gone, and that
// this is checked; and that no test passes or fails by speed: what takes time is polled for with a deadline
// far beyond what it needs.
//
// checkInvariants compares what the agent says with what driver and kernel say, and is called at the end of
// each case and between its steps. It imports nothing of Kerf: it sees what a script sees.
//
// It needs root (cgroups, mount namespaces) and the programs of "make build". It proves nothing about a real
// driver's timing, nor about real CUDA.
//
// The soak runs for some seconds by default; -soak (10 minutes) or -soak DURATION make it long, and -seed
// repeats one.
package machine
