// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Bounds of what the console takes of a pod.
const (
	mostLabels = 32
	mostText   = 2000
)

// SeenPod is what is known of a pod.
type SeenPod struct {
	sharing.Pod
	// Message is that of its PodScheduled condition while it is not bound; Since is when the pod was created.
	Message string
	Since   time.Time
	// CPU and Memory are the pod's requests. Owner is the controller that would replace the pod; empty if there is
	// none. Fixed pods belong to their node.
	CPU    cluster.Milli
	Memory sharing.Bytes
	Owner  string
	Fixed  bool
}

// PodOf is the pod as the console shows it; false for one that requests nothing of Kerf.
func PodOf(p SeenPod) (Pod, scheduler.PodRequest, bool) {
	w, ok, err := scheduler.PodRequestOf(p.Pod)
	if !ok {
		return Pod{}, w, false
	}
	out := Pod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Node: p.Node, Priority: p.Priority,
		Since: stamp(p.Since), Labels: few(p.Labels)}
	if err != nil {
		out.Problem = short(err.Error())
	} else {
		out.Needs = w.Needs()
	}
	if p.Node == "" {
		out.Pending, out.Reason = true, short(p.Message)
		if out.Reason == "" {
			out.Reason = "The scheduler has not tried the pod yet."
		}
	}
	return out, w, err == nil
}

// Unplaced marks pods that are bound to a node without enough free capacity, by UID.
func Unplaced(s gpunode.Status) map[string]string {
	out := map[string]string{}
	for _, p := range s.PendingPods {
		out[p.PodUID] = short(p.Reason)
	}
	return out
}

// few are the labels that people group by, and no more than a browser should get.
func few(all map[string]string) map[string]string {
	if len(all) <= mostLabels {
		return all
	}
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(all))[:mostLabels] {
		out[k] = all[k]
	}
	return out
}

// short is the text without what is beyond the bound.
func short(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + "..."
}
