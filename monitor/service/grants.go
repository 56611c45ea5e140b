// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// pictureEvery is how often the agent tells of its grants when none has changed. Each picture makes it ask the driver,
// so that it is seldom; changes come at once.
const pictureEvery = 15 * time.Second

// grants are the agent's last known grants.
type grants struct {
	log *slog.Logger

	mu    sync.Mutex
	known map[string]collect.Grant
	fresh bool
}

func newGrants(log *slog.Logger) *grants { return &grants{log: log} }

// Grants implements collect.Grants. The map is never changed after it was handed out.
func (g *grants) Grants() (all map[string]collect.Grant, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known, g.fresh
}

// follow keeps the grants until ctx ends, over restarts of the agent.
func (g *grants) follow(ctx context.Context, dir string) error {
	said := ""
	see := func(p *nodeapi.GetNodeResponse) error {
		if said != "" {
			g.log.Info("reconnected to the agent")
			said = ""
		}
		g.set(grantsOf(p))
		return nil
	}
	away := func(err error) error {
		if text := err.Error(); text != said {
			g.log.Warn("failed to reach the agent, using its last known grants", "reason", text)
			said = text
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.fresh = false
		return nil
	}
	_ = nodeclient.WatchReconnecting(ctx, dir, pictureEvery, see,
		away) // it ends with ctx, and neither function has errors
	return nil
}

func (g *grants) set(all map[string]collect.Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known, g.fresh = all, true
}

// grantsOf are the grants of a picture.
func grantsOf(p *nodeapi.GetNodeResponse) map[string]collect.Grant {
	all := make(map[string]collect.Grant, len(p.GetGrants()))
	for _, g := range p.GetGrants() {
		out := collect.Grant{
			ID: g.GetId(), Name: cmp.Or(g.GetName(), g.GetId()), Namespace: g.GetPodNamespace(), Pod: g.GetPodName(),
			PodUID:    g.GetPodUid(),
			Container: g.GetContainer(), Profile: g.GetProfile(), Level: g.GetLevel(),
			Claims:     g.GetClaims(),
			Attachment: attribution.Attachment{Grant: g.GetId(), Cgroup: g.GetCgroup()},
		}
		if out.Pod != "" {
			out.Name = out.Namespace + "/" + out.Pod + "/" + out.Container
		}
		for _, f := range g.GetShares() {
			out.Attachment.Shares = append(out.Attachment.Shares, shareOf(f))
			out.Caps = append(out.Caps, collect.Cap{
				Memory: sharing.Bytes(f.GetMemoryBytes()), Burst: sharing.Bytes(f.GetBurstBytes()),
				Percent:   sharing.Percent(f.GetPercent()),
				Throttled: time.Duration(f.GetTime().GetThrottledSeconds() * float64(time.Second)),
				Timed:     f.GetTime() != nil,
				Events:    eventsOf(f.GetCapEvents()),
			})
		}
		all[out.ID] = out
	}
	return unique(all)
}

func eventsOf(m *nodeapi.CapEvents) collect.CapEvents {
	var e collect.CapEvents
	if m != nil && m.Refused != nil {
		e.Refused, e.Counted = m.GetRefused(), true
	}
	if m != nil && m.Violations != nil {
		e.Violations, e.Delay, e.Watched = m.GetViolations(), time.Duration(m.GetDelaySeconds()*float64(time.Second)),
			true
	}
	return e
}

func shareOf(f *nodeapi.Share) attribution.Share {
	ref, _ := sharing.ParseGPURef(f.GetGpu()) // no reading is of what the agent did not write
	if p := f.GetMigProfile(); p != "" {
		ref.Instance = sharing.InstanceRef{Profile: p, Start: int(f.GetMigStart())}
	}
	return attribution.Share{GPU: ref, Whole: f.GetWhole()}
}

// unique distinguishes grants of one name: a new pod may have the name of one whose grant still ends.
func unique(all map[string]collect.Grant) map[string]collect.Grant {
	times := map[string]int{}
	for _, g := range all {
		times[g.Name]++
	}
	for id, g := range all {
		if times[g.Name] > 1 {
			g.Name += "#" + id
			all[id] = g
		}
	}
	return all
}
