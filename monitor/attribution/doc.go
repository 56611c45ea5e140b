// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package attribution says whose a GPU's use is: it joins what the driver tells of a GPU, its MIG instances and its
// processes with the leases of the node.
//
// It promises:
//
//   - Every value carries how it is known. What is not known is absent, and never zero.
//   - Nothing is counted twice and nothing is dropped: grants, strangers and what nobody accounts for add up to what the
//     GPU tells, exactly in memory and within rounding in the others. Where the driver's answers were from different
//     moments and the parts are more than the whole, Sample.Excess says by how much.
//   - A value is never divided by guess. Energy, tensor activity and occupancy alone are divided, by the time that the GPU
//     worked for each, and say so.
//
// It does not read anything: which cgroup a process is in, and what the driver said, is given to it. It knows a process
// by one sample alone, so that a pid which is used again between two samples belongs to whoever has it then.
package attribution
