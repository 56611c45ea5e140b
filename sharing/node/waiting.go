// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// mostWaiting is how many pods are remembered that wait for room; of more, the wait is counted from a later try.
const mostWaiting = 1024

// waiting is a pod that was refused, and since when it has been trying.
type waiting struct {
	since time.Time
	why   error
}

// noteWait takes one try to claim for a pod that began at start: refused with err, or placed where made is positive.
// A pod that has all its claims already does not wait.
func (r *Runtime) noteWait(asks []sharing.ContainerAsk, start time.Time, made int, err error) {
	if len(asks) == 0 {
		return
	}
	ref, profile := asks[0].Ref, asks[0].Request.Profile
	r.mu.Lock()
	w, before := r.waits[ref.PodUID]
	if !before {
		w.since = start
	}
	switch {
	case err != nil && (before || len(r.waits) < mostWaiting):
		w.why = err
		r.waits[ref.PodUID] = w
	case err == nil:
		delete(r.waits, ref.PodUID)
	}
	r.mu.Unlock()
	if err == nil && made > 0 {
		r.opt.Observer.Placed(ref.Namespace, profile, w.why, time.Since(w.since))
	}
}
