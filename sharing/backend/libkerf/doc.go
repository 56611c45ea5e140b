// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package libkerf enforces caps with a library that each program of a grant loads. The programs count their memory in a
// region that they share with the agent, and reject allocations above the cap.
//
// A program can write to the counters of its grant. No other grant is affected.
package libkerf
