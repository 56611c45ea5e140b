// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// mostAlike bounds the values of a generation.
const mostAlike = 4096

// generations keep one of many equal values. They forget values that were not used for two generations, so that those
// of pods that are gone do not stay.
type generations[T any] struct{ now, before map[string]T }

// one returns the remembered value of the key, else the new one.
func (g *generations[T]) one(key string, v T) T {
	if same, ok := g.now[key]; ok {
		return same
	}
	if same, ok := g.before[key]; ok {
		v = same
	}
	if g.now == nil || len(g.now) >= mostAlike {
		g.before, g.now = g.now, map[string]T{}
	}
	g.now[key] = v
	return v
}

// alike lets pods share what is equal for many of them, such as the labels of a Deployment's pods. What is shared must
// not be changed.
type alike struct {
	maps  generations[map[string]string]
	wants generations[scheduler.PodRequest]
}

// pod shares the maps of a pod.
func (a *alike) pod(p *model.SeenPod) {
	p.Labels, p.Annotations = a.one(p.Labels), a.one(p.Annotations)
	for i := range p.Containers {
		p.Containers[i].Limits = a.one(p.Containers[i].Limits)
	}
}

// one is a map equal to m.
func (a *alike) one(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	var key strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&key, "%q%q", k, m[k])
	}
	return a.maps.one(key.String(), m)
}

// want is the same request with shared memory.
func (a *alike) want(w scheduler.PodRequest) scheduler.PodRequest {
	var key strings.Builder
	for _, ask := range w.Containers {
		fmt.Fprintf(&key, "%q ", ask.Container)
	}
	same := a.wants.one(key.String()+w.Class(), w)
	same.UID, same.Name, same.Priority, same.Memory = w.UID, w.Name, w.Priority, w.Memory
	return same // the class has the namespace and the CPU
}
