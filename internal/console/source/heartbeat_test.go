// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
)

// seen is a source with its hub.
type seen struct {
	*testing.T

	c   *Cluster
	hub *stream.Broadcaster
}

func newSeen(t *testing.T) seen {
	t.Helper()
	return seen{t, NewCluster(nil, "", ""), stream.NewBroadcaster(time.Now)}
}

// report is an event of the GPUNode.
func (s seen) report(name string, gone bool) {
	s.Helper()
	status, err := json.Marshal(consoletest.Node(name, 1))
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.c.gpuNode(s.hub, fmt.Appendf(nil, `{"metadata":{"name":%q},"status":%s}`, name, status),
		gone); err != nil {
		s.Fatal(err)
	}
}

// machine is an event of the Node.
func (s seen) machine(name, memory string, gone bool) {
	s.Helper()
	if _, err := s.c.node(s.hub, fmt.Appendf(nil, `{"metadata":{"name":%q},"status":{"conditions":[{"type":"Ready",
		"status":"True"}],"allocatable":{"cpu":"8","memory":%q}}}`, name, memory), gone); err != nil {
		s.Fatal(err)
	}
}

// heard is a read of heartbeats that were renewed so long ago, by the clocks of the agents.
func (s seen) heard(ago map[string]time.Duration) {
	beats := map[string]survey.Heartbeat{}
	for name, d := range ago {
		beats[name] = survey.Heartbeat{Renewed: time.Now().Add(-d), Valid: 40 * time.Second}
	}
	s.c.heard(s.hub, beats)
}

func stateOf(t *testing.T, hub *stream.Broadcaster, name string) string {
	t.Helper()
	hub.Flush()
	changed, _, _, _ := hub.Since(model.Cursor{}, nil)
	for _, i := range changed {
		var n model.Node
		if i.Key != "node/"+name || i.Body == nil {
			continue
		}
		if err := json.Unmarshal(i.Body, &n); err != nil {
			t.Fatal(err)
		}
		return n.State
	}
	return "not shown"
}

func (s seen) want(state string) {
	s.Helper()
	if got := stateOf(s.T, s.hub, "n"); got != state {
		s.Errorf("state %q, want %q", got, state)
	}
}

// A node is silent if its agent renews no heartbeat, whatever the agent's clock and its reports say.
func TestSilentNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = 10 * time.Minute
		s := newSeen(t)
		s.report("n", false)
		s.want(model.StateReady)
		s.heard(map[string]time.Duration{"n": skew})
		s.want(model.StateSilent) // its clock is not known to be wrong
		for range 5 {
			time.Sleep(slowly)
			s.heard(map[string]time.Duration{"n": skew})
			s.want(model.StateReady)
		}
		last := time.Now()
		for range 3 {
			time.Sleep(slowly)
			s.heard(map[string]time.Duration{"n": time.Since(last) + skew})
		}
		s.want(model.StateSilent)
	})
}

// A node without a Lease is silent. One that is new is not, until heartbeats are read the next time.
func TestNodeWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeen(t)
		s.machine("n", "64Gi", false)
		s.heard(map[string]time.Duration{"other": 0})
		s.report("n", false)
		s.want(model.StateReady)
		s.heard(map[string]time.Duration{"other": 0})
		s.want(model.StateSilent)
	})
}

// While heartbeats cannot be read, a report makes no node silent.
func TestUnreadHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeen(t)
		s.report("n", false)
		s.heard(map[string]time.Duration{"n": 0})
		time.Sleep(time.Hour)
		s.report("n", false)
		s.want(model.StateReady)
	})
}

// A machine without its agent is shown as such.
func TestAgentOfThisMachine(t *testing.T) {
	m, hub := NewMachine("", "n"), stream.NewBroadcaster(time.Now)
	m.away(hub, errors.New("no such socket"))
	if got := stateOf(t, hub, "n"); got != "not shown" {
		t.Errorf("before the first report: %s", got)
	}
	for range 2 {
		m.see(hub, &nodeapi.GetNodeResponse{Ready: true}, consoletest.Noon())
		if got := stateOf(t, hub, "n"); got != model.StateReady {
			t.Errorf("with an agent: %s", got)
		}
		m.away(hub, errors.New("connection refused"))
		if got := stateOf(t, hub, "n"); got != model.StateSilent {
			t.Errorf("without an agent: %s", got)
		}
	}
}

// Nothing stays of a node after its Node object and its GPUNode are gone, in whatever order.
func TestNodesThatAreGone(t *testing.T) {
	s := newSeen(t)
	for name, gone := range map[string]func(){
		"the Node first":    func() { s.machine("n", "1Gi", true); s.report("n", true) },
		"the GPUNode first": func() { s.report("n", true); s.machine("n", "1Gi", true) },
	} {
		s.machine("n", "1Gi", false)
		s.report("n", false)
		gone()
		if nodes, _ := s.hub.Live(); len(nodes) > 0 || len(s.c.nodes) > 0 {
			t.Errorf("%s: %+v stays", name, nodes)
		}
	}
	s.report("n", false)
	s.report("n", true)
	if nodes, _ := s.hub.Live(); len(nodes) > 0 {
		t.Errorf("a GPUNode without a Node: %+v stays", nodes)
	}
	s.machine("n", "1Gi", false)
	s.report("n", false)
	s.report("n", true)
	if nodes, _ := s.hub.Live(); len(nodes) != 1 || nodes[0].Report != nil {
		t.Errorf("a Node without a GPUNode: %+v", nodes)
	}
}

func TestMemoryOfANode(t *testing.T) {
	s := newSeen(t)
	s.machine("n", "64Gi", false)
	s.machine("n", "32Gi", false)
	if nodes, _ := s.hub.Live(); len(nodes) != 1 || nodes[0].Memory != 32*sharing.GiB {
		t.Errorf("nodes %+v", nodes)
	}
}
