// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// assumed is how long the report of a node counts that is thought through.
const assumed = time.Hour

// takes reports whether a node with this report and these resources would take the pod.
func (c Cluster) takes(w scheduler.PodRequest, s gpunode.Status, offers map[string]int64, now time.Time) bool {
	const name = "assumed"
	alone := scheduler.New()
	if c.Config != nil {
		alone.Configure(*c.Config)
	}
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	alone.Machine(name, scheduler.Machine{Allocatable: offers})
	alone.Report(name, s)
	alone.Heartbeat(name, now, assumed, now)
	return alone.Fit(w, name, now).Reason == scheduler.Fits
}

// fewer finds the most GiB of the largest container with which the pod would fit.
func (c Cluster) fewer(p model.SeenPod, now time.Time) (Change, bool) {
	at, most := -1, 1
	for i, container := range p.Containers {
		if n, err := strconv.Atoi(container.Limits[sharing.ResourceMemory]); err == nil && n > most {
			at, most = i, n
		}
	}
	if at < 0 {
		return Change{}, false
	}
	fits := func(gib int) bool {
		smaller := p.Pod
		smaller.Containers = slices.Clone(p.Containers)
		smaller.Containers[at].Limits = maps.Clone(p.Containers[at].Limits)
		smaller.Containers[at].Limits[sharing.ResourceMemory] = strconv.Itoa(gib)
		w, ok, err := scheduler.PodRequestOf(smaller)
		return ok && err == nil && len(c.State.Fitting(w, now)) > 0
	}
	low, high := 0, most // low fits or is 0, high does not fit
	for high-low > 1 {
		if middle := (low + high) / 2; fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	if low == 0 {
		return Change{}, false
	}
	return Change{Kind: FewerGiB, Text: fmt.Sprintf("Request %d GiB instead of %d GiB in container %q.", low, most,
		p.Containers[at].Name)}, true
}

// modeSwitch finds an idle GPU that would take the pod in the other MIG mode. A GPU that switches by itself needs no
// advice: the scheduler counts it already.
func (c Cluster) modeSwitch(w scheduler.PodRequest, now time.Time) (Change, bool) {
	on := len(w.Containers) > 0 && w.Containers[0].Request.Kind == sharing.KindMIG
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		s := *c.Nodes[name].Report
		for i, g := range s.GPUs {
			if g.MIG == on || !idle(s, g) || on && (g.MIGState == nil || len(g.MIGState.Geometry) == 0) {
				continue
			}
			if changed := switched(s, i, on); c.takes(w, changed, w.Limits, now) {
				mode := map[bool]string{true: "Enable", false: "Disable"}[on]
				return Change{Kind: ModeSwitch, Node: name, GPU: g.UUID,
					Text: fmt.Sprintf("%s MIG mode of the idle GPU %d of node %s.", mode, g.Index, name)}, true
			}
		}
	}
	return Change{}, false
}

// idle is true if no grant has a share of the GPU.
func idle(s gpunode.Status, g gpunode.GPU) bool {
	return g.Health == sharing.HealthOK.String() && g.Cordoned == "" &&
		!slices.ContainsFunc(s.Grants, func(grant gpunode.Grant) bool {
			return slices.ContainsFunc(grant.Shares, func(f gpunode.Share) bool { return f.GPU == g.UUID })
		})
}

// switched is the report after a mode switch of one GPU. The other GPUs are as they are.
func switched(s gpunode.Status, at int, on bool) gpunode.Status {
	s.GPUs = slices.Clone(s.GPUs)
	g := &s.GPUs[at]
	g.MIG, g.Mode = on, ""
	g.FreeBytes, g.FreePercent, g.GrantedBytes, g.GrantedPercent = g.AllocatableBytes, 100, 0, 0
	if g.MIGState != nil {
		m := *g.MIGState
		m.Instances, m.LayoutFromPool, m.PendingReason = nil, false, ""
		g.MIGState = &m
	}
	return s
}

// node finds a kind of node of which one more would take the pod. Nodes are of one kind if pool, model and number of
// GPUs are equal.
func (c Cluster) node(w scheduler.PodRequest, now time.Time) (Change, bool) {
	type kind struct {
		pool, model string
		gpus        int
	}
	tried := map[kind]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
		s := *c.Nodes[name].Report
		if len(s.GPUs) == 0 {
			continue
		}
		k := kind{s.Pool, s.GPUs[0].Model, len(s.GPUs)}
		if tried[k] {
			continue
		}
		tried[k] = true
		if c.takes(w, emptied(s), c.Nodes[name].Allocatable, now) {
			text := fmt.Sprintf("Add a node like %s (%d GPUs of model %s).", name, k.gpus, k.model)
			return Change{Kind: AddNode, Node: name, Text: text}, true
		}
	}
	return Change{}, false
}

// emptied is the report of an equal node that is new: healthy, ready and without grants.
func emptied(s gpunode.Status) gpunode.Status {
	s.Grants, s.PendingPods = nil, nil
	s.Conditions = []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}
	s.GPUs = slices.Clone(s.GPUs)
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.Health, g.HealthReason, g.Cordoned, g.Whole = sharing.HealthOK.String(), "", "", false
		g.FreeBytes, g.FreePercent, g.GrantedBytes, g.GrantedPercent = g.AllocatableBytes, 100, 0, 0
		if g.MIGState != nil {
			m := *g.MIGState
			m.Instances = slices.DeleteFunc(slices.Clone(m.Instances),
				func(in gpunode.MIGInstance) bool { return !m.LayoutFromPool })
			for k := range m.Instances {
				m.Instances[k].Grant, m.Instances[k].RequestedBy = "", ""
			}
			g.MIGState = &m
		}
	}
	return s
}
