// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"time"

	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
)

// beat is the heartbeat of an agent, and when it was seen to come. The agent's clock can be wrong.
type beat struct {
	survey.Heartbeat

	heard time.Time
}

// heard records heartbeats. The hub learns only of nodes whose state changes. A node without a heartbeat is silent: its
// agent never renewed its Lease. If heartbeats cannot be read, the last known state stays.
func (c *Cluster) heard(hub *stream.Broadcaster, read map[string]survey.Heartbeat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, beats := time.Now(), map[string]beat{}
	for name, b := range read {
		beats[name] = c.beats[name].next(b, now)
	}
	c.beats = beats
	for name, n := range c.nodes {
		b := beats[name]
		if n.Live.Report == nil { // a node without an agent needs no heartbeat
			continue
		}
		if silent := now.Sub(b.heard) > b.Valid; silent != n.Silent {
			n.Silent = silent
			c.put(hub, n)
		}
	}
}

// next is the heartbeat as it is now. The first one counts by its own time, since its arrival was not seen.
func (b beat) next(read survey.Heartbeat, now time.Time) beat {
	switch {
	case read.Renewed.Equal(b.Renewed):
		return beat{read, b.heard}
	case b.heard.IsZero() && read.Renewed.Before(now):
		return beat{read, read.Renewed}
	}
	return beat{read, now}
}
