// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package advise_test

import (
	"slices"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/console/advise"
	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// clusterOf is a cluster of these nodes and pods.
func clusterOf(nodes map[string]gpunode.Status, pods ...model.SeenPod) advise.Cluster {
	c := advise.Cluster{State: scheduler.New(), Nodes: map[string]simulate.LiveNode{},
		Pods: map[string]*model.SeenPod{}}
	for name, s := range nodes {
		offers := map[string]int64{sharing.ResourceMemory: 1000, sharing.ResourceGPU: int64(len(s.GPUs))}
		c.Nodes[name] = simulate.LiveNode{Name: name, Report: &s, Allocatable: offers}
		c.State.Machine(name, scheduler.Machine{Allocatable: offers})
		c.State.Report(name, s)
		c.State.Heartbeat(name, consoletest.Noon(), time.Hour, consoletest.Noon())
	}
	for _, p := range pods {
		c.Pods[p.UID] = &p
		if w, ok, err := scheduler.PodRequestOf(p.Pod); ok && err == nil {
			c.State.Pod(p.Pod, w, consoletest.Noon())
		}
	}
	return c
}

func all(string) bool { return true }

func TestChanges(t *testing.T) {
	big := consoletest.Pod("team-a", "big", "n0", map[string]string{sharing.ResourceMemory: "60"})
	small := consoletest.Pod("team-b", "small", "n0", map[string]string{sharing.ResourceMemory: "30"})
	node := consoletest.Node("n0", 2, consoletest.Grant{Pod: big, GPU: 0, GiB: 60}, consoletest.Grant{Pod: small,
		GPU: 1,
		GiB: 30})
	nodes := map[string]gpunode.Status{"n0": node}
	for name, c := range map[string]struct {
		limits map[string]string
		sees   func(string) bool
		want   []string
	}{
		"it fits": {map[string]string{sharing.ResourceMemory: "40"}, all, nil},
		"a larger share": {map[string]string{sharing.ResourceMemory: "60"}, all, []string{
			`Request 49 GiB instead of 60 GiB in container "main".`,
			"Evict pod team-b/small (priority 0) from node n0.",
			"Add a node like n0 (2 GPUs of model NVIDIA H100 80GB HBM3).",
		}},
		"a victim that the viewer may not see": {map[string]string{sharing.ResourceGPU: "1"},
			func(namespace string) bool { return namespace == "team-a" }, []string{
				"Evict pod team-a/big (priority 0) from node n0.",
				"Add a node like n0 (2 GPUs of model NVIDIA H100 80GB HBM3).",
			}},
		"no node has as much": {map[string]string{sharing.ResourceGPU: "4"}, all, nil},
	} {
		p := consoletest.Pod("team-c", "new", "", c.limits)
		a, err := clusterOf(nodes, big, small, p).Pod(p, c.sees, consoletest.Noon())
		var got []string
		for _, one := range a.Changes {
			got = append(got, one.Text)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q: %v", name, got, c.want, err)
		}
		if (a.Reason == "") != (len(a.Fits) > 0) {
			t.Errorf("%s: reason %q, fits %q", name, a.Reason, a.Fits)
		}
	}
}

func TestPodThatNothingMayEvict(t *testing.T) {
	held := consoletest.Pod("a", "held", "n0", map[string]string{sharing.ResourceMemory: "60"})
	held.Annotations = map[string]string{"kerf.dev/do-not-disrupt": "true"}
	c := clusterOf(map[string]gpunode.Status{"n0": consoletest.Node("n0", 1, consoletest.Grant{Pod: held, GiB: 60})},
		held)
	p := consoletest.Pod("a", "new", "", map[string]string{sharing.ResourceGPU: "1"})
	a, err := c.Pod(p, all, consoletest.Noon())
	if err != nil || len(a.Changes) != 1 || a.Changes[0].Kind != advise.AddNode {
		t.Errorf("got %+v: %v", a, err)
	}
}

// A pod that a controller replaces can move to a GPU with free capacity. One that the viewer may not see stays.
func TestMoves(t *testing.T) {
	small := consoletest.Pod("team-b", "small", "n0", map[string]string{sharing.ResourceMemory: "30"})
	other := consoletest.Pod("team-a", "other", "n1", map[string]string{sharing.ResourceMemory: "40"})
	p := consoletest.Pod("team-c", "new", "", map[string]string{sharing.ResourceGPU: "1"})
	c := clusterOf(map[string]gpunode.Status{
		"n0": consoletest.Node("n0", 1, consoletest.Grant{Pod: small, GiB: 30}),
		"n1": consoletest.Node("n1", 1, consoletest.Grant{Pod: other, GiB: 40}),
	}, small, other, p)
	moves := func(owner, sees string) []string {
		c.Pods[small.UID].Owner = owner
		a, err := c.Pod(p, func(namespace string) bool { return namespace != sees }, consoletest.Noon())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, one := range a.Changes {
			if one.Kind == advise.Move {
				out = append(out, one.Text)
			}
		}
		return out
	}
	if got := moves("ReplicaSet/small", ""); !slices.Equal(got, []string{"Move pod team-b/small from n0/0 to n1/0."}) {
		t.Errorf("got %q", got)
	}
	if got := append(moves("", ""), moves("ReplicaSet/small", "team-b")...); len(got) > 0 {
		t.Errorf("a pod that must stay moves: %q", got)
	}
}

func TestModeSwitch(t *testing.T) {
	held := consoletest.Pod("a", "held", "n0", map[string]string{sharing.ResourceMemory: "10"})
	node := consoletest.Node("n0", 2, consoletest.Grant{Pod: held, GiB: 10})
	for i := range node.GPUs {
		node.GPUs[i].MIGState = consoletest.Geometry()
	}
	c := clusterOf(map[string]gpunode.Status{"n0": node}, held)
	p := consoletest.Pod("a", "new", "", map[string]string{"kerf.dev/mig-1g.10gb": "1"})
	a, err := c.Pod(p, all, consoletest.Noon())
	if err != nil || len(a.Changes) == 0 || a.Changes[0].Text != "Enable MIG mode of the idle GPU 1 of node n0." {
		t.Errorf("got %+v: %v", a, err)
	}
}
