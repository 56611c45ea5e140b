// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	fwk "k8s.io/kube-scheduler/framework"
)

// group is a gang as the framework shows it.
type group struct {
	fwk.PodGroupInfo
	pods []*corev1.Pod
	// label is required of its nodes; empty requires none.
	label string
}

func (g group) GetUnscheduledPods() []*corev1.Pod                         { return g.pods }
func (group) GetName() string                                             { return "gang" }
func (group) GetNamespace() string                                        { return "ns" }
func (group) GetChildren() []fwk.PodGroupInfo                             { return nil }
func (group) GetCompositePodGroup() *schedulingv1alpha3.CompositePodGroup { return nil }
func (g group) GetPodGroup() *schedulingv1beta1.PodGroup {
	out := &schedulingv1beta1.PodGroup{}
	if g.label != "" {
		out.Spec.SchedulingConstraints = &schedulingv1beta1.PodGroupSchedulingConstraints{
			Topology: []schedulingv1beta1.TopologyConstraint{{Key: g.label}}}
	}
	return out
}

// running are the pods of the gang that run.
type running struct {
	fwk.PodGroupState
	pods []*corev1.Pod
}

func (r running) ScheduledPods() []*corev1.Pod { return r.pods }

// snapshot is the cluster as the framework shows it.
type snapshot struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	nodes []fwk.NodeInfo
	running
}

func (s snapshot) NodeInfos() fwk.NodeInfoLister           { return s }
func (s snapshot) PodGroupStates() fwk.PodGroupStateLister { return states{s.running} }
func (s snapshot) Get(name string) (fwk.NodeInfo, error) {
	for _, n := range s.nodes {
		if n.Node().Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node %q", name)
}

type states struct{ running running }

func (s states) Get(string, string) (fwk.PodGroupState, error) { return s.running, nil }

// placementState is the state of one placement of a gang's cycle.
type placementState struct {
	fwk.PlacementCycleState
	cycle fwk.PodGroupCycleState
}

func (s placementState) GetPodGroupSchedulingCycle() fwk.PodGroupCycleState { return s.cycle }

// cycleState is a gang's.
type cycleState struct {
	fwk.PodGroupCycleState
	*state
}

func (s cycleState) Read(k fwk.StateKey) (fwk.StateData, error) { return s.state.Read(k) }
func (s cycleState) Write(k fwk.StateKey, d fwk.StateData)      { s.state.Write(k, d) }

func gangOf(pods, gib int) (out []*corev1.Pod) {
	for i := range pods {
		out = append(out, podOf(fmt.Sprintf("g%d", i), gib))
	}
	return out
}

// A gang is tried in the closest domains that have room for all of it, which win in their order, and everywhere; where
// its group requires a label, in the domains of that label alone, and in that of its pods that run.
func TestGangIsKeptTogether(t *testing.T) {
	const rack, host = "rack", "host"
	for name, tc := range map[string]struct {
		pods, gib int
		required  string
		runsOn    string
		want      []string
	}{
		"on one node": {pods: 2, gib: 70, want: []string{"host=n1", "host=n2", "host=n3", "rack=a",
			"rack=b", everywhere}},
		"in one rack":             {pods: 4, gib: 70, want: []string{"rack=b", everywhere}},
		"spread":                  {pods: 6, gib: 70, want: []string{everywhere}},
		"required":                {pods: 2, gib: 70, required: rack, want: []string{"rack=a", "rack=b"}},
		"required, without room":  {pods: 6, gib: 70, required: rack, want: []string{"rack=a", "rack=b"}},
		"required, and some run":  {pods: 2, gib: 70, required: rack, runsOn: "n3", want: []string{"rack=b"}},
		"required of no GPUs too": {pods: 2, gib: 0, required: rack, want: []string{"rack=a", "rack=b"}},
		"pods without GPUs":       {pods: 2, gib: 0, want: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.domains = []string{host, rack}
			w.report(0, claim{"x", 0, 60})
			all := &fwk.Placement{}
			for n, r := range []string{"a", "a", "b", "b"} {
				name := fmt.Sprintf("n%d", n)
				all.Nodes = append(all.Nodes, nodeInfo{name: name, labels: map[string]string{rack: r, host: name}})
			}
			s := snapshot{nodes: all.Nodes}
			if tc.runsOn != "" {
				p := podOf("before", 1)
				p.Spec.NodeName = tc.runsOn
				s.pods = append(s.pods, p)
			}
			w.handle.snapshot = s
			cycle, g := cycleState{state: newState()}, group{pods: gangOf(tc.pods, tc.gib), label: tc.required}
			got, status := w.GeneratePlacements(t.Context(), cycle, g, all)
			if !status.IsSuccess() {
				t.Fatal(status)
			}
			var names []string
			last := fwk.MaxScore + 1
			for i, p := range got.Placements {
				names = append(names, p.Name)
				score, status := w.ScorePlacement(t.Context(), placementState{cycle: cycle}, g,
					&fwk.PodGroupAssignments{Placement: p})
				if !status.IsSuccess() || score < 0 || score > last || score == last &&
					!strings.HasPrefix(name, "required") {
					t.Errorf("%s has the score %d after %d: %v", p.Name, score, last, status)
				}
				last = score
				if i == len(got.Placements)-1 && tc.required == "" && len(p.Nodes) != 4 {
					t.Errorf("the last has %d nodes", len(p.Nodes))
				}
			}
			if !slices.Equal(names, tc.want) {
				t.Errorf("%q, want %q", names, tc.want)
			}
		})
	}
}

// The tries of a gang's cycle retry no other pod, and leave the gang's pods waiting until they are reserved for good.
// Only more free capacity than before has them tried again.
func TestGangWaits(t *testing.T) {
	w := newWorld(t, 1)
	w.report(0, claim{"x", 0, 60}, claim{"y", 1, 10})
	pods := gangOf(2, 60)
	try := func() *state {
		t.Helper()
		s := newState()
		s.gang = true
		if _, status := w.PreFilter(t.Context(), s, pods[0], nil); !status.IsSuccess() {
			t.Fatal(status)
		}
		return s
	}
	s := try()
	if status := w.Reserve(t.Context(), s, pods[0], "n0"); !status.IsSuccess() {
		t.Fatal(status)
	}
	w.Unreserve(t.Context(), s, pods[0], "n0")
	_, status := w.PodGroupPostFilter(t.Context(), nil, group{pods: pods}, nil)
	if status.Code() != fwk.UnschedulableAndUnresolvable ||
		status.Message() != "2 pods must fit at once, and 1 of them fit" {
		t.Errorf("%v: %q", status.Code(), status.Message())
	}
	w.report(0, claim{"x", 0, 60}, claim{"y", 1, 10}) // nothing new
	w.report(0, claim{"x", 0, 70}, claim{"y", 1, 10}) // less room
	if len(w.handle.woken) != 0 {
		t.Fatalf("woken %q", w.handle.woken)
	}
	w.report(0, claim{"y", 1, 10})
	if !slices.Equal(w.handle.woken, []string{"ns/g0"}) {
		t.Errorf("woken %q", w.handle.woken)
	}
	s = try()
	s.gang = false
	if status := w.Reserve(t.Context(), s, pods[0], "n0"); !status.IsSuccess() || len(w.core.waiting.pods) != 0 {
		t.Errorf("%v, %d wait", status, len(w.core.waiting.pods))
	}
}
