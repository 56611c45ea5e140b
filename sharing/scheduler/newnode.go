// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"
	"time"
)

// Misleading are the nodes that look to a node autoscaler as if they had room for the pod. An autoscaler adds up what a
// node offers, so it sees room where the total fits and no single GPU does, and adds no node. The list is sorted.
//
// It is empty if the autoscaler needs no help or help is of no use:
//   - A node fits the pod.
//   - No node fits it in total, so that the autoscaler adds one by itself.
//   - No known node would fit it without any other pod, so that a new one of the same kind would not either.
func (j *judge) Misleading(w PodRequest, now time.Time) []string {
	var out []string
	useful := false
	for _, name := range slices.Sorted(maps.Keys(j.nodes)) {
		n := j.nodes[name]
		v := j.Fit(w, name, now)
		if v.Reason == Fits {
			return nil
		}
		if !v.Reason.IsPending() {
			continue
		}
		if fitsInTotal(n, w) {
			out = append(out, name)
		}
		alone := WhatIf{Without: slices.Collect(maps.Keys(j.stateOf(n).held))}
		useful = useful || j.FitIf(w, name, alone, now).Reason == Fits
	}
	if !useful {
		return nil
	}
	return out
}

// fitsInTotal compares totals, as an autoscaler does: what the node offers, without what its pods request.
func fitsInTotal(n *node, w PodRequest) bool {
	for name, count := range w.Limits {
		free := n.machine.Allocatable[name]
		for _, p := range n.pods {
			if !p.gone() {
				free -= p.want.Limits[name]
			}
		}
		if free < count {
			return false
		}
	}
	return true
}
