// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
)

// Missed is a container that was created while no plugin was there, and that the plugin would have refused.
type Missed struct {
	Ref sharing.ContainerRef
	// Reason is why, as the refusal says it.
	Reason string
}

// missed are the containers that run, or may yet, although the plugin would have refused them.
type missed struct {
	// tell receives all of them at each change, from one goroutine at a time; it may be nil.
	tell func(context.Context, []Missed)

	mu   sync.Mutex
	byID map[string]Missed
}

// are replaces all.
func (m *missed) are(ctx context.Context, all map[string]Missed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(all)+len(m.byID) == 0 {
		return
	}
	m.byID = all
	m.say(ctx)
}

// ended forgets a container.
func (m *missed) ended(ctx context.Context, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.byID[id]; !known {
		return
	}
	delete(m.byID, id)
	m.say(ctx)
}

// say needs the lock.
func (m *missed) say(ctx context.Context) {
	if m.tell == nil {
		return
	}
	all := make([]Missed, 0, len(m.byID))
	for _, one := range m.byID {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Missed) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	m.tell(ctx, all)
}

// findMissed looks for such containers among those that the runtime has. Containers with a grant are accounted for by
// the node, and NVIDIA_VISIBLE_DEVICES alone says nothing of what a container that runs already was given.
func (s *session) findMissed(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) {
	boxes := make(map[string]sandbox, len(pods))
	for _, p := range pods {
		boxes[p.GetId()] = sandboxOf(p)
	}
	all := map[string]Missed{}
	for _, c := range containers {
		box := boxes[c.GetPodSandboxId()]
		if c.GetState() == api.ContainerState_CONTAINER_STOPPED || slices.Contains(cdiNames(c), sharing.HookDevice) {
			continue
		}
		if err := s.refuseOther(ctx, box, c, lookUp); err != nil {
			all[c.GetId()] = Missed{Ref: box.ref(c.GetName()), Reason: err.Error()}
		}
	}
	s.missed.are(ctx, all)
}

// refuseOther says why a container without a grant may not be created, or nil.
func (s *session) refuseOther(ctx context.Context, box sandbox, c *api.Container, limit time.Duration) error {
	if !s.exempt[box.namespace] {
		if err := checkAsked(c); err != nil {
			return err
		}
	}
	return s.HostPaths.check(ctx, box.namespace, c, limit)
}
