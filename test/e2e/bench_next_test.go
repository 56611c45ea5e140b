// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

const (
	// nextPods is how many pods wait, each for its own node, when capacity becomes free for one after the other.
	nextPods = 20
	// nextTime bounds the wait of one of them.
	nextTime = 2 * time.Minute
	// nextLook is how often the API server is asked whether a pod is bound: the error of what is measured.
	nextLook = 3 * time.Millisecond
)

// nextPod measures how long a pod that waits goes on waiting once its node reports room: from before the report is
// written to the moment at which the pod is seen to be bound. It returns the times, shortest first. The nodes are the
// last ones, which are empty where the bench does not fill all: pods are packed from the first one on.
func (h *hollow) nextPod() []time.Duration {
	h.Helper()
	rounds := min(nextPods, len(h.names))
	full := func(s *gpunode.Status) {
		c := gpunode.Grant{ID: "other", Container: "main", Level: "exclusive"}
		for g := range s.GPUs {
			s.GPUs[g].FreeBytes, s.GPUs[g].FreePercent, s.GPUs[g].Whole = 0, 0, true
			c.Shares = append(c.Shares, gpunode.Share{GPU: s.GPUs[g].UUID, MemoryBytes: hollowGiB * giB,
				Percent: 100, Whole: true})
		}
		s.Grants = append(s.Grants, c)
	}
	var waiting []*pod
	first := len(h.names) - rounds
	for i := first; i < len(h.names); i++ {
		h.mustTell(i, full)
		waiting = append(waiting, h.pod("next-"+strconv.Itoa(i), percent(25), i))
	}
	for _, p := range waiting {
		p.until("waiting", func(o *corev1.Pod) error {
			// before the scheduler had heard that the node is full; then it does not count
			bound := o.Spec.NodeName != ""
			if !bound && !slices.ContainsFunc(o.Status.Conditions,
				func(c corev1.PodCondition) bool { return c.Reason == corev1.PodReasonUnschedulable }) {
				return errors.New("nothing says that it waits")
			}
			return nil
		})
	}
	var took []time.Duration
	for i, p := range waiting {
		if p.get().Spec.NodeName != "" {
			continue
		}
		began := time.Now()
		h.mustTell(first+i, func(*gpunode.Status) {})
		for end := began.Add(nextTime); p.get().Spec.NodeName == ""; time.Sleep(nextLook) {
			if time.Now().After(end) {
				h.Fatalf("pod %s waits for %v though its node has room", p.name, nextTime)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

// saidOf is what the bench says of such times.
func saidOf(took []time.Duration) string {
	if len(took) == 0 {
		return "no pod waited"
	}
	return fmt.Sprintf("a pod that waits is bound %v (median of %d, at most %v) after its node reports room",
		took[len(took)/2].Round(time.Millisecond), len(took), took[len(took)-1].Round(time.Millisecond))
}
