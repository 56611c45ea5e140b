// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package scheduler keeps a cluster's books for a scheduler: which piece of which GPU is free, which pod holds one or is
// about to, and which node answers a pod best.
//
// What it knows comes from three places. The report of a node's agent (its GPUNode) says what the node has and what is
// claimed there; it alone counts for what it speaks of. A pod that is bound, or reserved here, and of which the report does
// not speak yet, holds what was planned for it. And the heartbeat says whether the report is to be believed.
//
// It promises: what a pod was given is held until the node's report has it, and stays held, once the pod is gone, until the
// node has let go; books made anew of the same pods and reports are the same books; a node that is not heard from, or whose
// report does not agree with itself, takes nothing new. It does not promise that a node can do what was planned: there the
// node's own books decide, and no scheduler can make it give a byte twice.
//
// It has no I/O, clock or goroutine: times are given to it. It is not safe for concurrent use.
package scheduler
