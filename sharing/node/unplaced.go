// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// mostUnplaced bounds the pods that are told of. A node has room for no more pods by far.
const mostUnplaced = 1000

// Unplaced is a pod that has come to this node, and for which no GPU here had room when it was tried last. Its container
// runtime tries again; the pod may have room by now.
type Unplaced struct {
	// Ref is the pod, and the container that found no room.
	Ref sharing.ContainerRef
	// Why is one sentence with the numbers.
	Why string
}

// tellUnplaced takes note of how a pod fared, and returns whether that is news. An error that is not about room leaves what
// was known: the pod was not tried.
func (r *Runtime) tellUnplaced(asks []sharing.ContainerAsk, err error) bool {
	if len(asks) == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ref := asks[0].Ref
	before, known := r.unplaced[ref.PodUID]
	no, full := errors.AsType[*allocator.NoFit](err)
	switch {
	case err == nil:
		delete(r.unplaced, ref.PodUID)
		return known
	case !full || !known && len(r.unplaced) >= mostUnplaced:
		return false
	}
	now := Unplaced{Ref: ref, Why: no.Sentence()}
	r.unplaced[ref.PodUID] = now
	return !known || before != now
}

// KnownPods is PodClaims, and one container of each pod that waits for room.
func (r *Runtime) KnownPods() []sharing.ContainerRef {
	out := r.PodClaims()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, u := range r.unplaced {
		out = append(out, u.Ref)
	}
	return out
}
