// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package launch starts and stops simulated nodes: it puts the driver's libraries into a node's directory,
// runs the daemon in the background, and ends it.
//
// It promises that Start returns only when the daemon answers, or with the reason why it does not and nothing
// left running; that Stop ends no process but the daemon that holds the directory's lock; and that libraries
// are replaced in one step each, so that no program ever loads half of one.
package launch
