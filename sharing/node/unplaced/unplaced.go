// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package unplaced remembers the pods that have come to a node and have no grants yet, and why.
package unplaced

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// most bounds the pods. A node runs far fewer.
const most = 1024

// Pod is a pod for which no GPU of the node had room at the last attempt. Its container runtime tries again.
type Pod struct {
	// Ref is the pod, and the container without room.
	Ref sharing.ContainerRef
	// Reason is one sentence with the amounts.
	Reason string
}

// Wait is how long a pod has waited.
type Wait struct {
	// Since is the start of the first attempt.
	Since time.Time
	// Err is the error of the last attempt that failed, nil if none did.
	Err error
}

// Pods are the pods of one node. The zero value is ready for use, and safe for concurrent use.
type Pods struct {
	mu    sync.Mutex
	waits map[string]waiting // by pod UID
}

type waiting struct {
	Wait
	// pod has no Reason while no attempt failed for want of room.
	pod Pod
}

// Record notes how an attempt that began at start ended. It returns how long the pod has waited, and whether List
// changed. An error that is not about room leaves the reason in List: the attempt did not look for room.
func (p *Pods) Record(ref sharing.ContainerRef, start time.Time, err error) (w Wait, news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, known := p.waits[ref.PodUID]
	if !known {
		old.Since = start
	}
	switch {
	case err == nil:
		delete(p.waits, ref.PodUID)
		return old.Wait, old.pod.Reason != ""
	case !known && len(p.waits) >= most:
		return old.Wait, false
	}
	now := old
	now.Err = err
	if no, full := errors.AsType[*allocator.NoFit](err); full {
		now.pod = Pod{Ref: ref, Reason: no.Sentence()}
	}
	if p.waits == nil {
		p.waits = map[string]waiting{}
	}
	p.waits[ref.PodUID] = now
	return now.Wait, now.pod != old.pod
}

// Forget forgets a pod that is gone, and returns whether List changed.
func (p *Pods) Forget(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := p.waits[uid].pod.Reason != ""
	delete(p.waits, uid)
	return listed
}

// List are the pods without room, by UID.
func (p *Pods) List() []Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Pod
	for _, uid := range slices.Sorted(maps.Keys(p.waits)) {
		if w := p.waits[uid]; w.pod.Reason != "" {
			out = append(out, w.pod)
		}
	}
	return out
}
