// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan decides how a GPU's MIG instances change: from what is there, what is busy and what is wanted, to the
// shortest list of steps that is safe, and to whom each wish waits for that cannot be had now.
//
// Promises: a plan destroys only instances that are Kerf's own and idle. After each of its steps the GPU holds a
// legal set of instances, so that a crash between two steps leaves nothing that the next plan cannot go on from;
// the plan for a GPU that has what is wanted is empty. Who asked first is served first. Among the plans with the
// fewest steps it is one that leaves the most valuable room, so that large profiles stay possible; the same
// input gives the same plan.
//
// The package does not talk to a driver, knows no time and remembers nothing: whoever carries a plan out looks
// again, and asks for a new one, whenever the GPU or the wishes have changed.
package plan
