// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// mutable is a snapshot that notes what is taken out of it.
type mutable struct {
	fwk.SharedLister
	removed []string
	open    bool
}

func (m *mutable) StartMutations() error                                       { m.open = true; return nil }
func (m *mutable) EndMutations() error                                         { m.open = false; return nil }
func (*mutable) AddPod(fwk.PodInfo, string) error                              { return nil }
func (h *handle) MutableSnapshotSharedLister() fwk.MutableSnapshotSharedLister { return h.mutable }
func (m *mutable) RemovePod(_ klog.Logger, pod *corev1.Pod, _ string) error {
	m.removed = append(m.removed, pod.Name)
	return nil
}

// List has the nodes of a snapshot.
func (s snapshot) List() ([]fwk.NodeInfo, error) { return s.nodes, nil }

// proposed is where a pod of a gang would be.
type proposed struct {
	fwk.ProposedAssignment
	pod  *corev1.Pod
	node string
}

func (p proposed) GetPod() *corev1.Pod { return p.pod }
func (p proposed) GetNodeName() string { return p.node }

// The fewest give way to a gang, when all of it has room then by what all plugins say; nothing that is only thought
// stays.
func TestGangPreempts(t *testing.T) {
	low, high, never := int32(1), int32(5), corev1.PreemptNever
	for name, tc := range map[string]struct {
		change func(w *world, gang []*corev1.Pod)
		// schedule is what the whole gang's cycle says then.
		schedule *fwk.Status
		want     []string
		code     fwk.Code
	}{
		"it has room then": {func(*world, []*corev1.Pod) {}, nil, []string{"a", "d"}, fwk.Success},
		"others say no": {func(*world, []*corev1.Pod) {}, fwk.NewStatus(fwk.Unschedulable, "no CPU"), nil,
			fwk.UnschedulableAndUnresolvable},
		"the others matter more": {func(_ *world, g []*corev1.Pod) { g[0].Spec.Priority = &low }, nil, nil,
			fwk.UnschedulableAndUnresolvable},
		"it never preempts": {func(_ *world, g []*corev1.Pod) { g[1].Spec.PreemptionPolicy = &never }, nil, nil,
			fwk.UnschedulableAndUnresolvable},
		"elsewhere": {func(_ *world, g []*corev1.Pod) { g[0].Spec.NodeSelector = map[string]string{"rack": "z"} }, nil,
			nil, fwk.UnschedulableAndUnresolvable},
		"they go already": {func(w *world, _ []*corev1.Pod) {
			for _, uid := range []string{"uid-a", "uid-d"} {
				w.core.state.PodRemoved(uid, w.clock)
			}
		}, nil, nil, fwk.Success},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.handle.mutable = &mutable{}
			s := snapshot{}
			for n, holds := range [][]claim{{{"a", 0, 60}, {"b", 1, 30}, {"c", 1, 30}},
				{{"d", 0, 60}, {"e", 1, 30}, {"f", 1, 30}}} {
				node := nodeInfo{name: fmt.Sprintf("n%d", n)}
				for i := range holds {
					p := podOf(holds[i].uid, int(holds[i].gib))
					p.Spec.Priority, p.Spec.NodeName = &low, node.name
					holds[i].uid = string(p.UID)
					want, _, _ := wantOf(p)
					w.core.state.Pod(podspec.Convert(p), want, w.clock)
					node.pods = append(node.pods, podInfo{pod: p})
				}
				w.report(n, holds...)
				s.nodes = append(s.nodes, node)
			}
			w.handle.snapshot = s
			gang := gangOf(2, 70)
			for _, p := range gang {
				p.Spec.Priority = &high
			}
			tc.change(w, gang)
			asked := 0
			_, status := w.PodGroupPostFilter(t.Context(), nil, group{pods: gang},
				func(context.Context) (*fwk.PodGroupAssignments, *fwk.Status) {
					asked++
					var wants []scheduler.PodRequest
					for _, p := range gang {
						want, _, _ := wantOf(p)
						wants = append(wants, want)
					}
					if text := w.core.state.ExplainGang(wants, w.clock); text != "" || !w.handle.mutable.open ||
						len(w.handle.mutable.removed) != 2 {
						t.Errorf("asked while %q, %+v", text, w.handle.mutable)
					}
					return &fwk.PodGroupAssignments{ProposedAssignments: []fwk.ProposedAssignment{
						proposed{pod: gang[0], node: "n0"}, proposed{pod: gang[1], node: "n1"}}}, tc.schedule
				})
			slices.Sort(w.handle.client.evicted)
			if status.Code() != tc.code || !slices.Equal(w.handle.client.evicted, tc.want) {
				t.Errorf("%v %q; evicted %q", status.Code(), status.Message(), w.handle.client.evicted)
			}
			if w.handle.mutable.open || asked > 1 {
				t.Errorf("left open: %t, asked %d times", w.handle.mutable.open, asked)
			}
			if v := w.core.state.Fit(w.wanted(gang[0]), "n0", w.clock); v.Reason == scheduler.Fits {
				t.Error("who was thought away is still away")
			}
		})
	}
}

// wanted is what a pod requests.
func (w *world) wanted(p *corev1.Pod) scheduler.PodRequest {
	w.Helper()
	want, ok, err := wantOf(p)
	if !ok || err != nil {
		w.Fatalf("%s: %t, %v", p.Name, ok, err)
	}
	return want
}

// What a gang was promised is kept while others give way.
func TestNominated(t *testing.T) {
	gang := gangOf(2, 70)
	gang[1].Status.NominatedNodeName = "n3"
	got := nominated(gang)
	if len(got) != 1 || got[types.NamespacedName{Namespace: "ns", Name: "g1"}].NominatedNodeName != "n3" {
		t.Errorf("%+v", got)
	}
}
