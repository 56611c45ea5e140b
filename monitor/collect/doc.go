// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package collect takes the samples: once per interval it reads every GPU from a source, finds out whose processes are
// there, has package attribution divide the use, and publishes one Snapshot.
//
// It promises that all readers see the same snapshots, that none is slowed by another, and that a reader which comes
// too late is told how many it missed. A GPU that does not answer costs the others nothing, and shows as not answering;
// its values are absent. Intervals are measured by the monotonic clock, so that a wall clock which jumps changes no
// value.
//
// It does not act, and it does not know where samples come from or go: source, grants and cgroups reach it through
// interfaces that it declares.
package collect
